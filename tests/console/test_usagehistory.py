"""The samples of the usage of a store, and the growth that they show."""

import os
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.usagehistory import (
    DAY_MS,
    HOUR_MS,
    Disk,
    Growth,
    UsageHistory,
    UsageSample,
    UsageUnusable,
    bucketGrowth,
    forecastDisk,
    growthOf,
    nearestDay,
)
from storagegate.console.usagesampler import UsageSampler
from storagegate.storage.records import BucketUsage, StoreUsage

NOW_MS = 20_000 * DAY_MS

GB = 1_000_000_000


def sample(hoursAgo: float, used: int, objects: int = 0, size: int = 0) -> UsageSample:
    """Make a sample of some hours ago."""
    return UsageSample(NOW_MS - int(hoursAgo * HOUR_MS), objects, size, used)


def usageOf(**sizes: int) -> StoreUsage:
    """Make the usage of some buckets, each with one object."""
    rows = tuple(BucketUsage(name, 1, size, 0, 0) for name, size in sizes.items())
    return StoreUsage(rows, BucketUsage("", 0, 0, 0, 0), 0)


class ForecastTests(SynchronousTestCase):
    """When the disk will be full."""

    def test_mean(self) -> None:
        """It is the mean of at most 14 days, whatever was before."""
        samples = [sample(30 * 24, 0), sample(14 * 24, 100 * GB), sample(24, 150 * GB)]
        found = forecastDisk(samples, sample(0, 170 * GB), 50 * GB)
        assert found is not None
        self.assertEqual(found.windowMs, 14 * DAY_MS)
        self.assertEqual(found.bytesPerDay, 5 * GB)
        self.assertEqual(found.fullMs, 10 * DAY_MS)

    def test_short(self) -> None:
        """A history of less than a day says nothing."""
        self.assertIsNone(forecastDisk([], sample(0, 5), 5))
        self.assertIsNone(forecastDisk([sample(23.9, 1)], sample(0, 5), 5))
        self.assertIsNotNone(forecastDisk([sample(24, 1)], sample(0, 5), 5))

    def test_shrinks(self) -> None:
        """A disk whose use does not grow is never full."""
        for now in (5, 4):
            found = forecastDisk([sample(48, 5)], sample(0, now), 5)
            assert found is not None
            self.assertIsNone(found.fullMs)
            self.assertLessEqual(found.bytesPerDay, 0)


class GrowthTests(SynchronousTestCase):
    """The growth of a day."""

    def test_day(self) -> None:
        """It is since the sample nearest to 24 hours ago; without a near one it is unknown."""
        samples = [sample(26, 0, 1, 10), sample(24.4, 0, 2, 20), sample(20, 0, 9, 90)]
        self.assertEqual(nearestDay(samples, NOW_MS), samples[1])
        found = growthOf(samples, sample(0, 0, 12, 70), 1)
        assert found.day is not None
        self.assertEqual((found.day.objects, found.day.bytes), (10, 50))
        self.assertEqual(found.series.objects, [1, 2, 9, 12])
        self.assertIsNone(growthOf(samples[2:], sample(0, 0), 1).day)

    def test_buckets(self) -> None:
        """A new bucket has grown by its size, unless the sample had no place for all."""
        self.assertEqual(bucketGrowth({"a": 5, "b": 7}, {"a": 6}), {"a": -1, "b": 7})
        full = {f"bucket-{number}": 1 for number in range(1000)}
        self.assertEqual(bucketGrowth({"bucket-1": 5, "b": 7}, full), {"bucket-1": 4})


