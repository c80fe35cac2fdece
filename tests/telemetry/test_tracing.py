"""What is recorded, how it is described, and the options of tracing."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import codedError
from storagegate.core.options import OptionError, changeOptions
from storagegate.s3.observers import RequestTracer
from storagegate.telemetry import tracing as module
from storagegate.telemetry.tracecontext import forwardedTracing, newTracing
from storagegate.telemetry.tracing import (
    MAX_ATTRIBUTES,
    MAX_ITEMS,
    MAX_TEXT,
    CallTracer,
    TracingOptions,
    readAttributes,
    readCollector,
)
from tests.support.s3records import makeRecord
from tests.support.spans import KeptTracer

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SPAN_CONTEXT = SpanContext(int(TRACE, 16), int(SPAN, 16), False)

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


class ReadTests(SynchronousTestCase):
    """What users give."""

    def test_taken(self) -> None:
        """Text, numbers, truth values and lists of one of these kinds stay as they are."""
        given = {"a": "b", "c": 1, "d": 1.5, "e": True, "f": ["x", "y"], "g": [1, 2], "h": [True]}
        self.assertEqual(readAttributes(given), given)
        self.assertEqual(readAttributes({"a": (1, 2)}), {"a": [1, 2]})

    def test_dropped(self) -> None:
        """What is none of these is left out, and nothing else."""
        for wrong in (None, object(), b"x", {"a": 1}, [], [1, "a"], [1, True], [[1]], [None]):
            self.assertEqual(readAttributes({"wrong": wrong, "a": 1}), {"a": 1})
        for huge in (1 << 63, -(1 << 63) - 1, [1 << 63]):
            self.assertEqual(readAttributes({"wrong": huge, "a": 1}), {"a": 1})
        self.assertEqual(readAttributes({5: 1, "": 1, None: 1}), {})

    def test_bounds(self) -> None:
        """Nothing is longer than it may be."""
        found = readAttributes({"a": "x" * 5000, "n" * 5000: 1, "l": list(range(5000))})
        self.assertEqual(len(found["a"]), MAX_TEXT)
        self.assertEqual(found["n" * MAX_TEXT], 1)
        self.assertEqual(len(found["l"]), MAX_ITEMS)
        many = {str(number): number for number in range(1000)}
        self.assertEqual(len(readAttributes(many)), MAX_ATTRIBUTES)

    def test_text(self) -> None:
        """Text that has no form in UTF-8 gets one: it would cost all that is sent with it."""
        self.assertEqual(readAttributes({"\ud800": ["\udfff"]}), {"?": ["?"]})

    @given(
        st.dictionaries(_SCALARS.filter(lambda each: each == each), _SCALARS | st.lists(_SCALARS))
    )
    def test_any(self, given: dict[object, object]) -> None:
        """Whatever is given, what is taken can be sent."""
        found = readAttributes(given)
        request = encode_spans([ReadableSpan("x", SPAN_CONTEXT, attributes=found)])
        type(request).FromString(request.SerializeToString())
        [span] = request.resource_spans[0].scope_spans[0].spans
        sent = {each.key: each.value for each in span.attributes}
        self.assertEqual(set(sent), set(found))
        for name, value in found.items():
            if isinstance(value, str):
                self.assertEqual(sent[name].string_value, value)
            elif isinstance(value, float) and not math.isnan(value):
                self.assertEqual(sent[name].double_value, value)


class ConventionTests(SynchronousTestCase):
    """The names of attributes."""

    def setUp(self) -> None:
        """Make a tracer."""
        self.tracer = KeptTracer(1.0, lambda context: {"a": 1, "rpc.method": "x"})

    def call(self, protocol: str, client: ClientInfo, error: Any = None) -> dict[str, Any]:
        """Trace a call; return its attributes."""
        observer = CallTracer(self.tracer, {"grpc": "grpc"}, {"http"})
        context = RequestContext(protocol, "S", "m", client, newTracing())
        observer.callStarted(context)
        observer.callEnded(context, error, 0.1)
        return dict(self.tracer.spans[-1].attributes)

    def test_call(self) -> None:
        """A call of a service is told as an RPC; a user cannot say what it was."""
        expected = {
            "rpc.system.name": "storagegate",
            "rpc.method": "S/m",
            "storagegate.protocol": "http",
            "client.address": "::1",
            "client.port": 5,
            "http.response.status_code": 404,
            "user_agent.original": "curl",
            "error.type": "NOT_FOUND",
            "a": 1,
        }
        found = self.call("http", ClientInfo("c", "::1", 5, "curl"), codedError("NOT_FOUND", "x"))
        self.assertEqual(found, expected)

    def test_message(self) -> None:
        """What a wire does not have is not told."""
        expected = {
            "rpc.system.name": "storagegate",
            "rpc.method": "S/m",
            "storagegate.protocol": "udp",
            "client.address": "127.0.0.1",
            "a": 1,
        }
        self.assertEqual(self.call("udp", ClientInfo("c", "127.0.0.1", 0)), expected)
        self.assertEqual(
            self.call("grpc", ClientInfo("c", "127.0.0.1", 0))["rpc.system.name"], "grpc"
        )

    def request(self, status: int, error: str | None) -> dict[str, Any]:
        """Trace a request of S3; return the attributes."""
        exchange = makeRecord(
            method=b"PUT",
            path=b"/b/\xff",
            isSecure=True,
            clientHost="::1",
            requestId=b"ID",
            operation="PutObject",
            errorCode=error,
            seconds=0.5,
            status=status,
            bytesIn=7,
            bytesOut=9,
        )
        RequestTracer(self.tracer).observe([exchange])
        span = self.tracer.spans[-1]
        self.assertEqual((span.name, span.seconds), ("PutObject", 0.5))
        self.assertEqual(span.isFailed, status >= 500)
        return dict(span.attributes)

    def test_s3(self) -> None:
        """A request of S3 is told as one of HTTP."""
        found = self.request(403, "AccessDenied")
        self.assertEqual(found["url.path"], "/b/\xff")
        self.assertEqual(found["url.scheme"], "https")
        self.assertEqual(found["error.type"], "AccessDenied")
        self.assertEqual(
            (found["http.request.body.size"], found["rpc.method"]), (7, "S3/PutObject")
        )
        self.assertEqual(found["aws.request_id"], "ID")
        self.assertEqual(self.request(499, None)["error.type"], "499")
        self.assertEqual(self.request(500, "InternalError")["error.type"], "InternalError")

    def test_forward(self) -> None:
        """A forwarded call says who was asked."""
        tracing = forwardedTracing(self.tracer.decide(newTracing()))
        self.tracer.forwarded(tracing, "S", "m", ("10.0.0.1", 80), 0.5, "UNAVAILABLE")
        [span] = self.tracer.spans
        found = span.attributes
        self.assertEqual((found["server.address"], found["server.port"]), ("10.0.0.1", 80))
        self.assertEqual((found["rpc.method"], found["error.type"]), ("S/m", "UNAVAILABLE"))
        self.assertEqual((span.isClient, span.isFailed), (True, True))


class TracerCase(SynchronousTestCase):
    """Tracers whose spans are kept."""

    def tracer(self, sampleRatio: float = 1.0, spanAttributes: Any = None) -> KeptTracer:
        """Make a tracer."""
        self.made = KeptTracer(sampleRatio, spanAttributes)
        self.observer = CallTracer(self.made)
        return self.made

    def context(self, tracing: Tracing) -> RequestContext:
        """Make the context of a call."""
        client = ClientInfo("c", "127.0.0.1", 5000, "agent" * 100)
        return RequestContext("tcp", "S", "m", client, tracing)

    def call(self, tracer: KeptTracer, tracing: Tracing, error: Any = None) -> RequestContext:
        """Begin and end a call."""
        context = self.context(tracing)
        self.observer.callStarted(context)
        self.observer.callEnded(context, error, 0.25)
        return context


class SamplingTests(TracerCase):
    """Which calls are recorded."""

    def test_parent(self) -> None:
        """What the caller says holds, whatever the ratio."""
        for ratio in (0.0, 1.0):
            tracer = self.tracer(ratio)
            for isSampled in (True, False):
                tracing = tracer.decide(Tracing(TRACE, SPAN, isSampled, "a=1"))
                self.assertEqual(tracing.sampled, isSampled)
                self.assertEqual(tracing.ownId is not None, isSampled)
                self.assertEqual(
                    (tracing.traceId, tracing.spanId, tracing.state), (TRACE, SPAN, "a=1")
                )

    def test_root(self) -> None:
        """Of the others the ratio is recorded, and by the id of the trace: everywhere the same."""
        one, other = self.tracer(0.25), self.tracer(0.25)
        tracings = [newTracing() for _ in range(4000)]
        decided = [one.decide(tracing).sampled for tracing in tracings]
        self.assertEqual(decided, [other.decide(tracing).sampled for tracing in tracings])
        # Five times the deviation that chance has.
        self.assertTrue(860 < sum(decided) < 1140, sum(decided))
        for ratio in (0, 1):
            tracer = self.tracer(ratio)
            self.assertEqual({tracer.decide(each).sampled for each in tracings}, {bool(ratio)})

    def test_extremes(self) -> None:
        """The highest id is recorded at 1, the lowest not at 0."""
        self.assertTrue(self.tracer(1).decide(Tracing("f" * 32)).sampled)
        self.assertFalse(self.tracer(0).decide(Tracing("1" + "0" * 31)).sampled)

    def test_unrecorded(self) -> None:
        """A call that is not recorded costs nothing: its trace stays the same, nothing is put."""
        tracing = Tracing(TRACE, SPAN)
        context = self.call(self.tracer(), tracing)
        self.assertIs(context.tracing, tracing)
        self.assertEqual(self.made.spans, [])
        self.assertEqual(self.made.room, 1000)

    def test_noRoom(self) -> None:
        """Of a call without room nothing is made, and the user is not called."""
        tracer = self.tracer(1, lambda context: 1 / 0)
        tracer.room = 0
        context = self.call(tracer, newTracing())
        self.assertTrue(context.tracing.sampled)
        self.assertEqual(self.made.spans, [])


class RecordTests(TracerCase):
    """What is kept."""

    def test_call(self) -> None:
        """A call's place in the trace, and what it was."""
        context = self.call(self.tracer(), Tracing(TRACE, SPAN, True, "a=1"))
        [span] = self.made.spans
        self.assertEqual(span.tracing, Tracing(TRACE, SPAN, True, "a=1", context.tracing.ownId))
        self.assertIsNotNone(context.tracing.ownId)
        self.assertEqual((span.name, span.seconds, span.isFailed), ("S/m", 0.25, False))
        self.assertEqual(span.attributes["user_agent.original"], "agent" * 100)

    def test_error(self) -> None:
        """Of an error its code and status, and nothing of its text."""
        tracer = self.tracer()
        self.call(tracer, newTracing(), codedError("NOT_FOUND", "secret"))
        self.call(tracer, newTracing(), codedError("INTERNAL_ERROR", "secret"))
        refused, failed = self.made.spans
        self.assertEqual((refused.attributes["error.type"], refused.isFailed), ("NOT_FOUND", False))
        self.assertEqual(failed.isFailed, True)
        self.assertNotIn("secret", repr(self.made.spans))

    def test_forwarded(self) -> None:
        """An attempt elsewhere is a child of the call, if that is recorded."""
        tracer = self.tracer()
        context = self.call(tracer, newTracing())
        child = forwardedTracing(context.tracing)
        tracer.forwarded(child, "S", "m", ("10.0.0.1", 80), 0.5, "failed")
        span = self.made.spans[1]
        self.assertEqual(
            (span.tracing.ownId, span.tracing.spanId), (child.ownId, context.tracing.ownId)
        )
        tracer.forwarded(forwardedTracing(newTracing()), "S", "m", ("10.0.0.1", 80), 0.5, None)
        self.assertEqual(len(self.made.spans), 2)


