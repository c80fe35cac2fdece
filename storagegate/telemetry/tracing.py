"""
What decides in the reactor's thread whether a call is recorded, and takes note of its end.

A call whose caller says whether it records the trace is recorded as the caller does; of the
others, a part by the id of the trace, so that everybody who sees it decides alike
(U{https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling}).

Calls and requests that have ended, as they are recorded: plain values, for they go to another
process.

The attributes of spans, by the semantic conventions of OpenTelemetry.

U{https://opentelemetry.io/docs/specs/semconv/}: C{rpc.*}, C{http.*}, C{url.*}, C{client.*},
C{error.type}; what they have no name for begins with C{storagegate.}.

The way of spans from the reactor's thread to a collector.

Records wait in a queue of bounded length. A thread takes them out in batches and exports them; it
begins with the first record. Whatever the collector does, the reactor's thread appends to the
queue, or counts what found no room in it.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from storagegate.core.context import RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry
from storagegate.telemetry.tracecontext import newSpanId

MAX_PATH = 1024
"""Bytes of a path that are kept: records wait in memory."""

MAX_AGENT = 256
"""Characters of the name of a client's program that are kept, for the same reason."""


class SpanTiming(NamedTuple):
    """
    Where in a trace something is, and when it was.

    @ivar spanId: Its own span.
    @ivar parentId: The span that it belongs to, C{None} for the first of a trace.
    @ivar state: The C{tracestate}.
    @ivar endNs: When it ended, in nanoseconds since 1970.
    """

    traceId: str
    spanId: str
    parentId: str | None
    state: str
    endNs: int
    seconds: float


class CallSpan(NamedTuple):
    """
    A call of a service.

    @ivar error: The code of its error; C{None} if it went well.
    @ivar statusCode: The status of its answer over HTTP.
    @ivar extra: What the user's C{spanAttributes} gave.
    """

    protocol: str
    service: str
    method: str
    address: str
    port: int
    userAgent: str | None
    error: str | None
    statusCode: int
    extra: dict[str, Any] | None


class ExchangeRecord(NamedTuple):
    """A request of S3."""

    operation: str
    verb: bytes
    path: bytes
    address: str
    isSecure: bool
    status: int
    error: str | None
    bytesIn: int
    bytesOut: int
    requestId: str


class ForwardRecord(NamedTuple):
    """An attempt to have a call answered by somebody else."""

    service: str
    method: str
    host: str
    port: int
    error: str | None


Record = CallSpan | ExchangeRecord | ForwardRecord

CALL, EXCHANGE, FORWARD = range(3)

_KINDS: tuple[type[Record], ...] = (CallSpan, ExchangeRecord, ForwardRecord)

_PLACE_LENGTH = 1 + len(SpanTiming._fields)


def readRecord(item: list[Any]) -> tuple[SpanTiming, Record]:
    """
    Read what is recorded.

    @param item: C{CALL}, C{EXCHANGE} or C{FORWARD}; the fields of the place; those of the record.
        In one flat tuple: to make named ones costs as much as all the rest.
    """
    kind = _KINDS[item[0]]
    return SpanTiming._make(item[1:_PLACE_LENGTH]), kind._make(item[_PLACE_LENGTH:])


MAX_ATTRIBUTES = 112
"""Of a user's on one span: with ours, the 128 that OpenTelemetry itself keeps."""

MAX_TEXT = 1024
"""Characters of a value, and of a name: more is no name of anything, and spans wait in memory."""

MAX_ITEMS = 128
"""Of a value that is a list."""

_INT64 = 1 << 63

Value = Any
"""Text, a truth value, a number, or a list of one of these kinds."""


def callAttributes(record: CallSpan) -> dict[str, Value]:
    """Describe a call of a service."""
    protocol = record.protocol
    found: dict[str, Value] = {
        "rpc.system.name": "grpc" if protocol == "grpc" else "storagegate",
        "rpc.method": f"{record.service}/{record.method}",
        "storagegate.protocol": protocol,
        "client.address": record.address,
    }
    if record.port:
        found["client.port"] = record.port
    if protocol == "http":
        found["http.response.status_code"] = record.statusCode
    if record.userAgent:
        found["user_agent.original"] = _text(record.userAgent)
    if record.error is not None:
        found["error.type"] = _text(record.error)
    if record.extra:
        # What a call is called is not a user's to say.
        found = {**record.extra, **found}
    return found


