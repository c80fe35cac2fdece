"""
Records of completed S3 requests, and the observers that count, trace and log them.

All observers together may cost 4 of the 40 microseconds of a small read. They receive records in
batches, which takes half of the time of single records: otherwise the code of the requests evicts
the code of the observers from the processor's cache.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.core.addresses import schemeOf
from storagegate.core.context import Tracing
from storagegate.net.http.interfaces import BadRequest
from storagegate.net.http.message import ChannelRequest
from storagegate.objects.errors import Refusal
from storagegate.s3.errors import CODES, S3Error
from storagegate.s3.names import parseQuery
from storagegate.telemetry.metrics import OTHER, MetricFamily, MetricsRegistry, gaugeFamily

if TYPE_CHECKING:
    # A daemon without logs and traces does not import these.
    from storagegate.telemetry.accesslog import AccessLog, Entry
    from storagegate.telemetry.otlp import Tracer

UNKNOWN = "Unknown"
"""The operation of a request that was refused before it matched an operation."""

LOST_STATUS = 499
"""The status of a request whose client disconnected before the end of the response."""

BATCH_SIZE = 64
"""Records per batch."""

BATCH_SECONDS = 0.02
"""The longest time that a record waits for others."""

_log = Logger()


class S3RequestRecord(Struct, eq=False):
    """
    A request and its response. A C{Struct} takes a third of the time of other classes to make.

    A record does not keep the request itself: the requests of a waiting batch would displace the
    data of later requests from the processor's cache.

    @ivar began: Start of the request, by C{time.perf_counter}.
    @ivar traceId: The trace id, 32 hexadecimal digits.
    @ivar tracing: The trace that the client names, if any.
    @ivar path: The raw path.
    @ivar queryString: The raw query, without the question mark.
    @ivar agent: C{User-Agent}.
    @ivar operation: Amazon's name, such as C{GetObject}; see L{UNKNOWN}.
    @ivar accessKey: The authenticated access key.
    @ivar errorCode: Amazon's name of the error, if the response is one.
    @ivar errorMessage: The message of the error.
    @ivar explain: Finds the rule that refused the request, if access was denied.
    @ivar seconds: From the request's head to the end of the response, or of the connection.
    @ivar status: Status of the response; see L{LOST_STATUS}.
    @ivar bytesIn: Bytes of the request's body that were read.
    @ivar bytesOut: Bytes of the response's body that were sent.
    @ivar bucket: The bucket in the target; L{None} if the target names none or is malformed.
    @ivar key: The key in the target or the form.
    @ivar headers: The headers of a request that was refused before it matched an operation.
    @ivar crossOrigin: CORS header fields, also for an error.
    """

    began: float
    requestId: bytes
    traceId: bytes
    tracing: Tracing | None
    method: bytes
    path: bytes
    queryString: bytes
    agent: bytes
    clientHost: str
    isSecure: bool
    operation: str = UNKNOWN
    accessKey: str | None = None
    errorCode: str | None = None
    seconds: float = 0.0
    status: int = 0
    bytesIn: int = 0
    bytesOut: int = 0
    bucket: str | None = None
    key: bytes | None = None
    headers: Mapping[bytes, bytes] = {}
    crossOrigin: Sequence[tuple[bytes, bytes]] = ()
    errorMessage: str | None = None
    explain: Callable[[], Refusal] | None = None

    def identify(self) -> tuple[str, str]:
        """Return operation and version id, if the request names them."""
        from storagegate.s3.operations import findOperation
        from storagegate.telemetry.accesslog import MAX_TEXT

        operation, version = self.operation, ""
        try:
            query = parseQuery(self.queryString) if self.queryString else {}
            version = query.get("versionId", "")[:MAX_TEXT]
            if operation == UNKNOWN:
                hasBucket, hasKey = self.bucket is not None, self.key is not None
                operation = findOperation(self.method, hasBucket, hasKey, query, self.headers).name
        except S3Error:
            # The request was refused because of these.
            pass
        return operation, version


class S3Observer(Protocol):
    """Observer of completed S3 requests. Exceptions are logged and do not affect the response."""

    def observe(self, records: Sequence[S3RequestRecord]) -> None:
        """Receive a batch of records."""


class RequestObservers:
    """
    Pass records of completed requests to observers, in batches.

    @ivar isOn: Whether any observer is registered.
    @ivar inFlight: The number of requests that have started and are not complete.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.isOn = False
        self.inFlight = 0
        self._clock = clock
        self._batch: list[S3RequestRecord] = []
        self._timer: IDelayedCall | None = None
        self._observers: list[S3Observer] = []

    def add(self, observer: S3Observer) -> None:
        """Add an observer of later requests."""
        self.isOn = True
        self._observers.append(observer)

    def completed(self, record: S3RequestRecord, request: ChannelRequest) -> None:
        """
        Complete and queue the record of a request whose handler has returned or failed.

        @param request: The record is queued when the response is sent or the client disconnects.
        """
        if not (request.finished or request.disconnected):
            # The error response follows.
            request.onEnd(partial(self.completed, record, request))
            return
        record.seconds = perf_counter() - record.began
        record.status = request.status if request.finished else _lostStatus(request)
        record.bytesIn = request.body.taken
        record.bytesOut = request.bodySent
        if record.operation == UNKNOWN:
            record.headers = request.headers
        self.inFlight -= 1
        batch = self._batch
        batch.append(record)
        if len(batch) >= BATCH_SIZE:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.callLater(BATCH_SECONDS, self._timedOut)

    def _timedOut(self) -> None:
        self._timer = None
        self.flush()

    def stop(self) -> None:
        """Flush, and cancel the timer."""
        self.flush()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def flush(self) -> None:
        """Pass the queued records to the observers."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        for observer in self._observers:
            try:
                observer.observe(batch)
            except Exception:
                _log.failure("an observer of S3 requests failed")


def _lostStatus(request: ChannelRequest) -> int:
    error = request.lostReason.value if request.lostReason is not None else None
    # The connection itself rejects a body that is too slow or framed incorrectly.
    return error.code if isinstance(error, BadRequest) else LOST_STATUS


class RequestTracer:
    """An observer that records requests as spans."""

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer
        self._bound = tracer.bound.encode("ascii")

    def observe(self, records: Sequence[S3RequestRecord]) -> None:
        """Record the requests that are sampled."""
        tracer, bound = self._tracer, self._bound
        for record in records:
            received = record.tracing
            if received is None:
                if record.traceId[16:] >= bound:
                    continue
                received = Tracing(record.traceId.decode("ascii"))
            tracing = tracer.decide(received)
            if tracer.admit(tracing):
                attributes = spanAttributes(record)
                isFailed = record.status >= 500
                tracer.record(
                    tracing, record.operation, attributes, record.seconds, isFailed=isFailed
                )


def spanAttributes(record: S3RequestRecord) -> dict[str, Any]:
    """Describe a request by OpenTelemetry's conventions, without its query, which may be signed."""
    attributes: dict[str, Any] = {
        "rpc.system.name": "aws-api",
        "rpc.method": f"S3/{record.operation}",
        "storagegate.protocol": "s3",
        "http.request.method": record.method.decode("latin-1"),
        "http.response.status_code": record.status,
        "http.request.body.size": record.bytesIn,
        "http.response.body.size": record.bytesOut,
        "url.scheme": schemeOf(record.isSecure),
        # The span recorder redacts and truncates the path.
        "url.path": record.path[:4096].decode("latin-1"),
        "client.address": record.clientHost,
        "aws.request_id": record.requestId.decode("ascii"),
    }
    if record.errorCode is not None or record.status >= 400:
        attributes["error.type"] = record.errorCode or str(record.status)
    return attributes


