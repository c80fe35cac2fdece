"""
One attempt of a call that is forwarded to an instance, in each of the four ways to stream.

The requests of a stream go out while the responses come in, each as fast as the slower end takes
them. However an attempt ends, its slot is told so once, and its connection is given back or
closed; closing it is how an instance learns that nobody waits any more.

The heads of requests to the gateways of instances::

    POST {basePath}/{Service}/{method} HTTP/1.1
    Host, Content-Type, and Content-Length or Transfer-Encoding
    Authorization, and the field of API keys    who calls, as the caller said it
    X-Deadline-Ms                               how long the caller waits
    traceparent, tracestate                     where the call belongs
    X-Forwarded-For                             the caller's address, behind those before it
    X-Gateway-Hops                              how many gateways have sent it on

What a caller wrote goes out only where it can be a field: nobody writes lines of his own into it.

What the gateway of an instance answers, read: results, items of streams, and errors.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from math import ceil
from typing import Any
from urllib.parse import quote

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.codecs import JSON
from storagegate.core.context import MAX_DEADLINE_MS, MAX_TOKEN_LENGTH, RequestContext, Tracing
from storagegate.core.errors import (
    CODES,
    GRPC_STATUSES,
    GrpcError,
    ServiceError,
    asServiceError,
    codedError,
)
from storagegate.core.invoker import CallCredentials
from storagegate.core.options import parseDecimal
from storagegate.net.http.clientconnection import (
    ClientRequest,
    ConnectionLostError,
    HTTPClientError,
    ResponseHead,
)
from storagegate.net.http.lines import NDJSON, LineTooLong, NDJSONDecoder
from storagegate.telemetry.tracecontext import formatTraceparent, forwardedTracing
from storagegate.upstream.cluster import CallSlot
from storagegate.upstream.metrics import UpstreamMetrics
from storagegate.upstream.options import Instance, formatAddress
from storagegate.upstream.retry import AttemptFailed

_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")

# As many as a head of 16 KiB can bear beside all else; whoever needs more has a loop of proxies.
_MAX_FORWARDED = 2 * 1024

HOPS = "X-Gateway-Hops"

MAX_HOPS = 5
"""Gateways in a row. An instance that discovery leads back to itself would go on for ever."""


class RequestHeads:
    """Writes the heads of the calls of one service."""

    def __init__(self, basePath: str, service: str, apiKeyHeader: str) -> None:
        self._path = f"{basePath}/{quote(service, safe='')}/"
        self._apiKeyHeader = apiKeyHeader

    def write(
        self,
        instance: Instance,
        context: RequestContext,
        tracing: Tracing,
        leftSeconds: float | None,
        length: int | None,
    ) -> bytes:
        """
        Write a head.

        @param tracing: The trace as the instance is to see it.
        @param leftSeconds: How long somebody waits for the answer; C{None} for ever.
        @param length: Bytes of the body; C{None} for a stream.
        @raise ServiceError: C{INTERNAL_ERROR} if the call goes in circles.
        """
        place = formatAddress(instance.host, instance.port)
        lines = [
            f"POST {self._path}{quote(context.method, safe='')} HTTP/1.1",
            f"Host: {place}",
            f"traceparent: {formatTraceparent(tracing)}",
            f"{HOPS}: {_hops(context) + 1}",
        ]
        if length is None:
            lines.append("Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked")
        else:
            lines.append(f"Content-Type: application/json\r\nContent-Length: {length}")
        if leftSeconds is not None:
            ms = min(MAX_DEADLINE_MS, max(1, ceil(leftSeconds * 1000)))
            lines.append(f"X-Deadline-Ms: {ms}")
        for name, value in self._fields(context):
            if value and _VALUE.fullmatch(value) is not None:
                lines.append(f"{name}: {value}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def _fields(self, context: RequestContext) -> list[tuple[str, str | None]]:
        headers = context.headers
        credentials = _credentialsOf(context)
        if credentials.hasFields:
            # As they came.
            token, key = headers.get("authorization"), headers.get(self._apiKeyHeader.lower())
        else:
            # Messages have one place for both: it is for the instance to say which of them it is.
            key = credentials.token
            token = f"Bearer {key}" if key else None
        return [
            ("Authorization", _short(token)),
            (self._apiKeyHeader, _short(credentials.apiKey or key)),
            ("tracestate", context.tracing.state),
            ("X-Forwarded-For", _forwarded(headers.get("x-forwarded-for"), context)),
        ]


def _credentialsOf(context: RequestContext) -> CallCredentials:
    known = context.credentials
    return known if isinstance(known, CallCredentials) else CallCredentials()


def _hops(context: RequestContext) -> int:
    """Tell how many gateways have sent the call on."""
    try:
        hops = parseDecimal(context.headers.get(HOPS.lower(), "0"), MAX_HOPS)
    except ValueError:
        hops = MAX_HOPS
    if hops >= MAX_HOPS:
        # No fault of the instance: it is not tried again elsewhere.
        raise codedError("INTERNAL_ERROR", f"{context.service} is forwarded in circles")
    return hops


def _short(value: str | None) -> str | None:
    """Leave out what is too long for any provider, and might be for the head."""
    return None if value is None or len(value) > MAX_TOKEN_LENGTH + 7 else value


def _forwarded(before: str | None, context: RequestContext) -> str | None:
    address = context.client.address
    if before and len(before) <= _MAX_FORWARDED and _credentialsOf(context).hasFields:
        return f"{before}, {address}"
    return address


class AnswerError(ValueError):
    """What came is no answer of a gateway; the text says what it is not."""


def readResult(status: int, body: bytes) -> Any:
    """
    Read the answer to a unary call. May run in a thread.

    @raise ServiceError: The one that it is.
    @raise AnswerError: If it is no answer.
    """
    value = _object(body)
    if status == 200:
        if "data" not in value:
            raise AnswerError("an answer without data")
        return value["data"]
    raise _error(value, status)


def readItem(line: bytes) -> Any:
    """
    Read a line of a stream. May run in a thread.

    @raise ServiceError: The one that it is.
    @raise AnswerError: If it is neither an item nor an error.
    """
    value = _object(line)
    if "data" in value:
        return value["data"]
    raise _error(value, None)


def unavailable(service: str, reason: str) -> ServiceError:
    """Make the error for an instance that has not answered, or nothing that makes sense."""
    return codedError("UNAVAILABLE", f"An instance of {service} {reason}")


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = JSON.decode(body)
    except ValueError as error:
        raise AnswerError("no JSON") from error
    if not isinstance(value, dict):
        raise AnswerError("no JSON object")
    return value


def _error(value: Mapping[str, Any], status: int | None) -> ServiceError:
    """Make the error that an instance has told, with the status that it has on every wire."""
    code, message = value.get("error"), value.get("message", "")
    if not isinstance(code, str) or not isinstance(message, str):
        raise AnswerError("neither data nor an error")
    if status is not None and not 400 <= status <= 599:
        raise AnswerError(f"an error with the status {status}")
    known, grpcCode = _statuses(code)
    details = value.get("details")
    if status is None or status == known:
        return ServiceError(code, message, known, details, grpcCode)
    # The service has given a code of ours, or its own, a status of its own.
    return ServiceError(code, message, status, details)


def _statuses(code: str) -> tuple[int, int | None]:
    """Give the HTTP status and the gRPC code that go with an error code."""
    if code in CODES:
        return CODES[code]
    if code in GRPC_STATUSES and code != "OK":
        error = asServiceError(GrpcError(code))
        return error.statusCode, error.grpcCode
    return 500, None


INLINE_SIZE = 64 * 1024
"""An answer that is read at once, in a millisecond at most. A longer one is read in a thread."""

# Statuses by which a server says that it, or what it needs, is not there.
_AWAY = (502, 503)


def encodeRequest(request: Any) -> bytes:
    """
    Write a request.

    @raise ServiceError: C{INVALID_ARGUMENT} if JSON has no words for it, as for C{NaN}.
    """
    try:
        return JSON.encode(request)
    except ValueError as error:
        raise codedError("INVALID_ARGUMENT", f"A request is JSON: {error!s:.200}") from None


@frozen
class AttemptContext:
    """
    What all attempts of a service's calls share.

    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar maxSize: Bytes of an answer, or of a line of a stream of them.
    @ivar tracer: Records attempts, see L{Tracer.forwarded
        <storagegate.telemetry.tracing.Tracer.forwarded>}; C{None} for none.
    """

    service: str
    heads: RequestHeads
    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    meters: UpstreamMetrics
    maxSize: int
    tracer: Any = None


class Attempt:
    """
    An attempt.

    @ivar exchange: The request and its response, once there is a connection.
    """

    def __init__(
        self,
        road: AttemptContext,
        slot: CallSlot,
        context: RequestContext,
        leftSeconds: float | None,
        timeoutSeconds: float | None = None,
    ) -> None:
        """
        @param leftSeconds: How long the caller waits; C{None} for ever.
        @param timeoutSeconds: How long the instance may take; C{None} for as long as it likes.
        """
        self._road = road
        self._lease = slot
        self._context = context
        self._tracing = context.tracing
        if road.tracer is not None and context.tracing.sampled:
            self._tracing = forwardedTracing(context.tracing)
        self._began = road.clock.seconds()
        seconds = [each for each in (leftSeconds, timeoutSeconds) if each is not None]
        self._seconds = min(seconds) if seconds else None
        # Where its caller has no time, the instance is not the one that is slow.
        self._isPatient = self._seconds == timeoutSeconds and timeoutSeconds is not None
        self._timer: Any = None
        self._isLate = False
        self._isOver = False
        self._pumping: Deferred[None] | None = None
        self._pumpError: Exception | None = None
        self._hasPumped = False
        self.exchange: ClientRequest | None = None

    # The request

    async def begin(self, body: bytes | None) -> ClientRequest:
        """
        Send a request.

        @param body: The body; C{None} for a stream, see L{pump}.
        @raise AttemptFailed: If nobody is there.
        @raise ServiceError: If the call goes in circles.
        """
        member = self._lease.member
        length = None if body is None else len(body)
        try:
            head = self._road.heads.write(
                member.instance, self._context, self._tracing, self._seconds, length
            )
        except ServiceError:
            self._end("cancelled")
            raise
        try:
            connection = await member.connections.acquire()
        except CancelledError:
            self._end("cancelled")
            raise
        except Exception as error:
            self._end("failed")
            raise AttemptFailed(self._away("cannot be reached"), isUnsent=True) from error
        self.exchange = connection.begin(head, body)
        if self._isPatient and self._seconds is not None:
            self._timer = self._road.clock.callLater(self._seconds, self._late)
        return self.exchange

    def pump(self, requests: AsyncIterable[Any]) -> None:
        """Send the items of the caller's stream as they come, while responses are read."""
        self._hasPumped = True
        self._pumping = Deferred.fromCoroutine(self._pump(requests))
        self._pumping.addErrback(self._pumpFailed)

    async def _pump(self, requests: AsyncIterable[Any]) -> None:
        exchange = self.exchange
        assert exchange is not None
        try:
            async for request in requests:
                await exchange.write(encodeRequest(request) + b"\n")
            exchange.finish()
        except ConnectionLostError:
            # Whoever reads the responses is told the same.
            return
        finally:
            close = getattr(requests, "aclose", None)
            if close is not None:
                await close()

    def _pumpFailed(self, failure: Any) -> None:
        """End the call with what the caller's own stream raised."""
        if not self._isOver and self.exchange is not None:
            self._pumpError = failure.value
            self.exchange.fail(ConnectionLostError("the requests broke off"))

    # The response

    async def result(self) -> Any:
        """
        Read the answer of a call that gives one.

        @raise AttemptFailed: If that is no answer.
        @raise ServiceError: If it is an error.
        """
        try:
            head = await self._head()
            self._checkType(head, b"application/json")
            return await self._body(head)
        except BaseException as error:
            told = self._ended(error)
            if told is error:
                raise
            raise told from error
        finally:
            self.close()

    async def items(self) -> "RemoteItems":
        """
        Wait for the first answer of a stream.

        @raise AttemptFailed: If none comes.
        @raise ServiceError: If it is an error.
        """
        try:
            head = await self._head()
            if head.status != 200:
                self._checkType(head, b"application/json")
                await self._body(head)
            self._checkType(head, NDJSON.encode())
            items = RemoteItems(self, self._road)
            await items.fill()
        except BaseException as error:
            self.close()
            told = self._ended(error)
            if told is error:
                raise
            raise told from error
        self._observe()
        return items

    async def _head(self) -> ResponseHead:
        assert self.exchange is not None
        return await self.exchange.head()

    async def _body(self, head: ResponseHead) -> Any:
        """Read a whole body; errors that it tells are raised."""
        assert self.exchange is not None
        body = await self.exchange.body(self._road.maxSize)
        self._observe()
        try:
            result = await self.decode(readResult, head.status, body)
        except ServiceError as error:
            if head.status in _AWAY or (head.status == 504 and self._isPatient):
                raise _Unavailable(error) from error
            raise
        self._end("ok")
        return result

    async def decode(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Read bytes, the last of the arguments, in a thread if they are many."""
        if len(arguments[-1]) <= INLINE_SIZE:
            return read(*arguments)
        return await self._road.run(read, *arguments)

    def _checkType(self, head: ResponseHead, wanted: bytes) -> None:
        found = head.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if found != wanted:
            raise AnswerError(f"{found.decode('latin-1')!r:.60} with the status {head.status}")

    # The end

    def close(self) -> None:
        """Stop whatever goes on."""
        self._isOver = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        pumping, self._pumping = self._pumping, None
        if pumping is not None and not pumping.called:
            pumping.cancel()
        if self.exchange is not None:
            self.exchange.close()

    def finished(self, error: BaseException | None) -> BaseException | None:
        """
        Take note of the end of a stream that had begun; give what its caller is told.

        @param error: What ended it; C{None} for its own end.
        """
        self.close()
        if error is None:
            self._end("ok")
            return None
        told = self._ended(error)
        return told.error if isinstance(told, AttemptFailed) else told

    def _ended(self, error: BaseException) -> BaseException:
        """Tell the slot of an end, and give what is to be raised for it."""
        if self._pumpError is not None:
            self._end("cancelled")
            return self._pumpError
        if isinstance(error, _Unavailable):
            self._end("failed")
            return AttemptFailed(error.error)
        if isinstance(error, ServiceError):
            self._end("error")
            return error
        if isinstance(error, ConnectionLostError | HTTPClientError | AnswerError | LineTooLong):
            self._end("late" if self._isLate else "failed")
            isUnread = isinstance(error, ConnectionLostError) and error.isUnread
            # The requests of a stream were taken from their caller, whoever has read them or not.
            return AttemptFailed(self._reason(error), isUnread and not self._hasPumped)
        self._end("cancelled")
        return error

    def _reason(self, error: Exception) -> ServiceError:
        if self._isLate:
            return codedError("DEADLINE_EXCEEDED", self._away("did not answer in time").message)
        if isinstance(error, ConnectionLostError):
            return self._away("broke off")
        return self._away("gave no answer that makes sense")

    def _away(self, what: str) -> ServiceError:
        return unavailable(self._road.service, what)

    def _end(self, outcome: str) -> None:
        self._trace(outcome)
        self._road.meters.attempts.add(1, (self._road.service, outcome))
        if outcome in ("ok", "error"):
            self._lease.succeeded()
        elif outcome == "cancelled":
            self._lease.cancelled()
        else:
            self._lease.failed()

    def _trace(self, outcome: str) -> None:
        road, instance = self._road, self._lease.member.instance
        if road.tracer is not None:
            road.tracer.forwarded(
                self._tracing,
                road.service,
                self._context.method,
                (instance.host, instance.port),
                road.clock.seconds() - self._began,
                None if outcome == "ok" else outcome,
            )

    def _observe(self) -> None:
        seconds = self._road.clock.seconds() - self._began
        self._road.meters.seconds.observe(seconds, (self._road.service,))

    def _late(self) -> None:
        self._isLate = True
        if self.exchange is not None:
            self.exchange.fail(ConnectionLostError("it is late"))


class _Unavailable(Exception):
    """An instance says itself that it cannot serve."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(error.message)
        self.error = error


class RemoteItems:
    """The items of a stream that an instance sends."""

    def __init__(self, attempt: Attempt, road: AttemptContext) -> None:
        self._attempt = attempt
        self._decoder = NDJSONDecoder(road.maxSize)
        self._lines: list[bytes] = []
        self._isAtEnd = False

    async def fill(self) -> None:
        """Wait until there is a line, or the end."""
        exchange = self._attempt.exchange
        assert exchange is not None
        while not self._lines and not self._isAtEnd:
            piece = await exchange.read()
            self._isAtEnd = not piece
            self._lines = self._decoder.feed(piece) if piece else self._decoder.end()

    async def each(self) -> AsyncIterator[Any]:
        """
        Give the items.

        @raise ServiceError: If the stream ends with an error, or breaks off.
        """
        error: BaseException | None = None
        try:
            while self._lines or not self._isAtEnd:
                lines, self._lines = self._lines, []
                for line in lines:
                    yield await self._attempt.decode(readItem, line)
                await self.fill()
        except BaseException as raised:
            error = raised
        told = self._attempt.finished(error)
        if told is not None:
            raise told
