"""What may be chosen of WebSocket: how long connections last, and how many messages they have."""

from collections.abc import Iterable
from typing import Any

from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    Streaming,
    WireMeter,
    average,
    byLabel,
)
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily

_SECONDS = (0.1, 1, 10, 60, 300, 900, 3600, 14_400, 86_400)
"""What matters of a WebSocket is whether it lasts for moments, minutes or days."""


def _measureConnections(
    meters: MetricsRegistry, wire: WireMeter, streaming: Streaming | None
) -> None:
    wire.durations = meters.histogram(
        "storagegate_websocket_connection_duration_seconds",
        "How long WebSockets that are gone were there.",
        (),
        _SECONDS,
    )


def _connectionDuration(samples: Samples) -> Any:
    found = samples("websocket_connection_duration_seconds")
    values = next((value for _, value in found), (0, 0.0))
    return {"count": sum(values[:-1]), "average": average(values)}


def _messages(wire: WireMeter) -> Iterable[MetricFamily]:
    yield counterFamily(
        "storagegate_websocket_messages_total",
        "Messages of WebSockets.",
        ("direction",),
        [(("in",), wire.messagesIn), (("out",), wire.messagesOut)],
    )


METRICS = (
    ProtocolMetric(name="connection_duration", start=_measureConnections, view=_connectionDuration),
    ProtocolMetric(
        name="message_frequency", collect=_messages, view=byLabel("websocket_messages_total")
    ),
)
