"""
What those who count, trace or log are told of an S3 request.

All of it together may cost 4 of the 40 microseconds that a small read takes; that is why it is
written as it is here, and by those who are told.

What is counted of S3 requests.

One line of the log for each request of S3, like those of calls.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter, time
from typing import Protocol

from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.core.context import Tracing
from storagegate.core.httpurls import schemeOf
from storagegate.net.http.interfaces import BadRequest
from storagegate.net.http.message import ChannelRequest
from storagegate.s3.errors import CODES
from storagegate.telemetry.accesslog import MAX_TEXT, AccessLog, Entry
from storagegate.telemetry.metrics import OTHER, MetricFamily, MetricsRegistry, gaugeFamily
from storagegate.telemetry.tracing import Tracer, Value, boundedText

UNKNOWN = "Unknown"
"""The operation of a request that was refused before it was known what it asks for."""

LOST_STATUS = 499
"""The status of a request whose client went away before the whole answer was out."""

TOGETHER = 64
"""How many requests observers are told of at once; their memory is kept until then."""

WAIT_SECONDS = 0.02
"""How long a request waits for others."""

MAX_PATH = 1024
"""Bytes of a path that a span keeps: spans wait in memory."""

_log = Logger()


class S3RequestRecord(Struct, eq=False):
    """
    One request and its answer. A structure: it is made in a third of the time of other classes.

    What has no value of its own below is known when it begins.

    @ivar began: When, by C{time.perf_counter}.
    @ivar traceId: Of the trace that it belongs to, 32 hexadecimal digits.
    @ivar tracing: That trace, where the client names it or it is recorded.
    @ivar operation: Amazon's name, C{GetObject}; see L{UNKNOWN}.
    @ivar accessKey: Who asks, once that was proved.
    @ivar errorCode: Of an error, Amazon's name.
    @ivar seconds: From the request's head until the whole answer was out, or its client gone.
    @ivar status: The code of the answer; see L{LOST_STATUS}.
    @ivar bytesIn: How many bytes of the request's body were read.
    @ivar bytesOut: How many bytes of the answer's body went out.
    """

    request: ChannelRequest
    began: float
    requestId: bytes
    traceId: bytes
    tracing: Tracing | None = None
    operation: str = UNKNOWN
    accessKey: str | None = None
    errorCode: str | None = None
    seconds: float = 0.0
    status: int = 0
    bytesIn: int = 0
    bytesOut: int = 0


class S3Observer(Protocol):
    """Who is told of S3 requests. What it raises is logged and harms nobody."""

    def ended(self, exchanges: Sequence[S3RequestRecord]) -> None:
        """Take note of requests that are over."""


class RequestObservers:
    """
    Tells observers of requests, of several together.

    To look at many at once takes half of what it takes to look at each between two requests, whose
    code then has to come back into the processor's cache.

    @ivar isOn: Whether somebody observes.
    @ivar inFlight: How many requests have begun and are not over.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.isOn = False
        self.inFlight = 0
        self._clock = clock
        self._over: list[S3RequestRecord] = []
        self._timer: IDelayedCall | None = None
        self._observers: list[S3Observer] = []

    def add(self, observer: S3Observer) -> None:
        """Tell somebody of every request that begins from now on."""
        self.isOn = True
        self._observers.append(observer)

    def over(self, exchange: S3RequestRecord) -> None:
        """Take note that whoever answers a request has done so, or has failed."""
        request = exchange.request
        if not (request.finished or request.disconnected):
            # The answer to an error is still to come.
            request.onEnd(partial(self.over, exchange))
            return
        exchange.seconds = perf_counter() - exchange.began
        self.inFlight -= 1
        over = self._over
        over.append(exchange)
        if len(over) >= TOGETHER:
            self.tell()
        elif self._timer is None:
            self._timer = self._clock.callLater(WAIT_SECONDS, self._due)

    def _due(self) -> None:
        self._timer = None
        self.tell()

    def stop(self) -> None:
        """Tell of what is over, and wait for nothing more."""
        self.tell()
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def tell(self) -> None:
        """Tell at once of the requests that are over."""
        over, self._over = self._over, []
        if not over:
            return
        for exchange in over:
            request = exchange.request
            exchange.status = request.status if request.finished else _lostStatus(request)
            exchange.bytesIn = request.body.taken
            exchange.bytesOut = request.bodySent
        for observer in self._observers:
            try:
                observer.ended(over)
            except Exception:
                _log.failure("an observer of S3 requests failed")


def _lostStatus(request: ChannelRequest) -> int:
    """Give the status of a request that has no whole answer of this room."""
    error = request.lostReason.value if request.lostReason is not None else None
    # What the connection itself refused, a body that came too slowly or was framed wrongly.
    return error.code if isinstance(error, BadRequest) else LOST_STATUS


