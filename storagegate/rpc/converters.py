"""
Conversion between protobuf values and the values that handlers see, one pair of functions a type.

Scalars: for most values, the exact type and protobuf's own range check decide. Other values are
checked here, and the error gives the reason.

Wrappers become their bare value, present if set. A C{google.protobuf.FieldMask} becomes one string
with its paths, in the names that handlers see: C{"name,address.zipCode"}; see L{maskConverter}.

C{google.protobuf.Any} becomes a message of any type, with its type::

    {"@type": "type.googleapis.com/user.User", "id": "1", "createdAt": ...}
    {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"}
    {"@type": "type.googleapis.com/of.an.unknown.type", "value": b"..."}

C{google.protobuf.Struct}, C{Value} and C{ListValue} become plain Python values. Their numbers are
64-bit floating point; integers up to 2**53 are returned as C{int}.

C{google.protobuf.Timestamp} is C{"2026-01-02T03:04:05.678Z"} (RFC 3339 section 5.6, in capitals),
C{google.protobuf.Duration} is C{"-1.500s"}; a fraction has three, six or nine digits, as in
protobuf's JSON mapping.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from msgspec import Struct

DEPTH_LIMIT = 100
"""
The maximum nesting depth below the outermost message, which is the limit of protobuf's parsers. As
in the encoding, a map entry is also a level.
"""

_QUOTED = 60
"""The number of characters of a value in an error: enough to recognise it without copying it."""

_PATH_LENGTH = 240
"""
The maximum length of a path, which may contain keys of the client and be sent in a status message.
"""


class ConversionError(ValueError):
    """
    A value that does not fit its message.

    @ivar path: The field, such as C{users[2].address.zipCode}; empty for the message itself.
    @ivar reason: The problem, such as C{is a string, not 5}.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason

    def within(self, step: str) -> "ConversionError":
        """
        Return the same error as seen from the enclosing message.

        @param step: The field's name, or an index or a key in brackets.
        """
        dot = "." if self.path and self.path[0] != "[" else ""
        path = f"{step}{dot}{self.path}"
        if len(path) > _PATH_LENGTH:
            path = "..." + path[3 - _PATH_LENGTH :]
        return ConversionError(path, self.reason)


def checkDepth(depth: int) -> None:
    """
    Check that a message may contain another one.

    @param depth: The depth of the message, as L{DEPTH_LIMIT} counts it.
    @raise ConversionError: If it is at L{DEPTH_LIMIT}.
    """
    if depth >= DEPTH_LIMIT:
        raise ConversionError("", f"is nested deeper than {DEPTH_LIMIT} levels")


def wrongType(expected: str, value: Any) -> ConversionError:
    """
    Return the error for a value of the wrong type.

    @param expected: The type in words, with its article.
    @param value: The value, quoted in the error in a shortened form.
    """
    return ConversionError("", f"is {expected}, not {quoted(value)}")


def quoted(value: Any) -> str:
    """Return a representation of any value, of at most 60 characters."""
    if isinstance(value, str):
        text = repr(value[:_QUOTED])
    elif isinstance(value, bytes | bytearray):
        text = repr(bytes(value[:_QUOTED]))
    elif value is None or isinstance(value, bool | float):
        text = repr(value)
    elif isinstance(value, int):
        bits = value.bit_length()
        # Python itself refuses to format very long numbers.
        text = f"{value:d}" if bits < 4 * _QUOTED else f"a number of {bits} bits"
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


def asStep(key: Any) -> str:
    """Return a key of a dictionary as a step of a path."""
    if isinstance(key, str) and key.isprintable() and 0 < len(key) <= _QUOTED:
        return key
    return quoted(key)


Reader = Callable[[Any, int], Any]
"""
C{read(value, depth)} converts a protobuf value; C{depth} is the depth of the enclosing message.
"""

Put = Callable[[Any, Any, int], None]
"""C{put(message, value, depth)} sets a handler's value in a message at that depth."""


class Converter(Struct, frozen=True):
    """
    The conversion of one class of messages.

    @ivar read: C{read(message, depth)} returns a message's plain value.
    @ivar fill: C{fill(message, value, depth)} sets a plain value in a new message.
    @ivar isBare: Whether the plain value is something other than a dictionary of the message's
        fields.
    """

    read: Reader
    fill: Put
    isBare: bool = True


