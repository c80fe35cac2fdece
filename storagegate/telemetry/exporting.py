"""
Spans made of records and sent to a collector, by OpenTelemetry's packages.

Runs in a process of its own, see L{storagegate.telemetry.child}; everything here blocks.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import requests
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from storagegate import __version__
from storagegate.telemetry.attributes import ofCall, ofExchange, ofForward
from storagegate.telemetry.options import Collector
from storagegate.telemetry.pipes import Pipe
from storagegate.telemetry.records import CallRecord, ExchangeRecord, ForwardRecord, readRecord

MAX_ANSWER = 65_536
"""Bytes of a collector's answer that are read: it says little, or is none."""

_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)
_FAILED = Status(StatusCode.ERROR)


class SpanMaker:
    """Makes spans of records."""

    def __init__(self, serviceName: str | None) -> None:
        self._resource = makeResource(serviceName)
        self._scope = InstrumentationScope("storagegate", __version__)

    def make(self, item: list[Any]) -> ReadableSpan:
        """
        Make a span.

        @param item: See L{readRecord}.
        """
        place, record = readRecord(item)
        kind, attributes, name, isFailed = SpanKind.SERVER, {}, "", False
        match record:
            case CallRecord():
                name, attributes = f"{record.service}/{record.method}", ofCall(record)
                # What the caller did wrong is no failure of the server's.
                isFailed = record.error is not None and record.statusCode >= 500
            case ExchangeRecord():
                name, attributes = record.operation, ofExchange(record)
                isFailed = record.status >= 500
            case ForwardRecord():
                name, attributes = f"{record.service}/{record.method}", ofForward(record)
                kind, isFailed = SpanKind.CLIENT, record.error is not None
        traceId = int(place.traceId, 16)
        state = _state(place.state)
        parent = None
        if place.parentId is not None:
            isRemote = kind is SpanKind.SERVER
            parent = SpanContext(traceId, int(place.parentId, 16), isRemote, _FLAGS, state)
        return ReadableSpan(
            name=name,
            context=SpanContext(traceId, int(place.spanId, 16), False, _FLAGS, state),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=_FAILED if isFailed else _UNSET,
            start_time=place.endNs - int(place.seconds * 1e9),
            end_time=place.endNs,
            instrumentation_scope=self._scope,
        )


def makeResource(serviceName: str | None) -> Resource:
    """Say who we are; C{OTEL_RESOURCE_ATTRIBUTES} may say more."""
    own: dict[str, Any] = {
        "service.version": __version__,
        "service.instance.id": str(uuid.uuid4()),
        "process.pid": os.getpid(),
    }
    resource = Resource.create(own)
    named = serviceName or resource.attributes[SERVICE_NAME]
    if str(named).startswith("unknown_service"):
        named = "storagegate"
    return resource.merge(Resource({SERVICE_NAME: named}))


def _state(state: str) -> TraceState | None:
    return TraceState.from_header([state]) if state else None


class CollectorSession(requests.Session):
    """
    A session that reads no more of an answer than it has to, follows it nowhere, and remembers
    what was wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problem: str | None = None

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        """Send a request, and read the beginning of its answer."""
        more["stream"], more["allow_redirects"] = True, False
        seconds = more.get("timeout") or 10.0
        deadline = time.monotonic() + seconds
        try:
            with super().send(request, **more) as answer:
                return self._read(answer, deadline)
        except requests.RequestException as error:
            self.problem = f"the collector does not answer: {_reason(error)}"
            raise

    def _read(self, answer: requests.Response, deadline: float) -> requests.Response:
        body = b""
        for chunk in answer.iter_content(1024):
            body += chunk
            if len(body) > MAX_ANSWER or time.monotonic() > deadline:
                break
        taken = requests.Response()
        status = answer.status_code
        # To be sent elsewhere is not to be taken, whatever an exporter thinks of it.
        taken.status_code = status if status < 300 or status >= 400 else 404
        taken.reason, taken.url = answer.reason, answer.url
        taken.headers.update(answer.headers)
        # It is inflated already.
        taken.headers.pop("Content-Encoding", None)
        taken.raw = BytesIO(body[:MAX_ANSWER])
        self.problem = None if status < 300 else f"the collector answers {status}"
        return taken


def _reason(error: BaseException) -> str:
    """Give the innermost reason: the others only wrap it."""
    while error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    return str(reason if isinstance(reason, BaseException) else error)


def makeSDKExporter(collector: Collector, session: requests.Session) -> SpanExporter:
    """Make the exporter of a provider."""
    if collector.provider == "zipkin":
        from opentelemetry.exporter.zipkin.json import ZipkinExporter

        session.headers.update(collector.headers)
        # The package says whole seconds, requests takes any number.
        seconds: Any = collector.timeoutSeconds
        return ZipkinExporter(endpoint=collector.endpoint, timeout=seconds, session=session)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=collector.endpoint,
        headers=dict(collector.headers),
        timeout=collector.timeoutSeconds,
        session=session,
    )


class CollectorExporter:
    """Sends records to a collector."""

    def __init__(self, collector: Collector) -> None:
        self._session = CollectorSession()
        self._exporter = makeSDKExporter(collector, self._session)
        self._maker = SpanMaker(collector.serviceName)

    def export(self, records: Sequence[Any]) -> str | None:
        """Send records; give why they are lost."""
        spans = [self._maker.make(record) for record in records]
        self._session.problem = None
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return None
        return self._session.problem or "the exporter failed"

    def close(self) -> None:
        """Let go of the connection."""
        self._exporter.shutdown()


def main() -> None:
    """
    Export until there is no more to come.

    The standard input has a L{Collector}, then batches of records; the standard output an answer to
    each: what went wrong, or nothing.
    """
    # Whoever stops the daemon may tell all of its processes: this one ends after it, by the end of
    # its input, with what it is given until then.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Calls go first.
    os.nice(5)
    pipe = Pipe(sys.stdin.fileno(), sys.stdout.fileno())
    try:
        exporter = CollectorExporter(Collector(**pipe.read()))
    except Exception as error:
        pipe.write(f"{type(error).__name__}: {error}")
        return
    pipe.write(None)
    try:
        while True:
            batch = pipe.read()
            try:
                problem = exporter.export(batch)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            pipe.write(problem)
    except (EOFError, BrokenPipeError):
        exporter.close()


if __name__ == "__main__":
    main()