class S3Metrics:
    """An observer that counts requests; equal requests of a batch are added together."""

    def __init__(self, meters: MetricsRegistry, observers: RequestObservers) -> None:
        """@param observers: Flushed before the metrics are read."""
        self._observers = observers
        self._requests = meters.counter(
            "storagegate_s3_requests_total",
            "S3 requests by operation and status; 499 for a client that went away.",
            ("operation", "status"),
        )
        # Enough for all operations with every status: thrice the default.
        self._requests.maxSets = 4500
        self._durations = meters.histogram(
            "storagegate_s3_request_duration_seconds",
            "Time from the head of a request to the end of its response.",
            ("operation",),
        )
        self._bytes = meters.counter(
            "storagegate_s3_bytes_total",
            "Bytes of bodies received and sent.",
            ("operation", "direction"),
        )
        self._errors = meters.counter(
            "storagegate_s3_errors_total", "Error responses by code.", ("code",)
        )
        meters.watch(self._collect)

    def observe(self, records: Sequence[S3RequestRecord]) -> None:
        """Count completed requests."""
        # Seconds and bytes in and out by key. No nested functions: each would cost a call.
        alike: dict[tuple[str, int, str | None], tuple[list[float], list[int], list[int]]] = {}
        for record in records:
            key = (record.operation, record.status, record.errorCode)
            group = alike.get(key)
            if group is None:
                group = alike[key] = ([], [], [])
            group[0].append(record.seconds)
            group[1].append(record.bytesIn)
            group[2].append(record.bytesOut)
        for (operation, status, code), (seconds, received, sent) in alike.items():
            self._requests.add(len(seconds), (operation, str(status)))
            self._durations.observeAll(seconds, (operation,))
            for total, direction in ((sum(received), "in"), (sum(sent), "out")):
                if total:
                    self._bytes.add(total, (operation, direction))
            if code is not None:
                self._errors.add(len(seconds), (code if code in CODES else OTHER,))

    def _collect(self) -> Iterator[MetricFamily]:
        self._observers.flush()
        yield gaugeFamily(
            "storagegate_s3_requests_in_flight",
            "S3 requests in progress.",
            self._observers.inFlight,
        )


