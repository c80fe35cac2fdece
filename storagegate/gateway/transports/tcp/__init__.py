"""TCP: its options, and its metrics (connections, memory of incomplete messages)."""

from collections.abc import Iterable
from typing import Any, TypedDict

from attrs import field, frozen
from msgspec import Struct

from storagegate.core.context import REQUEST_SECONDS
from storagegate.core.options import (
    optionField,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSize,
)
from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    TransportMetrics,
    plainCounter,
    plainGauge,
    total,
)
from storagegate.net.tls import ServerTLSOptions, TLSOptionsDict, readTLS
from storagegate.telemetry.metrics import MetricFamily

PROTOCOL = "tcp"
"""The name of this transport."""


def _frameSize(value: Any) -> int:
    # A length field allows 4 GiB, but few machines can hold more than 1 GiB twice.
    return readNumber(readSize(value), 64, 1024 * 1024 * 1024, "bytes")


@frozen(kw_only=True)
class TCPOptions:
    """
    The options of calls over TCP.

    @ivar port: The port; 0 takes a free one.
    @ivar hostname: The interface; C{None} for the interface of all transports.
    @ivar tls: The certificate of the listener, and whether clients need one; C{None} for plain
        text.
    @ivar keepAlive: Whether the system probes silent connections (C{SO_KEEPALIVE}).
    @ivar noDelay: Whether small frames are sent at once (C{TCP_NODELAY}).
    @ivar maxFrameSize: The maximum length of a frame's payload, or of a line, in bytes.
    @ivar maxConnections: The maximum number of connections.
    @ivar maxConnectionsPerAddress: The maximum number of connections of one address; C{None} for
        three quarters.
    @ivar maxCallsPerAddress: How many of the 1024 concurrent calls one address may make; C{None}
        for three quarters.
    """

    port: int = optionField(9102, readPort)
    hostname: str | None = optionField(None, readHostname)
    tls: ServerTLSOptions | None = field(default=None, converter=readTLS)
    keepAlive: bool = optionField(True, readFlag)
    noDelay: bool = optionField(True, readFlag)
    maxFrameSize: int = optionField(16 * 1024 * 1024, _frameSize)
    # More than the clients of a listener need, and fewer than an unprivileged process may open.
    maxConnections: int = optionField(4096, readNumber, 1, 1_000_000, "connections")
    maxConnectionsPerAddress: int | None = optionField(
        None, readNumber, 1, 1_000_000, "connections"
    )
    maxCallsPerAddress: int | None = optionField(None, readNumber, 1, 1_000_000, "calls")


class TCPOptionsDict(TypedDict, total=False):
    """The keywords of L{TCPOptions}."""

    port: int
    hostname: str | None
    tls: TLSOptionsDict | ServerTLSOptions | None
    keepAlive: bool
    noDelay: bool
    maxFrameSize: int | str
    maxConnections: int
    maxConnectionsPerAddress: int | None
    maxCallsPerAddress: int | None


def _connectionMetrics(counts: TransportMetrics) -> Iterable[MetricFamily]:
    yield plainCounter(
        "storagegate_tcp_connections_accepted_total", "Accepted connections.", counts.accepted
    )
    yield plainCounter(
        "storagegate_tcp_connections_closed_total", "Closed connections.", counts.closed
    )
    count = 0 if counts.connections is None else counts.connections()
    yield plainGauge("storagegate_tcp_connections_open", "Open connections.", count)


def _connectionPool(samples: Samples) -> Any:
    return {
        "open": total(samples, "tcp_connections_open"),
        "accepted": total(samples, "tcp_connections_accepted_total"),
        "closed": total(samples, "tcp_connections_closed_total"),
    }


def _buffers(counts: TransportMetrics) -> Iterable[MetricFamily]:
    held, limit = (0, 1) if counts.held is None else counts.held()
    yield plainGauge("storagegate_tcp_buffer_bytes", "Bytes held for incomplete messages.", held)
    yield plainGauge(
        "storagegate_tcp_buffer_ratio",
        "Share of the limit that these bytes use; the maximum of all workers.",
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


class TCPLimits(Struct, frozen=True, kw_only=True):
    """
    The timeouts and limits of a listener.

    @ivar frameSeconds: How long an incomplete frame or line may take for C{frameProgress} bytes; a
        slow modem needs a tenth of this time.
    @ivar messageSeconds: How long a frame or a line may take altogether.
    @ivar stallSeconds: How long a client may read none of its output; the same as for HTTP.
    @ivar lingerSeconds: How long a refused client may take to read the error.
    @ivar lingerBytes: How many bytes of its input are discarded meanwhile.
    @ivar probeSeconds: The delay before the first probe of a client that has shut its writing side;
        each further delay is twice as long.
    @ivar lastProbeSeconds: The longest of these delays.
    @ivar batchBytes: How many bytes of replies are sent in one write.
    """

    frameSeconds: float = 30
    frameProgress: int = 16 * 1024
    messageSeconds: float = REQUEST_SECONDS
    stallSeconds: float = 300
    lingerSeconds: float = 2
    lingerBytes: int = 1024 * 1024
    probeSeconds: float = 1
    lastProbeSeconds: float = 30
    batchBytes: int = 64 * 1024
