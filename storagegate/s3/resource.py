"""
The S3 room's front door: one leaf that every request of the listener comes to.

A request is split into bucket and key, authenticated, matched with an operation, judged by the
key's policy, and handed to that operation's route. Errors travel up to the bridge, which asks
L{S3Resource.describeError} for their shape.
"""

import secrets
import time
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.tracing import tracingOfFields
from storagegate.net.httperrors import BadRequest
from storagegate.net.resource import CoroutineResource
from storagegate.net.site import Request
from storagegate.s3.authentication import (
    Authenticated,
    Authenticator,
    checkPayloadSigned,
    isUnsigned,
)
from storagegate.s3.copying import CopyService
from storagegate.s3.credentials import Credentials
from storagegate.s3.errors import S3Error, errorDocument
from storagegate.s3.faults import asS3Error
from storagegate.s3.hoisting import withHoisted
from storagegate.s3.multipart import MultipartService
from storagegate.s3.names import splitTarget
from storagegate.s3.observing import LOST_STATUS, UNKNOWN, Exchange, S3Observer
from storagegate.s3.operations import findOperation
from storagegate.s3.query import parseQuery
from storagegate.s3.routes import posts
from storagegate.s3.routes.call import XML, Call, Pairs, Services
from storagegate.s3.routes.table import ROUTES
from storagegate.s3.service import ObjectService
from storagegate.s3.sigv4claims import Source
from storagegate.s3.throttle import FailureThrottle
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    from storagegate.s3.postform import PostForm

_NO_QUERY: Mapping[str, str] = {}

_log = Logger()

_FAILED = "an observer of S3 requests failed"


