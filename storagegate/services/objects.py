"""
The Storage service: the buckets and objects that S3 serves, as a service of the gateway::

    credentials = AccessKeyStore(store.accessKeys, rootAccessKey, rootSecretKey)
    definition = makeStorageService(store, credentials)
    authentication.ownKeys["Storage"] = APIKeyProvider(storageAuthenticate(credentials))

The service shares the domain of S3: accounts, access keys, policies, names and limits. A client
authenticates with C{ACCESSKEY:SECRETKEY}. Names are text in every transport; a name or value that
S3 could not return is rejected.
"""

import re
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Container, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

from msgspec import Struct

from storagegate.core.context import RequestContext
from storagegate.core.definitions import ServiceAuthentication, ServiceDefinition, ServiceMethod
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.streams import BoundedStream, PubSub
from storagegate.objects import errors
from storagegate.objects.accounts import AccessKeyStore, Identity, Signing
from storagegate.objects.attributes import makeAttributes, readableText
from storagegate.objects.checksums import BodyExpectation, ingest
from storagegate.objects.contents import TRIES, retryCopy
from storagegate.objects.dates import isoTimestamp
from storagegate.objects.domain import openDomain
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.errors import DomainError, asDomainError
from storagegate.objects.names import checkKey
from storagegate.objects.pagination import BUCKETS_LIMIT, PAGE_LIMIT, makeToken, readToken
from storagegate.objects.service import ObjectService
from storagegate.services.objectstreams import CHUNK, beginUpload, readContent
from storagegate.storage.errors import CorruptBlob, StoreError
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.records import (
    NULL_VERSION,
    Attributes,
    Bucket,
    ListedObject,
    ObjectChange,
    ObjectRecord,
)
from storagegate.storage.store import ObjectStore

Request = Mapping[str, Any]
Result = dict[str, Any]

_LARGEST = (1 << 63) - 1
"""Numbers are C{int64} in the proto."""

