"""The bucket operations and the settings that no bucket has yet."""

from storagegate.s3.handlers.body import readDocument
from storagegate.s3.headers import rejectUnsupported
from storagegate.s3.names import checkBucketName
from storagegate.s3.operation import XML
from storagegate.s3.pagination import makeToken, parseListBuckets
from storagegate.s3.request import S3Request
from storagegate.s3.xml import documents, listings
from storagegate.s3.xml.reader import readBucketConfiguration
from storagegate.storage.records import Bucket


async def listBuckets(call: S3Request) -> None:
    """List the account's buckets."""
    query = parseListBuckets(call.query, call.services.tokenSecret)
    objects = call.services.objects
    # One more than asked for tells whether there is a next page.
    found = await objects.buckets(call.identity, query.prefix, query.after, query.limit + 1)
    page = found[: query.limit]
    token = None
    if len(found) > query.limit:
        token = makeToken(call.services.tokenSecret, "", page[-1].name)
    listable = objects.listable(call.identity, page)
    shown = [each for each in listable if query.region in ("", each.region)]
    call.document(listings.listBuckets(query, shown, call.identity.account, token))


async def createBucket(call: S3Request) -> None:
    """Create a bucket."""
    rejectUnsupported(call.headers)
    checkBucketName(call.bucket)
    region = readBucketConfiguration(await readDocument(call))
    await call.services.objects.createBucket(call.identity, call.bucket, region)
    call.answer(200, [(b"Location", b"/" + call.bucket.encode())])


async def headBucket(call: S3Request) -> None:
    """Say whether a bucket is there."""
    bucket = await _settings(call)
    call.answer(200, [(b"x-amz-bucket-region", bucket.region.encode()), XML])


async def deleteBucket(call: S3Request) -> None:
    """Remove an empty bucket."""
    await call.services.objects.deleteBucket(call.identity, call.bucket)
    call.answer(204)


async def getBucketLocation(call: S3Request) -> None:
    """Name a bucket's region."""
    bucket = await _settings(call)
    call.document(documents.locationConstraint(bucket.region))


async def getAcl(call: S3Request) -> None:
    """Say that nobody but the owner may use a bucket or an object."""
    bucket = await _settings(call)
    call.document(documents.accessControlPolicy(bucket.account))


async def setting(call: S3Request) -> None:
    """Answer for a setting that was never made, or refuse to make it."""
    answer = call.operation.answer
    assert answer is not None, "only operations with a fixed answer come here"
    await _settings(call)
    call.document(answer.give(call.bucket))


async def _settings(call: S3Request) -> Bucket:
    """Look up what the settings of the bucket, or of the object, are read from."""
    version = call.query.get("versionId")
    return await call.services.objects.settings(call.identity, call.bucket, call.key, version)
