"""Calls over every wire, traced by the real daemon to a collector that is a process of its own."""

import signal
import time
from typing import Any
from urllib.request import urlopen

from tests.support.daemon import DaemonFailed
from tests.support.selection import long
from tests.wire.telemetry.tracedcase import TRACE, TracedCase, parent

WIRES = ("http", "websocket", "grpc", "tcp", "udp", "s3")


class WireTests(TracedCase):
    """One trace through everything that the daemon serves."""

    @long("takes a second or more")
    def test_all(self) -> None:
        """A call over each of five wires and a request of S3 are spans of their caller's trace."""
        daemon = self.started("", "http", "grpc", "tcp", "udp", "s3")
        named = {name: f"{number + 1:016x}" for number, name in enumerate(WIRES)}
        said = {"tracestate": "vendor=1"}
        before = time.time_ns()
        self.callHTTP(daemon, traceparent=parent(named["http"]), **said)
        self.callWebSocket(daemon, traceparent=parent(named["websocket"]), **said)
        metadata = self.callGRPC(daemon, traceparent=parent(named["grpc"]), **said)
        self.assertEqual(metadata["x-trace-id"], TRACE)
        self.callTCP(daemon, traceparent=parent(named["tcp"]), **said)
        self.callUDP(daemon, traceparent=parent(named["udp"]), **said)
        answer = self.callS3(daemon, "GET", "/", traceparent=parent(named["s3"]), **said)
        self.assertEqual((answer.status, answer.headers["x-trace-id"]), (200, TRACE))
        spans = self.collector.spans(len(WIRES))
        after = time.time_ns()
        self.assertEqual(len({span["spanId"] for span in spans}), len(WIRES))
        found = {span["attributes"]["storagegate.protocol"]: span for span in spans}
        self.assertEqual(set(found), set(WIRES))
        for wire, span in found.items():
            self.assertEqual((span["traceId"], span["parentId"]), (TRACE, named[wire]), wire)
            self.assertEqual((span["kind"], span["state"]), ("SERVER", "vendor=1"))
            self.assertEqual(span["name"], "ListBuckets" if wire == "s3" else "Probe/echo")
            self.assertEqual(span["attributes"]["client.address"], "127.0.0.1")
            self.assertEqual(span["status"], 0)
            self.assertLess(before, span["start"])
            self.assertLess(span["start"], span["end"])
            self.assertLess(span["end"], after)
            self.assertEqual(span["resource"]["service.name"], "storagegate")
        self.assertEqual(found["grpc"]["attributes"]["rpc.system.name"], "grpc")
        about = found["s3"]["attributes"]
        self.assertEqual(about["url.path"], "/")
        self.assertEqual(about["http.request.method"], "GET")
        self.assertEqual(about["http.response.status_code"], 200)
        self.assertGreater(about["http.response.body.size"], 100)
        with urlopen(f"{daemon.url('admin')}/metrics", timeout=60) as page:
            self.assertIn(b'storagegate_spans_total{outcome="dropped"} 0.0', page.read())
        self.assertEqual(daemon.stop(), 0)

    @long("takes a second or more")
    def test_new(self) -> None:
        """Who names no trace begins one, and learns its id; X-Trace-ID alone names one."""
        daemon = self.started("", "http", "s3")
        _status, headers, _body = self.callHTTP(daemon)
        own = headers["x-trace-id"]
        _status, headers, _body = self.callHTTP(daemon, X_Trace_ID=TRACE.upper())
        self.assertEqual(headers["x-trace-id"], TRACE)
        answer = self.callS3(daemon, "GET", "/none?secret=x", x_trace_id=TRACE)
        self.assertEqual((answer.status, answer.headers["x-trace-id"]), (404, TRACE))
        spans = self.collector.spans(3)
        self.assertEqual([span["traceId"] for span in spans], [own, TRACE, TRACE])
        self.assertEqual([span["parentId"] for span in spans], ["", "", ""])
        for span in spans:
            self.assertId(span["spanId"], 16)
        about = spans[2]["attributes"]
        self.assertEqual((about["error.type"], about["url.path"]), ("NoSuchBucket", "/none"))
        self.assertNotIn("secret", repr(spans))

    @long("takes a second or more")
    def test_handler(self) -> None:
        """A handler sees the span that is recorded, so that what it calls can go on with it."""
        daemon = self.started('correlationHeader = "X-Request"')
        _status, headers, body = self.callHTTP(daemon, "whoami")
        [span] = self.collector.spans(1)
        expected = {"trace": span["traceId"], "own": span["spanId"], "sampled": True}
        self.assertEqual(body["data"], expected)
        self.assertEqual(headers["x-request"], span["traceId"])
        self.assertNotIn("x-trace-id", headers)

    @long("takes a second or more")
    def test_errors(self) -> None:
        """A failure of the server's is one, a mistake of the caller's is not; texts stay here."""
        daemon = self.started("")
        self.callHTTP(daemon, "refuse")
        self.callHTTP(daemon, "fail")
        refused, failed = self.collector.spans(2)
        for span, code, status, statusCode in (
            (refused, "NOT_FOUND", 0, 404),
            (failed, "BROKEN", 2, 503),
        ):
            self.assertEqual(span["attributes"]["error.type"], code)
            self.assertEqual(span["attributes"]["http.response.status_code"], statusCode)
            self.assertEqual(span["status"], status)
        self.assertNotIn("secret", repr((refused, failed)))

    @long("takes a second or more")
    def test_attributes(self) -> None:
        """A user's attributes are there, but for those that cannot be; a failure is told once."""
        daemon = self.started('spanAttributes = "traced:attributes"\nserviceName = "shop"')
        self.callHTTP(daemon)
        for _ in range(2):
            self.assertEqual(self.callHTTP(daemon, "fail")[0], 503)
        spans = self.collector.spans(3)
        about = spans[0]["attributes"]
        self.assertEqual((about["tenant"], about["parts"]), ("blue", [1, 2]))
        self.assertEqual(about["rpc.method"], "Probe/echo")
        self.assertNotIn("odd", about)
        self.assertEqual({span["resource"]["service.name"] for span in spans}, {"shop"})
        daemon.waitForLog("spanAttributes failed")
        self.assertEqual(daemon.log.count("spanAttributes failed"), 1)


