"""
The S3 room's front door: one leaf that every request of the listener comes to.

A request is split into bucket and key, authenticated, matched with an operation, judged by the
key's policy, and handed to that operation's route. Errors travel up to the bridge, which asks
L{S3Resource.describeError} for their shape.

A brake on guessing: failed authentications of one source are answered ever later.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.resource import CoroutineResource
from storagegate.s3.accounts import AccessKeyStore
from storagegate.s3.auth.authenticator import (
    Authenticated,
    S3Authenticator,
    checkPayloadSigned,
    isUnsigned,
    withQueryHeaders,
)
from storagegate.s3.auth.sigv4 import SignatureSource
from storagegate.s3.errors import S3Error, errorDocument, fromStoreError
from storagegate.s3.handlers import post
from storagegate.s3.multipart import CopyService, MultipartService
from storagegate.s3.names import parseQuery, splitTarget
from storagegate.s3.objects import ObjectService
from storagegate.s3.observers import RequestObservers, S3RequestRecord
from storagegate.s3.operation import XML
from storagegate.s3.operations import ROUTES, findOperation
from storagegate.s3.request import Pairs, S3Request, S3Services
from storagegate.storage.store import ObjectStore
from storagegate.telemetry.tracecontext import namedTracing, newTraceId

if TYPE_CHECKING:
    from storagegate.s3.postform import PostForm


WINDOW_SECONDS = 60.0
"""Failures older than this are forgotten."""

FREE_FAILURES = 100
"""A client that is merely misconfigured retries; it is not slowed before this many in a window."""

DELAY_SECONDS = 0.25
"""What every failure beyond that waits: four guesses a second and connection."""

SOURCES = 10_000
"""Sources that are remembered; the longest unseen is forgotten first."""


class AuthFailureThrottle:
    """Count failed authentications by source. Successes are never slowed."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def failed(self, source: str) -> float:
        """
        Count one failure.

        @return: How many seconds its answer should wait.
        """
        now = self._clock.seconds()
        since, count = self._counts.pop(source, (now, 0))
        if now - since > WINDOW_SECONDS:
            since, count = now, 0
        self._counts[source] = (since, count + 1)
        if len(self._counts) > SOURCES:
            self._counts.popitem(last=False)
        return DELAY_SECONDS if count >= FREE_FAILURES else 0.0


_REQUEST_ID = b"x-amz-request-id"

_NO_QUERY: Mapping[str, str] = {}


class S3Resource(CoroutineResource):
    """
    Answer the S3 protocol on one listener.

    @ivar observation: Tells those who observe of every request.
    """

    def __init__(self, services: S3Services, clock: IReactorTime) -> None:
        super().__init__(self.serve, self.describeError)
        self.services = services
        self.observation = RequestObservers(clock)
        self.nameTraces("X-Trace-ID")
        self._accessKeys = services.store.accessKeys
        self._clock = clock
        self._throttle = AuthFailureThrottle(clock)
        # Ids need not be secret, only distinct: also from those before a restart.
        self._ids = count(secrets.randbits(63))

    def nameTraces(self, name: str) -> None:
        """Have the ids of traces in another field than C{X-Trace-ID}."""
        self._traceName = name.encode("ascii")
        self._traceKey = self._traceName.lower()

    def _requestId(self) -> bytes:
        return b"%016X" % (next(self._ids) & 0xFFFFFFFFFFFFFFFF)

    async def serve(self, request: ChannelRequest) -> None:
        """Answer one request."""
        if not self._accessKeys.isLoaded:
            await self._accessKeys.loaded()
        exchange = self._observe(request) if self.observation.isOn else None
        try:
            headers: Mapping[bytes, bytes] = request.headers
            bucket, key = splitTarget(
                request.path, headers.get(b"host", b""), self.services.s3Domain
            )
            query = parseQuery(request.queryString) if request.queryString else _NO_QUERY
            # A form may be signed in its fields; no other body is ever looked at before the gate.
            isPost = request.method == b"POST" and bucket is not None and key is None
            form = post.openForm(request) if isPost else None
            authenticated = await self._authenticate(request, form)
            if exchange is not None:
                exchange.accessKey = authenticated.identity.accessKey
            if self.services.requireSignedPayload:
                checkPayloadSigned(authenticated, request.contentLength, request.secure)
            if authenticated.source is SignatureSource.QUERY:
                headers = withQueryHeaders(query, headers)
            operation = findOperation(
                request.method, bucket is not None, key is not None, query, headers
            )
            if exchange is not None:
                exchange.operation = operation.name
            call = S3Request(
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
                await post.postObject(call, form)
                return
            if authenticated.source is SignatureSource.FORM:
                # What a form's fields are signed for is to store its file, whatever the query says.
                raise S3Error("AccessDenied")
            await call.authoriseOperation()
            await ROUTES[operation.name](call)
        finally:
            if exchange is not None:
                self.observation.over(exchange)

    async def _authenticate(
        self, request: ChannelRequest, form: "PostForm | None"
    ) -> Authenticated:
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

    def describeError(self, request: ChannelRequest, error: Exception) -> tuple[int, Pairs, bytes]:
        """Give an exception S3's shape."""
        told = fromStoreError(error)
        exchange: S3RequestRecord | None = request.handlerState
        if exchange is not None:
            exchange.errorCode = told.code
        requestId = self._requestId() if exchange is None else exchange.requestId
        headers = [(_REQUEST_ID, requestId), XML, *told.headers]
        if exchange is not None:
            headers.append((self._traceName, exchange.traceId))
        resource = request.path.decode("latin-1")
        return told.status, headers, errorDocument(told, resource, requestId.decode("ascii"))

    def _answerStart(self, exchange: S3RequestRecord | None) -> bytes:
        """Give the fields of every answer, as bytes: that takes a quarter of what pairs take."""
        if exchange is None:
            return b"%b: %b\r\n" % (_REQUEST_ID, self._requestId())
        named = (_REQUEST_ID, exchange.requestId, self._traceName, exchange.traceId)
        return b"%b: %b\r\n%b: %b\r\n" % named

    def _observe(self, request: ChannelRequest) -> S3RequestRecord:
        """Have a request observed; its record is kept with it."""
        headers = request.headers
        tracing = None
        if b"traceparent" in headers or self._traceKey in headers:
            tracing = namedTracing(headers, self._traceKey)
        # Few clients name a trace: one that begins here is an id, until somebody wants more.
        traceId = newTraceId() if tracing is None else tracing.traceId.encode("ascii")
        exchange = request.handlerState = S3RequestRecord(
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
    @param rootAccessKey: The root pair; see L{AccessKeyStore}.
    """
    credentials = AccessKeyStore(store.accessKeys, rootAccessKey, rootSecretKey)
    objects = ObjectService(store, region, lambda: int(time.time() * 1000))
    multipart = MultipartService(objects)
    services = S3Services(
        store=store,
        objects=objects,
        multipart=multipart,
        copies=CopyService(objects, multipart),
        authenticator=S3Authenticator(credentials, region, time.time, s3Domain),
        tokenSecret=store.catalog.secret(),
        s3Domain=s3Domain,
        requireSignedPayload=requireSignedPayload,
    )
    return S3Resource(services, reactor)
