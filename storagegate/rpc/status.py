"""
The details of errors, as C{google.rpc.Status} carries them in C{grpc-status-details-bin}.

The details of a C{GrpcError} become messages, and are decoded to the same form::

    [{"path": "user.email", "message": "no email"}]    google.rpc.BadRequest
    {"retryAfterMs": 1500}                             google.rpc.RetryInfo
    {"limit": 5, "retryAfterMs": 1500}                 RetryInfo and a Struct with the rest
    {"@type": "google.rpc.ErrorInfo", "reason": "R"}   that message, as in an Any of a handler
    any other mapping                                  google.protobuf.Struct
    any other value that JSON has                      google.protobuf.Value
    a protobuf message                                 itself
    a list                                             each of these in turn

A C{Struct} and a C{Value} have no bytes and no integers beyond 2**53: as in proto3's JSON mapping,
these become text in base64 and decimal digits.

All violations of a list become one C{BadRequest}, even among other items.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from google.protobuf import any_pb2, struct_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from twisted.logger import Logger

from storagegate.core.errors import GrpcError
from storagegate.rpc.codec import codecOf, detailConverter
from storagegate.rpc.converters import DEPTH_LIMIT, MAX_WHOLE, ConversionError

DETAILS_KEY = "grpc-status-details-bin"
"""The name of the trailer."""

MAX_DETAILS = 3584
"""
The maximum length of the trailer in bytes. Clients accept 8 KiB of metadata by default: base64 adds
a third to these, and C{grpc-message} takes up to 3 KiB.
"""

MESSAGE_LENGTH = 1024
"""
The maximum length of a status message in bytes; C{grpc-message} may take three bytes for each.
"""

RETRY_AFTER = "retryAfterMs"
"""The key of the delay before a retry, in milliseconds."""

# The range of google.protobuf.Duration.
_MAX_SECONDS = 315_576_000_000
_PREFIX = "type.googleapis.com/"
_NANOS_OF_MS = 1_000_000

_log = Logger()


def statusMessage(text: str) -> str:
    """
    Return the message of a status in the form it is sent: shortened, without unpaired surrogates.

    C{grpc-message} and the details must have the same message, or clients accept neither.

    @param text: The message of the error.
    """
    wire = str(text).encode("utf-8", "replace")
    return wire[:MESSAGE_LENGTH].decode("utf-8", "ignore")


def encodeDetails(error: GrpcError, pool: Any = None) -> bytes | None:
    """
    Encode the details of an error.

    A mapping without a type that cannot be converted is omitted and logged, as are all details if
    they are too long: the error itself still reaches the client.

    @param error: The error, with its details in the forms above.
    @param pool: The descriptor pool of the service, in which types are looked up first.
    @return: A C{google.rpc.Status}; C{None} if the error has no details.
    @raise DetailError: If a detail names a type that does not exist, or does not fit it.
    """
    if error.details is None or error.details == []:
        return None
    from google.rpc.status_pb2 import Status

    message = statusMessage(error.message)
    status = Status(code=error.status, message=message, details=_packAll(error.details, pool))
    wire: bytes = status.SerializeToString()
    if len(wire) > MAX_DETAILS:
        _log.warn(
            "the details of a {status} error are omitted: {size} bytes are more than {limit}",
            status=error.statusName,
            size=len(wire),
            limit=MAX_DETAILS,
        )
        wire = Status(code=error.status, message=message).SerializeToString()
    return wire


def decodeDetails(wire: bytes, pool: Any = None) -> Any:
    """
    Decode the details in a trailer to the form that L{encodeDetails} takes.

    @param wire: A C{google.rpc.Status}.
    @param pool: The descriptor pool of the service, in which types are looked up first.
    @return: The only detail, or a list of several; C{None} if there are no details, or the trailer
        is invalid.
    """
    from google.rpc.status_pb2 import Status

    try:
        status = Status.FromString(wire)
    except DecodeError:
        return None
    details = [_unpack(packed, pool) for packed in status.details]
    if len(details) > 1:
        return details
    return details[0] if details else None


# Encoding


def _packAll(details: Any, pool: Any) -> list[any_pb2.Any]:
    isList = isinstance(details, list | tuple)
    violations = [item for item in details if _isViolation(item)] if isList else []
    packed: list[any_pb2.Any] = []
    isPacked = False
    for item in details if isList else [details]:
        try:
            if not isList or not _isViolation(item):
                packed.extend([_pack(message) for message in _messages(item, pool)])
            elif not isPacked:
                isPacked = True
                packed.append(_pack(_badRequest(violations)))
        except DetailError:
            raise
        except Exception as error:
            # Do not log the error's text, which may quote secrets.
            _log.warn(
                "an error detail is omitted, because it cannot be encoded: {kind} {path}",
                kind=type(error).__name__,
                path=error.path if isinstance(error, ConversionError) else "",
            )
    return packed


def _pack(message: Message) -> any_pb2.Any:
    if isinstance(message, any_pb2.Any):
        return message
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _messages(item: Any, pool: Any) -> Iterable[Message]:
    """Convert one detail to messages."""
    if isinstance(item, Message):
        return [item]
    if isinstance(item, list | tuple) and item and all(map(_isViolation, item)):
        return [_badRequest(item)]
    if not isinstance(item, Mapping):
        return [codecOf(struct_pb2.Value).toMessage(_withText(item, 0))]
    url = item.get("@type")
    if isinstance(url, str) and _nameOf(url):
        return [_typed(item, url, pool)]
    delay = _delay(item.get(RETRY_AFTER))
    if delay is None:
        return [codecOf(struct_pb2.Struct).toMessage(_withText(item, 0))]
    from google.rpc.error_details_pb2 import RetryInfo

    rest = {key: value for key, value in item.items() if key != RETRY_AFTER}
    info = RetryInfo(retry_delay=delay)
    return [info, codecOf(struct_pb2.Struct).toMessage(_withText(rest, 0))] if rest else [info]


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
        # A Struct is also a Mapping.
        and not isinstance(item, Message)
        and item.keys() == {"path", "message"}
        and all(isinstance(value, str) for value in item.values())
    )


def _delay(ms: Any) -> Duration | None:
    """Convert milliseconds to a duration; C{None} if the value is not a number in range."""
    if not isinstance(ms, int | float) or isinstance(ms, bool):
        return None
    if not 0 <= ms <= _MAX_SECONDS * 1000:
        return None
    delay = Duration()
    delay.FromNanoseconds(round(ms * _NANOS_OF_MS))
    return delay


def _withText(value: Any, depth: int) -> Any:
    """Replace bytes by base64 text, and long integers by decimal text, as the JSON mapping does."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, int) and abs(value) > MAX_WHOLE:
        return str(value)
    if depth < DEPTH_LIMIT:
        if isinstance(value, Mapping) and not isinstance(value, Message):
            return {key: _withText(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [_withText(each, depth + 1) for each in value]
    return value


class DetailError(ValueError):
    """A detail of an error that does not fit the message type that it names."""


def _typed(item: Mapping[str, Any], url: str, pool: Any) -> Message:
    """
    Convert a mapping to the message type that it names.

    @raise DetailError: If there is no such type, or the mapping does not fit it.
    """
    # The import adds the types of details to the pool in which an Any looks them up.
    from google.rpc import error_details_pb2  # noqa: F401

    name = _nameOf(url)
    packed = any_pb2.Any()
    full = {**item, "@type": url if "/" in url else _PREFIX + url}
    try:
        detailConverter(pool).fill(packed, full, 0)
    except ConversionError as error:
        raise DetailError(f"a detail does not fit {name}: {error}") from None
    return packed


# Decoding


def _unpack(packed: any_pb2.Any, pool: Any) -> Any:
    found = _readers().get(_nameOf(packed.type_url))
    try:
        if found is None:
            return detailConverter(pool).read(packed, 0)
        messageClass, read = found
        return read(messageClass.FromString(packed.value))
    except (ConversionError, DecodeError):
        # A different message of that name: return only its bytes.
        return {"@type": packed.type_url, "value": packed.value}


@cache
def _readers() -> Mapping[str, tuple[type[Message], Callable[[Any], Any]]]:
    from google.rpc.error_details_pb2 import BadRequest, RetryInfo

    return {
        "google.rpc.BadRequest": (
            BadRequest,
            lambda message: [
                {"path": each.field, "message": each.description}
                for each in message.field_violations
            ],
        ),
        "google.rpc.RetryInfo": (RetryInfo, _readRetryInfo),
        "google.protobuf.Struct": (struct_pb2.Struct, codecOf(struct_pb2.Struct).toDict),
        "google.protobuf.Value": (struct_pb2.Value, codecOf(struct_pb2.Value).toDict),
    }


def _readRetryInfo(message: Any) -> Any:
    nanos = message.retry_delay.seconds * 1_000_000_000 + message.retry_delay.nanos
    whole, rest = divmod(nanos, _NANOS_OF_MS)
    return {RETRY_AFTER: nanos / _NANOS_OF_MS if rest else whole}


def _nameOf(url: str) -> str:
    return url.rpartition("/")[2]
