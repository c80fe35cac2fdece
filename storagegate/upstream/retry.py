"""
How often calls may be repeated, and after which pause.

A call of a service that is elsewhere: an instance, an attempt, and perhaps another attempt.

What may be tried again is what nobody can have seen, or what does no harm when it is done twice.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from storagegate.core.backoff import Backoff
from storagegate.core.errors import ServiceError, codedError
from storagegate.upstream.cluster import CallSlot, Choose, Cluster
from storagegate.upstream.metrics import UpstreamMeters

RESERVE = 100.0
"""Repetitions that a service has in store: what was in flight with an instance that dies."""

# What a service of few calls gets besides: without it, its reserve would not come back for hours.
_A_SECOND = 1.0

BACKOFF = Backoff(firstSeconds=0.025, maxSeconds=0.25)
"""The pause before a call is repeated."""


class RetryBudget:
    """
    Lets a part of all calls be repetitions.

    When every instance fails, repetitions would multiply the load that they fail of.
    """

    def __init__(self, percent: int, seconds: Callable[[], float]) -> None:
        """
        @param percent: How many of a hundred calls may be repetitions; 0 for none.
        @param seconds: Gives the time.
        """
        self._share = percent / 100
        self._seconds = seconds
        self._left = RESERVE if percent else 0.0
        self._at = seconds()

    def called(self) -> None:
        """Take note of a call."""
        self._left = min(RESERVE, self._left + self._share)

    def take(self) -> bool:
        """Ask for a repetition."""
        now = self._seconds()
        if self._share:
            self._left = min(RESERVE, self._left + (now - self._at) * _A_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


T = TypeVar("T")


class AttemptFailed(Exception):
    """
    An instance has not answered, or nothing that makes sense.

    @ivar error: What the caller is told if it is not tried again.
    @ivar isUnsent: Whether nothing of the call has left this process.
    """

    def __init__(self, error: ServiceError, isUnsent: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.isUnsent = isUnsent


@frozen
class CallPolicy:
    """
    What holds for one call.

    @ivar strategy: Who chooses the instance.
    @ivar choose: Chooses in its place, where calls belong together.
    @ivar isRepeatable: Whether it may be tried again though an instance may have seen it.
    @ivar timeoutSeconds: How long an attempt may take, or wait for an instance.
    """

    strategy: str
    choose: Choose | None
    isRepeatable: bool
    timeoutSeconds: float


class Upstream:
    """
    Calls one service.

    @ivar cluster: Its instances.
    """

    def __init__(
        self, cluster: Cluster, clock: IReactorTime, random: Random, meters: UpstreamMeters
    ) -> None:
        self.cluster = cluster
        self._clock = clock
        self._random = random
        self._meters = meters
        self._budget = RetryBudget(cluster.options.retryPercent, clock.seconds)

    async def call(self, attempt: Callable[[CallSlot], Awaitable[T]], terms: CallPolicy) -> T:
        """
        Try a call until it succeeds or may not be tried again.

        @param attempt: Sends it to the instance of a lease, whose end it tells. Raises
            L{AttemptFailed} if it may be tried again, and whatever else ends the call.
        @raise ServiceError: What went wrong with the last attempt.
        """
        name = self.cluster.name
        self._budget.called()
        tried: set[str] = set()
        count = 0
        while True:
            lease = await self._acquire(terms, tried)
            try:
                return await attempt(lease)
            except AttemptFailed as failed:
                count += 1
                if not (failed.isUnsent or terms.isRepeatable) or not self._mayRepeat(count):
                    raise failed.error from failed
            tried.add(lease.member.id)
            await deferLater(self._clock, BACKOFF.seconds(count - 1, self._random.uniform))
            self._meters.retries.add(1, (name,))

    def _mayRepeat(self, count: int) -> bool:
        if count > self.cluster.options.retries:
            return False
        if self._budget.take():
            return True
        self._meters.refusedRetries.add(1, (self.cluster.name,))
        return False

    async def _acquire(self, terms: CallPolicy, tried: set[str]) -> CallSlot:
        """Get an instance, which may take as long as an attempt."""
        acquiring = self.cluster.acquire(terms.strategy, tried, terms.choose)
        if acquiring.called:
            return await acquiring
        late = LateTimer(self._clock, terms.timeoutSeconds, acquiring)
        try:
            return await acquiring
        except CancelledError:
            if not late.isLate:
                raise
            raise codedError(
                "UNAVAILABLE", f"Every instance of {self.cluster.name} is busy"
            ) from None
        finally:
            late.stop()


class LateTimer:
    """
    Cancels what takes too long.

    @ivar isLate: Whether it has.
    """

    def __init__(self, clock: IReactorTime, seconds: float, waiting: Deferred[Any]) -> None:
        self.isLate = False
        self._waiting = waiting
        self._timer = clock.callLater(max(0.0, seconds), self._end)

    def stop(self) -> None:
        """Cancel nothing any more."""
        if self._timer.active():
            self._timer.cancel()

    def _end(self) -> None:
        self.isLate = True
        self._waiting.cancel()