class S3Resource(CoroutineResource):
    """
    Answer the S3 protocol on one listener.

    @ivar observers: Who is told of every request. With one of them a request takes 3 microseconds
        longer, without any one truth test.
    """

    def __init__(self, services: Services, clock: IReactorTime) -> None:
        super().__init__(self.serve, self.describeError)
        self.services = services
        self.observers: list[S3Observer] = []
        self._exchanges: dict[Request, Exchange] = {}
        self.nameTraces("X-Trace-ID")
        self._clock = clock
        self._throttle = FailureThrottle(clock)
        # Ids need not be secret, only distinct: also from those before a restart.
        self._ids = count(secrets.randbits(63))

    def nameTraces(self, name: str) -> None:
        """Have the ids of traces in another field than C{X-Trace-ID}."""
        self._traceName = name.encode("ascii")
        self._traceKey = self._traceName.lower()

    def _requestId(self) -> bytes:
        return b"%016X" % (next(self._ids) & 0xFFFFFFFFFFFFFFFF)

    async def serve(self, request: Request) -> None:
        """Answer one request."""
        exchange = self._observe(request) if self.observers else None
        headers: Mapping[bytes, bytes] = request.headers
        bucket, key = splitTarget(request.path, headers.get(b"host", b""), self.services.s3Domain)
        query = parseQuery(request.queryString) if request.queryString else _NO_QUERY
        # A form may be signed in its fields; no other body is ever looked at before the gate.
        isPost = request.method == b"POST" and bucket is not None and key is None
        form = posts.openForm(request) if isPost else None
        authenticated = await self._authenticate(request, form)
        if exchange is not None:
            exchange.accessKey = authenticated.identity.accessKey
        if self.services.requireSignedPayload:
            checkPayloadSigned(authenticated, request.contentLength, request.secure)
        if authenticated.source is Source.QUERY:
            headers = withHoisted(query, headers)
        operation = findOperation(
            request.method, bucket is not None, key is not None, query, headers
        )
        if exchange is not None:
            exchange.operation = operation.name
        call = Call(
            request,
            self.services,
            bucket or "",
            key or b"",
            query,
            operation,
            authenticated,
            authenticated.identity,
            headers,
            self._answerHeaders(exchange),
        )
        if form is not None and operation.name == "PostObject":
            await posts.postObject(call, form)
            return
        if authenticated.source is Source.FORM:
            # What a form's fields are signed for is to store its file, whatever the query says.
            raise S3Error("AccessDenied")
        call.authoriseOperation()
        await ROUTES[operation.name](call)

    async def _authenticate(self, request: Request, form: "PostForm | None") -> Authenticated:
        """Pass the gate: by the form's fields where it is a form that comes without a signature."""
        authenticator = self.services.authenticator
        try:
            if form is not None and isUnsigned(request.queryString, request.headers):
                return authenticator.authenticateForm((await form.readHead()).fields)
            return authenticator.authenticate(
                request.method, request.path, request.queryString, request.headers
            )
        except S3Error as error:
            if error.status in (401, 403):
                wait = self._throttle.failed(request.clientHost)
                if wait:
                    await deferLater(self._clock, wait)
            raise

    def describeError(self, request: Request, error: Exception) -> tuple[int, Pairs, bytes]:
        """Give an exception S3's shape."""
        told = asS3Error(error)
        exchange = self._exchanges.get(request)
        if exchange is not None:
            exchange.errorCode = told.code
        common = self._answerHeaders(exchange)
        requestId = common[0][1]
        resource = request.path.decode("latin-1")
        body = errorDocument(told, resource, requestId.decode("ascii"))
        return told.status, [*common, XML, *told.headers], body

    def _answerHeaders(self, exchange: Exchange | None) -> Pairs:
        """Give the headers of every answer; the first is the request's id."""
        if exchange is None:
            return ((b"x-amz-request-id", self._requestId()),)
        requestId = (b"x-amz-request-id", exchange.requestId.encode("ascii"))
        if exchange.tracing is None:
            return (requestId,)
        return requestId, (self._traceName, exchange.tracing.traceId.encode("ascii"))

    def _observe(self, request: Request) -> Exchange:
        """Tell the observers of a request, now and when it has ended."""
        exchange = Exchange(
            request,
            UNKNOWN,
            time.perf_counter(),
            self._requestId().decode("ascii"),
            tracingOfFields(request.headers, self._traceKey),
        )
        self._exchanges[request] = exchange
        # Those that are told of the beginning are told of the end, whoever comes or goes.
        observers = tuple(self.observers)
        request.onEnd(partial(self._end, exchange, observers))
        for observer in observers:
            try:
                observer.began(exchange)
            except Exception:
                _log.failure(_FAILED)
        return exchange

    def _end(self, exchange: Exchange, observers: tuple[S3Observer, ...]) -> None:
        """Tell the observers how a request has ended."""
        seconds = time.perf_counter() - exchange.began
        request = exchange.request
        self._exchanges.pop(request, None)
        exchange.status = request.status if request.finished else _lostStatus(request)
        exchange.bytesIn = request.body.taken
        exchange.bytesOut = request.bodySent
        for observer in observers:
            try:
                observer.ended(exchange, seconds)
            except Exception:
                _log.failure(_FAILED)


def _lostStatus(request: Request) -> int:
    """Give the status of a request that has no whole answer of this room."""
    error = request.lostReason.value if request.lostReason is not None else None
    # What the connection itself refused, a body that came too slowly or was framed wrongly.
    return error.code if isinstance(error, BadRequest) else LOST_STATUS


def makeS3Resource(
    store: ObjectStore,
    *,
    region: str,
    s3Domain: str | None,
    requireSignedPayload: bool = False,
    rootAccessKey: str,
    rootSecretKey: str,
    reactor: IReactorTime,
) -> S3Resource:
    """
    Put the S3 room together.

    @param region: The only region that signatures may name.
    @param s3Domain: The domain below which a host name is a bucket; L{None}: path style only.
    @param requireSignedPayload: Whether a body must be signed for where there is no TLS.
    @param rootAccessKey: The root pair; see L{Credentials}.
    """
    credentials = Credentials(store.catalog, reactor, rootAccessKey, rootSecretKey)
    objects = ObjectService(store, region, lambda: int(time.time() * 1000))
    multipart = MultipartService(objects)
    services = Services(
        store=store,
        objects=objects,
        multipart=multipart,
        copies=CopyService(objects, multipart),
        authenticator=Authenticator(credentials, region, time.time, s3Domain),
        tokenSecret=store.catalog.secret(),
        s3Domain=s3Domain,
        requireSignedPayload=requireSignedPayload,
    )
    return S3Resource(services, reactor)