class RequestTracer:
    """An observer of S3 requests that records them as spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._bound = tracer.bound.encode("ascii")

    def ended(self, exchanges: Sequence[S3RequestRecord]) -> None:
        """Record the requests that are sampled."""
        bound = self._bound
        for exchange in exchanges:
            if exchange.tracing is not None:
                self._record(exchange, exchange.tracing)
            elif exchange.traceId[16:] < bound:
                self._record(exchange, Tracing(exchange.traceId.decode("ascii")))

    def _record(self, exchange: S3RequestRecord, received: Tracing) -> None:
        tracing = self._tracer.decide(received)
        if self._tracer.admit(tracing):
            isFailed = exchange.status >= 500
            attributes = spanAttributes(exchange)
            self._tracer.record(
                tracing, exchange.operation, attributes, exchange.seconds, isFailed=isFailed
            )


def spanAttributes(exchange: S3RequestRecord) -> dict[str, Value]:
    """Describe a request by OpenTelemetry's conventions, without its query: that may be signed."""
    request = exchange.request
    attributes: dict[str, Value] = {
        "rpc.system.name": "aws-api",
        "rpc.method": f"S3/{exchange.operation}",
        "storagegate.protocol": "s3",
        "http.request.method": request.method.decode("latin-1"),
        "http.response.status_code": exchange.status,
        "http.request.body.size": exchange.bytesIn,
        "http.response.body.size": exchange.bytesOut,
        "url.scheme": schemeOf(request.secure),
        "url.path": boundedText(request.path[:MAX_PATH].decode("latin-1")),
        "client.address": request.clientHost,
        "aws.request_id": exchange.requestId.decode("ascii"),
    }
    if exchange.errorCode is not None or exchange.status >= 400:
        attributes["error.type"] = exchange.errorCode or str(exchange.status)
    return attributes


_MAX_SETS = 3000
"""All operations with every status that they may have; the default would do for half of them."""


class S3Metrics:
    """
    An observer that counts requests by operation.

    Of those that it is told of together, those that are alike are added at once.
    """

    def __init__(self, meters: MetricsRegistry, observation: RequestObservers) -> None:
        self._observation = observation
        self._requests = meters.counter(
            "storagegate_s3_requests_total",
            "S3 requests by operation and status; 499 for a client that went away.",
            ("operation", "status"),
        )
        self._requests.maxSets = _MAX_SETS
        self._durations = meters.histogram(
            "storagegate_s3_request_duration_seconds",
            "From a request's head until its whole answer was out.",
            ("operation",),
        )
        self._bytes = meters.counter(
            "storagegate_s3_bytes_total",
            "Bytes of bodies that were read, and that went out.",
            ("operation", "direction"),
        )
        self._errors = meters.counter(
            "storagegate_s3_errors_total", "Answers that were errors, by code.", ("code",)
        )
        meters.watch(self._look)

    def ended(self, exchanges: Sequence[S3RequestRecord]) -> None:
        """Count their ends."""
        alike: dict[tuple[str, int, str | None], list[S3RequestRecord]] = {}
        for exchange in exchanges:
            key = (exchange.operation, exchange.status, exchange.errorCode)
            known = alike.get(key)
            if known is None:
                alike[key] = [exchange]
            else:
                known.append(exchange)
        for (operation, status, code), those in alike.items():
            self._requests.add(len(those), (operation, str(status)))
            self._durations.observeAll([each.seconds for each in those], (operation,))
            received = sum([each.bytesIn for each in those])
            if received:
                self._bytes.add(received, (operation, "in"))
            sent = sum([each.bytesOut for each in those])
            if sent:
                self._bytes.add(sent, (operation, "out"))
            if code is not None:
                self._errors.add(len(those), (code if code in CODES else OTHER,))

    def _look(self) -> Iterator[MetricFamily]:
        """Count what waits, and tell what is under way."""
        self._observation.tell()
        yield gaugeFamily(
            "storagegate_s3_requests_in_flight",
            "S3 requests that are being answered.",
            self._observation.inFlight,
        )


NUMBERS = ("bytes_in", "bytes_out")
TEXTS = ("access_key",)
"""What L{S3Log} needs of L{AccessLog} besides the fields."""

PROTOCOL = "s3"
SERVICE = "S3"


class S3Log:
    """
    An observer that logs the end of each request.

    The method is the operation and the status the code of the error, or that of HTTP; behind the
    fields stand C{bytes_in}, C{bytes_out} and the C{access_key}. Buckets and keys are not told:
    they are the business of whoever stores there.
    """

    def __init__(self, lines: AccessLog, now: Callable[[], float] = time) -> None:
        """
        @param lines: Made with L{NUMBERS} and L{TEXTS}.
        """
        self._lines = lines
        self._now = now

    def ended(self, exchanges: Sequence[S3RequestRecord]) -> None:
        """Log requests."""
        now = self._now()
        good: list[Entry] = []
        bad: list[Entry] = []
        for exchange in exchanges:
            status = exchange.status
            told = (
                now,
                PROTOCOL,
                SERVICE,
                exchange.operation,
                exchange.request.clientHost,
                exchange.seconds,
                exchange.errorCode or str(status),
                exchange.traceId,
                (exchange.bytesIn, exchange.bytesOut),
                ((exchange.accessKey or "")[:MAX_TEXT],),
            )
            (good if status < 400 else bad).append(told)
        self._lines.write(good)
        self._lines.write(bad, isGood=False)
