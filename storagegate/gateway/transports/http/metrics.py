"""What may be chosen of HTTP: its answers by status, and its clients by family."""

from storagegate.gateway.transports.metrics import ProtocolMetric, Streaming, WireMeter, byLabel
from storagegate.telemetry.metrics import MetricsRegistry

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


def countAnswer(meter: WireMeter, status: int, agent: bytes) -> None:
    """Count an answer, and the family of the client that got it."""
    if meter.answers is not None:
        meter.answers.add(1, (str(status),))
    if meter.agents is not None:
        meter.agents.add(1, (agentFamily(agent),))


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


def _countStatus(meters: MetricsRegistry, wire: WireMeter, streaming: Streaming | None) -> None:
    wire.answers = meters.counter(
        "storagegate_http_responses_total", "Answers by status.", ("status",)
    )


def _countAgents(meters: MetricsRegistry, wire: WireMeter, streaming: Streaming | None) -> None:
    wire.agents = meters.counter(
        "storagegate_http_user_agents_total", "Requests by family of clients.", ("family",)
    )


METRICS = (
    ProtocolMetric(name="status_codes", start=_countStatus, view=byLabel("http_responses_total")),
    ProtocolMetric(name="user_agents", start=_countAgents, view=byLabel("http_user_agents_total")),
)
