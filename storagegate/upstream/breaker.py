"""
Whether an instance gets calls, by what became of those that it got.

::

    closed      all calls; so many failures in a row open it
    open        no calls for a while, each time in a row twice as long
    half open   one call at a time: its success closes, its failure opens

The time of an instance that is out is varied by a fifth, so that several gateways, or workers, do
not all come back to it in one moment.
"""

from collections.abc import Callable
from random import Random

from attrs import frozen

from storagegate.core.backoff import Backoff


@frozen
class BreakerLimits:
    """
    When a breaker opens, and for how long.

    @ivar failures: Failures in a row that open it.
    @ivar seconds: How long it is open the first time.
    @ivar maxSeconds: How long at most.
    """

    failures: int = 5
    seconds: float = 1.0
    maxSeconds: float = 60.0


class Breaker:
    """
    The breaker of one instance.

    @ivar epoch: Counts its openings. What became of a call that began in another epoch says nothing
        about the present one.
    """

    def __init__(self, limits: BreakerLimits, seconds: Callable[[], float], random: Random) -> None:
        """
        @param seconds: Gives the time.
        """
        self._limits = limits
        self._backoff = Backoff(
            firstSeconds=limits.seconds, maxSeconds=limits.maxSeconds, jitter=0.2
        )
        self._seconds = seconds
        self._random = random
        self._failures = 0
        self._openings = 0
        self._until: float | None = None
        self._isTrying = False
        self.epoch = 0

    @property
    def state(self) -> str:
        """Tell the state: C{closed}, C{open} or C{half_open}."""
        if self._until is None:
            return "closed"
        return "open" if self._seconds() < self._until else "half_open"

    @property
    def isReady(self) -> bool:
        """Tell whether a call may go there now."""
        if self._until is None:
            return True
        return not self._isTrying and self._seconds() >= self._until

    @property
    def waitSeconds(self) -> float | None:
        """Tell how long it stays open; C{None} if it is not."""
        if self._until is None:
            return None
        left = self._until - self._seconds()
        return left if left > 0 else None

    def begin(self) -> int:
        """Take note of a call; give the epoch that its end is told with."""
        self._isTrying = self._until is not None
        return self.epoch

    def succeeded(self, epoch: int) -> None:
        """Take note of a call that was answered."""
        if epoch != self.epoch:
            return
        self._failures = self._openings = 0
        self._until = None
        self._isTrying = False

    def failed(self, epoch: int) -> bool:
        """
        Take note of a call that was not answered.

        @return: Whether that has opened it.
        """
        if epoch != self.epoch:
            return False
        self._failures += 1
        if self._until is None and self._failures < self._limits.failures:
            return False
        self._open()
        return True

    def gaveUp(self, epoch: int) -> None:
        """Take note of a call that its caller ended: that says nothing, and another may try."""
        if epoch == self.epoch:
            self._isTrying = False

    def revive(self) -> None:
        """Allow a call at once: somebody else has seen the instance well."""
        if self._until is not None:
            self._until = self._seconds()

    def _open(self) -> None:
        length = self._backoff.seconds(self._openings, self._random.uniform)
        self._until = self._seconds() + length
        self._openings += 1
        self._failures = 0
        self._isTrying = False
        self.epoch += 1