class ForwardTests(TracedCase):
    """A call that goes on to another daemon."""

    @long("takes a second or more")
    def test_chain(self) -> None:
        """The other daemon's span belongs to the attempt, and that to the call that came in."""
        there = self.started('serviceName = "there"')
        host, port = there.address("http")
        services = (
            "[gateway.discovery.services.Probe]\nmethods = { echo = {}, refuse = {} }\n"
            f'instances = [{{ host = "{host}", port = {port} }}]'
        )
        here = self.started('serviceName = "here"', more=services)
        self.callHTTP(here, traceparent=parent(), tracestate="vendor=1")
        spans = self.collector.spans(3)
        found = {(span["resource"]["service.name"], span["kind"]): span for span in spans}
        came, went, arrived = (
            found["here", "SERVER"],
            found["here", "CLIENT"],
            found["there", "SERVER"],
        )
        self.assertEqual({span["traceId"] for span in spans}, {TRACE})
        self.assertEqual({span["state"] for span in spans}, {"vendor=1"})
        self.assertEqual({span["name"] for span in spans}, {"Probe/echo"})
        self.assertEqual(came["parentId"], "00f067aa0ba902b7")
        self.assertEqual(went["parentId"], came["spanId"])
        self.assertEqual(arrived["parentId"], went["spanId"])
        self.assertEqual(went["attributes"]["server.port"], port)


