"""
Services over UDP, one frame per datagram, without delivery guarantees.

A datagram that is not a frame is dropped and counted: its source may be forged. A valid request
gets one reply, see L{storagegate.gateway.transports.udp.replycache};
L{storagegate.gateway.transports.udp.peer} limits its size. There is no flow control: a client that
sends too fast loses datagrams.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger

from storagegate.core.errors import UNREADABLE, ServiceError
from storagegate.core.limitedlog import RateLimitedLog
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.frames import (
    HEADER_LENGTH,
    PING,
    PONG,
    SERVER_TYPES,
    FrameError,
    decodeFrame,
)
from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.transports.registry import InvokedTransport
from storagegate.gateway.transports.udp import MAX_DATAGRAM, PROTOCOL, Address, UDPOptions
from storagegate.gateway.transports.udp.replycache import IReplyCache, ReplyCache
from storagegate.net.endpoints import listenDatagrams

if TYPE_CHECKING:
    from storagegate.gateway.transports.udp.peer import UDPPeer

MAX_PEERS = 10_000
"""The maximum number of remembered addresses; addresses with calls in flight are kept."""

IDLE_SECONDS = 60
"""How long an address without calls is remembered."""

SILENT_PORTS = frozenset({0, 7, 13, 17, 19, 53, 123})
"""
Ports of services that answer any datagram: with a forged source address, two servers would loop
forever.
"""

READ_SIZE = 4 * 1024
"""How many bytes of datagrams are read in one reactor iteration, if its time slice permits."""

_MOST_HELD = 32
"""How many datagrams are held until a read ends: as many as one read has of small calls."""

_log = Logger()
_limited = RateLimitedLog(_log)


class UDPTransport(InvokedTransport, DatagramProtocol):
    """
    The UDP listener of a gateway.

    @ivar listener: The state that the sessions of its peers share.
    @ivar dropped: How many datagrams were dropped, by reason.
    @ivar replies: The cache of replies, for repeated requests.
    @ivar isClosed: Whether sending has ended.
    """

    noisy = False

    def __init__(self, host: TransportContext, options: UDPOptions) -> None:
        self.host = host
        self.options = options
        self.listener = ListenerState(
            host.invoker, host.clock, maxCallsPerAddress=options.maxCallsPerAddress
        )
        self.dropped: Counter[str] = Counter()
        makeReplies = host.resources.makeReplies or partial(ReplyCache, host.clock.seconds)
        self.replies: IReplyCache = makeReplies()
        self.meter = host.meter(PROTOCOL)
        self.meter.dropped = self.dropped
        self.meter.connections = lambda: len(self._peers)
        # The least recently active address first, except for addresses with calls.
        self._peers: OrderedDict[Address, UDPPeer] = OrderedDict()
        self.isClosed = self._isLeaving = False
        self._port: Any = None
        # Datagrams to send at the end of the current read, see _read; None outside a read.
        self._held: list[tuple[bytes, Address]] | None = None
        self._watch = LoopingCall(self._forgetIdle)
        self._watch.clock = host.clock

    def open(self, address: str) -> Deferred[Any]:
        """
        Start listening.

        @param address: C{HOST:PORT}; port 0 takes a free one; or C{inherited:FD}.
        @return: The port. Fails with C{CannotListenError} if the address cannot be bound.
        """
        opening = maybeDeferred(
            listenDatagrams, self.host.reactor, address, self, maxPacketSize=MAX_DATAGRAM + 1
        )
        return opening.addCallback(self._opened)

    def _opened(self, port: Any) -> Any:
        self._port = port
        port.doRead = self._read
        turn = self.host.resources.turn
        if turn is not None and turn.isWaiting:
            # The process that got the first item of a stream must receive the others.
            port.stopReading()
            turn.entered = self._enter
        self._watch.start(IDLE_SECONDS / 2, now=False)
        return port

    def _enter(self) -> None:
        """Start reading, unless the listener is about to stop."""
        if self._port is not None and not self._isLeaving:
            self._port.startReading()

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept no further calls, let calls in flight end, and cancel them after the grace.

        @param graceSeconds: After this, calls in flight are cancelled.
        @param idleGraceSeconds: Above 0 if another process now reads the same socket: this process
            then refuses nothing. If client streams are in flight, the other process starts only
            after this time, and unfinished streams break off.
        """
        return Deferred.fromCoroutine(self._close(graceSeconds, idleGraceSeconds))

    async def _close(self, graceSeconds: float, idleGraceSeconds: float) -> None:
        clock, peers, turn = self.host.clock, self._peers, self.host.resources.turn
        if not idleGraceSeconds:
            self.listener.isDraining = True
        else:
            if any(peer.session.isFed for peer in peers.values()):
                seconds = min(idleGraceSeconds, graceSeconds)
                await deferLater(clock, seconds)
                graceSeconds -= seconds
            self._isLeaving = True
            if self._port is not None:
                self._port.stopReading()
            for peer in list(peers.values()):
                peer.session.inputLost()
            if turn is not None:
                turn.leave()
        waiting = [peer.session.whenIdle() for peer in peers.values()]
        idle: Deferred[Any] = gatherResults(waiting, consumeErrors=True)
        await idle.addTimeout(graceSeconds, clock, lambda result, seconds: None)
        self.isClosed = True
        for peer in peers.values():
            peer.session.close()
        peers.clear()
        if self._watch.running:
            self._watch.stop()
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)

    # Datagrams

    def _read(self) -> None:
        """
        Read the datagrams that have arrived, for a time slice.

        Replies are sent at the end of the slice: the first of 20 replies would wake a client on the
        same machine, which would then take turns with this process for each of the others.
        """
        receive: Callable[[int], tuple[bytes, Any]] = self._port.socket.recvfrom
        scheduler = self.listener.scheduler
        scheduler.begin()
        self._held = []
        read, isFirst, isLast = 0, True, False
        try:
            while read < READ_SIZE and not isLast:
                try:
                    datagram, address = receive(MAX_DATAGRAM + 1)
                except (BlockingIOError, InterruptedError, ConnectionRefusedError):
                    break
                # At least two, like the messages of a connection.
                isLast = not isFirst and scheduler.isOver()
                isFirst = False
                read += len(datagram)
                self.datagramReceived(datagram, address)
        finally:
            held, self._held = self._held, None
            self._sendAll(held)
        if isLast or read >= READ_SIZE:
            self._pause(scheduler.pauseSeconds())

    def _pause(self, seconds: float) -> None:
        """Read nothing for some time, like a connection that has used up its slice."""
        if seconds:
            self._port.stopReading()
            self.host.clock.callLater(seconds, self._enter)

    def datagramReceived(self, datagram: bytes, address: Any) -> None:
        """Handle a datagram."""
        # Drop the flow and the scope of IPv6.
        source: Address = address[:2]
        self.meter.packetIn(len(datagram))
        if source[1] in SILENT_PORTS:
            self.dropped["port"] += 1
            return
        try:
            if self.options.parseMessage is None:
                self._handleDatagram(datagram, source)
            else:
                self._parse(datagram, source)
        except Exception:
            # A bad datagram must not stop the socket.
            _log.failure("a datagram could not be taken")

    def _handleDatagram(self, datagram: bytes, source: Address) -> None:
        try:
            frame = decodeFrame(datagram, MAX_DATAGRAM - HEADER_LENGTH)
        except FrameError:
            self.dropped["frame"] += 1
            return
        if frame.type == PONG:
            return
        if frame.type in SERVER_TYPES:
            # The address may be another gateway's, forged: each would answer the other's errors
            # with errors, forever.
            self.dropped["type"] += 1
            return
        peer = self._peer(source)
        if peer is None:
            return
        if frame.type == PING:
            peer.sendPong(frame.payload)
        else:
            peer.handleFrame(frame.type, frame.payload, len(datagram))

    async def _awaited(self, message: Any, peer: "UDPPeer", size: int) -> None:
        """Wait for the user's hook."""
        try:
            found = await message
        except Exception as error:
            self._notRead(error)
        else:
            peer.handleMessage(found, size)

    def _notRead(self, error: Exception) -> None:
        """Count a datagram that the user's hook could not read."""
        if isinstance(error, UNREADABLE):
            _limited.warn(
                "parse", "parseMessage could not read a datagram: {error!a:.200}", error=error
            )
        elif not isinstance(error, ServiceError):
            _log.failure("parseMessage failed")
        self.dropped["frame"] += 1

    def _parse(self, datagram: bytes, source: Address) -> None:
        """Have the user's hook read a datagram."""
        peer = self._peer(source)
        if peer is None:
            return
        assert self.options.parseMessage is not None
        try:
            message = self.options.parseMessage(datagram)
        except Exception as error:
            self._notRead(error)
            return
        if hasattr(message, "__await__"):
            from storagegate.gateway.transports.udp.peer import proceed

            taken = self._awaited(message, peer, len(datagram))
            proceed(taken, "a datagram could not be taken", bool)
        else:
            peer.handleMessage(message, len(datagram))

    def _peer(self, source: Address) -> "UDPPeer | None":
        """Return the peer of an address; C{None} if its datagram must be dropped."""
        peer = self._peers.get(source)
        if peer is None:
            if len(self._peers) >= MAX_PEERS and not self._dropIdle():
                self.dropped["peers"] += 1
                return None
            # Imported with the first peer: an idle daemon stays small.
            from storagegate.gateway.transports.udp.peer import UDPPeer

            peer = self._peers[source] = UDPPeer(self, source)
        self._peers.move_to_end(source)
        if peer.isTooFast(self.host.clock.seconds()):
            self.dropped["rate"] += 1
            return None
        return peer

    def _dropIdle(self) -> bool:
        """
        Forget the least recently active address without calls.

        @return: Whether there was one.
        """
        for _ in range(len(self._peers)):
            source, peer = next(iter(self._peers.items()))
            if not peer.session.active:
                del self._peers[source]
                return True
            # Otherwise each new address would pass over it again.
            self._peers.move_to_end(source)
        return False

    def _forgetIdle(self) -> None:
        """Forget silent addresses; cut off streams that never ended."""
        limit = self.host.clock.seconds() - IDLE_SECONDS
        for source, peer in list(self._peers.items()):
            if peer.lastSeen > limit:
                continue
            if peer.session.active:
                peer.session.inputLost()
                self._peers.move_to_end(source)
            else:
                del self._peers[source]

    def send(self, source: Address, datagram: bytes) -> None:
        """Send a datagram; a datagram that the system does not accept is lost."""
        self.meter.packetOut(len(datagram))
        held = self._held
        if held is None:
            self._sendAll([(datagram, source)])
            return
        held.append((datagram, source))
        if len(held) >= _MOST_HELD:
            self._held = []
            self._sendAll(held)

    def _sendAll(self, datagrams: Iterable[tuple[bytes, Address]]) -> None:
        # The transport's own write would check the address, which takes 4 microseconds, a tenth of
        # a call.
        socket = cast(Any, self.transport).socket
        for datagram, source in datagrams:
            try:
                socket.sendto(datagram, source)
            except OSError as error:
                self.dropped[f"send {error.errno}"] += 1
