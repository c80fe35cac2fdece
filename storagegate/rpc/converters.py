"""
What the forms of values have in common: a pair of functions, one for each direction.

What is wrong with a value, and where in a message it is, in words that may be logged.

Numbers, strings, bytes and enums: what a field of each takes.

For most values the question is answered by their exact type and by protobuf's own check of the
range. Whatever that does not let through is looked at here, with the reasons.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from attrs import frozen
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, EncodeError, Message

DEPTH_LIMIT = 100
"""
As deep as a message may nest below the outermost one: protobuf's parsers read no deeper. As on the
wire, the entry of a map is a level too.
"""

_QUOTED = 60
"""Characters that are shown of a value: enough to know it by, not a copy of it."""

_PATH = 240
"""Characters of a path: it may have to travel in a status message, keys of the client's in it."""


class ConversionError(ValueError):
    """
    A value that does not fit its message.

    @ivar path: The field, such as C{users[2].address.zipCode}; empty for the message itself.
    @ivar reason: What is wrong with it, such as C{is a string, not 5}.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason

    def within(self, step: str) -> "ConversionError":
        """
        Give the same error as seen from one level further out.

        @param step: The field's name, or an index or a key in brackets.
        """
        dot = "." if self.path and self.path[0] != "[" else ""
        path = f"{step}{dot}{self.path}"
        if len(path) > _PATH:
            path = "..." + path[3 - _PATH :]
        return ConversionError(path, self.reason)


def tooDeep() -> ConversionError:
    """Make the error for what is below L{DEPTH_LIMIT}."""
    return ConversionError("", f"is nested deeper than {DEPTH_LIMIT} levels")


def wrongType(expected: str, value: Any) -> ConversionError:
    """Make the error for a value of another kind than its field."""
    return ConversionError("", f"is {expected}, not {quoted(value)}")


def quoted(value: Any) -> str:
    """Show a value in at most 60 characters, whatever it is."""
    if isinstance(value, str):
        text = repr(value[:_QUOTED])
    elif isinstance(value, bytes | bytearray):
        text = repr(bytes(value[:_QUOTED]))
    elif value is None or isinstance(value, bool | float):
        text = repr(value)
    elif isinstance(value, int):
        bits = value.bit_length()
        # Python itself refuses to write very long numbers.
        text = f"{value:d}" if bits < 4 * _QUOTED else f"a number of {bits} bits"
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


def asStep(key: Any) -> str:
    """Give a key of a dictionary as a step of a path."""
    if isinstance(key, str) and key.isprintable() and 0 < len(key) <= _QUOTED:
        return key
    return quoted(key)


Reader = Callable[[Any, int], Any]
"""C{read(value, depth)} gives the handler's value of protobuf's; depth is the holder's."""

Put = Callable[[Any, Any, int], None]
"""C{put(message, value, depth)} puts a handler's value into a message that is so deep."""


@frozen
class Converter:
    """
    How one class of messages looks to handlers.

    @ivar read: C{read(message, depth)} gives a message's plain value.
    @ivar fill: C{fill(message, value, depth)} puts a plain value into a new message.
    @ivar isBare: Whether that value is something else than a dictionary of the message's fields.
    """

    read: Reader
    fill: Put
    isBare: bool = True


def asMapping(value: Any, expected: str) -> Mapping[Any, Any]:
    """
    Take a value that has to be a mapping.

    @param expected: What it is to be, for the error.
    @raise ConversionError: If it is none.
    """
    # A Struct counts as a mapping, of messages in turn: those are copied, never read item by item.
    if isinstance(value, dict | Mapping) and not isinstance(value, Message):
        return value
    raise wrongType(expected, value)


def asList(value: Any) -> list[Any] | tuple[Any, ...]:
    """
    Take a value that has to be a list.

    @raise ConversionError: If it is none. A string is none, nor is what can be read only once.
    """
    if isinstance(value, list | tuple):
        return value
    raise wrongType("a list", value)


def copyInto(message: Message, value: Message) -> None:
    """
    Copy a message into a new one of the same name, which may be another pool's.

    @raise ConversionError: If it has another name, or its bytes are no such message.
    """
    wanted, given = message.DESCRIPTOR, value.DESCRIPTOR
    if given is wanted:
        message.CopyFrom(value)
    elif given.full_name == wanted.full_name:
        try:
            message.MergeFromString(value.SerializePartialToString())
        except DecodeError:
            raise notA(wanted.full_name) from None
    else:
        raise ConversionError("", f"is a {wanted.full_name}, not a {given.full_name}")


def fillOrCopy(fill: Put, part: Any, value: Any, depth: int) -> None:
    """Put a value into a new part of a message: a plain one, or a message to copy."""
    if isinstance(value, Message):
        copyInto(part, value)
    else:
        fill(part, value, depth)


def serialize(message: Any) -> bytes:
    """
    Give a message's bytes.

    @raise ConversionError: If a required field of proto2 is missing.
    """
    try:
        wire: bytes = message.SerializeToString()
    except EncodeError:
        missing = message.FindInitializationErrors()
        if missing:
            raise ConversionError(missing[0], "is required") from None
        reason = f"cannot be written as a {message.DESCRIPTOR.full_name} message"
        raise ConversionError("", reason) from None
    return wire


def notA(fullName: str) -> ConversionError:
    """Make the error for bytes that are no message of a class."""
    return ConversionError("", f"is no {fullName} message")


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