class AttributeTests(TracerCase):
    """C{spanAttributes}."""

    def test_given(self) -> None:
        """It gets the context, at the end of the call, and only of calls that are recorded."""
        seen: list[Any] = []

        def attributes(context: RequestContext) -> dict[str, Any]:
            seen.append(context)
            return {"user": context.authentication, "wrong": object()}

        tracer = self.tracer(spanAttributes=attributes)
        observer, context = CallTracer(tracer), self.context(newTracing())
        observer.callStarted(context)
        context.authentication = "ann"
        observer.callEnded(context, None, 0.1)
        self.call(tracer, Tracing(TRACE, SPAN, False))
        self.assertEqual(len(seen), 1)
        attributesOf = self.made.spans[0].attributes
        self.assertEqual(attributesOf["user"], "ann")
        self.assertNotIn("wrong", attributesOf)

    def test_failing(self) -> None:
        """What it raises is logged once, and harms no call; a thing that is none is the same."""
        asynchronous = 0

        async def later(context: RequestContext) -> dict[str, Any]:
            nonlocal asynchronous
            asynchronous += 1
            return {}

        for wrong in (lambda context: 1 / 0, lambda context: 5, later):
            tracer = self.tracer(spanAttributes=wrong)
            for _ in range(3):
                self.call(tracer, newTracing())
            self.assertEqual({len(span.attributes) for span in self.made.spans}, {6})
            self.assertEqual(len(self.made.spans), 3)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError, TypeError)), 1)
            # No warning of a coroutine that was never awaited.
            self.assertEqual(self.flushWarnings(), [])
        self.assertEqual(asynchronous, 0)

    def test_none(self) -> None:
        """It may give nothing."""
        self.call(self.tracer(spanAttributes=lambda context: None), newTracing())
        self.assertEqual(len(self.made.spans[0].attributes), 6)


