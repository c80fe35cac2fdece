"""The access settings of buckets and objects: policy, ACL, ownership, public access block."""

import msgspec

from storagegate.objects.access.acl import (
    AccessControlList,
    decodeList,
    encodeList,
    privateList,
)
from storagegate.objects.access.decision import BUCKET_OWNER_ENFORCED, BucketAccess
from storagegate.objects.access.policy import UnknownPrincipal, compilePolicy
from storagegate.objects.accounts import canonicalId
from storagegate.objects.errors import DomainError
from storagegate.objects.settings import (
    ACL,
    OWNERSHIP,
    POLICY,
    PUBLIC_ACCESS_BLOCK,
    ownershipOf,
)
from storagegate.s3.acls import listIn
from storagegate.s3.attributes import LIST_FIELDS
from storagegate.s3.errors import S3Error
from storagegate.s3.request import S3Request, readVersionHeaders
from storagegate.s3.xml import documents
from storagegate.s3.xml.reader import readList, readOwnership, readPublicAccessBlock
from storagegate.storage.records import Bucket, ObjectRecord


async def _put(call: S3Request, name: str, document: bytes | None) -> None:
    await call.services.objects.putSettings(call.bucket, {name: document})


def _missing(call: S3Request, code: str) -> S3Error:
    return S3Error(code, fields={"BucketName": call.bucket})


async def getBucketPolicy(call: S3Request) -> None:
    """Respond with the policy, byte for byte."""
    _, settings = await call.services.objects.bucketSettings(call, call.bucket)
    document = settings.documents.get(POLICY)
    if document is None:
        raise _missing(call, "NoSuchBucketPolicy")
    call.respond(200, [(b"Content-Type", b"application/json")], document)


async def putBucketPolicy(call: S3Request) -> None:
    """Set the policy."""
    _, settings = await call.services.objects.bucketSettings(call, call.bucket)
    document = await call.readDocument()
    accounts = call.services.accounts
    try:
        policy = compilePolicy(document, call.bucket, accounts)
    except DomainError as error:
        if not isinstance(error.__cause__, UnknownPrincipal):
            raise
        await accounts.refresh()
        policy = compilePolicy(document, call.bucket, accounts)
    if policy.isPublic and settings.access.block.blockPublicPolicy:
        raise S3Error("AccessDenied", "The block of public access forbids public policies")
    await _put(call, POLICY, document)
    call.respond(204)


async def deleteBucketPolicy(call: S3Request) -> None:
    """Remove the policy."""
    await call.removeSetting(POLICY)


async def getBucketPolicyStatus(call: S3Request) -> None:
    """Respond with whether the policy is public."""
    _, settings = await call.services.objects.bucketSettings(call, call.bucket)
    policy = settings.access.policy
    if policy is None:
        raise _missing(call, "NoSuchBucketPolicy")
    call.respondXML(documents.policyStatus(policy.isPublic))


async def getPublicAccessBlock(call: S3Request) -> None:
    """Respond with the public access block."""
    _, settings = await call.services.objects.bucketSettings(call, call.bucket)
    if PUBLIC_ACCESS_BLOCK not in settings.documents:
        raise _missing(call, "NoSuchPublicAccessBlockConfiguration")
    call.respondXML(documents.publicAccessBlock(settings.access.block))


async def putPublicAccessBlock(call: S3Request) -> None:
    """Set the public access block."""
    await call.services.objects.bucket(call, call.bucket)
    block = readPublicAccessBlock(await call.readDocument())
    await _put(call, PUBLIC_ACCESS_BLOCK, msgspec.json.encode(block))
    call.respond(200)


async def deletePublicAccessBlock(call: S3Request) -> None:
    """Remove the public access block."""
    await call.removeSetting(PUBLIC_ACCESS_BLOCK)


