"""
Calls over UDP, in frames.

The client repeats a request until its reply has arrived; the listener replies to a repeated request
from its cache, and does not call the method again. Items of streams are not repeated: a call that
lost items fails.
"""

from collections.abc import Iterator
from itertools import count
from secrets import token_hex
from typing import Any

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.client.formats import FRAMES, UNKNOWN, Reply
from storagegate.gateway.client.session import LAST, ClientSession, Message
from storagegate.gateway.client.transports import (
    CallHead,
    ClientTarget,
    connectionLost,
    unreachable,
)
from storagegate.gateway.messages.frames import ACK, END, GOING_AWAY, ITEM, PING, PONG
from storagegate.gateway.transports.udp import MAX_DATAGRAM
from storagegate.gateway.transports.udp.peer import ReorderBuffer
from storagegate.upstream.retry import AttemptFailed

REPEAT_SECONDS = 0.25
"""Delay before an unanswered request is repeated; it doubles with each repetition."""

MAX_REPEAT_SECONDS = 4.0
"""Limit of that delay, which also applies after the listener has acknowledged the request."""

REPEATS = 5
"""Repetitions without any reply after which the call fails."""

_LOST_SECONDS = 1.0
"""Time for items that are overtaken by the end of their stream."""

_ITEMS_AT_ONCE = 16
"""Items of a stream sent without a pause: the listener holds 64 that it cannot use yet."""

_PAUSE_SECONDS = 0.002

_NOTICES = frozenset({ACK, PING, PONG, GOING_AWAY})
"""Messages that end no call."""

_MAX_REPLIES = 1024
"""Replies of a call that wait for its reader: nothing can pause the listener."""


class DatagramCall:
    """
    A call over UDP.

    @ivar replies: The replies in order; more than L{_MAX_REPLIES} unread ones end the call.
    """

    def __init__(self, socket: "DatagramSocket", head: CallHead) -> None:
        """
        @raise ServiceError: C{PAYLOAD_TOO_LARGE}, or the metadata is not supported.
        """
        self._socket = socket
        self._clock = socket.clock
        self.replies: BoundedStream[Reply] = BoundedStream(_MAX_REPLIES)
        self._order = ReorderBuffer()
        self._end: Reply | None = None
        self._timer: IDelayedCall | None = None
        self._delay = REPEAT_SECONDS
        # How many repetitions had no reply; -1 once there was one.
        self._silences = self._sent = 0
        self._id, message = socket.session.begin(head.message(), self._receive)
        try:
            self._datagram = socket.encode(message)
        except BaseException:
            socket.session.cancel(self._id)
            raise
        self._request()

    async def send(self, data: Any) -> None:
        """Send an item; pause after some of them."""
        self._socket.write(self._socket.session.item(self._id, data))
        self._sent += 1
        if self._sent % _ITEMS_AT_ONCE == 0:
            await deferLater(self._clock, _PAUSE_SECONDS)

    def sendEnd(self) -> None:
        """Send the end of the stream of requests."""
        self._socket.write(self._socket.session.itemsEnd(self._id))

    def close(self) -> None:
        """Cancel the call if it has not ended."""
        self._stop()
        self._socket.write(self._socket.session.cancel(self._id))
        self.replies.end()

    def _request(self) -> None:
        self._socket.send(self._datagram)
        self._restart(self._delay, self._repeat)

    def _repeat(self) -> None:
        self._timer = None
        if self._silences >= REPEATS:
            self._fail(AttemptFailed(codedError("UNAVAILABLE", "The listener does not reply")))
            return
        if self._silences >= 0:
            self._silences += 1
        self._delay = min(2 * self._delay, MAX_REPEAT_SECONDS)
        self._request()

    def _receive(self, reply: Reply) -> None:
        # The listener has the request: repeat it less often.
        self._silences = -1
        self._delay = MAX_REPEAT_SECONDS
        self._restart(self._delay, self._repeat)
        if reply.type == ACK:
            return
        if reply.type not in (ITEM, END):
            self._stop()
            if isinstance(reply.value, AttemptFailed):
                self.replies.end(reply.value)
            else:
                self.replies.put(reply, last=True)
            return
        try:
            if reply.type == ITEM:
                self._order.put(0 if reply.seq is None else reply.seq, reply)
            else:
                self._end = reply
                self._order.end(reply.seq)
        except ServiceError:
            # Their numbers contradict each other.
            self._lose()
            return
        while self._order.hasNext:
            self.replies.put(self._order.take())
        if self._end is None:
            return
        if self._order.isAtEnd:
            self._stop()
            self._socket.session.cancel(self._id)
            self.replies.put(self._end, last=True)
        else:
            self._restart(_LOST_SECONDS, self._lose)

    def _lose(self) -> None:
        self._timer = None
        self._fail(AttemptFailed(codedError("UNAVAILABLE", "Items of the stream were lost")))

    def _fail(self, error: AttemptFailed) -> None:
        self._stop()
        self.replies.end(error)
        self._socket.session.cancel(self._id)

    def _restart(self, seconds: float, function: Any) -> None:
        self._stop()
        self._timer = self._clock.callLater(seconds, function)

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()


