"""The metrics of a store: the state of its components, and the latency of commits and fsyncs."""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.storage.files import Files
from storagegate.storage.records import StoreUsage
from storagegate.telemetry.metrics import (
    MAX_LABEL_SETS,
    OTHER,
    Histogram,
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugeFamily,
    gaugesFamily,
)

_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Mutations in a commit, up to the limit of a batch."""

_SYNC_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)
"""Histogram bounds, from the latency of a fast device to the latency of a broken one."""


class MeteredFiles(Files):
    """The operating system's calls, with fsyncs timed."""

    def __init__(self, meters: MetricsRegistry) -> None:
        self._file = _Timings()
        self._directory = _Timings()
        meters.watch(self._collect)

    def sync(self, fd: int) -> None:
        """Make a file's bytes and size durable."""
        self._file.time(super().sync, fd)

    def syncDirectory(self, fd: int) -> None:
        """Make a directory's entries durable."""
        self._directory.time(super().syncDirectory, fd)

    def _collect(self) -> Iterable[MetricFamily]:
        samples = [(("file",), self._file.values()), (("directory",), self._directory.values())]
        yield MetricFamily(
            "storagegate_store_fsync_seconds",
            "Duration of fsyncs of blobs and their directories, without commits.",
            "histogram",
            ("kind",),
            _SYNC_SECONDS,
            "sum",
            samples,
        )


class _Timings:
    """A histogram that threads add to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: list[Any] = [0] * (len(_SYNC_SECONDS) + 1) + [0.0]

    def time(self, function: Callable[[int], None], fd: int) -> None:
        """Time a function call, even if it raises. Any thread."""
        began = time.perf_counter()
        try:
            function(fd)
        finally:
            seconds = time.perf_counter() - began
            with self._lock:
                self._values[bisect_left(_SYNC_SECONDS, seconds)] += 1
                self._values[-1] += seconds

    def values(self) -> list[Any]:
        """Return the counts and the sum. Any thread."""
        with self._lock:
            return list(self._values)


_BUCKETS = MAX_LABEL_SETS - 1
"""Buckets with their own samples; newer buckets share one."""


class _UsageReader:
    """
    Reads the usage of the buckets at each scrape.

    The embedded catalog returns it immediately; a catalog on a network returns it for the next
    scrape.
    """

    def __init__(self, catalog: Any, byBucket: bool) -> None:
        """
        @param catalog: An L{ICatalog<storagegate.storage.interfaces.ICatalog>}.
        @param byBucket: Whether samples name buckets.
        """
        self._catalog = catalog
        self._byBucket = byBucket
        self._usage: StoreUsage | None = None
        self._isReading = False

    def families(self) -> Iterable[MetricFamily]:
        """Start a read, and yield the metric families of the last completed read."""
        if not self._isReading:
            self._isReading = True
            reading = Deferred.fromCoroutine(self._catalog.usage(_BUCKETS))
            # A failed or closed catalog has no new figures; the readiness check reports it.
            reading.addCallbacks(self._took, lambda failure: None).addBoth(self._ended)
        usage = self._usage
        if usage is None:
            return
        for name, help in (
            ("objects", "Objects in a bucket, or in all buckets."),
            ("bytes", "Bytes in these objects."),
            ("uploads", "Multipart uploads in progress."),
            ("uploadBytes", "Bytes in the parts of these uploads."),
        ):
            word = name.replace("uploadBytes", "upload_bytes")
            metric = f"storagegate_bucket_{word}"
            if not self._byBucket:
                total = sum(getattr(each, name) for each in (*usage.buckets, usage.others))
                yield gaugeFamily(metric, help, total, "max")
                continue
            samples = {(each.bucket,): getattr(each, name) for each in usage.buckets}
            if len(usage.buckets) == _BUCKETS:
                # A bucket may be named like the aggregate.
                samples[(OTHER,)] = samples.get((OTHER,), 0) + getattr(usage.others, name)
            yield gaugesFamily(metric, help, ("bucket",), samples.items(), "max")
        yield gaugeFamily("storagegate_access_keys", "Issued access keys.", usage.accessKeys, "max")

    def _took(self, usage: StoreUsage) -> None:
        self._usage = usage

    def _ended(self, _: object) -> None:
        self._isReading = False


def watchStore(store: Any, meters: MetricsRegistry, directory: str, byBucket: bool = False) -> None:
    """
    Register the metrics of a store.

    @param store: The L{ObjectStore<storagegate.storage.store.ObjectStore>}.
    @param directory: Its data directory.
    @param meters: The registry that receives the metrics.
    @param byBucket: Whether usage is reported per bucket, which exposes bucket names in the
        metrics.
    """
    rows = meters.histogram(
        "storagegate_store_commit_mutations", "Mutations per transaction.", (), _ROWS
    )
    seconds = meters.histogram(
        "storagegate_store_commit_seconds",
        "Duration of transactions, with their fsync.",
        (),
        _SYNC_SECONDS,
    )
    store.catalog.measure(rows.observe, seconds.observe)
    wal = os.path.join(directory, "catalog.sqlite-wal")
    meters.watch(lambda: _families(store, wal, rows))
    meters.watch(_UsageReader(store.catalog, byBucket).families)


def _families(store: Any, wal: str, rows: Histogram) -> Iterable[MetricFamily]:
    """
    Yield the metric families of a store's state.

    Workers share one disk and one catalog, so figures that all of them see are not summed.
    """
    figures, scrubber = store.pool.figures(), store.scrubber
    for name, help, value, merge in (
        ("pool_threads", "Threads for disk operations.", figures.threads, "sum"),
        ("pool_waiting", "Pool jobs that wait for a thread.", figures.waiting, "sum"),
        (
            "pool_lag_seconds",
            "Waiting time of the oldest of these jobs.",
            figures.lagSeconds,
            "max",
        ),
        ("commit_waiting", "Mutations that wait for a commit.", store.catalog.waiting, "sum"),
        ("reclaim_backlog", "Blobs to remove.", store.reclaimBacklog, "sum"),
        ("read_only", "1 if the store refuses writes.", int(store.readOnly is not None), "max"),
        ("damaged", "Damaged objects and blobs.", store.damagedCount, "max"),
        ("wal_bytes", "Size of the catalog's log.", _sizeOf(wal), "max"),
    ):
        yield gaugeFamily(f"storagegate_store_{name}", help, value, merge)
    commits = sum(rows.values.get((), ())[:-1])
    for name, help, value in (
        ("commits", "Transactions of the catalog.", commits),
        ("scrubbed_bytes", "Bytes read by scrubbing.", scrubber.bytesRead),
        ("scrub_rounds", "Completed scrubbing rounds.", scrubber.rounds),
        (
            "unconfirmed_writes",
            "Writes that the blob server answered without confirming the bytes.",
            store.blobs.unconfirmedWrites,
        ),
        (
            "blob_rereads",
            "Reads of blobs that were repeated because the bytes were wrong.",
            store.blobs.rereads,
        ),
    ):
        yield counterFamily(f"storagegate_store_{name}_total", help, (), [((), value)])
    try:
        space = store.space()
    except OSError:
        # A disk that does not respond has no figures; the readiness check reports it.
        return
    if space is None:
        return
    free, total = space
    yield gaugesFamily(
        "storagegate_store_disk_bytes",
        "Free and total space of the file system with the data.",
        ("kind",),
        [(("free",), free), (("total",), total)],
        "max",
    )


def _sizeOf(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
