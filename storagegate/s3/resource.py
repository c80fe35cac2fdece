"""
The S3 room's front door: one leaf that every request of the listener comes to.

A request is split into bucket and key, authenticated, matched with an operation, judged by the
key's policy, and handed to that operation's route. Errors travel up to the bridge, which asks
L{S3Resource.describeError} for their shape.
"""

import secrets
import time
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from storagegate.core.tracing import namedTracing, newTraceId
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
from storagegate.s3.observing import Exchange, Observation
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

_REQUEST_ID = b"x-amz-request-id"

_NO_QUERY: Mapping[str, str] = {}


class S3Resource(CoroutineResource):
    """
    Answer the S3 protocol on one listener.

    @ivar observation: Tells those who observe of every request.
    """

    def __init__(self, services: Services, clock: IReactorTime) -> None:
        super().__init__(self.serve, self.describeError)
        self.services = services
        self.observation = Observation(clock)
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
        exchange = self._observe(request) if self.observation.isOn else None
        try:
            headers: Mapping[bytes, bytes] = request.headers
            bucket, key = splitTarget(
                request.path, headers.get(b"host", b""), self.services.s3Domain
            )
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
                self._answerStart(exchange),
            )
            if form is not None and operation.name == "PostObject":
                await posts.postObject(call, form)
                return
            if authenticated.source is Source.FORM:
                # What a form's fields are signed for is to store its file, whatever the query says.
                raise S3Error("AccessDenied")
            call.authoriseOperation()
            await ROUTES[operation.name](call)
        finally:
            if exchange is not None:
                self.observation.over(exchange)

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
        exchange: Exchange | None = request.answerer
        if exchange is not None:
            exchange.errorCode = told.code
        requestId = self._requestId() if exchange is None else exchange.requestId
        headers = [(_REQUEST_ID, requestId), XML, *told.headers]
        if exchange is not None:
            headers.append((self._traceName, exchange.traceId))
        resource = request.path.decode("latin-1")
        return told.status, headers, errorDocument(told, resource, requestId.decode("ascii"))

    def _answerStart(self, exchange: Exchange | None) -> bytes:
        """Give the fields of every answer, as bytes: that takes a quarter of what pairs take."""
        if exchange is None:
            return b"%b: %b\r\n" % (_REQUEST_ID, self._requestId())
        named = (_REQUEST_ID, exchange.requestId, self._traceName, exchange.traceId)
        return b"%b: %b\r\n%b: %b\r\n" % named

    def _observe(self, request: Request) -> Exchange:
        """Have a request observed; its record is kept with it."""
        headers = request.headers
        tracing = None
        if b"traceparent" in headers or self._traceKey in headers:
            tracing = namedTracing(headers, self._traceKey)
        # Few clients name a trace: one that begins here is an id, until somebody wants more.
        traceId = newTraceId() if tracing is None else tracing.traceId.encode("ascii")
        exchange = request.answerer = Exchange(
            request, time.perf_counter(), self._requestId(), traceId, tracing
        )
        self.observation.inFlight += 1
        return exchange


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