NUMBERS = ("status_code", "bytes_in", "bytes_out")
TEXTS = ("error_code", "bucket", "access_key", "user_agent")
"""The fields of L{S3Log} in L{AccessLog} besides the usual and the per-request fields."""


_Names = tuple[str | None, str | None, str | None, bytes]
"""Error code, bucket, access key and C{User-Agent} of a request."""

_MAX_TEXTS = 1000
"""The number of templates in the access log."""

_isPlain = re.compile(rb"[ !#-\[\]-~]*").fullmatch
"""Match a key that needs no escaping in JSON."""


class S3Log:
    """
    An observer that logs each request in one line of the access log.

    The method is the operation, even if the request was refused before it matched one. The status
    is the error code, or the HTTP status. The L{NUMBERS} follow, then C{key}, C{version_id} and
    C{request_id}, then the L{TEXTS}.
    """

    def __init__(self, lines: "AccessLog", now: Callable[[], float] = time) -> None:
        """
        @param lines: The access log, configured with L{NUMBERS}, L{TEXTS} and members.
        @param now: Returns seconds since the epoch.
        """
        self._lines = lines
        self._now = now
        self._texts: dict[_Names, tuple[str, ...]] = {}

    def observe(self, records: Sequence[S3RequestRecord]) -> None:
        """Log completed requests."""
        now, known = self._now(), self._texts
        good: list[Entry] = []
        bad: list[Entry] = []
        for record in records:
            operation, version = record.operation, ""
            if record.queryString or operation == UNKNOWN:
                operation, version = record.identify()
            name = (record.errorCode, record.bucket, record.accessKey, record.agent)
            entry = (
                now,
                "s3",
                "S3",
                operation,
                record.clientHost,
                record.seconds,
                record.errorCode or str(record.status),
                record.traceId,
                (record.status, record.bytesIn, record.bytesOut, self._members(record, version)),
                known.get(name) or self._textsOf(name),
            )
            (good if record.status < 400 else bad).append(entry)
        self._lines.write(good)
        self._lines.write(bad, isGood=False)

    def _textsOf(self, name: _Names) -> tuple[str, ...]:
        """Return the L{TEXTS} of a request, and cache them for requests with the same texts."""
        from storagegate.telemetry.accesslog import MAX_TEXT

        code, bucket, accessKey, agent = name
        # Redaction cannot recognise a truncated secret, so the first cut leaves a wide margin.
        shown = self._lines.redact(agent[: 4 * MAX_TEXT].decode("latin-1"))[:MAX_TEXT]
        texts = (code or "", (bucket or "")[:MAX_TEXT], (accessKey or "")[:MAX_TEXT], shown)
        if len(self._texts) >= _MAX_TEXTS:
            self._texts.clear()
        if len(agent) <= MAX_TEXT:
            self._texts[name] = texts
        return texts

    def _members(self, record: S3RequestRecord, version: str) -> bytes:
        """Return the per-request members of a line."""
        key = record.key or b""
        text = key.decode("utf-8", "backslashreplace")
        shown = self._lines.redact(text)
        # Most keys need no escaping; skipping it halves the time.
        if not version and shown == text and _isPlain(key) is not None:
            return b'"key":"%b","version_id":"","request_id":"%b"' % (key, record.requestId)
        from storagegate.telemetry.log import formatJSON

        members = {
            "key": shown,
            "version_id": self._lines.redact(version),
            "request_id": record.requestId.decode("ascii"),
        }
        return formatJSON(members)[1:-1]
