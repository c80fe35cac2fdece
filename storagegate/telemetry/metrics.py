"""
Metrics: counters, gauges and histograms with a bounded set of labels, and metrics of the process
itself and its listeners.

A meter is a dictionary that is updated in the reactor thread; an update takes 0.1 microseconds. A
snapshot is a list of plain values that can be sent to another process and merged with its snapshot;
L{storagegate.telemetry.prometheus} formats it.

Names follow U{https://prometheus.io/docs/practices/naming/}: base units, C{_total} for counters.
The C{process_} metrics are the same in every Prometheus client library.
"""

import gc
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.heldbytes import PROCESS_BUDGET
from storagegate.version import __version__

MAX_LABEL_SETS = 500
"""Maximum number of label sets of a meter. Every label has few values by design; a bug, or clients
that invent names, must not exhaust memory."""

OTHER = "other"
"""The value of every label once a meter is full."""

DURATION_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
"""Upper bounds in seconds, as OpenTelemetry advises for C{http.server.request.duration}
(U{https://opentelemetry.io/docs/specs/semconv/http/http-metrics/})."""

LAG_SECONDS = 0.5
"""The period of the lag measurement: twice a second costs too little to measure."""

LAG_WINDOW = 30.0
"""The window of the maximum lag: two scrapes at the usual 15 s."""

UNWATCHED_SECONDS = 120.0
"""The measurement stops after this time without a scrape, so that an idle daemon can sleep."""

Labels = tuple[str, ...]

_log = Logger()


class MetricFamily(Struct, frozen=True):
    """
    A snapshot of one meter; plain values only.

    @ivar help: Its description in one sentence.
    @ivar kind: C{counter}, C{gauge} or C{histogram}.
    @ivar labels: The names of the labels.
    @ivar buckets: Upper bounds of a histogram, otherwise empty.
    @ivar merge: How the values of several processes are combined: C{sum} or C{max}.
    @ivar samples: Pairs of label values and a number; for a histogram, the non-cumulative count of
        each bucket, the count above the last, and the sum of the values.
    """

    name: str
    help: str
    kind: str
    labels: Sequence[str]
    buckets: Sequence[float]
    merge: str
    samples: Sequence[tuple[Sequence[str], Any]]


class _Meter:
    """The values of a meter by its labels."""

    kind = ""
    __slots__ = ("buckets", "help", "labels", "maxSets", "merge", "name", "values")

    def __init__(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        merge: str = "sum",
        buckets: Sequence[float] = (),
    ) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self.merge = merge
        self.buckets = tuple(buckets)
        self.maxSets = MAX_LABEL_SETS
        self.values: dict[Labels, Any] = {}

    def _bounded(self, labels: Labels) -> Labels:
        """Return the given labels, or all L{OTHER} if the meter is full."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {labels}")
        return labels if len(self.values) < self.maxSets else (OTHER,) * len(labels)

    def family(self) -> MetricFamily:
        """Return a snapshot."""
        samples = [
            (labels, [*value] if self.buckets else value) for labels, value in self.values.items()
        ]
        return MetricFamily(
            self.name, self.help, self.kind, self.labels, self.buckets, self.merge, samples
        )


class _Sum(_Meter):
    """A meter with one number for each set of labels."""

    __slots__ = ()

    def add(self, amount: float = 1, labels: Labels = ()) -> None:
        """
        Add an amount.

        @param labels: The values of the labels, in the order of their names.
        """
        try:
            self.values[labels] += amount
        except KeyError:
            labels = self._bounded(labels)
            self.values[labels] = self.values.get(labels, 0) + amount


class Counter(_Sum):
    """A number that only grows."""

    kind = "counter"
    __slots__ = ()


class Gauge(_Sum):
    """A number that goes up and down: amounts may be negative."""

    kind = "gauge"
    __slots__ = ()

    def set(self, value: float, labels: Labels = ()) -> None:
        """Set the value."""
        if labels not in self.values:
            labels = self._bounded(labels)
        self.values[labels] = value


class Histogram(_Meter):
    """Counts of values by size, up to each of C{buckets} and above the last."""

    kind = "histogram"
    __slots__ = ()

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count a value."""
        self.observeAll((value,), labels)

    def observeAll(self, values: Sequence[float], labels: Labels = ()) -> None:
        """Count several values of the same labels."""
        counts = self.values.get(labels)
        if counts is None:
            labels = self._bounded(labels)
            counts = self.values.setdefault(labels, [0] * (len(self.buckets) + 1) + [0.0])
        for bucket in map(bisect_left, repeat(self.buckets), values):
            counts[bucket] += 1
        counts[-1] += sum(values)


