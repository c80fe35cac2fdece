"""Spans on their way to a collector, by OpenTelemetry's SDK."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from twisted.internet.defer import Deferred

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.options import OptionError
from storagegate.gateway.monitoring import MonitoringOptions, makeTracer
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.otlp import (
    COMPLAINT_SECONDS,
    FLUSH_SECONDS,
    Tracer,
    makeResource,
)
from storagegate.telemetry.redaction import Redactor
from storagegate.telemetry.tracecontext import newTracing
from storagegate.telemetry.tracing import CallTracer, TracingOptions
from tests.support.delayed import TurnedReactor
from tests.support.gateway import makeHost
from tests.support.log import LogCase

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

CALLS = 100


class FakeExporter(SpanExporter):
    """
    Keeps what it is sent.

    @ivar result: What it answers.
    @ivar mayExport: Cleared, it holds the thread that exports until it is set, or it is shut down.
    """

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.spans: list[ReadableSpan] = []
        self.result = SpanExportResult.SUCCESS
        self.error: Exception | None = None
        self.shutdowns = 0
        self.hasBegun = threading.Event()
        self.mayExport = threading.Event()
        self.mayExport.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep spans."""
        self.batches.append([span.name for span in spans])
        self.spans.extend(spans)
        self.hasBegun.set()
        self.mayExport.wait()
        if self.error is not None:
            raise self.error
        return self.result

    def shutdown(self) -> None:
        """Take note."""
        self.shutdowns += 1


class PipelineCase(LogCase):
    """A pipeline whose exporter is the test's; the processor and its thread are the SDK's."""

    timeout = 60

    def setUp(self) -> None:
        """Make the exporter."""
        super().setUp()
        self.reactor = TurnedReactor()
        self.exporter = FakeExporter()
        self.addCleanup(self.exporter.mayExport.set)
        self.meters = MetricsRegistry()

    def pipeline(
        self, queueSize: int = 10, batchSize: int = 4, intervalMs: int = 600_000
    ) -> Tracer:
        """Make a pipeline."""
        options = TracingOptions(
            queueSize=queueSize, batchSize=batchSize, intervalMs=intervalMs, enabled=True
        )
        return Tracer(
            options,
            self.reactor,
            meters=self.meters,
            makeExporter=lambda options, session: self.exporter,
        )

    def put(self, pipeline: Tracer, *names: str) -> None:
        """Add a span by each name, if there is room."""
        for name in names:
            tracing = Tracing(TRACE, None, True, "", "00f067aa0ba902b7")
            if pipeline.admit(tracing):
                pipeline.record(tracing, name, {"a": 1}, 0.001)

    def hold(self, pipeline: Tracer, *names: str) -> None:
        """Put a batch, and wait until it is held by the exporter."""
        self.exporter.mayExport.clear()
        self.put(pipeline, *names)
        self.assertTrue(self.exporter.hasBegun.wait(50))

    def finish(self, pipeline: Tracer) -> None:
        """Stop it."""
        self.exporter.mayExport.set()
        self.reactor.settle(pipeline.stop())

    def counts(self) -> dict[str, int]:
        """Give what the meter says."""
        [family] = self.meters.snapshot()
        self.assertEqual((family.name, family.kind), ("storagegate_spans_total", "counter"))
        return {labels[0]: value for labels, value in family.samples}


