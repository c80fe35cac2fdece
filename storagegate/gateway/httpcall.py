"""
One call over HTTP: what its request says, and the answer.

An answer is one of three: a body with the result, a stream, or a status with an error. An error
after the first item of a stream is its last line.
"""

from collections.abc import AsyncIterator
from typing import Any

from attrs import Factory, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.boundmethods import BoundMethod
from storagegate.core.calltask import runCall
from storagegate.core.context import RequestContext
from storagegate.core.errors import ServiceError, asServiceError, isForeseen
from storagegate.core.hooks import whenKnown
from storagegate.core.invocation import CallCredentials
from storagegate.core.tokens import bearerToken
from storagegate.gateway.codecs import JSON
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.httpclients import Clients
from storagegate.gateway.httperrors import JSON_FIELD, sendError, writeError
from storagegate.gateway.httpmap import HTTPRoute, mergeRequest
from storagegate.gateway.httpreading import (
    checkType,
    chooseFormat,
    readDeadlineField,
    readObject,
    readParsed,
    tooLarge,
)
from storagegate.gateway.httpstreams import LineDecoder, LineTooLong, StreamFormat
from storagegate.gateway.options import HTTPOptions
from storagegate.gateway.shapes import httpResult
from storagegate.gateway.wiremeters import WireMeter
from storagegate.net.httperrors import BodyLost, BodyTooLarge, ClientLost

INLINE_SIZE = 64 * 1024
"""A body that is read at once, in a millisecond at most. A longer one is read in a thread."""

# What the end of a connection makes of whatever was waiting: no news to anybody.
_PARTINGS = (CancelledError, BodyLost, ClientLost)

_log = Logger()


@frozen
class HTTPRoom:
    """
    What all calls of an adapter share.

    @ivar apiKeyHeader: Where API keys are, in lower case.
    @ivar meter: Counts bytes.
    @ivar clients: Knows who calls.
    """

    host: GatewayHost
    options: HTTPOptions
    apiKeyHeader: bytes
    meter: WireMeter = Factory(lambda self: self.host.meter("http"), takes_self=True)
    clients: Clients = Factory(Clients)


@frozen(eq=False)
class Endpoint:
    """
    A method at a place.

    @ivar bound: The method.
    @ivar name: C{Service.method}, as hooks get it.
    @ivar route: The configured route, C{None} for the place that every method has.
    """

    bound: BoundMethod
    name: str
    route: HTTPRoute | None = None


