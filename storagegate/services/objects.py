"""
The Storage service: the buckets and objects that S3 serves, in the gateway's form::

    credentials = Credentials(store.accessKeys, rootAccessKey, rootSecretKey)
    definition = makeStorageService(store, credentials)
    authentication.ownKeys["Storage"] = APIKeyProvider(storageAuthenticate(credentials))

It is the domain of S3 with another front door: the same accounts, access keys, policies, names and
limits. A client authenticates with C{ACCESSKEY:SECRETKEY}.
"""

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from attrs import evolve

from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceAuthentication, ServiceDefinition, ServiceMethod
from storagegate.core.errors import codedError
from storagegate.s3.accounts import AccessKeyStore, Identity
from storagegate.s3.checksums import BodyExpectation
from storagegate.s3.ingest import ingest
from storagegate.s3.multipart import CopyRequest, CopyService, MultipartService
from storagegate.s3.objects import DeleteEntry, ObjectService
from storagegate.s3.pagination import BUCKETS_LIMIT, makeToken
from storagegate.services import objectschemas as shapes
from storagegate.services.objectschemas import (
    attributesOf,
    bucketOf,
    keyOf,
    readListing,
    readRange,
    textOf,
    translated,
)
from storagegate.services.objectstreams import CHUNK, BucketWatchers, beginUpload, readContent
from storagegate.storage.records import INLINE_LIMIT, ObjectRecord
from storagegate.storage.store import ObjectStore

Request = Mapping[str, Any]
Result = dict[str, Any]


def storageAuthenticate(credentials: AccessKeyStore) -> Callable[[str], Identity | None]:
    """
    Make what knows the users of L{makeStorageService} by C{ACCESSKEY:SECRETKEY}.

    The first colon ends the access key. How long a refusal takes tells nothing of the secret.
    """

    def authenticate(apiKey: str) -> Identity | None:
        accessKey, _, secretKey = apiKey.partition(":")
        return credentials.prove(accessKey, secretKey.encode("utf-8", "surrogatepass"))

    return authenticate


def makeStorageService(
    store: ObjectStore,
    credentials: AccessKeyStore,
    region: str = "us-east-1",
    now: Callable[[], float] = time.time,
    maxItemBytes: Mapping[str, int] | None = None,
) -> ServiceDefinition:
    """
    Make the service.

    @param store: Who opened it closes it.
    @param credentials: Those of the S3 listener, or others of the same store.
    @param region: The region that new buckets are said to be in.
    @param now: Gives seconds since 1970.
    @param maxItemBytes: By transport, how many bytes of an object an item may have, where that is
        less than L{CHUNK}.
    """
    storage = _Storage(store, credentials, region, now, maxItemBytes or {})
    methods = {
        "ListBuckets": ServiceMethod(storage.listBuckets, "none", shapes.EMPTY, shapes.BUCKETS),
        "CreateBucket": ServiceMethod(
            storage.createBucket, "none", shapes.BUCKET_REQUEST, shapes.EMPTY
        ),
        "DeleteBucket": ServiceMethod(
            storage.deleteBucket, "none", shapes.BUCKET_REQUEST, shapes.EMPTY
        ),
        "ListObjects": ServiceMethod(
            storage.listObjects, "none", shapes.LIST_REQUEST, shapes.LISTING
        ),
        "HeadObject": ServiceMethod(
            storage.headObject, "none", shapes.OBJECT_REQUEST, shapes.OBJECT
        ),
        "GetObject": ServiceMethod(
            storage.getObject, "server", shapes.READ_REQUEST, shapes.READ_ITEM
        ),
        "PutObject": ServiceMethod(storage.putObject, "client", shapes.WRITE_ITEM, shapes.OBJECT),
        "DeleteObject": ServiceMethod(
            storage.deleteObject, "none", shapes.OBJECT_REQUEST, shapes.EMPTY
        ),
        "CopyObject": ServiceMethod(storage.copyObject, "none", shapes.COPY_REQUEST, shapes.OBJECT),
        "WatchBucket": ServiceMethod(
            storage.watchBucket, "server", shapes.WATCH_REQUEST, shapes.CHANGE
        ),
    }
    return ServiceDefinition(
        "Storage", methods, authentication=ServiceAuthentication(required=True, methods=("apikey",))
    )


