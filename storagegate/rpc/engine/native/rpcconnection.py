"""
A connection of gRPC: L{HTTP2Core} on a transport, with keepalive pings; the common part of both
ends.

Output is taken at the end of each turn of input, or in the next iteration of the reactor, so that
the messages of a turn share frames and writes. While the transport is full none is taken: the
messages wait in their streams, whose writers are paused. Heads, trailers and acknowledgements are
still sent, but no more input is read once many of them wait.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol
from zope.interface import implementer

from storagegate.net.http2.core import HTTP2Core
from storagegate.net.scheduling import InputScheduler

_OUTPUT_BYTES = 256 * 1024
"""DATA of a turn, about: as much as the buffer of a socket takes at once."""

UNSENT_BYTES = 64 * 1024
"""Frames other than DATA that may wait for a peer that does not read, before we stop reading."""

_TIMED_FRAMES = 32
"""The number of frames between two checks of the clock."""


@implementer(IPushProducer)
class RPCConnection(Protocol):
    """
    One connection, of a server or of a client.

    @ivar core: The streams.
    @ivar isFull: Whether the transport accepts no DATA.
    """

    core: HTTP2Core

    def __init__(self, clock: Any, scheduler: InputScheduler) -> None:
        """
        @param clock: Provides C{IReactorTime}.
        @param scheduler: Divides time between the connections.
        """
        self._clock = clock
        self._scheduler = scheduler
        self.isFull = self._isReceiving = self._isWaiting = self._isHeld = False
        self._isPaused = self._isClosing = False
        self._unsent = 0
        self._scheduled: Any = None
        self._timers: dict[str, Any] = {}
        self._received = 0
        self._keepalive = self._keepaliveTimeout = float("inf")
        self._pingsWithoutCalls = False

    # For subclasses to implement

    def _noCalls(self) -> None:
        """Note that no call is open."""
        raise NotImplementedError

    def _close(self) -> None:
        """Close once everything is sent."""
        raise NotImplementedError

    @property
    def _transport(self) -> Any:
        return self.transport

    @property
    def _socket(self) -> Any:
        """Return the transport below TLS."""
        return getattr(self.transport, "transport", self.transport)

    def _later(self, name: str, seconds: float, function: Callable[[], object]) -> None:
        """Set a timer; infinite seconds stop it."""
        timer = self._timers.pop(name, None)
        if timer is not None and timer.active():
            timer.cancel()
        if seconds != float("inf"):
            self._timers[name] = self._clock.callLater(seconds, function)

    def _stopTimers(self) -> None:
        """Stop all timers."""
        for name in list(self._timers):
            self._later(name, float("inf"), self._close)

    def _end(self) -> None:
        """Stop all timers: the connection is lost."""
        self._isClosing = True
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        self._stopTimers()

    # Input

    def dataReceived(self, data: bytes) -> None:
        """Handle input for a slice of time."""
        self._received += 1
        if self._isClosing:
            return
        self._handle(data)

    def _handle(self, data: bytes) -> None:
        core = self.core
        self._scheduler.begin()
        self._isReceiving = True
        try:
            core.receive(data)
        finally:
            self._isReceiving = False
        if core.hasInput and not self._isWaiting:
            self._isWaiting = True
            self._scheduler.wait(self._resumeInput)
        self._flush()
        self._updateReading()

    def _isOver(self, handled: int) -> bool:
        return handled % _TIMED_FRAMES == 0 and self._scheduler.isOver()

    def _resumeInput(self) -> None:
        if self._unsent > UNSENT_BYTES:
            # Its input would cause more output; continued when the peer has read some.
            self._isHeld = True
            return
        self._isWaiting = False
        if self._isClosing or self.core.failure is not None:
            return
        self._handle(b"")

    def _updateReading(self) -> None:
        """Read on, or pause."""
        isPaused = self._isWaiting or self._unsent > UNSENT_BYTES
        if isPaused != self._isPaused and not self._isClosing:
            self._isPaused = isPaused
            if isPaused:
                self._transport.pauseProducing()
            else:
                self._transport.resumeProducing()

    # Output

    def _wantFlush(self) -> None:
        if self._scheduled is None and not (self._isReceiving or self.isFull or self._isClosing):
            self._scheduled = self._clock.callLater(0, self._flushLater)

    def _flushLater(self) -> None:
        self._scheduled = None
        self._flush()

    def _flush(self) -> None:
        """Send output until there is none, or the transport is full."""
        core = self.core
        if self._isClosing:
            return
        data = core.takeOutput(0 if self.isFull else _OUTPUT_BYTES)
        if data:
            if self.isFull:
                self._unsent += len(data)
            self._transport.write(data)
        if core.failure is not None:
            self._close()
        elif not core.streams:
            self._noCalls()
        elif data and core.hasOutput and not self.isFull:
            self._wantFlush()
        else:
            core.countWaiting()

    def pauseProducing(self) -> None:
        """The transport is full."""
        self.isFull = True

    def resumeProducing(self) -> None:
        """The transport is empty again."""
        self.isFull = False
        self._unsent = 0
        self._flush()
        if self._isHeld:
            self._isHeld = False
            self._scheduler.wait(self._resumeInput)
        self._updateReading()

    def stopProducing(self) -> None:
        """The connection is lost."""

    # Pings

    def _startKeepalive(self, seconds: float, timeout: float, withoutCalls: bool) -> None:
        """
        Ping the peer when nothing was received for some time.

        @param timeout: The time for the answer, in seconds.
        @param withoutCalls: Whether the peer is pinged while no call is open.
        """
        self._keepalive, self._keepaliveTimeout = seconds, timeout
        self._pingsWithoutCalls = withoutCalls
        self._later("keepalive", seconds, self._keepAlive)

    def _keepAlive(self) -> None:
        """Ping the peer if it has sent nothing."""
        if self._received or not (self.core.streams or self._pingsWithoutCalls):
            self._received = 0
            self._later("keepalive", self._keepalive, self._keepAlive)
            return
        self.core.ping(self._answered)
        self._flush()
        self._later("keepalive", self._keepaliveTimeout, self._unanswered)

    def _answered(self) -> None:
        self._received = 0
        self._later("keepalive", self._keepalive, self._keepAlive)

    def _unanswered(self) -> None:
        if self._received:
            # Any data shows that the peer is there.
            self._answered()
        else:
            self._transport.abortConnection()