class ProviderTests(TracedCase):
    """Where spans go."""

    @long("takes a second or more")
    def test_zipkin(self) -> None:
        """Zipkin gets its own JSON."""
        place = self.collector.url(path="/api/v2/spans")
        daemon = self.started(f'provider = "zipkin"\nendpoint = "{place}"')
        self.callHTTP(daemon, "refuse", traceparent=parent())
        [span] = self.collector.spans(1)
        self.assertEqual((span["traceId"], span["parentId"]), (TRACE, "00f067aa0ba902b7"))
        self.assertEqual((span["name"], span["kind"]), ("Probe/refuse", "SERVER"))
        self.assertEqual(span["attributes"]["error.type"], "NOT_FOUND")
        self.assertEqual(span["resource"]["service.name"], "storagegate")
        self.assertLess(span["start"], span["end"])

    def test_environment(self) -> None:
        """Without options the variables of OpenTelemetry say where, and in whose name."""
        daemon = self.daemon(
            'enabled = true\nprovider = "jaeger"\nintervalMs = 20',
            OTEL_EXPORTER_OTLP_ENDPOINT=self.collector.url(path=""),
            OTEL_EXPORTER_OTLP_HEADERS="x-key=a%20b,x-other=c",
            OTEL_SERVICE_NAME="from-outside",
        ).start()
        self.callHTTP(daemon)
        [span] = self.collector.spans(1)
        self.assertEqual(span["resource"]["service.name"], "from-outside")
        [request] = self.collector.requests(1)
        self.assertEqual(request["path"], "/ok/v1/traces")
        headers = {name.lower(): value for name, value in request["headers"].items()}
        self.assertEqual((headers["x-key"], headers["x-other"]), ("a b", "c"))

    def test_stop(self) -> None:
        """What is not sent yet is sent at the end."""
        daemon = self.daemon(
            f'enabled = true\nendpoint = "{self.collector.url()}"\n'
            "batchSize = 5\nintervalMs = 600000\ntimeoutMs = 600000"
        ).start()
        # A full batch goes at once; when it is there, so is who sends.
        for _ in range(8):
            self.callHTTP(daemon)
        self.assertEqual(len(self.collector.spans(5)), 5)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(len(self.collector.spans(8)), 8)

    @long("takes a second or more")
    def test_workers(self) -> None:
        """Of several workers each sends its spans, also who has come in another's place."""
        daemon = self.daemon(
            f'enabled = true\nendpoint = "{self.collector.url()}"',
            STORAGEGATE_WORKERS="2",
        ).start()
        for count in (10, 20):
            for _ in range(10):
                self.assertEqual(self.callHTTP(daemon, traceparent=parent())[0], 200)
            self.assertEqual(len(self.collector.spans(count)), count)
            daemon.signal(signal.SIGHUP)
            daemon.waitForLog(r"[\s\S]*".join(["2 workers replaced"] * (count // 10)))
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(len({span["spanId"] for span in self.collector.spans(0)}), 20)
        self.assertNotIn("Traceback", daemon.log)

    @long("takes a second or more")
    def test_refused(self) -> None:
        """What cannot be ends the start with one line that names it."""
        for lines, words in (
            ('provider = "datadog"', "gateway.monitoring: the option tracing.provider is"),
            ("colour = 1", "there is no option tracing.colour"),
        ):
            daemon = self.daemon(lines)
            self.assertRaises(DaemonFailed, daemon.start)
            self.assertEqual(daemon.code, 1)
            self.assertIn(words, daemon.log)
            self.assertNotIn("Traceback", daemon.log)
            self.assertNotIn("listening", daemon.log)


class SamplingTests(TracedCase):
    """Which calls are recorded."""

    def names(self, lines: str, count: int, *calls: tuple[str, str]) -> list[Any]:
        """Make calls; give the methods of those that were recorded, which should be so many."""
        daemon = self.started(lines)
        for method, flags in calls:
            headers = {"traceparent": parent(flags=flags)} if flags else {}
            _status, _headers, body = self.callHTTP(daemon, method, **headers)
            if method == "whoami" and flags != "01":
                self.assertEqual((body["data"]["sampled"], body["data"]["own"]), (False, None))
        # A busy machine may take longer to begin to send than a stop waits.
        self.collector.spans(count)
        self.assertEqual(daemon.stop(), 0)
        return [span["name"].partition("/")[2] for span in self.collector.spans(0)]

    @long("takes a second or more")
    def test_none(self) -> None:
        """At 0 only those are recorded whose callers record them."""
        calls = (("whoami", ""), ("echo", "01"), ("whoami", "00"))
        self.assertEqual(self.names("sampleRatio = 0", 1, *calls), ["echo"])

    @long("takes a second or more")
    def test_all(self) -> None:
        """At 1 all are but those whose callers say that they do not."""
        calls = (("refuse", ""), ("echo", "01"), ("whoami", "00"))
        self.assertEqual(self.names("sampleRatio = 1.0", 2, *calls), ["refuse", "echo"])


class CollectorTests(TracedCase):
    """A collector that does not do what it is there for."""

    def check(self, mode: str, words: str, timeoutMs: int = 500) -> None:
        """Calls are answered, spans are counted as lost, and one line says why."""
        place = self.collector.url(mode) if mode else "http://127.0.0.1:1/"
        daemon = self.started(f'endpoint = "{place}"\ntimeoutMs = {timeoutMs}')
        for _ in range(20):
            self.assertEqual(self.callHTTP(daemon)[0], 200)
        daemon.waitForLog("spans were lost: .*" + words)
        for _ in range(20):
            self.assertEqual(self.callHTTP(daemon)[0], 200)
        self.assertEqual(daemon.log.count("spans were lost"), 1)
        self.assertNotIn("Traceback", daemon.log)
        self.assertEqual(daemon.stop(), 0)

    @long("takes a second or more")
    def test_away(self) -> None:
        """The port is closed."""
        self.check("", "the collector does not respond: .*refused")

    def test_error(self) -> None:
        """It answers with an error."""
        self.check("away", "the collector responds with 500", timeoutMs=5_000)

    def test_elsewhere(self) -> None:
        """It sends away: spans are not sent to the address that it names."""
        self.check("elsewhere", "the collector responds with 302", timeoutMs=5_000)
        self.assertEqual(
            {each["path"] for each in self.collector.requests(1)}, {"/elsewhere/v1/traces"}
        )

    def test_nonsense(self) -> None:
        """It speaks no HTTP."""
        self.check("nonsense", "the collector does not respond")

    @long("takes a second or more")
    def test_silent(self) -> None:
        """It says nothing."""
        self.check("silent", "the collector does not respond: .*timed out")

    @long("takes a second or more")
    def test_trickle(self) -> None:
        """It answers byte by byte: that is not waited for beyond the time that it has."""
        daemon = self.started(f'endpoint = "{self.collector.url("trickle")}"\ntimeoutMs = 2000')
        for count in (1, 2, 3):
            self.assertEqual(self.callHTTP(daemon)[0], 200)
            self.collector.requests(count)
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("spans were lost", daemon.log)

    def test_huge(self) -> None:
        """Its response has no end: it is not read to its end, and the spans are accepted."""
        daemon = self.started(f'endpoint = "{self.collector.url("huge")}"\ntimeoutMs = 60000')
        for _ in range(3):
            self.assertEqual(self.callHTTP(daemon)[0], 200)
            self.collector.requests(1)
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("spans were lost", daemon.log)