class MessageForm(Struct, frozen=True):
    """
    How the messages of a type are parsed, written and converted.

    @ivar messageClass: The class that parses and writes them.
    @ivar converter: Converts messages of this class.
    @ivar enumOf: Returns the enum of a field; C{None} if it has none.
    """

    messageClass: type[Message]
    converter: Converter
    enumOf: Callable[[FieldDescriptor], EnumDescriptor | None]


def asMapping(value: Any, expected: str) -> Mapping[Any, Any]:
    """
    Check that a value is a mapping, and return it.

    @param value: Any value. A message, even a C{Struct}, does not count as a mapping.
    @param expected: The expected type, for the error.
    @raise ConversionError: If it is not a mapping.
    """
    # A Struct is a Mapping of messages; messages are copied, never read item by item.
    if isinstance(value, dict | Mapping) and not isinstance(value, Message):
        return value
    raise wrongType(expected, value)


def asList(value: Any) -> list[Any] | tuple[Any, ...]:
    """
    Check that a value is a list or a tuple, and return it.

    @raise ConversionError: If it is neither, such as a string or a generator.
    """
    if isinstance(value, list | tuple):
        return value
    raise wrongType("a list", value)


def copyInto(message: Message, value: Message) -> None:
    """
    Copy a message into a new one of the same name, perhaps from another pool.

    @param message: The new message, empty.
    @param value: The message to copy.
    @raise ConversionError: If it has another name, or its bytes do not parse as such a message.
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
    """
    Set a value in a new part of a message: a plain value, or a message to copy.

    @param fill: Sets a plain value in the part.
    @param part: The new message inside another.
    @param value: A plain value, or a message.
    @param depth: The depth of the part.
    """
    if isinstance(value, Message):
        copyInto(part, value)
    else:
        fill(part, value, depth)


def serialize(message: Any) -> bytes:
    """
    Encode a message.

    @raise ConversionError: If a required field of proto2 is missing.
    """
    try:
        wire: bytes = message.SerializeToString()
    except EncodeError:
        raise unencodable(message) from None
    return wire


def unencodable(message: Any) -> ConversionError:
    """Return the error for a message that cannot be encoded."""
    missing = message.FindInitializationErrors()
    if missing:
        return ConversionError(missing[0], "is required")
    return ConversionError("", f"cannot be written as a {message.DESCRIPTOR.full_name} message")


def notA(fullName: str) -> ConversionError:
    """Return the error for bytes that do not parse as a message."""
    return ConversionError("", f"is not a valid {fullName} message")


FLOAT_MAX = 3.4028234663852886e38
"""The largest 32-bit float; protobuf would write infinity for larger numbers."""

_INT32_MAX = (1 << 31) - 1

NULL_VALUE = "google.protobuf.NullValue"


class NoType:
    """A type without values: a field that expects it has every value checked."""


class ScalarConverter(Struct, frozen=True):
    """
    The conversion of the values of one field.

    @ivar exact: Values of exactly this type may be set unchecked.
    @ivar check: Converts any other value to protobuf's, or raises L{ConversionError}.
    @ivar read: Converts protobuf's value to the handler's; C{None} if they are the same.
    @ivar takesNone: Whether C{None} is a valid value.
    """

    exact: type
    check: Callable[[Any], Any]
    read: Callable[[Any], Any] | None = None
    takesNone: bool = False


def scalarConverter(field: FieldDescriptor) -> ScalarConverter:
    """Return the converter of a scalar or enum field."""
    if field.enum_type is not None:
        return enumConverter(field.enum_type)
    file = getattr(field, "file")  # noqa: B009 - The type stubs lack it.
    if field.type == FieldDescriptor.TYPE_STRING and not _isProto3(file):
        # Only proto2 allows text that is not UTF-8, which protobuf returns as bytes.
        return ScalarConverter(str, checkString, _readText)
    return _SCALARS[field.type]


def checkString(value: Any) -> str:
    """
    Check that a value is a string, and return it.

    @raise ConversionError: If it is not a string, or has an unpaired surrogate.
    """
    if not isinstance(value, str):
        raise wrongType("a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrongType("a string of whole characters", value) from None
    return value


# A few entries suffice: compiling messages looks up the same files again and again.
@lru_cache(8)
def _isProto3(file: Any) -> bool:
    return fieldsOf(file.serialized_pb, _SYNTAX) == [b"proto3"]


_SYNTAX = 12
"""The number of C{syntax} in C{FileDescriptorProto}."""


def fieldsOf(wire: bytes, number: int) -> list[Any]:
    """
    Return the values of one field of a serialized message, without the message's class.

    @param number: The number of the field.
    """
    # The type stubs do not know that the set is iterable.
    fields: Any = UnknownFieldSet(Empty.FromString(wire))
    return [each.data for each in fields if each.field_number == number]


def _readText(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ConversionError("", "is not UTF-8 text")


def _integerConverter(low: int, high: int) -> ScalarConverter:
    def check(value: Any) -> int:
        # JSON has one kind of numbers: 5.0 equals 5.
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
            return number
        raise wrongType(f"a whole number from {low} to {high}", value)

    return ScalarConverter(int, check)


def _checkDouble(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise wrongType("a number", value)


def _checkFloat(value: Any) -> float:
    number = _checkDouble(value)
    if math.isfinite(number) and abs(number) > FLOAT_MAX:
        raise wrongType("a number of 32 bits", value)
    return number


def _checkBool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise wrongType("True or False", value)


def checkBytes(value: Any) -> bytes:
    """
    Return a copy of bytes, a bytearray or a memoryview.

    @raise ConversionError: If the value is none of these.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise wrongType("bytes", value)


