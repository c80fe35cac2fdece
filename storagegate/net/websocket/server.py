"""
The WebSockets of a listener: handshakes, limits, pings and shutdown.

The module of connections imports Autobahn, which takes 6 MB and 60 ms, so it is imported on the
first handshake.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall, deferLater

from storagegate.core.heldbytes import PROCESS_BUDGET, HeldBytes
from storagegate.core.shares import AddressShares, shareOf
from storagegate.core.task import IdleWaiters
from storagegate.net.http.message import ChannelRequest
from storagegate.net.websocket.handshake import (
    Handshake,
    HandshakeRefused,
    OriginRule,
    readHandshake,
)
from storagegate.net.websocket.interfaces import Receiver, WebSocketLimits, WebSocketMeter

if TYPE_CHECKING:
    from storagegate.net.websocket.connection import WebSocketConnection, WebSocketFactory


@define(eq=False)
class WebSocketCounts:
    """
    The traffic counts of a server's WebSockets.

    @ivar accepted: WebSockets opened.
    @ivar closed: WebSockets that have ended.
    """

    bytesIn: int = 0
    bytesOut: int = 0
    messagesIn: int = 0
    messagesOut: int = 0
    accepted: int = 0
    closed: int = 0

    def ended(self, seconds: float) -> None:
        """
        Count the end of a connection.

        @param seconds: The duration of the connection.
        """
        self.closed += 1


class WebSocketServer:
    """
    Upgrades requests to WebSockets, and closes them.

    @ivar counts: Counts connections, messages and bytes.
    """

    def __init__(
        self,
        clock: IReactorTime,
        limits: WebSocketLimits,
        meter: WebSocketMeter,
        onDraining: Callable[[], None] = lambda: None,
        budget: HeldBytes = PROCESS_BUDGET,
    ) -> None:
        """
        @param limits: The limits of all WebSockets together, and of each.
        @param meter: Counts connections, messages and bytes.
        @param onDraining: Called when no further WebSockets are accepted.
        @param budget: Counts the bytes of incomplete messages.
        """
        self.limits = limits
        self.budget = budget
        self._clock = clock
        self.counts = meter
        self._onDraining = onDraining
        self._origins = OriginRule(limits.allowedOrigins)
        self._factory: WebSocketFactory | None = None
        self._receivers: dict[WebSocketConnection, Receiver] = {}
        self._shares = AddressShares()
        self._gone = IdleWaiters()
        self._isLeaving = self._isDraining = False
        self._graces: tuple[float, float] | None = None
        self._closedLate: Deferred[None] = succeed(None)
        self._watch = LoopingCall(self._checkAlive)
        self._watch.clock = clock

    @property
    def connections(self) -> int:
        """Count the WebSockets."""
        return len(self._receivers)

    def readHandshake(
        self,
        raw: ChannelRequest,
        address: str,
        host: str,
        secure: bool,
        subprotocols: Sequence[str],
    ) -> Handshake:
        """
        Validate a request for a WebSocket.

        @param address: The client's address, as reported by trusted proxies.
        @param host: The requested host, with its port if given.
        @param secure: Whether the client's connection is encrypted.
        @param subprotocols: The supported subprotocols.
        @raise HandshakeRefused: If the request is invalid or cannot be accepted now.
        """
        if self._factory is None:
            from storagegate.net.websocket.connection import WebSocketFactory

            self._factory = WebSocketFactory(self._clock, self.limits, self._forget, self.budget)
            if self._graces is not None:
                self._closedLate = self.close(*self._graces)
        handshake = readHandshake(
            raw.method,
            raw.version,
            raw.headers,
            host,
            secure,
            self._origins,
            subprotocols,
            self.limits.enableCompression,
        )
        self._checkCapacity(address)
        return handshake

    def _checkCapacity(self, address: str) -> None:
        limit = self.limits.maxConnections
        share = shareOf(limit, self.limits.maxConnectionsPerAddress)
        isOver = self.connections >= limit or self._shares.of(address).connections >= share
        if self._isDraining or isOver:
            raise HandshakeRefused("UNAVAILABLE", "No further connections are taken", 503)

    def accept(
        self,
        raw: ChannelRequest,
        address: str,
        handshake: Handshake,
        makeReceiver: "Callable[[WebSocketConnection], Receiver]",
    ) -> None:
        """
        Upgrade a request to a WebSocket.

        @param raw: The request validated by L{readHandshake}; its client must be connected.
        @param makeReceiver: Makes the receiver of the connection's messages.
        @raise HandshakeRefused: If the server has become full or begun to drain. Nothing has been
            sent.
        """
        assert self._factory is not None
        self._checkCapacity(address)
        connection = self._factory.buildConnection(handshake, self.counts)
        connection.openedAt = self._clock.seconds()
        connection.share = self._shares.of(address)
        connection.share.connections += 1
        self.counts.accepted += 1
        receiver = makeReceiver(connection)
        self._receivers[connection] = connection.receiver = receiver
        if not self._watch.running:
            self._watch.start(self.limits.pingSeconds, now=False)
        try:
            raw.upgrade(connection)
        except BaseException:
            # The request has no connection.
            self._forget(connection)
            raise
        if self._isLeaving:
            connection.leave()

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Stop accepting WebSockets, and close each one when its calls are answered.

        @param graceSeconds: After this time all are closed, and clients that stay connected are
            soon dropped.
        @param idleGraceSeconds: Time that WebSockets and messages are still accepted while another
            process serves the same address. During it, a WebSocket without calls in flight is
            closed after a reply, so that no call is lost to the close.
        @return: Fires when all connections have ended.
        """
        self._graces = graceSeconds, idleGraceSeconds
        if self._factory is None:
            return succeed(None)
        return Deferred.fromCoroutine(self._close(graceSeconds, idleGraceSeconds))

    def closeLate(self) -> Deferred[None]:
        """Wait for the first WebSocket, if it was requested while HTTP closed."""
        return self._closedLate

    async def _close(self, graceSeconds: float, idleGraceSeconds: float) -> None:
        ending = self._clock.callLater(graceSeconds, self._end)
        if idleGraceSeconds:
            self._isLeaving = True
            for connection in list(self._receivers):
                connection.leave()
            # Then two more iterations, as delayed calls run before sockets are read.
            for seconds in (min(idleGraceSeconds, graceSeconds), 0, 0):
                await deferLater(self._clock, seconds)
        self._isDraining = True
        self._onDraining()
        for connection, receiver in list(self._receivers.items()):
            receiver.whenIdle().addCallback(partial(_goAway, connection))
        await self._gone.wait(bool(self._receivers))
        if ending.active():
            ending.cancel()

    def _end(self) -> None:
        for connection in list(self._receivers):
            connection.goAway()

    def _checkAlive(self) -> None:
        for connection in list(self._receivers):
            connection.checkAlive()

    def _forget(self, connection: "WebSocketConnection") -> None:
        self._receivers.pop(connection).forget()
        connection.share.connections -= 1
        self.counts.ended(self._clock.seconds() - connection.openedAt)
        if not self._receivers:
            if self._watch.running:
                self._watch.stop()
            self._gone.notify()


def _goAway(connection: "WebSocketConnection", result: Any) -> None:
    connection.goAway()
