"""Object lock: the configuration of a bucket, and the retention and legal hold of versions."""

from storagegate.objects.locks import requireLock
from storagegate.s3.errors import S3Error
from storagegate.s3.locks import LOCK_FIELDS, bypasses, lockHeaders
from storagegate.s3.request import S3Request
from storagegate.s3.xml import documents
from storagegate.s3.xml.reader import readLegalHold, readLockConfiguration, readRetention
from storagegate.storage.records import DEFAULT_RETENTION, ObjectLock, ObjectRecord, readDefault


async def getObjectLockConfiguration(call: S3Request) -> None:
    """Respond with the object lock configuration of a bucket."""
    bucket, settings = await call.services.objects.bucketSettings(call, call.bucket)
    if not bucket.lockEnabled:
        raise S3Error("ObjectLockConfigurationNotFoundError", fields={"BucketName": call.bucket})
    document = settings.documents.get(DEFAULT_RETENTION)
    default = None if document is None else readDefault(document)
    call.respondXML(documents.objectLockConfiguration(default))


async def putObjectLockConfiguration(call: S3Request) -> None:
    """Enable object lock permanently, and set or remove the default retention."""
    objects = call.services.objects
    await objects.bucket(call, call.bucket)
    default = readLockConfiguration(await call.readDocument())
    await objects.setObjectLock(call, call.bucket, default)
    call.respond(200)


async def getObjectRetention(call: S3Request) -> None:
    """Respond with the retention of a version."""
    lock = (await _find(call)).attributes.lock
    if not lock.mode:
        raise _missing()
    call.respondXML(documents.retention(lock))


async def putObjectRetention(call: S3Request) -> None:
    """Change the retention of a version."""
    await _find(call)
    lock = readRetention(await call.readDocument())
    _describe(call, lock)
    await call.services.objects.putRetention(
        call, call.bucket, call.key, call.query.get("versionId"), lock, bypasses(call.headers)
    )
    call.respond(200)


async def getObjectLegalHold(call: S3Request) -> None:
    """Respond with the legal hold of a version."""
    lock = (await _find(call)).attributes.lock
    if lock.legalHold is None:
        raise _missing()
    call.respondXML(documents.legalHold(lock.legalHold))


async def putObjectLegalHold(call: S3Request) -> None:
    """Place or release the legal hold of a version."""
    await _find(call)
    isOn = readLegalHold(await call.readDocument())
    _describe(call, ObjectLock(legalHold=isOn))
    await call.services.objects.putLegalHold(
        call, call.bucket, call.key, call.query.get("versionId"), isOn
    )
    call.respond(200)


async def _find(call: S3Request) -> ObjectRecord:
    """Look up the version of the request; its bucket must have object lock."""
    bucket, record = await call.services.objects.object(
        call, call.bucket, call.key, call.query.get("versionId")
    )
    requireLock(bucket)
    return record


def _describe(call: S3Request, lock: ObjectLock) -> None:
    """
    Represent the document to policies as the equivalent header fields.

    The change itself is authorised again: a policy may forbid such a lock.
    """
    named = {name: call.headers[name] for name in call.headers if name not in LOCK_FIELDS}
    call.headers = {**named, **dict(lockHeaders(lock))}


def _missing() -> S3Error:
    return S3Error("NoSuchObjectLockConfiguration")
