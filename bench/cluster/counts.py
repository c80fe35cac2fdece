#!/usr/bin/env python3
"""
How many rate limits, sessions and replies over UDP the servers of a cluster's counts take.

    python bench/bench_counts.py ADDRESS... [--rounds 5] [--seconds 2]

An ADDRESS is C{valkey://HOST:PORT/0} or C{postgresql://USER@HOST/DATABASE}, whose tables are made.
In each round every server has its turn with each work, beside the counts in this process's memory,
so what is compared was measured within seconds.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, process_time
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from storagegate.cluster.counts import openCounts
from storagegate.cluster.counts.postgresql import createTables
from storagegate.core.ratelimit import MemoryRateLimitStore
from storagegate.gateway.transports.udp.replycache import ReplyCache
from storagegate.http.sessions.stores import MemorySessionStore

KEYS = 6400
"""Clients of a limit, and sessions."""

REPLY = b"x" * 200

Work = Callable[[int], Awaitable[object]]


async def settled(result: Any) -> Any:
    """Wait for a result, if it is one to wait for."""
    return await result if hasattr(result, "__await__") else result


def worksOf(rates: Any, sessions: Any, replies: Any) -> dict[str, Work]:
    """Return what is measured: each takes the number of the request."""

    async def countOne(number: int) -> None:
        hits, _ = await settled(rates.increment(f"10.0.{number % KEYS}"))
        assert hits

    async def call(number: int) -> None:
        key = ("10.0.0.1", number)
        assert await settled(replies.begin(key, 100)) is None
        await settled(replies.end(key, REPLY))

    async def useSession(number: int) -> None:
        id = f"session{number % KEYS}"
        if number % 4:
            await settled(sessions.get(id))
        else:
            await settled(sessions.set(id, {"cookie": {}, "user": number}))

    return {"count": countOne, "begin and end": call, "session, 1 of 4 set": useSession}


class Bench:
    """
    The rounds.

    @ivar figures: Rate, CPU microseconds here, p50 and p99 in milliseconds, by work and server.
    """

    def __init__(self, reactor: Any, options: argparse.Namespace) -> None:
        self._options = options
        self._reactor = reactor
        self.figures: dict[tuple[str, str], list[tuple[float, ...]]] = {}

    async def run(self) -> None:
        """Measure and print."""
        memory = (MemoryRateLimitStore(), MemorySessionStore(), ReplyCache(monotonic))
        servers = {"memory": worksOf(*memory)}
        for address in self._options.addresses:
            if address.startswith("postgres"):
                createTables([address])
            counts = openCounts(address, self._reactor)
            stores = (counts.rateLimitStore("bench", 60_000), counts.sessionStore("bench"))
            # Replies of this process would be found in its memory: each number is used once.
            name = address.partition(":")[0]
            servers[name] = worksOf(*stores, counts.replyCache(f"bench{monotonic()}"))
        numbers = count()
        for _ in range(self._options.rounds):
            for work in servers["memory"]:
                for together in (64, 1):
                    for name, works in servers.items():
                        figures = await self._measure(works[work], together, numbers)
                        row = self.figures.setdefault((f"{work} x{together}", name), [])
                        row.append(figures)
        self._print()

    async def _measure(self, work: Work, together: int, numbers: Any) -> tuple[float, ...]:
        began, used = perf_counter(), process_time()
        end = began + self._options.seconds
        times: list[float] = []

        async def client() -> None:
            while (start := perf_counter()) < end:
                await work(next(numbers))
                times.append(perf_counter() - start)

        await gatherResults([Deferred.fromCoroutine(client()) for _ in range(together)])
        seconds, busy = perf_counter() - began, process_time() - used
        times.sort()
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        return len(times) / seconds, busy / len(times) * 1e6, p50 * 1000, p99 * 1000

    def _print(self) -> None:
        print(f"{'work':26}{'server':12}{'a second':>10}{'CPU us':>8}{'p50 ms':>8}{'p99 ms':>8}")
        for (work, name), rows in sorted(self.figures.items()):
            rate, busy, p50, p99 = (median(column) for column in zip(*rows, strict=True))
            print(f"{work:26}{name:12}{rate:10.0f}{busy:8.1f}{p50:8.2f}{p99:8.2f}")


def main(reactor: Any, *arguments: str) -> Deferred[None]:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    return Deferred.fromCoroutine(Bench(reactor, parser.parse_args(arguments)).run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
