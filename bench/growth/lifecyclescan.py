"""
Measure rounds of the scanner of life cycles, in a store that no daemon has open.

    python -m bench.growth.lifecyclescan DATA [BUCKET]

The bucket is one of C{bulkfill.py} or C{versionfill.py}. Its rules are about all its versions, of
which none is due. A line for each round: rows a second of wall time and of CPU time (of all
threads), and the longest time for which a timer of one millisecond was late, which is how long the
loop was held.
"""

import sys
import time
from typing import Any

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall, react

from storagegate.s3.expiry import LifecycleScanner
from storagegate.s3.lifecycle import LIFECYCLE, Calendar, LifecycleRule
from storagegate.storage.store import ObjectStore

ROUNDS = 5
RULES = (
    LifecycleRule("expire", True, prefix="", days=10_000_000),
    LifecycleRule("tagged", True, tags={"kind": "draft"}, days=30),
    LifecycleRule("old", True, noncurrentDays=10_000_000, newer=3),
)
"""Of them none removes anything of the bench, also where a day takes a second."""

_DAY_SECONDS = 24 * 3600
_TICK_SECONDS = 0.001


@frozen
class Round:
    """
    What a round has come to.

    @ivar heldSeconds: The longest time for which the loop was held.
    """

    rows: int
    seconds: float
    cpuSeconds: float
    heldSeconds: float


async def scan(reactor: Any, store: ObjectStore, day: int) -> Round:
    """
    Make a round.

    @param day: How many days from now it is; there is one round a day.
    """
    held = 0.0
    last = time.perf_counter()

    def tick() -> None:
        nonlocal held, last
        now = time.perf_counter()
        held, last = max(held, now - last - _TICK_SECONDS), now

    ticking = LoopingCall(tick)
    ticking.clock = reactor
    scanner = LifecycleScanner(store, Calendar(), reactor, lambda: time.time() + day * _DAY_SECONDS)
    ended = ticking.start(_TICK_SECONDS)
    began, cpu = time.perf_counter(), time.process_time()
    await scanner.scan()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    ticking.stop()
    await ended
    return Round(scanner.seen, seconds, cpu, held)


async def measure(reactor: Any, data: str, bucket: str) -> None:
    """Make rounds, and print what they have come to."""
    store = ObjectStore.open(data, reactor, durability="os")
    try:
        await store.catalog.putSettings(bucket, {LIFECYCLE: msgspec.json.encode(RULES)})
        for day in range(ROUNDS):
            found = await scan(reactor, store, day)
            print(
                f"{found.rows} rows, {found.rows / found.seconds:,.0f} a second,"
                f" {found.rows / found.cpuSeconds:,.0f} a second of CPU time,"
                f" the loop held for {found.heldSeconds * 1000:.1f} ms"
            )
    finally:
        await store.close()


def main(reactor: Any, data: str, bucket: str = "grown") -> Deferred[None]:
    """Run as a program."""
    return Deferred.fromCoroutine(measure(reactor, data, bucket))


if __name__ == "__main__":
    react(main, sys.argv[1:])
