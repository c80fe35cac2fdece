"""
The JSON form of a proto's messages, for transports other than gRPC: proto3's JSON mapping.

Only the values that JSON does not have differ from those of handlers: 64-bit integers are text,
bytes are base64, NaN and infinities are names, keys of maps are text. All other rules are those of
L{MessageCodec}, so handlers see the same values as over gRPC, and the same values are refused.
"""

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from typing import Any

from attrs import define, field
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import EncodeError

from storagegate.core.validationerrors import errorDetail
from storagegate.rpc.codec import MessageCodec, findExtension, isMap
from storagegate.rpc.converters import (
    ANY,
    WELL_KNOWN,
    ConversionError,
    checkDepth,
    findType,
    quoted,
    wrapperConverter,
)

_Convert = Callable[[Any, int], Any]
"""C{convert(value, depth)} returns a value in the other form."""

_Leaf = Callable[[Any], Any]


class JSONMapping:
    """
    The conversion between the JSON form of a message and the values of handlers.

    @ivar document: An empty schema: JSON Schema does not describe messages.
    """

    def __init__(self, codec: MessageCodec) -> None:
        """
        @param codec: The codec that gRPC uses for the message.
        """
        self.document: Mapping[str, Any] = {}
        self._codec = codec
        descriptor: Any = codec.messageClass.DESCRIPTOR
        self._toPlain = _Forms(_FROM_JSON, isReading=True).of(descriptor)
        self._toJSON = _Forms(_TO_JSON, isReading=False).of(descriptor)

    def read(self, value: Any) -> Any:
        """
        Convert a request to the value of the handler.

        @param value: A decoded JSON value, or one of MessagePack with bytes.
        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit the message.
        """
        try:
            return self._codec.normalize(self._toPlain(value, 0))
        except ConversionError as error:
            raise errorDetail(error.path, error.reason) from None

    def check(self, value: Any) -> Any:
        """
        Convert a result of the handler to JSON's form.

        @param value: A plain value or a message, as gRPC takes it.
        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit the message. Its details contain
            no part of the value.
        """
        path, reason = "", f"is not a {self._codec.fullName}"
        try:
            return self._toJSON(self._codec.normalize(value), 0)
        except ConversionError as error:
            path, reason = error.path, error.reason.partition(", not ")[0]
        except EncodeError:
            pass
        # Raised outside the except block: the error's context would hold the value.
        raise errorDetail(path, reason)


