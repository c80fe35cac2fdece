"""
The wrappers and C{google.protobuf.FieldMask}.

A wrapper is its bare value, there whenever it is set. A field mask is its paths in one string, in
the names that handlers see: C{"name,address.zipCode"}.

C{google.protobuf.Any}: a message of any type, and which one::

    {"@type": "type.googleapis.com/user.User", "id": "1", "createdAt": ...}
    {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1.500s"}
    {"@type": "type.googleapis.com/of.no.type.we.know", "value": b"..."}

C{google.protobuf.Struct}, C{Value} and C{ListValue}: what JSON can say, as plain Python values.

A number is always 64 bits of floating point on the wire. Whole ones come back as C{int} as long as
each of them is told apart from its neighbours there.

Moments and lengths of time, as protobuf's JSON has them.

C{google.protobuf.Timestamp} is C{"2026-01-02T03:04:05.678Z"} (RFC 3339 section 5.6, in capitals),
C{google.protobuf.Duration} is C{"-1.500s"}; a fraction has three, six or nine digits.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from storagegate.rpc.converters import (
    DEPTH_LIMIT,
    ConversionError,
    Converter,
    asList,
    asMapping,
    asStep,
    checkBytes,
    checkString,
    notA,
    quoted,
    scalarForm,
    serialize,
    tooDeep,
    wrongType,
)

_TYPE, _VALUE = "@type", "value"


def anyForm(pool: DescriptorPool, formOf: Callable[[Descriptor], Converter]) -> Converter:
    """Make the form of the class C{Any} of a pool; types are looked for in the same one."""

    def find(url: str) -> Descriptor | None:
        try:
            return pool.FindMessageTypeByName(url.rpartition("/")[2])
        except KeyError:
            return None

    def read(message: Any, depth: int) -> dict[str, Any]:
        url, wire = message.type_url, message.value
        if not url and not wire:
            return {}
        descriptor = find(url)
        if descriptor is None:
            return {_TYPE: url, _VALUE: wire}
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            inner = GetMessageClass(descriptor).FromString(wire)
        except DecodeError:
            raise notA(descriptor.full_name) from None
        form = formOf(descriptor)
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
        descriptor = find(url)
        if descriptor is None:
            # Only its bytes can stand for what nobody here knows; none are an empty message.
            fields.setdefault(_VALUE, b"")
            message.value = _onlyValue(fields, url, checkBytes)
            return
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        inner: Message = GetMessageClass(descriptor)()
        form = formOf(descriptor)
        if not form.isBare:
            form.fill(inner, fields, depth + 1)
        else:
            _onlyValue(fields, url, lambda plain: form.fill(inner, plain, depth + 1))
        message.value = serialize(inner)

    return Converter(read, fill)


def _onlyValue(fields: dict[Any, Any], url: str, take: Callable[[Any], Any]) -> Any:
    """Take the value of a type that has no fields to show, if nothing is beside it."""
    if _VALUE not in fields:
        raise ConversionError("", f"has no value, as {quoted(url)} needs")
    value = fields.pop(_VALUE)
    for key in fields:
        raise ConversionError(asStep(key), f"is no field of {quoted(url)}")
    try:
        return take(value)
    except ConversionError as error:
        raise error.within(_VALUE) from None


_WHOLE = float(1 << 53)
"""From here on not every whole number has a floating point number of its own."""


def _readValue(value: Any, depth: int) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "number_value":
        number = value.number_value
        if -_WHOLE < number < _WHOLE:
            return int(number) if number.is_integer() else number
        if not math.isfinite(number):
            raise wrongType("a number that JSON has", number)
        return number
    if kind == "bool_value":
        return value.bool_value
    if kind == "struct_value":
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        return _readStruct(value.struct_value, depth + 1)
    if kind == "list_value":
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        return _readList(value.list_value, depth + 1)
    return None


def _readStruct(struct: Any, depth: int) -> dict[str, Any]:
    fields = struct.fields
    result = {}
    for key in fields:
        # The entry of the map is a level as well.
        if depth + 1 >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            result[key] = _readValue(fields[key], depth + 2)
        except ConversionError as error:
            raise error.within(asStep(key)) from None
    return result


def _readList(values: Any, depth: int) -> list[Any]:
    result: list[Any] = []
    for value in values.values:
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
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
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        # An empty one is there, too.
        value.list_value.SetInParent()
        _fillList(value.list_value, item, depth + 1)
    elif isinstance(item, Mapping) and not isinstance(item, Message):
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        value.struct_value.SetInParent()
        _fillStruct(value.struct_value, item, depth + 1)
    else:
        raise wrongType("a value that JSON has", item)


def _asNumber(item: float) -> float:
    try:
        number = float(item)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise wrongType("a number that JSON has", item)
    return number


def _fillStruct(struct: Any, item: Any, depth: int) -> None:
    fields = struct.fields
    for key, value in asMapping(item, "a mapping").items():
        if depth + 1 >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            _fillValue(fields[checkString(key)], value, depth + 2)
        except ConversionError as error:
            raise error.within(asStep(key)) from None


def _fillList(values: Any, item: Any, depth: int) -> None:
    add = values.values.add
    for index, value in enumerate(asList(item)):
        if depth >= DEPTH_LIMIT:
            raise tooDeep()
        try:
            _fillValue(add(), value, depth + 1)
        except ConversionError as error:
            raise error.within(f"[{index}]") from None


STRUCT_FORMS = {
    "google.protobuf.Struct": Converter(_readStruct, _fillStruct),
    "google.protobuf.Value": Converter(_readValue, _fillValue),
    "google.protobuf.ListValue": Converter(_readList, _fillList),
}
"""The forms by the message's full name."""


