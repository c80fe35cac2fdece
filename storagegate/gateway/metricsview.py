"""What C{getMetrics} tells of the collectors: the meters' snapshot as plain numbers by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from storagegate.core.meters import Family

Sample = tuple[Sequence[str], Any]


def describeMetrics(
    families: Iterable[Family],
    collectors: Iterable[str],
    protocolMetrics: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """
    Give the numbers of what was chosen; times are milliseconds, of WebSockets seconds.

    @return: C{request_count}, C{request_duration} (averages) by protocol and C{Service.method};
        C{error_rate} (a share), C{active_connections} and C{throughput} (calls a second) by
        protocol; and a mapping for each protocol that something was chosen of.
    """
    samples = {family.name: family.samples for family in families}

    def of(name: str) -> Sequence[Sample]:
        return samples.get(f"storagegate_{name}", ())

    described: dict[str, Any] = {word: _COLLECTORS[word](of) for word in collectors}
    for protocol, words in protocolMetrics.items():
        described[protocol] = {word: _OF_WIRES[protocol, word](of) for word in words}
    return described


_Of = Callable[[str], Sequence[Sample]]


def _plain(name: str) -> Callable[[_Of], Any]:
    """Describe a meter with one label."""
    return lambda of: {labels[0]: value for labels, value in of(name)}


def _number(of: _Of, name: str) -> Any:
    return sum(value for _, value in of(name))


def _average(values: Sequence[float], factor: float = 1) -> float:
    count = sum(values[:-1])
    return values[-1] * factor / count if count else 0.0


def _requestCount(of: _Of) -> Any:
    counts: dict[str, dict[str, int]] = {}
    for (protocol, service, method, _), value in of("requests_total"):
        methods = counts.setdefault(protocol, {})
        name = f"{service}.{method}"
        methods[name] = methods.get(name, 0) + value
    return counts


def _requestDuration(of: _Of) -> Any:
    durations: dict[str, dict[str, float]] = {}
    for (protocol, service, method), values in of("request_duration_seconds"):
        durations.setdefault(protocol, {})[f"{service}.{method}"] = _average(values, 1000)
    return durations


def _connectionDuration(of: _Of) -> Any:
    values = next((value for _, value in of("websocket_connection_duration_seconds")), (0, 0.0))
    return {"count": sum(values[:-1]), "average": _average(values)}


def _rpcLatency(of: _Of) -> Any:
    found = of("grpc_rpc_duration_seconds")
    return {f"{service}.{method}": _average(value, 1000) for (service, method), value in found}


def _packetLoss(of: _Of) -> Any:
    return {
        "lost": _number(of, "udp_lost_total"),
        "duplicates": _number(of, "udp_duplicates_total"),
        "dropped": _plain("udp_dropped_total")(of),
    }


def _packetSize(of: _Of) -> Any:
    return {labels[0]: _average(value) for labels, value in of("udp_packet_size_bytes")}


def _connectionPool(of: _Of) -> Any:
    return {
        "open": _number(of, "tcp_connections_open"),
        "accepted": _number(of, "tcp_connections_accepted_total"),
        "closed": _number(of, "tcp_connections_closed_total"),
    }


_COLLECTORS: Mapping[str, Callable[[_Of], Any]] = {
    "request_count": _requestCount,
    "request_duration": _requestDuration,
    "error_rate": _plain("error_ratio"),
    "active_connections": _plain("active_connections"),
    "throughput": _plain("requests_per_second"),
}

_OF_WIRES: Mapping[tuple[str, str], Callable[[_Of], Any]] = {
    ("http", "status_codes"): _plain("http_responses_total"),
    ("http", "user_agents"): _plain("http_user_agents_total"),
    ("websocket", "connection_duration"): _connectionDuration,
    ("websocket", "message_frequency"): _plain("websocket_messages_total"),
    ("grpc", "stream_count"): _plain("grpc_streams_total"),
    ("grpc", "rpc_latency"): _rpcLatency,
    ("udp", "packet_loss"): _packetLoss,
    ("udp", "packet_size"): _packetSize,
    ("tcp", "connection_pool"): _connectionPool,
    ("tcp", "buffer_utilization"): lambda of: _number(of, "tcp_buffer_ratio"),
}
