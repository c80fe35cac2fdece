"""
Spans made of records and sent to a collector, by OpenTelemetry's packages.

Runs in a process of its own, see L{storagegate.telemetry.otlp}; everything here blocks.

Where spans go, and which: the options, and what the environment says where they say nothing.

A tracer, put together of the options.

Messages on a pair of pipes between two of our processes::

    message     = length value
    length      = 4OCTET                big-endian, of the value in bytes
    value       = *OCTET                MessagePack

The process that exports, as the thread that feeds it sees it.
"""

import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import requests
from attrs import asdict, field, frozen
from attrs.converters import optional
from msgspec import msgpack
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
from storagegate.core.options import OptionError, readFlag, readFunction, readNumber, readWord
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.telemetry.tracing import (
    CallSpan,
    ExchangeRecord,
    Exporter,
    ForwardRecord,
    Recorder,
    Tracer,
    attemptAttributes,
    callAttributes,
    readRecord,
    requestAttributes,
)

PROVIDERS = ("otlp", "jaeger", "zipkin")

_DEFAULT_PLACES: Mapping[str, tuple[str, str]] = {
    "otlp": ("http://127.0.0.1:4318", "/v1/traces"),
    # Jaeger has taken OTLP since 1.35, and nothing else since 2.0.
    "jaeger": ("http://127.0.0.1:4318", "/v1/traces"),
    "zipkin": ("http://127.0.0.1:9411", "/api/v2/spans"),
}

_OTLP_PLACE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_OTLP_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_SERVICE_NAME = "OTEL_SERVICE_NAME"

_PACKAGES: Mapping[str, str] = {
    "otlp": "opentelemetry.exporter.otlp.proto.http",
    "jaeger": "opentelemetry.exporter.otlp.proto.http",
    "zipkin": "opentelemetry.exporter.zipkin.json",
}


def _provider(value: Any) -> str:
    return readWord(value, PROVIDERS)


