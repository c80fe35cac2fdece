"""
The metrics of the transports, in addition to the metrics of calls, and their selection.

The counts are attributes that a transport increments, which takes 0.05 microseconds. The
L{ProtocolMetric}s that C{metrics.protocolMetrics} chooses export them: each has a few meters in the
process's registry and a view in C{getMetrics}.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from storagegate.gateway.transports.registry import findTransport, loadReference
from storagegate.telemetry.metrics import Counter as Count
from storagegate.telemetry.metrics import (
    Histogram,
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugesFamily,
)

MAX_ROUTES = 5000
"""
The maximum number of label sets of a meter by method: 100 methods on five transports, each with ten
outcomes.
"""

OnEnds = Callable[[str, str, Sequence[float]], object]

Streaming = Callable[[str, str], str]
"""Returns how a method of a service streams."""

Sample = tuple[Sequence[str], Any]

Samples = Callable[[str], Sequence[Sample]]
"""Returns the samples of a meter by its name without the prefix C{storagegate_}."""


@define(eq=False)
class TransportMetrics:
    """
    The counts of one transport. Meters that were not chosen are C{None}.

    @ivar accepted: Accepted connections.
    @ivar closed: Closed connections.
    @ivar duplicates: Duplicate datagrams.
    @ivar lost: Items of streams that never arrived.
    @ivar connections: Counts the open connections; C{None} if the transport has none.
    @ivar held: Returns how many bytes of incomplete messages are held, and the limit.
    @ivar dropped: Dropped datagrams by reason.
    @ivar durations: Durations of connections, in seconds.
    @ivar sizes: Sizes of datagrams, in bytes.
    @ivar responses: Responses by status.
    @ivar agents: Requests by family of clients.
    @ivar onEnds: Called with a service, a method and the durations in seconds of calls that have
        ended.
    """

    bytesIn: int = 0
    bytesOut: int = 0
    messagesIn: int = 0
    messagesOut: int = 0
    accepted: int = 0
    closed: int = 0
    duplicates: int = 0
    lost: int = 0
    connections: Callable[[], int] | None = None
    held: Callable[[], tuple[int, int]] | None = None
    dropped: Mapping[str, int] = field(factory=Counter)
    durations: Histogram | None = None
    sizes: Histogram | None = None
    responses: Count | None = None
    agents: Count | None = None
    onEnds: list[OnEnds] = field(factory=list)

    def ended(self, seconds: float) -> None:
        """
        Count the end of a connection.

        @param seconds: How long the connection was open.
        """
        self.closed += 1
        if self.durations is not None:
            self.durations.observe(seconds)

    def packetIn(self, size: int) -> None:
        """
        Count a received datagram.

        @param size: The length of its payload in bytes.
        """
        self.bytesIn += size
        if self.sizes is not None:
            self.sizes.observe(size, ("in",))

    def packetOut(self, size: int) -> None:
        """
        Count a sent datagram.

        @param size: The length of its payload in bytes.
        """
        self.bytesOut += size
        if self.sizes is not None:
            self.sizes.observe(size, ("out",))


@frozen(kw_only=True)
class ProtocolMetric:
    """
    A choice of C{metrics.protocolMetrics} for a transport.

    @ivar name: Its name in C{metrics.protocolMetrics} and in C{getMetrics}.
    @ivar view: Returns its value in C{getMetrics}.
    @ivar start: Creates the meters of the transport when the metric is chosen.
    @ivar collect: Returns the families of the counts that the transport keeps.
    """

    name: str
    view: Callable[[Samples], Any]
    start: Callable[[MetricsRegistry, TransportMetrics, Streaming | None], object] = (
        lambda meters, counts, streaming: None
    )
    collect: Callable[[TransportMetrics], Iterable[MetricFamily]] = lambda counts: ()


def metricsOf(name: str) -> Mapping[str, ProtocolMetric]:
    """
    Return the choices of a transport, by name.

    @raise KeyError: If there is no transport of that name.
    """
    metrics = findTransport(name).metrics
    return {} if metrics is None else {each.name: each for each in loadReference(metrics)}


# Views


def byLabel(name: str) -> Callable[[Samples], Any]:
    """
    Make the view of a meter with one label: a mapping of label values to numbers.

    @param name: The name of the meter without the prefix C{storagegate_}.
    """
    return lambda samples: {labels[0]: value for labels, value in samples(name)}


def total(samples: Samples, name: str) -> Any:
    """
    Return the sum of a meter.

    @param name: The name of the meter without the prefix C{storagegate_}.
    """
    return sum(value for _, value in samples(name))


def average(values: Sequence[float], factor: float = 1) -> float:
    """
    Return the average of a histogram; 0 without values.

    @param values: The counts of its buckets, and the sum.
    @param factor: The factor that converts the unit.
    """
    count = sum(values[:-1])
    return values[-1] * factor / count if count else 0.0


# Families


def plainCounter(name: str, help: str, value: float) -> MetricFamily:
    """
    Make the family of a counter without labels.

    @param name: The whole name, ending with C{_total}.
    @param help: One sentence for the line C{HELP}.
    """
    return counterFamily(name, help, (), [((), value)])


def plainGauge(name: str, help: str, value: float, together: str = "sum") -> MetricFamily:
    """
    Make the family of a gauge without labels.

    @param name: The whole name, with its unit.
    @param help: One sentence for the line C{HELP}.
    @param together: How the numbers of several workers are combined.
    """
    return gaugesFamily(name, help, (), [((), value)], together)
