"""What the loads of clients in Python share; it needs no package, as peers have none of ours."""

import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

WARM_SECONDS = 0.5

Gather = Callable[[Sequence[Coroutine[Any, Any, None]]], Awaitable[Any]]
"""Runs coroutines at the same time."""


class ClientLoad:
    """
    Calls in flight, each followed by the next one.

    @ivar messages: How many responses came.
    """

    def __init__(self, make: Callable[[], Awaitable[int]], gather: Gather) -> None:
        """
        @param make: Makes a call, and returns how many responses came.
        """
        self._make = make
        self._gather = gather
        self._times: list[float] = []
        self.messages = 0

    async def _one(self, end: float) -> None:
        while (begun := time.perf_counter()) < end:
            # Not in one statement, which would read the count before the call.
            count = await self._make()
            self.messages += count
            self._times.append(time.perf_counter() - begun)

    async def _run(self, calls: int, seconds: float) -> None:
        self._times.clear()
        self.messages = 0
        end = time.perf_counter() + seconds
        await self._gather([self._one(end) for _ in range(calls)])

    async def measure(self, calls: int, seconds: float) -> None:
        """Keep calls in flight for some time, and print the report."""
        await self._run(calls, WARM_SECONDS)
        cpu, begun = time.process_time(), time.perf_counter()
        await self._run(calls, seconds)
        used, took = time.process_time() - cpu, time.perf_counter() - begun
        times = sorted(self._times)
        report = {
            "requests": self.messages,
            "seconds": took,
            "p50Ms": times[len(times) // 2] * 1000,
            "p99Ms": times[len(times) * 99 // 100] * 1000,
            "serverSeconds": used,
        }
        print(json.dumps(report))