class QueueTests(PipelineCase):
    """What becomes of spans."""

    def test_batches(self) -> None:
        """They are sent in their order, so many at a time; then the exporter is closed, once."""
        pipeline = self.pipeline()
        self.hold(pipeline, *"abcd")
        self.put(pipeline, *"efghij")
        self.finish(pipeline)
        self.assertEqual(self.exporter.batches, [list("abcd"), list("efgh"), list("ij")])
        self.assertEqual(self.exporter.shutdowns, 1)
        self.assertEqual(self.counts(), {"exported": 10, "dropped": 0, "failed": 0})

    def test_interval(self) -> None:
        """What is no full batch waits for the interval, and no longer."""
        pipeline = self.pipeline(intervalMs=20)
        self.put(pipeline, "a")
        self.assertTrue(self.exporter.hasBegun.wait(50))
        self.finish(pipeline)
        self.assertEqual(self.exporter.batches, [["a"]])

    def test_bound(self) -> None:
        """What finds no room is dropped and counted; nothing waits for room."""
        pipeline = self.pipeline(queueSize=5, batchSize=1)
        self.hold(pipeline, "first")
        self.put(pipeline, *map(str, range(1000)))
        self.assertEqual(self.counts(), {"exported": 0, "dropped": 995, "failed": 0})
        self.finish(pipeline)
        self.assertEqual(self.exporter.batches, [["first"], *([str(each)] for each in range(5))])
        self.assertEqual(self.counts(), {"exported": 6, "dropped": 995, "failed": 0})

    def test_span(self) -> None:
        """A span has its place in the trace, its times, its kind and its status."""
        pipeline = self.pipeline()
        tracing = Tracing(TRACE, "00f067aa0ba902b7", True, "a=1", "b7ad6b7169203331")
        began = time.time_ns()
        pipeline.record(tracing, "S/m", {"a": 1}, 0.5)
        pipeline.record(tracing, "S/m", {}, 0.5, isFailed=True, isClient=True)
        self.finish(pipeline)
        one, other = self.exporter.spans
        context, parent = one.get_span_context(), one.parent
        assert context is not None and parent is not None
        self.assertEqual(f"{context.trace_id:032x}", TRACE)
        self.assertEqual(f"{context.span_id:016x}", tracing.ownId)
        self.assertEqual(f"{parent.span_id:016x}", tracing.spanId)
        self.assertEqual(context.trace_state.to_header(), "a=1")
        assert one.start_time is not None and one.end_time is not None
        self.assertEqual(one.end_time - one.start_time, 5 * 10**8)
        self.assertTrue(began <= one.end_time <= time.time_ns())
        self.assertEqual((one.kind, one.status.status_code), (SpanKind.SERVER, StatusCode.UNSET))
        self.assertEqual(
            (other.kind, other.status.status_code), (SpanKind.CLIENT, StatusCode.ERROR)
        )
        self.assertEqual(parent.is_remote, True)
        self.assertEqual(other.parent and other.parent.is_remote, False)

    def test_redacted(self) -> None:
        """No attribute has a secret, be it a path, an agent or one of the user's own."""
        pipeline = self.pipeline()
        pipeline.redact = Redactor(["the configured secret"]).redact
        tracing = Tracing(TRACE, None, True, "", "b7ad6b7169203331")
        attributes = {
            "url.path": "/b/the%20configured%20secret",
            "user_agent.original": "x http://h/b/k?AWSAccessKeyId=A&Expires=1&Signature=abc%2Bdef%3D",
            "mine": ["the configured secret"],
            "long": "x" * 250 + "the configured secret",
            "number": 7,
        }
        pipeline.record(tracing, "S/m", attributes, 0.5)
        self.finish(pipeline)
        [span] = self.exporter.spans
        shown = dict(span.attributes or {})
        self.assertEqual(shown["url.path"], "/b/***")
        self.assertEqual(shown["mine"], ["***"])
        self.assertEqual(shown["number"], 7)
        self.assertNotIn("abc", str(shown))
        self.assertNotIn("the con", str(shown))

    def test_untouched(self) -> None:
        """A pipeline without spans stops at once, and to stop twice is to stop."""
        pipeline = self.pipeline()
        self.finish(pipeline)
        self.successResultOf(pipeline.stop())
        self.assertEqual(self.exporter.batches, [])

    def test_afterStop(self) -> None:
        """What comes after the end is dropped and counted."""
        pipeline = self.pipeline()
        self.put(pipeline, "a")
        self.finish(pipeline)
        self.put(pipeline, "b")
        self.assertEqual(self.counts(), {"exported": 1, "dropped": 1, "failed": 0})

    def test_calls(self) -> None:
        """
        Calls end within the turn in which they began while the collector holds the thread that
        exports; what finds no room is dropped.
        """
        pipeline = self.pipeline(queueSize=10, batchSize=1)
        host, _probe = makeHost(self.reactor)
        host.invoker.observers.append(CallTracer(pipeline))

        def call() -> None:
            client = ClientInfo("c", "127.0.0.1", 5000)
            context = RequestContext("tcp", "Probe", "echo", client, newTracing())
            calling = Deferred.fromCoroutine(host.invoker.call(context, {"a": 1}))
            self.assertEqual(self.successResultOf(calling), {"a": 1})

        self.exporter.mayExport.clear()
        call()
        self.assertTrue(self.exporter.hasBegun.wait(50))
        for _ in range(CALLS):
            call()
        self.assertEqual((pipeline.exporter.exported, pipeline.dropped), (0, CALLS - 10))
        self.finish(pipeline)
        self.assertEqual((pipeline.exporter.exported, pipeline.exporter.failed), (11, 0))


