"""How often calls may be repeated, and after which pause."""

from collections.abc import Callable
from random import Random

RESERVE = 100.0
"""Repetitions that a service has in store: what was in flight with an instance that dies."""

# What a service of few calls gets besides: without it, its reserve would not come back for hours.
_A_SECOND = 1.0

_FIRST_PAUSE = 0.025
_LONGEST_PAUSE = 0.25


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


def pauseSeconds(attempt: int, random: Random) -> float:
    """
    Give the pause before a repetition: any time up to one that doubles, so that calls that failed
    together do not come back together.

    @param attempt: How many there were already.
    """
    return random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt))