M = TypeVar("M", bound=_Meter)

Collect = Callable[[], Iterable[MetricFamily]]


class MetricsRegistry:
    """The meters of one process."""

    def __init__(self) -> None:
        self._meters: dict[str, _Meter] = {}
        self._collects: list[Collect] = []

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """
        Return the counter of a name, creating it if absent.

        @param name: Ends with C{_total}.
        @raise ValueError: If another kind of meter has the name.
        """
        return self._get(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Sequence[str] = (), merge: str = "sum") -> Gauge:
        """
        Return the gauge of a name, creating it if absent.

        @param merge: C{sum} or C{max}: how the values of several processes are combined.
        @raise ValueError: If another kind of meter has the name.
        """
        return self._get(Gauge(name, help, labels, merge))

    def histogram(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> Histogram:
        """
        Return the histogram of a name, creating it if absent.

        @param buckets: Upper bounds, in ascending order.
        """
        return self._get(Histogram(name, help, labels, buckets=buckets))

    def watch(self, collect: Collect) -> None:
        """Call a function at each snapshot, for values kept elsewhere."""
        self._collects.append(collect)

    def snapshot(self) -> list[MetricFamily]:
        """Return the families of all meters, sorted by name."""
        families: list[MetricFamily] = []
        # This comes first, as some functions update meters.
        for collect in self._collects:
            try:
                families.extend(collect())
            except Exception:
                # The other families are still reported.
                _log.failure("a metric could not be read")
        families.extend([each.family() for each in self._meters.values()])
        # Several functions may return the same family.
        return mergeFamilies([families])

    def _get(self, meter: M) -> M:
        known = self._meters.setdefault(meter.name, meter)
        hasSameShape = (known.labels, known.buckets) == (meter.labels, meter.buckets)
        if type(known) is not type(meter) or not hasSameShape:
            raise ValueError(f"the meter {meter.name} already exists")
        return known


def gaugeFamily(name: str, help: str, value: float, merge: str = "sum") -> MetricFamily:
    """Make the family of one gauge without labels, for L{MetricsRegistry.watch}."""
    return MetricFamily(name, help, "gauge", (), (), merge, [((), value)])


def gaugesFamily(
    name: str,
    help: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Labels, float]],
    merge: str = "sum",
) -> MetricFamily:
    """Make the family of a gauge with labels, for L{MetricsRegistry.watch}."""
    return MetricFamily(name, help, "gauge", tuple(labels), (), merge, list(samples))


def counterFamily(
    name: str, help: str, labels: Sequence[str], samples: Iterable[tuple[Labels, float]]
) -> MetricFamily:
    """Make the family of a counter kept elsewhere, for L{MetricsRegistry.watch}."""
    return MetricFamily(name, help, "counter", tuple(labels), (), "sum", list(samples))


def asPlain(families: Iterable[MetricFamily]) -> list[dict[str, Any]]:
    """Convert a snapshot to values that JSON can represent."""
    return [asdict(family) for family in families]


def fromPlain(plain: Iterable[dict[str, Any]]) -> list[MetricFamily]:
    """Convert a result of L{asPlain} back to a snapshot."""
    return [MetricFamily(**each) for each in plain]


def mergeFamilies(snapshots: Iterable[Iterable[MetricFamily]]) -> list[MetricFamily]:
    """Merge the snapshots of several processes."""
    merged: dict[str, tuple[MetricFamily, dict[Labels, Any]]] = {}
    for snapshot in snapshots:
        for family in snapshot:
            _family, values = merged.setdefault(family.name, (family, {}))
            for names, value in family.samples:
                labels = tuple(names)
                values[labels] = (
                    _combined(family, values[labels], value) if labels in values else value
                )
    return [
        replace(family, samples=list(values.items()))
        for family, values in (merged[name] for name in sorted(merged))
    ]


def _combined(family: MetricFamily, one: Any, other: Any) -> Any:
    if family.kind == "histogram":
        return [a + b for a, b in zip(one, other, strict=True)]
    return max(one, other) if family.merge == "max" else one + other


# ---- The process and its listeners


class ConnectionCounts(Protocol):
    """
    The counts of a site.

    @ivar connections: Open connections.
    @ivar requests: Requests in flight.
    @ivar http2Errors: The number of errors of HTTP/2 clients by the name of their code.
    """

    @property
    def connections(self) -> int: ...

    @property
    def requests(self) -> int: ...

    @property
    def http2Errors(self) -> Mapping[str, int]: ...


