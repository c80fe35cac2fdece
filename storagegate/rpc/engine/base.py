"""The common state of calls and servers on both engines, and the graceful shutdown of a server."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from storagegate.core.streams import SharedFuture
from storagegate.rpc.interfaces import CallOptions, MessageByteCounter, Metadata

EVENTS_PER_ITERATION = 64
"""
How many events to process before the reactor serves other sources: a few milliseconds of work.
"""

OUTGOING_MESSAGES = 16
OUTGOING_BYTES = 64 * 1024
"""
Messages and bytes that may wait in a server's call before its producer must wait. grpcio itself
holds as much again, plus the client's window. The producer resumes when half is sent: waking it for
each message would cost a third of the time of a stream of small messages.
"""

WAITING_CALLS = 3000
"""
How many calls may wait for the reactor; more are refused. Calls that still wait in grpc core when
the server stops would end as C{CANCELLED}, so all of them are requested then, which takes 2 ms.
"""

QUEUE_BYTES = 64 * 1024
"""
Bytes that may wait in a client's call before its producer must wait: the initial window of HTTP/2,
so that the connection never runs dry and a stalled server costs no more memory than this.
"""

MESSAGE_COST = 64
"""The fixed cost in bytes of a waiting client message, so that empty messages also count."""


class ClientCallBase:
    """The end of a client's call, and its messages that wait to be sent."""

    def __init__(self) -> None:
        # Bytes that wait to be sent, including the message in flight.
        self._held = 0
        self._metadata: SharedFuture[Metadata] = SharedFuture()
        self._end: SharedFuture[tuple[int, str, Metadata]] = SharedFuture()
        # Replaced each time that producers resume.
        self._drained: SharedFuture[None] = SharedFuture()

    def _hold(self, size: int) -> bool:
        """Count waiting bytes, or sent ones if negative; return whether more may follow."""
        self._held += size
        hasCapacity = self._held < QUEUE_BYTES
        if size <= 0 and hasCapacity:
            drained, self._drained = self._drained, SharedFuture()
            drained.set(None)
        return hasCapacity

    def _ended(self, status: int, message: str, trailers: Metadata) -> None:
        self._metadata.set(())
        self._end.set((status, message, trailers))
        self._drained.set(None)

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent, or the call has ended."""
        if self._held < QUEUE_BYTES or self._end.isKnown:
            return succeed(None)
        return self._drained.wait()

    def begun(self) -> Deferred[Metadata]:
        """Wait for the initial metadata."""
        return self._metadata.wait()

    def ended(self) -> Deferred[tuple[int, str, Metadata]]:
        """Wait for the status, its message and the trailers."""
        return self._end.wait()


_COMPRESSION_KEY = "grpc-internal-encoding-request"
"""The metadata by which grpc core learns the compression of a call; it is not sent."""


def callMetadata(options: CallOptions) -> Metadata:
    """Return the metadata of a client's call for grpc core, with the call's compression."""
    if options.compression is None:
        return options.metadata
    return (*options.metadata, (_COMPRESSION_KEY, options.compression))


class ServerCallBase:
    """
    The common state of a server's call, see L{IServerCall}.

    Each engine's call sets these attributes itself, which saves a constructor call.
    """

    __slots__ = (
        "_cancelled",
        "_drained",
        "_got",
        "_hasBegun",
        "_initial",
        "_isAtEnd",
        "_isGone",
        "_onClosed",
        "deadline",
        "isOver",
        "isRefused",
        "metadata",
        "path",
    )

    path: str
    metadata: Metadata
    deadline: float | None
    isOver: bool
    isRefused: bool
    _isGone: bool
    _hasBegun: bool
    _isAtEnd: bool
    _initial: tuple[tuple[str, str | bytes], ...]
    _got: Callable[[bytes | None], object] | None
    _cancelled: Callable[[], object] | None
    _onClosed: Callable[[bool], object] | None
    _drained: Deferred[None] | None

    def _lose(self) -> None:
        """
        Clean up after a client has disconnected; notify the watcher if the call was unfinished.
        """
        if self._isGone:
            return
        wasFinished = self.isOver
        self._isGone = self.isOver = True
        self._dropMessages()
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None and not wasFinished:
            # Before a producer that waits for capacity resumes: otherwise it would be cancelled
            # during its cleanup.
            cancelled()
        got, self._got = self._got, None
        if got is not None:
            # A reader outside the handler may still wait.
            got(None)
        self._resumeProducer()

    def _dropMessages(self) -> None:
        """Drop the messages that wait in this process."""

    def _hasCapacity(self, share: int = 1) -> bool:
        """Return whether the unsent messages are below C{1 / share} of the limits."""
        raise NotImplementedError

    def _notifyClosed(self, isCancelled: bool) -> None:
        onClosed, self._onClosed = self._onClosed, None
        if onClosed is not None:
            onClosed(isCancelled)

    def whenClosed(self, closed: Callable[[bool], object]) -> None:
        """Register a function to be called when the call is closed."""
        self._onClosed = closed

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Add initial metadata that is sent with the first operation."""
        self._initial = (*self._initial, *metadata)

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent."""
        if self.isOver or self._hasCapacity():
            return succeed(None)
        self._drained = Deferred(self._stopWaiting)
        return self._drained

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._drained = None

    def _resumeProducer(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)


class GracefulServer:
    """
    The shutdown of a server: settle, accept no more calls, grace, cancel.

    grpc core cancels calls that arrive between its own stop and the moment when the client learns
    of it. Most busy clients wait for a response before they call again. So responses are held for a
    while before and after the stop: the server settles.

    @ivar traffic: Counts the bytes of messages.
    @ivar isOpen: Whether operations of calls start at once; otherwise they go to L{hold}.
    @ivar isStopping: Whether no more calls are accepted.
    @ivar hasEnded: Whether all calls, ports and threads have ended.
    """

    _log = Logger()

    def __init__(self, reactor: Any, traffic: MessageByteCounter) -> None:
        """
        @param reactor: Provides C{IReactorFromThreads}, C{IReactorTime} and C{IReactorCore}.
        """
        self.traffic = traffic
        self.isOpen = True
        self.isStopping = self.hasEnded = False
        self._reactor = reactor
        self._accept: Callable[[Any], object] | None = None
        self._isClosed = False
        self._held: list[tuple[Callable[..., object], Any]] = []
        self._settling: Any = None
        self._grace: Any = None
        self._trigger: Any = None
        self._waiting: list[Deferred[None]] = []

    def _addPort(self, address: str, credentials: Any) -> int:
        """Open a port; return 0 or raise C{RuntimeError} on failure."""
        raise NotImplementedError

    def _shutDown(self, graceSeconds: float) -> None:
        """Stop accepting calls."""
        raise NotImplementedError

    def _cancelCalls(self) -> None:
        """Cancel the remaining calls: the grace has ended."""
        raise NotImplementedError

    def bind(self, address: str, credentials: Any = None) -> int:
        """
        Open a port.

        @param address: C{host:port}, C{[::1]:port} or C{unix:path}.
        @param credentials: C{grpc.ServerCredentials}; C{None} for plain text.
        @return: The port.
        @raise CannotListenError: If the address is taken or invalid.
        """
        host, _, port = address.rpartition(":")
        try:
            bound = self._addPort(address, credentials)
        except RuntimeError as error:
            raise CannotListenError(host, port, error) from error
        if not bound:
            raise CannotListenError(host, port, OSError("the address is taken or is none"))
        return bound

    def _stopWithReactor(self) -> None:
        """Stop when the reactor stops: the server's thread would keep the process running."""
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def _leave(self) -> Deferred[None]:
        """Stop, but let a stop with a grace in the same iteration go first."""
        done: Deferred[None] = Deferred()

        def stop() -> None:
            hasBegun = self.isStopping or self._settling is not None
            (self._whenEnded() if hasBegun else self.stop(0)).chainDeferred(done)

        self._reactor.callLater(0, stop)
        return done

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel the remaining calls after the grace."""
        if self.isStopping:
            sooner = self._reactor.seconds() + graceSeconds
            if self._grace.active() and sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        elif not settleSeconds:
            self._beginStop(graceSeconds, 0.0)
        elif self._settling is None:
            self.isOpen = False
            self._settling = self._reactor.callLater(
                settleSeconds, self._beginStop, graceSeconds, settleSeconds
            )
        return self._whenEnded()

    def _beginStop(self, graceSeconds: float, settleSeconds: float) -> None:
        self.isStopping = True
        self._shutDown(graceSeconds)
        self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        if self._settling is not None:
            self._stopTimer(self._settling)
            self._settling = self._reactor.callLater(settleSeconds, self._release)

    def _whenEnded(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self.hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def _stopTimer(self, timer: Any) -> None:
        if timer is not None and timer.active():
            timer.cancel()

    def hold(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function when the server has settled; drop it if the engine is closed."""
        if not self._isClosed:
            self._held.append((function, arguments))

    def _release(self) -> None:
        held, self._held = self._held, []
        self.isOpen = not self._isClosed
        for function, arguments in held:
            try:
                function(*arguments)
            except Exception:
                # The other calls still get their responses.
                self._log.failure("a response could not be sent")

    def _closeOperations(self) -> None:
        """Drop all held and further operations: the engine is closed."""
        self._isClosed = True
        self.isOpen = False
        self._held.clear()

    def _finishStop(self) -> None:
        """Fire the Deferreds of L{stop}: all calls, ports and threads have ended."""
        self.hasEnded = True
        self._stopTimer(self._grace)
        self._stopTimer(self._settling)
        self._closeOperations()
        # A reactor that is shutting down has already removed it.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