def requestAttributes(record: ExchangeRecord) -> dict[str, Value]:
    """Describe a request of S3. Its query is left out: signatures are there."""
    found: dict[str, Value] = {
        "rpc.system.name": "aws-api",
        "rpc.method": f"S3/{record.operation}",
        "storagegate.protocol": "s3",
        "http.request.method": record.verb.decode("latin-1"),
        "http.response.status_code": record.status,
        "http.request.body.size": record.bytesIn,
        "http.response.body.size": record.bytesOut,
        "url.scheme": "https" if record.isSecure else "http",
        "url.path": _text(record.path.decode("latin-1")),
        "client.address": record.address,
        "aws.request_id": record.requestId,
    }
    if record.error is not None or record.status >= 400:
        found["error.type"] = record.error or str(record.status)
    return found


def attemptAttributes(record: ForwardRecord) -> dict[str, Value]:
    """Describe a call that was made on somebody's behalf."""
    found: dict[str, Value] = {
        "rpc.system.name": "storagegate",
        "rpc.method": f"{record.service}/{record.method}",
        "server.address": record.host,
        "server.port": record.port,
    }
    if record.error is not None:
        found["error.type"] = _text(record.error)
    return found


def readAttributes(given: Mapping[Any, Any]) -> dict[str, Value]:
    """Take a user's attributes; what can be none is left out."""
    found: dict[str, Value] = {}
    for name, value in given.items():
        if len(found) >= MAX_ATTRIBUTES:
            break
        if isinstance(name, str) and name:
            known = readValue(value)
            if known is not None:
                found[_text(name)] = known
    return found


def readValue(value: Any) -> Value:
    """Give a value as a collector can take it; C{None} if it is none."""
    if isinstance(value, list | tuple):
        return _readItems(value)
    return _readScalar(value)


def _readScalar(value: Any) -> Value:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | float):
        return value
    # What is larger has no place in the messages, and would cost all that are sent with it.
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _readItems(values: Sequence[Any]) -> Value:
    items = [_readScalar(value) for value in values[:MAX_ITEMS]]
    kinds = {type(item) for item in items}
    return items if len(kinds) == 1 and None not in items else None