class _Storage:
    """The methods."""

    def __init__(
        self,
        store: ObjectStore,
        credentials: AccessKeyStore,
        region: str,
        now: Callable[[], float],
        maxItemBytes: Mapping[str, int],
    ) -> None:
        self._store = store
        self._maxItemBytes = maxItemBytes
        self._credentials = credentials
        self._objects = ObjectService(store, region, now)
        self._copies = CopyService(self._objects, MultipartService(self._objects))
        self._secret = store.catalog.secret()
        self._watches = BucketWatchers(store)

    async def listBuckets(self, request: Request, context: RequestContext) -> Result:
        """List the account's buckets by name, as many as a page of S3 has at most."""
        with translated():
            identity = await self._authorised(context, "list")
            found = await self._objects.buckets(identity, "", "", BUCKETS_LIMIT)
            shown = self._objects.listable(identity, found)
            return {"buckets": [shapes.bucketShape(each) for each in shown]}

    async def createBucket(self, request: Request, context: RequestContext) -> Result:
        """Create a bucket."""
        with translated():
            bucket = bucketOf(request)
            identity = await self._authorised(context, "admin", bucket)
            await self._objects.createBucket(identity, bucket)
            return {}

    async def deleteBucket(self, request: Request, context: RequestContext) -> Result:
        """Remove an empty bucket."""
        with translated():
            bucket = bucketOf(request)
            identity = await self._authorised(context, "admin", bucket)
            await self._objects.deleteBucket(identity, bucket)
            return {}

    async def listObjects(self, request: Request, context: RequestContext) -> Result:
        """List a page of a bucket."""
        with translated():
            page = readListing(request, self._secret)
            identity = await self._authorised(context, "list", page.bucket, prefix=page.prefix)
            found = await self._objects.listObjects(
                identity,
                page.bucket,
                page.prefix.encode(),
                page.delimiter.encode(),
                page.after.encode(),
                page.limit,
                contentTypes=True,
            )
        result: Result = {
            "objects": [shapes.listedShape(row) for row in found.objects],
            "commonPrefixes": list(found.prefixes),
        }
        if found.last is not None:
            result["nextContinuationToken"] = makeToken(self._secret, page.bucket, found.last)
        return result

    async def headObject(self, request: Request, context: RequestContext) -> Result:
        """Describe an object."""
        with translated():
            return shapes.objectShape(await self._found(context, request))

    async def getObject(self, request: Request, context: RequestContext) -> AsyncIterator[Result]:
        """Give an object: what it is, then its bytes."""
        most = min(CHUNK, self._maxItemBytes.get(context.protocol, CHUNK))
        with translated():
            record = await self._found(context, request)
            start, length = readRange(request, record.size)
            # An overwrite or a delete in the meantime must not take the blobs from under us.
            hold = self._store.hold(record.content)
            try:
                yield {"object": shapes.objectShape(record)}
                chunks = readContent(self._store, record.content, start, length, most)
                async with aclosing(chunks):
                    async for chunk in chunks:
                        yield {"chunk": chunk}
            finally:
                hold.release()

    async def putObject(self, requests: AsyncIterable[Request], context: RequestContext) -> Result:
        """Store an object, once all of its bytes have come; of a stream that is cut nothing is."""
        first, body = await beginUpload(requests)
        with translated():
            bucket, key = bucketOf(first), keyOf(first)
            identity = await self._authorised(context, "write", bucket, key)
            attributes = attributesOf(first)
            # What is sure to be refused is refused before its bytes are read.
            await self._objects.bucket(identity, bucket)
            expectation = BodyExpectation()
            ingested = await ingest(body, expectation, self._objects.sink, INLINE_LIMIT)
            attributes = evolve(attributes, checksum=ingested.checksum)
            return shapes.objectShape(
                await self._objects.putObject(identity, bucket, key, ingested, attributes)
            )

    async def deleteObject(self, request: Request, context: RequestContext) -> Result:
        """Delete an object; one that is not there is deleted already, as in S3."""
        with translated():
            bucket, key = bucketOf(request), keyOf(request)
            identity = await self._authorised(context, "write", bucket, key)
            await self._objects.deleteObject(identity, bucket, DeleteEntry(key))
            return {}

    async def copyObject(self, request: Request, context: RequestContext) -> Result:
        """Give an object's bytes a second name."""
        with translated():
            wanted = CopyRequest(bucketOf(request), keyOf(request))
            identity = await self._authorised(context, "write", wanted.bucket, wanted.key)
            source = {"bucket": bucketOf(request, "fromBucket"), "key": textOf(request, "fromKey")}
            await self._objects.bucket(identity, wanted.bucket)
            record = await self._copies.copyLatest(
                identity,
                # Whoever copies reads.
                lambda: self._found(context, source),
                lambda record: wanted,
            )
            return shapes.objectShape(record)

    async def watchBucket(self, request: Request, context: RequestContext) -> AsyncIterator[Result]:
        """
        Tell of the objects that are created and removed from now on, until the bucket is deleted.

        A reader who falls too far behind is told so and nothing more. What another program than
        this daemon changes is not seen.
        """
        with translated():
            bucket, prefix = bucketOf(request), textOf(request, "prefix")
            identity = await self._authorised(context, "list", bucket, prefix=prefix)
            # Joined before the look-up: a bucket that is deleted meanwhile ends the watch.
            box = self._watches.subscribe(bucket, prefix)
            try:
                await self._objects.bucket(identity, bucket)
                while (change := await box.get()) is not None:
                    self._checkKey(identity)
                    # What another program does to the bucket is not seen. Once it was deleted here,
                    # what waits is of the time before.
                    if not box.isEnded:
                        await self._objects.bucket(identity, bucket)
                    yield change
            finally:
                self._watches.unsubscribe(bucket, box)

    def _checkKey(self, identity: Identity) -> None:
        """See that a key that was good when the call began has not been revoked since."""
        credential = self._credentials.find(identity.accessKey)
        if credential is None or credential.identity != identity:
            raise codedError("UNAUTHENTICATED", "The access key is not valid any more")

    async def _found(self, context: RequestContext, request: Request) -> ObjectRecord:
        """Look up the object of a request whose caller may read it."""
        bucket, key = bucketOf(request), keyOf(request)
        identity = await self._authorised(context, "read", bucket, key)
        return await self._objects.object(identity, bucket, key)

    async def _authorised(
        self,
        context: RequestContext,
        access: str,
        bucket: str = "",
        key: bytes = b"",
        prefix: str | None = None,
    ) -> Identity:
        """
        Authorise an access and return the caller's identity.

        @raise S3Error: C{AccessDenied}.
        """
        identity = context.authentication
        if not isinstance(identity, Identity):
            # The identity of another provider has no rights in the store.
            raise codedError("UNAUTHENTICATED", "An access key of the store is required")
        await self._objects.authorise(identity, access, bucket, key, prefix)
        return identity
