"""The operations on buckets: the buckets themselves, listings of their objects, and settings."""

from collections.abc import Iterator

from attrs import frozen

from storagegate.objects.access.decision import OWNERSHIPS
from storagegate.objects.documents.buckets import (
    readTagging,
    readVersioning,
    writeTagging,
    writeVersioning,
)
from storagegate.objects.names import FIRST_REGION, checkBucketName
from storagegate.objects.operations import (
    CreateBucket,
    DeleteBucket,
    DeleteBucketTagging,
    DeleteObjectTagging,
    GetBucketTagging,
    GetBucketVersioning,
    ListBuckets,
    ListObjects,
    ListObjectVersions,
    PutBucketTagging,
    PutBucketVersioning,
    PutObjectTagging,
)
from storagegate.objects.pagination import makeToken
from storagegate.objects.tags import BUCKET_TAGS, OBJECT_TAGS, checkedTags, decodeTags
from storagegate.s3.acls import listIn
from storagegate.s3.attributes import LIST_FIELDS
from storagegate.s3.auth.sigv4 import REGION_FIELD
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.locks import BUCKET_FIELD, enablesLock
from storagegate.s3.pagination import (
    parseListBuckets,
    parseListObjects,
    parseListVersions,
)
from storagegate.s3.request import (
    XML,
    Pairs,
    S3Request,
    readVersionHeaders,
    rejectUnsupported,
)
from storagegate.s3.xml import documents
from storagegate.s3.xml.reader import readBucketConfiguration, readDocument
from storagegate.s3.xml.writer import writeDocument
from storagegate.storage.ranges import ObjectRange, VersionRange
from storagegate.storage.records import Bucket


async def listBuckets(call: S3Request) -> None:
    """List the account's buckets."""
    if "max-directory-buckets" in call.query:
        raise S3Error("NotImplemented")
    secret, objects = call.services.tokenSecret, call.services.objects
    query = parseListBuckets(call.query, secret, objects.region)
    # One extra row shows whether another page follows.
    found = await call.perform(
        ListBuckets(query.prefix, query.after, query.limit + 1, query.region)
    )
    page, token = found[: query.limit], None
    if len(found) > query.limit:
        token = makeToken(secret, "", page[-1].name)
    call.respondXML(documents.listBuckets(query, page, call.identity.account, token))


async def createBucket(call: S3Request) -> None:
    """Create a bucket."""
    rejectUnsupported(call.headers, call.identity.account, LIST_FIELDS | {BUCKET_FIELD})
    checkBucketName(call.bucket)
    named = listIn(call.headers, call.services.accounts)
    acl = None if named is None else named.ownedBy(call.identity.account)
    ownership = call.headers.get(b"x-amz-object-ownership", b"").strip().decode("latin-1")
    if ownership and ownership not in OWNERSHIPS:
        raise invalidArgument("x-amz-object-ownership", ownership)
    locked = enablesLock(call.headers)
    region, pairs = readBucketConfiguration(await call.readDocument())
    tags = checkedTags(pairs, BUCKET_TAGS)
    isRepeatable = call.services.objects.region == FIRST_REGION
    await call.perform(
        CreateBucket(call.bucket, region, ownership, tags, locked, acl, isRepeatable)
    )
    call.respond(200, [(b"Location", b"/" + call.bucket.encode())])


async def headBucket(call: S3Request) -> None:
    """Respond with the region if the bucket exists."""
    bucket = await _settings(call)
    call.respond(200, [(REGION_FIELD, bucket.region.encode()), XML])


async def deleteBucket(call: S3Request) -> None:
    """Remove an empty bucket."""
    await call.perform(DeleteBucket(call.bucket))
    call.respond(204)


async def getBucketLocation(call: S3Request) -> None:
    """Respond with a bucket's region."""
    bucket = await _settings(call)
    call.respondXML(documents.locationConstraint(bucket.region))


async def getBucketVersioning(call: S3Request) -> None:
    """Respond with the status of versioning."""
    versioning = await call.perform(GetBucketVersioning(call.bucket))
    call.respondXML(writeDocument(writeVersioning(versioning)))


async def putBucketVersioning(call: S3Request) -> None:
    """Enable or suspend versioning."""
    await call.services.objects.bucket(call, call.bucket)
    document = readDocument(await call.readDocument(), "VersioningConfiguration")
    status = readVersioning(document)
    await call.perform(PutBucketVersioning(call.bucket, status))
    call.respond(200)


async def getBucketTagging(call: S3Request) -> None:
    """Respond with the tags of a bucket."""
    tags = await call.perform(GetBucketTagging(call.bucket))
    call.respondXML(writeDocument(writeTagging(tags)))


