"""
The growth of the store: one sample of its usage each hour, for 30 days.

The samples are in C{usage.sqlite} of the data directory, which all workers share, so every worker
shows the same growth. The nodes of a cluster have data directories of their own and would disagree,
so a cluster has no samples. The daemon takes a sample at each full hour, and the console takes the
sample of an hour that has none when it shows the overview.

A sample has the sizes of the largest buckets for a day only: at most 1 MB in all.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from twisted.logger import Logger

from storagegate.storage.errors import StoreError
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import StoreUsage
from storagegate.storage.sqlite import FileKind, SQLiteFile
from storagegate.storage.threadpool import IWorkPool, SequentialPool

if TYPE_CHECKING:
    from storagegate.console.services import ConsoleServices

_log = Logger()

HOUR_MS = 3600_000

DAY_MS = 24 * HOUR_MS

_MOST_SAMPLES = 720
"""Samples that are kept: 30 days."""

_DAY_SAMPLES = 26
"""Samples that keep the sizes of buckets: those of a day, and of the hours around its start."""

_MOST_BUCKETS = 1000
"""Buckets in a sample, largest first."""

USAGE_LIMIT = 10_000
"""Buckets whose usage is read individually."""

_DAY_TOLERANCE_MS = 90 * 60_000
"""How far from 24 hours ago a sample for the growth of a day may be."""

_FORECAST_MS = 14 * DAY_MS
"""The longest window of a forecast; a shorter history is used from its first sample on."""

_SHORTEST_FORECAST_MS = DAY_MS
"""The shortest history for a forecast: load follows the hours of a day."""

_SERIES_MS = 7 * DAY_MS
"""The length of the series for charts."""

_BUSY_MS = 2000


class UsageUnusable(StoreError):
    """The file of samples is unusable."""


_KIND = FileKind(
    keeps="usage samples",
    migrations=(
        (
            """
            CREATE TABLE consoleUsage (
                hour INTEGER PRIMARY KEY NOT NULL,
                atMs INTEGER NOT NULL,
                objects INTEGER NOT NULL,
                bytes INTEGER NOT NULL,
                diskUsed INTEGER NOT NULL,
                buckets BLOB
            )
            """,
        ),
    ),
    mark="consoleUsage",
    synchronous="NORMAL",
    error=UsageUnusable,
)


class UsageSample(Struct, frozen=True):
    """
    The usage at a time.

    @ivar diskUsed: Bytes of the disk of the data directory that are not available.
    """

    atMs: int
    objects: int
    bytes: int
    diskUsed: int


class Disk(Struct, frozen=True):
    """
    The disk of the data directory.

    @ivar free: Bytes available to the daemon.
    """

    free: int
    total: int


class UsageSeries(Struct):
    """
    Samples of the last week, oldest first; the last one is of now.

    @ivar atMs: The times of the samples.
    """

    atMs: list[int]
    objects: list[int]
    bytes: list[int]


class DayGrowth(Struct):
    """The growth in the last 24 hours."""

    objects: int
    bytes: int


class DiskForecast(Struct):
    """
    When the disk will be full if it keeps filling at the same rate.

    @ivar bytesPerDay: The mean growth of its use, over the window.
    @ivar windowMs: The length of the window.
    @ivar fullMs: The time until it is full; C{null} if it is not filling.
    """

    bytesPerDay: int
    windowMs: int
    fullMs: int | None


class Growth(Struct):
    """
    The growth of the store.

    @ivar series: Samples of the last week.
    @ivar day: C{null} without a sample of 24 hours ago.
    @ivar disk: C{null} without a sample that is a day old.
    """

    series: UsageSeries
    day: DayGrowth | None
    disk: DiskForecast | None


def readDisk(directory: str) -> Disk:
    """Return the state of the disk of a directory. Blocks."""
    found = os.statvfs(directory)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def bucketSizes(usage: StoreUsage) -> dict[str, int]:
    """Return the bytes of the largest buckets."""
    largest = nlargest(_MOST_BUCKETS, usage.buckets, key=lambda each: each.bytes)
    return {each.bucket: each.bytes for each in largest}


def totalsOf(usage: StoreUsage) -> tuple[int, int]:
    """Return the objects and bytes of all buckets."""
    rows = (*usage.buckets, usage.others)
    return sum(each.objects for each in rows), sum(each.bytes for each in rows)


def nearestDay(samples: Sequence[UsageSample], nowMs: int) -> UsageSample | None:
    """Return the sample that is nearest to 24 hours ago; L{None} if none is near."""
    wanted = nowMs - DAY_MS
    near = [each for each in samples if abs(each.atMs - wanted) <= _DAY_TOLERANCE_MS]
    return min(near, key=lambda each: abs(each.atMs - wanted), default=None)


def forecastDisk(
    samples: Sequence[UsageSample], now: UsageSample, free: int
) -> DiskForecast | None:
    """
    Compute when the disk will be full.

    @param samples: Oldest first.
    @param free: Bytes available.
    @return: L{None} if the history is too short.
    """
    window = [each for each in samples if now.atMs - each.atMs <= _FORECAST_MS]
    if not window or now.atMs - window[0].atMs < _SHORTEST_FORECAST_MS:
        return None
    windowMs = now.atMs - window[0].atMs
    grown = now.diskUsed - window[0].diskUsed
    return DiskForecast(
        grown * DAY_MS // windowMs, windowMs, free * windowMs // grown if grown > 0 else None
    )


def bucketGrowth(sizes: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """
    Return by how many bytes buckets have grown.

    @param sizes: Bytes by bucket now.
    @param before: Bytes by bucket then, of the largest ones: of another bucket the growth is
        unknown.
    """
    isWhole = len(before) < _MOST_BUCKETS
    return {
        name: size - before.get(name, 0)
        for name, size in sizes.items()
        if isWhole or name in before
    }


def growthOf(samples: Sequence[UsageSample], now: UsageSample, free: int) -> Growth:
    """
    Compute the growth from samples.

    @param samples: Oldest first, before C{now}.
    @param free: Bytes available on the disk.
    """
    series = [*(each for each in samples if now.atMs - each.atMs <= _SERIES_MS), now]
    before = nearestDay(samples, now.atMs)
    day = None
    if before is not None:
        day = DayGrowth(now.objects - before.objects, now.bytes - before.bytes)
    return Growth(
        UsageSeries(
            [each.atMs for each in series],
            [each.objects for each in series],
            [each.bytes for each in series],
        ),
        day,
        forecastDisk(samples, now, free),
    )


def usageHistory(services: "ConsoleServices") -> "UsageHistory | None":
    """Return the history of the data directory; L{None} for a cluster, which has none."""
    if services.store.catalog.isRemote:
        return None
    directory, pool, now = services.daemon.dataDirectory, services.store.pool, services.now
    found: UsageHistory = services.keep("usage", lambda: UsageHistory(directory, pool, now))
    return found


class UsageHistory:
    """
    The samples of a data directory. Must run in the reactor thread; the file is used in threads.
    """

    def __init__(self, directory: str, pool: IWorkPool, now: Callable[[], float]) -> None:
        """
        @param directory: The data directory.
        @param pool: Runs blocking calls.
        @param now: Returns seconds since the epoch.
        """
        self._directory = directory
        self._file = SQLiteFile(os.path.join(directory, "usage.sqlite"), _KIND, _BUSY_MS)
        self._pool = pool
        self._now = now
        self._filePool = SequentialPool(pool)

    async def show(self, usage: StoreUsage, disk: Disk) -> tuple[Growth, dict[str, int]]:
        """
        Return the growth until now, and store the sample of this hour if there is none.

        @param usage: The usage now.
        @param disk: The disk now.
        @return: The growth, and the bytes by which buckets have grown in 24 hours.
        @raise UsageUnusable: The file cannot be used.
        """
        now, sizes = self._sample(usage, disk), bucketSizes(usage)
        found: Any = await self._filePool.run(self._show, now, disk, sizes)
        growth, grown = found
        return growth, grown

    async def grown(self, usage: StoreUsage) -> Mapping[str, int]:
        """
        Return the bytes by which buckets have grown in 24 hours; a bucket is absent if the history
        is too short or unusable.

        @param usage: The usage now.
        """
        nowMs, sizes = int(self._now() * 1000), bucketSizes(usage)

        def read() -> dict[str, int]:
            _, before = self._file.perform(lambda: self._read(nowMs), False)
            return {} if before is None else bucketGrowth(sizes, before)

        try:
            found: Any = await self._filePool.run(read)
        except UsageUnusable as error:
            # The list of buckets must not depend on the history.
            _log.warn("the growth of buckets is unknown: {error}", error=str(error))
            return {}
        return dict(found)

    async def record(self, catalog: ICatalog) -> None:
        """
        Store the sample of this hour, if there is none.

        @raise StoreError: The catalog or the file cannot be used.
        """
        usage = await catalog.usage(USAGE_LIMIT)
        disk: Disk = await self._pool.run(readDisk, self._directory)
        now, sizes = self._sample(usage, disk), bucketSizes(usage)
        await self._filePool.run(self._store, now, sizes)

    async def close(self) -> None:
        """Close the file."""
        await self._filePool.run(self._file.close)

    def _sample(self, usage: StoreUsage, disk: Disk) -> UsageSample:
        return UsageSample(int(self._now() * 1000), *totalsOf(usage), disk.total - disk.free)

    def _show(
        self, now: UsageSample, disk: Disk, sizes: Mapping[str, int]
    ) -> tuple[Growth, dict[str, int]]:
        """Read the samples and compute the growth. Blocks."""
        samples, before = self._file.perform(lambda: self._read(now.atMs), False)
        if not samples or samples[-1].atMs // HOUR_MS < now.atMs // HOUR_MS:
            self._store(now, sizes)
        grown = {} if before is None else bucketGrowth(sizes, before)
        return growthOf(samples, now, disk.free), grown

    def _read(self, nowMs: int) -> tuple[list[UsageSample], dict[str, int] | None]:
        """Read the samples before a time; a clock that was wrong may have left later ones."""
        rows = self._file.execute(
            "SELECT atMs, objects, bytes, diskUsed FROM consoleUsage WHERE atMs < ? ORDER BY hour",
            nowMs,
        ).fetchall()
        samples = [UsageSample(*row) for row in rows]
        before = nearestDay(samples, nowMs)
        if before is None:
            return samples, None
        select = "SELECT buckets FROM consoleUsage WHERE atMs = ?"
        [(document,)] = self._file.execute(select, before.atMs).fetchall()
        if document is None:
            return samples, None
        return samples, msgspec.msgpack.decode(document, type=dict[str, int])

    def _store(self, sample: UsageSample, sizes: Mapping[str, int]) -> None:
        """Store a sample, unless another process has stored the one of its hour. Blocks."""
        document = msgspec.msgpack.encode(sizes)

        def act() -> None:
            execute = self._file.execute
            execute(
                "INSERT OR IGNORE INTO consoleUsage VALUES (?, ?, ?, ?, ?, ?)",
                sample.atMs // HOUR_MS,
                sample.atMs,
                sample.objects,
                sample.bytes,
                sample.diskUsed,
                document,
            )
            # A clock that was ahead, or is behind now, displaces no samples of the right time.
            newest = "SELECT hour FROM consoleUsage WHERE hour <= ?1 ORDER BY hour DESC LIMIT ?2"
            hour = sample.atMs // HOUR_MS
            older = f"hour <= ?1 AND hour NOT IN ({newest})"
            execute(f"DELETE FROM consoleUsage WHERE {older}", hour, _MOST_SAMPLES)
            execute(
                f"UPDATE consoleUsage SET buckets = NULL WHERE buckets IS NOT NULL AND {older}",
                hour,
                _DAY_SAMPLES,
            )

        self._file.perform(act, True)
