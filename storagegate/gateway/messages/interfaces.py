"""
What a session writes with, and what the sessions of a listener share.

What results and errors look like on each wire: plain dictionaries, for whatever encodes them.

gRPC's shape is a status, see L{asGrpcError<storagegate.core.errors.asGrpcError>}.

What messages of every wire have in them: an id, a deadline, and who calls.
"""

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from math import ceil
from types import MappingProxyType
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.context import MAX_DEADLINE_MS, ClientInfo
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.invoker import CallCredentials, Invoker

MessageId = str | int | None

_HTTP_UNKNOWN = "INTERNAL_ERROR"


def httpResult(result: Any) -> dict[str, Any]:
    """Give the body of a response."""
    return {"data": result}


def httpError(error: ServiceError) -> tuple[int, dict[str, Any]]:
    """Give the status and the body of an error."""
    body = {"error": error.code or _HTTP_UNKNOWN, "message": error.message}
    return error.statusCode or 500, _detailed(body, error)


def httpFields(error: ServiceError) -> dict[str, str]:
    """Give the header fields that go with an error."""
    if error.statusCode == 429 and isinstance(error.details, Mapping):
        retryAfterMs = error.details.get("retryAfterMs")
        if isinstance(retryAfterMs, int):
            return {"Retry-After": str(ceil(retryAfterMs / 1000))}
    if error.statusCode == 401:
        return {"WWW-Authenticate": "Bearer"}
    return {}


def messageResult(
    id: MessageId, method: str, result: Any, now: Callable[[], float] = time.time
) -> dict[str, Any]:
    """Give the message of a result; its timestamp is in milliseconds since 1970."""
    message = {
        "id": id,
        "type": "response",
        "method": method,
        "data": result,
        "timestamp": int(now() * 1000),
    }
    if id is None:
        del message["id"]
    return message


def messageItem(id: MessageId, item: Any) -> dict[str, Any]:
    """Give the message of an item of a stream."""
    return _identified({"id": id, "type": "stream", "data": item})


def messageEnd(id: MessageId) -> dict[str, Any]:
    """Give the message of a stream's end."""
    return _identified({"id": id, "type": "stream_end"})


def messageError(id: MessageId, error: ServiceError) -> dict[str, Any]:
    """Give the message of an error; it has an id where the request's was readable."""
    inner = _detailed({"code": error.code, "message": error.message}, error)
    message: dict[str, Any] = {"type": "error", "error": inner}
    return message if id is None else {"id": id, **message}


def frameResult(id: MessageId, result: Any) -> Any:
    """Give the payload of a result, or of an item."""
    return result if id is None else {"id": id, "data": result}


def frameEnd(id: MessageId) -> dict[str, Any]:
    """Give the payload of a stream's end."""
    return {} if id is None else {"id": id}


def frameError(id: MessageId, error: ServiceError) -> dict[str, Any]:
    """Give the payload of an error."""
    payload = _detailed({"error": error.code, "message": error.message}, error)
    return payload if id is None else {"id": id, **payload}


def _identified(message: dict[str, Any]) -> dict[str, Any]:
    """Leave out the id if there is none."""
    if message["id"] is None:
        del message["id"]
    return message


def _detailed(shape: dict[str, Any], error: ServiceError) -> dict[str, Any]:
    if error.details is not None:
        shape["details"] = error.details
    return shape


CALLS_OF_A_LISTENER = 1024
"""Calls in flight of all peers of a listener."""


class Peer(Protocol):
    """
    What a wire gives a session to write with; a peer that is gone takes all.

    A result or an item that cannot be written raises C{ValueError} or a C{ServiceError}, which ends
    its call. Nothing else raises.

    @ivar protocol: The name of the wire.
    @ivar client: Who is there.
    """

    protocol: str
    client: ClientInfo

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """
        Send a result.

        @return: What to wait for, if it takes time to say how.
        """

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """Send an item of a stream."""

    def sendEnd(self, id: MessageId, method: str) -> None:
        """Send the end of a stream."""

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """Send an error."""

    def drained(self) -> Deferred[None] | None:
        """Wait until the peer has read enough of what was sent; C{None} if it has."""

    def setReading(self, wanted: bool) -> None:
        """Read on, or let the peer wait."""


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@frozen
class StreamHooks:
    """
    What a user does with streams in place of the session.

    @ivar server: C{(results, send, id)} sends the messages of a stream of results.
    @ivar client: C{(requests, call, id)} gives the result; C{call} calls the method with whatever
        asynchronous iterable it gets.
    @ivar send: Sends any message, and gives what to wait for before the next.
    """

    send: Callable[[Any], Deferred[None]]
    server: Callable[[AsyncIterable[Any], Callable[[Any], Any], MessageId], Any] | None = None
    client: Callable[[AsyncIterable[Any], Callable[[Any], Any], MessageId], Any] | None = None


class ListenerState:
    """
    What all sessions of a listener share.

    @ivar invoker: Who calls the methods.
    @ivar clock: For deadlines.
    @ivar calls: How many calls are in flight.
    @ivar isDraining: Whether it takes no further ones.
    """

    def __init__(
        self, invoker: Invoker, clock: IReactorTime, maxCalls: int = CALLS_OF_A_LISTENER
    ) -> None:
        self.invoker = invoker
        self.clock = clock
        self.maxCalls = maxCalls
        self.calls = 0
        self.isDraining = False


MAX_ID_LENGTH = 128
"""Characters of an id, which goes out again with every item."""


def readId(value: Any) -> MessageId:
    """
    Read an id: text or a whole number; C{None} where there is none.

    @raise ServiceError: If it is anything else.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and len(value) <= MAX_ID_LENGTH:
        return value
    raise codedError("INVALID_ARGUMENT", f"An id is a number or text of at most {MAX_ID_LENGTH}")


def readDeadline(value: Any) -> float | None:
    """
    Read a deadline in milliseconds from now.

    @return: In seconds.
    @raise ServiceError: If it is none.
    """
    if value is None:
        return None
    isNumber = isinstance(value, int | float) and not isinstance(value, bool)
    if not isNumber or not 0 < value <= MAX_DEADLINE_MS:
        raise codedError("INVALID_ARGUMENT", "A deadline is a number of milliseconds up to a day")
    return float(value) / 1000


def readCredentials(message: Mapping[str, Any], native: Any = None) -> CallCredentials:
    """Read who calls from C{auth.token} of a message."""
    auth = message.get("auth")
    # To ask whether something is a mapping takes 0.2 microseconds; most say nothing here.
    token = auth.get("token") if auth is not None and isinstance(auth, Mapping) else None
    return CallCredentials(token if isinstance(token, str) else None, None, native or message)
