"""
The state of the daemon in one document, and the metrics of the last hour.

Metrics begin with the first request to the console; before it, they take no memory. With several
workers they cover all of them, see L{MetricsHistory}.
"""

import os
import time
from collections.abc import Mapping
from heapq import nlargest
from typing import Any

import msgspec
from msgspec import Struct
from twisted.logger import Logger

from storagegate.console.buckets import MOST_COUNTED_EACH
from storagegate.console.call import ConsoleCall
from storagegate.console.history import NO_REQUESTS, STEP_SECONDS, WireFigures
from storagegate.console.requesttap import RequestEvent
from storagegate.console.services import ConsoleServices
from storagegate.console.usagehistory import (
    USAGE_LIMIT,
    Disk,
    Growth,
    UsageUnusable,
    readDisk,
    totalsOf,
    usageHistory,
)
from storagegate.storage.commandresults import readResult
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import StoreUsage
from storagegate.version import __version__

_log = Logger()

_NO_WIRE = "admin"
"""The listener whose requests are not counted: the console's own."""


_TOP_BUCKETS = 6
"""The largest buckets that the overview lists."""


class StoreView(Struct):
    """
    The contents of the store.

    @ivar kind: C{embedded} or C{cluster}.
    @ivar objects: All versions of the objects.
    @ivar bytes: Their total size.
    @ivar uploads: Uploads in progress.
    @ivar uploadBytes: The size of their parts.
    @ivar readOnly: The reason why the store accepts no writes; L{None} if it accepts them.
    @ivar damaged: The number of objects and blobs that are known to be damaged.
    @ivar backupMs: The end of the last complete backup; 0 for none, or of a cluster.
    """

    kind: str
    objects: int
    bytes: int
    buckets: int
    uploads: int
    uploadBytes: int
    damaged: int
    backupMs: int
    readOnly: str | None = None


class TopBucket(Struct):
    """
    One of the largest buckets.

    @ivar objects: The number of all versions, without delete markers; C{older} are not current.
    @ivar older: The number of older versions; C{null} if they are too many to count for a request.
    @ivar bytes: The size of all versions of its objects.
    @ivar growth: Bytes that it has grown by in 24 hours; C{null} if the history is too short.
    """

    name: str
    objects: int
    older: int | None
    bytes: int
    growth: int | None


class HealthView(Struct):
    """
    The health of the daemon.

    @ivar status: C{ok}, C{unavailable} or C{draining}.
    @ivar error: The reason for a status other than C{ok}.
    @ivar parts: By component and listener: C{ok}, C{listening}, or the problem.
    @ivar warnings: Warnings for the operator, by name.
    """

    status: str
    error: str | None
    parts: dict[str, str]
    warnings: dict[str, str]


class Overview(HealthView):
    """
    The state of the daemon.

    @ivar startedMs: The start of its first process.
    @ivar workers: The number of serving processes; 1 without workers.
    @ivar wires: The requests of the last minute, by wire.
    @ivar growth: The growth of the store; C{null} for a cluster, whose nodes keep no history.
    @ivar top: The largest buckets.
    @ivar listeners: The addresses of the open listeners.
    @ivar refusals: The last refused request of each kind, newest first, since the first request to
        the console; each worker has its own.
    """

    version: str
    startedMs: int
    workers: int
    disk: Disk
    store: StoreView
    wires: dict[str, WireFigures]
    growth: Growth | None
    top: list[TopBucket]
    listeners: dict[str, str]
    refusals: list[RequestEvent]


class HistoryQuery(Struct, forbid_unknown_fields=True):
    """Length of the history, in seconds."""

    seconds: int = 3600


class History(Struct):
    """
    Metrics in steps.

    @ivar stepMs: The length of a step.
    @ivar endMs: The end of the last step.
    @ivar series: By name, all of the same length; L{None} for unknown values.
    """

    stepMs: int
    endMs: int
    series: dict[str, list[float | None]]