class HTTPCall:
    """A call on its way."""

    __slots__ = (
        "_context",
        "_credentials",
        "_endpoint",
        "_format",
        "_req",
        "_res",
        "_room",
        "_seconds",
    )

    def __init__(self, room: HTTPRoom, endpoint: Endpoint, req: Any, res: Any) -> None:
        self._room = room
        self._endpoint = endpoint
        self._req = req
        self._res = res
        self._seconds: float | None = None
        # That of a stream that has begun.
        self._format: StreamFormat | None = None

    def begin(self) -> Deferred[None] | None:
        """
        Answer.

        @return: Fires when that is done; C{None} if it is.
        """
        host = self._room.host
        self._req.lean.onEnd(self._count)
        try:
            self._readHead()
        except ServiceError as error:
            host.refuse(self._context, error)
            self._fail(error)
            return None
        try:
            running = runCall(self._answer(), host.clock, self._seconds)
        except Exception:
            self._failed(Failure())
            return None
        if running is None:
            return None
        running.addErrback(self._failed)
        if running.called:
            return None
        self._req.lean.onDisconnect(running.cancel)
        return running.addBoth(self._done)

    def _count(self) -> None:
        """Count the bytes of both bodies."""
        meter, lean = self._room.meter, self._req.lean
        meter.bytesIn += lean.body.taken
        meter.bytesOut += lean.bodySent

    # The request

    def _readHead(self) -> None:
        """
        Read what the header fields say.

        @raise ServiceError: If one of them cannot be.
        """
        req, bound = self._req, self._endpoint.bound
        lean = req.lean
        headers = lean.headers
        tracing = self._room.host.nameTrace(headers, self._res)
        metadata: dict[str, Any] = {}
        self._context = RequestContext(
            "http",
            bound.service.name,
            bound.name,
            self._room.clients.of(req),
            tracing,
            {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()},
            metadata,
        )
        token = headers.get(b"authorization")
        apiKey = headers.get(self._room.apiKeyHeader)
        self._credentials = CallCredentials(
            None if token is None else bearerToken(token.decode("latin-1")),
            None if apiKey is None else apiKey.decode("latin-1"),
            req,
        )
        if b"x-deadline-ms" in headers:
            self._seconds = readDeadlineField(headers[b"x-deadline-ms"])
            metadata["deadline"] = self._room.host.invoker.now() + self._seconds
        if self._takesBody() and lean.contentLength != 0:
            checkType(headers)

    def _takesBody(self) -> bool:
        route = self._endpoint.route
        return route is None or route.takesBody

    def _readRequest(self) -> Any:
        """Give the request, the stream of them, or something to wait for that gives it."""
        body: Any = {}
        if self._endpoint.bound.streamsRequests:
            body = self._requestStream()
        elif self._takesBody():
            body = self._readBody()
        return whenKnown(body, self._makeRequest)

    def _makeRequest(self, body: Any) -> Any:
        endpoint, req = self._endpoint, self._req
        request = req.body = body
        if endpoint.route is not None and not endpoint.bound.streamsRequests:
            schema = endpoint.bound.input
            document = None if schema is None else schema.document
            request = mergeRequest(req.query, body, req.params, document)
        transform = self._room.options.transformRequest
        if transform is None:
            return request
        # A hook that has nothing to say of this method returns nothing.
        return whenKnown(
            transform(req, endpoint.name), lambda made: request if made is None else made
        )

    def _requestStream(self) -> AsyncIterator[Any]:
        if not self._takesBody():
            return _stream()
        if getattr(self._req, "bodyParsed", False):
            return _stream(readParsed(self._req.body))
        return self._requests()

    def _readBody(self) -> Any:
        """Give the body as an object, at once if it is here and small."""
        lean, limit = self._req.lean, self._room.options.maxRequestBodySize
        if getattr(self._req, "bodyParsed", False):
            # The application's own parser was here before.
            return readParsed(self._req.body)
        if (lean.contentLength or 0) > limit:
            raise tooLarge(limit)
        data = lean.body.takeReady()
        if data is None or len(data) > INLINE_SIZE:
            return self._readLargeBody(data, limit)
        if len(data) > limit:
            raise tooLarge(limit)
        return readObject(data)

    async def _readLargeBody(self, data: bytes | None, limit: int) -> Any:
        if data is None:
            try:
                data = await self._req.lean.body.read(limit)
            except BodyTooLarge:
                raise tooLarge(limit) from None
        if len(data) > limit:
            raise tooLarge(limit)
        if len(data) <= INLINE_SIZE:
            return readObject(data)
        return await self._room.host.run(readObject, data)

    async def _requests(self) -> AsyncIterator[Any]:
        """Give a client's stream as it comes; the client waits while nobody asks."""
        limit = self._room.options.maxRequestBodySize
        lines = LineDecoder(limit)
        try:
            async for chunk in self._req.lean.body:
                for line in lines.feed(chunk):
                    yield readObject(line)
            for line in lines.end():
                yield readObject(line)
        except LineTooLong:
            raise tooLarge(limit) from None
        except BodyLost:
            # A stream that was cut has no end: whoever reads it is cancelled.
            raise CancelledError from None

    # The answer

    async def _answer(self) -> None:
        """Call the method. What comes after the call has ended, the response refuses to take."""
        try:
            request = self._readRequest()
            if hasattr(request, "__await__"):
                request = await request
        except _PARTINGS:
            raise
        except Exception as error:
            self._room.host.refuse(self._context, error)
            raise
        result = await self._room.host.invoker.call(self._context, request, self._credentials)
        if self._endpoint.bound.streamsResponses:
            await self._answerStream(result)
            return
        shaped = self._shape(result, httpResult)
        if hasattr(shaped, "__await__"):
            shaped = await shaped
        self._respond(self._encode(shaped))

    async def _answerStream(self, items: AsyncIterator[Any]) -> None:
        res, req = self._res, self._req
        chosen = chooseFormat(req)
        try:
            async for item in items:
                shaped = self._shape(item, chosen.shape)
                if hasattr(shaped, "__await__"):
                    shaped = await shaped
                piece = chosen.item(self._encode(shaped))
                self._beginStream(chosen)
                await res.write(piece)
                # Where the application compresses, an item would wait for others else.
                await res.flush()
                if req.method == "HEAD":
                    break
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
        """Give what JSON carries of a result, or something to wait for that gives it."""
        transform = self._room.options.transformResponse
        if transform is None:
            return shape(result)
        return transform(result, self._endpoint.name, self._req)

    def _encode(self, value: Any) -> bytes:
        try:
            return JSON.encode(value)
        except ValueError as error:
            name = self._endpoint.name
            raise ValueError(f"the result of {name} cannot be written: {error}") from None

    def _respond(self, body: bytes) -> None:
        res = self._res
        self._setCookie()
        res.setChecked(JSON_FIELD)
        if self._req.method in ("GET", "HEAD"):
            res.send(body)
        else:
            # No ETag, which has a meaning only for what can be asked for again.
            res.end(body)

    # Errors and ends

    def _failed(self, failure: Failure) -> None:
        error: Any = failure.value
        if self._req.lean.disconnected:
            if not isinstance(error, (ServiceError, *_PARTINGS)):
                _log.failure("a call failed after its client had gone", failure)
            return
        if not isForeseen(error):
            _log.failure("{name} was not answered", failure, name=self._endpoint.name)
        self._fail(asServiceError(error))

    def _fail(self, error: ServiceError) -> None:
        res = self._res
        if self._format is None or not res.headersSent:
            sendError(self._room.host, res, error)
        else:
            res.end(self._format.error(writeError(self._room.host, error)[1]))

    def _done(self, result: Any) -> None:
        lean = self._req.lean
        if self._endpoint.bound.streamsRequests and not lean.body.complete:
            # A task that a handler has left behind would wait for ever.
            lean.body.fail(BodyLost("the call is over"))


async def _stream(*requests: Any) -> AsyncIterator[Any]:
    for request in requests:
        yield request
