"""Delays between attempts: exponential backoff with jitter."""

from collections.abc import Callable

from attrs import frozen

# The first delay, so often multiplied, exceeds any limit.
_MOST_STEPS = 64

Uniform = Callable[[float, float], float]
"""C{random.uniform}: returns a random number between two others."""


@frozen(kw_only=True)
class Backoff:
    """
    A delay that grows with each failure up to a limit, with jitter below it, so that clients that
    failed together do not retry together.

    @ivar firstSeconds: The longest first delay.
    @ivar maxSeconds: The limit.
    @ivar minSeconds: The shortest delay.
    @ivar jitter: The random fraction of the longest delay: 0 for none, 1 for full jitter.
    @ivar factor: The factor between one delay and the next, at least 1.6.
    """

    firstSeconds: float
    maxSeconds: float
    minSeconds: float = 0.0
    jitter: float = 1.0
    factor: float = 2.0

    def seconds(self, steps: int, uniform: Uniform) -> float:
        """
        Return the delay before the next attempt.

        @param steps: How often the delay has grown: the number of failures, with or without the
            last one.
        """
        longest = min(self.maxSeconds, self.firstSeconds * self.factor ** min(steps, _MOST_STEPS))
        return uniform(max(self.minSeconds, longest * (1 - self.jitter)), longest)