async def showOverview(call: ConsoleCall) -> Overview:
    """Describe the state of the daemon."""
    services = call.services
    catalog = services.store.catalog
    usage = await catalog.usage(USAGE_LIMIT)
    disk: Any = await services.store.pool.run(readDisk, services.daemon.dataDirectory)
    health = showHealth(services)
    growth, grown = await _growth(services, usage, disk)
    return Overview(
        **msgspec.structs.asdict(health),
        version=__version__,
        startedMs=_startedMs(os.getpid() if services.link is None else os.getppid()),
        workers=1 if services.link is None else services.link.count,
        disk=disk,
        store=await _store(services, usage),
        wires={
            **dict.fromkeys(_wires(services), NO_REQUESTS),
            **services.monitor.history.wires(),
        },
        growth=growth,
        top=await _top(catalog, usage, grown),
        listeners=dict(services.daemon.listeners()),
        refusals=await services.monitor.refusals(),
    )


async def _top(catalog: ICatalog, usage: StoreUsage, grown: Mapping[str, int]) -> list[TopBucket]:
    """Describe the largest buckets."""
    found = []
    for each in nlargest(_TOP_BUCKETS, usage.buckets, key=lambda each: each.bytes):
        older = await catalog.olderVersions(each.bucket, MOST_COUNTED_EACH)
        count = None if older is None else older.count
        growth = grown.get(each.bucket)
        found.append(TopBucket(each.bucket, each.objects, count, each.bytes, growth))
    return found


async def _store(services: ConsoleServices, usage: StoreUsage) -> StoreView:
    """Describe the contents of the store."""
    # Few requests to the console are for maintenance.
    from storagegate.console.maintenance import countDamaged

    isRemote = services.store.catalog.isRemote
    backup = None if isRemote else readResult(services.daemon.dataDirectory, "backup")
    objects, size = totalsOf(usage)
    rows = (*usage.buckets, usage.others)
    return StoreView(
        kind="cluster" if isRemote else "embedded",
        objects=objects,
        bytes=size,
        buckets=len(usage.buckets),
        uploads=sum(each.uploads for each in rows),
        uploadBytes=sum(each.uploadBytes for each in rows),
        damaged=await countDamaged(services),
        backupMs=0 if backup is None or backup.error or backup.problems else backup.endedMs,
        readOnly=services.store.readOnly,
    )


async def _growth(
    services: ConsoleServices, usage: StoreUsage, disk: Disk
) -> tuple[Growth | None, Mapping[str, int]]:
    """Return the growth of the store, and of buckets, as far as the history knows it."""
    history = usageHistory(services)
    if history is None:
        return None, {}
    try:
        return await history.show(usage, disk)
    except UsageUnusable as error:
        # A full disk must not hide what fills it.
        _log.warn("the console has no history of the usage: {error}", error=str(error))
        return None, {}


async def showHistory(call: ConsoleCall, query: HistoryQuery) -> History:
    """Return the metrics of the last hour, or of a shorter time."""
    history = call.services.monitor.history
    return History(
        STEP_SECONDS * 1000, history.last * STEP_SECONDS * 1000, history.series(query.seconds)
    )


def showHealth(services: ConsoleServices) -> HealthView:
    """Describe the health of the daemon."""
    found = services.daemon.readiness()
    parts = {name: wrong or "ok" for name, wrong in found.parts.items()}
    listeners = {name: wrong or "listening" for name, wrong in found.listeners.items()}
    warnings = {name: text for name, text in found.warnings.items() if text}
    return HealthView(found.status, found.error, {**parts, **listeners}, warnings)


def _wires(services: ConsoleServices) -> list[str]:
    return [name for name in services.daemon.listeners() if name != _NO_WIRE]


def _startedMs(pid: int) -> int:
    """Return when a process started, in milliseconds since the epoch."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, may contain spaces; field 22 follows it, see proc(5).
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return int((booted + ticks / os.sysconf("SC_CLK_TCK")) * 1000)
