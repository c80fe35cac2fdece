"""WebSocket: its options and its metrics."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import (
    Hook,
    optionField,
    readFunction,
    readNumber,
    readPath,
    readWord,
)
from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    Streaming,
    TransportMetrics,
    average,
    byLabel,
)
from storagegate.net.websocket.interfaces import WebSocketLimits
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily

PROTOCOL = "websocket"
"""The name of this transport."""

MESSAGE_FORMATS = ("json", "binary", "msgpack")


def _streamHooks(value: Any) -> Mapping[str, Hook]:
    if not isinstance(value, Mapping) or not set(value) <= {"server", "client"}:
        raise ValueError("is a mapping with functions for server and client")
    for hook in value.values():
        readFunction(hook)
    return dict(value)


@frozen(kw_only=True)
class WebSocketOptions(WebSocketLimits):
    """
    The options of calls over WebSocket.

    @ivar path: The path, on the port of HTTP.
    @ivar messageFormat: The format for clients that request no subprotocol.
    @ivar maxCallsPerAddress: How many of the 1024 concurrent calls one address may make; C{None}
        for three quarters.
    @ivar routeMessage: C{(message)} returns a mapping of C{service}, C{method}, C{request} and
        C{messageId}.
    @ivar formatResponse: C{(result, messageId, method)} returns the message.
    @ivar handleStreaming: C{server(stream, send, messageId)} and C{client(messages, call,
        messageId)}.
    """

    path: str = optionField("/ws", readPath)
    messageFormat: str = optionField("json", readWord, MESSAGE_FORMATS)
    maxCallsPerAddress: int | None = optionField(None, readNumber, 1, 1_000_000, "calls")
    routeMessage: Hook | None = field(default=None, converter=optional(readFunction))
    formatResponse: Hook | None = field(default=None, converter=optional(readFunction))
    handleStreaming: Mapping[str, Hook] = field(factory=dict, converter=_streamHooks)


class WebSocketOptionsDict(TypedDict, total=False):
    """The keywords of L{WebSocketOptions}."""

    path: str
    enableCompression: bool
    allowedOrigins: list[str] | tuple[str, ...]
    messageFormat: Literal["json", "binary", "msgpack"]
    maxMessageSize: int | str
    maxConnections: int
    maxConnectionsPerAddress: int | None
    maxCallsPerAddress: int | None
    pingSeconds: int
    routeMessage: Hook | None
    formatResponse: Hook | None
    handleStreaming: Mapping[str, Hook]


_SECONDS = (0.1, 1, 10, 60, 300, 900, 3600, 14_400, 86_400)
"""The buckets distinguish WebSockets that last for moments, minutes or days."""


def _measureConnections(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    counts.durations = meters.histogram(
        "storagegate_websocket_connection_duration_seconds",
        "Lifetime of closed WebSockets.",
        (),
        _SECONDS,
    )


def _connectionDuration(samples: Samples) -> Any:
    found = samples("websocket_connection_duration_seconds")
    values = next((value for _, value in found), (0, 0.0))
    return {"count": sum(values[:-1]), "average": average(values)}


def _messages(counts: TransportMetrics) -> Iterable[MetricFamily]:
    yield counterFamily(
        "storagegate_websocket_messages_total",
        "WebSocket messages.",
        ("direction",),
        [(("in",), counts.messagesIn), (("out",), counts.messagesOut)],
    )


METRICS = (
    ProtocolMetric(name="connection_duration", start=_measureConnections, view=_connectionDuration),
    ProtocolMetric(
        name="message_frequency", collect=_messages, view=byLabel("websocket_messages_total")
    ),
)
