"""
Retries of calls of a remote service: attempts, their limits and the backoff.

A call may be repeated if no instance can have received it, or if it is idempotent.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NoReturn, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from storagegate.core.backoff import Backoff, Uniform
from storagegate.core.errors import ServiceError, codedError
from storagegate.upstream.cluster import CallSlot, Choose, Cluster
from storagegate.upstream.metrics import UpstreamMetrics

RESERVE = 100.0
"""Capacity of the budget: enough to retry all calls in flight to an instance that fails."""

# Retries added to the budget each second. Without them the budget of a service with few calls would
# take hours to refill.
_A_SECOND = 1.0

BACKOFF = Backoff(firstSeconds=0.025, maxSeconds=0.25)
"""The backoff before a call is repeated."""

T = TypeVar("T")


class RetryBudget:
    """
    Limits retries to a share of all calls.

    Without a limit, retries would multiply the load while every instance is overloaded.
    """

    def __init__(self, percent: int, seconds: Callable[[], float]) -> None:
        """
        @param percent: Maximum number of retries for each hundred calls; 0 disables retries.
        @param seconds: Returns the time of a monotonic clock in seconds.
        """
        self._share = percent / 100
        self._seconds = seconds
        self._left = RESERVE if percent else 0.0
        self._at = seconds()

    def called(self) -> None:
        """Count a call."""
        self._left = min(RESERVE, self._left + self._share)

    def take(self) -> bool:
        """Take a retry from the budget; return whether one was left."""
        now = self._seconds()
        if self._share:
            self._left = min(RESERVE, self._left + (now - self._at) * _A_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class AttemptFailed(Exception):
    """
    An instance has not responded, or its response is invalid.

    @ivar error: The error of the call if it is not repeated.
    @ivar isUnsent: Whether no part of the call has left this process.
    """

    def __init__(self, error: ServiceError, isUnsent: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.isUnsent = isUnsent


class RetryPolicy:
    """
    Decides whether a failed call is repeated, and waits before that.

    A call whose attempt never left this process may always be repeated, other calls only if they
    are idempotent.
    """

    def __init__(
        self,
        retries: int,
        percent: int,
        clock: IReactorTime,
        uniform: Uniform,
        refused: Callable[[], object] = lambda: None,
    ) -> None:
        """
        @param retries: Maximum number of retries of a call.
        @param percent: See L{RetryBudget}.
        @param refused: Called when the budget refuses a retry.
        """
        self._retries = retries
        self._budget = RetryBudget(percent, clock.seconds)
        self._clock = clock
        self._uniform = uniform
        self._refused = refused

    def called(self) -> None:
        """Count a call."""
        self._budget.called()

    def allows(self, failed: AttemptFailed, failures: int, isRepeatable: bool) -> bool:
        """
        Return whether a call may be repeated, and take the retry from the budget.

        @param failures: The number of failed attempts, with this one.
        @param isRepeatable: Whether the call may be repeated after a server may have received it.
        """
        if not (failed.isUnsent or isRepeatable) or failures > self._retries:
            return False
        if self._budget.take():
            return True
        self._refused()
        return False

    def wait(self, failures: int) -> Deferred[None]:
        """
        Wait before a retry.

        @param failures: The number of failed attempts.
        """
        return deferLater(self._clock, BACKOFF.seconds(failures - 1, self._uniform))


@frozen
class CallPolicy:
    """
    The options of sending one call.

    @ivar strategy: The name of the strategy that chooses the instance.
    @ivar choose: Chooses before the strategy for calls with affinity; else C{None}.
    @ivar isRepeatable: Whether the call may be repeated after an instance may have received it.
    @ivar timeoutSeconds: Limit of an attempt, and of the wait for an instance.
    """

    strategy: str
    choose: Choose | None
    isRepeatable: bool
    timeoutSeconds: float


@define(eq=False)
class Upstream:
    """
    Calls one service.

    @ivar cluster: Its instances.
    """

    cluster: Cluster
    _clock: IReactorTime
    _random: Random
    _metrics: UpstreamMetrics
    _retries: RetryPolicy = field(init=False)

    def __attrs_post_init__(self) -> None:
        options = self.cluster.options
        self._retries = RetryPolicy(
            options.retries,
            options.retryPercent,
            self._clock,
            self._random.uniform,
            lambda: self._metrics.refusedRetries.add(1, (self.cluster.name,)),
        )

    async def call(self, attempt: Callable[[CallSlot], Awaitable[T]], policy: CallPolicy) -> T:
        """
        Try a call until it succeeds or may not be repeated.

        @param attempt: Sends the call to the instance of a slot, and ends the slot. It raises
            L{AttemptFailed} if the call may be repeated.
        @raise ServiceError: The error of the last attempt.
        """
        retries = self._retries
        retries.called()
        tried: set[str] = set()
        count = 0
        while True:
            slot = await self._acquire(policy, tried)
            error: ServiceError | None = None
            try:
                return await attempt(slot)
            except AttemptFailed as failed:
                count += 1
                if not retries.allows(failed, count, policy.isRepeatable):
                    error = failed.error
            except BaseException:
                # An attempt that has not begun leaves its slot.
                slot.end(None)
                raise
            # Break the reference cycle of the error, its failure and this frame.
            if error is not None:
                try:
                    raise error
                finally:
                    del error
            tried.add(slot.member.id)
            await retries.wait(count)
            self._metrics.retries.add(1, (self.cluster.name,))

    async def _acquire(self, policy: CallPolicy, tried: set[str]) -> CallSlot:
        """Wait for an instance for at most the time of an attempt."""

        def late(result: Any, seconds: float) -> NoReturn:
            raise codedError("UNAVAILABLE", f"Every instance of {self.cluster.name} is busy")

        acquiring = self.cluster.acquire(policy.strategy, tried, policy.choose)
        if not acquiring.called:
            acquiring.addTimeout(max(0.0, policy.timeoutSeconds), self._clock, late)
        return await acquiring
