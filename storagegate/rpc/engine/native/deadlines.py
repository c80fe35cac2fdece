"""
The deadlines of calls, with one timer for all of them.

Most calls end long before their deadline, so a timer for each would be made only to be cancelled.
Here a call enters the set of its tick and leaves it when it ends.
"""

import heapq
from typing import Any, Protocol

from twisted.logger import Logger

TICK_SECONDS = 0.01
"""Deadlines are kept up to this time late."""

_AHEAD_SECONDS = 60.0
"""A later deadline is looked at again after this time, so that there are few ticks."""

_log = Logger()


class IDeadlineCall(Protocol):
    """
    A call with a deadline.

    @ivar expires: Its deadline, in seconds of the clock.
    """

    expires: float

    def expire(self) -> None:
        """End the call: its deadline has passed."""

    def watchDeadline(self) -> None:
        """Add the call again: its deadline is later."""


DeadlineSet = dict[Any, None]


class Deadlines:
    """The deadlines of the calls of a server or a client."""

    def __init__(self, clock: Any) -> None:
        """
        @param clock: Provides C{IReactorTime}.
        """
        self._clock = clock
        self._sets: dict[int, DeadlineSet] = {}
        # The ticks of the sets, the soonest first, and some whose set is gone.
        self._ticks: list[int] = []
        self._timer: Any = None

    def add(self, call: IDeadlineCall) -> DeadlineSet:
        """
        Watch a call.

        @return: The set that the call is in; remove the call from it when it ends.
        """
        seconds: float = self._clock.seconds()
        tick = int(min(call.expires, seconds + _AHEAD_SECONDS) / TICK_SECONDS) + 1
        found = self._sets.get(tick)
        if found is None:
            found = self._sets[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._schedule()
        found[call] = None
        return found

    def _schedule(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        at = self._ticks[0] * TICK_SECONDS
        self._timer = self._clock.callLater(max(0.0, at - self._clock.seconds()), self._expire)

    def _expire(self) -> None:
        now = self._clock.seconds()
        due: list[Any] = []
        ticks = self._ticks
        while ticks and (ticks[0] * TICK_SECONDS <= now or not self._sets[ticks[0]]):
            due += self._sets.pop(heapq.heappop(ticks))
        if ticks:
            self._schedule()
        for call in due:
            try:
                if call.expires <= now:
                    call.expire()
                else:
                    call.watchDeadline()
            except Exception:
                # The other calls still get their status.
                _log.failure("a call could not be ended at its deadline")

    def close(self) -> None:
        """Stop: no call is left."""
        self._sets.clear()
        self._ticks.clear()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
