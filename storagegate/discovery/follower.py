"""Does a step again and again, and waits the longer the more often it has failed."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.discovery.sourceerror import SourceError

FIRST_SECONDS = 1.0
"""The shortest wait after a failure."""

MAX_SECONDS = 30.0
"""The longest: so late at most is noticed that a source is back."""

CALM_SECONDS = 60.0
"""Failures that are further apart than this have nothing to do with each other."""

MIN_SECONDS = 0.1
"""Between two steps: a source that has news all the time is not asked without a pause."""

_log = Logger()


def backOff(failures: int, chance: Callable[[], float]) -> float:
    """
    Give how long to wait, in seconds: anything from the first wait to one that doubles.

    @param failures: How many there were in a row, this one included.
    @param chance: Gives a number from 0 to 1: not all come back at once.
    """
    longest = min(MAX_SECONDS, FIRST_SECONDS * 2.0 ** min(failures, 10))
    return FIRST_SECONDS + chance() * (longest - FIRST_SECONDS)


class Follower:
    """Runs one loop; what goes wrong in it is told, and never ends it."""

    def __init__(
        self,
        clock: Any,
        step: Callable[[], Awaitable[float]],
        failed: Callable[[str], None],
        worked: Callable[[], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        """
        @param step: Does it once; gives how many seconds to wait before the next time.
        @param failed: Is told what went wrong.
        @param worked: Is told that a step went well.
        """
        self._clock = clock
        self._step = step
        self._failed = failed
        self._worked = worked
        self._chance = chance
        self._stopped = False
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._running = Deferred.fromCoroutine(self._run())

    def stop(self) -> Deferred[None]:
        """End; what is under way is cancelled."""
        self._stopped = True
        ended: Deferred[None] = Deferred()
        if self._running is None:
            ended.callback(None)
        else:
            self._running.addBoth(lambda result: ended.callback(None))
            self._running.cancel()
        return ended

    async def _run(self) -> None:
        failures = 0
        failedAt = float("-inf")
        while not self._stopped:
            try:
                pause = await self._step()
            except (SourceError, CancelledError) as error:
                if self._stopped:
                    return
                self._failed(str(error) or "was cancelled")
            except Exception as error:
                # A fault of ours must not end what is to go on for months.
                _log.failure("a step of discovery failed")
                self._failed(f"{type(error).__name__}: {error}")
            else:
                self._worked()
                await self._sleep(max(pause, MIN_SECONDS))
                continue
            now = self._clock.seconds()
            failures = 1 if now - failedAt > CALM_SECONDS else failures + 1
            failedAt = now
            await self._sleep(backOff(failures, self._chance))

    async def _sleep(self, seconds: float) -> None:
        if not self._stopped:
            await deferLater(self._clock, seconds)
