"""
One attempt of a call that is forwarded to an instance, for each kind of streaming.

Requests of a stream are sent while responses are received, both with back pressure. An attempt ends
its slot exactly once, and releases or closes its connection; closing tells the instance that the
call was cancelled.

The head of a request::

    POST {basePath}/{Service}/{method} HTTP/1.1
    Host, Content-Type, and Content-Length or Transfer-Encoding
    Authorization, and the field of API keys    the credentials of the caller
    X-Deadline-Ms                               the time until the caller's deadline
    traceparent, tracestate                     the trace of the call
    X-Forwarded-For                             the received value and the caller's address
    X-Gateway-Hops                              how many gateways have forwarded it

Only valid field values of the caller are sent: callers cannot inject lines.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from math import ceil
from typing import Any
from urllib.parse import quote

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime

from storagegate.core.codecs import INLINE_SIZE, JSON
from storagegate.core.context import MAX_DEADLINE_MS, MAX_TOKEN_LENGTH, RequestContext, Tracing
from storagegate.core.errors import (
    CODES,
    GRPC_STATUSES,
    GrpcError,
    ServiceError,
    asServiceError,
    causedBy,
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

# Leaves room for the other fields in a head of 16 KiB; a longer chain is a loop of proxies.
_MAX_FORWARDED = 2 * 1024

HOPS = "X-Gateway-Hops"

MAX_HOPS = 5
"""Limit of gateways in a row: it ends the loop if discovery leads back to this gateway."""

# Statuses of a server that is unavailable, or whose upstream is.
_UNAVAILABLE = (502, 503)


class RequestHeads:
    """Writes the heads of the calls of one service."""

    def __init__(self, basePath: str, service: str, apiKeyHeader: str) -> None:
        """
        @param basePath: The base path of the instances' gateways.
        @param apiKeyHeader: The header field of API keys.
        """
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
        Encode a request head.

        @param tracing: The trace as the instance sees it.
        @param leftSeconds: The time until the deadline; C{None} without one.
        @param length: Length of the body in bytes; C{None} for a stream.
        @raise ServiceError: C{INTERNAL_ERROR} if the call has passed L{MAX_HOPS} gateways.
        """
        try:
            hops = parseDecimal(context.headers.get(HOPS.lower(), "0"), MAX_HOPS)
        except ValueError:
            hops = MAX_HOPS
        if hops >= MAX_HOPS:
            # The instance has not failed, so the call is not retried.
            raise codedError("INTERNAL_ERROR", f"{context.service} is forwarded in a loop")
        lines = [
            f"POST {self._path}{quote(context.method, safe='')} HTTP/1.1",
            f"Host: {formatAddress(instance.host, instance.port)}",
            f"traceparent: {formatTraceparent(tracing)}",
            f"{HOPS}: {hops + 1}",
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
        headers, forwarded = context.headers, context.client.address
        known = context.credentials
        credentials = known if isinstance(known, CallCredentials) else CallCredentials()
        if credentials.hasFields:
            token, key = headers.get("authorization"), headers.get(self._apiKeyHeader.lower())
            before = headers.get("x-forwarded-for")
            if before and len(before) <= _MAX_FORWARDED:
                forwarded = f"{before}, {forwarded}"
        else:
            # Messages have one field for both; the instance determines which of the two it is.
            key = credentials.token
            token = f"Bearer {key}" if key else None
        return [
            ("Authorization", _short(token)),
            (self._apiKeyHeader, _short(credentials.apiKey or key)),
            ("tracestate", context.tracing.state),
            ("X-Forwarded-For", forwarded),
        ]


def _short(value: str | None) -> str | None:
    """Drop a value that is too long for every provider, and perhaps for the head."""
    return None if value is None or len(value) > MAX_TOKEN_LENGTH + 7 else value


class ResponseError(ValueError):
    """The response did not come from a gateway; the text describes it."""


def readResult(status: int, body: bytes) -> Any:
    """
    Parse the response to a unary call. May run in a thread.

    @raise ServiceError: If the response is an error.
    @raise ResponseError: If the response is invalid.
    """
    value = _object(body)
    if status == 200:
        if "data" not in value:
            raise ResponseError("a response without data")
        return value["data"]
    raise _error(value, status)


def readItem(line: bytes) -> Any:
    """
    Parse a line of a stream. May run in a thread.

    @raise ServiceError: If the line is an error.
    @raise ResponseError: If the line is invalid.
    """
    value = _object(line)
    if "data" in value:
        return value["data"]
    raise _error(value, None)


def _object(body: bytes) -> dict[str, Any]:
    decode = JSON.decode if len(body) <= INLINE_SIZE else JSON.decodeLarge
    try:
        value = decode(body)
    except ValueError as error:
        raise ResponseError("no JSON") from error
    if not isinstance(value, dict):
        raise ResponseError("no JSON object")
    return value


def _error(value: Mapping[str, Any], status: int | None) -> ServiceError:
    """Return the error of a response, with its statuses on all transports."""
    code, message = value.get("error"), value.get("message", "")
    if not isinstance(code, str) or not isinstance(message, str):
        raise ResponseError("neither data nor an error")
    if status is not None and not 400 <= status <= 599:
        raise ResponseError(f"an error with the status {status}")
    known, grpcCode = 500, None
    if code in CODES:
        known, grpcCode = CODES[code]
    elif code in GRPC_STATUSES and code != "OK":
        named = asServiceError(GrpcError(code))
        known, grpcCode = named.statusCode, named.grpcCode
    if status is not None and status != known:
        # The service uses its own status for the code.
        known, grpcCode = status, None
    return ServiceError(code, message, known, value.get("details"), grpcCode)


def _final(failed: BaseException) -> BaseException:
    """Return the error of a call that is not repeated."""
    return failed.error if isinstance(failed, AttemptFailed) else failed


def encodeRequest(request: Any) -> bytes:
    """
    Encode a request.

    @raise ServiceError: C{INVALID_ARGUMENT} if JSON cannot represent it, for example C{NaN}.
    """
    try:
        return JSON.encode(request)
    except ValueError as error:
        raise codedError(
            "INVALID_ARGUMENT", f"The request is not valid JSON: {error!s:.200}"
        ) from None


@frozen
class AttemptContext:
    """
    The resources of all attempts at the instances of a service.

    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread.
    @ivar maxSize: Limit of a response, or of a line of a stream, in bytes.
    @ivar tracer: Records attempts, see L{Tracer.forwarded
        <storagegate.telemetry.otlp.Tracer.forwarded>}; C{None} disables tracing.
    """

    service: str
    heads: RequestHeads
    clock: IReactorTime
    run: Callable[..., Deferred[Any]]
    metrics: UpstreamMetrics
    maxSize: int
    tracer: Any = None


class Attempt:
    """
    One attempt of a call.

    @ivar request: The request with its response; C{None} until the attempt is connected.
    """

    def __init__(
        self,
        shared: AttemptContext,
        slot: CallSlot,
        context: RequestContext,
        leftSeconds: float | None,
        timeoutSeconds: float | None = None,
    ) -> None:
        """
        @param slot: The slot of the call; the end of the attempt ends it.
        @param leftSeconds: The time until the caller's deadline; C{None} without one.
        @param timeoutSeconds: Limit of the instance's response time; C{None} for no limit.
        """
        self._shared = shared
        self._slot = slot
        self._context = context
        self._tracing = context.tracing
        if shared.tracer is not None and context.tracing.sampled:
            self._tracing = forwardedTracing(context.tracing)
        self._began = shared.clock.seconds()
        seconds = [each for each in (leftSeconds, timeoutSeconds) if each is not None]
        self._seconds = min(seconds) if seconds else None
        # If the caller's deadline is earlier, a timeout does not mean that the instance is slow.
        self._isTimed = self._seconds == timeoutSeconds and timeoutSeconds is not None
        self._timer: Any = None
        self._isLate = False
        self._isOver = False
        self._pumping: Deferred[None] | None = None
        self._pumpError: Exception | None = None
        self._hasPumped = False
        self.request: ClientRequest | None = None

    # The request

    async def begin(self, body: bytes | None) -> ClientRequest:
        """
        Send a request.

        @param body: The body; C{None} for a stream, see L{pump}.
        @raise AttemptFailed: If the instance cannot be reached.
        @raise ServiceError: If the call has passed too many gateways.
        """
        member = self._slot.member
        length = None if body is None else len(body)
        try:
            head = self._shared.heads.write(
                member.instance, self._context, self._tracing, self._seconds, length
            )
            connection = await member.connections.acquire()
        except (ServiceError, CancelledError):
            self._end("cancelled")
            raise
        except Exception as error:
            self._end("failed")
            raise AttemptFailed(self._unavailable("is unreachable"), isUnsent=True) from error
        self.request = connection.begin(head, body)
        if self._isTimed and self._seconds is not None:
            self._timer = self._shared.clock.callLater(self._seconds, self._late)
        return self.request

    def pump(self, requests: AsyncIterable[Any]) -> None:
        """Send the items of the caller's stream as they arrive, while responses are read."""
        self._hasPumped = True
        self._pumping = Deferred.fromCoroutine(self._pump(requests))
        self._pumping.addErrback(self._pumpFailed)

    async def _pump(self, requests: AsyncIterable[Any]) -> None:
        request = self.request
        assert request is not None
        try:
            async for item in requests:
                await request.write(encodeRequest(item) + b"\n")
            request.finish()
        except ConnectionLostError:
            # Reading the responses raises the same error.
            return
        finally:
            close = getattr(requests, "aclose", None)
            if close is not None:
                await close()

    def _pumpFailed(self, failure: Any) -> None:
        """End the call with the exception of the caller's stream."""
        if not self._isOver and self.request is not None:
            self._pumpError = failure.value
            self.request.fail(ConnectionLostError("the request stream was interrupted"))

    # The response

    async def result(self) -> Any:
        """
        Read the response to a call with one response.

        @raise AttemptFailed: If the response is missing or invalid.
        @raise ServiceError: If the response is an error.
        """
        try:
            return await self._body(await self._head())
        except BaseException as error:
            raise self._failed(error)  # noqa: B904
        finally:
            self.close()

    async def items(self) -> AsyncIterator[Any]:
        """
        Wait for the start of a stream of responses, and return its items.

        @raise AttemptFailed: If the start of the stream is missing or invalid.
        @raise ServiceError: If the response is an error, or an item is one while it is read.
        """
        decoder = NDJSONDecoder(self._shared.maxSize)
        try:
            head = await self._head()
            if head.status != 200:
                await self._body(head)
            self._checkType(head, NDJSON.encode())
            lines = await self._lines(decoder)
        except BaseException as error:
            self.close()
            raise self._failed(error)  # noqa: B904
        self._observe()
        return self._items(decoder, lines)

    async def _items(self, decoder: NDJSONDecoder, lines: list[bytes]) -> AsyncIterator[Any]:
        try:
            while lines:
                for line in lines:
                    yield await self._decode(readItem, line)
                lines = await self._lines(decoder)
        except BaseException as error:
            self.close()
            raise _final(self._failed(error))  # noqa: B904
        self.close()
        self._end("ok")

    async def _lines(self, decoder: NDJSONDecoder) -> list[bytes]:
        """Wait for the next lines; the list is empty at the end."""
        assert self.request is not None
        while True:
            piece = await self.request.read()
            lines = decoder.feed(piece) if piece else decoder.end()
            if lines or not piece:
                return lines

    async def _head(self) -> ResponseHead:
        assert self.request is not None
        return await self.request.head()

    async def _body(self, head: ResponseHead) -> Any:
        """Read a whole body; raise the error that it contains."""
        self._checkType(head, b"application/json")
        assert self.request is not None
        body = await self.request.body(self._shared.maxSize)
        self._observe()
        try:
            result = await self._decode(readResult, head.status, body)
        except ServiceError as error:
            if head.status in _UNAVAILABLE or (head.status == 504 and self._isTimed):
                raise AttemptFailed(error) from error
            raise
        self._end("ok")
        return result

    async def _decode(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Decode the last argument, in a thread if it is longer than L{INLINE_SIZE}."""
        if len(arguments[-1]) <= INLINE_SIZE:
            return read(*arguments)
        return await self._shared.run(read, *arguments)

    def _checkType(self, head: ResponseHead, expected: bytes) -> None:
        found = head.fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if found != expected:
            raise ResponseError(f"{found.decode('latin-1')!r:.60} with the status {head.status}")

    # End of the attempt

    def close(self) -> None:
        """Stop the timer and the caller's stream, and release or close the connection."""
        self._isOver = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        pumping, self._pumping = self._pumping, None
        if pumping is not None and not pumping.called:
            pumping.cancel()
        if self.request is not None:
            self.request.close()

    def _failed(self, error: BaseException) -> BaseException:
        """
        End the attempt, and return the error for its caller.

        The error is not raised here: its traceback must not lead to a frame that refers to it.
        """
        if self._pumpError is not None:
            self._end("cancelled")
            # The traceback of this error leads to this attempt.
            failed, self._pumpError = self._pumpError, None
            return causedBy(failed, error)
        if isinstance(error, ServiceError):
            self._end("error")
            return error
        if isinstance(error, AttemptFailed):
            self._end("failed")
            return error
        if not isinstance(
            error, ConnectionLostError | HTTPClientError | ResponseError | LineTooLong
        ):
            self._end("cancelled")
            return error
        self._end("timeout" if self._isLate else "failed")
        isUnread = isinstance(error, ConnectionLostError) and error.isUnread
        if self._isLate:
            message = self._unavailable("did not respond in time").message
            reported = codedError("DEADLINE_EXCEEDED", message)
        elif isinstance(error, ConnectionLostError):
            reported = self._unavailable("broke off")
        else:
            reported = self._unavailable("sent no valid response")
        # The requests of a stream were taken from the caller, and cannot be sent again.
        return AttemptFailed(causedBy(reported, error), isUnread and not self._hasPumped)

    def _unavailable(self, reason: str) -> ServiceError:
        return codedError("UNAVAILABLE", f"An instance of {self._shared.service} {reason}")

    def _end(self, outcome: str) -> None:
        shared, instance = self._shared, self._slot.member.instance
        if shared.tracer is not None:
            shared.tracer.forwarded(
                self._tracing,
                shared.service,
                self._context.method,
                (instance.host, instance.port),
                shared.clock.seconds() - self._began,
                None if outcome == "ok" else outcome,
            )
        shared.metrics.countAttempt(shared.service, outcome)
        self._slot.end(None if outcome == "cancelled" else outcome in ("ok", "error"))

    def _observe(self) -> None:
        seconds = self._shared.clock.seconds() - self._began
        self._shared.metrics.seconds.observe(seconds, (self._shared.service,))

    def _late(self) -> None:
        self._isLate = True
        if self.request is not None:
            self.request.fail(ConnectionLostError("it is late"))
