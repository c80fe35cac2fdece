"""Calls over UDP, in frames."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater

from storagegate.console.callers.interfaces import (
    MAX_BYTES,
    Answer,
    CallTarget,
    MethodCall,
    cut,
    tooLarge,
)
from storagegate.console.callers.messages import (
    Message,
    checkMetadata,
    converse,
    makeReceived,
    newId,
    readFrame,
)
from storagegate.core.codecs import JSON
from storagegate.core.errors import codedError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.messages.frames import (
    ACK,
    CLIENT_ITEM,
    END,
    GOING_AWAY,
    ITEM,
    REQUEST,
    RESPONSE,
    FrameError,
    decodeFrame,
    encodeFrame,
)
from storagegate.gateway.transports.udp import MAX_DATAGRAM

_REPEAT_SECONDS = 0.25
"""Delay before an unanswered request is repeated; it doubles with each repetition."""

_REPEATS = 5

_ITEMS_AT_ONCE = 16
"""Items of a stream sent without a pause: the listener holds 64 that it cannot use yet."""

_PAUSE_SECONDS = 0.002


class DatagramClient(DatagramProtocol):
    """
    A UDP socket.

    It repeats the request until a datagram arrives, and reorders the items of the listener.

    @ivar received: The received messages, in order.
    """

    noisy = False

    def __init__(self, target: CallTarget, id: str) -> None:
        """@param id: The id of the call."""
        self.received: BoundedStream[Message] = makeReceived()
        self._target = target
        self._id = id
        self._next = 0
        self._early: dict[int, Message] = {}
        self._repeating: IDelayedCall | None = None
        self._sent = 0

    def startProtocol(self) -> None:
        """Restrict the socket to the listener's address."""
        self.transport.connect(self._target.host, self._target.address.port)  # type: ignore[union-attr]

    async def write(self, type: int, message: dict[str, Any]) -> None:
        """
        Send a datagram.

        @raise ServiceError: C{PAYLOAD_TOO_LARGE}.
        """
        datagram = encodeFrame(type, JSON.encode(message))
        if len(datagram) > MAX_DATAGRAM:
            raise codedError(
                "PAYLOAD_TOO_LARGE", f"A datagram must not exceed {MAX_DATAGRAM} bytes"
            )
        self._send(datagram)
        if type == REQUEST:
            self._repeat(datagram, _REPEAT_SECONDS, _REPEATS)
        elif type == CLIENT_ITEM:
            self._sent += 1
            if self._sent % _ITEMS_AT_ONCE == 0:
                await deferLater(self._target.reactor, _PAUSE_SECONDS)

    def _send(self, datagram: bytes) -> None:
        if self.transport is not None:
            self.transport.write(datagram)  # type: ignore[call-arg]

    def _repeat(self, datagram: bytes, seconds: float, times: int) -> None:
        def again() -> None:
            self._repeating = None
            self._send(datagram)
            if times > 1:
                self._repeat(datagram, seconds * 2, times - 1)

        self._repeating = self._target.reactor.callLater(seconds, again)

    def _stopRepeating(self) -> None:
        repeating, self._repeating = self._repeating, None
        if repeating is not None:
            repeating.cancel()

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Process a datagram."""
        self._stopRepeating()
        try:
            frame = decodeFrame(datagram, MAX_DATAGRAM)
        except FrameError:
            # The application's formatResponse wrote it.
            text = datagram.decode("utf-8", "replace")
            self.received.put(Message(RESPONSE, text, len(datagram)))
            return
        if frame.type in (ACK, GOING_AWAY):
            return
        message = readFrame(frame, self._id)
        if frame.type not in (ITEM, END):
            self.received.put(message)
            return
        self._early[JSON.decode(frame.payload).get("seq", self._next)] = message
        while (ready := self._early.pop(self._next, None)) is not None:
            self._next += 1
            self.received.put(ready)
        if sum(each.size for each in self._early.values()) > MAX_BYTES:
            self.received.end(tooLarge())

    def connectionRefused(self) -> None:
        """End the call: the listener's port is closed."""
        self.received.end(cut())

    def close(self) -> None:
        """Close the socket."""
        self._stopRepeating()
        self.transport.stopListening()  # type: ignore[union-attr]


async def makeCall(target: CallTarget, call: MethodCall) -> AsyncGenerator[Answer]:
    """
    Call a method.

    @raise ServiceError: See L{storagegate.console.callers.interfaces}.
    """
    checkMetadata(call.metadata)
    id = newId()
    peer = DatagramClient(target, id)
    interface = "::" if ":" in target.host else "0.0.0.0"
    target.reactor.listenUDP(0, peer, interface=interface, maxPacketSize=MAX_DATAGRAM)
    async with aclosing(converse(peer, call, id)) as answers:
        async for answer in answers:
            yield answer
