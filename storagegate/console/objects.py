"""Objects: listings, records, contents and versions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from storagegate.console.call import ANSWERED, ConsoleCall, ConsoleCaller, copierOf, readKey
from storagegate.console.paging import MOST, checkLimit
from storagegate.console.reads import sendObject
from storagegate.console.settings import Target, readSetting, removeSetting, storeSetting
from storagegate.console.uploadfields import (
    attributesOf,
    uploadAttributes,
    uploadExpectation,
    writeCondition,
)
from storagegate.core.errors import ServiceError, codedError
from storagegate.objects.attributes import readableText
from storagegate.objects.checksums import DEFAULT_ALGORITHM, IngestedBody, ingest
from storagegate.objects.contents import retryCopy
from storagegate.objects.encryption.requests import (
    SSE_C,
    RequestedEncryption,
    describeEncryption,
    withoutDigests,
)
from storagegate.objects.errors import ConditionFailed, DomainError, asDomainError
from storagegate.objects.operations import (
    CopyObject,
    DeleteEntry,
    DeleteObject,
    DeleteObjects,
    ListObjects,
    ListObjectVersions,
)
from storagegate.objects.service import ObjectService
from storagegate.objects.tags import decodeTags
from storagegate.storage.errors import StoreError
from storagegate.storage.ranges import ObjectRange, VersionRange
from storagegate.storage.records import (
    UNLOCKED,
    Attributes,
    Bucket,
    Checksum,
    Expiry,
    ObjectLock,
    ObjectRecord,
    PartSummary,
    WriteCondition,
)

if TYPE_CHECKING:
    # Imported with the first encrypted object.
    from storagegate.objects.encryption.sealing import ObjectKey

_log = Logger()

_CHECK_SECONDS = 1.0
"""How often the key of an upload in flight is checked."""


class ListQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of objects: names strictly after C{after}, which may be any key."""

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = MOST


class ObjectPage(Struct):
    """
    A page of objects and common prefixes.

    @ivar objects: Key, size, last modification in milliseconds, ETag, storage class.
    """

    prefixes: tuple[str, ...]
    objects: list[tuple[str, int, int, str, str]]
    next: str | None


class VersionsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of versions; for the key C{after}, only versions older than C{versionAfter}."""

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    versionAfter: str | None = None
    limit: int = MOST


class VersionView(Struct):
    """A version."""

    key: str
    versionId: str
    size: int
    modifiedMs: int
    etag: str
    isDeleteMarker: bool
    isLatest: bool


class VersionPage(Struct):
    """A page; the last two fields are the position of the next page."""

    prefixes: tuple[str, ...]
    items: list[VersionView]
    next: str | None
    nextVersion: str | None


class VersionQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A version; the current one by default.

    @ivar bytes: If present, return the content instead of the record.
    """

    versionId: str | None = None
    bytes: str | None = None


class DeleteQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    Options of a deletion.

    @ivar versionId: The version to delete permanently.
    @ivar bypass: Whether to bypass a retention in governance mode.
    """

    versionId: str | None = None
    bypass: bool = False


class EncryptionView(Struct):
    """
    The encryption of an object.

    @ivar kind: C{AES256}, C{aws:kms}, or C{SSE-C} for a client's key, without which the API cannot
        read or copy the object.
    @ivar keyId: The master key as the client named it; empty if it named none.
    """

    kind: str
    keyId: str


class ObjectView(Struct, kw_only=True):
    """
    The record of an object.

    @ivar encryption: L{None} for plain bytes.
    @ivar versionId: L{None} if the bucket has never had versions.
    @ivar tags: L{None} if the caller may not read them.
    """

    key: str
    size: int
    modifiedMs: int
    etag: str
    account: str
    contentType: str
    headers: Mapping[str, str]
    metadata: Mapping[str, str]
    storageClass: str
    versionId: str | None
    tags: Mapping[str, str] | None
    lock: ObjectLock | None
    encryption: EncryptionView | None
    checksum: Checksum | None
    parts: tuple[PartSummary, ...]


class ObjectChanges(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    Changes that a copy makes; without any, a version that the query names becomes current.

    @ivar headers: C{content-disposition} and the other headers that S3 stores.
    """

    contentType: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET


class Named(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    An object to delete.

    @ivar versionId: The version to delete permanently; L{None} deletes the current object.
    """

    key: str
    versionId: str | None = None


class Deletions(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    Objects to delete, at most 1,000.

    @ivar bypass: Whether to bypass a retention in governance mode.
    """

    items: list[Named]
    bypass: bool = False


class Refused(Struct):
    """An object that was not deleted, with S3's error code."""

    key: str
    versionId: str | None
    error: str


class DeletionsDone(Struct):
    """
    The result of a bulk deletion.

    @ivar markers: The delete markers that it created; permanently deleting them undoes it.
    """

    done: int
    failed: list[Refused]
    markers: list[Named]


class CopyTarget(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    The target of a copy, which must not exist.

    @ivar toBucket: Empty for the same bucket.
    @ivar move: Whether to delete the source afterwards.
    """

    toBucket: str = ""
    toKey: str
    move: bool = False


class SettingQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    The version of a setting; the current one by default.

    @ivar bypass: Whether to bypass a retention in governance mode.
    """

    versionId: str | None = None
    bypass: bool = False


class Deleted(Struct):
    """
    The result of a deletion.

    @ivar versionId: The id of the delete marker, or of the removed version.
    """

    versionId: str | None
    isDeleteMarker: bool


async def listObjects(call: ConsoleCall, query: ListQuery) -> ObjectPage:
    """List a page of objects and common prefixes."""
    limit = checkLimit(query.limit)
    bucket = call.params["bucket"]
    caller = call.caller("ListObjectsV2", "list", bucket, prefix=query.prefix)
    names = (query.prefix.encode(), query.delimiter.encode(), query.after.encode())
    wanted = ListObjects(ObjectRange(bucket, *names, limit))
    found = await call.services.objects.perform(caller, wanted)
    rows = [
        (each.key, each.size, each.modifiedMs, each.etag, each.storageClass)
        for each in found.objects
    ]
    return ObjectPage(found.prefixes, rows, found.last)


async def listVersions(call: ConsoleCall, query: VersionsQuery) -> VersionPage:
    """List a page of versions and common prefixes."""
    limit = checkLimit(query.limit)
    bucket = call.params["bucket"]
    caller = call.caller("ListObjectVersions", "list", bucket, prefix=query.prefix)
    names = (query.prefix.encode(), query.delimiter.encode(), query.after.encode())
    wanted = ListObjectVersions(VersionRange(bucket, *names, limit, query.versionAfter))
    found = await call.services.objects.perform(caller, wanted)
    items = [
        VersionView(
            each.key,
            each.versionId,
            each.size,
            each.modifiedMs,
            each.etag,
            bool(each.isDeleteMarker),
            bool(each.isLatest),
        )
        for each in found.versions
    ]
    return VersionPage(found.prefixes, items, found.last, found.lastVersion)


async def showObject(call: ConsoleCall, query: VersionQuery) -> ObjectView | Any:
    """Describe an object, or respond with its content."""
    bucket, key = call.params["bucket"], call.key
    if query.bytes is not None:
        await sendObject(call, bucket, key, query.versionId)
        return ANSWERED
    caller = call.caller("GetObject", "read", bucket, key)
    found, record = await call.services.objects.object(caller, bucket, key, query.versionId)
    return await _view(call, caller, found, record, query.versionId)


async def putObject(call: ConsoleCall) -> ObjectView:
    """Store the body as an object."""
    bucket, key = call.params["bucket"], call.key
    objects, store, request = call.services.objects, call.services.store, call.request
    caller = call.caller("PutObject", "write", bucket, key)
    sent = request.raw.headers
    condition = writeCondition(sent)
    length = request.contentLength
    found, owner = await objects.checkWrite(caller, bucket, key, condition, length)
    attributes = uploadAttributes(sent)
    objectKey = await objects.keyForWrite(found, key)
    ingested = await receive(call, DEFAULT_ALGORITHM, store.inlineLimit, objectKey)
    record = await objects.putObject(owner, bucket, key, ingested, attributes, condition)
    return await _view(call, caller, found, record, None)


async def changeObject(call: ConsoleCall, query: VersionQuery, body: ObjectChanges) -> ObjectView:
    """Copy an object to its own name, with another type or metadata."""
    bucket, key = call.params["bucket"], call.key
    objects = call.services.objects
    reader = call.caller("GetObject", "read", bucket, key)
    writer = copierOf(call.caller("PutObject", "write", bucket, key), bucket, key)

    async def copy() -> tuple[Bucket, ObjectRecord]:
        _, source = await objects.object(reader, bucket, key, query.versionId)
        encryption = await keptEncryption(objects, writer, bucket, source)
        found = await objects.bucket(writer, bucket, key)
        changed = _changed(source.attributes, body)
        wanted = CopyObject(
            bucket,
            key,
            source,
            query.versionId,
            changed,
            encryption=encryption,
            overwrites=query.versionId is not None or changed != source.attributes,
        )
        return found, await objects.perform(writer, wanted)

    found, record = await retryCopy(copy)
    return await _view(call, reader, found, record, None)


async def copyObject(call: ConsoleCall, query: VersionQuery, body: CopyTarget) -> ObjectView:
    """
    Copy an object to another name, or move it there.

    A move deletes the source only if it has not been written since it was copied. An older version
    cannot be moved.
    """
    bucket, key = call.params["bucket"], call.key
    toBucket, toKey = body.toBucket or bucket, readKey(body.toKey)
    call.note(toBucket=toBucket, toKey=body.toKey, move=body.move)
    objects = call.services.objects
    reader = call.caller("GetObject", "read", bucket, key)
    writer = copierOf(call.caller("PutObject", "write", toBucket, toKey), bucket, key)
    remover = call.caller("DeleteObject", "write", bucket, key) if body.move else None
    condition = WriteCondition(absent=True)

    async def copy() -> tuple[Bucket, ObjectRecord, ObjectRecord]:
        _, source = await objects.object(reader, bucket, key, query.versionId)
        if body.move and query.versionId is not None:
            _, current = await objects.object(reader, bucket, key)
            if current.sequence != source.sequence:
                raise codedError("INVALID_ARGUMENT", "Only the current version can be moved")
        encryption = await keptEncryption(objects, writer, toBucket, source)
        found = await objects.bucket(writer, toBucket, toKey)
        wanted = CopyObject(
            toBucket,
            toKey,
            source,
            query.versionId,
            condition=condition,
            encryption=encryption,
        )
        return found, await objects.perform(writer, wanted), source

    with namingTaken(body.toKey):
        found, record, source = await retryCopy(copy)
    if remover is not None:
        await removeSource(objects, remover, source)
    return await _view(call, writer, found, record, None)


@contextmanager
def namingTaken(key: str) -> Iterator[None]:
    """
    Name the target of a copy that must not exist, if it does.

    @raise ServiceError: C{ALREADY_EXISTS}.
    """
    try:
        yield
    except (DomainError, StoreError) as error:
        if not isinstance(asDomainError(error), ConditionFailed):
            raise
        raise codedError("ALREADY_EXISTS", f"{key} already exists") from error


async def deleteObject(call: ConsoleCall, query: DeleteQuery) -> Deleted:
    """Delete an object, or permanently delete a version; a missing object counts as deleted."""
    bucket, key = call.params["bucket"], call.key
    caller = call.caller("DeleteObject", "write", bucket, key)
    wanted = DeleteObject(bucket, key, query.versionId, WriteCondition(bypass=query.bypass))
    call.note(versionId=query.versionId)
    removal = await call.services.objects.perform(caller, wanted)
    return Deleted(removal.versionId or query.versionId, removal.isDeleteMarker)


async def deleteMany(call: ConsoleCall, body: Deletions) -> DeletionsDone:
    """Delete those objects that the caller may delete, in one transaction."""
    bucket = call.params["bucket"]
    if not 1 <= len(body.items) <= MOST:
        raise codedError("INVALID_ARGUMENT", f"items must have 1 to {MOST} entries")
    call.note(objects=len(body.items))
    refused = []
    markers = []
    allowed: list[Named] = []
    for each in body.items:
        try:
            call.caller("DeleteObject", "write", bucket, readKey(each.key))
            allowed.append(each)
        except (DomainError, ServiceError) as error:
            refused.append(Refused(each.key, each.versionId, error.code))
    if allowed:
        caller = call.caller("DeleteObject", "write", bucket, allowed[0].key.encode())
        condition = WriteCondition(bypass=body.bypass)
        entries = [DeleteEntry(each.key.encode(), each.versionId, condition) for each in allowed]
        results = await call.services.objects.perform(caller, DeleteObjects(bucket, entries))
        for each, result in zip(allowed, results, strict=True):
            if isinstance(result, DomainError | StoreError):
                code = asDomainError(result).code
                refused.append(Refused(each.key, each.versionId, code))
            elif isinstance(result, Exception):
                raise result
            elif result.isDeleteMarker and each.versionId is None:
                markers.append(Named(key=each.key, versionId=result.versionId))
    return DeletionsDone(len(body.items) - len(refused), refused, markers)


async def showObjectSetting(call: ConsoleCall, query: SettingQuery) -> Any:
    """Read tags, retention or legal hold as the JSON form of its document."""
    return await readSetting(call, _target(call, query), call.params["name"])


async def putObjectSetting(call: ConsoleCall, query: SettingQuery, body: Any) -> None:
    """Store tags, retention or legal hold, with the checks of S3."""
    await storeSetting(call, _target(call, query), call.params["name"], body)


async def deleteObjectSetting(call: ConsoleCall, query: SettingQuery) -> None:
    """Remove the tags."""
    await removeSetting(call, _target(call, query), call.params["name"])


def _target(call: ConsoleCall, query: SettingQuery) -> Target:
    call.note(versionId=query.versionId)
    return Target(call.params["bucket"], call.key, query.versionId, query.bypass)


async def checkStill(call: ConsoleCall) -> None:
    """
    Check that the key and the session of the caller are still valid.

    @raise ServiceError: C{UNAUTHENTICATED}.
    @raise StoreError: The session cannot be looked up, so its rights are unknown.
    """
    key = call.services.accounts.renew(call.who.key)
    session = call.who.session
    isValid = key is not None and key.secretKey == call.who.key.secretKey
    if isValid and session is not None:
        sessions = call.services.kept["console"].sessions
        isValid = await sessions.exists(session.id)
    if not isValid:
        raise codedError("UNAUTHENTICATED", "The session has ended")


async def receive(
    call: ConsoleCall, algorithm: str, inlineLimit: int, objectKey: "ObjectKey | None"
) -> IngestedBody:
    """
    Read, verify and store the body of a request.

    @param algorithm: The checksum algorithm, if the request names none.
    @param objectKey: Seals the body; L{None} stores it as it is.
    @raise DomainError: The body does not match its headers.
    """
    sent, store = call.request.raw.headers, call.services.store
    expectation = uploadExpectation(sent, call.request.contentLength, algorithm)
    body, bucket = call.request.raw.body, call.params["bucket"]
    if body.complete:
        return await ingest(body, expectation, store.blobs, inlineLimit, bucket, objectKey)

    async def check() -> None:
        # Also covers a stalled client, whose connection stays open for minutes.
        try:
            await checkStill(call)
        except (ServiceError, StoreError) as error:
            body.fail(error)

    watch = LoopingCall(lambda: Deferred.fromCoroutine(check()))
    watch.clock = call.services.reactor
    watching = watch.start(_CHECK_SECONDS, now=False)
    watching.addErrback(lambda failure: _log.failure("a session could not be checked", failure))
    try:
        return await ingest(body, expectation, store.blobs, inlineLimit, bucket, objectKey)
    finally:
        watch.stop()


async def keptEncryption(
    objects: ObjectService, writer: ConsoleCaller, target: str, source: ObjectRecord
) -> RequestedEncryption | None:
    """
    Return the encryption that a copy names. A change, a restoration or a move must not make plain
    bytes of an encrypted object, as a copy without a kind does.

    @param writer: The caller that copies; policies see the encryption that it names.
    @param target: The bucket of the copy; the default of another bucket than the source's wins.
    @return: L{None} for plain bytes, for the default of the bucket, and for a client's key, with
        which the copy fails.
    """
    found = source.attributes.encryption
    if found is None or found.kind == SSE_C:
        return None
    if target != source.bucket:
        home = await objects.find(target)
        configuration = (await objects.settings.find(home)).encryption
        if configuration is not None and configuration.default is not None:
            return None
    writer.named = {**writer.named, **describeEncryption(found)}
    return RequestedEncryption(found.kind, found.keyId, found.context, found.bucketKeyEnabled)


async def removeSource(
    objects: ObjectService, remover: ConsoleCaller, source: ObjectRecord
) -> None:
    """
    Delete an object that was moved, if it is still the same write with the same tags.

    @param source: The object as it was looked up for the copy.
    @raise ConcurrentChange: It has changed, or the settings of its bucket just have.
    """
    # The copy may have changed the settings: an encrypted one adds a key.
    home = await objects.find(source.bucket)
    seen = Expiry(source.sequence, None, source.attributes.tags, home.generation)
    unchanged = WriteCondition(expiry=seen)
    await objects.perform(remover, DeleteObject(home.name, source.key, None, unchanged))


def _changed(before: Attributes, changes: ObjectChanges) -> Attributes:
    """Return the attributes with the changes applied."""
    new = attributesOf(
        "" if changes.contentType is UNSET else changes.contentType,
        {} if changes.metadata is UNSET else changes.metadata,
        {} if changes.headers is UNSET else changes.headers,
    )
    return replace(
        before,
        contentType=before.contentType if changes.contentType is UNSET else new.contentType,
        metadata=before.metadata if changes.metadata is UNSET else new.metadata,
        headers=before.headers if changes.headers is UNSET else new.headers,
    )


async def _view(
    call: ConsoleCall,
    caller: ConsoleCaller,
    bucket: Bucket,
    record: ObjectRecord,
    versionId: str | None,
) -> ObjectView:
    """Describe an object."""
    attributes = withoutDigests(record.attributes)
    sealed = attributes.encryption
    tags: Mapping[str, str] | None = dict(decodeTags(attributes.tags))
    if tags:
        access = await call.services.objects.accessOf(bucket)
        if not access.mayReadTags(caller, bucket, record, versionId):
            tags = None
    return ObjectView(
        key=record.key.decode(),
        size=record.size,
        modifiedMs=record.modifiedMs,
        etag=record.etag,
        account=record.account,
        contentType=readableText(attributes.contentType),
        headers={name: readableText(value) for name, value in attributes.headers.items()},
        metadata={name: readableText(value) for name, value in attributes.metadata.items()},
        storageClass=attributes.storageClass,
        versionId=record.versionId if bucket.versioning else None,
        tags=tags,
        lock=None if attributes.lock is UNLOCKED else attributes.lock,
        encryption=None if sealed is None else EncryptionView(sealed.kind, sealed.keyId),
        checksum=attributes.checksum,
        parts=attributes.parts,
    )