def enumConverter(enum: EnumDescriptor) -> ScalarConverter:
    """Return the converter of an enum, which takes any number of 32 bits."""
    numbers = {value.name: value.number for value in enum.values}
    # If names share a number, the first name is used.
    names: dict[int, Any] = {value.number: value.name for value in reversed(enum.values)}
    isNull = enum.full_name == NULL_VALUE
    if isNull:
        names = {0: None}

    def check(value: Any) -> int:
        if isinstance(value, str) and value in numbers:
            return numbers[value]
        low, high = -_INT32_MAX - 1, _INT32_MAX
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        if isNull and value is None:
            return 0
        raise wrongType(f"a name of {enum.full_name}", value)

    def read(value: int) -> Any:
        return names.get(value, value)

    return ScalarConverter(NoType, check, read, isNull)


_INT32 = _integerConverter(-_INT32_MAX - 1, _INT32_MAX)
_UINT32 = _integerConverter(0, (1 << 32) - 1)
_INT64 = _integerConverter(-(1 << 63), (1 << 63) - 1)
_UINT64 = _integerConverter(0, (1 << 64) - 1)
_SCALARS = {
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
    FieldDescriptor.TYPE_DOUBLE: ScalarConverter(float, _checkDouble),
    FieldDescriptor.TYPE_FLOAT: ScalarConverter(NoType, _checkFloat),
    FieldDescriptor.TYPE_BOOL: ScalarConverter(bool, _checkBool),
    FieldDescriptor.TYPE_STRING: ScalarConverter(str, checkString),
    FieldDescriptor.TYPE_BYTES: ScalarConverter(bytes, checkBytes),
}


_TYPE, _VALUE = "@type", "value"


def findType(pools: Iterable[DescriptorPool], url: str) -> Descriptor | None:
    """
    Return the message type that an C{Any} names; C{None} if no pool has it.

    @param pools: Descriptor pools, in the order of search.
    @param url: Such as C{type.googleapis.com/user.User}.
    """
    for pool in pools:
        with suppress(KeyError):
            return pool.FindMessageTypeByName(url.rpartition("/")[2])
    return None