# The forms of scalars.

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NAMES: Mapping[str, float] = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def _readInteger(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value


def _readFloat(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return _NAMES[value] if value in _NAMES else float(value)
    except ValueError:
        # The codec says what is expected.
        return value


def _readBytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        standard = value.replace("-", "+").replace("_", "/").rstrip("=")
        return b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:
        raise ConversionError("", f"is base64, not {quoted(value)}") from None


def _readFlag(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _writeFloat(value: float) -> Any:
    if isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _writeShort(value: float) -> Any:
    """Write a float of 32 bits with the fewest digits that give it back."""
    if not isfinite(value):
        return _writeFloat(value)
    wire = struct.pack("<f", value)
    short = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((each for each in short if _packed(each) == wire), value)


def _packed(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        # Rounded beyond the largest.
        return b""


def _writeBytes(value: bytes) -> str:
    return b64encode(value).decode("ascii")


_SHORT = (
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_SINT32,
    FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_FIXED32,
)
_LONG = (
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_FIXED64,
)

_FROM_JSON: Mapping[int, _Leaf] = {
    **dict.fromkeys((*_SHORT, *_LONG, FieldDescriptor.TYPE_ENUM), _readInteger),
    FieldDescriptor.TYPE_FLOAT: _readFloat,
    FieldDescriptor.TYPE_DOUBLE: _readFloat,
    FieldDescriptor.TYPE_BYTES: _readBytes,
}
"""How values of JSON become those of handlers, by the type of the field."""

_TO_JSON: Mapping[int, _Leaf] = {
    **dict.fromkeys(_LONG, str),
    FieldDescriptor.TYPE_FLOAT: _writeShort,
    FieldDescriptor.TYPE_DOUBLE: _writeFloat,
    FieldDescriptor.TYPE_BYTES: _writeBytes,
}
"""How values of handlers become those of JSON."""


def _writeKey(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


@define(eq=False)
class _Message:
    """
    The fields of a message whose values differ between the two forms.

    @ivar converts: The conversions by the names of the fields; C{None} for a value that is the
        same in both forms.
    """

    descriptor: Descriptor
    forms: "_Forms"
    converts: dict[str, _Convert | None] = field(factory=dict)

    def convert(self, value: Any, depth: int) -> Any:
        """Convert a message; a value that is no mapping is left for the codec to refuse."""
        checkDepth(depth)
        if not isinstance(value, dict):
            return value
        found = {}
        for key, item in value.items():
            if key not in self.converts and not self._addExtension(key):
                # As in gRPC, a server may be older than its clients.
                continue
            convert = self.converts[key]
            try:
                found[key] = item if convert is None or item is None else convert(item, depth)
            except ConversionError as error:
                raise error.within(key) from None
        return found

    def _addExtension(self, key: Any) -> bool:
        extension = findExtension(self.descriptor, key)
        if extension is None:
            return False
        self.converts[key] = self.forms.ofField(extension)
        return True


@define(eq=False)
class _Forms:
    """
    The conversions of messages in one direction, compiled once for each type.

    @ivar leaves: The conversions of scalars by the type of the field.
    @ivar isReading: Whether JSON is read, or written.
    """

    leaves: Mapping[int, _Leaf]
    isReading: bool
    _made: dict[str, _Convert] = field(factory=dict)

    def of(self, descriptor: Descriptor) -> _Convert:
        """Return the conversion of a message."""
        name = descriptor.full_name
        convert = self._made.get(name)
        if convert is None:
            convert = self._made[name] = self._make(descriptor)
        return convert

    def _make(self, descriptor: Descriptor) -> _Convert:
        if descriptor.full_name == ANY:
            return self._ofAny(descriptor.file.pool)
        if wrapperConverter(descriptor) is not None:
            leaf = self.leaves.get(descriptor.fields_by_name["value"].type)
            return _same if leaf is None else lambda value, depth: leaf(value)
        if descriptor.full_name in WELL_KNOWN:
            return _same
        message = _Message(descriptor, self)
        # Before its fields: a type may contain itself.
        self._made[descriptor.full_name] = message.convert
        for each in descriptor.fields:
            message.converts[each.json_name] = message.converts[each.name] = self.ofField(each)
        return message.convert

    def ofField(self, each: FieldDescriptor) -> _Convert | None:
        """Return the conversion of a field's value; C{None} if both forms are the same."""
        if each.message_type is not None and isMap(each):
            return self._ofMap(each.message_type)
        single = self._ofSingle(each)
        if single is None or not each.is_repeated:
            return single

        def convertList(value: Any, depth: int) -> Any:
            if not isinstance(value, list | tuple):
                return value
            items: list[Any] = []
            try:
                for item in value:
                    items.append(single(item, depth))
            except ConversionError as error:
                raise error.within(f"[{len(items)}]") from None
            return items

        return convertList

    def _ofSingle(self, each: FieldDescriptor) -> _Convert | None:
        if each.message_type is not None:
            convert = self.of(each.message_type)
            return None if convert is _same else lambda value, depth: convert(value, depth + 1)
        leaf = self.leaves.get(each.type)
        return None if leaf is None else lambda value, depth: leaf(value)

    def _ofMap(self, entry: Descriptor) -> _Convert:
        convert = self._ofSingle(entry.fields_by_name["value"]) or _same
        kind = entry.fields_by_name["key"].type
        key: _Leaf = _writeKey
        if self.isReading:
            isFlag = kind == FieldDescriptor.TYPE_BOOL
            key = _readFlag if isFlag else self.leaves.get(kind, lambda value: value)

        def convertMap(value: Any, depth: int) -> Any:
            if not isinstance(value, dict):
                return value
            found = {}
            for each, item in value.items():
                try:
                    found[key(each)] = convert(item, depth + 1)
                except ConversionError as error:
                    raise error.within(f"[{quoted(each)}]") from None
            return found

        return convertMap

    def _ofAny(self, pool: Any) -> _Convert:
        ofBytes = self.leaves[FieldDescriptor.TYPE_BYTES]

        def convert(value: Any, depth: int) -> Any:
            checkDepth(depth)
            if not isinstance(value, dict) or not isinstance(value.get("@type"), str):
                return value
            url = value["@type"]
            descriptor = findType([pool], url)
            if descriptor is None:
                if "value" not in value:
                    raise ConversionError("@type", f"is a type that is known, not {quoted(url)}")
                return {**value, "value": ofBytes(value["value"])}
            inner = self.of(descriptor)
            name = descriptor.full_name
            if name in WELL_KNOWN or name == ANY or wrapperConverter(descriptor) is not None:
                if "value" not in value:
                    return value
                try:
                    return {**value, "value": inner(value["value"], depth + 1)}
                except ConversionError as error:
                    raise error.within("value") from None
            rest = {key: each for key, each in value.items() if key != "@type"}
            return {"@type": url, **inner(rest, depth + 1)}

        return convert


def _same(value: Any, depth: int) -> Any:
    """Return a value whose two forms are the same."""
    return value
