"""The graceful shutdown of a gRPC server, for both engines."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger


class GracefulShutdown:
    """
    The shutdown of a server: settle, accept no more calls, grace, cancel.

    grpc core cancels the calls that arrive between its own stop and the moment when their client
    learns of it. Most busy clients wait for a response before they call again, so that responses
    are held for a while before and after the stop: the server settles.

    @ivar isOpen: Whether operations of calls start at once; else they go to L{hold}.
    @ivar isStopping: Whether no more calls are accepted.
    @ivar hasEnded: Whether no call, port or thread is left.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        shutDown: Callable[[float], object],
        cancelCalls: Callable[[], object],
    ) -> None:
        """
        @param reactor: Provides C{IReactorTime} and C{IReactorCore}.
        @param shutDown: Called with the grace in seconds: accepts no more calls from then on.
        @param cancelCalls: Called at the end of the grace, if the server has not ended before.
        """
        self.isOpen = True
        self.isStopping = self.hasEnded = False
        self._reactor = reactor
        self._shutDown = shutDown
        self._cancelCalls = cancelCalls
        self._isClosed = False
        self._held: list[tuple[Callable[..., object], Any]] = []
        self._settling: Any = None
        self._grace: Any = None
        self._trigger: Any = None
        self._waiting: list[Deferred[None]] = []

    def stopWithReactor(self) -> None:
        """Stop the server when the reactor stops: its thread would keep the process running."""
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def _leave(self) -> Deferred[None]:
        """Stop, after anything that stops the server with a grace in the same iteration."""
        done: Deferred[None] = Deferred()

        def stop() -> None:
            hasBegun = self.isStopping or self._settling is not None
            (self._whenEnded() if hasBegun else self.stop(0)).chainDeferred(done)

        self._reactor.callLater(0, stop)
        return done

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """
        Stop, or shorten the grace of a stop in progress; see
        L{IServerEngine.stop<storagegate.rpc.interfaces.IServerEngine>}.
        """
        if self.isStopping:
            sooner = self._reactor.seconds() + graceSeconds
            if self._grace.active() and sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        elif not settleSeconds:
            self._begin(graceSeconds, 0.0)
        elif self._settling is None:
            self.isOpen = False
            self._settling = self._reactor.callLater(
                settleSeconds, self._begin, graceSeconds, settleSeconds
            )
        return self._whenEnded()

    def _begin(self, graceSeconds: float, settleSeconds: float) -> None:
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
        """Call a function when the server has settled; never, if the engine takes none any more."""
        if not self._isClosed:
            self._held.append((function, arguments))

    def _release(self) -> None:
        held, self._held = self._held, []
        self.isOpen = not self._isClosed
        for function, arguments in held:
            try:
                function(*arguments)
            except Exception:
                # The other calls are answered all the same.
                self._log.failure("a call could not be answered")

    def closeOperations(self) -> None:
        """Drop what is held, and what follows: the engine takes no operation any more."""
        self._isClosed = True
        self.isOpen = False
        self._held.clear()

    def ended(self) -> None:
        """Fire the Deferreds of L{stop}: no call, port or thread is left."""
        self.hasEnded = True
        self._stopTimer(self._grace)
        self._stopTimer(self._settling)
        self.closeOperations()
        # A reactor that is shutting down has removed it already.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