def anyConverter(
    pools: Iterable[DescriptorPool], formOf: Callable[[Descriptor], MessageForm]
) -> Converter:
    """
    Return the converter of C{Any}.

    @param pools: The descriptor pools in which types are looked up, in the order of search.
    @param formOf: Returns how messages of a type are converted.
    """

    def read(message: Any, depth: int) -> dict[str, Any]:
        url, wire = message.type_url, message.value
        if not url and not wire:
            return {}
        descriptor = findType(pools, url)
        if descriptor is None:
            return {_TYPE: url, _VALUE: wire}
        checkDepth(depth)
        found = formOf(descriptor)
        try:
            inner = found.messageClass.FromString(wire)
        except DecodeError:
            raise notA(descriptor.full_name) from None
        form = found.converter
        if not form.isBare:
            return {_TYPE: url, **form.read(inner, depth + 1)}
        try:
            return {_TYPE: url, _VALUE: form.read(inner, depth + 1)}
        except ConversionError as error:
            raise error.within(_VALUE) from None

    def fill(message: Any, value: Any, depth: int) -> None:
        fields = dict(asMapping(value, "a mapping with @type"))
        if not fields:
            return
        if _TYPE not in fields:
            raise ConversionError("", "has no @type")
        try:
            url = message.type_url = checkString(fields.pop(_TYPE))
        except ConversionError as error:
            raise error.within(_TYPE) from None
        descriptor = findType(pools, url)
        if descriptor is None:
            # No bytes are an empty message.
            wire = fields.pop(_VALUE, b"")
            if fields or not isinstance(wire, bytes | bytearray | memoryview):
                reason = f"is the unknown type {quoted(url)}, which takes only a value of bytes"
                raise ConversionError(_TYPE, reason)
            message.value = bytes(wire)
            return
        checkDepth(depth)
        found = formOf(descriptor)
        inner, form = found.messageClass(), found.converter
        if not form.isBare:
            form.fill(inner, fields, depth + 1)
        else:
            _onlyValue(fields, url, lambda plain: form.fill(inner, plain, depth + 1))
        message.value = serialize(inner)

    return Converter(read, fill)


def _onlyValue(fields: dict[Any, Any], url: str, take: Callable[[Any], Any]) -> Any:
    """Take the only value of a type that is represented without fields."""
    if _VALUE not in fields:
        raise ConversionError("", f"has no value, which {quoted(url)} needs")
    value = fields.pop(_VALUE)
    for key in fields:
        raise ConversionError(asStep(key), f"is not a field of {quoted(url)}")
    try:
        return take(value)
    except ConversionError as error:
        raise error.within(_VALUE) from None


MAX_WHOLE = 1 << 53
"""Beyond this, not every integer has a distinct floating-point value."""

_WHOLE = float(MAX_WHOLE)