def _url(value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError("is a URL")
    try:
        parts = urlsplit(value)
        isGood = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        isGood = False
    if not isGood or parts.fragment:
        raise ValueError("is a URL such as http://127.0.0.1:4318/v1/traces")
    return value


def _fieldName(value: Any) -> str:
    if not isinstance(value, str) or not value.replace("-", "").isalnum() or not value.isascii():
        raise ValueError("is the name of a header field")
    return value


def _headers(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of header fields")
    for name, text in value.items():
        _fieldName(name)
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            # The value may be a key: it is not shown.
            raise ValueError(f"has text as the value of {name}")
    return dict(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("is a name")
    return value


def _ratio(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("is a number from 0 to 1")
    return float(value)


def _spans(value: Any) -> int:
    return readNumber(value, 1, 1_000_000, "spans")


def _milliseconds(value: Any) -> int:
    return readNumber(value, 1, 600_000, "milliseconds")


@frozen(kw_only=True)
class TracingOptions:
    """
    Where calls are traced to.

    @ivar enabled: Whether spans are recorded, which needs C{pip install 'storagegate[tracing]'}.
    @ivar provider: How spans are sent; without it C{otlp}. C{jaeger} is sent OTLP as well.
    @ivar endpoint: The collector's URL; without it C{http://127.0.0.1:4318/v1/traces}, and
        C{http://127.0.0.1:9411/api/v2/spans} for C{zipkin}.
    @ivar headers: Header fields of what goes to the collector.
    @ivar serviceName: What the spans say who we are; without it C{storagegate}.
    @ivar sampleRatio: Which part is recorded of the calls whose callers do not say.
    @ivar correlationHeader: Which field of HTTP carries the id of the trace.
    @ivar spanAttributes: C{(context)} gives a mapping of attributes, at the end of a call.
    @ivar queueSize: How many spans wait for the collector; further ones are dropped.
    @ivar batchSize: How many of them are sent at a time.
    @ivar intervalMs: How long a span waits for others.
    @ivar timeoutMs: How long the collector may take for an answer.
    """

    enabled: bool = field(default=False, converter=readFlag)
    provider: str | None = field(default=None, converter=optional(_provider))
    endpoint: str | None = field(default=None, converter=optional(_url))
    headers: Mapping[str, str] = field(factory=dict, converter=_headers, repr=False)
    serviceName: str | None = field(default=None, converter=optional(_name))
    sampleRatio: float = field(default=1.0, converter=_ratio)
    correlationHeader: str = field(default="X-Trace-ID", converter=_fieldName)
    spanAttributes: Any = field(default=None, converter=optional(readFunction))
    queueSize: int = field(default=2048, converter=_spans)
    batchSize: int = field(default=512, converter=_spans)
    intervalMs: int = field(default=5000, converter=_milliseconds)
    timeoutMs: int = field(default=10_000, converter=_milliseconds)


@frozen(kw_only=True)
class Collector:
    """
    Who takes spans: what the options and the environment say together.

    @ivar serviceName: C{None} where neither names one.
    """

    provider: str
    endpoint: str
    headers: Mapping[str, str] = field(repr=False)
    serviceName: str | None
    timeoutSeconds: float


def readCollector(
    options: TracingOptions, environment: Mapping[str, str] = os.environ
) -> Collector:
    """
    Find out where spans go.

    @raise OptionError: If a variable of the environment says nothing that can be, or OpenTelemetry
        is not installed.
    """
    provider = options.provider or "otlp"
    _checkInstalled(_PACKAGES[provider])
    place, path = _DEFAULT_PLACES[provider]
    headers = options.headers
    if provider != "zipkin":
        headers = headers or _listedHeaders(environment.get(_OTLP_HEADERS, ""))
        named = environment.get(_OTLP_PLACE, "").strip()
        if named:
            try:
                place = _url(named)
            except ValueError as error:
                raise OptionError(f"the variable {_OTLP_PLACE} {error}") from None
    endpoint = options.endpoint
    if endpoint is None:
        # The variable names a server: other signals than traces have other paths there.
        endpoint = place.rstrip("/") + path
    elif urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + path
    return Collector(
        provider=provider,
        endpoint=endpoint,
        headers=headers,
        serviceName=options.serviceName or environment.get(_SERVICE_NAME) or None,
        timeoutSeconds=options.timeoutMs / 1000,
    )


def _listedHeaders(text: str) -> Mapping[str, str]:
    """Read C{name=value,name=value}, the values escaped as in URLs."""
    from urllib.parse import unquote

    found = {}
    for each in text.split(","):
        name, separator, value = each.partition("=")
        if separator:
            found[name.strip()] = unquote(value.strip())
    try:
        return _headers(found)
    except ValueError as error:
        raise OptionError(f"the variable {_OTLP_HEADERS} {error}") from None


def _checkInstalled(package: str) -> None:
    for name in ("opentelemetry.sdk.trace", package):
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise OptionError(
                f"the option tracing.enabled needs {name}: pip install 'storagegate[tracing]'"
            )


def makeTracer(
    options: TracingOptions, reactor: Any, meters: MetricsRegistry | None = None
) -> Tracer:
    """
    Make what traces the calls of a process.

    @param reactor: The whole reactor.
    @raise OptionError: If the environment says nothing that can be, or a package is missing.
    """
    collector = readCollector(options)

    def open() -> Exporter:

        return ChildExporter(collector)

    recorder = Recorder(
        open,
        reactor,
        meters=meters,
        queueSize=options.queueSize,
        batchSize=options.batchSize,
        intervalSeconds=options.intervalMs / 1000,
    )
    return Tracer(recorder, options.sampleRatio, options.spanAttributes, options.correlationHeader)


_LENGTH = 4

_CHUNK = 65_536


class PipeTimeout(Exception):
    """Nothing came in time."""


class Pipe:
    """One end. Everything blocks."""

    def __init__(self, reading: int, writing: int) -> None:
        """
        @param reading: The descriptor to read from; the owner closes it.
        """
        self._reading = reading
        self._writing = writing

    def write(self, value: Any) -> None:
        """
        Send a value.

        @raise OSError: If nobody reads it.
        """
        body = msgpack.encode(value)
        rest = memoryview(len(body).to_bytes(_LENGTH, "big") + body)
        while rest:
            rest = rest[os.write(self._writing, rest) :]

    def read(self, seconds: float | None = None) -> Any:
        """
        Wait for a value.

        @param seconds: How long; C{None} for ever.
        @raise EOFError: If there are no more.
        @raise PipeTimeout: If none came in time.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        length = int.from_bytes(self._take(_LENGTH, deadline), "big")
        return msgpack.decode(self._take(length, deadline))

    def _take(self, length: int, deadline: float | None) -> bytes:
        taken = bytearray()
        while len(taken) < length:
            if deadline is not None:
                self._wait(deadline)
            data = os.read(self._reading, min(_CHUNK, length - len(taken)))
            if not data:
                raise EOFError("the pipe is closed")
            taken += data
        return bytes(taken)

    def _wait(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise PipeTimeout("nothing came in time")


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
            case CallSpan():
                name, attributes = f"{record.service}/{record.method}", callAttributes(record)
                # What the caller did wrong is no failure of the server's.
                isFailed = record.error is not None and record.statusCode >= 500
            case ExchangeRecord():
                name, attributes = record.operation, requestAttributes(record)
                isFailed = record.status >= 500
            case ForwardRecord():
                name, attributes = f"{record.service}/{record.method}", attemptAttributes(record)
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


START_SECONDS = 30
"""How long the process may take to import what it needs, on a machine that has much to do."""

SPARE_SECONDS = 5
"""What it may take beyond the time that the collector has: then it is stuck, and killed."""

RESTART_SECONDS = 10
"""Between two starts: a process that ends at once must not be started all the time."""


class ChildExporter:
    """
    Has spans exported by a process of its own, and replaces that if it ends.

    Made and used in a thread; only L{abort} may be called in another.
    """

    def __init__(self, collector: Collector) -> None:
        """
        @raise RuntimeError: If the process cannot export.
        """
        self._collector = collector
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._started = float("-inf")
        self._isAborted = False
        self._start()

    def export(self, records: Sequence[Any]) -> str | None:
        """Send records; give why they are lost."""
        try:
            pipe = self._pipe or self._start()
            pipe.write(records)
            answer = pipe.read(self._collector.timeoutSeconds + SPARE_SECONDS)
            return None if answer is None else str(answer)
        except PipeTimeout:
            self._end(isKilled=True)
            return "the exporting process was stuck"
        except (OSError, EOFError):
            self._end(isKilled=True)
            return "the exporting process ended"
        except RuntimeError as error:
            return str(error)

    def abort(self) -> None:
        """Give up what is under way. May be called in any thread."""
        self._isAborted = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Let the process end."""
        self._end(isKilled=False)

    def _start(self) -> Pipe:
        """
        Start the process and wait until it can export.

        @raise RuntimeError: If it cannot, or was started just now.
        """
        now = time.monotonic()
        if self._isAborted or now - self._started < RESTART_SECONDS:
            raise RuntimeError("the exporting process ended")
        self._started = now
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "storagegate.telemetry.otlp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        pipe = self._pipe = Pipe(process.stdout.fileno(), process.stdin.fileno())
        try:
            pipe.write(asdict(self._collector))
            problem = pipe.read(START_SECONDS)
        except (OSError, EOFError, PipeTimeout):
            problem = "the exporting process did not start"
        if problem is not None:
            self._end(isKilled=True)
            raise RuntimeError(str(problem))
        return pipe

    def _end(self, isKilled: bool) -> None:
        process, self._process, self._pipe = self._process, None, None
        if process is None:
            return
        if isKilled:
            process.kill()
        with process:
            # Its input ends, and so does it; what it is sending it has had time for.
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()


def _environment() -> dict[str, str]:
    """Give the environment in which the process finds this package."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [package, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
