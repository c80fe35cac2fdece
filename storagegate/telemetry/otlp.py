"""
The tracer, which makes and exports spans with OpenTelemetry's SDK, its C{BatchSpanProcessor} and
exporters.

This is the only module that imports C{opentelemetry}; it is imported when tracing is enabled. Spans
are added in the reactor thread (10 microseconds a span); the thread of the processor encodes and
sends them (60 microseconds a span).
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import requests
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from storagegate.core.context import Tracing
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily
from storagegate.telemetry.redaction import Redactor
from storagegate.telemetry.tracecontext import newSpanId
from storagegate.telemetry.tracing import MAX_TEXT, TracingOptions, boundedText
from storagegate.version import __version__

FLUSH_SECONDS = 2
"""Maximum wait for the collector on shutdown, out of the ten seconds that a container has."""

COMPLAINT_SECONDS = 60
"""Minimum time between two log lines about lost spans."""

MAX_RESPONSE = 1024
"""Maximum number of bytes read of a collector's response in order to reuse the connection: most are
empty."""

_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_FAILED = Status(StatusCode.ERROR)

_log = Logger()


class CollectorSession(requests.Session):
    """
    A session that bounds the size of responses, follows no redirects, and records the last problem.

    @ivar problem: The reason for the last request's failure, or C{None} on success.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problem: str | None = None

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        """Send a request and read the status of its response."""
        more["stream"], more["allow_redirects"] = True, False
        deadline = time.monotonic() + (more.get("timeout") or 10.0)
        try:
            with super().send(request, **more) as response:
                _drain(response, deadline)
        except requests.RequestException as error:
            self.problem = f"the collector does not respond: {_innermost(error)}"
            raise
        status = response.status_code
        self.problem = None if status < 300 else f"the collector responds with {status}"
        result = requests.Response()
        # A redirect is not a success, although an exporter treats it as one.
        result.status_code = status if status < 300 or status >= 400 else 404
        result.reason, result.url = response.reason, response.url
        retryAfter = response.headers.get("Retry-After")
        if retryAfter is not None:
            result.headers["Retry-After"] = retryAfter
        result.raw = BytesIO()
        return result


def _drain(response: requests.Response, deadline: float) -> None:
    """Read a short body, so that the connection can be reused; a long one closes it."""
    # Single bytes: a larger read does not return before it is complete, however slow the peer.
    for count, _byte in enumerate(response.iter_content(1)):
        if count >= MAX_RESPONSE or time.monotonic() > deadline:
            return


def _innermost(error: BaseException) -> str:
    """Return the text of the innermost wrapped error."""
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    return str(reason if isinstance(reason, BaseException) else error)


def makeExporter(options: TracingOptions, session: requests.Session) -> SpanExporter:
    """Make the SDK's exporter for a provider."""
    # One exporter annotates whole seconds; requests accepts fractions.
    seconds: Any = options.timeoutMs / 1000
    if options.provider == "zipkin":
        from opentelemetry.exporter.zipkin.json import ZipkinExporter

        session.headers.update(options.headers)
        return ZipkinExporter(endpoint=options.endpoint, timeout=seconds, session=session)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=options.endpoint,
        headers=dict(options.headers),
        timeout=seconds,
        session=session,
    )


def makeResource(serviceName: str | None) -> Resource:
    """Describe this process; C{OTEL_RESOURCE_ATTRIBUTES} may add to it."""
    resource = Resource.create(
        {
            "service.version": __version__,
            "service.instance.id": str(uuid.uuid4()),
            "process.pid": os.getpid(),
        }
    )
    name = serviceName or str(resource.attributes[SERVICE_NAME])
    if name.startswith("unknown_service"):
        name = "storagegate"
    return resource.merge(Resource({SERVICE_NAME: name}))


class CountingExporter(SpanExporter):
    """
    Counts the results of an exporter. Its methods run in the processor's thread.

    @ivar taken: Spans taken from the processor's queue.
    @ivar exported: Spans that the collector accepted.
    @ivar failed: Spans that it did not accept.
    """

    def __init__(
        self, exporter: SpanExporter, session: CollectorSession, onProblem: Callable[[str], None]
    ) -> None:
        """
        @param session: The session that C{exporter} uses.
        @param onProblem: Called in the processor's thread with the reason for a lost batch.
        """
        self.taken = self.exported = self.failed = 0
        self._exporter = exporter
        self._session = session
        self._onProblem = onProblem
        self._isShutDown = self._isAbandoned = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch. Blocks at most for the collector's timeout."""
        if self._isAbandoned:
            return SpanExportResult.FAILURE
        self.taken += len(spans)
        self._session.problem = None
        try:
            result = self._exporter.export(spans)
            problem = self._session.problem or "the exporter failed"
        except Exception as error:
            result = SpanExportResult.FAILURE
            problem = self._session.problem or f"{type(error).__name__}: {error}"
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
        else:
            self.failed += len(spans)
            if not self._isAbandoned:
                self._onProblem(problem)
        return result

    def abandon(self) -> None:
        """Export nothing more and end retries. May be called in any thread; does not block."""
        self._isAbandoned = True
        self.shutdown()

    def shutdown(self) -> None:
        """Close the connections. May be called in any thread."""
        if not self._isShutDown:
            self._isShutDown = True
            self._exporter.shutdown()


