"""
A call over HTTP: reads the request, calls the method, writes the response.

A response is a body with the result, a stream, or a status with an error. An error after the first
item of a stream becomes its last line.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping
from functools import lru_cache
from math import ceil
from typing import Any

from attrs import Factory, frozen
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.auth.tokens import bearerToken
from storagegate.core.codecs import INLINE_SIZE, JSON
from storagegate.core.context import MAX_DEADLINE_MS, ClientInfo, RequestContext
from storagegate.core.errors import (
    ServiceError,
    asServiceError,
    codedError,
    errorBody,
    isExpected,
)
from storagegate.core.invoker import CallCredentials, MethodEntry
from storagegate.core.options import parseDecimal
from storagegate.core.task import resolveThen, runWithDeadline
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.session import ITEMS_OF_A_TURN, readDeadline
from storagegate.gateway.transports.http import PROTOCOL, HTTPOptions, HTTPRoute, mergeRequest
from storagegate.gateway.transports.metrics import TransportMetrics
from storagegate.http.contenttypes import isToolDefault, matchesType, parseContentType
from storagegate.net.http.interfaces import BodyLost, BodyTooLarge, ClientLost
from storagegate.net.http.lines import (
    EVENT_STREAM,
    EVENTS,
    NDJSON,
    LineTooLong,
    NDJSONDecoder,
    StreamFormat,
    lineFormat,
)
from storagegate.net.http.parser import RequestBody
from storagegate.telemetry.tracecontext import tracingOfFields


def httpResult(result: Any) -> dict[str, Any]:
    """Return the body of a response."""
    return {"data": result}


def httpError(error: ServiceError) -> tuple[int, dict[str, Any]]:
    """
    Return the status and the body of an error.

    @param error: The error after C{transformError}.
    """
    return error.statusCode or 500, errorBody(error)


def httpFields(error: ServiceError) -> dict[str, str]:
    """
    Return the header fields of an error.

    @param error: The error; only statuses 401 and 429 have fields.
    """
    if error.statusCode == 429 and isinstance(error.details, Mapping):
        retryAfterMs = error.details.get("retryAfterMs")
        if isinstance(retryAfterMs, int):
            return {"Retry-After": str(ceil(retryAfterMs / 1000))}
    return {"WWW-Authenticate": "Bearer"} if error.statusCode == 401 else {}


_BODY_TYPES = ("json", "+json", NDJSON, "application/ndjson", "application/jsonl")

LINES = lineFormat(httpResult)


def readObject(data: bytes) -> dict[str, Any]:
    """
    Parse a request; an empty body is C{{}}. May run in a thread.

    @param data: The complete body, as JSON in UTF-8.
    @raise ServiceError: C{INVALID_ARGUMENT} if it is not a JSON object.
    """
    decode = JSON.decode if len(data) <= INLINE_SIZE else JSON.decodeLarge
    try:
        value = decode(data) if data else {}
    except ValueError as error:
        raise codedError(
            "INVALID_ARGUMENT", f"The request is not valid JSON: {error!s:.200}"
        ) from None
    return value if isinstance(value, dict) else _refuseOther()


def readParsed(value: Any) -> dict[str, Any]:
    """
    Read a body that a parser of the application has already read.

    @param value: C{req.body}: a decoded value, or the JSON as text or bytes.
    @raise ServiceError: C{INVALID_ARGUMENT} if it is neither an object nor the JSON of an object.
    """
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return readObject(value)
    return value if isinstance(value, dict) else _refuseOther()


def _refuseOther() -> Any:
    raise codedError("INVALID_ARGUMENT", "The request must be a JSON object")


def tooLarge(limit: int) -> ServiceError:
    """
    Make the error for a request, or a line of a stream, over the limit.

    @param limit: The limit in bytes.
    """
    return codedError("PAYLOAD_TOO_LARGE", f"A request has at most {limit} bytes")


def checkType(headers: Mapping[bytes, bytes]) -> None:
    """
    Check that a body can be read.

    @param headers: The header fields, names in lower case.
    @raise ServiceError: C{UNSUPPORTED_MEDIA_TYPE} if the header fields declare another type than
        JSON, or a compressed body.
    """
    kind = headers.get(b"content-type")
    coding = headers.get(b"content-encoding")
    readable = _isReadable(kind) or isToolDefault(headers)
    if not readable or (coding is not None and coding.lower() != b"identity"):
        raise ServiceError(
            "UNSUPPORTED_MEDIA_TYPE",
            "The request must be JSON in UTF-8 without a content coding",
            415,
        )


# Clients send two or three types; the bound is for malicious clients.
@lru_cache(maxsize=16)
def _isReadable(field: bytes | None) -> bool:
    """Return whether bodies of a Content-Type can be read; without one, a body is JSON."""
    if field is None:
        return True
    value = field.decode("latin-1")
    charset = parseContentType(value).charset or "utf-8"
    return matchesType(value, _BODY_TYPES) is not None and charset in ("utf-8", "us-ascii")


def chooseFormat(req: Any) -> StreamFormat:
    """Return the format of a stream that the client prefers."""
    accept = req.raw.headers.get(b"accept", b"")
    # Negotiation is needed only if the client names event streams.
    if EVENTS.encode() in accept.lower() and req.accepts(NDJSON, EVENTS) == EVENTS:
        return EVENT_STREAM
    return LINES


JSON_FIELD = {"content-type": ("Content-Type", "application/json; charset=utf-8")}

_log = Logger()


def sendError(host: TransportContext, res: Any, error: ServiceError) -> None:
    """
    Respond with an error.

    @param res: The response; nothing is sent if it has begun.
    @param error: The error, before C{transformError}.
    """
    status, body = writeError(host, error)
    if not res.reopen():
        return
    res.header(httpFields(error))
    res.status(status).setChecked(JSON_FIELD)
    res.end(body + b"\n")


def writeError(host: TransportContext, error: ServiceError) -> tuple[int, bytes]:
    """
    Return the status and the body of an error.

    @param error: The error, before C{transformError}.
    """
    described = host.describe(error, PROTOCOL)
    status: Any
    shape: Any
    if isinstance(described, ServiceError):
        status, shape = httpError(described)
    elif "body" in described and described.keys() <= {"status", "statusCode", "body"}:
        status = described.get("status", described.get("statusCode", error.statusCode))
        shape = described["body"]
    else:
        status, shape = error.statusCode, dict(described)
    if not isinstance(status, int) or not 400 <= status <= 599:
        _log.error("{status} is not the status of an error", status=status)
        status = 500
    try:
        return status, JSON.encode(shape)
    except ValueError:
        _log.failure("the details of an error cannot be written")
        return status, JSON.encode({"error": str(error.code), "message": str(error.message)})


class Clients:
    """
    Creates the L{ClientInfo<storagegate.core.context.ClientInfo>} of requests, and caches it: a new
    one takes a microsecond, four times as long as a cached one.
    """

    MAX_KNOWN = 1024
    """The maximum number of cached clients, as many as a busy gateway has connections; 0.5 MB."""

    LONGEST_AGENT = 200
    """The maximum length of a cached user agent in bytes; a browser sends about a hundred."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, bytes | None], ClientInfo] = {}

    def of(self, req: Any) -> ClientInfo:
        """Return the client of a request of the application."""
        raw, address = req.raw, req.ip
        # The port of a client behind a proxy is unknown.
        port = raw.clientPort if address == raw.clientHost else 0
        agent = raw.headers.get(b"user-agent")
        key = (address, port, agent)
        client = self._known.get(key)
        if client is None:
            client = ClientInfo(
                f"{address}:{port}" if port else address,
                address,
                port,
                None if agent is None else agent.decode("latin-1"),
            )
            if agent is None or len(agent) <= self.LONGEST_AGENT:
                if len(self._known) >= self.MAX_KNOWN:
                    self._known.clear()
                self._known[key] = client
        return client