class CollectorTests(SynchronousTestCase):
    """What options and environment say together."""

    def test_defaults(self) -> None:
        """Without either it is what OpenTelemetry has."""
        for provider, endpoint in (
            (None, "http://127.0.0.1:4318/v1/traces"),
            ("otlp", "http://127.0.0.1:4318/v1/traces"),
            ("jaeger", "http://127.0.0.1:4318/v1/traces"),
            ("zipkin", "http://127.0.0.1:9411/api/v2/spans"),
        ):
            collector = readCollector(TracingOptions(provider=provider), {})
            self.assertEqual((collector.endpoint, collector.headers), (endpoint, {}))
            self.assertEqual((collector.serviceName, collector.timeoutMs), (None, 10_000))

    def test_environment(self) -> None:
        """The variables hold where no option says otherwise; the path is that of traces."""
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example:4318/in/",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x, a=b,,odd",
            "OTEL_SERVICE_NAME": "shop",
        }
        collector = readCollector(TracingOptions(), environment)
        self.assertEqual(collector.endpoint, "https://otel.example:4318/in/v1/traces")
        self.assertEqual(collector.headers, {"authorization": "Bearer x", "a": "b"})
        self.assertEqual(collector.serviceName, "shop")
        given = TracingOptions(
            endpoint="http://here:1/x", headers={"c": "d"}, serviceName="own", timeoutMs=1500
        )
        collector = readCollector(given, environment)
        self.assertEqual(collector.endpoint, "http://here:1/x")
        self.assertEqual(collector.headers, {"c": "d"})
        self.assertEqual((collector.serviceName, collector.timeoutMs), ("own", 1500))
        collector = readCollector(TracingOptions(provider="zipkin"), environment)
        self.assertEqual(collector.endpoint, "http://127.0.0.1:9411/api/v2/spans")
        self.assertEqual(collector.headers, {})

    def test_path(self) -> None:
        """An endpoint without a path gets the provider's."""
        for endpoint in ("http://here:1", "http://here:1/"):
            collector = readCollector(TracingOptions(endpoint=endpoint), {})
            self.assertEqual(collector.endpoint, "http://here:1/v1/traces")

    def test_wrongEnvironment(self) -> None:
        """A variable that says nothing that can be is named; what is in it may be a key."""
        for name, value in (
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "here:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=se%0Acret"),
        ):
            error = self.assertRaises(OptionError, readCollector, TracingOptions(), {name: value})
            self.assertIn(f"the variable {name}", str(error))
            self.assertNotIn("cret", str(error))

    def test_notInstalled(self) -> None:
        """Without the packages the error names the extra."""
        self.patch(module, "find_spec", lambda name: None)
        error = self.assertRaises(OptionError, readCollector, TracingOptions(), {})
        self.assertIn("pip install '.[tracing]' in a checkout", str(error))
        self.assertNotIn("\n", str(error))