class Tracer:
    """
    Samples and records service calls, S3 requests and forwarded attempts: makes spans, bounds their
    queue, and exports them in batches.

    All methods run in the reactor thread and do not block.

    @ivar bound: A trace without a caller's decision is recorded if the last 16 digits of its ID
        sort before this.
    @ivar redact: Removes secrets from the text of an attribute; see
        L{Redactor.redact<storagegate.telemetry.redaction.Redactor.redact>}.
    @ivar spanAttributes: The user's function of a context, or C{None}.
    @ivar correlationHeader: The HTTP header field with the trace ID.
    @ivar exporter: Counts the spans that were exported.
    @ivar dropped: Spans that were not queued because the queue was full, or abandoned on shutdown.
    """

    def __init__(
        self,
        options: TracingOptions,
        reactor: Any,
        *,
        meters: MetricsRegistry | None = None,
        makeExporter: Callable[[TracingOptions, requests.Session], SpanExporter] = makeExporter,
    ) -> None:
        """
        @param options: The options, completed by
            L{readCollector<storagegate.telemetry.tracing.readCollector>}.
        @param reactor: Provides C{IReactorTime} and C{callFromThread}.
        @param makeExporter: Makes the SDK's exporter.
        """
        # Compared with the lower 64 bits of a trace ID, which are random in every implementation.
        bound = round(options.sampleRatio * (1 << 64))
        # Text compares in half the time of numbers; every digit sorts before "g".
        self.bound = f"{bound:016x}" if bound >> 64 == 0 else "g"
        self.redact: Callable[[str], str] = Redactor().redact
        self.spanAttributes = options.spanAttributes
        self.correlationHeader = options.correlationHeader
        self.dropped = 0
        self._added = 0
        self._queueSize = options.queueSize
        self._reactor = reactor
        self._lastComplaint = float("-inf")
        self._isStopping = False
        self._resource = makeResource(options.serviceName)
        self._scope = InstrumentationScope("storagegate", __version__)
        # The packages log to standard error if the program has no handlers.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        session = CollectorSession()
        try:
            exporter = makeExporter(options, session)
        except Exception as error:
            # An invalid environment variable that only the package reads: calls are served
            # untraced.
            _log.error("tracing failed: {problem}", problem=_oneLine(str(error)))
            exporter = SpanExporter()
            self._isStopping = True
        self.exporter = CountingExporter(
            exporter,
            session,
            lambda problem: reactor.callFromThread(self._complain, problem),
        )
        self._processor = BatchSpanProcessor(
            self.exporter,
            max_queue_size=options.queueSize,
            schedule_delay_millis=options.intervalMs,
            max_export_batch_size=min(options.batchSize, options.queueSize),
        )
        if meters is not None:
            meters.watch(self._families)

    def decide(self, tracing: Tracing) -> Tracing:
        """
        Return a call's trace, with a new span if the call is recorded.

        @param tracing: The caller's trace, whose decision is kept, or a new one.
        """
        if tracing.spanId is None:
            if tracing.traceId[16:] >= self.bound:
                return tracing
        elif not tracing.sampled:
            return tracing
        return Tracing(tracing.traceId, tracing.spanId, True, tracing.state, newSpanId())

    def admit(self, tracing: Tracing) -> bool:
        """
        Return whether to make a span: the trace is sampled, and the queue has room.

        @param tracing: The result of L{decide}. If the queue is full, its span is counted as
            dropped.
        """
        if not tracing.sampled or tracing.ownId is None:
            return False
        # The processor would drop the oldest without counting it, and log each.
        if self._added - self.exporter.taken < self._queueSize and not self._isStopping:
            return True
        self.dropped += 1
        if not self._isStopping:
            self._complain("the collector is too slow")
        return False

    def record(
        self,
        tracing: Tracing,
        name: str,
        attributes: Mapping[str, Any],
        seconds: float,
        *,
        isFailed: bool = False,
        isClient: bool = False,
    ) -> None:
        """
        Record a span that ends now and that L{admit} has accepted.

        @param tracing: Its own span is C{ownId}, its parent C{spanId}.
        @param attributes: Values that a collector accepts; see
            L{readAttributes<storagegate.telemetry.tracing.readAttributes>}.
        @param seconds: The duration of the span.
        @param isFailed: Whether the status of the span is an error.
        @param isClient: Whether the span describes a request that was sent, not received.
        """
        assert tracing.ownId is not None
        endNs = time.time_ns()
        traceId = int(tracing.traceId, 16)
        state = TraceState.from_header([tracing.state]) if tracing.state else None
        parent = None
        if tracing.spanId is not None:
            parent = SpanContext(traceId, int(tracing.spanId, 16), not isClient, _FLAGS, state)
        self._added += 1
        self._processor.on_end(
            ReadableSpan(
                name=name,
                context=SpanContext(traceId, int(tracing.ownId, 16), False, _FLAGS, state),
                parent=parent,
                resource=self._resource,
                attributes={name: self._shown(value) for name, value in attributes.items()},
                kind=SpanKind.CLIENT if isClient else SpanKind.SERVER,
                status=_FAILED if isFailed else _UNSET,
                start_time=endNs - int(seconds * 1e9),
                end_time=endNs,
                instrumentation_scope=self._scope,
            )
        )

    def _shown(self, value: Any) -> Any:
        """Return a value without secrets, with text cut to the length that a span keeps."""
        if isinstance(value, str):
            # A truncated secret is not recognised, so redaction comes first.
            return self.redact(value)[:MAX_TEXT]
        if isinstance(value, list | tuple):
            return [self._shown(each) for each in value]
        return value

    def forwarded(
        self,
        tracing: Tracing,
        service: str,
        method: str,
        address: tuple[str, int],
        seconds: float,
        error: str | None,
    ) -> None:
        """
        Record an attempt to forward a call, unless the call is not sampled.

        @param tracing: The result of
            L{forwardedTracing<storagegate.telemetry.tracecontext.forwardedTracing>}.
        @param address: Host and port of the instance.
        @param seconds: The duration of the attempt.
        @param error: The outcome in a word, or C{None} on success.
        """
        if not self.admit(tracing):
            return
        name = f"{service}/{method}"
        attributes: dict[str, Any] = {
            "rpc.system.name": "storagegate",
            "rpc.method": name,
            "server.address": address[0],
            "server.port": address[1],
        }
        if error is not None:
            attributes["error.type"] = boundedText(error)
        isFailed = error is not None
        self.record(tracing, name, attributes, seconds, isFailed=isFailed, isClient=True)

    def stop(self) -> Deferred[None]:
        """
        Export the queued spans, within L{FLUSH_SECONDS}.

        @return: Fires when all spans are exported or abandoned.
        """
        if self._isStopping:
            return succeed(None)
        self._isStopping = True
        stopped: Deferred[None] = Deferred()

        def finish() -> None:
            if timer.active():
                timer.cancel()
                stopped.callback(None)

        def giveUp() -> None:
            self.exporter.abandon()
            self.dropped += self._added - self.exporter.taken
            stopped.callback(None)

        def shutDown() -> None:
            # Waits for the processor's thread, in some versions without a limit.
            self._processor.shutdown()
            self._reactor.callFromThread(finish)

        timer = self._reactor.callLater(FLUSH_SECONDS, giveUp)
        # The process would wait at its end for a thread of the reactor's pool.
        threading.Thread(target=shutDown, name="tracing-stop", daemon=True).start()
        return stopped

    def _complain(self, problem: str) -> None:
        now = self._reactor.seconds()
        if now - self._lastComplaint < COMPLAINT_SECONDS:
            return
        self._lastComplaint = now
        _log.warn(
            "spans were lost: {problem}; exported={exported} failed={failed} dropped={dropped}",
            problem=_oneLine(problem),
            exported=self.exporter.exported,
            failed=self.exporter.failed,
            dropped=self.dropped,
        )

    def _families(self) -> list[MetricFamily]:
        counts = {
            "exported": self.exporter.exported,
            "dropped": self.dropped,
            "failed": self.exporter.failed,
        }
        samples = [((outcome,), value) for outcome, value in counts.items()]
        help = "Spans by outcome."
        return [counterFamily("storagegate_spans_total", help, ("outcome",), samples)]


def _oneLine(text: str) -> str:
    """Return text from a remote program, bounded and safe for a log line."""
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= 300 else f"{shown[:300]}..."
