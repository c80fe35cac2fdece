"""
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

from storagegate.balancing.cluster import Choose, Cluster
from storagegate.balancing.members import Lease
from storagegate.balancing.retrying import RetryBudget, pauseSeconds
from storagegate.balancing.upstreammeters import UpstreamMeters
from storagegate.core.errors import ServiceError, codedError

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
class Terms:
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

    async def call(self, attempt: Callable[[Lease], Awaitable[T]], terms: Terms) -> T:
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
            await deferLater(self._clock, pauseSeconds(count - 1, self._random))
            self._meters.retries.add(1, (name,))

    def _mayRepeat(self, count: int) -> bool:
        if count > self.cluster.options.retries:
            return False
        if self._budget.take():
            return True
        self._meters.refusedRetries.add(1, (self.cluster.name,))
        return False

    async def _acquire(self, terms: Terms, tried: set[str]) -> Lease:
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
