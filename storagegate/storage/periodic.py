"""A background task that works in rounds while the store is open."""

from collections.abc import Callable, Coroutine
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure


@define(eq=False)
class PeriodicTask:
    """
    Runs a coroutine that pauses between and within its rounds, until it is stopped. All methods:
    reactor thread.

    @ivar _name: The name of the task, for the log.
    @ivar _clock: Measures the pauses.
    @ivar problem: The error that ended the coroutine; L{None} if there was none.
    @ivar isStopping: Whether the coroutine should return after its current pool job.
    """

    _log = Logger()

    _name: str
    _clock: IReactorTime
    _running: Deferred[None] | None = field(default=None, init=False)
    _delay: Deferred[None] | None = field(default=None, init=False)
    problem: str | None = field(default=None, init=False)
    isStopping: bool = field(default=False, init=False)

    def start(self, rounds: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """
        Start, or restart after L{stop}.

        @param rounds: Creates the coroutine, which returns once L{isStopping} is set.
        """
        self.isStopping = False
        self.problem = None
        self._running = Deferred.fromCoroutine(rounds()).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self._log.failure("{name} has ended", failure, name=self._name)
        self.problem = f"{self._name} has ended: {failure.getErrorMessage()}"

    async def stop(self) -> None:
        """End the current pause, if any, and wait for the coroutine to return."""
        self.isStopping = True
        self.wake()
        if self._running is not None:
            await self._running

    def wake(self) -> None:
        """End the current pause, if any."""
        if self._delay is not None:
            self._delay.cancel()

    async def pause(self, seconds: float) -> None:
        """Wait for the given time, or until L{stop} or L{wake}; 0 seconds do not wait."""
        if self.isStopping or not seconds:
            return
        self._delay = deferLater(self._clock, seconds)
        try:
            await self._delay
        except CancelledError:
            pass
        finally:
            self._delay = None
