"""What may be chosen of UDP: what was lost, and how large datagrams are."""

from collections.abc import Iterable
from typing import Any

from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    Streaming,
    WireMeter,
    average,
    byLabel,
    plainCounter,
    total,
)
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily

_BYTES = (64, 128, 256, 512, 1200, 1472, 4096, 16_384, 65_507)
"""1,200 bytes get through everywhere, 1,472 fit an Ethernet frame, 65,507 IPv4."""


def _losses(wire: WireMeter) -> Iterable[MetricFamily]:
    yield plainCounter("storagegate_udp_lost_total", "Items of streams that never came.", wire.lost)
    yield plainCounter(
        "storagegate_udp_duplicates_total", "Datagrams that came again.", wire.duplicates
    )
    yield counterFamily(
        "storagegate_udp_dropped_total",
        "Datagrams that were dropped, by reason.",
        ("reason",),
        [((reason,), count) for reason, count in wire.dropped.items()],
    )


def _packetLoss(samples: Samples) -> Any:
    return {
        "lost": total(samples, "udp_lost_total"),
        "duplicates": total(samples, "udp_duplicates_total"),
        "dropped": byLabel("udp_dropped_total")(samples),
    }


def _measureSizes(meters: MetricsRegistry, wire: WireMeter, streaming: Streaming | None) -> None:
    wire.sizes = meters.histogram(
        "storagegate_udp_packet_size_bytes", "Sizes of datagrams.", ("direction",), _BYTES
    )


def _packetSize(samples: Samples) -> Any:
    return {labels[0]: average(value) for labels, value in samples("udp_packet_size_bytes")}


METRICS = (
    ProtocolMetric(name="packet_loss", collect=_losses, view=_packetLoss),
    ProtocolMetric(name="packet_size", start=_measureSizes, view=_packetSize),
)
