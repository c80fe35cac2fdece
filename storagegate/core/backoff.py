"""Delays between attempts: exponential backoff with jitter."""

from collections.abc import Callable

from attrs import frozen

# 2**30 times the first delay exceeds any limit.
_MOST_DOUBLINGS = 30

Uniform = Callable[[float, float], float]
"""C{random.uniform}: returns a random number between two others."""


@frozen(kw_only=True)
class Backoff:
    """
    A delay that doubles with each failure up to a limit, with jitter below it, so that clients that
    failed together do not retry together.

    @ivar firstSeconds: The longest delay before doubling.
    @ivar maxSeconds: The limit.
    @ivar minSeconds: The shortest delay.
    @ivar jitter: The random fraction of the longest delay: 0 for none, 1 for full jitter.
    """

    firstSeconds: float
    maxSeconds: float
    minSeconds: float = 0.0
    jitter: float = 1.0

    def seconds(self, doublings: int, uniform: Uniform) -> float:
        """
        Return the delay before the next attempt.

        @param doublings: How often the delay has doubled: the number of failures, with or without
            the last one.
        """
        longest = min(self.maxSeconds, self.firstSeconds * 2 ** min(doublings, _MOST_DOUBLINGS))
        return uniform(max(self.minSeconds, longest * (1 - self.jitter)), longest)
