"""
The JSON form of a proto's messages, for transports other than gRPC: proto3's JSON mapping.

A value passes through the message itself, so handlers see the same values as over gRPC.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import EncodeError

from storagegate.core.typeschemas import errorDetail
from storagegate.rpc.codec import MessageCodec
from storagegate.rpc.converters import ConversionError, asStep, checkDepth, checkExact

_UNFIT = (Error, ValueError, TypeError, AttributeError, RecursionError)
"""The errors of protobuf's JSON mapping, and of the values that it does not expect."""


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
        self._pool = descriptor.file.pool

    def read(self, value: Any) -> Any:
        """
        Convert a request to the value of the handler.

        @param value: A decoded JSON value, or one of MessagePack with bytes.
        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit the message.
        """
        message: Any = self._codec.messageClass()
        try:
            known = _known(_withoutBytes(value), message.DESCRIPTOR, 0)
            ParseDict(known, message, descriptor_pool=self._pool)
            missing = message.FindInitializationErrors()
            if not missing:
                return self._codec.toDict(message)
        except ConversionError as error:
            raise errorDetail(error.path, error.reason) from None
        except _UNFIT as error:
            # The first line has the reason; the others list all fields.
            reason = str(error).partition("\n")[0]
            raise errorDetail("", f"is no {self._codec.fullName}: {reason}") from None
        raise errorDetail(missing[0], "is required")

    def check(self, value: Any) -> Any:
        """
        Convert a result of the handler to JSON's form.

        @param value: A plain value or a message, as gRPC takes it.
        @raise ServiceError: C{VALIDATION_ERROR} if it does not fit the message. Its details contain
            no part of the value.
        """
        path, reason = "", f"is no {self._codec.fullName}"
        try:
            return self._written(self._codec.toMessage(value))
        except ConversionError as error:
            path, reason = error.path, error.reason.partition(", not ")[0]
        except (EncodeError, *_UNFIT):
            pass
        # Raised outside the except block: the error's context would hold the value.
        raise errorDetail(path, reason)

    def _written(self, message: Any) -> Any:
        missing = message.FindInitializationErrors()
        if missing:
            raise ConversionError(missing[0], "is required")
        return MessageToDict(message, descriptor_pool=self._pool)


_NUMBERS = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
"""The types whose numbers have 64 bits of floating point."""


def _known(value: Any, descriptor: Any, depth: int) -> Any:
    """
    Return a JSON value without the fields that its message lacks: as in gRPC, a server may be older
    than its clients. (Protobuf's own option to ignore them also ignores unknown names of enums.)

    @raise ConversionError: If an integer in a C{Struct} would lose digits.
    """
    checkDepth(depth)
    if descriptor.full_name in _NUMBERS:
        checkExact(value, depth)
    if descriptor.full_name.startswith("google.protobuf.") or not isinstance(value, dict):
        return value
    fields = {each.json_name: each for each in descriptor.fields}
    found = {}
    for key, item in value.items():
        each = fields.get(key) or descriptor.fields_by_name.get(key)
        try:
            if each is not None:
                found[key] = _knownOf(item, each, depth + 1)
            elif isinstance(key, str) and key.startswith("["):
                found[key] = item
        except ConversionError as error:
            raise error.within(asStep(key)) from None
    return found


def _knownOf(value: Any, field: Any, depth: int) -> Any:
    """Return the JSON value of a field without the fields that its messages lack."""
    message = field.message_type
    if message is None:
        return value
    if message.GetOptions().map_entry:
        inner = message.fields_by_name["value"].message_type
        if inner is None or not isinstance(value, dict):
            return value
        return {key: _known(item, inner, depth) for key, item in value.items()}
    if field.is_repeated and isinstance(value, list):
        return [_known(item, message, depth) for item in value]
    return _known(value, message, depth)


def _withoutBytes(value: Any) -> Any:
    """Return a value of MessagePack with bytes as JSON has them, in base64."""
    if isinstance(value, dict):
        return {key: _withoutBytes(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_withoutBytes(each) for each in value]
    return b64encode(value).decode("ascii") if isinstance(value, bytes) else value