class InlinePool:
    """A pool whose threads are the caller's."""

    def run(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Call a function."""
        return maybeDeferred(function, *arguments)


class UsageHistoryTests(SynchronousTestCase):
    """L{UsageHistory} with a file."""

    def setUp(self) -> None:
        """Have a directory."""
        self.now = NOW_MS / 1000
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.histories = [self.open(), self.open()]

    def open(self) -> UsageHistory:
        """Open the history as a process does."""
        pool: Any = InlinePool()
        history = UsageHistory(self.directory, pool, lambda: self.now)
        self.addCleanup(lambda: self.successResultOf(Deferred.fromCoroutine(history.close())))
        return history

    def show(self, history: UsageHistory, used: int, **sizes: int) -> tuple[Growth, Any]:
        """Show the growth until now."""
        found: tuple[Growth, Any] = self.successResultOf(
            Deferred.fromCoroutine(history.show(usageOf(**sizes), Disk(1000 - used, 1000)))
        )
        return found

    def test_processes(self) -> None:
        """Two processes see the same samples: the first of an hour is kept."""
        for hour in range(26):
            self.now = NOW_MS / 1000 + hour * 3600
            self.show(self.histories[hour % 2], 10 * hour, a=hour, b=100)
            self.now += 60
            self.show(self.histories[1 - hour % 2], 10 * hour, a=500)
        found = [self.show(each, 260, a=50, c=3) for each in self.histories]
        self.assertEqual(found[0], found[1])
        growth, grown = found[0]
        assert growth.day is not None and growth.disk is not None
        # Of the sample at hour 1: 1 and 100 bytes.
        self.assertEqual(growth.day.bytes, 53 - 101)
        self.assertEqual(grown, {"a": 49, "c": 3})
        self.assertEqual(growth.series.objects, [2] * 26 + [2])
        self.assertGreater(growth.disk.bytesPerDay, 200)

    def test_bounded(self) -> None:
        """It keeps 720 samples, of which 26 have the sizes of buckets; later ones are ignored."""
        history = self.histories[0]
        for hour in range(800):
            self.now = NOW_MS / 1000 + hour * 3600
            self.show(history, 1, a=1)
        count = "SELECT count(*), count(buckets) FROM consoleUsage"
        [row] = history._file.perform(lambda: history._file.execute(count).fetchall(), False)
        self.assertEqual(row, (720, 26))
        # A clock that was wrong by years has been set.
        self.now -= 20 * 24 * 3600
        growth, _ = self.show(history, 1, a=1)
        self.assertEqual(len(growth.series.atMs), 7 * 24 + 1)

    def test_clockAhead(self) -> None:
        """Samples of a clock that was ahead for months displace no samples of the present."""
        history = self.histories[0]
        for hour in (*range(9000, 9800), *range(30)):
            self.now = NOW_MS / 1000 + hour * 3600
            growth, grown = self.show(history, hour, a=hour)
        assert growth.day is not None
        self.assertEqual((len(growth.series.atMs), growth.day.bytes), (30, 24))
        self.assertEqual(grown, {"a": 24})
        # Nor does a clock that is behind.
        self.now = NOW_MS / 1000 - 9000 * 3600
        self.show(history, 1, a=1)
        self.now = NOW_MS / 1000 + 30 * 3600
        growth, grown = self.show(history, 30, a=30)
        self.assertEqual((len(growth.series.atMs), grown), (31, {"a": 24}))

    def test_unusable(self) -> None:
        """A file that is no database is reported."""
        with open(os.path.join(self.directory, "usage.sqlite"), "wb") as file:
            file.write(b"no database, but text of some length" * 100)
        shown = self.histories[0].show(usageOf(a=1), Disk(1, 2))
        self.failureResultOf(Deferred.fromCoroutine(shown), UsageUnusable)


class RecordedHistory:
    """A history that counts."""

    def __init__(self) -> None:
        self.recorded: list[Any] = []
        self.closed = 0

    async def record(self, catalog: Any) -> None:
        """Note the sample."""
        self.recorded.append(catalog)
        if len(self.recorded) == 2:
            raise UsageUnusable("the disk is full")

    async def close(self) -> None:
        """Note the end."""
        self.closed += 1


class UsageSamplerTests(SynchronousTestCase):
    """L{UsageSampler}."""

    def test_hours(self) -> None:
        """It takes a sample just after each full hour, also after a fault, until it is stopped."""
        clock = Clock()
        history: Any = RecordedHistory()
        store: Any = type("Store", (), {"catalog": "the catalog"})
        sampler = UsageSampler(store, lambda: history, clock, lambda: clock.seconds() + 1800)
        sampler.start()
        clock.advance(1800)
        self.assertEqual(history.recorded, [])
        for count in (1, 2, 3):
            clock.advance(1.5)
            self.assertEqual(history.recorded, ["the catalog"] * count)
            self.assertEqual(history.closed, count)
            clock.advance(3598.5)
        self.successResultOf(Deferred.fromCoroutine(sampler.stop()))
        clock.advance(4000)
        self.assertEqual(len(history.recorded), 3)
        self.assertEqual(clock.getDelayedCalls(), [])
