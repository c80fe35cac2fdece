"""
Numbers, strings, bytes and enums: what a field of each takes.

For most values the question is answered by their exact type and by protobuf's own check of the
range. Whatever that does not let through is looked at here, with the reasons.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from attrs import frozen
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from storagegate.rpc.conversionerrors import ConversionError, wrongType

_FLOAT_MAX = 3.4028234663852886e38
"""The largest number of 32 bits; above it protobuf would write infinity."""

_INT32_MAX = (1 << 31) - 1

NULL_VALUE = "google.protobuf.NullValue"


class NoType:
    """The type of no value: where it is expected, every value is looked at."""


@frozen
class ScalarForm:
    """
    How the values of one field look to handlers.

    @ivar exact: Values of exactly this type may be given to protobuf as they are.
    @ivar check: Gives protobuf's value of any other one, or raises L{ConversionError}.
    @ivar read: Gives the handler's value of protobuf's; C{None} where it is the same.
    @ivar takesNone: Whether C{None} is a value here.
    """

    exact: type
    check: Callable[[Any], Any]
    read: Callable[[Any], Any] | None = None
    takesNone: bool = False


def scalarForm(field: FieldDescriptor) -> ScalarForm:
    """Give the form of a field that is no message."""
    if field.enum_type is not None:
        return _enumForm(field.enum_type)
    holder: Any = field.containing_type
    if field.type == FieldDescriptor.TYPE_STRING and not _isProto3(holder.file):
        # Only here may be anything else than UTF-8, which protobuf gives as bytes.
        return ScalarForm(str, checkString, _readText)
    return _FORMS[field.type]


def checkString(value: Any) -> str:
    """
    Take a string.

    @raise ConversionError: If the value is none, or has half a character.
    """
    if not isinstance(value, str):
        raise wrongType("a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrongType("a string of whole characters", value) from None
    return value


# A few files: those of the messages that are being compiled, over and over.
@lru_cache(8)
def _isProto3(file: Any) -> bool:
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return proto.syntax == "proto3"


def _readText(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ConversionError("", "is no text in UTF-8")


def _integerForm(low: int, high: int) -> ScalarForm:
    def check(value: Any) -> int:
        # JSON has one kind of numbers: 5.0 is 5 there, and here.
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        raise wrongType(f"a whole number from {low} to {high}", value)

    return ScalarForm(int, check)


def _checkDouble(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise wrongType("a number", value)


def _checkFloat(value: Any) -> float:
    number = _checkDouble(value)
    if math.isfinite(number) and abs(number) > _FLOAT_MAX:
        raise wrongType("a number of 32 bits", value)
    return number


def _checkBool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise wrongType("True or False", value)


def checkBytes(value: Any) -> bytes:
    """
    Take bytes of any kind.

    @raise ConversionError: If the value is none of them.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise wrongType("bytes", value)


def _enumForm(enum: EnumDescriptor) -> ScalarForm:
    numbers = {value.name: value.number for value in enum.values}
    # Where names share a number, the first one is its own.
    names: dict[int, Any] = {value.number: value.name for value in reversed(enum.values)}
    isNull = enum.full_name == NULL_VALUE
    if isNull:
        names = {0: None}

    def check(value: Any) -> int:
        if isinstance(value, str) and value in numbers:
            return numbers[value]
        if isinstance(value, int) and not isinstance(value, bool):
            isKnown = value in names
            if isKnown or (not enum.is_closed and -_INT32_MAX - 1 <= value <= _INT32_MAX):
                return value
        if isNull and value is None:
            return 0
        raise wrongType(f"a name of {enum.full_name}", value)

    def read(value: int) -> Any:
        return names.get(value, value)

    return ScalarForm(NoType, check, read, isNull)


_INT32 = _integerForm(-_INT32_MAX - 1, _INT32_MAX)
_UINT32 = _integerForm(0, (1 << 32) - 1)
_INT64 = _integerForm(-(1 << 63), (1 << 63) - 1)
_UINT64 = _integerForm(0, (1 << 64) - 1)
_FORMS = {
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_SINT32: _INT32,
    FieldDescriptor.TYPE_SFIXED32: _INT32,
    FieldDescriptor.TYPE_UINT32: _UINT32,
    FieldDescriptor.TYPE_FIXED32: _UINT32,
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_SINT64: _INT64,
    FieldDescriptor.TYPE_SFIXED64: _INT64,
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_FIXED64: _UINT64,
    FieldDescriptor.TYPE_DOUBLE: ScalarForm(float, _checkDouble),
    FieldDescriptor.TYPE_FLOAT: ScalarForm(NoType, _checkFloat),
    FieldDescriptor.TYPE_BOOL: ScalarForm(bool, _checkBool),
    FieldDescriptor.TYPE_STRING: ScalarForm(str, checkString),
    FieldDescriptor.TYPE_BYTES: ScalarForm(bytes, checkBytes),
}
