"""What may be chosen of gRPC: how many calls stream, and how long calls take."""

from collections.abc import Sequence
from typing import Any

from storagegate.gateway.transports.metrics import (
    MAX_ROUTES,
    ProtocolMetric,
    Samples,
    Streaming,
    WireMeter,
    average,
    byLabel,
)
from storagegate.telemetry.metrics import MetricsRegistry


def _countStreams(meters: MetricsRegistry, wire: WireMeter, streaming: Streaming | None) -> None:
    streams = meters.counter(
        "storagegate_grpc_streams_total", "Streaming calls that have ended.", ("kind",)
    )

    def ended(service: str, method: str, seconds: Sequence[float]) -> None:
        kind = "none" if streaming is None else streaming(service, method)
        if kind != "none":
            streams.add(len(seconds), (kind,))

    wire.onEnds.append(ended)


def _measureCalls(meters: MetricsRegistry, wire: WireMeter, streaming: Streaming | None) -> None:
    latency = meters.histogram(
        "storagegate_grpc_rpc_duration_seconds",
        "How long calls by gRPC took.",
        ("service", "method"),
    )
    latency.maxSets = MAX_ROUTES

    def ended(service: str, method: str, seconds: Sequence[float]) -> None:
        latency.observeAll(seconds, (service, method))

    wire.onEnds.append(ended)


def _latency(samples: Samples) -> Any:
    found = samples("grpc_rpc_duration_seconds")
    return {f"{service}.{method}": average(value, 1000) for (service, method), value in found}


METRICS = (
    ProtocolMetric(name="stream_count", start=_countStreams, view=byLabel("grpc_streams_total")),
    ProtocolMetric(name="rpc_latency", start=_measureCalls, view=_latency),
)
