"""The default encryption of a bucket."""

from storagegate.objects.documents.encryption import readEncryption, writeEncryption
from storagegate.objects.operations import (
    DeleteBucketEncryption,
    GetBucketEncryption,
    PutBucketEncryption,
)
from storagegate.s3.request import S3Request
from storagegate.s3.xml.reader import readDocument
from storagegate.s3.xml.writer import writeDocument


async def getBucketEncryption(call: S3Request) -> None:
    """Respond with the configuration."""
    encryption = await call.perform(GetBucketEncryption(call.bucket))
    call.respondXML(writeDocument(writeEncryption(encryption)))


async def putBucketEncryption(call: S3Request) -> None:
    """Set the configuration."""
    await call.services.objects.bucket(call, call.bucket)
    document = readDocument(await call.readDocument(), "ServerSideEncryptionConfiguration")
    await call.perform(PutBucketEncryption(call.bucket, readEncryption(document)))
    call.respond(200)


async def deleteBucketEncryption(call: S3Request) -> None:
    """Remove the configuration."""
    await call.perform(DeleteBucketEncryption(call.bucket))
    call.respond(204)