# Raised by pending operations when the connection ends; not logged.
_DISCONNECTS = (CancelledError, BodyLost, ClientLost)


@frozen
class HTTPCallContext:
    """
    The state that all calls of a listener share.

    @ivar apiKeyHeader: The field of API keys, in lower case.
    """

    host: TransportContext
    options: HTTPOptions
    apiKeyHeader: bytes
    meter: TransportMetrics = Factory(lambda self: self.host.meter(PROTOCOL), takes_self=True)
    clients: Clients = Factory(Clients)


class Endpoint(Struct, frozen=True, eq=False):
    """
    A method at a path.

    @ivar name: C{Service.method}, as passed to hooks.
    @ivar route: The configured route; C{None} for the default path of a method.
    """

    bound: MethodEntry
    name: str
    route: HTTPRoute | None = None


class HTTPCall:
    """A call in flight."""

    __slots__ = (
        "_context",
        "_credentials",
        "_endpoint",
        "_format",
        "_req",
        "_res",
        "_seconds",
        "_shared",
        "_takesBody",
    )

    def __init__(self, shared: HTTPCallContext, endpoint: Endpoint, req: Any, res: Any) -> None:
        """
        @param req: The request of the application.
        @param res: Its response, before its headers are sent.
        """
        self._shared = shared
        self._endpoint = endpoint
        self._takesBody = endpoint.route is None or endpoint.route.takesBody
        self._req = req
        self._res = res
        self._seconds: float | None = None
        # The format of a stream that has begun.
        self._format: StreamFormat | None = None

    def begin(self) -> Deferred[None] | None:
        """
        Run the call, and respond.

        @return: Fires when the response is complete; C{None} if it already is.
        """
        host = self._shared.host
        try:
            self._readHead()
        except ServiceError as error:
            host.refuse(self._context, error)
            self._fail(error)
            return None
        try:
            running = runWithDeadline(self._invoke(), host.clock, self._seconds)
        except Exception:
            self._failed(Failure())
            return None
        if running is None:
            return None
        running.addErrback(self._failed)
        if running.called:
            return None
        self._req.raw.onDisconnect(running.cancel)
        return running.addBoth(self._done)

    def _count(self) -> None:
        """Count the bytes of both bodies."""
        meter, raw = self._shared.meter, self._req.raw
        meter.bytesIn += raw.body.taken
        meter.bytesOut += raw.bodySent

    # The request

    def _readHead(self) -> None:
        """
        Read the header fields.

        @raise ServiceError: If a header field is invalid.
        """
        req, bound = self._req, self._endpoint.bound
        raw = req.raw
        headers = raw.headers
        host = self._shared.host
        client = self._shared.clients.of(req)
        raw.onEnd(self._count)
        tracing = tracingOfFields(headers, host.traceKey)
        self._res.setChecked({host.traceName: (host.correlationHeader, tracing.traceId)})
        metadata: dict[str, Any] = {}
        self._context = RequestContext(
            PROTOCOL,
            bound.service.name,
            bound.name,
            client,
            tracing,
            {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()},
            metadata,
        )
        token = headers.get(b"authorization")
        apiKey = headers.get(self._shared.apiKeyHeader)
        self._credentials = CallCredentials(
            None if token is None else bearerToken(token.decode("latin-1")),
            None if apiKey is None else apiKey.decode("latin-1"),
            req,
            hasFields=True,
        )
        if b"x-deadline-ms" in headers:
            try:
                ms: Any = parseDecimal(headers[b"x-deadline-ms"], MAX_DEADLINE_MS)
            except ValueError:
                ms = b""
            self._seconds = readDeadline(ms)
            metadata["deadline"] = host.invoker.now() + self._seconds
        if self._takesBody and raw.contentLength != 0:
            checkType(headers)

    def _requestStream(self) -> AsyncIterator[Any]:
        if not self._takesBody:
            return _stream()
        if getattr(self._req, "bodyParsed", False):
            return _stream(readParsed(self._req.body))
        shared = self._shared
        limit = shared.options.maxRequestBodySize
        return _readRequests(self._req.raw.body, limit, shared.host.clock)

    def _readBody(self) -> Any:
        """
        Return the body as an object, or an awaitable of it if the body is incomplete or large.
        """
        raw, limit = self._req.raw, self._shared.options.maxRequestBodySize
        if getattr(self._req, "bodyParsed", False):
            return readParsed(self._req.body)
        if (raw.contentLength or 0) > limit:
            raise tooLarge(limit)
        data = raw.body.readAvailable()
        if data is None or len(data) > INLINE_SIZE:
            return self._readLargeBody(data, limit)
        if len(data) > limit:
            raise tooLarge(limit)
        return readObject(data)

    def _readRequest(self) -> Any:
        """Return the request, or an awaitable of it if its body or a hook needs time."""
        body: Any = {}
        if self._endpoint.bound.streamsRequests:
            body = self._requestStream()
        elif self._takesBody:
            body = self._readBody()
            if hasattr(body, "__await__"):
                return self._makeRequestLater(body)
        return self._makeRequest(body)

    async def _makeRequestLater(self, body: Awaitable[Any]) -> Any:
        try:
            request = self._makeRequest(await body)
        except BodyLost:
            # The client has disconnected, or the connection has refused it.
            raise CancelledError from None
        return await request if hasattr(request, "__await__") else request

    def _makeRequest(self, body: Any) -> Any:
        """
        Make the request from a body, using the route and the hook; return an awaitable if the hook
        does.
        """
        self._req.body = body
        transform = self._shared.options.transformRequest
        if transform is None:
            return self._merge(body)
        # A hook returns None for a method that it does not change.
        return resolveThen(
            transform(self._req, self._endpoint.name),
            lambda made: self._merge(body) if made is None else made,
        )

    def _merge(self, body: Any) -> Any:
        """Return the body, with the texts of the query and the path at a configured route."""
        bound = self._endpoint.bound
        if self._endpoint.route is None or bound.streamsRequests:
            return body
        document = None if bound.input is None else bound.input.document
        return mergeRequest(self._req.query, body, self._req.params, document)

    async def _readLargeBody(self, data: bytes | None, limit: int) -> Any:
        body = self._req.raw.body
        if data is None:
            try:
                data = await body.read(limit, isHeld=True)
            except BodyTooLarge:
                raise tooLarge(limit) from None
        try:
            if len(data) > limit:
                raise tooLarge(limit)
            if len(data) <= INLINE_SIZE:
                return readObject(data)
            return await self._shared.host.run(readObject, data)
        finally:
            body.hold(0)

    # The response

    async def _invoke(self) -> None:
        """Call the method, and respond; an ended response ignores further output."""
        bound = self._endpoint.bound
        request = receive = None
        if not bound.isPublic and not self._req.raw.body.complete:
            receive = self._readRequest
        else:
            try:
                request = self._readRequest()
                if hasattr(request, "__await__"):
                    request = await request
            except _DISCONNECTS:
                raise
            except Exception as error:
                self._shared.host.refuse(self._context, error)
                raise
        result = await self._shared.host.invoker.call(
            self._context, request, self._credentials, None, receive
        )
        if bound.streamsResponses:
            await self._sendStream(result)
            return
        if self._shared.options.transformResponse is None:
            shaped: Any = {"data": result}
        else:
            shaped = self._shape(result, httpResult)
            if hasattr(shaped, "__await__"):
                shaped = await shaped
        self._respond(shaped)

    async def _sendStream(self, items: AsyncIterator[Any]) -> None:
        res, req = self._res, self._req
        chosen = chooseFormat(req)
        try:
            async for item in items:
                shaped = self._shape(item, chosen.shape)
                if hasattr(shaped, "__await__"):
                    shaped = await shaped
                try:
                    piece = chosen.item(JSON.encode(shaped))
                except ValueError as error:
                    raise self._unwritable(error) from None
                self._beginStream(chosen)
                if req.method == "HEAD":
                    res.startBody(None)
                    break
                await res.write(piece)
                # If the application compresses, an item would otherwise wait for others.
                await res.flush()
        finally:
            await items.aclose()  # type: ignore[attr-defined]
        self._beginStream(chosen)
        res.end()

    def _beginStream(self, chosen: StreamFormat) -> None:
        if self._format is None:
            self._format = chosen
            self._setCookie()
            self._res.status(200).setChecked(chosen.fields)

    def _setCookie(self) -> None:
        cookie = self._context.metadata.get("setCookie")
        if cookie is not None:
            self._res.append("Set-Cookie", cookie)

    def _shape(self, result: Any, shape: Any) -> Any:
        """Return the response body for a result, or an awaitable of it."""
        transform = self._shared.options.transformResponse
        if transform is None:
            return shape(result)
        return transform(result, self._endpoint.name, self._req)

    def _unwritable(self, error: ValueError) -> ValueError:
        return ValueError(f"the result of {self._endpoint.name} cannot be written: {error}")

    def _respond(self, shaped: Any) -> None:
        res = self._res
        try:
            # The newline ends the line for curl in a terminal.
            body = JSON.encode(shaped) + b"\n"
        except ValueError as error:
            raise self._unwritable(error) from None
        if "setCookie" in self._context.metadata:
            self._setCookie()
        res.setChecked(JSON_FIELD)
        if self._req.method in ("GET", "HEAD"):
            res.send(body)
        else:
            # Without an ETag, which is only meaningful for GET.
            res.end(body)

    # Errors and ends

    def _failed(self, failure: Failure) -> None:
        error: Any = failure.value
        if self._req.raw.disconnected:
            if not isinstance(error, (ServiceError, *_DISCONNECTS)):
                _log.failure("a call failed after its client had gone", failure)
            return
        if not isExpected(error):
            _log.failure("{name} was not answered", failure, name=self._endpoint.name)
        self._fail(asServiceError(error))

    def _fail(self, error: ServiceError) -> None:
        res = self._res
        if self._format is None or not res.headersSent:
            sendError(self._shared.host, res, error)
        else:
            res.end(self._format.error(writeError(self._shared.host, error)[1]))

    def _done(self, result: Any) -> None:
        raw = self._req.raw
        if self._endpoint.bound.streamsRequests and not raw.body.complete:
            # Otherwise a task that the handler has left behind would wait forever.
            raw.body.fail(BodyLost("the call is over"))


async def _readRequests(body: RequestBody, limit: int, clock: IReactorTime) -> AsyncIterator[Any]:
    """
    Yield the items of a client's stream as they arrive; the client waits while no item is
    requested.

    It is a function because the request references the stream: a reference to the call would be a
    cycle.
    """
    lines = NDJSONDecoder(limit)
    try:
        async for chunk in body:
            for number, line in enumerate(lines.feed(chunk), 1):
                yield readObject(line)
                if number % ITEMS_OF_A_TURN == 0:
                    # Let other connections be served.
                    await deferLater(clock, 0)
            body.hold(lines.held)
        for line in lines.end():
            yield readObject(line)
    except LineTooLong:
        raise tooLarge(limit) from None
    except BodyLost:
        # A truncated stream has no end: cancel its reader.
        raise CancelledError from None
    finally:
        body.hold(0)


async def _stream(*requests: Any) -> AsyncIterator[Any]:
    for request in requests:
        yield request
