"""
The state of the daemon in one document, and the figures of the last hour.

The figures begin with the first request to the console: before that nothing of it is in memory.
With workers they are those of all of them, by L{MetricsHistory}.
"""

import os
import time
from typing import Any

import msgspec
from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.console.history import NO_REQUESTS, STEP_SECONDS, WireFigures
from storagegate.console.services import ConsoleServices
from storagegate.version import __version__

_NO_WIRE = "admin"
"""The listener whose requests are not counted: those of the console itself."""


class Disk(Struct):
    """
    The disk of the data directory.

    @ivar free: Bytes that the daemon may still write.
    """

    free: int
    total: int


class StoreView(Struct):
    """
    What the store holds.

    @ivar bytes: Of the objects.
    @ivar readOnly: Why it accepts no writes; L{None} if it does.
    """

    objects: int
    bytes: int
    buckets: int
    readOnly: str | None = None


class HealthView(Struct):
    """
    Whether requests are served.

    @ivar status: C{ok}, C{unavailable} or C{draining}.
    @ivar error: Why it is not C{ok}.
    @ivar parts: C{ok}, C{listening}, or the problem, of each part and listener.
    @ivar warnings: What an operator should look at, by name.
    """

    status: str
    error: str | None
    parts: dict[str, str]
    warnings: dict[str, str]


class Overview(HealthView):
    """
    The state of the daemon.

    @ivar startedMs: When its first process began.
    @ivar workers: How many processes serve; 1 without workers.
    @ivar wires: The requests of the last minute, by wire.
    """

    version: str
    startedMs: int
    workers: int
    disk: Disk
    store: StoreView
    wires: dict[str, WireFigures]


class HistoryQuery(Struct, forbid_unknown_fields=True):
    """Of how many seconds the figures are."""

    seconds: int = 3600


class History(Struct):
    """
    Figures in steps.

    @ivar stepMs: The length of a step.
    @ivar endMs: The end of the last one.
    @ivar series: By name, of the same length; L{None} where nothing is known.
    """

    stepMs: int
    endMs: int
    series: dict[str, list[float | None]]


async def showOverview(call: ConsoleCall) -> Overview:
    """Describe the state of the daemon."""
    services = call.services
    catalog = services.store.catalog
    usage = await catalog.usage(_MOST_BUCKETS)
    disk: Any = await services.store.pool.run(_disk, services.daemon.dataDirectory)
    health = showHealth(services)
    rows = (*usage.buckets, usage.others)
    return Overview(
        **msgspec.structs.asdict(health),
        version=__version__,
        startedMs=_startedMs(os.getpid() if services.link is None else os.getppid()),
        workers=1 if services.link is None else services.link.count,
        disk=disk,
        store=StoreView(
            sum(each.objects for each in rows),
            sum(each.bytes for each in rows),
            len(usage.buckets),
            services.store.readOnly,
        ),
        wires={
            **dict.fromkeys(_wires(services), NO_REQUESTS),
            **services.monitor.history.wires(),
        },
    )


_MOST_BUCKETS = 10_000


async def showHistory(call: ConsoleCall, query: HistoryQuery) -> History:
    """Return the figures of the last hour, or of less of it."""
    history = call.services.monitor.history
    return History(
        STEP_SECONDS * 1000, history.last * STEP_SECONDS * 1000, history.series(query.seconds)
    )


def showHealth(services: ConsoleServices) -> HealthView:
    """Describe whether requests are served."""
    found = services.daemon.readiness()
    parts = {name: wrong or "ok" for name, wrong in found.parts.items()}
    listeners = {name: wrong or "listening" for name, wrong in found.listeners.items()}
    warnings = {name: text for name, text in found.warnings.items() if text}
    return HealthView(found.status, found.error, {**parts, **listeners}, warnings)


def _wires(services: ConsoleServices) -> list[str]:
    return [name for name in services.daemon.listeners() if name != _NO_WIRE]


def _disk(directory: str) -> Disk:
    """Return the state of the disk. Blocks."""
    found = os.statvfs(directory)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def _startedMs(pid: int) -> int:
    """Return when a process began, in milliseconds since the epoch."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, may have spaces; field 22 follows it, see proc(5).
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return int((booted + ticks / os.sysconf("SC_CLK_TCK")) * 1000)