async def getBucketOwnershipControls(call: S3Request) -> None:
    """Respond with the object ownership, if it was ever set."""
    bucket, settings = await call.services.objects.bucketSettings(call, call.bucket)
    ownership = ownershipOf(bucket, settings.documents)
    if not ownership:
        raise _missing(call, "OwnershipControlsNotFoundError")
    call.respondXML(documents.ownershipControls(ownership))


async def putBucketOwnershipControls(call: S3Request) -> None:
    """Set the object ownership."""
    bucket, settings = await call.services.objects.bucketSettings(call, call.bucket)
    ownership = readOwnership(await call.readDocument())
    acl, owner = settings.access.acl, canonicalId(bucket.account)
    grants = () if acl is None else acl.grants
    if ownership == BUCKET_OWNER_ENFORCED and any(each.grantee != owner for each in grants):
        raise S3Error("InvalidBucketAclWithObjectOwnership")
    await _put(call, OWNERSHIP, ownership.encode())
    call.respond(200)


async def deleteBucketOwnershipControls(call: S3Request) -> None:
    """Remove the object ownership."""
    # An empty setting, not L{None}: the bucket may have been created with an ownership.
    await call.removeSetting(OWNERSHIP, document=b"")


async def getBucketAcl(call: S3Request) -> None:
    """Respond with the ACL of the bucket."""
    bucket, settings = await call.services.objects.bucketSettings(call, call.bucket)
    acl = settings.access.acl
    if acl is None or settings.access.isEnforced:
        acl = privateList(bucket.account)
    name = call.services.accounts.nameOf
    call.respondXML(documents.accessControlPolicy(bucket.account, acl, name))


async def putBucketAcl(call: S3Request) -> None:
    """Set the ACL of the bucket, in one of its three forms."""
    bucket, settings = await call.services.objects.bucketSettings(call, call.bucket)
    acl = await _readList(call, bucket.account)
    settings.access.checkList(acl, _canned(call))
    text = encodeList(acl, bucket.account)
    await _put(call, ACL, None if text is None else text.encode())
    call.respond(200)


async def _readList(
    call: S3Request, owner: str, bucketOwner: str | None = None
) -> AccessControlList:
    """
    Read the ACL that a request names, in one of its three forms.

    @param bucketOwner: See L{HeaderList.ownedBy}.
    """
    document = await call.readDocument()
    accounts = call.services.accounts
    if document:
        if not LIST_FIELDS.isdisjoint(call.headers):
            raise S3Error("InvalidRequest", "The request has an ACL in headers and in the body")
        return readList(document, owner, accounts)
    named = listIn(call.headers, accounts)
    if named is None:
        raise S3Error("MissingSecurityHeader", fields={"MissingHeaderName": "x-amz-acl"})
    return named.ownedBy(owner, bucketOwner)


def _canned(call: S3Request) -> str | None:
    named = listIn(call.headers, call.services.accounts)
    return None if named is None else named.canned


async def _findObject(call: S3Request) -> tuple[Bucket, ObjectRecord, BucketAccess]:
    """Look up the object, and decide on the request."""
    objects = call.services.objects
    bucket, record = await objects.object(call, call.bucket, call.key, call.query.get("versionId"))
    return bucket, record, await objects.accessOf(bucket)


async def getObjectAcl(call: S3Request) -> None:
    """Respond with the ACL of the object."""
    bucket, record, access = await _findObject(call)
    owner, text = record.account, record.attributes.acl
    if access.isEnforced:
        owner, text = bucket.account, ""
    acl, name = decodeList(text) if text else privateList(owner), call.services.accounts.nameOf
    body = documents.accessControlPolicy(owner, acl, name)
    call.respondXML(body, readVersionHeaders(bucket, record))


async def putObjectAcl(call: S3Request) -> None:
    """Set the ACL of the object, in one of its three forms."""
    bucket, record, access = await _findObject(call)
    owner = bucket.account if access.isEnforced else record.account
    acl = await _readList(call, owner, bucket.account)
    access.checkList(acl, _canned(call))
    await call.services.objects.putAcl(record, encodeList(acl, owner) or "")
    call.respond(200, readVersionHeaders(bucket, record))
