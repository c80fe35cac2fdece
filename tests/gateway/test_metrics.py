"""What a gateway counts of its calls. No socket is opened."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext
from storagegate.core.errors import CODES, ServiceError, codedError
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.gateway.metrics import COLLECTORS, CallMetrics, SlidingWindowCounter
from storagegate.gateway.transports.http import AGENT_FAMILIES, agentFamily, countResponse
from storagegate.gateway.transports.metrics import metricsOf
from storagegate.gateway.transports.registry import transportNames, transports
from storagegate.telemetry.metrics import OTHER
from storagegate.telemetry.tracecontext import newTracing

NOT_FOUND = codedError("NOT_FOUND", "nothing")

PROTOCOL_METRICS = {row.name: tuple(metricsOf(row.name)) for row in transports()}
"""Everything that may be chosen of transports."""


class MetricsCase(SynchronousTestCase):
    """A test with metrics on a clock."""

    def setUp(self) -> None:
        """Begin at some second."""
        self.now = 1000.0

    def make(
        self, *collectors: str, protocolMetrics: Mapping[str, tuple[str, ...]] = {}
    ) -> CallMetrics:
        """Make metrics that count these."""
        metrics = CallMetrics(
            streaming=lambda service, method: "server" if method == "list" else "none",
            now=lambda: self.now,
        )
        metrics.choose(collectors, protocolMetrics)
        return metrics

    def call(
        self,
        metrics: CallMetrics,
        method: str = "get",
        error: ServiceError | None = None,
        seconds: float = 0.5,
        protocol: str = "http",
    ) -> None:
        """Tell of a call."""
        context = RequestContext(protocol, "S", method, ClientInfo("c", "a", 1), newTracing())
        metrics.callStarted(context)
        metrics.callEnded(context, error, seconds)

    def values(self, metrics: CallMetrics, name: str) -> dict[Any, Any]:
        """Give the values of a meter by labels."""
        for family in metrics.meters.snapshot():
            if family.name == f"storagegate_{name}":
                return {tuple(labels): value for labels, value in family.samples}
        raise self.failureException(f"there is no {name}")

    def names(self, metrics: CallMetrics) -> set[str]:
        """Give the names of all meters."""
        return {each.name.removeprefix("storagegate_") for each in metrics.meters.snapshot()}


class CollectorTests(MetricsCase):
    """The collectors that may be chosen."""

    def test_requestCount(self) -> None:
        """Calls are counted by wire, service, method and how they ended."""
        metrics = self.make("request_count")
        self.call(metrics)
        self.call(metrics)
        self.call(metrics, error=NOT_FOUND)
        self.call(metrics, "put", protocol="tcp")
        expected = {
            ("http", "S", "get", "ok"): 2,
            ("http", "S", "get", "NOT_FOUND"): 1,
            ("tcp", "S", "put", "ok"): 1,
        }
        self.assertEqual(self.values(metrics, "requests_total"), expected)
        counts = metrics.snapshot()["request_count"]
        self.assertEqual(counts, {"http": {"S.get": 3}, "tcp": {"S.put": 1}})

    def test_requestDuration(self) -> None:
        """Times are a histogram in seconds by method, whatever came of the call."""
        metrics = self.make("request_duration")
        self.call(metrics, seconds=0.25)
        self.call(metrics, seconds=0.75, error=NOT_FOUND)
        [(labels, values)] = self.values(metrics, "request_duration_seconds").items()
        self.assertEqual((labels, sum(values[:-1]), values[-1]), (("http", "S", "get"), 2, 1.0))
        self.assertEqual(metrics.snapshot()["request_duration"], {"http": {"S.get": 500.0}})

    def test_errorRate(self) -> None:
        """Errors are counted by code, and are a share of the last minute."""
        metrics = self.make("error_rate")
        for error in (None, NOT_FOUND, None, None):
            self.call(metrics, error=error)
        self.assertEqual(self.values(metrics, "errors_total"), {("http", "NOT_FOUND"): 1})
        self.assertEqual(metrics.snapshot()["error_rate"], {"http": 0.25})
        self.now += 60
        self.assertEqual(metrics.snapshot()["error_rate"], {})
        self.assertEqual(self.values(metrics, "errors_total"), {("http", "NOT_FOUND"): 1})

    def test_throughput(self) -> None:
        """Calls are told by second, and the bytes of wires."""
        metrics = self.make("throughput")
        for _ in range(120):
            self.call(metrics)
        self.now += 59
        metrics.transports["tcp"].bytesIn += 7
        metrics.transports["tcp"].bytesOut += 9
        self.assertEqual(metrics.snapshot()["throughput"], {"http": 2.0})
        sizes = self.values(metrics, "wire_bytes_total")
        self.assertEqual((sizes["tcp", "in"], sizes["tcp", "out"]), (7, 9))
        self.assertEqual({wire for wire, _ in sizes}, set(transportNames()))

    def test_activeConnections(self) -> None:
        """Connections are asked of those who have them."""
        metrics = self.make("active_connections")
        metrics.transports["tcp"].connections = lambda: 3
        self.assertEqual(self.values(metrics, "active_connections"), {("tcp",): 3})
        self.assertEqual(metrics.snapshot()["active_connections"], {"tcp": 3})

    def test_onlyWhatIsChosen(self) -> None:
        """A collector brings its own meters and no others, and getMetrics its own keys."""
        expected = {
            "request_count": {"requests_total"},
            "request_duration": {"request_duration_seconds"},
            "error_rate": {"errors_total", "error_ratio"},
            "active_connections": {"active_connections"},
            "throughput": {"requests_per_second", "wire_bytes_total"},
        }
        always = {"requests_total", "errors_total", "active_requests", "avg_response_time"}
        self.assertEqual(set(expected), set(COLLECTORS))
        for collector, names in expected.items():
            metrics = self.make(collector)
            self.call(metrics, error=NOT_FOUND)
            metrics.unknown("http")
            self.assertEqual(self.names(metrics), names)
            self.assertEqual(set(metrics.snapshot()), always | {collector})

    def test_unknown(self) -> None:
        """Calls for what is not there have one set of labels, whatever they name."""
        metrics = self.make("request_count", "error_rate")
        metrics.unknown("tcp")
        metrics.unknown("tcp")
        expected = {("tcp", "unknown", "unknown", "NOT_FOUND"): 2}
        self.assertEqual(self.values(metrics, "requests_total"), expected)
        self.assertEqual(self.values(metrics, "errors_total"), {("tcp", "NOT_FOUND"): 2})
        self.assertEqual(self.values(metrics, "error_ratio"), {("tcp",): 1.0})

    def test_codes(self) -> None:
        """A service may have codes of its own, but not any number of them; ours are always kept."""
        metrics = self.make("error_rate")
        for number in range(1000):
            self.call(metrics, error=ServiceError(f"MADE_UP_{number}"))
        for code in CODES:
            self.call(metrics, error=codedError(code, ""))
        counts = self.values(metrics, "errors_total")
        self.assertEqual(counts["http", "MADE_UP_0"], 1)
        self.assertEqual(counts["http", OTHER], 1000 - 50)
        self.assertEqual({code for _, code in counts if code in CODES}, set(CODES))

    def test_manyMethods(self) -> None:
        """A hundred methods on five wires are kept apart."""
        metrics = self.make("request_count", "request_duration")
        for number in range(1000):
            self.call(metrics, f"m{number}")
        self.assertEqual(len(self.values(metrics, "requests_total")), 1000)
        self.assertEqual(len(self.values(metrics, "request_duration_seconds")), 1000)

    def test_chosenAgain(self) -> None:
        """A gateway that could not open chooses again, and counts nothing twice."""
        metrics = self.make(*COLLECTORS)
        metrics.choose(COLLECTORS, {})
        self.call(metrics)
        self.assertEqual(self.values(metrics, "requests_per_second"), {("http",): 1.0})


class WireMetricsTests(MetricsCase):
    """What may be chosen of each wire."""

    def test_onlyWhatIsChosen(self) -> None:
        """Each word brings its own meters and its own key, and no others."""
        expected = {
            ("http", "status_codes"): {"http_responses_total"},
            ("http", "user_agents"): {"http_user_agents_total"},
            ("websocket", "connection_duration"): {"websocket_connection_duration_seconds"},
            ("websocket", "message_frequency"): {"websocket_messages_total"},
            ("grpc", "stream_count"): {"grpc_streams_total"},
            ("grpc", "rpc_latency"): {"grpc_rpc_duration_seconds"},
            ("udp", "packet_loss"): {"udp_lost_total", "udp_duplicates_total", "udp_dropped_total"},
            ("udp", "packet_size"): {"udp_packet_size_bytes"},
            ("tcp", "connection_pool"): {
                "tcp_connections_accepted_total",
                "tcp_connections_closed_total",
                "tcp_connections_open",
            },
            ("tcp", "buffer_utilization"): {"tcp_buffer_bytes", "tcp_buffer_ratio"},
        }
        words = {(name, word) for name, words in PROTOCOL_METRICS.items() for word in words}
        self.assertEqual(set(expected), words)
        for (protocol, word), names in expected.items():
            metrics = self.make(protocolMetrics={protocol: (word,)})
            self.call(metrics, protocol="grpc")
            self.assertEqual(self.names(metrics), names)
            self.assertEqual(set(metrics.snapshot()[protocol]), {word})

    def test_values(self) -> None:
        """The numbers of adapters are told as they are."""
        metrics = self.make(protocolMetrics=PROTOCOL_METRICS)
        http, websocket, udp, tcp = (
            metrics.transports[name] for name in ("http", "websocket", "udp", "tcp")
        )
        countResponse(http, 200, b"curl/8.0")
        countResponse(http, 404, b"")
        websocket.ended(20.0)
        websocket.ended(40.0)
        websocket.messagesIn, websocket.messagesOut = 3, 4
        udp.packetIn(100)
        udp.packetIn(300)
        udp.packetOut(50)
        udp.lost, udp.duplicates, udp.dropped = 2, 3, {"frame": 5}
        tcp.accepted, tcp.closed, tcp.connections = 9, 4, lambda: 5
        tcp.held = lambda: (25, 100)
        found = metrics.snapshot()
        self.assertEqual(
            found["http"],
            {"status_codes": {"200": 1, "404": 1}, "user_agents": {"curl": 1, "none": 1}},
        )
        self.assertEqual(
            found["websocket"],
            {
                "connection_duration": {"count": 2, "average": 30.0},
                "message_frequency": {"in": 3, "out": 4},
            },
        )
        self.assertEqual(
            found["udp"],
            {
                "packet_loss": {"lost": 2, "duplicates": 3, "dropped": {"frame": 5}},
                "packet_size": {"in": 200.0, "out": 50.0},
            },
        )
        self.assertEqual(
            found["tcp"],
            {
                "connection_pool": {"open": 5, "accepted": 9, "closed": 4},
                "buffer_utilization": 0.25,
            },
        )
        self.assertEqual(websocket.closed, 2)

    def test_nothingYet(self) -> None:
        """A wire that is off has nothing to tell, which is no error."""
        found = self.make(protocolMetrics=PROTOCOL_METRICS).snapshot()
        self.assertEqual(found["tcp"]["buffer_utilization"], 0)
        self.assertEqual(found["websocket"]["connection_duration"], {"count": 0, "average": 0.0})

    def test_grpc(self) -> None:
        """Streams are counted by kind, and gRPC has latencies of its own; other wires have not."""
        metrics = self.make(protocolMetrics={"grpc": ("stream_count", "rpc_latency")})
        for method, protocol in (("list", "grpc"), ("get", "grpc"), ("list", "tcp")):
            self.call(metrics, method, protocol=protocol)
        found = metrics.snapshot()["grpc"]
        self.assertEqual(found["stream_count"], {"server": 1})
        self.assertEqual(found["rpc_latency"], {"S.list": 500.0, "S.get": 500.0})


class AgentTests(SynchronousTestCase):
    """Families of clients."""

    def test_families(self) -> None:
        """Known clients have a family, whatever version they are."""
        for agent, family in (
            (b"curl/8.5.0", "curl"),
            (b"python-requests/2.31", "python"),
            (b"Boto3/1.36 md/Botocore#1.36", "python"),
            (b"aws-cli/2.15.0 Python/3.11", "aws"),
            (b"Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0", "firefox"),
            (
                b"Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
                b"Safari/537.36",
                "chrome",
            ),
            (
                b"Mozilla/5.0 (Windows) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 "
                b"Safari/537.36 Edg/120.0",
                "edge",
            ),
            (b"Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Version/17 Safari/605.1.15", "safari"),
            (b"Mozilla/5.0 (compatible; Googlebot/2.1) Chrome/120.0.0.0 Safari/537.36", "bot"),
            (b"Go-http-client/1.1", "go"),
            (b"", "none"),
            (b"\xff\xfe", "other"),
        ):
            self.assertEqual(agentFamily(agent), family, agent)

    @given(st.binary(max_size=300))
    def test_bounded(self, agent: bytes) -> None:
        """Whatever a client calls itself, it is one of a few."""
        known = {family for _, family in AGENT_FAMILIES} | {"none", "other"}
        self.assertIn(agentFamily(agent), known)


class LastMinuteTests(SynchronousTestCase):
    """The ring of seconds."""

    def test_slides(self) -> None:
        """A second counts for a minute, and then no more."""
        minute = SlidingWindowCounter()
        for second in range(100, 160):
            minute.add(second, "http", isFailed=second == 100)
        self.assertEqual(minute.shares(159), {"http": (1.0, 1 / 60)})
        self.assertEqual(minute.shares(160), {"http": (59 / 60, 0.0)})
        self.assertEqual(minute.shares(218), {"http": (1 / 60, 0.0)})
        self.assertEqual(minute.shares(219), {})

    def test_young(self) -> None:
        """Before the first minute is over, the rate is that of the time since the start."""
        minute = SlidingWindowCounter()
        for _ in range(10):
            minute.add(50, "http", isFailed=False)
        self.assertEqual(minute.shares(50), {"http": (10.0, 0.0)})
        self.assertEqual(minute.shares(54), {"http": (2.0, 0.0)})

    @given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60), st.integers(0, 90))
    def test_asCounted(self, steps: list[tuple[int, bool]], later: int) -> None:
        """It tells what a list of all calls would."""
        minute, calls, second = SlidingWindowCounter(), [], 0
        for step, isFailed in steps:
            second += step
            calls.append((second, isFailed))
            minute.add(second, "http", isFailed)
        now = second + later
        recent = [isFailed for when, isFailed in calls if when > now - 60]
        found = minute.shares(now).get("http")
        if not recent:
            self.assertIsNone(found)
        else:
            seconds = min(60, now - calls[0][0] + 1)
            self.assertEqual(found, (len(recent) / seconds, sum(recent) / len(recent)))

    def test_bounded(self) -> None:
        """However long it goes on, it keeps a minute."""
        minute = SlidingWindowCounter()
        for second in range(10_000):
            minute.add(second, "http", isFailed=False)
        self.assertLessEqual(len(minute._ring), 60)


class GatewayTests(SynchronousTestCase):
    """What configureMonitoring makes of it."""

    def test_default(self) -> None:
        """Without a word of monitoring all collectors count, and nothing of wires."""
        gateway = createProtocolGateway()
        gateway.start(object())
        found = gateway.getMetrics()
        self.assertLessEqual(set(COLLECTORS), set(found))
        self.assertFalse(set(PROTOCOL_METRICS) & set(found))

    def test_chosen(self) -> None:
        """Only what was named counts."""
        gateway = createProtocolGateway().configureMonitoring(
            metrics={"collectors": ["throughput"], "protocolMetrics": {"udp": ["packet_size"]}}
        )
        gateway.start(object())
        found = gateway.getMetrics()
        self.assertEqual(set(found) & set(COLLECTORS), {"throughput"})
        self.assertEqual(found["udp"], {"packet_size": {}})

    def test_off(self) -> None:
        """Where metrics are off there are no meters, and adapters count for nobody."""
        gateway = createProtocolGateway().configureMonitoring(metrics={"enabled": False})
        wires = gateway.start(object())
        found = gateway.getMetrics()
        self.assertFalse(set(COLLECTORS) & set(found))
        self.assertEqual(wires.host.meters, {})
        self.assertIsNot(wires.host.meter("tcp"), wires.host.meter("tcp"))
        gateway.invoker.onUnknown("http")
        self.assertEqual(gateway.getMetrics(), found)
