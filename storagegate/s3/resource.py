"""
The resource of the S3 listener.

The resource splits a request into bucket and key, authenticates it, looks up its row in the table
of operations, authorises it, and calls the row's handler. L{S3Resource.describeError} turns errors
into documents.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from storagegate.auth.throttle import AuthFailureThrottle
from storagegate.net.forwarded import TrustedProxies, compileTrust
from storagegate.net.http.message import ChannelRequest, encodeLines
from storagegate.net.http.site import CoroutineResource
from storagegate.net.scheduling import InputScheduler
from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.domain import openDomain
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.errors import AccessDenied, DomainError
from storagegate.objects.lifecycle import DAY_SECONDS, Calendar
from storagegate.s3.auth.authenticator import (
    Authenticated,
    S3Authenticator,
    checkPayloadSigned,
    isUnsigned,
    withQueryHeaders,
)
from storagegate.s3.auth.sigv4 import SignatureSource
from storagegate.s3.errors import S3Error, asS3Error, errorDocument
from storagegate.s3.names import bucketOfHost, parseQuery, splitTarget
from storagegate.s3.observers import RequestObservers, S3RequestRecord
from storagegate.s3.request import XML, Pairs, S3Request, S3Services
from storagegate.storage.errors import PreconditionFailed, StoreError
from storagegate.storage.store import ObjectStore
from storagegate.telemetry.tracecontext import namedTracing, newTraceId

if TYPE_CHECKING:
    from storagegate.objects.identities.webidentity import Providers

_REQUEST_ID = b"x-amz-request-id"
_ORIGIN = b"origin"
_EXPECTED_OWNER = b"x-amz-expected-bucket-owner"


HEALTH_PATHS: Mapping[bytes, bytes] = {
    b"/healthz": b"/healthz",
    b"/readyz": b"/readyz",
    b"/minio/health/live": b"/healthz",
    b"/minio/health/ready": b"/readyz",
}
"""The paths of health checks, with their paths on the admin listener."""

_FIND_SECONDS = 1
"""The time to look up a bucket before a health check: half of a usual check's timeout."""

HealthCheck = Callable[[bytes, bytes], tuple[int, Pairs, bytes]]
"""Responds to a method and a path of the admin listener: status, header fields and body."""


def _headersOf(request: ChannelRequest) -> tuple[Mapping[bytes, bytes], Mapping[bytes, bytes]]:
    """
    Return the header fields as they are stored, and as they are signed.

    Values of a repeated field are joined by a comma, stored with a space after it, also if the
    framework uses only the first.
    """
    fields = request.headerList
    if len(request.headers) == len(fields):
        return request.headers, request.headers
    return _joined(fields, b", "), _joined(fields, b",")


