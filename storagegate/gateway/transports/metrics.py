"""
What the adapters of a gateway count of their wires, beside the calls.

The numbers are attributes that an adapter adds to, a twentieth of a microsecond each; what is made
of them, and whether anybody wants them, is known in L{storagegate.gateway.metrics}.

What is told of each wire, as far as C{metrics.protocolMetrics} chooses it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from storagegate.telemetry.metrics import Counter as Count
from storagegate.telemetry.metrics import (
    Histogram,
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugesFamily,
)

PROTOCOLS = ("http", "websocket", "grpc", "udp", "tcp")

MAX_ROUTES = 5000
"""Label sets of a meter by method: a hundred methods by five wires, each with ten outcomes."""

_IN = ("in",)
_OUT = ("out",)

AGENT_FAMILIES = (
    # The first that is found counts: a browser names those whose pages it wants too, a robot the
    # browser that it works with, and Amazon's tools what they are made of.
    ("aws-", "aws"),
    ("boto", "python"),
    ("bot", "bot"),
    ("edg", "edge"),
    ("opr/", "opera"),
    ("firefox", "firefox"),
    ("chrome", "chrome"),
    ("safari", "safari"),
    ("curl", "curl"),
    ("wget", "wget"),
    ("python", "python"),
    ("aiohttp", "python"),
    ("okhttp", "java"),
    ("java", "java"),
    ("node", "node"),
    ("axios", "node"),
    ("undici", "node"),
    ("go-http", "go"),
    ("kube-probe", "kubernetes"),
    ("prometheus", "prometheus"),
)
"""What names a family of clients, in lower case. Anybody can make user agents up; families not."""


@define(eq=False)
class TransportMetrics:
    """
    The counts of one wire.

    @ivar accepted: Connections that were taken.
    @ivar closed: Those of them that are gone.
    @ivar duplicates: Datagrams that came again.
    @ivar lost: Items of streams that never came.
    @ivar connections: Counts the connections that are there; C{None} where nobody can.
    @ivar held: Gives how many bytes of incomplete messages are held, and how many may be.
    @ivar dropped: Datagrams that were dropped, by reason.
    @ivar durations: Takes how long connections were there, if that is wanted.
    @ivar sizes: Takes the sizes of datagrams, if they are wanted.
    @ivar answers: Counts answers by status, if that is wanted.
    @ivar agents: Counts requests by family of clients, if that is wanted.
    """

    bytesIn: int = 0
    bytesOut: int = 0
    messagesIn: int = 0
    messagesOut: int = 0
    accepted: int = 0
    closed: int = 0
    duplicates: int = 0
    lost: int = 0
    connections: Callable[[], int] | None = None
    held: Callable[[], tuple[int, int]] | None = None
    dropped: Mapping[str, int] = field(factory=Counter)
    durations: Histogram | None = None
    sizes: Histogram | None = None
    answers: Count | None = None
    agents: Count | None = None

    def ended(self, seconds: float) -> None:
        """Take note of the end of a connection."""
        self.closed += 1
        if self.durations is not None:
            self.durations.observe(seconds)

    def packetIn(self, size: int) -> None:
        """Take note of a datagram that came."""
        self.bytesIn += size
        if self.sizes is not None:
            self.sizes.observe(size, _IN)

    def packetOut(self, size: int) -> None:
        """Take note of a datagram that goes out."""
        self.bytesOut += size
        if self.sizes is not None:
            self.sizes.observe(size, _OUT)

    def answered(self, status: int, agent: bytes) -> None:
        """Take note of an answer of HTTP, and of who got it."""
        if self.answers is not None:
            self.answers.add(1, (str(status),))
        if self.agents is not None:
            self.agents.add(1, (agentFamily(agent),))


def agentFamily(agent: bytes) -> str:
    """Give the family that a user agent is of."""
    if not agent:
        return "none"
    # What matters stands at the beginning, and of a browser within the first 200 bytes.
    text = agent[:200].decode("latin-1").lower()
    for part, family in AGENT_FAMILIES:
        if part in text:
            return family
    return "other"


Chosen = Mapping[str, tuple[str, ...]]
"""What was chosen, by protocol."""

_CONNECTION_SECONDS = (0.1, 1, 10, 60, 300, 900, 3600, 14_400, 86_400)
"""What matters of a WebSocket is whether it lasts for moments, minutes or days."""

_PACKET_BYTES = (64, 128, 256, 512, 1200, 1472, 4096, 16_384, 65_507)
"""1,200 bytes get through everywhere, 1,472 fit an Ethernet frame, 65,507 IPv4."""


def chooseOfWires(
    meters: MetricsRegistry, wires: Mapping[str, TransportMetrics], chosen: Chosen
) -> tuple[Count | None, Histogram | None]:
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


def collectOfWires(wires: Mapping[str, TransportMetrics], chosen: Chosen) -> Iterable[MetricFamily]:
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


def _packetLoss(wire: TransportMetrics) -> Iterable[MetricFamily]:
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


def _connectionPool(wire: TransportMetrics) -> Iterable[MetricFamily]:
    name, help = "storagegate_tcp_connections_accepted_total", "Connections that came."
    yield counterFamily(name, help, (), [((), wire.accepted)])
    name, help = "storagegate_tcp_connections_closed_total", "Connections that are gone."
    yield counterFamily(name, help, (), [((), wire.closed)])
    count = 0 if wire.connections is None else wire.connections()
    name, help = "storagegate_tcp_connections_open", "Connections that are there."
    yield gaugesFamily(name, help, (), [((), count)])
