"""
What the adapters of a gateway count of their wires, beside the calls.

The numbers are attributes that an adapter adds to, a twentieth of a microsecond each; what is made
of them, and whether anybody wants them, is known in L{storagegate.gateway.metrics}.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from attrs import define, field

from storagegate.core.meters import Counter as Count
from storagegate.core.meters import Histogram

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
class WireMeter:
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
