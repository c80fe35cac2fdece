"""
What a process counts of its work: counters, gauges and histograms with a bounded set of labels.

A meter is a dictionary that the reactor's thread adds to, so that counting costs a tenth of a
microsecond. What others read is a snapshot: plain values that can be sent to another process and
added to its own. How a snapshot is written for a collector is not known here.

Names follow U{https://prometheus.io/docs/practices/naming/}: base units, C{_total} for counters.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from attrs import asdict, frozen
from twisted.logger import Logger

MAX_LABEL_SETS = 500
"""
Sets of label values that one meter keeps apart. Every label here has a small set of values by its
nature; a mistake, or somebody who makes names up, must not fill the memory.
"""

OTHER = "other"
"""The value of every label of what came when a meter was full."""

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
"""
Seconds, the upper bounds that OpenTelemetry advises for C{http.server.request.duration}
(U{https://opentelemetry.io/docs/specs/semconv/http/http-metrics/}).
"""

Labels = tuple[str, ...]

_log = Logger()


@frozen
class MetricFamily:
    """
    A meter as it was at one time; plain values only.

    @ivar kind: C{counter}, C{gauge} or C{histogram}.
    @ivar labels: The names of the labels.
    @ivar buckets: Upper bounds, of a histogram.
    @ivar merge: How the values of several processes become one: C{sum} or C{max}.
    @ivar samples: Pairs of label values and a number; of a histogram, the counts of each bucket
        alone with one more for what is above all of them, and at the end the sum of the values.
    """

    name: str
    help: str
    kind: str
    labels: Sequence[str]
    buckets: Sequence[float]
    merge: str
    samples: Sequence[tuple[Sequence[str], Any]]


class _Meter:
    """What meters have in common."""

    kind = ""
    __slots__ = ("buckets", "help", "labels", "maxSets", "merge", "name", "values")

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), merge: str = "sum"
    ) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self.merge = merge
        self.buckets: tuple[float, ...] = ()
        self.maxSets = MAX_LABEL_SETS
        self.values: dict[Labels, Any] = {}

    def _room(self, labels: Labels) -> Labels:
        """Give the labels to count under: those given, unless the meter is full."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {labels}")
        return labels if len(self.values) < self.maxSets else (OTHER,) * len(labels)

    def family(self) -> MetricFamily:
        """Give the present state."""
        samples = [(labels, self._plain(value)) for labels, value in self.values.items()]
        return MetricFamily(
            self.name, self.help, self.kind, self.labels, self.buckets, self.merge, samples
        )

    def _plain(self, value: Any) -> Any:
        return value


class _Sum(_Meter):
    """What is added to."""

    __slots__ = ()

    def add(self, amount: float = 1, labels: Labels = ()) -> None:
        """Add to it; the values of the labels are in the order of their names."""
        try:
            self.values[labels] += amount
        except KeyError:
            labels = self._room(labels)
            self.values[labels] = self.values.get(labels, 0) + amount


class Counter(_Sum):
    """A number that only grows."""

    kind = "counter"
    __slots__ = ()


class Gauge(_Sum):
    """A number that goes up and down: what is added to it may be below zero."""

    kind = "gauge"
    __slots__ = ()

    def set(self, value: float, labels: Labels = ()) -> None:
        """Set it."""
        if labels not in self.values:
            labels = self._room(labels)
        self.values[labels] = value


class Histogram(_Meter):
    """How often values of which size came."""

    kind = "histogram"
    __slots__ = ()

    def __init__(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> None:
        """
        @param buckets: Upper bounds, rising; what is above the last one is counted too.
        """
        super().__init__(name, help, labels)
        self.buckets = tuple(buckets)

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Take note of a value."""
        self.observeAll((value,), labels)

    def observeAll(self, values: Iterable[float], labels: Labels = ()) -> None:
        """Take note of values."""
        counts = self.values.get(labels)
        if counts is None:
            labels = self._room(labels)
            counts = self.values.setdefault(labels, [0] * (len(self.buckets) + 1) + [0.0])
        buckets = self.buckets
        for value in values:
            counts[bisect_left(buckets, value)] += 1
            counts[-1] += value

    def _plain(self, value: Any) -> Any:
        return list(value)


M = TypeVar("M", bound=_Meter)

Collect = Callable[[], Iterable[MetricFamily]]


class MetricsRegistry:
    """The meters of one process."""

    def __init__(self) -> None:
        self._meters: dict[str, _Meter] = {}
        self._collects: list[Collect] = []

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """Make a counter, or give the one of that name; its name ends with C{_total}."""
        return self._get(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Sequence[str] = (), merge: str = "sum") -> Gauge:
        """
        Make a gauge, or give the one of that name.

        @param merge: C{sum} or C{max}: what several processes have together.
        """
        return self._get(Gauge(name, help, labels, merge))

    def histogram(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> Histogram:
        """Make a histogram, or give the one of that name."""
        return self._get(Histogram(name, help, labels, buckets))

    def watch(self, collect: Collect) -> None:
        """Have families made when somebody looks: for what is known elsewhere at any time."""
        self._collects.append(collect)

    def snapshot(self) -> list[MetricFamily]:
        """Give the present state of all, by name."""
        families: list[MetricFamily] = []
        # First, for some who are asked add to a meter what they have put by.
        for collect in self._collects:
            try:
                families.extend(collect())
            except Exception:
                # Of what is well there is still something to tell.
                _log.failure("a part of the process could not be counted")
        families.extend([each.family() for each in self._meters.values()])
        # Two that watch may tell of the same thing: what they have together is one family.
        return mergeFamilies([families])

    def _get(self, meter: M) -> M:
        known = self._meters.setdefault(meter.name, meter)
        hasSameShape = (known.labels, known.buckets) == (meter.labels, meter.buckets)
        if type(known) is not type(meter) or not hasSameShape:
            raise ValueError(f"there is another meter {meter.name}")
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
    """Make the family of a counter that is kept elsewhere, for L{MetricsRegistry.watch}."""
    return MetricFamily(name, help, "counter", tuple(labels), (), "sum", list(samples))


def asPlain(families: Iterable[MetricFamily]) -> list[dict[str, Any]]:
    """Give a snapshot as JSON can carry it."""
    return [asdict(family, recurse=False) for family in families]


def fromPlain(plain: Iterable[dict[str, Any]]) -> list[MetricFamily]:
    """Make a snapshot of what L{asPlain} gave."""
    return [MetricFamily(**each) for each in plain]


def mergeFamilies(snapshots: Iterable[Iterable[MetricFamily]]) -> list[MetricFamily]:
    """Make one snapshot of those of several processes."""
    merged: dict[str, tuple[MetricFamily, dict[Labels, Any]]] = {}
    for snapshot in snapshots:
        for family in snapshot:
            _family, values = merged.setdefault(family.name, (family, {}))
            for names, value in family.samples:
                labels = tuple(names)
                values[labels] = (
                    _together(family, values[labels], value) if labels in values else value
                )
    return [
        MetricFamily(
            family.name,
            family.help,
            family.kind,
            family.labels,
            family.buckets,
            family.merge,
            list(values.items()),
        )
        for family, values in (merged[name] for name in sorted(merged))
    ]


def _together(family: MetricFamily, one: Any, other: Any) -> Any:
    if family.kind == "histogram":
        return [a + b for a, b in zip(one, other, strict=True)]
    return max(one, other) if family.merge == "max" else one + other
