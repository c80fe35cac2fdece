"""TCP: its options, and its metrics (connections, memory of incomplete messages)."""

from collections.abc import Iterable
from typing import Any, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import readFlag, readHostname, readNumber, readPort, readSize
from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    TransportMetrics,
    plainCounter,
    plainGauge,
    total,
)
from storagegate.telemetry.metrics import MetricFamily

# What the length of a frame can say is 4 GiB; no payload of a quarter of it fits in memory twice.
_MAX_FRAME_SIZE = 1024 * 1024 * 1024


def _frameSize(value: Any) -> int:
    return readNumber(readSize(value), 64, _MAX_FRAME_SIZE, "bytes")


def _connections(value: Any) -> int:
    return readNumber(value, 1, 1_000_000, "connections")


@frozen(kw_only=True)
class TCPOptions:
    """
    How services are called over TCP.

    @ivar port: Where; 0 takes a free one.
    @ivar hostname: The interface, in place of that of all transports.
    @ivar keepAlive: Whether the system looks after silent connections.
    @ivar noDelay: Whether small frames go out at once.
    @ivar maxFrameSize: Bytes of a frame's payload, or of a line.
    @ivar maxConnections: Connections at a time.
    @ivar maxConnectionsPerAddress: How many of them one client may have.
    """

    port: int = field(default=9102, converter=readPort)
    hostname: str | None = field(default=None, converter=optional(readHostname))
    keepAlive: bool = field(default=True, converter=readFlag)
    noDelay: bool = field(default=True, converter=readFlag)
    maxFrameSize: int = field(default=16 * 1024 * 1024, converter=_frameSize)
    # More than a listener's clients have, and what an unprivileged process may open by far.
    maxConnections: int = field(default=4096, converter=_connections)
    # A large machine's pool; sixteen such addresses fill the listener.
    maxConnectionsPerAddress: int = field(default=256, converter=_connections)


class TCPOptionsDict(TypedDict, total=False):
    """The keywords of L{TCPOptions}."""

    port: int
    hostname: str | None
    keepAlive: bool
    noDelay: bool
    maxFrameSize: int | str
    maxConnections: int
    maxConnectionsPerAddress: int


def _connectionMetrics(counts: TransportMetrics) -> Iterable[MetricFamily]:
    yield plainCounter(
        "storagegate_tcp_connections_accepted_total", "Connections that came.", counts.accepted
    )
    yield plainCounter(
        "storagegate_tcp_connections_closed_total", "Connections that are gone.", counts.closed
    )
    count = 0 if counts.connections is None else counts.connections()
    yield plainGauge("storagegate_tcp_connections_open", "Connections that are there.", count)


def _connectionPool(samples: Samples) -> Any:
    return {
        "open": total(samples, "tcp_connections_open"),
        "accepted": total(samples, "tcp_connections_accepted_total"),
        "closed": total(samples, "tcp_connections_closed_total"),
    }


def _buffers(counts: TransportMetrics) -> Iterable[MetricFamily]:
    held, limit = (0, 1) if counts.held is None else counts.held()
    yield plainGauge("storagegate_tcp_buffer_bytes", "Bytes of incomplete messages.", held)
    yield plainGauge(
        "storagegate_tcp_buffer_ratio",
        "The same as a share of what may be held; of several workers the worst.",
        held / limit,
        "max",
    )


METRICS = (
    ProtocolMetric(name="connection_pool", collect=_connectionMetrics, view=_connectionPool),
    ProtocolMetric(
        name="buffer_utilization",
        collect=_buffers,
        view=lambda samples: total(samples, "tcp_buffer_ratio"),
    ),
)
