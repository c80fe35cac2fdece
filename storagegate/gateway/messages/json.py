"""
The messages of WebSocket, and of TCP in lines of JSON.

From the client::

    {id, service, method, data, auth: {token}, deadlineMs, traceparent, tracestate}     a call
    {id, type: "stream", data}              an item of the client's stream
    {id, type: "stream_end"}                its end
    {id, type: "cancel"}                    the end of a call
    {id, type: "ping", data}                a ping

A call may have C{type: "request"}. To the client::

    {id, type: "response", method, data, timestamp}
    {id, type: "stream", data}
    {id, type: "stream_end"}
    {id, type: "error", error: {code, message, details}}
    {id, type: "pong", data}

C{id} is text or an integer, and is returned unchanged; a request without one gets a reply without
one. Unknown keys are ignored.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.core.codecs import INLINE_SIZE, Codec, isLarge
from storagegate.core.context import ClientInfo
from storagegate.core.errors import UNKNOWN_MESSAGE, ServiceError, codedError
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.interfaces import MessageId, detailedError
from storagegate.gateway.messages.session import Decoded, PeerSession, readId


def messageResult(
    id: MessageId, method: str, result: Any, now: Callable[[], float] = time.time
) -> dict[str, Any]:
    """
    Return the message of a result; its timestamp is in milliseconds since 1970.

    @param now: Returns the seconds since 1970, for C{timestamp}.
    """
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


def _identified(message: dict[str, Any]) -> dict[str, Any]:
    """Omit the id if it is C{None}."""
    if message["id"] is None:
        del message["id"]
    return message


def messageItem(id: MessageId, item: Any) -> dict[str, Any]:
    """Return the message of an item of a stream."""
    return _identified({"id": id, "type": "stream", "data": item})


def messageEnd(id: MessageId) -> dict[str, Any]:
    """Return the message of a stream's end."""
    return _identified({"id": id, "type": "stream_end"})


def messageError(id: MessageId, error: ServiceError) -> dict[str, Any]:
    """
    Return the message of an error; it has an id if the request's was readable.

    @param error: The error after C{transformError}.
    """
    inner = detailedError({"code": error.code, "message": error.message}, error)
    return _identified({"id": id, "type": "error", "error": inner})


CONTROLS = ("stream", "stream_end", "cancel", "ping")
"""The types of messages that are not calls."""

MAX_ANSWER = 16 * 1024 * 1024
"""The maximum length of a sent message in bytes, as for a TCP frame."""

_log = Logger()


class ReplyWriter:
    """
    The part of a L{Peer<storagegate.gateway.messages.interfaces.Peer>} that depends on the format.

    A result or item that the codec cannot encode raises C{ValueError}, and a too large one raises
    L{ServiceError}; either ends its call.
    """

    shapeError: Callable[[MessageId, ServiceError], dict[str, Any]]
    """Returns the shape of an error for clients."""

    client: ClientInfo
    drained: Callable[[], Deferred[None] | None]
    setReading: Callable[[bool], None]

    def __init__(
        self, host: TransportContext, protocol: str, codec: Codec, write: Callable[[bytes], None]
    ) -> None:
        """
        @param protocol: The transport's name, as C{transformError} receives it.
        @param write: Sends an encoded reply.
        """
        self.protocol = protocol
        self.host = host
        self._codec = codec
        self._write = write

    def describeError(self, id: MessageId, error: ServiceError) -> dict[str, Any]:
        """
        Return the shape of an error, transformed by C{transformError}.

        @param error: The error, before C{transformError}.
        """
        described = self.host.describe(error, self.protocol)
        if isinstance(described, ServiceError):
            return self.shapeError(id, described)
        return dict(described) if id is None else {"id": id, **described}

    def encodeError(self, id: MessageId, error: ServiceError) -> bytes:
        """
        Encode an error, transformed by C{transformError}.

        @param error: The error, before C{transformError}.
        """
        try:
            return self._codec.encode(self.describeError(id, error))
        except ValueError as unwritable:
            _log.error("an error cannot be sent: {reason}", reason=str(unwritable))
            unknown = codedError("INTERNAL_ERROR", UNKNOWN_MESSAGE)
            return self._codec.encode(self.shapeError(id, unknown))


