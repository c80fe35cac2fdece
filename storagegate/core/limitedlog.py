"""Rate-limited log lines for events that peers can cause."""

import time
from collections.abc import Callable
from typing import Any

from attrs import define
from twisted.logger import Logger, LogLevel

INTERVAL_SECONDS = 10.0
"""The minimum time between two lines of one kind: six a minute, whatever a client sends."""


@define
class _Kind:
    loggedAt: float
    held: int = 0


class RateLimitedLog:
    """
    Logs events that clients cause, at most one line of each kind in L{INTERVAL_SECONDS}.

    The first event of a kind is logged at once. Further events within the interval are counted, and
    the next line gives their number. Must be used in the reactor thread.
    """

    def __init__(self, log: Logger, seconds: Callable[[], float] = time.monotonic) -> None:
        """
        @param seconds: Returns the seconds of a monotonic clock.
        """
        self._log = log
        self._seconds = seconds
        self._kinds: dict[str, _Kind] = {}

    def warn(self, kind: str, text: str, **values: Any) -> None:
        """
        Log a warning, or count it.

        @param kind: A constant of the caller, never a value of the client: each kind is remembered.
        @param text: The format of the line.
        @param values: The values of the format; never secrets.
        """
        now = self._seconds()
        known = self._kinds.get(kind)
        if known is None:
            self._kinds[kind] = _Kind(now)
            self._log.emit(LogLevel.warn, text, **values)
        elif now - known.loggedAt < INTERVAL_SECONDS:
            known.held += 1
        else:
            if known.held:
                text += " ({held} more since the last line)"
            self._log.emit(LogLevel.warn, text, held=known.held, **values)
            known.loggedAt, known.held = now, 0
