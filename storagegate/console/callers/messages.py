"""
Calls over message-based wires: WebSocket, and the frames of TCP and UDP.

A L{MessageClient} sends and receives messages with the types of frames, see
L{storagegate.gateway.messages.frames}; L{converse} makes a call with it.
"""

from collections.abc import AsyncGenerator, Mapping
from secrets import token_hex
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred

from storagegate.console.callers.interfaces import (
    MAX_BYTES,
    Answer,
    MethodCall,
    cut,
    readError,
)
from storagegate.core.codecs import JSON
from storagegate.core.errors import codedError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    REQUEST,
    RESPONSE,
    Frame,
)

TRACE_FIELDS = frozenset(("traceparent", "tracestate"))
"""The metadata that a message can carry."""


@frozen
class Message:
    """
    A received message.

    @ivar type: The frame type.
    @ivar data: The method's data, or the shape of an error.
    @ivar size: Size of the message, in bytes.
    """

    type: int
    data: Any
    size: int


class MessageClient(Protocol):
    """
    A connection.

    @ivar received: The received messages.
    """

    received: BoundedStream[Message]

    async def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a message, and wait until the next one may follow."""

    def close(self) -> None:
        """End the connection."""


def makeReceived() -> BoundedStream[Message]:
    """Make a stream of messages, bounded to L{MAX_BYTES} for a slow reader."""
    return BoundedStream(MAX_BYTES, sizeOf=lambda message: message.size)


def checkMetadata(metadata: Mapping[str, str]) -> None:
    """
    Refuse metadata that messages cannot carry.

    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    for name in metadata:
        if name.lower() not in TRACE_FIELDS:
            allowed = " and ".join(sorted(TRACE_FIELDS))
            raise codedError("INVALID_ARGUMENT", f"This protocol carries {allowed}, not {name:.80}")


def readFrame(frame: Frame, id: str) -> Message:
    """
    Decode a frame of the listener.

    @param id: The id of the call.
    @raise ValueError: The payload is not JSON.
    """
    data = JSON.decode(frame.payload or b"{}")
    if frame.type != ERROR and isinstance(data, Mapping) and data.get("id") == id:
        data = data.get("data")
    return Message(frame.type, data, len(frame.payload))


def newId() -> str:
    """Make a random id: a UDP listener caches replies by client port and id."""
    return token_hex(8)


async def converse(client: MessageClient, call: MethodCall, id: str) -> AsyncGenerator[Answer]:
    """
    Call a method, and close the connection.

    @param id: The id of the call.
    """
    message: dict[str, Any] = {"id": id, "service": call.service, "method": call.method}
    message["deadlineMs"] = call.deadlineMs
    if call.token:
        message["auth"] = {"token": call.token}
    for name, value in call.metadata.items():
        if name.lower() in TRACE_FIELDS:
            message[name.lower()] = value
    if not call.streamsRequests:
        message["data"] = call.request
    sending: Deferred[None] | None = None
    isOver = False
    try:
        await client.write(REQUEST, message)
        if call.streamsRequests:
            sending = Deferred.fromCoroutine(_sendItems(client, call, id))
        async for received in client.received:
            isOver = received.type in (RESPONSE, END, ERROR)
            if received.type == ERROR:
                raise readError(received.data)
            if received.type in (RESPONSE, ITEM):
                yield received.data, received.size
            if isOver:
                return
        raise cut()
    finally:
        if sending is not None:
            sending.cancel()
        if not isOver:
            # No wait: the connection closes after the write.
            Deferred.fromCoroutine(client.write(CANCEL, {"id": id})).addErrback(
                lambda failure: None
            )
        client.close()


async def _sendItems(client: MessageClient, call: MethodCall, id: str) -> None:
    """Send a stream; the reader of the answers detects a lost connection."""
    try:
        for seq, item in enumerate(call.requests):
            await client.write(CLIENT_ITEM, {"id": id, "seq": seq, "data": item})
        await client.write(CLIENT_END, {"id": id, "seq": len(call.requests)})
    except Exception:
        return
