"""The delays between attempts: exponential back-off with jitter."""

from collections.abc import Callable

from attrs import frozen

# 2**30 first delays are longer than any limit.
_MOST_DOUBLINGS = 30

Uniform = Callable[[float, float], float]
"""C{random.uniform}: a random number between two others."""


@frozen(kw_only=True)
class Backoff:
    """
    A delay that doubles with each failure up to a limit, and is random below that, so that clients
    that failed together do not come back together.

    @ivar firstSeconds: The longest delay before doubling.
    @ivar maxSeconds: The limit.
    @ivar minSeconds: The shortest delay.
    @ivar jitter: The random part of the longest delay: 0 for none, 1 for any delay below it.
    """

    firstSeconds: float
    maxSeconds: float
    minSeconds: float = 0.0
    jitter: float = 1.0

    def seconds(self, doublings: int, uniform: Uniform) -> float:
        """
        Return the delay before the next attempt.

        @param doublings: How often the delay has doubled: the number of failures, with the last one
            or without it.
        """
        longest = min(self.maxSeconds, self.firstSeconds * 2 ** min(doublings, _MOST_DOUBLINGS))
        return uniform(max(self.minSeconds, longest * (1 - self.jitter)), longest)
