"""
Frames, read for a session and written: those of TCP, and of WebSocket's binary format.

L{storagegate.gateway.frames} says what is in them.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from storagegate.core.errors import ServiceError, codedError
from storagegate.gateway.codecs import JSON
from storagegate.gateway.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    Frame,
    encodeFrame,
)
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.messagefields import readId
from storagegate.gateway.session import Session
from storagegate.gateway.shapes import MessageId, frameEnd, frameError, frameResult
from storagegate.gateway.wsmessages import encodeError

_encode = JSON.encode


class FrameWriter:
    """
    What a session writes with, where answers are frames: the half of a peer that needs no wire.

    A result or an item that JSON cannot carry raises C{ValueError}, and one that is too large a
    L{ServiceError}; either ends its call.
    """

    def __init__(
        self, host: GatewayHost, protocol: str, maxLength: int, write: Callable[[bytes], None]
    ) -> None:
        """
        @param maxLength: How long a payload may be.
        @param write: Sends a frame that is written.
        """
        self.protocol = protocol
        self._host = host
        self._maxLength = maxLength
        self._write = write

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        self._send(RESPONSE, frameResult(id, result))
        return None

    def sendItem(self, id: MessageId, method: str, item: Any) -> None:
        """Send an item of a stream."""
        self._send(ITEM, frameResult(id, item))

    def sendEnd(self, id: MessageId, method: str) -> None:
        """Send the end of a stream."""
        self._send(END, frameEnd(id))

    def sendError(self, id: MessageId, error: ServiceError) -> None:
        """Send an error, whatever C{transformError} made of it."""
        payload = encodeError(self._host, self.protocol, JSON, frameError, id, error)
        self._write(encodeFrame(ERROR, payload))

    def sendPong(self, payload: bytes) -> None:
        """Answer a ping."""
        self._write(encodeFrame(PONG, payload))

    def _send(self, type: int, value: Any) -> None:
        payload = _encode(value)
        if len(payload) > self._maxLength:
            limit = self._maxLength
            raise codedError("RESPONSE_TOO_LARGE", f"A payload has {limit} bytes at most")
        self._write(encodeFrame(type, payload))


def takeFrame(session: Session, writer: FrameWriter, frame: Frame) -> None:
    """Take a frame: begin a call, or go on with one; what makes no sense gets an error."""
    type = frame.type
    if type == PING:
        writer.sendPong(frame.payload)
        return
    if type == PONG:
        return
    try:
        payload = JSON.decode(frame.payload)
    except ValueError as error:
        _refuse(writer, None, f"The payload is unreadable: {error}")
        return
    isObject = isinstance(payload, dict)
    try:
        id = readId(payload.get("id")) if isObject else None
    except ServiceError as error:
        writer.sendError(None, error)
        return
    if type == CLIENT_ITEM:
        session.item(id, _itemOf(payload, id))
    elif not isObject:
        _refuse(writer, None, "The payload is no object")
    elif type == REQUEST:
        session.request(payload, id)
    elif type == CLIENT_END:
        session.itemsEnd(id)
    elif type == CANCEL:
        session.cancel(id)
    else:
        _refuse(writer, id, f"Clients send no frames of type {type}")


def _itemOf(payload: Any, id: MessageId) -> Any:
    """Give the item of a client's stream: C{data}; where there is neither that nor an id, all."""
    if isinstance(payload, dict) and (id is not None or "data" in payload):
        return payload.get("data", {})
    return payload


def _refuse(writer: FrameWriter, id: MessageId, message: str) -> None:
    writer.sendError(id, codedError("INVALID_ARGUMENT", message))
