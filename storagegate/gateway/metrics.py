"""
The metrics of a gateway's calls, and their view in C{getMetrics}.

C{metrics.collectors} and C{metrics.protocolMetrics} choose the meters. A call is recorded as it
ends; calls are added to the meters in batches, when enough have ended or at a scrape.
L{SlidingWindowCounter} keeps the rates of the last minute. C{getMetrics} returns a snapshot of the
meters as plain numbers by name.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.errors import CODES, ServiceError
from storagegate.core.invoker import InvocationObserver
from storagegate.gateway.transports.metrics import (
    MAX_ROUTES,
    ProtocolMetric,
    Sample,
    Samples,
    TransportMetrics,
    average,
    byLabel,
    metricsOf,
)
from storagegate.gateway.transports.registry import transportNames
from storagegate.telemetry.metrics import (
    OTHER,
    Counter,
    Histogram,
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugesFamily,
)


def _requestCount(of: Samples) -> Any:
    counts: dict[str, dict[str, int]] = {}
    for (protocol, service, method, _), value in of("requests_total"):
        methods = counts.setdefault(protocol, {})
        name = f"{service}.{method}"
        methods[name] = methods.get(name, 0) + value
    return counts


def _requestDuration(of: Samples) -> Any:
    durations: dict[str, dict[str, float]] = {}
    for (protocol, service, method), values in of("request_duration_seconds"):
        durations.setdefault(protocol, {})[f"{service}.{method}"] = average(values, 1000)
    return durations


# The collectors, each with its view in getMetrics.
_COLLECTORS: Mapping[str, Callable[[Samples], Any]] = {
    "request_count": _requestCount,
    "request_duration": _requestDuration,
    "error_rate": byLabel("error_ratio"),
    "active_connections": byLabel("active_connections"),
    "throughput": byLabel("requests_per_second"),
}


SECONDS = 60


class SlidingWindowCounter:
    """A ring of seconds, each with the calls and the failed calls of every transport."""

    def __init__(self) -> None:
        self._second = -1
        self._first: int | None = None
        self._counts: dict[str, list[int]] = {}
        self._ring: dict[int, dict[str, list[int]]] = {}

    def add(self, second: int, protocol: str, isFailed: bool, calls: int = 1) -> None:
        """
        Count calls.

        @param second: When they ended, by a monotonic clock.
        @param protocol: The transport's name.
        @param isFailed: Whether the calls ended with an error.
        @param calls: How many calls ended this way.
        """
        if second != self._second:
            self._turn(second)
        counts = self._counts.get(protocol)
        if counts is None:
            counts = self._counts[protocol] = [0, 0]
        counts[0] += calls
        counts[1] += calls * isFailed

    def shares(self, second: int) -> Mapping[str, tuple[float, float]]:
        """
        Return, by protocol, the calls a second and the fraction that failed.

        @param second: The current second of the clock of L{add}.
        """
        self._turn(second)
        totals: dict[str, list[int]] = {}
        for counts in self._ring.values():
            for protocol, (calls, failed) in counts.items():
                total = totals.setdefault(protocol, [0, 0])
                total[0] += calls
                total[1] += failed
        # Within the first minute, the rate covers the time since the first call.
        began = second if self._first is None else self._first
        seconds = min(SECONDS, second - began + 1)
        return {name: (calls / seconds, failed / calls) for name, (calls, failed) in totals.items()}

    def _turn(self, second: int) -> None:
        """Move on to another second."""
        if self._first is None:
            self._first = second
        for past in [past for past in self._ring if past <= second - SECONDS]:
            del self._ring[past]
        self._second = second
        self._counts = self._ring.setdefault(second, {})


COLLECTORS = tuple(_COLLECTORS)
"""The default collectors: all of them."""

UNKNOWN = "unknown"
"""The labels of a call to an unknown method: clients can invent names."""

_MAX_CODES = 50
"""The maximum number of error codes that services define themselves."""

_ROUTE = ("protocol", "service", "method")

_TOGETHER = 64
"""Calls counted in one batch, which takes half the time of counting each as it ends."""

Over = tuple[
    float, str, str, str, str | None, ClientInfo, float, tuple[str, int] | None, str, object
]
"""
A call that has ended: when, by a monotonic clock; protocol, service and method; the method label if
it is undescribed; client; duration in seconds; code and status of its error; trace id; and its user
if calls are followed.
"""


@define
class _Totals:
    """The calls of a transport; C{seconds} is the total duration of the ended calls."""

    requests: int = 0
    ended: int = 0
    errors: int = 0
    seconds: float = 0.0


class CallMetrics:
    """
    An observer that counts calls, and the counts of the transports.

    @ivar transports: The counts of each transport, by protocol.
    """

    def __init__(
        self,
        meters: MetricsRegistry | None = None,
        streaming: Callable[[str, str], str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        @param meters: The registry of the process; C{None} creates one.
        @param streaming: Returns how a method of a service streams.
        @param now: Returns the seconds of a monotonic clock.
        """
        self.meters = meters or MetricsRegistry()
        self._streaming = streaming
        self._now = now
        self._totals: dict[str, _Totals] = {}
        # The calls that have ended since the last flush, all in the same second: their durations by
        # protocol, service, method and code, and one record each for a follower.
        self._second = self._secondEnds = -1
        self._ended = 0
        self._times: dict[tuple[str, str, str, str | None], list[float]] = {}
        self._over: list[Over] = []
        self._follower: Callable[[Sequence[Over]], None] | None = None
        self._wake: Callable[[], None] | None = None
        self._codes = {code: code for code in CODES}
        self._isCounting = False
        self._minute: SlidingWindowCounter | None = None
        self._requests: Counter | None = None
        self._durations: Histogram | None = None
        self._errors: Counter | None = None
        self._collectors: tuple[str, ...] = ()
        self._chosen: Mapping[str, tuple[ProtocolMetric, ...]] = {}
        self.transports: dict[str, TransportMetrics] = {}

    def choose(
        self,
        collectors: Iterable[str] = COLLECTORS,
        protocolMetrics: Mapping[str, tuple[str, ...]] = {},
    ) -> None:
        """
        Start the chosen metrics; later calls do nothing.

        @param collectors: Names of L{COLLECTORS}.
        @param protocolMetrics: Names of metrics by transport.
        """
        if self._isCounting:
            return
        meters = self.meters
        self._isCounting = True
        self._collectors = tuple(collectors)
        self._chosen = {
            name: tuple(metricsOf(name)[word] for word in words)
            for name, words in protocolMetrics.items()
        }
        self.transports = {name: TransportMetrics() for name in transportNames()}
        if "request_count" in self._collectors:
            self._requests = meters.counter(
                "storagegate_requests_total",
                "Ended calls by outcome.",
                (*_ROUTE, "status"),
            )
            self._requests.maxSets = MAX_ROUTES
        if "request_duration" in self._collectors:
            self._durations = meters.histogram(
                "storagegate_request_duration_seconds", "Duration of calls.", _ROUTE
            )
            self._durations.maxSets = MAX_ROUTES
        if "error_rate" in self._collectors:
            self._errors = meters.counter(
                "storagegate_errors_total", "Failed calls.", ("protocol", "code")
            )
        if "error_rate" in self._collectors or "throughput" in self._collectors:
            self._minute = SlidingWindowCounter()
        for name, metrics in self._chosen.items():
            for metric in metrics:
                metric.start(meters, self.transports[name], self._streaming)
        meters.watch(self._collect)

    # Calls

    def callStarted(self, context: RequestContext) -> None:
        """Count a call."""
        totals = self._totals.get(context.protocol)
        if totals is None:
            totals = self._totals[context.protocol] = _Totals()
        totals.requests += 1

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """
        Count the end of a call.

        @param error: C{None} if the call succeeded.
        @param seconds: The duration of the call.
        """
        now = self._now()
        if now >= self._secondEnds:
            self.flush()
            self._second = int(now)
            self._secondEnds = self._second + 1
        # Undescribed methods share one label: invented names must not fill the table.
        method = context.metadata.get("route") or context.method
        code = None if error is None else error.code
        key = (context.protocol, context.service, method, code)
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = []
        times.append(seconds)
        self._ended = ended = self._ended + 1
        if self._follower is not None:
            over = self._over
            over.append(
                (
                    now,
                    context.protocol,
                    context.service,
                    context.method,
                    context.metadata.get("route"),
                    context.client,
                    seconds,
                    None if error is None else (error.code, error.statusCode),
                    context.tracing.traceId,
                    context.authentication,
                )
            )
            if len(over) == 1 and self._wake is not None:
                self._wake()
        if ended >= _TOGETHER:
            self.flush()

    def follow(self, follower: Callable[[Sequence[Over]], None], wake: Callable[[], None]) -> None:
        """
        Also pass all recorded calls to a function.

        @param follower: Receives the calls of a batch.
        @param wake: Called with the first call of a batch; must have L{flush} called soon.
        """
        self._follower, self._wake = follower, wake

    def flush(self) -> None:
        """Add the calls that have ended to the meters."""
        if not self._ended:
            return
        alike, self._times, self._ended = self._times, {}, 0
        over, self._over = self._over, []
        if self._follower is not None:
            self._follower(over)
        for (protocol, service, method, code), times in alike.items():
            count = len(times)
            totals = self._totals[protocol]
            totals.ended += count
            totals.seconds += sum(times)
            if code is not None:
                totals.errors += count
                if self._errors is not None:
                    self._errors.add(count, (protocol, self._codeOf(code)))
            if self._minute is not None:
                self._minute.add(self._second, protocol, code is not None, count)
            if self._requests is not None:
                status = "ok" if code is None else self._codeOf(code)
                self._requests.add(count, (protocol, service, method, status))
            if self._durations is not None:
                self._durations.observeAll(times, (protocol, service, method))
            counts = self.transports.get(protocol)
            if counts is not None:
                for ended in counts.onEnds:
                    ended(service, method, times)

    def unknown(self, protocol: str, code: str = "NOT_FOUND") -> None:
        """
        Count a call to an unknown method.

        @param code: The error code that its client received.
        @param protocol: The transport's name.
        """
        if not self._isCounting:
            return
        if self._requests is not None:
            self._requests.add(1, (protocol, UNKNOWN, UNKNOWN, self._codeOf(code)))
        if self._errors is not None:
            self._errors.add(1, (protocol, self._codeOf(code)))
        if self._minute is not None:
            self._minute.add(int(self._now()), protocol, True)

    def _codeOf(self, code: str) -> str:
        """Return the label of an error's code. Services may define codes, up to a limit."""
        known = self._codes.get(code)
        if known is None:
            if len(self._codes) >= len(CODES) + _MAX_CODES:
                return OTHER
            known = self._codes[code] = code
        return known

    # Collected metrics

    def _collect(self) -> Iterable[MetricFamily]:
        """Yield the metric families that have no meter."""
        self.flush()
        shares = self._minute.shares(int(self._now())) if self._minute is not None else {}
        if "error_rate" in self._collectors:
            yield gaugesFamily(
                "storagegate_error_ratio",
                "Share of failed calls in the last minute; the maximum of all workers.",
                ("protocol",),
                [((name,), errors) for name, (_, errors) in shares.items()],
                "max",
            )
        if "throughput" in self._collectors:
            yield gaugesFamily(
                "storagegate_requests_per_second",
                "Calls per second over the last minute.",
                ("protocol",),
                [((name,), rate) for name, (rate, _) in shares.items()],
            )
            yield counterFamily(
                "storagegate_wire_bytes_total",
                "Bytes received and sent: of bodies for HTTP, of messages for gRPC.",
                ("protocol", "direction"),
                [
                    ((name, direction), count)
                    for name, counts in self.transports.items()
                    for direction, count in (("in", counts.bytesIn), ("out", counts.bytesOut))
                ],
            )
        if "active_connections" in self._collectors:
            yield gaugesFamily(
                "storagegate_active_connections",
                "Open connections; for UDP, remembered addresses.",
                ("protocol",),
                [
                    ((name,), counts.connections())
                    for name, counts in self.transports.items()
                    if counts.connections is not None
                ],
            )
        for name, metrics in self._chosen.items():
            for metric in metrics:
                yield from metric.collect(self.transports[name])

    def snapshot(self) -> dict[str, Any]:
        """
        Return the counts so far.

        @return: Mappings by protocol: C{requests_total}, C{errors_total}, C{active_requests}, and
            C{avg_response_time} in milliseconds; the collectors by name: C{request_count},
            C{request_duration} (averages in milliseconds) by C{Service.method}, C{error_rate} (a
            fraction), C{active_connections}, C{throughput} (calls a second); and the chosen metrics
            of each protocol under its name.
        """
        self.flush()
        totals = self._totals
        found: dict[str, Any] = {
            "requests_total": {name: each.requests for name, each in totals.items()},
            "errors_total": {name: each.errors for name, each in totals.items()},
            "active_requests": {name: each.requests - each.ended for name, each in totals.items()},
            "avg_response_time": {
                name: each.seconds * 1000 / each.ended if each.ended else 0.0
                for name, each in totals.items()
            },
        }
        if not self._isCounting:
            return found
        samples = {family.name: family.samples for family in self.meters.snapshot()}

        def of(name: str) -> Sequence[Sample]:
            return samples.get(f"storagegate_{name}", ())

        found |= {word: _COLLECTORS[word](of) for word in self._collectors}
        for protocol, metrics in self._chosen.items():
            found[protocol] = {metric.name: metric.view(of) for metric in metrics}
        return found


class UnknownCalls:
    """
    An observer of calls to unknown methods, on a transport that knows the rest of the call.

    They share one label, because clients can invent names; the log and the traces record each call.
    """

    def __init__(self, metrics: CallMetrics, others: Sequence[InvocationObserver]) -> None:
        """
        @param others: The observers that log and trace.
        """
        self._metrics = metrics
        self._others = others

    def callStarted(self, context: RequestContext) -> None:
        """Report the start of a call to the observers that log and trace."""
        for observer in self._others:
            observer.callStarted(context)

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Count the end of a call, and report it."""
        if error is not None:
            self._metrics.unknown(context.protocol, error.code)
        for observer in self._others:
            observer.callEnded(context, error, seconds)
