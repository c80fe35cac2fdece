"""What is told of each wire, as far as C{metrics.protocolMetrics} chooses it."""

from collections.abc import Iterable, Mapping

from storagegate.core.meters import (
    Counter,
    Family,
    Histogram,
    Meters,
    counterFamily,
    gaugesFamily,
)
from storagegate.gateway.wiremeters import MAX_ROUTES, WireMeter

Chosen = Mapping[str, tuple[str, ...]]
"""What was chosen, by protocol."""

_CONNECTION_SECONDS = (0.1, 1, 10, 60, 300, 900, 3600, 14_400, 86_400)
"""What matters of a WebSocket is whether it lasts for moments, minutes or days."""

_PACKET_BYTES = (64, 128, 256, 512, 1200, 1472, 4096, 16_384, 65_507)
"""1,200 bytes get through everywhere, 1,472 fit an Ethernet frame, 65,507 IPv4."""


def chooseOfWires(
    meters: Meters, wires: Mapping[str, WireMeter], chosen: Chosen
) -> tuple[Counter | None, Histogram | None]:
    """
    Make the meters that adapters count with.

    @return: Those of gRPC: streams by kind, and how long calls took.
    """
    streams = latency = None
    if _has(chosen, "http", "status_codes"):
        wires["http"].answers = meters.counter(
            "storagegate_http_responses_total", "Answers by status.", ("status",)
        )
    if _has(chosen, "http", "user_agents"):
        wires["http"].agents = meters.counter(
            "storagegate_http_user_agents_total", "Requests by family of clients.", ("family",)
        )
    if _has(chosen, "websocket", "connection_duration"):
        wires["websocket"].durations = meters.histogram(
            "storagegate_websocket_connection_duration_seconds",
            "How long WebSockets that are gone were there.",
            (),
            _CONNECTION_SECONDS,
        )
    if _has(chosen, "udp", "packet_size"):
        wires["udp"].sizes = meters.histogram(
            "storagegate_udp_packet_size_bytes",
            "Sizes of datagrams.",
            ("direction",),
            _PACKET_BYTES,
        )
    if _has(chosen, "grpc", "stream_count"):
        streams = meters.counter(
            "storagegate_grpc_streams_total", "Streaming calls that have ended.", ("kind",)
        )
    if _has(chosen, "grpc", "rpc_latency"):
        latency = meters.histogram(
            "storagegate_grpc_rpc_duration_seconds",
            "How long calls by gRPC took.",
            ("service", "method"),
        )
        latency.maxSets = MAX_ROUTES
    return streams, latency


def collectOfWires(wires: Mapping[str, WireMeter], chosen: Chosen) -> Iterable[Family]:
    """Make the families of what adapters keep themselves."""
    if not wires:
        return
    if _has(chosen, "websocket", "message_frequency"):
        wire = wires["websocket"]
        yield counterFamily(
            "storagegate_websocket_messages_total",
            "Messages of WebSockets.",
            ("direction",),
            [(("in",), wire.messagesIn), (("out",), wire.messagesOut)],
        )
    if _has(chosen, "udp", "packet_loss"):
        yield from _packetLoss(wires["udp"])
    if _has(chosen, "tcp", "connection_pool"):
        yield from _connectionPool(wires["tcp"])
    if _has(chosen, "tcp", "buffer_utilization"):
        held, limit = (wires["tcp"].held or _nothingHeld)()
        name, help = "storagegate_tcp_buffer_bytes", "Bytes of incomplete messages."
        yield gaugesFamily(name, help, (), [((), held)])
        help = "The same as a share of what may be held; of several workers the worst."
        name = "storagegate_tcp_buffer_ratio"
        yield gaugesFamily(name, help, (), [((), held / limit)], "max")


def _has(chosen: Chosen, protocol: str, word: str) -> bool:
    return word in chosen.get(protocol, ())


def _nothingHeld() -> tuple[int, int]:
    return 0, 1


def _packetLoss(wire: WireMeter) -> Iterable[Family]:
    name, help = "storagegate_udp_lost_total", "Items of streams that never came."
    yield counterFamily(name, help, (), [((), wire.lost)])
    name, help = "storagegate_udp_duplicates_total", "Datagrams that came again."
    yield counterFamily(name, help, (), [((), wire.duplicates)])
    yield counterFamily(
        "storagegate_udp_dropped_total",
        "Datagrams that were dropped, by reason.",
        ("reason",),
        [((reason,), count) for reason, count in wire.dropped.items()],
    )


def _connectionPool(wire: WireMeter) -> Iterable[Family]:
    name, help = "storagegate_tcp_connections_accepted_total", "Connections that came."
    yield counterFamily(name, help, (), [((), wire.accepted)])
    name, help = "storagegate_tcp_connections_closed_total", "Connections that are gone."
    yield counterFamily(name, help, (), [((), wire.closed)])
    count = 0 if wire.connections is None else wire.connections()
    name, help = "storagegate_tcp_connections_open", "Connections that are there."
    yield gaugesFamily(name, help, (), [((), count)])
