"""The access settings of buckets and objects: policy, ACL, ownership, public access block."""

from storagegate.objects.access.acl import AccessControlList
from storagegate.objects.documents.acl import readList, writeList
from storagegate.objects.documents.buckets import (
    readOwnership,
    readPublicAccessBlock,
    writeOwnership,
    writePublicAccessBlock,
)
from storagegate.objects.operations import (
    DeleteBucketOwnershipControls,
    DeleteBucketPolicy,
    DeletePublicAccessBlock,
    GetBucketAcl,
    GetBucketOwnershipControls,
    GetBucketPolicy,
    GetBucketPolicyStatus,
    GetObjectAcl,
    GetPublicAccessBlock,
    PutBucketAcl,
    PutBucketOwnershipControls,
    PutBucketPolicy,
    PutObjectAcl,
    PutPublicAccessBlock,
)
from storagegate.s3.acls import listIn
from storagegate.s3.attributes import LIST_FIELDS
from storagegate.s3.errors import S3Error
from storagegate.s3.request import S3Request, readVersionHeaders
from storagegate.s3.xml import documents
from storagegate.s3.xml.reader import readDocument, readListDocument
from storagegate.s3.xml.writer import writeDocument


async def getBucketPolicy(call: S3Request) -> None:
    """Respond with the policy, byte for byte."""
    document = await call.perform(GetBucketPolicy(call.bucket))
    call.respond(200, [(b"Content-Type", b"application/json")], document)


async def putBucketPolicy(call: S3Request) -> None:
    """Set the policy."""
    await call.services.objects.bucket(call, call.bucket)
    await call.perform(PutBucketPolicy(call.bucket, await call.readDocument()))
    call.respond(204)


async def deleteBucketPolicy(call: S3Request) -> None:
    """Remove the policy."""
    await call.perform(DeleteBucketPolicy(call.bucket))
    call.respond(204)


async def getBucketPolicyStatus(call: S3Request) -> None:
    """Respond with whether the policy is public."""
    isPublic = await call.perform(GetBucketPolicyStatus(call.bucket))
    call.respondXML(documents.policyStatus(isPublic))


async def getPublicAccessBlock(call: S3Request) -> None:
    """Respond with the public access block."""
    block = await call.perform(GetPublicAccessBlock(call.bucket))
    call.respondXML(writeDocument(writePublicAccessBlock(block)))


async def putPublicAccessBlock(call: S3Request) -> None:
    """Set the public access block."""
    await call.services.objects.bucket(call, call.bucket)
    document = readDocument(await call.readDocument(), "PublicAccessBlockConfiguration")
    block = readPublicAccessBlock(document)
    await call.perform(PutPublicAccessBlock(call.bucket, block))
    call.respond(200)


async def deletePublicAccessBlock(call: S3Request) -> None:
    """Remove the public access block."""
    await call.perform(DeletePublicAccessBlock(call.bucket))
    call.respond(204)


async def getBucketOwnershipControls(call: S3Request) -> None:
    """Respond with the object ownership, if it was ever set."""
    ownership = await call.perform(GetBucketOwnershipControls(call.bucket))
    call.respondXML(writeDocument(writeOwnership(ownership)))


async def putBucketOwnershipControls(call: S3Request) -> None:
    """Set the object ownership."""
    await call.services.objects.bucket(call, call.bucket)
    ownership = readOwnership(readDocument(await call.readDocument(), "OwnershipControls"))
    await call.perform(PutBucketOwnershipControls(call.bucket, ownership))
    call.respond(200)


async def deleteBucketOwnershipControls(call: S3Request) -> None:
    """Remove the object ownership."""
    await call.perform(DeleteBucketOwnershipControls(call.bucket))
    call.respond(204)


async def getBucketAcl(call: S3Request) -> None:
    """Respond with the ACL of the bucket."""
    owner, acl = await call.perform(GetBucketAcl(call.bucket))
    call.respondXML(writeDocument(writeList(owner, acl, call.services.accounts.nameOf)))


async def putBucketAcl(call: S3Request) -> None:
    """Set the ACL of the bucket, in one of its three forms."""
    bucket = await call.services.objects.bucket(call, call.bucket)
    acl, canned = await _readList(call, bucket.account)
    await call.perform(PutBucketAcl(call.bucket, acl, canned))
    call.respond(200)


async def _readList(
    call: S3Request, owner: str, bucketOwner: str | None = None
) -> tuple[AccessControlList, str | None]:
    """
    Read the ACL that a request names, in one of its three forms.

    @param bucketOwner: See L{HeaderList.ownedBy}.
    @return: The ACL, and the name of a canned one.
    """
    document = await call.readDocument()
    accounts = call.services.accounts
    if document:
        if not LIST_FIELDS.isdisjoint(call.headers):
            raise S3Error("InvalidRequest", "The request has an ACL in headers and in the body")
        return readList(readListDocument(document), owner, accounts), None
    named = listIn(call.headers, accounts)
    if named is None:
        raise S3Error("MissingSecurityHeader", fields={"MissingHeaderName": "x-amz-acl"})
    return named.ownedBy(owner, bucketOwner), named.canned


async def getObjectAcl(call: S3Request) -> None:
    """Respond with the ACL of the object."""
    versionId = call.query.get("versionId")
    found = await call.perform(GetObjectAcl(call.bucket, call.key, versionId))
    bucket, record, (owner, acl) = found
    body = writeDocument(writeList(owner, acl, call.services.accounts.nameOf))
    call.respondXML(body, readVersionHeaders(bucket, record))


async def putObjectAcl(call: S3Request) -> None:
    """Set the ACL of the object, in one of its three forms."""
    objects, versionId = call.services.objects, call.query.get("versionId")
    bucket, record = await objects.object(call, call.bucket, call.key, versionId)
    access = await objects.accessOf(bucket)
    owner = bucket.account if access.isEnforced else record.account
    acl, canned = await _readList(call, owner, bucket.account)
    await call.perform(PutObjectAcl(call.bucket, call.key, versionId, record.sequence, acl, canned))
    call.respond(200, readVersionHeaders(bucket, record))
