"""The throttle of failed authentications, for S3 and all transports of the gateway."""

from collections import OrderedDict

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from storagegate.core.context import rateLimitKey

WINDOW_SECONDS = 60.0
"""Failures older than this are forgotten."""

FREE_FAILURES = 100
"""Failures of a source per window before it is slowed down: misconfigured clients retry."""

DELAY_SECONDS = 0.25
"""Interval between the responses to further failures: four guesses per second and source."""

LONGEST_SECONDS = 60.0
"""The longest delay. 240 simultaneous guesses still get four responses per second."""

SOURCES = 10_000
"""Sources in memory; the source without a failure for the longest time is evicted first."""


class AuthFailureThrottle:
    """
    Counts failed authentications by source, and delays their responses. Successes are never
    delayed.

    A source is an IPv4 address or an IPv6 network, with all its connections and calls.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        # By source: the start of its window, its failures, the time of its last response.
        self._sources: OrderedDict[str, tuple[float, int, float]] = OrderedDict()

    def failed(self, address: str) -> float:
        """
        Count a failure.

        @param address: The address of the client.
        @return: The delay of its response, in seconds.
        """
        source = rateLimitKey(address)
        now = self._clock.seconds()
        since, count, last = self._sources.pop(source, (now, 0, now))
        if now - since > WINDOW_SECONDS:
            since, count = now, 0
        if count >= FREE_FAILURES:
            last = min(max(last, now) + DELAY_SECONDS, now + LONGEST_SECONDS)
        self._sources[source] = (since, count + 1, last)
        if len(self._sources) > SOURCES:
            self._sources.popitem(last=False)
        return last - now if count >= FREE_FAILURES else 0.0

    async def wait(self, seconds: float) -> None:
        """Wait until a response may be sent."""
        if seconds:
            await deferLater(self._clock, seconds)