def _joined(fields: Pairs, separator: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        headers[name] = value if name not in headers else headers[name] + separator + value
    return headers


class S3Resource(CoroutineResource):
    """
    Serve the S3 protocol on one listener.

    @ivar observers: The observers of completed requests.
    @ivar healthCheck: Responds to health checks; C{None} for no health checks.
    """

    def __init__(self, services: S3Services, clock: IReactorTime) -> None:
        super().__init__(self.serve, self.describeError)
        self.services = services
        self._authenticator = services.authenticator
        self._admit = services.store.admit
        self._keys = services.store.accessKeys
        self.observers = RequestObservers(clock)
        self.setTraceHeader("X-Trace-ID")
        self._isReady = False
        self.healthCheck: HealthCheck | None = None
        self._clock = clock
        self._throttle = AuthFailureThrottle(clock)
        # Ids need not be secret, only distinct, also from the ids before a restart.
        self._ids = count(secrets.randbits(63))

    def setTraceHeader(self, name: str) -> None:
        """
        Set the header that carries trace ids.

        @param name: Replaces C{X-Trace-ID}.
        """
        self._traceName = name.encode("ascii")
        self._commonHeaders = b"x-amz-request-id: %%b\r\n%b: %%b\r\n" % self._traceName
        self._traceKey = self._traceName.lower()

    def isBucketHost(self, host: bytes) -> bool:
        """Return whether a C{Host} field names a bucket, so that its paths are keys."""
        domain = self.services.s3Domain
        return domain is not None and bucketOfHost(host, domain) is not None

    async def serve(self, request: ChannelRequest) -> None:
        """Respond to a request, or raise an error for L{describeError}."""
        if request.path in HEALTH_PATHS and await self._answerHealthCheck(request):
            return
        if not self._isReady:
            await self._prepare()
        record, requestId, commonHeaders = self._begin(request)
        authenticated = operation = None
        try:
            if self._admit is not None:
                await self._checkNode(self._admit)
            headers, signed = _headersOf(request)
            bucket, key = splitTarget(
                request.path, headers.get(b"host", b""), self.services.s3Domain
            )
            if record is not None:
                record.bucket, record.key = bucket, key
            if _ORIGIN in headers or request.method == b"OPTIONS":
                commonHeaders += await self._crossOrigin(request, record, bucket, key)
                if request.method == b"OPTIONS":
                    request.respond(200, (), b"", commonHeaders)
                    return
            if bucket is None and (request.method == b"POST" or b"Action=" in request.queryString):
                from storagegate.s3.queryprotocol import serviceOf

                service = serviceOf(request)
                if service:
                    await self._respondToCall(
                        request, service, record, signed, requestId, commonHeaders
                    )
                    return
            query = parseQuery(request.queryString) if request.queryString else {}
            # A form may be signed in its fields; any other body is read only after authentication.
            form = head = None
            if request.method == b"POST" and bucket is not None and key is None:
                form = self._openForm(request)
            try:
                if form is not None and isUnsigned(request.queryString, headers):
                    head = await form.readHead()
                    authenticated = self._authenticator.authenticateForm(head.fields)
                else:
                    authenticated = self._authenticator.authenticate(
                        request.method, request.path, request.queryString, signed
                    )
            except S3Error as error:
                await self._slowDown(request, error)
                raise
            if record is not None:
                record.accessKey = authenticated.identity.accessKey or None
            if self.services.requireSignedPayload:
                checkPayloadSigned(authenticated, request.contentLength, request.secure)
            call = self._openCall(
                request, bucket, key, query, authenticated, headers, commonHeaders
            )
            operation = call.operation
            if record is not None:
                record.operation = operation.name
            if form is not None and operation.name == "PostObject":
                await self._postObject(call, form)
                return
            if head is not None:
                # A signed form may only store its file, not perform another operation.
                raise S3Error("AccessDenied")
            call.authorise()
            if _EXPECTED_OWNER in call.headers and bucket and operation.name != "CreateBucket":
                await call.checkOwner(bucket, _EXPECTED_OWNER)
            await operation.handler(call)
        except (S3Error, DomainError) as error:
            if operation is None and authenticated and authenticated.identity.isAnonymous:
                raise S3Error("AccessDenied") from error
            raise
        except PreconditionFailed as error:
            from storagegate.s3.conditions import writeFailed

            raise writeFailed(call.headers) from error
        finally:
            if record is not None:
                self.observers.completed(record, request)

    async def _respondToCall(
        self,
        request: ChannelRequest,
        service: str,
        record: S3RequestRecord | None,
        signed: Mapping[bytes, bytes],
        requestId: bytes,
        commonHeaders: bytes,
    ) -> None:
        """Respond to a call to IAM or STS."""
        from storagegate.s3.iam.apis import APIS
        from storagegate.s3.iam.endpoint import QueryEndpoint

        endpoint = QueryEndpoint(self.services, APIS[service])
        body = await endpoint.readBody(request)
        try:
            authenticated = endpoint.authenticate(request, signed, body)
        except S3Error as error:
            await self._slowDown(request, error)
            raise
        if record is not None:
            record.accessKey = authenticated.identity.accessKey or None
        id = requestId.decode("ascii")
        try:
            await endpoint.respond(request, record, authenticated, body, id, commonHeaders)
        except DomainError:
            if authenticated.identity.isAnonymous:
                # The token in an unsigned call is its credential.
                await self._delayFailure(request)
            raise

    def _openCall(
        self,
        request: ChannelRequest,
        bucket: str | None,
        key: bytes | None,
        query: Mapping[str, str],
        authenticated: Authenticated,
        headers: Mapping[bytes, bytes],
        commonHeaders: bytes,
    ) -> S3Request:
        """Look up the operation of an authenticated request."""
        if authenticated.source is SignatureSource.QUERY:
            headers = withQueryHeaders(query, headers)
        operation = self._findOperation(
            request.method, bucket is not None, key is not None, query, headers
        )
        return S3Request(
            request,
            self.services,
            bucket or "",
            key or b"",
            query,
            operation,
            authenticated,
            authenticated.identity,
            headers,
            commonHeaders,
        )

    async def _answerHealthCheck(self, request: ChannelRequest) -> bool:
        """
        Respond to an unsigned request for a path of L{HEALTH_PATHS}, unless it is for a bucket.

        These paths also name buckets and objects, which clients reach if the bucket exists.

        @return: Whether the request was a health check.
        """
        host = request.headers.get(b"host", b"")
        if (
            self.healthCheck is None
            or request.method not in (b"GET", b"HEAD")
            or b"?" in request.uri
            or not isUnsigned(request.queryString, request.headers)
            or self.isBucketHost(host)
        ):
            return False
        bucket, _ = splitTarget(request.path, host, None)
        finding = Deferred.fromCoroutine(self.services.objects.find(bucket or ""))
        try:
            await finding.addTimeout(_FIND_SECONDS, self._clock)
        except (DomainError, StoreError, TimeoutError):
            # It does not exist, or the catalog cannot say.
            request.respond(*self.healthCheck(request.method, HEALTH_PATHS[request.path]))
            return True
        return False

    async def _checkNode(self, admit: Callable[[], object]) -> None:
        """Refuse the request if this node of a cluster may not serve; wait for certain keys."""
        admit()
        if self._keys.isInDoubt:
            await self._keys.certain()

    async def _crossOrigin(
        self,
        request: ChannelRequest,
        record: S3RequestRecord | None,
        bucket: str | None,
        key: bytes | None,
    ) -> bytes:
        """Encode the CORS header fields; refuse a preflight request that no rule allows."""
        from storagegate.s3.handlers import cors

        objects, headers = self.services.objects, request.headers
        fields: Pairs = ()
        if request.method == b"OPTIONS":
            fields = await cors.preflight(objects, bucket, key is not None, headers)
        elif bucket is not None:
            fields = await cors.crossOriginFields(objects, request.method, bucket, headers)
        if record is not None:
            record.crossOrigin = fields
        return encodeLines(fields)

    async def _slowDown(self, request: ChannelRequest, error: S3Error) -> None:
        """Delay a client whose credentials were refused too often."""
        if error.status in (401, 403):
            await self._delayFailure(request)

    async def _delayFailure(self, request: ChannelRequest) -> None:
        """Count a failed authentication, and wait until its response may be sent."""
        address = request.clientAddress(self.services.trust)
        await self._throttle.wait(self._throttle.failed(address))

    async def _prepare(self) -> None:
        """Load the keys and operations, which an idle daemon does not load."""
        from storagegate.s3.handlers.post import openForm, postObject
        from storagegate.s3.operations import findOperation

        self._findOperation, self._openForm, self._postObject = findOperation, openForm, postObject
        await self.services.store.accessKeys.loaded()
        self._isReady = True

    def describeError(self, request: ChannelRequest, error: Exception) -> tuple[int, Pairs, bytes]:
        """Describe an exception in S3's form: status, headers and document."""
        s3Error, service = asS3Error(error), ""
        if request.path == b"/" and not self._isOfBucket(request):
            from storagegate.s3.queryprotocol import queryErrorDocument, refusal, serviceOf

            service = serviceOf(request)
            s3Error = refusal(s3Error, service) if service else s3Error
        record: S3RequestRecord | None = request.handlerState
        if record is None:
            requestId = b"%016X" % (next(self._ids) & 0xFFFFFFFFFFFFFFFF)
        else:
            record.errorCode, record.errorMessage = s3Error.code, s3Error.message
            if isinstance(error, AccessDenied):
                record.explain = error.explain
            requestId = record.requestId
        headers = [(_REQUEST_ID, requestId), XML, *s3Error.headers]
        if record is not None:
            headers += [(self._traceName, record.traceId), *record.crossOrigin]
        text = requestId.decode("ascii")
        if service:
            return s3Error.status, headers, queryErrorDocument(s3Error, service, text)
        document = errorDocument(s3Error, request.path.decode("latin-1"), text)
        return s3Error.status, headers, document

    def _isOfBucket(self, request: ChannelRequest) -> bool:
        """Return whether the host of a request names a bucket."""
        domain, host = self.services.s3Domain, request.headers.get(b"host", b"")
        return domain is not None and bucketOfHost(host, domain) is not None

    def _begin(self, request: ChannelRequest) -> tuple[S3RequestRecord | None, bytes, bytes]:
        """
        Begin a request: assign its id, and record it if needed.

        @return: The record, which is made and kept with the request if there are observers or an
            origin; the id; and the encoded fields of every response. Bytes take a quarter of the
            time of pairs.
        """
        requestId = b"%016X" % (next(self._ids) & 0xFFFFFFFFFFFFFFFF)
        headers = request.headers
        if not self.observers.isOn and _ORIGIN not in headers:
            return None, requestId, b"x-amz-request-id: %b\r\n" % requestId
        tracing = None
        if b"traceparent" in headers or self._traceKey in headers:
            tracing = namedTracing(headers, self._traceKey)
        # Few clients name a trace; a trace that starts here is only an id unless it is recorded.
        traceId = newTraceId() if tracing is None else tracing.traceId.encode("ascii")
        record = request.handlerState = S3RequestRecord(
            time.perf_counter(),
            requestId,
            traceId,
            tracing,
            request.method,
            request.path,
            request.queryString,
            headers.get(b"user-agent", b""),
            request.clientAddress(self.services.trust),
            request.secure,
        )
        self.observers.inFlight += 1
        return record, requestId, self._commonHeaders % (requestId, traceId)


def makeS3Resource(
    store: ObjectStore,
    *,
    region: str,
    s3Domain: str | None,
    requireSignedPayload: bool = False,
    customerKeysOverHTTP: bool = False,
    ownership: str = "",
    encryption: EncryptionOptions | None = None,
    trustedProxies: TrustedProxies = False,
    rootAccessKey: str,
    rootSecretKey: str,
    reactor: IReactorTime,
    lifecycleDaySeconds: int = DAY_SECONDS,
    providers: "Providers | None" = None,
) -> S3Resource:
    """
    Make the resource of an S3 listener.

    @param store: An open store, which the caller closes.
    @param region: The only region that signatures may name.
    @param s3Domain: The domain below which a host name is a bucket; L{None} for path style only.
    @param requireSignedPayload: Whether a body must be signed if the connection is not TLS.
    @param customerKeysOverHTTP: Whether clients may send encryption keys over a network without
        TLS.
    @param ownership: The object ownership of new buckets; empty for none.
    @param encryption: See L{openDomain}.
    @param trustedProxies: The proxies whose C{X-Forwarded-For} names the client.
    @param rootAccessKey: The root pair; see L{AccessKeyStore}.
    @param lifecycleDaySeconds: Length of a day in lifecycle rules, in seconds.
    @param providers: See L{openDomain}.
    """
    credentials = AccessKeyStore(store.accessKeys, rootAccessKey, rootSecretKey)
    objects = openDomain(store, credentials, region, time.time, ownership, encryption, providers)
    services = S3Services(
        store=store,
        objects=objects,
        authenticator=S3Authenticator(credentials, region, time.time, s3Domain),
        tokenSecret=store.catalog.secret(),
        scheduler=InputScheduler(reactor),
        accounts=credentials,
        s3Domain=s3Domain,
        requireSignedPayload=requireSignedPayload,
        customerKeysOverHTTP=customerKeysOverHTTP,
        calendar=Calendar(lifecycleDaySeconds * 1000, store.correctedMs),
        trust=compileTrust(trustedProxies),
    )
    return S3Resource(services, reactor)
