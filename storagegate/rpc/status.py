"""
The details of errors, as C{google.rpc.Status} carries them in C{grpc-status-details-bin}.

The details of a L{GrpcError<storagegate.core.errors.GrpcError>} become messages, and come back::

    [{"path": "user.email", "message": "no email"}]    google.rpc.BadRequest
    {"retryAfterMs": 1500}                             google.rpc.RetryInfo
    {"limit": 5, "retryAfterMs": 1500}                 RetryInfo and a Struct with the rest
    {"@type": "google.rpc.ErrorInfo", "reason": "R"}   that message
    {"@type": "any.other", "value": b"its wire"}       google.protobuf.Any of that type
    any other mapping                                  google.protobuf.Struct
    any other value that JSON has                      google.protobuf.Value
    a protobuf message                                 itself
    a list                                             each of these in turn

Violations that stand among other things in a list are gathered in one C{BadRequest}.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf import any_pb2, json_format, struct_pb2
from google.protobuf.descriptor_pool import Default as defaultPool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from twisted.logger import Logger

from storagegate.core.errors import GrpcError

DETAILS_KEY = "grpc-status-details-bin"
"""The name of the trailer."""

MAX_DETAILS = 4096
"""
Bytes of the trailer: C{grpc-message} repeats the message beside it and base64 adds a third, and
8 KiB of metadata in all is what a client takes by default.
"""

RETRY_AFTER = "retryAfterMs"
"""The key of details that say when to come again."""

# What google.protobuf.Duration may hold.
_MAX_SECONDS = 315_576_000_000
_PREFIX = "type.googleapis.com/"
_NANOS_OF_MS = 1_000_000

_log = Logger()


def encodeDetails(error: GrpcError) -> bytes | None:
    """
    Give the trailer of an error.

    What cannot be told, and all details that are too long, are left out and logged: the error
    itself reaches the client.

    @return: A C{google.rpc.Status}; C{None} if the error has no details, or a message so long that
        there is no room for it twice.
    """
    if error.details is None or error.details == []:
        return None
    from google.rpc.status_pb2 import Status

    # A message of any kind is told; half a pair of surrogates has no place in UTF-8.
    message = str(error.message).encode("utf-8", "replace").decode()
    status = Status(code=error.status, message=message, details=_packAll(error.details))
    wire: bytes = status.SerializeToString()
    if len(wire) > MAX_DETAILS:
        _log.warn(
            "the details of a {status} are left out: they take {size} bytes, over {limit}",
            status=error.statusName,
            size=len(wire),
            limit=MAX_DETAILS,
        )
        wire = Status(code=error.status, message=message).SerializeToString()
    return wire if len(wire) <= MAX_DETAILS else None


def decodeDetails(wire: bytes) -> Any:
    """
    Read the details from a trailer, in the form that L{encodeDetails} takes.

    @return: What the only detail says; a list where there are several; C{None} where there is none,
        or the trailer is not what it should be.
    """
    from google.rpc.status_pb2 import Status

    try:
        status = Status.FromString(wire)
    except DecodeError:
        return None
    details = [_unpack(packed) for packed in status.details]
    if len(details) > 1:
        return details
    return details[0] if details else None


# To the wire


def _packAll(details: Any) -> list[any_pb2.Any]:
    items = list(details) if isinstance(details, list | tuple) else [details]
    violations = [item for item in items if _isViolation(item)]
    packed: list[any_pb2.Any] = []
    for item in items:
        try:
            if not _isViolation(item):
                packed.extend([_pack(message) for message in _messages(item)])
            elif violations:
                packed.append(_pack(_badRequest(violations)))
                violations = []
        except Exception as error:
            # Its text may quote what nobody meant to log.
            _log.warn(
                "a detail of an error is left out, for it has no form on the wire: {kind}",
                kind=type(error).__name__,
            )
    return packed


def _pack(message: Message) -> any_pb2.Any:
    if isinstance(message, any_pb2.Any):
        return message
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _messages(item: Any) -> Iterable[Message]:
    """Make messages of one detail."""
    if isinstance(item, Message):
        return [item]
    if isinstance(item, list | tuple) and item and all(map(_isViolation, item)):
        return [_badRequest(item)]
    if not isinstance(item, Mapping):
        return [_value(item)]
    if isinstance(item.get("@type"), str):
        typed = _typed(item)
        if typed is not None:
            return [typed]
    delay = _delay(item.get(RETRY_AFTER))
    if delay is None:
        return [_struct(item)]
    from google.rpc.error_details_pb2 import RetryInfo

    rest = {key: value for key, value in item.items() if key != RETRY_AFTER}
    info = RetryInfo(retry_delay=delay)
    return [info, _struct(rest)] if rest else [info]


def _badRequest(violations: Iterable[Mapping[str, str]]) -> Message:
    from google.rpc.error_details_pb2 import BadRequest

    request: Message = BadRequest(
        field_violations=[
            BadRequest.FieldViolation(field=each["path"], description=each["message"])
            for each in violations
        ]
    )
    return request


def _isViolation(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and item.keys() == {"path", "message"}
        and all(isinstance(value, str) for value in item.values())
    )


def _delay(ms: Any) -> Duration | None:
    """Make a duration of milliseconds; C{None} if they are no time to wait."""
    if not isinstance(ms, int | float) or isinstance(ms, bool):
        return None
    if not 0 <= ms <= _MAX_SECONDS * 1000:
        return None
    delay = Duration()
    delay.FromNanoseconds(round(ms * _NANOS_OF_MS))
    return delay


def _typed(item: Mapping[str, Any]) -> Message | None:
    """Make the message that a mapping names; C{None} if nobody knows it."""
    name = _nameOf(item["@type"])
    if item.keys() == {"@type", "value"} and isinstance(item["value"], bytes):
        return any_pb2.Any(type_url=_PREFIX + name, value=item["value"])
    messageClass = _classOf(name)
    if messageClass is None:
        return None
    rest = {key: value for key, value in item.items() if key != "@type"}
    return json_format.ParseDict(rest, messageClass())


def _struct(item: Mapping[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(dict(item), struct_pb2.Struct())


def _value(item: Any) -> struct_pb2.Value:
    return json_format.ParseDict(item, struct_pb2.Value())


# From the wire


def _unpack(packed: any_pb2.Any) -> Any:
    name = _nameOf(packed.type_url)
    messageClass = _classOf(name)
    try:
        if messageClass is not None:
            message = messageClass.FromString(packed.value)
            return _READERS.get(name, _readOther)(message)
    except (DecodeError, ValueError, RecursionError, json_format.Error):
        # Another one's message of that name: its bytes are what can be told.
        pass
    return {"@type": name, "value": packed.value}


def _readBadRequest(message: Any) -> Any:
    return [{"path": each.field, "message": each.description} for each in message.field_violations]


def _readRetryInfo(message: Any) -> Any:
    nanos = message.retry_delay.seconds * 1_000_000_000 + message.retry_delay.nanos
    whole, rest = divmod(nanos, _NANOS_OF_MS)
    return {RETRY_AFTER: nanos / _NANOS_OF_MS if rest else whole}


def _readOther(message: Message) -> Any:
    return {"@type": message.DESCRIPTOR.full_name, **json_format.MessageToDict(message)}


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "google.rpc.BadRequest": _readBadRequest,
    "google.rpc.RetryInfo": _readRetryInfo,
    "google.protobuf.Struct": json_format.MessageToDict,
    "google.protobuf.Value": json_format.MessageToDict,
}


def _nameOf(url: str) -> str:
    return url.rpartition("/")[2]


def _classOf(name: str) -> type[Message] | None:
    # Its types have to be loaded before they can be found.
    from google.rpc import error_details_pb2  # noqa: F401

    try:
        return GetMessageClass(defaultPool().FindMessageTypeByName(name))
    except KeyError:
        return None