_TEXT: Mapping[str, Any] = {"type": "string"}
_NAME: Mapping[str, Any] = {"type": "string", "minLength": 1, "required": True}
_SIZE: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": _LARGEST}
_TIME: Mapping[str, Any] = {"type": "string", "format": "date-time"}
_CHUNK: Mapping[str, Any] = {"type": "string", "contentEncoding": "base64"}
_METADATA: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(**properties: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": properties}


def _list(items: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "array", "items": items, "required": True}


_EMPTY: Mapping[str, Any] = {"type": "object"}

# A removed object has only its key.
_OBJECT = _object(
    key=_NAME,
    size=_SIZE,
    etag=_TEXT,
    contentType=_TEXT,
    lastModified=_TIME,
    metadata=_METADATA,
    versionId=_TEXT,
)

_BUCKET_REQUEST = _object(bucket=_NAME)
_OBJECT_REQUEST = _object(bucket=_NAME, key=_NAME, versionId=_TEXT)
_DELETED = _object(versionId=_TEXT, deleteMarker={"type": "boolean"})

_BUCKETS = _object(buckets=_list(_object(name=_NAME, createdAt=_TIME)))

_LIST_REQUEST = _object(
    bucket=_NAME,
    prefix=_TEXT,
    delimiter=_TEXT,
    # A larger number is reduced to a page, as in S3.
    maxKeys=_SIZE,
    continuationToken=_TEXT,
)
_LISTING = _object(objects=_list(_OBJECT), commonPrefixes=_list(_TEXT), nextContinuationToken=_TEXT)

_COPY_REQUEST = _object(
    fromBucket=_NAME, fromKey=_NAME, bucket=_NAME, key=_NAME, fromVersionId=_TEXT
)
_READ_REQUEST = _object(bucket=_NAME, key=_NAME, offset=_SIZE, length=_SIZE, versionId=_TEXT)
_READ_ITEM = _object(object=_OBJECT, chunk=_CHUNK)

# One schema for the first and all other items, because a gRPC method has one message type.
_WRITE_ITEM = _object(
    bucket=_TEXT,
    key=_TEXT,
    contentType=_TEXT,
    metadata=_METADATA,
    chunk=_CHUNK,
    size=_SIZE,
    complete={"type": "boolean"},
    # MD5 in hexadecimal, as in C{etag}.
    checksum=_TEXT,
)

_WATCH_REQUEST = _object(bucket=_NAME, prefix=_TEXT)
_CHANGE = _object(
    event={"type": "string", "enum": ["created", "removed"], "required": True},
    object={**_OBJECT, "required": True},
)


def _checkReadable(record: ObjectRecord) -> None:
    """
    Check that a call can read the bytes of an object: no call can carry the key of a client.

    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    encryption = record.attributes.encryption
    if encryption is None:
        return
    from storagegate.objects.encryption.requests import SSE_C

    if encryption.kind == SSE_C:
        message = "The object is encrypted with a client's key (SSE-C), which only S3 can receive"
        raise codedError("INVALID_ARGUMENT", message)


def _objectShape(record: ObjectRecord, bucket: Bucket | None = None) -> Result:
    """
    Describe an object.

    @param bucket: The bucket of the object; if it has had versions, the version id C{null} is also
        included.
    """
    metadata = record.attributes.metadata
    shape = {
        **_rowShape(record),
        "metadata": {name: readableText(value) for name, value in metadata.items()},
    }
    if bucket is not None and bucket.versioning:
        shape["versionId"] = record.versionId
    return shape


def _rowShape(row: ObjectRecord | ListedObject) -> Result:
    """Describe an object without its metadata, which requires the right to read it."""
    if isinstance(row, ListedObject):
        key, contentType = row.key, row.contentType
    else:
        key, contentType = row.key.decode(), row.attributes.contentType
    shape = {
        "key": key,
        "size": row.size,
        "etag": row.etag,
        "contentType": readableText(contentType),
        "lastModified": isoTimestamp(row.modifiedMs),
    }
    if isinstance(row, ObjectRecord) and row.versionId != NULL_VERSION:
        shape["versionId"] = row.versionId
    return shape


# A metadata name becomes part of a header name, a value a header value (RFC 9110 section 5).
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_IN_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _invalid(message: str) -> ServiceError:
    return codedError("INVALID_ARGUMENT", message)


def _bucketOf(request: Mapping[str, Any], name: str = "bucket") -> str:
    """Read the name of a bucket; the domain validates it."""
    bucket = _textOf(request, name)
    if not bucket:
        raise _invalid(f"{name} is required")
    return bucket


def _keyOf(request: Mapping[str, Any], name: str = "key") -> bytes:
    """
    Read the key of an object.

    @raise KeyTooLong: The key is too long.
    """
    key = _textOf(request, name).encode()
    if not key:
        raise _invalid(f"{name} is required")
    checkKey(key)
    return key


def _rangeOf(request: Mapping[str, Any], record: ObjectRecord) -> tuple[int, int]:
    """Read the offset and the length of a read; return start and length."""
    start: int = request.get("offset") or 0
    if start > record.size:
        raise _invalid(f"offset is behind the end of the object, which has {record.size} bytes")
    length, rest = request.get("length"), record.size - start
    return start, rest if length is None else min(length, rest)


def _textOf(request: Mapping[str, Any], name: str) -> str:
    """Read a text; empty if it is absent."""
    text: str = request.get(name) or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _invalid(f"{name} is no Unicode text") from None
    return text


def _attributesOf(request: Mapping[str, Any]) -> Attributes:
    """
    Read the content type and the metadata of an object.

    @raise MetadataTooLarge: The metadata exceed their limit.
    """
    contentType = _headerValue("contentType", _textOf(request, "contentType"))
    given: Mapping[str, str] = request.get("metadata") or {}
    metadata: dict[str, str] = {}
    for name in given:
        if _HEADER_NAME.fullmatch(name) is None:
            raise _invalid(f"metadata has the name {name!a:.80}, which no header can have")
        if name.lower() in metadata:
            raise _invalid(f"metadata has {name!a:.80} twice")
        metadata[name.lower()] = _headerValue("metadata", _textOf(given, name))
    return makeAttributes(contentType, metadata)


def _headerValue(name: str, value: str) -> str:
    if _NOT_IN_HEADER.search(value) is not None or value != value.strip(" \t"):
        raise _invalid(f"{name} has a value that no header can have")
    return value


_CODES: Mapping[type[DomainError], str] = {
    errors.BucketNotFound: "NOT_FOUND",
    errors.ObjectNotFound: "NOT_FOUND",
    errors.VersionNotFound: "NOT_FOUND",
    # The service supports only the deletion of a delete marker.
    errors.VersionIsDeleteMarker: "INVALID_ARGUMENT",
    errors.BucketAlreadyExists: "ALREADY_EXISTS",
    errors.BucketAlreadyOwnedByYou: "ALREADY_EXISTS",
    errors.AccessDenied: "PERMISSION_DENIED",
    errors.InvalidArgument: "INVALID_ARGUMENT",
    errors.InvalidBucketName: "INVALID_ARGUMENT",
    errors.InvalidDigest: "INVALID_ARGUMENT",
    errors.InvalidRequest: "INVALID_ARGUMENT",
    errors.KeyTooLong: "INVALID_ARGUMENT",
    errors.MasterKeyDisabled: "INVALID_ARGUMENT",
    errors.MasterKeyNotFound: "INVALID_ARGUMENT",
    errors.MetadataTooLarge: "INVALID_ARGUMENT",
    errors.EntityTooLarge: "PAYLOAD_TOO_LARGE",
    # A retry may succeed.
    errors.MasterKeysUnavailable: "UNAVAILABLE",
    errors.OutOfSpace: "UNAVAILABLE",
    errors.OperationAborted: "UNAVAILABLE",
    errors.WritesUnavailable: "UNAVAILABLE",
    errors.SlowDown: "UNAVAILABLE",
}


@contextmanager
def domainErrors() -> Iterator[None]:
    """
    Turn errors of the domain and the store into errors of services.

    Errors without a code here pass unchanged: the invoker logs them with a traceback.
    """
    try:
        yield
    except (DomainError, StoreError) as error:
        found = asDomainError(error)
        if isinstance(found, errors.BucketOccupied):
            raise ServiceError("BUCKET_NOT_EMPTY", found.message, 409, None, 6) from error
        code = _CODES.get(type(found))
        if code is None:
            raise
        raise codedError(code, found.message) from error


class BucketWatchers:
    """The subscribers to changes of one store's buckets. Must be used in the reactor thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._topics = PubSub()
        if store.watches is not None:
            store.watches.missedObservers.append(self._missed)

    def __len__(self) -> int:
        return len(self._topics)

    def subscribe(self, bucket: str, prefix: str) -> BoundedStream[Any]:
        """
        Subscribe to later changes of a bucket.

        @param bucket: The name of the bucket; whether it exists is not checked.
        @param prefix: Only changes of keys with this prefix.
        @return: Items C{{"event", "object"}}; it ends when the bucket is deleted. The caller must
            L{unsubscribe}.
        """
        if not self._topics:
            self._store.observers.append(self._changed)

        def wants(change: Any) -> bool:
            key: str = change["object"]["key"]
            return key.startswith(prefix)

        return self._topics.subscribe(bucket, wants if prefix else None)

    @asynccontextmanager
    async def watching(self, bucket: str) -> AsyncIterator[None]:
        """
        Within this context, receive the changes of a bucket that any process commits.

        @param bucket: The bucket of L{subscribe}.
        @raise NoSuchBucket: The bucket does not exist.
        """
        watches = self._store.watches
        if watches is None:
            yield
            return
        try:
            await watches.watch(bucket)
            yield
        finally:
            watches.unwatch(bucket)

    def unsubscribe(self, bucket: str, changes: BoundedStream[Any]) -> None:
        """
        Remove a subscriber.

        @param changes: The stream that L{subscribe} returned for the bucket.
        """
        self._topics.unsubscribe(bucket, changes)
        if not self._topics:
            self._store.observers.remove(self._changed)

    def _missed(self) -> None:
        """End all subscriptions as if they had overflowed."""
        self._topics.fail(lambda: codedError("RATE_LIMITED", "changes were missed"))

    def _changed(self, change: ObjectChange) -> None:
        if change.key is None:
            self._topics.close(change.bucket)
            return
        # The shape holds no content of the object: it may wait for a slow reader.
        if change.record is not None:
            item = {"event": "created", "object": _rowShape(change.record)}
        else:
            item = {"event": "removed", "object": {"key": change.key.decode()}}
        self._topics.publish(change.bucket, (item,))


def storageAuthenticate(credentials: AccessKeyStore) -> Callable[[str], Identity | None]:
    """
    Make the check of C{ACCESSKEY:SECRETKEY} for L{makeStorageService}, in constant time.

    The first colon ends the access key.

    @param credentials: The access keys of the service.
    @return: A function that maps an API key to its identity, or to L{None} if it is wrong.
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
    cutHiding: Container[str] = (),
    ownership: str = "",
    encryption: EncryptionOptions | None = None,
) -> ServiceDefinition:
    """
    Make the Storage service.

    @param store: An open store, which the caller closes.
    @param credentials: The access keys of the S3 listener, or a separate object for the same store.
    @param region: The region of new buckets.
    @param now: Returns seconds since the epoch.
    @param maxItemBytes: By transport, the largest number of object bytes per item, if less than
        L{CHUNK}.
    @param cutHiding: The transports on which a truncated client stream may look complete; an upload
        must mark its end on them.
    @param ownership: The object ownership of new buckets; empty for none.
    @param encryption: See L{openDomain}.
    """
    objects = openDomain(store, credentials, region, now, ownership, encryption)
    storage = _StorageMethods(store, credentials, objects, now, maxItemBytes or {}, cutHiding)
    methods = {
        name: ServiceMethod(handler, streaming, request, response)
        for name, handler, streaming, request, response in (
            ("ListBuckets", storage.listBuckets, "none", _EMPTY, _BUCKETS),
            ("CreateBucket", storage.createBucket, "none", _BUCKET_REQUEST, _EMPTY),
            ("DeleteBucket", storage.deleteBucket, "none", _BUCKET_REQUEST, _EMPTY),
            ("ListObjects", storage.listObjects, "none", _LIST_REQUEST, _LISTING),
            ("HeadObject", storage.headObject, "none", _OBJECT_REQUEST, _OBJECT),
            ("GetObject", storage.getObject, "server", _READ_REQUEST, _READ_ITEM),
            ("PutObject", storage.putObject, "client", _WRITE_ITEM, _OBJECT),
            ("DeleteObject", storage.deleteObject, "none", _OBJECT_REQUEST, _DELETED),
            ("CopyObject", storage.copyObject, "none", _COPY_REQUEST, _OBJECT),
            ("WatchBucket", storage.watchBucket, "server", _WATCH_REQUEST, _CHANGE),
        )
    }
    return ServiceDefinition(
        "Storage", methods, authentication=ServiceAuthentication(required=True, methods=("apikey",))
    )


class _StorageMethods:
    """The handlers of the service."""

    def __init__(
        self,
        store: ObjectStore,
        credentials: AccessKeyStore,
        objects: ObjectService,
        now: Callable[[], float],
        maxItemBytes: Mapping[str, int],
        cutHiding: Container[str],
    ) -> None:
        self._store = store
        self._cutHiding = cutHiding
        self._maxItemBytes = maxItemBytes
        self._credentials = credentials
        self._now = now
        self._objects = objects
        self._secret = store.catalog.secret()
        self._watches = BucketWatchers(store)

    async def listBuckets(self, request: Request, context: RequestContext) -> Result:
        """List the account's buckets by name, at most one page of S3."""
        # Loaded with the first call, as in the other methods: an idle daemon needs none of them.
        from storagegate.objects.operations import ListBuckets

        with domainErrors():
            caller = self._authorised(context, "ListBuckets", "list")
            found = await self._objects.perform(caller, ListBuckets("", "", BUCKETS_LIMIT))
            buckets = [
                {"name": each.name, "createdAt": isoTimestamp(each.createdMs)} for each in found
            ]
            return {"buckets": buckets}

    async def createBucket(self, request: Request, context: RequestContext) -> Result:
        """Create a bucket."""
        from storagegate.objects.operations import CreateBucket

        with domainErrors():
            bucket = _bucketOf(request)
            caller = self._authorised(context, "CreateBucket", "admin", bucket)
            await self._objects.perform(caller, CreateBucket(bucket))
            return {}

    async def deleteBucket(self, request: Request, context: RequestContext) -> Result:
        """Remove an empty bucket."""
        from storagegate.objects.operations import DeleteBucket

        with domainErrors():
            bucket = _bucketOf(request)
            caller = self._authorised(context, "DeleteBucket", "admin", bucket)
            await self._objects.perform(caller, DeleteBucket(bucket))
            return {}

    async def listObjects(self, request: Request, context: RequestContext) -> Result:
        """List a page of a bucket."""
        from storagegate.objects.operations import ListObjects

        with domainErrors():
            bucket, prefix = _bucketOf(request), _textOf(request, "prefix")
            delimiter, token = _textOf(request, "delimiter"), _textOf(request, "continuationToken")
            after = readToken(self._secret, bucket, token) if token else ""
            maxKeys = request.get("maxKeys")
            caller = self._authorised(context, "ListObjectsV2", "list", bucket, prefix=prefix)
            limit = PAGE_LIMIT if maxKeys is None else min(maxKeys, PAGE_LIMIT)
            names = (prefix.encode(), delimiter.encode(), after.encode())
            page = ObjectRange(bucket, *names, limit, contentTypes=True)
            found = await self._objects.perform(caller, ListObjects(page))
        result: Result = {
            "objects": [_rowShape(row) for row in found.objects],
            "commonPrefixes": list(found.prefixes),
        }
        if found.last is not None:
            result["nextContinuationToken"] = makeToken(self._secret, bucket, found.last)
        return result

    async def headObject(self, request: Request, context: RequestContext) -> Result:
        """Describe an object."""
        with domainErrors():
            home, record = await self._found(context, "HeadObject", request)
            return _objectShape(record, home)

    async def getObject(self, request: Request, context: RequestContext) -> AsyncIterator[Result]:
        """Yield an object: its description, then its content."""
        most = min(CHUNK, self._maxItemBytes.get(context.protocol, CHUNK))
        isBegun = False
        with domainErrors():
            home, record = await self._found(context, "GetObject", request)
            _checkReadable(record)
            for _ in range(TRIES):
                start, length = _rangeOf(request, record)
                # An overwrite or a delete in the meantime must not remove the blobs of this read.
                hold = self._store.hold(record.content)
                try:
                    content = await self._objects.contentOf(home, record)
                    chunks = readContent(self._store, content, start, length, most)
                    async with aclosing(chunks):
                        first = await anext(chunks, b"")
                        isBegun = True
                        yield {"object": _objectShape(record, home)}
                        if first:
                            yield {"chunk": first}
                        async for chunk in chunks:
                            yield {"chunk": chunk}
                    return
                except CorruptBlob:
                    if isBegun:
                        raise
                    # The blobs may have been removed before the hold.
                    home, again = await self._found(context, "GetObject", request)
                    if again.content == record.content:
                        raise
                    record = again
                finally:
                    hold.release()
            raise codedError("UNAVAILABLE", "The object was replaced while it was read")

    async def putObject(self, requests: AsyncIterable[Request], context: RequestContext) -> Result:
        """Store an object after its whole stream has arrived; a truncated stream stores nothing."""
        first, body = await beginUpload(requests, context.protocol in self._cutHiding)
        with domainErrors():
            bucket, key = _bucketOf(first), _keyOf(first)
            caller = self._authorised(context, "PutObject", "write", bucket, key)
            attributes = _attributesOf(first)
            # The bucket is checked before the bytes are read.
            found, owner = await self._objects.checkWrite(caller, bucket, key)
            objectKey = await self._objects.keyForWrite(found, key)
            expectation = BodyExpectation()
            ingested = await ingest(
                body, expectation, self._store.blobs, self._store.inlineLimit, bucket, objectKey
            )
            if body.checksum and body.checksum != ingested.etag:
                if ingested.sink is not None:
                    self._store.abort(ingested.sink)
                raise _invalid("checksum is not the MD5 of the bytes that came")
            return _objectShape(
                await self._objects.putObject(owner, bucket, key, ingested, attributes)
            )

    async def deleteObject(self, request: Request, context: RequestContext) -> Result:
        """Delete an object or a version; a missing object counts as deleted, as in S3."""
        from storagegate.objects.operations import DeleteObject

        with domainErrors():
            bucket, key = _bucketOf(request), _keyOf(request)
            caller = self._authorised(context, "DeleteObject", "write", bucket, key)
            wanted = DeleteObject(bucket, key, request.get("versionId"))
            removal = await self._objects.perform(caller, wanted)
            result: Result = {}
            if versionId := removal.versionId or wanted.versionId:
                result["versionId"] = versionId
            if removal.isDeleteMarker:
                result["deleteMarker"] = True
            return result

    async def copyObject(self, request: Request, context: RequestContext) -> Result:
        """Copy an object under a second name."""
        from storagegate.objects.operations import CopyObject

        with domainErrors():
            bucket, key = _bucketOf(request), _keyOf(request)
            source = {
                "bucket": _bucketOf(request, "fromBucket"),
                "key": _textOf(request, "fromKey"),
                "versionId": request.get("fromVersionId"),
            }
            name = "/{bucket}/{key}".format_map(source)
            caller = self._authorised(context, "CopyObject", "write", bucket, key, copySource=name)

            async def copy() -> ObjectRecord:
                # A copy needs the right to read its source.
                _, found = await self._found(context, "GetObject", source)
                _checkReadable(found)
                versionId = source["versionId"]
                wanted = CopyObject(bucket, key, found, versionId, overwrites=versionId is not None)
                return await self._objects.perform(caller, wanted)

            return _objectShape(await retryCopy(copy))

    async def watchBucket(self, request: Request, context: RequestContext) -> AsyncIterator[Result]:
        """
        Yield the objects that are created and removed, until the bucket is deleted.

        A reader that falls too far behind gets an error and no more items. Only changes by this
        daemon, or by the nodes of its cluster, are reported.
        """
        with domainErrors():
            bucket, prefix = _bucketOf(request), _textOf(request, "prefix")
            caller = self._authorised(context, "ListObjectsV2", "list", bucket, prefix=prefix)
            # Subscribed before the look-up, so that a deletion in the meantime ends the stream.
            changes = self._watches.subscribe(bucket, prefix)
            try:
                await self._objects.bucket(caller, bucket)
                async with self._watches.watching(bucket):
                    while (change := await changes.get()) is not None:
                        self._checkKey(caller.identity)
                        # Another program may delete the bucket. After a deletion in this process,
                        # the queued items are older than it.
                        if not changes.isEnded:
                            await self._objects.bucket(caller, bucket)
                        yield change
            finally:
                self._watches.unsubscribe(bucket, changes)

    def _checkKey(self, identity: Identity) -> None:
        """Check that the access key of the call has not been revoked since it began."""
        credential = self._credentials.find(identity.accessKey)
        if credential is None or credential.identity != identity:
            raise codedError("UNAUTHENTICATED", "The access key is not valid any more")

    async def _found(
        self, context: RequestContext, operation: str, request: Request
    ) -> tuple[Bucket, ObjectRecord]:
        """Look up the object of a request whose caller may read it, with its bucket."""
        bucket, key = _bucketOf(request), _keyOf(request)
        caller = self._authorised(context, operation, "read", bucket, key)
        return await self._objects.object(caller, bucket, key, request.get("versionId"))

    def _authorised(
        self,
        context: RequestContext,
        operation: str,
        access: str,
        bucket: str = "",
        key: bytes = b"",
        prefix: str | None = None,
        copySource: str | None = None,
    ) -> "_ServiceCaller":
        """
        Check an access against the policy of the key; return the caller for all further decisions.

        @param operation: Amazon's name of the operation.
        @param copySource: The source of a copy, as C{/bucket/key}.
        @raise AccessDenied: The policy does not grant it.
        @raise StoreBusy: This process may not serve requests now.
        """
        if self._store.admit is not None:
            self._store.admit()
        identity = context.authentication
        if not isinstance(identity, Identity):
            # The identity of another provider has no rights in the store.
            raise codedError("UNAUTHENTICATED", "An access key of the store is required")
        identity.authorise(access, bucket, key, prefix)
        return _ServiceCaller(identity, operation, context, self._now, prefix, copySource)


class _ServiceCaller(Struct, frozen=True):
    """
    A gateway call in the S3 domain: a L{Caller}.

    @ivar copySource: The source of a copy, as C{/bucket/key}; L{None} for none.
    """

    identity: Identity
    operationName: str
    context: RequestContext
    clock: Callable[[], float]
    prefix: str | None
    copySource: str | None

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.clock()

    @property
    def address(self) -> str:
        """The address of the client, behind trusted proxies."""
        return self.context.client.address

    @property
    def secure(self) -> bool:
        """Always false: TLS is unknown for a call, so a policy that requires it refuses it."""
        return False

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers that policies can check, without headers that only S3 implements."""
        found = {name: self.context.headers.get(name) for name in ("user-agent", "referer")}
        found["user-agent"] = found["user-agent"] or self.context.client.userAgent
        return {name.encode(): text.encode() for name, text in found.items() if text is not None}

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of a list."""
        return {} if self.prefix is None else {"prefix": self.prefix}

    @property
    def signing(self) -> Signing | None:
        """Always L{None}: calls are not signed."""
        return None

    @property
    def tlsVersion(self) -> str | None:
        """Always L{None}: the version is unknown."""
        return None

    @property
    def requestTags(self) -> Mapping[str, str]:
        """Always empty: the gateway writes objects without tags."""
        return {}
