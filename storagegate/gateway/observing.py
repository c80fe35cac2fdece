"""Who is told of each call of a gateway: what C{configureMonitoring} asks for, put together."""

from collections.abc import Sequence
from typing import Any

from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError
from storagegate.core.invocation import Observer
from storagegate.core.loglines import LineSink
from storagegate.core.meters import Meters
from storagegate.gateway.metrics import CallMetrics

CORRELATION_HEADER = "X-Trace-ID"
"""The field of HTTP that has the id of a call's trace, unless another was configured."""


def makeTracer(monitoring: Any, reactor: Any, meters: Meters | None = None) -> Any:
    """
    Make the L{Tracer<storagegate.telemetry.tracer.Tracer>} of a process.

    @param monitoring: The C{MonitoringOptions}, or C{None}.
    @return: C{None} where nothing is traced.
    """
    if monitoring is None or not monitoring.tracing.enabled:
        return None
    from storagegate.telemetry.making import makeTracer

    return makeTracer(monitoring.tracing, reactor, meters)


class UnknownCalls:
    """
    An observer of calls that are for no method, on a wire that knows all else of them.

    They are counted as one whatever they name, for callers make names up; who logs and who traces
    calls is told of each.
    """

    def __init__(self, metrics: CallMetrics, others: Sequence[Observer]) -> None:
        """
        @param others: Who logs and who traces.
        """
        self._metrics = metrics
        self._others = others

    def began(self, context: RequestContext) -> None:
        """Take note of a call."""
        for observer in self._others:
            observer.began(context)

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Take note of its end."""
        if error is not None:
            self._metrics.unknown(context.protocol, error.code)
        for observer in self._others:
            observer.ended(context, error, seconds)


def makeObservers(
    monitoring: Any, metrics: CallMetrics, sink: LineSink | None = None, tracer: Any = None
) -> tuple[list[Observer], UnknownCalls]:
    """
    Make the observers of a gateway.

    @param monitoring: The C{MonitoringOptions}; C{None} where nothing was configured: then calls
        are counted, and nothing else.
    @param sink: Where the lines of calls go; C{None} for Twisted's log.
    @param tracer: What traces calls, C{None} for nothing.
    @return: Those of calls, and the one of calls that are for no method.
    """
    observers: list[Observer] = []
    if monitoring is None:
        metrics.choose()
        observers.append(metrics)
    elif monitoring.metrics.enabled:
        metrics.choose(monitoring.metrics.collectors, monitoring.metrics.protocolMetrics)
        observers.append(metrics)
    others: list[Observer] = []
    if tracer is not None:
        from storagegate.telemetry.tracer import CallTracer

        others.append(CallTracer(tracer))
    observers += others
    if monitoring is not None and monitoring.logging is not None:
        from storagegate.core.calllines import CallLines
        from storagegate.gateway.calllog import CallLog

        calls = monitoring.logging
        log = CallLog(CallLines(calls.level, calls.fields, calls.format, sink))
        others.append(log)
        if sink is not None and metrics in observers:
            log.follow(metrics, sink)
        else:
            observers.append(log)
    return observers, UnknownCalls(metrics, others)
