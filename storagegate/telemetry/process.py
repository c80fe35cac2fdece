"""
What is told of the process itself and of its listeners.

The names that begin with C{process_} are those that every client library of Prometheus uses.
"""

import gc
import os
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from storagegate import __version__
from storagegate.telemetry.metrics import (
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugeFamily,
    gaugesFamily,
)

LAG_SECONDS = 0.5
"""How often the reactor is asked how late it is: twice a second it costs nothing."""

LAG_WINDOW = 30.0
"""Of how long the worst is told: of two scrapes each of which comes in a quarter of a minute."""

UNWATCHED_SECONDS = 120.0
"""After this without a scrape nothing is measured any more: an idle daemon sleeps."""

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class ConnectionCounts(Protocol):
    """
    What a site tells.

    @ivar connections: How many there are.
    @ivar requests: How many are being answered.
    """

    @property
    def connections(self) -> int: ...

    @property
    def requests(self) -> int: ...


def watchSites(meters: MetricsRegistry, sites: Mapping[str, ConnectionCounts]) -> None:
    """
    Have the connections of listeners told.

    @param sites: By name; it may change.
    """

    def collect() -> Iterable[MetricFamily]:
        yield gaugesFamily(
            "storagegate_http_connections",
            "Connections of the S3 and the admin listener.",
            ("listener",),
            [((name,), site.connections) for name, site in sites.items()],
        )
        yield gaugesFamily(
            "storagegate_http_requests_in_flight",
            "Requests of these listeners that are being answered.",
            ("listener",),
            [((name,), site.requests) for name, site in sites.items()],
        )

    meters.watch(collect)


def watchProcess(meters: MetricsRegistry, clock: IReactorTime) -> None:
    """Have memory, processor time, descriptors, the collector and the reactor's lag told."""
    lag = ReactorLag(clock)
    started = time.time()

    def collect() -> Iterable[MetricFamily]:
        yield from _process(started)
        name, help = "storagegate_reactor_lag_seconds", "How late the reactor was, at worst lately."
        yield gaugeFamily(name, help, lag.worst(), "max")
        yield counterFamily(
            "storagegate_gc_collections_total",
            "Runs of Python's garbage collector.",
            ("generation",),
            [
                ((str(number),), figures["collections"])
                for number, figures in enumerate(gc.get_stats())
            ],
        )
        yield gaugesFamily(
            "storagegate_build_info",
            "1, for the version.",
            ("version",),
            [((__version__,), 1)],
            "max",
        )

    meters.watch(collect)


def _process(started: float) -> Iterable[MetricFamily]:
    times = os.times()
    name, help = "process_cpu_seconds_total", "Processor time, the system's included."
    yield counterFamily(name, help, (), [((), times.user + times.system)])
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    yield gaugeFamily("process_resident_memory_bytes", "Memory in use.", pages * _PAGE_SIZE)
    # One of them is the listing's own.
    count = len(os.listdir("/proc/self/fd")) - 1
    yield gaugeFamily("process_open_fds", "Open descriptors.", count)
    yield gaugeFamily("process_start_time_seconds", "When it began, since 1970.", started, "max")


class ReactorLag:
    """
    How late the reactor calls what is due: whatever blocks it, blocks everybody.

    It is measured while somebody looks, and a little longer.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._isRunning = False
        self._lookedAt = 0.0
        # The worst of this half of the window, and of the one before.
        self._worst, self._before = 0.0, 0.0
        self._halfEnds = 0.0

    def worst(self) -> float:
        """Give the longest delay of the last half minute, in seconds; at first it is 0."""
        self._lookedAt = self._clock.seconds()
        if not self._isRunning:
            self._isRunning = True
            self._worst = self._before = 0.0
            self._halfEnds = self._lookedAt + LAG_WINDOW / 2
            self._ask()
        return max(self._worst, self._before)

    def _ask(self) -> None:
        due = self._clock.seconds() + LAG_SECONDS
        self._clock.callLater(LAG_SECONDS, self._called, due)

    def _called(self, due: float) -> None:
        now = self._clock.seconds()
        if now >= self._halfEnds:
            self._before, self._worst = self._worst, 0.0
            self._halfEnds = now + LAG_WINDOW / 2
        self._worst = max(self._worst, now - due)
        if now - self._lookedAt >= UNWATCHED_SECONDS:
            self._isRunning = False
        else:
            self._ask()
