"""
The state of the daemon in one document, and the metrics of the last hour.

Metrics begin with the first request to the console; before it, they take no memory. With several
workers they cover all of them, see L{MetricsHistory}.
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
"""The listener whose requests are not counted: the console's own."""


class Disk(Struct):
    """
    The disk of the data directory.

    @ivar free: Bytes available to the daemon.
    """

    free: int
    total: int


class StoreView(Struct):
    """
    The contents of the store.

    @ivar bytes: Total size of the objects.
    @ivar readOnly: The reason why the store accepts no writes; L{None} if it accepts them.
    """

    objects: int
    bytes: int
    buckets: int
    readOnly: str | None = None


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
    """

    version: str
    startedMs: int
    workers: int
    disk: Disk
    store: StoreView
    wires: dict[str, WireFigures]


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


def _disk(directory: str) -> Disk:
    """Return the state of the disk. Blocks."""
    found = os.statvfs(directory)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def _startedMs(pid: int) -> int:
    """Return when a process started, in milliseconds since the epoch."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, may contain spaces; field 22 follows it, see proc(5).
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return int((booted + ticks / os.sysconf("SC_CLK_TCK")) * 1000)