class OptionTests(SynchronousTestCase):
    """The options themselves."""

    def test_refused(self) -> None:
        """What is none is refused by name."""
        for name, values in {
            "enabled": (1, "yes"),
            "provider": ("x", 5),
            "endpoint": ("", "x", "ftp://a/", "http://", "http://a:x/", "http://a\n/", 5),
            "headers": ([], {"a b": "c"}, {"a": "b\r\nc"}, {"a": 5}, {"a": "\u20ac"}),
            "serviceName": ("", " ", "a\n", 5),
            "sampleRatio": (-0.1, 1.1, "1", True, float("nan")),
            "correlationHeader": ("", "a b", "\u00e4"),
            "spanAttributes": ("x", 5),
            "queueSize": (0, -1, 1.5, True),
            "batchSize": (0, "5"),
            "intervalMs": (0, 1e9),
            "timeoutMs": (0, None),
        }.items():
            for value in values:
                error = self.assertRaises(
                    OptionError, changeOptions, TracingOptions(), {name: value}
                )
                self.assertIn(f"the option {name}", str(error))

    def test_secret(self) -> None:
        """Keys for the collector are not shown."""
        given = TracingOptions(headers={"authorization": "hidden-key"})
        self.assertNotIn("hidden-key", repr(given))
        self.assertNotIn("hidden-key", repr(readCollector(given, {})))
