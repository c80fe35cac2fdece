"""A brake on guessing: failed authentications of one source are answered ever later."""

from collections import OrderedDict

from twisted.internet.interfaces import IReactorTime

WINDOW_SECONDS = 60.0
"""Failures older than this are forgotten."""

FREE_FAILURES = 100
"""A client that is merely misconfigured retries; it is not slowed before this many in a window."""

DELAY_SECONDS = 0.25
"""What every failure beyond that waits: four guesses a second and connection."""

SOURCES = 10_000
"""Sources that are remembered; the longest unseen is forgotten first."""


class FailureThrottle:
    """Count failed authentications by source. Successes are never slowed."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def failed(self, source: str) -> float:
        """
        Count one failure.

        @return: How many seconds its answer should wait.
        """
        now = self._clock.seconds()
        since, count = self._counts.pop(source, (now, 0))
        if now - since > WINDOW_SECONDS:
            since, count = now, 0
        self._counts[source] = (since, count + 1)
        if len(self._counts) > SOURCES:
            self._counts.popitem(last=False)
        return DELAY_SECONDS if count >= FREE_FAILURES else 0.0