async def putBucketTagging(call: S3Request) -> None:
    """Replace the tags of a bucket."""
    await call.services.objects.bucket(call, call.bucket)
    pairs = readTagging(readDocument(await call.readDocument(), "Tagging"))
    await call.perform(PutBucketTagging(call.bucket, checkedTags(pairs, BUCKET_TAGS)))
    call.respond(204)


async def deleteBucketTagging(call: S3Request) -> None:
    """Remove the tags of a bucket."""
    await call.perform(DeleteBucketTagging(call.bucket))
    call.respond(204)


async def getObjectTagging(call: S3Request) -> None:
    """Respond with the tags of an object."""
    bucket, record = await call.services.objects.object(
        call, call.bucket, call.key, call.query.get("versionId")
    )
    body = writeDocument(writeTagging(decodeTags(record.attributes.tags)))
    call.respondXML(body, readVersionHeaders(bucket, record))


async def putObjectTagging(call: S3Request) -> None:
    """Replace the tags of an object."""
    await _settings(call)
    pairs = readTagging(readDocument(await call.readDocument(), "Tagging"))
    tags = checkedTags(pairs, OBJECT_TAGS)
    # The change is authorised again with the new tags, which a policy may forbid.
    call.documentTags = tags
    versionId = call.query.get("versionId")
    change = PutObjectTagging(call.bucket, call.key, versionId, tags)
    call.respond(200, readVersionHeaders(*await call.perform(change)))


async def deleteObjectTagging(call: S3Request) -> None:
    """Remove the tags of an object."""
    removal = DeleteObjectTagging(call.bucket, call.key, call.query.get("versionId"))
    call.respond(204, readVersionHeaders(*await call.perform(removal)))


@frozen
class StaticResponse:
    """
    A handler whose response does not depend on the store, for settings that are not implemented.

    @ivar body: The whole document, unless the response is an error.
    @ivar code: The code of the error; empty for a document.
    @ivar message: The message of the error; L{None} for the default.
    """

    body: bytes = b""
    code: str = ""
    message: str | None = None

    async def __call__(self, call: S3Request) -> None:
        """Respond, if the bucket exists, and for implemented settings the object."""
        if self.code == "NotImplemented":
            await call.services.objects.bucket(call, call.bucket, call.key)
        else:
            await _settings(call)
        call.respondXML(self.bodyFor(call.bucket))

    def bodyFor(self, bucket: str) -> bytes:
        """
        Return the document.

        @param bucket: The bucket that the error names.
        @raise S3Error: The response is an error.
        """
        if self.code:
            raise S3Error(self.code, self.message, fields={"BucketName": bucket})
        return self.body


async def _settings(call: S3Request) -> Bucket:
    """Look up the target, a bucket or an object, and return the bucket."""
    objects = call.services.objects
    if not call.key:
        return await objects.bucket(call, call.bucket)
    bucket, _ = await objects.object(call, call.bucket, call.key, call.query.get("versionId"))
    return bucket


async def listObjects(call: S3Request) -> None:
    """List a page of a bucket, for both versions of the operation."""
    secret = call.services.tokenSecret
    query = parseListObjects(call.query, secret, call.bucket)
    page = await call.perform(ListObjects(ObjectRange(call.bucket, *query.keys, query.limit)))
    token = None if page.last is None else makeToken(secret, call.bucket, page.last)
    owner = await call.services.objects.ownerOfAll(call.bucket) if query.fetchOwner else None
    # The region that signatures must name.
    headers = [(REGION_FIELD, call.services.objects.region.encode())]
    pieces = documents.listObjects(call.bucket, query, page, token, owner)
    await _respondInTurns(call, pieces, headers)


async def listObjectVersions(call: S3Request) -> None:
    """List a page of a bucket's versions and delete markers."""
    query = parseListVersions(call.query)
    wanted = VersionRange(call.bucket, *query.keys, query.limit, query.idMarker or None)
    page = await call.perform(ListObjectVersions(wanted))
    owner = await call.services.objects.ownerOfAll(call.bucket)
    await _respondInTurns(call, documents.listVersions(call.bucket, query, page, owner))


async def _respondInTurns(call: S3Request, pieces: Iterator[str], headers: Pairs = ()) -> None:
    """
    Write a document in turns with other requests, and send it.

    @param pieces: The text of the document, as an iterator that does the work.
    """
    written = [next(pieces)]
    for piece in pieces:
        if len(written) > 1:
            await call.services.scheduler.turn()
        written.append(piece)
    call.respondXML("".join(written).encode(), headers)