def _readValue(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        if -_WHOLE < number < _WHOLE:
            # A zero with a sign is no integer.
            isWhole = number.is_integer() and (number or math.copysign(1, number) > 0)
            return int(number) if isWhole else number
        if not math.isfinite(number):
            raise wrongType("a number that JSON can represent", number)
        return number
    if kind == "bool_value":
        return value.bool_value
    if kind == "struct_value":
        checkDepth(depth)
        return _readStruct(value.struct_value, depth + 1)
    if kind == "list_value":
        checkDepth(depth)
        return _readList(value.list_value, depth + 1)
    return None


def _readStruct(struct: Any, depth: int) -> dict[str, Any]:
    fields = struct.fields
    result = {}
    for key in fields:
        # The map entry is also a level.
        checkDepth(depth + 1)
        try:
            result[key] = _readValue(fields[key], depth + 2)
        except ConversionError as error:
            raise error.within(asStep(key)) from None
    return result


def _readList(values: Any, depth: int) -> list[Any]:
    result: list[Any] = []
    for value in values.values:
        checkDepth(depth)
        try:
            result.append(_readValue(value, depth + 1))
        except ConversionError as error:
            raise error.within(f"[{len(result)}]") from None
    return result


def _fillValue(value: Any, item: Any, depth: int) -> None:
    if isinstance(item, str):
        try:
            value.string_value = item
        except UnicodeEncodeError:
            checkString(item)
            raise
    elif isinstance(item, bool):
        value.bool_value = item
    elif isinstance(item, int | float):
        value.number_value = _asNumber(item)
    elif item is None:
        value.null_value = 0
    elif isinstance(item, list | tuple):
        checkDepth(depth)
        # Mark an empty list as present, too.
        value.list_value.SetInParent()
        _fillList(value.list_value, item, depth + 1)
    elif isinstance(item, Mapping) and not isinstance(item, Message):
        checkDepth(depth)
        value.struct_value.SetInParent()
        _fillStruct(value.struct_value, item, depth + 1)
    else:
        raise wrongType("a value that JSON can represent", item)


def _asNumber(item: float) -> float:
    if isinstance(item, int) and abs(item) > _WHOLE:
        raise wrongType("a whole number of at most 2**53, beyond which digits are lost", item)
    try:
        number = float(item)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise wrongType("a number that JSON can represent", item)
    return number


def _fillStruct(struct: Any, item: Any, depth: int) -> None:
    fields = struct.fields
    for key, value in asMapping(item, "a mapping").items():
        checkDepth(depth + 1)
        try:
            _fillValue(fields[checkString(key)], value, depth + 2)
        except ConversionError as error:
            raise error.within(asStep(key)) from None


def _fillList(values: Any, item: Any, depth: int) -> None:
    add = values.values.add
    for index, value in enumerate(asList(item)):
        checkDepth(depth)
        try:
            _fillValue(add(), value, depth + 1)
        except ConversionError as error:
            raise error.within(f"[{index}]") from None


_NANOS = 1_000_000_000
_DAY = 24 * 60 * 60
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first second of year 1 and the last second of year 9999."""
_LONGEST = 315_576_000_000
"""Seconds in 10,000 years, the longest C{Duration}."""

_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_LENGTH = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,9}))?s")


def _fraction(nanos: int) -> str:
    if not nanos:
        return ""
    if nanos % 1_000_000 == 0:
        return f".{nanos // 1_000_000:03d}"
    if nanos % 1_000 == 0:
        return f".{nanos // 1_000:06d}"
    return f".{nanos:09d}"


def _nanosOf(digits: str | None) -> int:
    return int(digits.ljust(9, "0")) if digits else 0


def _readTimestamp(message: Any, depth: int) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not (_FIRST <= seconds <= _LAST and 0 <= nanos < _NANOS):
        raise ConversionError("", "is not a moment in the years 1 to 9999")
    return f"{(_EPOCH + timedelta(0, seconds)).isoformat()}{_fraction(nanos)}Z"


def _fillTimestamp(message: Any, value: Any, depth: int) -> None:
    if isinstance(value, str):
        since, nanos = _parseMoment(value)
    elif isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ConversionError("", 'is a datetime without a zone; naive="utc" takes it as UTC')
        since = value - _EPOCH_UTC
        nanos = since.microseconds * 1_000
    else:
        raise wrongType("a moment such as 2026-01-02T03:04:05Z", value)
    seconds = since.days * _DAY + since.seconds
    if not _FIRST <= seconds <= _LAST:
        raise wrongType("a moment in the years 1 to 9999", value)
    message.seconds = seconds
    message.nanos = nanos


def _fillNaiveTimestamp(message: Any, value: Any, depth: int) -> None:
    """Set a moment; a C{datetime} without a zone is in UTC."""
    if isinstance(value, datetime) and value.utcoffset() is None:
        value = value.replace(tzinfo=UTC)
    _fillTimestamp(message, value, depth)


NAIVE_TIMESTAMP = Converter(_readTimestamp, _fillNaiveTimestamp)
"""The converter of a C{Timestamp} that takes a C{datetime} without a zone as UTC."""


def _parseMoment(text: str) -> tuple[timedelta, int]:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise wrongType("a moment such as 2026-01-02T03:04:05Z", text)
    moment, fraction, sign, hours, minutes = match.groups()
    try:
        since = datetime.fromisoformat(moment) - _EPOCH
    except ValueError:
        raise wrongType("an existing date and time", text) from None
    if sign is not None:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        since += offset if sign == "-" else -offset
    return since, _nanosOf(fraction)


def _readDuration(message: Any, depth: int) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not (-_LONGEST <= seconds <= _LONGEST and -_NANOS < nanos < _NANOS) or seconds * nanos < 0:
        raise ConversionError("", "is not a length of time up to 10,000 years")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _fillDuration(message: Any, value: Any, depth: int) -> None:
    nanos = _nanosOfLength(value)
    seconds, rest = divmod(abs(nanos), _NANOS)
    if seconds > _LONGEST:
        raise wrongType("a length of time up to 10,000 years", value)
    sign = -1 if nanos < 0 else 1
    message.seconds = sign * seconds
    message.nanos = sign * rest


def _nanosOfLength(value: Any) -> int:
    if isinstance(value, str):
        match = _LENGTH.fullmatch(value)
        if match is not None:
            sign, seconds, fraction = match.groups()
            nanos = int(seconds) * _NANOS + _nanosOf(fraction)
            return -nanos if sign else nanos
    elif isinstance(value, timedelta):
        return value // timedelta(microseconds=1) * 1_000
    elif isinstance(value, int) and not isinstance(value, bool):
        return value * _NANOS
    elif isinstance(value, float) and math.isfinite(value):
        # In two parts: one product would lose digits.
        whole = int(value)
        return whole * _NANOS + round((value - whole) * _NANOS)
    raise wrongType("a length of time such as 1.5s", value)


_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# Paths that survive the conversion to the other form and back.
_PROTO_PATH = re.compile(r"(?:[^A-Z_,]|_[a-z])+")
_OWN_PATH = re.compile(r"[^,]*_[^,]*")
_HANDLER_PATH = re.compile(r"[^_,]+")
_UNDERSCORE = re.compile(r"_([a-z])")
_CAPITAL = re.compile(r"[A-Z]")


def wrapperConverter(descriptor: Descriptor) -> Converter | None:
    """
    Return the converter of a wrapper; C{None} if the message is not a wrapper.

    @param descriptor: The message type, such as C{google.protobuf.Int32Value}.
    """
    if descriptor.full_name not in _WRAPPERS:
        return None
    check = scalarConverter(descriptor.fields_by_name["value"]).check

    def read(message: Any, depth: int) -> Any:
        return message.value

    def fill(message: Any, value: Any, depth: int) -> None:
        message.value = check(value)

    return Converter(read, fill)


def _resolve(targets: Iterable[Descriptor], path: str, isJSON: bool) -> str | None:
    """
    Look up a path in messages.

    @param isJSON: Whether the path may have JSON names, and the result has the fields' own names;
        otherwise the path has own names, and the result JSON names.
    @return: The path in the other names; C{None} if no message has it.
    """
    for target in targets:
        message: Descriptor | None = target
        names = []
        for step in path.split("."):
            found = None if message is None else message.fields_by_name.get(step)
            if found is None and isJSON and message is not None:
                found = next((each for each in message.fields if each.json_name == step), None)
            if found is None:
                break
            names.append(found.name if isJSON else found.json_name)
            message = found.message_type
        else:
            return ".".join(names)
    return None


def maskConverter(holder: Descriptor | None = None) -> Converter:
    """
    Return the converter of C{google.protobuf.FieldMask}.

    A path is looked up in the messages beside the mask, by the fields' own names, then by their
    JSON names. A path that none of them has is converted by the rule of the JSON mapping; if that
    would not give it back, handlers see the own names.

    @param holder: The message that has the mask; C{None} if it is not known.
    """
    beside = [each.message_type for each in holder.fields] if holder is not None else []
    targets = [each for each in beside if each is not None]

    def readPath(path: str) -> str:
        found = _resolve(targets, path, isJSON=False)
        if found is not None:
            return found
        if _PROTO_PATH.fullmatch(path):
            return _UNDERSCORE.sub(lambda match: match[1].upper(), path)
        if _OWN_PATH.fullmatch(path):
            return path
        raise ConversionError("", f"has the path {quoted(path)}, which has no name in handlers")

    def read(message: Any, depth: int) -> str:
        return ",".join(map(readPath, message.paths))

    def fill(message: Any, value: Any, depth: int) -> None:
        text = checkString(value)
        for path in text.split(",") if text else ():
            found = _resolve(targets, path, isJSON=True)
            if found is None and _HANDLER_PATH.fullmatch(path):
                found = _CAPITAL.sub(lambda match: "_" + match[0].lower(), path)
            elif found is None and _OWN_PATH.fullmatch(path):
                found = path
            if found is None:
                raise wrongType("paths such as name,address.zipCode", value)
            message.paths.append(found)

    return Converter(read, fill)


ANY = "google.protobuf.Any"
FIELD_MASK, TIMESTAMP = "google.protobuf.FieldMask", "google.protobuf.Timestamp"

WELL_KNOWN = {
    "google.protobuf.Struct": Converter(_readStruct, _fillStruct),
    "google.protobuf.Value": Converter(_readValue, _fillValue),
    "google.protobuf.ListValue": Converter(_readList, _fillList),
    TIMESTAMP: Converter(_readTimestamp, _fillTimestamp),
    "google.protobuf.Duration": Converter(_readDuration, _fillDuration),
    FIELD_MASK: maskConverter(),
}
"""The converters by the message's full name."""
