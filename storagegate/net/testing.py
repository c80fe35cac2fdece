"""
In-memory connections for test clients: two protocols in one process, without a socket.

Bytes written by one side wait until L{MemoryConnection.deliver} delivers them, so that neither side
runs in the other's stack, and a side that does not read makes the other wait, as over a socket.
"""

import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IProtocol, ISSLTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import alsoProvides

LOCALHOST = "127.0.0.1"

MAX_TURNS = 100_000
"""Maximum number of advances of the clock, after which a test is assumed to run forever."""

_UNREAD = 64 * 1024
"""Bytes buffered for the other side at which the producer of a transport is paused."""


class MemoryTransport(StringTransport):
    """
    One side of a connection.

    @ivar protocol: The receiving protocol; it may be replaced, for example by an upgrade.
    @ivar isFull: Whether the producer is paused.
    @ivar isAborted: Whether this side has dropped the connection.
    """

    protocol: Any
    isFull = isAborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Do nothing."""

    def write(self, data: bytes) -> None:
        """Buffer bytes for the other side, and pause the producer if the other side lags."""
        if self.disconnecting or self.disconnected:
            return
        super().write(data)
        isLagging = self.io.tell() >= _UNREAD and not self.isFull
        if self.producer is not None and self.streaming and isLagging:
            self.isFull = True
            self.producer.pauseProducing()

    @property
    def isReading(self) -> bool:
        """Return whether the protocol wants input."""
        return self.producerState == "producing"

    def take(self) -> bytes:
        """Return the written bytes, and resume the producer."""
        data: bytes = self.value()
        self.clear()
        if self.isFull:
            self.isFull = False
            if self.producer is not None:
                self.producer.resumeProducing()
        return data

    def unregisterProducer(self) -> None:
        """Forget the producer, if there is one."""
        self.producer = None

    def abortConnection(self) -> None:
        """Drop the connection and any undelivered bytes."""
        self.clear()
        self.isAborted = True
        super().abortConnection()


class MemoryConnection:
    """
    A connection between a server's protocol and a client's.

    @ivar isOver: Whether it has ended.
    """

    def __init__(
        self, server: IProtocol, client: IProtocol, address: str, secure: bool = False
    ) -> None:
        """
        @param address: The IP address of the client.
        @param secure: Whether it counts as encrypted.
        """
        here, there = IPv4Address("TCP", LOCALHOST, 80), IPv4Address("TCP", address, 50_000)
        self._server = MemoryTransport(here, there, lenient=True)
        self._client = MemoryTransport(there, here, lenient=True)
        if secure:
            alsoProvides(self._server, ISSLTransport)
        self.isOver = False
        for transport, protocol in ((self._server, server), (self._client, client)):
            transport.protocol = protocol
            protocol.makeConnection(transport)

    @property
    def unread(self) -> int:
        """Return the number of bytes from the server that wait for the client."""
        return self._server.io.tell()

    def setReading(self, wanted: bool) -> None:
        """
        Resume or pause the client's reading.

        @param wanted: Whether it reads.
        """
        self._client.producerState = "producing" if wanted else "paused"

    def deliver(self) -> bool:
        """Deliver written bytes, once in each direction; return whether there were any."""
        moved = False
        for source, target in (
            (self._client, self._server),
            (self._server, self._client),
        ):
            if self.isOver:
                return moved
            if source.io.tell() and target.isReading:
                moved = True
                target.protocol.dataReceived(source.take())
            isWritten = source.producer is None and not source.io.tell()
            if source.disconnecting and (isWritten or source.isAborted):
                self._end(ConnectionAborted() if source.isAborted else ConnectionDone())
                return True
        return moved

    def drop(self) -> None:
        """End the connection silently, as if the client had lost the network."""
        if not self.isOver:
            self._end(ConnectionAborted())

    def _end(self, reason: Exception) -> None:
        self.isOver = True
        for transport in (self._server, self._client):
            transport.disconnected = True
            transport.protocol.connectionLost(Failure(reason))


def settle(clock: Clock, *deliverers: Callable[[], bool]) -> None:
    """
    Deliver everything, and run due calls, until nothing is left to do.

    @param clock: The clock of the server.
    @param deliverers: Deliver bytes in transit, and return whether there were any.
    @raise AssertionError: If this does not end.
    """
    for _ in range(MAX_TURNS):
        moved = [deliver() for deliver in deliverers]
        due = [call for call in clock.getDelayedCalls() if call.getTime() <= clock.seconds()]
        if not (due or any(moved)):
            return
        clock.advance(0)
    raise AssertionError("the server and its client never come to rest")


class MemoryDriver:
    """
    Runs a server and its clients in one process, driven by a clock.

    @ivar clock: The clock of both.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._deliverers: list[Callable[[], bool]] = []

    def watch(self, deliver: Callable[[], bool]) -> None:
        """
        Register a function that delivers bytes in transit. For connections.

        @param deliver: Delivers the bytes, and returns whether there were any.
        """
        self._deliverers.append(deliver)

    def flush(self) -> None:
        """
        Deliver everything, and run due calls.

        @raise AssertionError: If this does not end.
        """
        settle(self.clock, *self._deliverers)

    def advance(self, seconds: float) -> None:
        """
        Advance the clock, second by second, and run due calls.

        @param seconds: The time to advance by, at least 0.
        """
        self.flush()
        while seconds > 0:
            self.clock.advance(min(seconds, 1))
            self.flush()
            seconds -= 1


_THREAD_WAIT = 0.05
"""The longest wait for the reactor's threads, in seconds, before their number is read again."""


def runThreads(isDone: Callable[[], bool]) -> None:
    """
    Wait while threads of the reactor's pool work, and deliver their results, unless the reactor
    runs: for tests without one.

    @param isDone: Returns whether nothing is to be waited for.
    """
    # Without an import of the reactor there is no such thread.
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    if reactor is None or reactor.running or not hasattr(reactor, "threadpool"):
        return
    pool = reactor.threadpool
    if pool is None:
        return
    if not pool.started:
        # The pool starts with the reactor; a process must be able to end without it.
        pool.threadFactory = partial(Thread, daemon=True)
        pool.start()
    while not isDone():
        team = pool._team.statistics()
        isBusy = team.busyWorkerCount or team.backloggedWorkCount or reactor.threadCallQueue
        reactor.iterate(_THREAD_WAIT if isBusy else 0)
        if not isBusy:
            return
