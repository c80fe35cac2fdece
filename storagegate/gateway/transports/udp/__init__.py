"""UDP: its options, and its metrics (losses and sizes of datagrams)."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import (
    Hook,
    OptionError,
    optionField,
    readFunction,
    readHostname,
    readNumber,
    readPort,
    readSize,
)
from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    Streaming,
    TransportMetrics,
    average,
    byLabel,
    plainCounter,
    total,
)
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily

PROTOCOL = "udp"
"""The name of this transport."""

Address = tuple[str, int]
"""Host and port of a client."""

MAX_DATAGRAM = 65_507
"""The maximum payload of an IPv4 datagram in bytes."""


def _packetSize(value: Any) -> int:
    return readNumber(readSize(value), 64, MAX_DATAGRAM, "bytes")


@frozen(kw_only=True)
class UDPOptions:
    """
    The options of calls over UDP.

    @ivar port: The port; 0 takes a free one.
    @ivar hostname: The interface; C{None} for the interface of all transports.
    @ivar maxPacketSize: The maximum size of a reply's datagram in bytes; the default is never
        fragmented in practice.
    @ivar maxCallsPerAddress: How many of the 1024 concurrent calls one address may make, over all
        its ports; C{None} for three quarters.
    @ivar parseMessage: C{(bytes)} returns the message.
    @ivar formatResponse: C{(result, type)} returns bytes; C{type} is C{response}, C{error},
        C{stream} or C{stream_end}.
    @ivar routeMessage: C{(message)} returns a mapping of C{service}, C{method}, C{request} and
        C{messageId}.
    """

    port: int = optionField(9103, readPort)
    hostname: str | None = optionField(None, readHostname)
    maxPacketSize: int = optionField(1200, _packetSize)
    maxCallsPerAddress: int | None = optionField(None, readNumber, 1, 1_000_000, "calls")
    parseMessage: Hook | None = field(default=None, converter=optional(readFunction))
    formatResponse: Hook | None = field(default=None, converter=optional(readFunction))
    routeMessage: Hook | None = field(default=None, converter=optional(readFunction))

    @staticmethod
    def flattened(given: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the options of C{configureUDP}, whose C{protocol} may hold some of the hooks.

        @raise OptionError: If C{protocol} is not a mapping.
        """
        options = dict(given)
        protocol = options.pop("protocol", {})
        if not isinstance(protocol, Mapping):
            raise OptionError("the option udp.protocol is a mapping of functions")
        return {**options, **protocol}


class UDPOptionsDict(TypedDict, total=False):
    """The keywords of L{UDPOptions}."""

    port: int
    hostname: str | None
    maxPacketSize: int | str
    maxCallsPerAddress: int | None
    parseMessage: Hook | None
    formatResponse: Hook | None
    routeMessage: Hook | None


class UDPConfigurationDict(UDPOptionsDict, total=False):
    """The keywords of C{configureUDP}."""

    protocol: Mapping[str, Hook]


_BYTES = (64, 128, 256, 512, 1200, 1472, 4096, 16_384, MAX_DATAGRAM)
"""1,200 bytes pass every network, 1,472 fit an Ethernet frame, and 65,507 an IPv4 packet."""


def _losses(counts: TransportMetrics) -> Iterable[MetricFamily]:
    yield plainCounter(
        "storagegate_udp_lost_total", "Stream items that never arrived.", counts.lost
    )
    yield plainCounter("storagegate_udp_duplicates_total", "Repeated datagrams.", counts.duplicates)
    yield counterFamily(
        "storagegate_udp_dropped_total",
        "Dropped datagrams by reason.",
        ("reason",),
        [((reason,), count) for reason, count in counts.dropped.items()],
    )


def _packetLoss(samples: Samples) -> Any:
    return {
        "lost": total(samples, "udp_lost_total"),
        "duplicates": total(samples, "udp_duplicates_total"),
        "dropped": byLabel("udp_dropped_total")(samples),
    }


def _measureSizes(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    counts.sizes = meters.histogram(
        "storagegate_udp_packet_size_bytes", "Sizes of datagrams.", ("direction",), _BYTES
    )


def _packetSizeMetric(samples: Samples) -> Any:
    return {labels[0]: average(value) for labels, value in samples("udp_packet_size_bytes")}


METRICS = (
    ProtocolMetric(name="packet_loss", collect=_losses, view=_packetLoss),
    ProtocolMetric(name="packet_size", start=_measureSizes, view=_packetSizeMetric),
)