class DatagramSocket(DatagramProtocol):
    """
    A socket that is connected to one listener.

    @ivar session: Assigns replies to calls. The end of a stream may overtake items, so a call
        removes itself once it has all.
    """

    noisy = False

    def __init__(self, clock: Any, address: tuple[str, int]) -> None:
        """@param address: The IP address and the port of the listener."""
        self.clock = clock
        self.session = ClientSession(_ids(), LAST - {END})
        self._address = address

    def startProtocol(self) -> None:
        """Restrict the socket to the address of the listener."""
        self.transport.connect(*self._address)  # type: ignore[union-attr]

    def encode(self, message: Message) -> bytes:
        """
        Encode a message.

        @raise ServiceError: C{PAYLOAD_TOO_LARGE}.
        """
        datagram = FRAMES.encode(message.type, message.content)
        if len(datagram) > MAX_DATAGRAM:
            raise codedError(
                "PAYLOAD_TOO_LARGE", f"A datagram must not exceed {MAX_DATAGRAM} bytes"
            )
        return datagram

    def write(self, message: Message | None) -> None:
        """Send a message."""
        if message is not None:
            self.send(self.encode(message))

    def send(self, datagram: bytes) -> None:
        """Send a datagram."""
        if self.transport is not None:
            self.transport.write(datagram)  # type: ignore[call-arg]

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Handle a datagram."""
        try:
            reply = FRAMES.decode(datagram, MAX_DATAGRAM)
        except ValueError:
            # The application's formatResponse wrote it.
            text = datagram.decode("utf-8", "replace")
            reply = Reply(UNKNOWN, None, text, len(datagram))
        if not self.session.receive(reply) and reply.id is None and reply.type not in _NOTICES:
            self.session.receiveOnly(reply)

    def connectionRefused(self) -> None:
        """End the calls: the port of the listener is closed."""
        self.session.lost(connectionLost)


def _ids() -> Iterator[str]:
    """Make ids that no earlier client with this port has used: the listener caches replies."""
    prefix = token_hex(8)
    return (f"{prefix}-{number}" for number in count(1))


class UDPClientTransport:
    """Calls over UDP, on one socket."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target
        self._socket: DatagramSocket | None = None

    async def begin(self, head: CallHead) -> DatagramCall:
        """Begin a call."""
        if self._socket is None:
            try:
                address = await self._resolve()
                # Another call may have made the socket meanwhile.
                if self._socket is None:
                    self._socket = self._listen(address)
            except CancelledError:
                raise
            except Exception as error:
                raise unreachable(error) from error
        return DatagramCall(self._socket, head)

    async def _resolve(self) -> str:
        host = self._target.host
        if isIPAddress(host) or isIPv6Address(host):
            return host
        address: str = await self._target.reactor.resolve(host, timeout=(1, 2, 2))
        return address

    def _listen(self, address: str) -> DatagramSocket:
        target = self._target
        socket = DatagramSocket(target.reactor, (address, target.port))
        interface = "::" if ":" in address else "0.0.0.0"
        target.reactor.listenUDP(0, socket, interface=interface, maxPacketSize=MAX_DATAGRAM)
        return socket

    def close(self) -> Deferred[None]:
        """Close the socket; calls in flight fail."""
        socket, self._socket = self._socket, None
        if socket is not None:
            for message in socket.session.abandon(connectionLost):
                socket.write(message)
        transport: Any = None if socket is None else socket.transport
        return maybeDeferred(lambda: None if transport is None else transport.stopListening())


makeTransport = UDPClientTransport