def watchSites(meters: MetricsRegistry, sites: Mapping[str, ConnectionCounts]) -> None:
    """
    Add the connections and requests of listeners to the snapshots.

    @param sites: The sites by the names of their listeners; the mapping may change.
    """

    def collect() -> Iterable[MetricFamily]:
        connections = [((name,), site.connections) for name, site in sites.items()]
        name, help = "storagegate_http_connections", "Connections to the S3 and admin listeners."
        yield gaugesFamily(name, help, ("listener",), connections)
        requests = [((name,), site.requests) for name, site in sites.items()]
        name = "storagegate_http_requests_in_flight"
        help = "Requests in flight on these listeners."
        yield gaugesFamily(name, help, ("listener",), requests)
        errors = [
            ((listener, code), float(count))
            for listener, site in sites.items()
            for code, count in site.http2Errors.items()
        ]
        name = "storagegate_http2_errors_total"
        help = "Streams and connections of HTTP/2 that these listeners ended because of an error."
        yield counterFamily(name, help, ("listener", "code"), errors)

    meters.watch(collect)


def watchProcess(meters: MetricsRegistry, clock: IReactorTime) -> None:
    """Add memory, processor time, descriptors, GC runs and the reactor's lag to the snapshots."""
    lag = ReactorLag(clock)
    started = time.time()

    def collect() -> Iterable[MetricFamily]:
        times = os.times()
        name, help = "process_cpu_seconds_total", "CPU time, user and system."
        yield counterFamily(name, help, (), [((), times.user + times.system)])
        with open("/proc/self/statm", "rb") as file:
            size = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield gaugeFamily("process_resident_memory_bytes", "Memory in use.", size)
        # The listing itself opens one of them.
        count = len(os.listdir("/proc/self/fd")) - 1
        yield gaugeFamily("process_open_fds", "Open descriptors.", count)
        yield gaugeFamily(
            "process_start_time_seconds", "Start time of the process, since 1970.", started, "max"
        )
        name, help = "storagegate_reactor_lag_seconds", "Largest recent delay of the reactor."
        yield gaugeFamily(name, help, lag.worst(), "max")
        runs = [((str(at),), each["collections"]) for at, each in enumerate(gc.get_stats())]
        name, help = "storagegate_gc_collections_total", "Runs of Python's garbage collector."
        yield counterFamily(name, help, ("generation",), runs)
        name, help = (
            "storagegate_held_bytes",
            "Bytes held for incomplete requests, on all listeners.",
        )
        yield gaugeFamily(name, help, PROCESS_BUDGET.total)
        name, help = (
            "storagegate_held_refused_total",
            "Requests refused because the budget was used up.",
        )
        yield counterFamily(name, help, (), [((), PROCESS_BUDGET.refused)])
        name, version = "storagegate_build_info", [((__version__,), 1)]
        yield gaugesFamily(
            name, "Always 1; the label has the version.", ("version",), version, "max"
        )

    meters.watch(collect)


class ReactorLag:
    """
    The delay of the reactor's timers: a blocked reactor delays every request.

    The measurement runs from the first scrape until L{UNWATCHED_SECONDS} after the last one.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._isRunning = False
        self._scrapedAt = 0.0
        # The maximum of this half of the window, and of the previous one.
        self._worst, self._before = 0.0, 0.0
        self._halfEnds = 0.0

    def worst(self) -> float:
        """Return the longest delay of the last half minute, in seconds; 0 at the first call."""
        self._scrapedAt = self._clock.seconds()
        if not self._isRunning:
            self._isRunning = True
            self._worst = self._before = 0.0
            self._halfEnds = self._scrapedAt + LAG_WINDOW / 2
            self._schedule()
        return max(self._worst, self._before)

    def _schedule(self) -> None:
        due = self._clock.seconds() + LAG_SECONDS
        self._clock.callLater(LAG_SECONDS, self._due, due)

    def _due(self, due: float) -> None:
        now = self._clock.seconds()
        if now >= self._halfEnds:
            self._before, self._worst = self._worst, 0.0
            self._halfEnds = now + LAG_WINDOW / 2
        self._worst = max(self._worst, now - due)
        if now - self._scrapedAt >= UNWATCHED_SECONDS:
            self._isRunning = False
        else:
            self._schedule()
