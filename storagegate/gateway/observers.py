"""
The observers of a gateway's calls, as C{configureMonitoring} chooses them.

They are the metrics, the tracer, and an access log with a line for each call.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import InvocationObserver
from storagegate.gateway.metrics import CallMetrics, Over
from storagegate.gateway.transports.registry import transports
from storagegate.telemetry.accesslog import AccessLog, Entry, traceBytes
from storagegate.telemetry.log import BufferedLogWriter
from storagegate.telemetry.metrics import MetricsRegistry

CORRELATION_HEADER = "X-Trace-ID"
"""The field of HTTP that has the id of a call's trace, unless another was configured."""


def makeTracer(monitoring: Any, reactor: Any, meters: MetricsRegistry | None = None) -> Any:
    """
    Make the L{Tracer<storagegate.telemetry.tracing.Tracer>} of a process.

    @param monitoring: The C{MonitoringOptions}, or C{None}.
    @param reactor: Schedules the export of spans.
    @param meters: The registry of the process; C{None} if nothing is counted.
    @return: C{None} where nothing is traced.
    """
    if monitoring is None or not monitoring.tracing.enabled:
        return None
    # Imports OpenTelemetry's SDK, which takes half a second and 40 MB.
    from storagegate.telemetry.otlp import makeTracer

    return makeTracer(monitoring.tracing, reactor, meters)


class UnknownCalls:
    """
    An observer of calls that are for no method, on a transport that knows all else of them.

    They share one label, because callers can invent names; the log and the traces have each.
    """

    def __init__(self, metrics: CallMetrics, others: Sequence[InvocationObserver]) -> None:
        """
        @param others: Who logs and who traces.
        """
        self._metrics = metrics
        self._others = others

    def callStarted(self, context: RequestContext) -> None:
        """Take note of a call."""
        for observer in self._others:
            observer.callStarted(context)

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Take note of its end."""
        if error is not None:
            self._metrics.unknown(context.protocol, error.code)
        for observer in self._others:
            observer.callEnded(context, error, seconds)


def makeObservers(
    monitoring: Any, metrics: CallMetrics, sink: BufferedLogWriter | None = None, tracer: Any = None
) -> tuple[list[InvocationObserver], UnknownCalls]:
    """
    Make the observers of a gateway.

    @param monitoring: The C{MonitoringOptions}; C{None} where nothing was configured: then calls
        are counted, and nothing else.
    @param sink: Where the lines of calls go; C{None} for Twisted's log.
    @param tracer: What traces calls, C{None} for nothing.
    @return: Those of calls, and the one of calls that are for no method.
    """
    observers: list[InvocationObserver] = []
    if monitoring is None:
        metrics.choose()
        observers.append(metrics)
    elif monitoring.metrics.enabled:
        metrics.choose(monitoring.metrics.collectors, monitoring.metrics.protocolMetrics)
        observers.append(metrics)
    others: list[InvocationObserver] = []
    if tracer is not None:
        from storagegate.telemetry.tracing import CallTracer

        systems = {row.name: row.rpcSystem for row in transports() if row.rpcSystem is not None}
        statuses = {row.name for row in transports() if row.hasStatus}
        others.append(CallTracer(tracer, systems, statuses))
    observers += others
    if monitoring is not None and monitoring.logging is not None:
        from storagegate.telemetry.accesslog import AccessLog

        calls = monitoring.logging
        log = CallLog(AccessLog(calls.level, calls.fields, calls.format, sink))
        others.append(log)
        if sink is not None and metrics in observers:
            log.follow(metrics, sink)
        else:
            observers.append(log)
    return observers, UnknownCalls(metrics, others)


class CallLog:
    """An observer that logs the end of each call."""

    def __init__(self, lines: AccessLog, now: Callable[[], float] = time.time) -> None:
        """
        @param now: Returns the time in seconds since 1970.
        """
        self._lines = lines
        self._now = now

    def callStarted(self, context: RequestContext) -> None:
        """Do nothing: the end tells all."""

    def callEnded(
        self, context: RequestContext, error: ServiceError | None, seconds: float
    ) -> None:
        """Log a call, with its path where that is the name of no method."""
        path = context.metadata.get("path")
        entry = (
            self._now(),
            context.protocol,
            context.service,
            context.method,
            context.client.id,
            seconds,
            "ok" if error is None else error.code,
            traceBytes(context.tracing.traceId),
            (),
            (),
        )
        self._lines.write([entry], error is None, None if path is None else {"path": path})

    def follow(self, metrics: CallMetrics, sink: BufferedLogWriter) -> None:
        """
        Log what is counted, from the same record of a call.

        @param sink: Where the lines go.
        """

        def make() -> list[bytes]:
            # The lines come by writeAll.
            metrics.flush()
            return []

        metrics.follow(self._endedAll, lambda: sink.writeLater(make))

    def _endedAll(self, calls: Sequence[Over]) -> None:
        """Log calls that are over."""
        shift = time.time() - time.monotonic()
        good: list[Entry] = []
        bad: list[Entry] = []
        for when, protocol, service, method, _, client, seconds, code, trace in calls:
            status = "ok" if code is None else code
            id = traceBytes(trace)
            told = (when + shift, protocol, service, method, client, seconds, status, id, (), ())
            (good if code is None else bad).append(told)
        self._lines.write(good)
        self._lines.write(bad, isGood=False)