class FailureTests(PipelineCase):
    """A collector that does not do what it is there for."""

    def test_failed(self) -> None:
        """Spans that it does not take are counted, whatever the exporter does, and are gone."""
        pipeline = self.pipeline(batchSize=2)
        self.exporter.result = SpanExportResult.FAILURE
        self.hold(pipeline, "a", "b")
        self.put(pipeline, "c")
        self.exporter.error = OSError("gone")
        self.finish(pipeline)
        self.assertEqual(self.counts(), {"exported": 0, "dropped": 0, "failed": 3})
        self.assertEqual(self.exporter.batches, [["a", "b"], ["c"]])

    def test_oneLine(self) -> None:
        """The log has a line a minute, however many are lost."""
        pipeline = self.pipeline(queueSize=2, batchSize=1)
        self.hold(pipeline, "x")
        self.put(pipeline, *("x" * 50))
        self.assertEqual(len(self.logged()), 1)
        self.reactor.advance(COMPLAINT_SECONDS - 1)
        self.put(pipeline, "x")
        self.assertEqual(len(self.logged()), 1)
        self.reactor.advance(1)
        self.put(pipeline, "x")
        self.assertEqual(
            self.logged()[1],
            "spans were lost: the collector is too slow; exported=0 failed=0 dropped=50",
        )
        self.finish(pipeline)

    def test_reason(self) -> None:
        """The line says what was wrong, in one line whatever the collector says."""
        pipeline = self.pipeline()
        self.exporter.error = OSError("the collector answers\r\n500 " + "x" * 1000)
        self.put(pipeline, "a")
        self.finish(pipeline)
        self.reactor.turnUntil(lambda: bool(self.logged()), lambda: None)
        [line] = self.logged()
        self.assertIn("spans were lost: 'OSError: the collector answers\\r\\n500 xx", line)
        self.assertLess(len(line), 400)
        self.assertNotIn("\n", line)

    def test_slow(self) -> None:
        """Stopping waits two seconds for a collector that does not answer, and no longer."""
        pipeline = self.pipeline(batchSize=1)
        self.hold(pipeline, "a")
        self.put(pipeline, "b")
        ended: list[None] = []
        pipeline.stop().addCallback(ended.append)
        self.reactor.advance(FLUSH_SECONDS - 0.1)
        self.assertEqual(ended, [])
        self.reactor.advance(0.1)
        self.assertEqual(ended, [None])
        self.assertEqual(self.exporter.shutdowns, 1)
        self.assertEqual((self.reactor.getDelayedCalls(), pipeline.dropped), ([], 1))
        self.exporter.mayExport.set()
        pipeline._processor._batch_processor._worker_thread.join(50)
        self.assertEqual(self.exporter.batches, [["a"]])

    def test_cannotOpen(self) -> None:
        """An exporter that cannot be made is one line, and spans are dropped from then on."""

        def refuse(options: TracingOptions, session: Any) -> SpanExporter:
            raise RuntimeError("no such\npackage")

        pipeline = Tracer(TracingOptions(), self.reactor, meters=self.meters, makeExporter=refuse)
        self.put(pipeline, "a", "b")
        self.assertEqual(self.logged(), ["tracing failed: 'no such\\npackage'"])
        self.assertEqual(self.counts(), {"exported": 0, "dropped": 2, "failed": 0})
        self.successResultOf(pipeline.stop())


class SetUpTests(LogCase):
    """What is made of options and environment."""

    def environment(self, name: str, value: str) -> None:
        """Set a variable for the test."""
        before = dict(os.environ)
        os.environ[name] = value
        self.addCleanup(os.environ.update, before)
        self.addCleanup(os.environ.clear)

    def test_resource(self) -> None:
        """The process names itself; the environment may add to it."""
        self.environment("OTEL_RESOURCE_ATTRIBUTES", "region=eu")
        found = makeResource(None).attributes
        self.assertEqual((found["service.name"], found["region"]), ("storagegate", "eu"))
        self.assertEqual(makeResource("shop").attributes["service.name"], "shop")

    def test_refused(self) -> None:
        """A variable without a valid value is refused by name."""
        self.environment("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")
        options = MonitoringOptions(tracing=TracingOptions(enabled=True))
        error = self.assertRaises(OptionError, makeTracer, options, TurnedReactor())
        self.assertIn("OTEL_EXPORTER_OTLP_ENDPOINT", str(error))

    def test_tracer(self) -> None:
        """The options of sampling and attributes reach the tracer."""
        reactor = TurnedReactor()
        attributes: Callable[[Any], dict[str, Any]] = dict
        options = TracingOptions(
            enabled=True,
            sampleRatio=0.0,
            correlationHeader="X-Request",
            spanAttributes=attributes,
        )
        tracer = makeTracer(MonitoringOptions(tracing=options), reactor)
        self.assertFalse(tracer.decide(newTracing()).sampled)
        self.assertEqual(
            (tracer.correlationHeader, tracer.spanAttributes), ("X-Request", attributes)
        )
        reactor.settle(tracer.stop())
