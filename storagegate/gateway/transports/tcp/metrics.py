"""What may be chosen of TCP: its connections, and the memory that incomplete messages take."""

from collections.abc import Iterable
from typing import Any

from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    WireMeter,
    plainCounter,
    plainGauge,
    total,
)
from storagegate.telemetry.metrics import MetricFamily


def _connections(wire: WireMeter) -> Iterable[MetricFamily]:
    yield plainCounter(
        "storagegate_tcp_connections_accepted_total", "Connections that came.", wire.accepted
    )
    yield plainCounter(
        "storagegate_tcp_connections_closed_total", "Connections that are gone.", wire.closed
    )
    count = 0 if wire.connections is None else wire.connections()
    yield plainGauge("storagegate_tcp_connections_open", "Connections that are there.", count)


def _connectionPool(samples: Samples) -> Any:
    return {
        "open": total(samples, "tcp_connections_open"),
        "accepted": total(samples, "tcp_connections_accepted_total"),
        "closed": total(samples, "tcp_connections_closed_total"),
    }


def _buffers(wire: WireMeter) -> Iterable[MetricFamily]:
    held, limit = (0, 1) if wire.held is None else wire.held()
    yield plainGauge("storagegate_tcp_buffer_bytes", "Bytes of incomplete messages.", held)
    yield plainGauge(
        "storagegate_tcp_buffer_ratio",
        "The same as a share of what may be held; of several workers the worst.",
        held / limit,
        "max",
    )


METRICS = (
    ProtocolMetric(name="connection_pool", collect=_connections, view=_connectionPool),
    ProtocolMetric(
        name="buffer_utilization",
        collect=_buffers,
        view=lambda samples: total(samples, "tcp_buffer_ratio"),
    ),
)
