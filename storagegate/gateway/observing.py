"""Who is told of each call of a gateway: what C{configureMonitoring} asks for, put together."""

from typing import Any

from storagegate.core.invocation import Observer
from storagegate.core.loglines import LineSink
from storagegate.gateway.metrics import CallMetrics


def makeObservers(
    monitoring: Any, metrics: CallMetrics, sink: LineSink | None = None
) -> list[Observer]:
    """
    Make the observers of a gateway.

    @param monitoring: The C{MonitoringOptions}; C{None} where nothing was configured: then calls
        are counted, and nothing else.
    @param sink: Where the lines of calls go; C{None} for Twisted's log.
    """
    observers: list[Observer] = []
    if monitoring is None:
        metrics.choose()
        observers.append(metrics)
    elif monitoring.metrics.enabled:
        metrics.choose(monitoring.metrics.collectors, monitoring.metrics.protocolMetrics)
        observers.append(metrics)
    if monitoring is not None and monitoring.logging is not None:
        from storagegate.gateway.calllog import CallLog

        logging = monitoring.logging
        observers.append(CallLog(logging.level, logging.fields, logging.format, sink))
    return observers