class MessageWriter(ReplyWriter):
    """
    Writes replies as messages.

    @ivar session: Runs the calls, if the transport delivers whole messages to L{received}.
    @ivar take: Handles decoded messages; C{None} for L{handleMessage}.
    """

    shapeError = staticmethod(messageError)

    session: PeerSession
    take: "Callable[[PeerSession, MessageWriter, Any], None] | None" = None

    def received(self, payload: bytes, isBinary: bool) -> None:
        """
        Receive a message.

        @param payload: The whole message.
        @param isBinary: Whether it is binary rather than text.
        """
        codec = self._codec
        if isBinary == codec.isBinary:
            handleEncoded(self.session, self, codec, payload, self.take or handleMessage)
        else:
            kind = "bytes" if codec.isBinary else "text"
            error = codedError("INVALID_ARGUMENT", f"Messages of this WebSocket are {kind}")
            self.sendError(None, error)

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        self._send(self._codec.encodeAround(result, messageResult(id, method, result)))
        return None

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """Send an item of a stream."""
        self._send(self._codec.encodeAround(item, messageItem(id, item)))

    def sendEnd(self, id: MessageId, method: str) -> None:
        """Send the end of a stream."""
        self.sendMessage(messageEnd(id))

    def sendRefusal(self, id: MessageId, error: ServiceError) -> None:
        """Refuse a request with the id of a call in flight."""
        self.sendError(id, error)

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """Send an error, transformed by C{transformError}."""
        self._write(self.encodeError(id, error))

    def sendMessage(self, message: Any) -> None:
        """
        Send any message.

        @raise ValueError: If the codec cannot encode a part of it.
        @raise ServiceError: C{RESPONSE_TOO_LARGE} if it is too large.
        """
        self._send(self._codec.encode(message))

    def _send(self, data: bytes) -> None:
        if len(data) > MAX_ANSWER:
            raise codedError("RESPONSE_TOO_LARGE", f"A message has {MAX_ANSWER} bytes at most")
        self._write(data)


def handleMessage(session: PeerSession, writer: MessageWriter, message: Any) -> None:
    """
    Handle a message: begin a call, or continue one.

    @param session: Runs the calls.
    @param writer: Replies to pings and malformed messages.
    @param message: Any decoded value; only mappings are valid, which codecs decode as C{dict}.
    """
    try:
        if not isinstance(message, dict):
            raise codedError("INVALID_ARGUMENT", "A message is an object")
        id = readId(message.get("id"))
    except ServiceError as error:
        writer.sendError(None, error)
        return
    kind = message.get("type")
    if kind is None or kind == "request":
        session.request(message, id)
    elif kind == "stream":
        session.item(id, message.get("data", {}))
    elif kind == "stream_end":
        session.itemsEnd(id)
    elif kind == "cancel":
        session.cancel(id)
    elif kind == "ping":
        pong = _identified({"id": id, "type": "pong"})
        try:
            writer.sendMessage({**pong, "data": message["data"]} if "data" in message else pong)
        except ServiceError as error:
            # Numbers may be longer than the client has written them.
            writer.sendError(id, error)
    else:
        kinds = f"request, {', '.join(CONTROLS[:-1])} or {CONTROLS[-1]}"
        writer.sendError(id, codedError("INVALID_ARGUMENT", f"The type of a message is {kinds}"))


def handleEncoded(
    session: PeerSession,
    writer: MessageWriter,
    codec: Codec,
    data: bytes,
    take: Callable[[PeerSession, MessageWriter, Any], None] = handleMessage,
    decoded: Decoded | None = None,
) -> None:
    """
    Decode and handle a message. An unreadable message gets an error.

    @param session: Runs the calls.
    @param data: One complete message.
    @param take: Handles the decoded message.
    @param decoded: Returns the message, if it is already decoded.
    """
    if len(data) > INLINE_SIZE and not codec.isBinary and isLarge(data):
        again = partial(handleEncoded, session, writer, codec, b"", take)
        session.decodeLarge(writer.host, data, again)
        return
    try:
        message = codec.decode(data) if decoded is None else decoded()
    except ValueError as error:
        unreadable = f"The message is unreadable: {error}"
        writer.sendError(None, codedError("INVALID_ARGUMENT", unreadable))
        return
    take(session, writer, message)