def _text(value: str) -> str:
    """Give text that has a form in UTF-8, and an end."""
    return value[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


FLUSH_SECONDS = 2
"""What the end of the process waits for the collector: a part of the ten seconds that a container
is given after it was told to stop."""

COMPLAINT_SECONDS = 60
"""Between two lines of the log that say that spans are lost."""

_log = Logger()


class Exporter(Protocol):
    """Who sends spans; it lives in the thread that made it."""

    def export(self, records: Sequence[Any]) -> str | None:
        """Send them; blocking. Gives why they are lost, C{None} if they are not."""

    def close(self) -> None:
        """Let go of what it has; blocking."""

    def abort(self) -> None:
        """Have L{export} return soon. Called in another thread."""


def _startThread(work: Callable[[], None]) -> None:
    # It must not keep a process that has ended: what it waits for may never come.
    threading.Thread(target=work, name="tracing", daemon=True).start()


class Recorder:
    """
    Keeps records and has them exported.

    The counts are of whole spans; each is written by one thread only.

    @ivar dropped: Those that found no room.
    @ivar exported: Those that the collector has taken.
    @ivar failed: Those that it has not.
    """

    def __init__(
        self,
        open: Callable[[], Exporter],
        reactor: Any,
        *,
        meters: MetricsRegistry | None = None,
        queueSize: int = 2048,
        batchSize: int = 512,
        intervalSeconds: float = 5.0,
        startThread: Callable[[Callable[[], None]], None] = _startThread,
    ) -> None:
        """
        @param open: Makes the exporter, in the thread.
        @param reactor: Gives the time, and takes calls from the thread.
        @param intervalSeconds: How long a record waits for others.
        """
        self.dropped = self.exported = self.failed = 0
        self._open = open
        self._reactor = reactor
        self._records: deque[Any] = deque()
        self._queueSize = queueSize
        self._batchSize = min(batchSize, queueSize)
        self._intervalSeconds = intervalSeconds
        self._startThread = startThread
        self._hasThread = self._isStopping = self._isGivenUp = False
        self._exporter: Exporter | None = None
        self._wake = threading.Event()
        self._ended: Deferred[None] = Deferred()
        self._lastComplaint = float("-inf")
        if meters is not None:
            meters.watch(self._families)

    def put(self, record: Any) -> None:
        """Keep a record, if there is room."""
        records = self._records
        if len(records) >= self._queueSize or self._isStopping:
            self.dropped += 1
            if not self._isStopping:
                self._complain("the collector does not take them fast enough")
            return
        records.append(record)
        if len(records) == self._batchSize:
            self._wake.set()
        if not self._hasThread:
            self._hasThread = True
            self._startThread(self._work)

    def stop(self) -> Deferred[None]:
        """
        Send what waits, for L{FLUSH_SECONDS} at most.

        @return: Fires when all is sent or given up.
        """
        if self._isStopping or not self._hasThread:
            self._isStopping = True
            return succeed(None)
        self._isStopping = True
        self._wake.set()
        timer = self._reactor.callLater(FLUSH_SECONDS, self._giveUp)

        def ended(result: None) -> None:
            if timer.active():
                timer.cancel()

        return self._ended.addCallback(ended)

    def _giveUp(self) -> None:
        self._isGivenUp = True
        self.dropped += len(self._records)
        self._records.clear()
        if self._exporter is not None:
            self._exporter.abort()
        self._finish()

    def _finish(self) -> None:
        if not self._ended.called:
            self._ended.callback(None)

    # In the thread.

    def _work(self) -> None:
        """Export until it is told to stop. Runs in the thread."""
        try:
            exporter = self._exporter = self._open()
        except Exception as error:
            self._tell(self._refuse, f"tracing does not work: {error}")
            return
        while True:
            self._wake.wait(self._intervalSeconds)
            self._wake.clear()
            isLast = self._isStopping
            while self._records and not self._isGivenUp:
                self._exportBatch(exporter)
            if isLast:
                break
        exporter.close()
        if not self._isGivenUp:
            self._tell(self._finish)

    def _exportBatch(self, exporter: Exporter) -> None:
        records = self._records
        batch: list[Any] = []
        try:
            while len(batch) < self._batchSize:
                batch.append(records.popleft())
        except IndexError:
            if not batch:
                # They were given up just now.
                return
        try:
            problem = exporter.export(batch)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is None:
            self.exported += len(batch)
        else:
            self.failed += len(batch)
            if not self._isGivenUp:
                self._tell(self._complain, problem)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        self._reactor.callFromThread(function, *arguments)

    # In the reactor's thread.

    def _refuse(self, problem: str) -> None:
        """Drop everything, now and later: the exporter cannot be made."""
        _log.error("{problem}", problem=_line(problem))
        self._isStopping = True
        self.dropped += len(self._records)
        self._records.clear()
        self._finish()

    def _complain(self, problem: str) -> None:
        now = self._reactor.seconds()
        if now - self._lastComplaint < COMPLAINT_SECONDS:
            return
        self._lastComplaint = now
        _log.warn(
            "spans are lost: {problem}; exported={exported} failed={failed} dropped={dropped}",
            problem=_line(problem),
            exported=self.exported,
            failed=self.failed,
            dropped=self.dropped,
        )

    def _families(self) -> list[MetricFamily]:
        outcomes = {"exported": self.exported, "dropped": self.dropped, "failed": self.failed}
        return [
            MetricFamily(
                "storagegate_spans_total",
                "Spans by what became of them.",
                "counter",
                ("outcome",),
                (),
                "sum",
                [((outcome,), value) for outcome, value in outcomes.items()],
            )
        ]


def _line(text: str) -> str:
    """Give text of anybody's as a part of one line."""
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= 300 else f"{shown[:300]}..."


class Tracer:
    """
    Records calls of services, requests of S3 and what is forwarded.

    @ivar recorder: Takes the records.
    @ivar bound: A trace of which no caller has decided is recorded if the last 16 digits of its id
        come before this.
    @ivar spanAttributes: The user's C{(context)}, C{None} for none.
    @ivar correlationHeader: The field of HTTP that has the id of a trace.
    """

    def __init__(
        self,
        recorder: Recorder,
        sampleRatio: float = 1.0,
        spanAttributes: Callable[[RequestContext], Mapping[str, Any] | None] | None = None,
        correlationHeader: str = "X-Trace-ID",
    ) -> None:
        self.recorder = recorder
        # Of the 64 lower bits of a trace's id, which are random wherever it was made.
        bound = round(sampleRatio * (1 << 64))
        # Text is compared in half the time of numbers; no digit comes after "g".
        self.bound = f"{bound:016x}" if bound >> 64 == 0 else "g"
        self.spanAttributes = spanAttributes
        self.correlationHeader = correlationHeader
        self._hasComplained = False

    def decide(self, tracing: Tracing) -> Tracing:
        """Give a call's trace, with a span of its own if the call is recorded."""
        if tracing.spanId is None:
            if tracing.traceId[16:] >= self.bound:
                return tracing
        elif not tracing.sampled:
            return tracing
        return Tracing(tracing.traceId, tracing.spanId, True, tracing.state, newSpanId())

    def forwarded(
        self,
        tracing: Tracing,
        service: str,
        method: str,
        place: tuple[str, int],
        seconds: float,
        error: str | None,
    ) -> None:
        """
        Take note of an attempt to have a call answered by somebody else.

        @param tracing: What
        L{forwardedTracing<storagegate.telemetry.tracecontext.forwardedTracing>} gave;
            nothing is recorded of a call that is not sampled.
        @param place: The host and the port that were asked.
        @param error: What became of it, in a word; C{None} if it went well.
        """
        if tracing.sampled and tracing.ownId is not None:
            self.recorder.put(
                (
                    FORWARD,
                    tracing.traceId,
                    tracing.ownId,
                    tracing.spanId,
                    tracing.state,
                    time_ns(),
                    seconds,
                    service,
                    method,
                    *place,
                    error,
                )
            )

    def extra(self, context: RequestContext) -> Any:
        """Ask the user for attributes; what goes wrong there is told once."""
        assert self.spanAttributes is not None
        try:
            found = self.spanAttributes(context)
            if found is None:
                return None
            if isinstance(found, Mapping):
                return readAttributes(found)
            if hasattr(found, "close"):
                # A coroutine: nothing here can wait for it.
                found.close()
            raise TypeError(f"spanAttributes gives a mapping, not {type(found).__name__}")
        except Exception:
            if not self._hasComplained:
                self._hasComplained = True
                _log.failure("spanAttributes failed; this is told once")
            return None


class CallTracer:
    """An observer of the calls of services."""

    def __init__(self, tracer: Tracer) -> None:
        self._decide = tracer.decide
        self._bound = tracer.bound
        self._put = tracer.recorder.put
        self._extra = None if tracer.spanAttributes is None else tracer.extra

    def began(self, context: RequestContext) -> None:
        """Decide, before the handler sees the context."""
        tracing = context.tracing
        # Of most calls it is known with this what C{decide} would say.
        if tracing.spanId is not None or tracing.traceId[16:] < self._bound:
            context.tracing = self._decide(tracing)

    def ended(self, context: RequestContext, error: ServiceError | None, seconds: float) -> None:
        """Record the call's end."""
        tracing = context.tracing
        if tracing.ownId is None or not tracing.sampled:
            return
        client = context.client
        agent = client.userAgent
        self._put(
            (
                CALL,
                tracing.traceId,
                tracing.ownId,
                tracing.spanId,
                tracing.state,
                time_ns(),
                seconds,
                context.protocol,
                context.service,
                context.method,
                client.address,
                client.port,
                None if agent is None else agent[:MAX_AGENT],
                None if error is None else error.code,
                200 if error is None else error.statusCode,
                None if self._extra is None else self._extra(context),
            )
        )
