"""Object lock: the configuration of a bucket, and the retention and legal hold of versions."""

from storagegate.objects.documents.fields import LOCK_FIELDS
from storagegate.objects.documents.locks import (
    readLegalHold,
    readLockConfiguration,
    readRetention,
    writeLegalHold,
    writeLockConfiguration,
    writeRetention,
)
from storagegate.objects.operations import (
    GetObjectLegalHold,
    GetObjectLockConfiguration,
    GetObjectRetention,
    PutObjectLegalHold,
    PutObjectLockConfiguration,
    PutObjectRetention,
)
from storagegate.objects.retention import findLocked
from storagegate.s3.locks import bypasses, lockHeaders
from storagegate.s3.request import S3Request
from storagegate.s3.xml.reader import readDocument
from storagegate.s3.xml.writer import writeDocument
from storagegate.storage.records import ObjectLock


async def getObjectLockConfiguration(call: S3Request) -> None:
    """Respond with the object lock configuration of a bucket."""
    default = await call.perform(GetObjectLockConfiguration(call.bucket))
    call.respondXML(writeDocument(writeLockConfiguration(default)))


async def putObjectLockConfiguration(call: S3Request) -> None:
    """Enable object lock permanently, and set or remove the default retention."""
    await call.services.objects.bucket(call, call.bucket)
    document = readDocument(await call.readDocument(), "ObjectLockConfiguration")
    default = readLockConfiguration(document)
    await call.perform(PutObjectLockConfiguration(call.bucket, default))
    call.respond(200)


async def getObjectRetention(call: S3Request) -> None:
    """Respond with the retention of a version."""
    versionId = call.query.get("versionId")
    lock = await call.perform(GetObjectRetention(call.bucket, call.key, versionId))
    call.respondXML(writeDocument(writeRetention(lock)))


async def putObjectRetention(call: S3Request) -> None:
    """Change the retention of a version."""
    versionId = call.query.get("versionId")
    await findLocked(call.services.objects, call, call.bucket, call.key, versionId)
    lock = readRetention(readDocument(await call.readDocument(), "Retention"))
    _describe(call, lock)
    await call.perform(
        PutObjectRetention(call.bucket, call.key, versionId, lock, bypasses(call.headers))
    )
    call.respond(200)


async def getObjectLegalHold(call: S3Request) -> None:
    """Respond with the legal hold of a version."""
    versionId = call.query.get("versionId")
    isOn = await call.perform(GetObjectLegalHold(call.bucket, call.key, versionId))
    call.respondXML(writeDocument(writeLegalHold(isOn)))


async def putObjectLegalHold(call: S3Request) -> None:
    """Place or release the legal hold of a version."""
    versionId = call.query.get("versionId")
    await findLocked(call.services.objects, call, call.bucket, call.key, versionId)
    isOn = readLegalHold(readDocument(await call.readDocument(), "LegalHold"))
    _describe(call, ObjectLock(legalHold=isOn))
    await call.perform(PutObjectLegalHold(call.bucket, call.key, versionId, isOn))
    call.respond(200)


def _describe(call: S3Request, lock: ObjectLock) -> None:
    """
    Represent the document to policies as the equivalent header fields.

    The change itself is authorised again: a policy may forbid such a lock.
    """
    named = {name: call.headers[name] for name in call.headers if name not in LOCK_FIELDS}
    call.headers = {**named, **dict(lockHeaders(lock))}