_NANOS = 1_000_000_000
_DAY = 24 * 60 * 60
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = -62_135_596_800
"""The first second of the year 1."""
_LAST = 253_402_300_799
"""The last one of the year 9999."""
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
        raise ConversionError("", "is no moment of the years 1 to 9999")
    return f"{(_EPOCH + timedelta(0, seconds)).isoformat()}{_fraction(nanos)}Z"


def _fillTimestamp(message: Any, value: Any, depth: int) -> None:
    if isinstance(value, str):
        since, nanos = _parseMoment(value)
    elif isinstance(value, datetime):
        since = value - (_EPOCH if value.utcoffset() is None else _EPOCH_UTC)
        nanos = since.microseconds * 1_000
    else:
        raise wrongType("a moment such as 2026-01-02T03:04:05Z", value)
    seconds = since.days * _DAY + since.seconds
    if not _FIRST <= seconds <= _LAST:
        raise wrongType("a moment of the years 1 to 9999", value)
    message.seconds = seconds
    message.nanos = nanos


def _parseMoment(text: str) -> tuple[timedelta, int]:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise wrongType("a moment such as 2026-01-02T03:04:05Z", text)
    moment, fraction, sign, hours, minutes = match.groups()
    try:
        since = datetime.fromisoformat(moment) - _EPOCH
    except ValueError:
        raise wrongType("a day and a time that there are", text) from None
    if sign is not None:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        since += offset if sign == "-" else -offset
    return since, _nanosOf(fraction)


def _readDuration(message: Any, depth: int) -> str:
    seconds, nanos = message.seconds, message.nanos
    if not (-_LONGEST <= seconds <= _LONGEST and -_NANOS < nanos < _NANOS) or seconds * nanos < 0:
        raise ConversionError("", "is no length of time up to 10,000 years")
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
        # In two parts: the product of the whole would lose digits.
        whole = int(value)
        return whole * _NANOS + round((value - whole) * _NANOS)
    raise wrongType("a length of time such as 1.5s", value)


TIME_FORMS = {
    "google.protobuf.Timestamp": Converter(_readTimestamp, _fillTimestamp),
    "google.protobuf.Duration": Converter(_readDuration, _fillDuration),
}
"""The forms by the message's full name."""


_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

# What comes back when it is turned into the other form and again into this one.
_PATH = re.compile(r"(?:[^A-Z_,]|_[a-z])+")
_HANDLERS_PATH = re.compile(r"[^_,]+")
_UNDERSCORE = re.compile(r"_([a-z])")
_CAPITAL = re.compile(r"[A-Z]")


def wrapperForm(descriptor: Descriptor) -> Converter | None:
    """Give the form of a wrapper; C{None} if the message is none."""
    if descriptor.full_name not in _WRAPPERS:
        return None
    check = scalarForm(descriptor.fields_by_name["value"]).check

    def read(message: Any, depth: int) -> Any:
        return message.value

    def fill(message: Any, value: Any, depth: int) -> None:
        message.value = check(value)

    return Converter(read, fill)


def _readMask(message: Any, depth: int) -> str:
    paths = message.paths[:]
    for path in paths:
        if not _PATH.fullmatch(path):
            raise ConversionError("", f"has the path {quoted(path)}, which has no name in handlers")
    return _UNDERSCORE.sub(lambda match: match[1].upper(), ",".join(paths))


def _fillMask(message: Any, value: Any, depth: int) -> None:
    text = checkString(value)
    for path in text.split(",") if text else ():
        if not _HANDLERS_PATH.fullmatch(path):
            raise wrongType("paths such as name,address.zipCode", value)
        message.paths.append(_CAPITAL.sub(lambda match: "_" + match[0].lower(), path))


WELL_KNOWN_FORMS = {"google.protobuf.FieldMask": Converter(_readMask, _fillMask)}
"""The forms by the message's full name."""
