"""
The mutations of the catalog: the statement, the parameters and the decoding of the result of each.
The functions of the schema check and apply them; see
L{storagegate.storage.cluster.functions}.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple as structTuple
from msgspec.structs import replace

from storagegate.core.files import crcFunction
from storagegate.storage.cluster.connection import Rows, Step
from storagegate.storage.cluster.lookups import keyDocument, keyDocuments, readBucket
from storagegate.storage.cluster.statements import STATUSES
from storagegate.storage.cluster.values import (
    FALSE,
    TRUE,
    Value,
    boolean,
    byteaArray,
    int4,
    int4Array,
    int8,
    int8Array,
    integer,
    isText,
    optional,
    textArray,
)
from storagegate.storage.cluster.writer import PendingMutation
from storagegate.storage.errors import (
    BucketExists,
    ConcurrentChange,
    InvalidPart,
    NoSuchBucket,
    NoSuchUpload,
)
from storagegate.storage.mutations import (
    AbortUpload,
    AddAccessKey,
    AddBucket,
    ChangeAccessKey,
    ClearCorrupt,
    CompleteUpload,
    CreateUpload,
    ForgetBlobs,
    MarkCorrupt,
    Mutation,
    NoteKeyUses,
    PutAcl,
    PutIdentities,
    PutLegalHold,
    PutObject,
    PutPart,
    PutProgress,
    PutRetention,
    PutSettings,
    PutTags,
    RemoveAccessKey,
    RemoveBucket,
    RemoveObjects,
    SetObjectLock,
    SetVersioning,
)
from storagegate.storage.records import (
    NULL_VERSION,
    UNLOCKED,
    Content,
    ObjectRecord,
    Removal,
    Segment,
    WriteCondition,
)
from storagegate.storage.rows import readAttributes, segmentsText
from storagegate.storage.versionids import VersionIds

# Bytes of a segment and its part summary in a row.
_SEGMENT_WEIGHT = 200

# The bucket and the keys of mutations that concern no bucket.
_STORE = ""
_KEYS = b"keys"
_BLOBS = b"blobs"
_TASKS = b"tasks"
_WATCHES = b"watches"

_decodeSegments = msgspec.json.Decoder(tuple[tuple[str, int, int], ...]).decode

VersionName = tuple[Value, Value, Value, Value]
"""
The parameters that name a version or the current object: bucket, key, whether a version is named,
and its sequence.
"""


def versionName(ids: VersionIds, bucket: str, key: bytes, versionId: str | None) -> VersionName:
    """
    Return the parameters that name a version.

    @param ids: The store's version ids.
    @param versionId: L{None} for the current object.
    """
    sequence = None if versionId is None else ids.read(versionId)
    return _bucket(bucket), key, boolean(versionId is not None), optional(int8, sequence)


def createBucket(ids: VersionIds, change: AddBucket) -> PendingMutation:
    """Create a bucket."""

    def read(results: Sequence[Rows]) -> None:
        existing = results[0].get_value(0, 0)
        if existing is not None:
            raise BucketExists(readBucket(existing)[0])

    name, account, createdMs, region, ownership, versioning, locks, number = structTuple(
        change.created
    )
    values = (
        _bucket(name),
        account.encode(),
        int8(createdMs),
        region.encode(),
        ownership.encode(),
        versioning.encode(),
        boolean(locks),
        int8(number),
    )
    return _ofBucket(name, (b"createbucket", values), read)


def placeBucket(name: str) -> PendingMutation:
    """
    Choose the shard of a new bucket, unless its name already has one; the outcome is its number.
    """

    def read(results: Sequence[Rows]) -> int:
        return integer(results[0].get_value(0, 0))

    return _ofBucket(name, (b"placebucket", (_bucket(name),)), read)


def deleteBucket(ids: VersionIds, change: RemoveBucket) -> PendingMutation:
    """Remove an empty bucket."""
    return _ofBucket(change.bucket, (b"deletebucket", (_bucket(change.bucket),)))


def setVersioning(ids: VersionIds, change: SetVersioning) -> PendingMutation:
    """Enable or suspend the versioning of a bucket."""
    return _ofBucket(
        change.bucket, (b"setversioning", (_bucket(change.bucket), change.versioning.encode()))
    )


def setObjectLock(ids: VersionIds, change: SetObjectLock) -> PendingMutation:
    """Enable object lock on a bucket and set its default retention."""
    document = None if change.default is None else msgspec.json.encode(change.default)
    return _ofBucket(change.bucket, (b"setobjectlock", (_bucket(change.bucket), document)))


def putSettings(ids: VersionIds, change: PutSettings) -> PendingMutation:
    """Store and remove settings of a bucket; the outcome is their new generation."""

    def read(results: Sequence[Rows]) -> int:
        _checked(results)
        return integer(results[0].get_value(0, 1))

    documents = change.documents
    values = (
        _bucket(change.bucket),
        textArray(list(documents)),
        byteaArray(list(documents.values())),
    )
    if not change.expected:
        return _ofBucket(change.bucket, (b"putsettings", values), read)
    expected = change.expected
    compared = textArray(list(expected)), byteaArray(list(expected.values()))
    return _ofBucket(change.bucket, (b"changesettings", (*values, *compared)), read)


def putObject(ids: VersionIds, change: PutObject) -> PendingMutation:
    """
    Store an object; the outcome is its record.

    @param ids: The store's version ids.
    @raise UnicodeDecodeError: The key is not UTF-8.
    """
    record, condition = change.record, change.condition
    record.key.decode()
    content = record.content
    created, copied = _references(content.segments, change.newBlobs)
    values = (
        *_recordValues(record, condition),
        created,
        textArray(copied) if copied else None,
        optional(int8, condition.revision),
    )
    return PendingMutation(
        record.bucket,
        ((record.key, (b"put", values)),),
        partial(_stored, ids, record),
        blobs=copied,
        weight=len(content.inline or b"") + _SEGMENT_WEIGHT * len(content.segments),
    )


def deleteObjects(ids: VersionIds, change: RemoveObjects) -> PendingMutation:
    """
    Remove objects and versions; the outcome has a result for each.

    @param ids: The store's version ids.
    """
    bucket, entries = change.bucket, change.entries
    name, writer, at = _bucket(bucket), change.account.encode(), int8(change.atMs)
    steps: list[tuple[bytes, Step]] = []
    for key, version, condition in entries:
        sequence = None if version is None else ids.read(version)
        values = (
            name,
            key,
            boolean(version is not None),
            optional(int8, sequence),
            *_conditionValues(condition),
            optional(int8, condition.size),
            optional(int8, condition.modifiedSeconds),
            writer,
            at,
            *_removalValues(condition),
        )
        steps.append((key, (b"remove", values)))
    if not steps:
        return PendingMutation(bucket, ((b"", (b"hasbucket", (name,))),), _removedNothing)

    def read(results: Sequence[Rows]) -> list[Removal | Exception]:
        return [
            _removed(ids, bucket, key, rows)
            for (key, _, _), rows in zip(entries, results, strict=True)
        ]

    return PendingMutation(bucket, steps, read)


def putTags(ids: VersionIds, change: PutTags) -> PendingMutation:
    """Replace the tags of a version, or of the current object if it is the one that was seen."""
    if change.seen is not None:
        sequence, before = change.seen
        values = (
            _bucket(change.bucket),
            change.key,
            int8(sequence),
            before.encode(),
            change.tags.encode() or None,
        )
        step = (change.key, (b"puttagsofseen", values))
        return PendingMutation(change.bucket, (step,), _unchanged)
    name = versionName(ids, change.bucket, change.key, change.versionId)
    return _ofVersion(b"puttags", name, change.tags.encode() or None)


def putAcl(ids: VersionIds, change: PutAcl) -> PendingMutation:
    """Replace the access control list of a version, given by write number."""
    name = (_bucket(change.bucket), change.key, TRUE, int8(change.sequence))
    return _ofVersion(b"putacl", name, change.acl.encode() or None)


def putRetention(ids: VersionIds, change: PutRetention) -> PendingMutation:
    """Change the retention of a version."""
    name = versionName(ids, change.bucket, change.key, change.versionId)
    until = int8(change.untilMs) if change.mode else None
    values = (change.mode.encode() or None, until, int8(change.atMs), boolean(change.bypass))
    return _ofVersion(b"putretention", name, *values)


def putLegalHold(ids: VersionIds, change: PutLegalHold) -> PendingMutation:
    """Place or release the legal hold of a version."""
    name = versionName(ids, change.bucket, change.key, change.versionId)
    return _ofVersion(b"putlegalhold", name, boolean(change.isOn))


def createUpload(ids: VersionIds, change: CreateUpload) -> PendingMutation:
    """Create a multipart upload."""
    upload = change.upload
    upload.key.decode()
    values = (
        _bucket(upload.bucket),
        upload.key,
        upload.uploadId.encode(),
        upload.account.encode(),
        int8(upload.startedMs),
        upload.checksumAlgorithm.encode(),
        upload.checksumKind.encode(),
        msgspec.json.encode(upload.attributes),
    )
    return PendingMutation(upload.bucket, ((upload.key, (b"createupload", values)),), _checked)


def putPart(ids: VersionIds, change: PutPart) -> PendingMutation:
    """Store a part."""
    part, uploadId = change.part, change.uploadId
    content, checksum = part.content, part.checksum
    created, copied = _references(content.segments, change.newBlobs)
    values = (
        *_uploadName(change.bucket, change.key, uploadId),
        int4(part.number),
        int8(part.size),
        part.etag.encode(),
        int8(part.modifiedMs),
        None if checksum is None else msgspec.json.encode(checksum),
        _text(segmentsText(content)),
        created,
        textArray(copied) if copied else None,
    )
    step = (b"putpart", values)
    return PendingMutation(
        change.bucket, ((change.key, step),), _checked, uploads=(uploadId,), blobs=copied
    )


def completeUpload(ids: VersionIds, change: CompleteUpload) -> PendingMutation:
    """
    Assemble an upload into an object; the outcome is its record.

    @param ids: The store's version ids.
    @raise InvalidPart: A part is listed twice.
    """
    record, uploadId, parts = change.record, change.uploadId, change.parts
    if len({number for number, _ in parts}) != len(parts):
        raise InvalidPart("a part occurs twice")
    attributes = replace(record.attributes, uploadId=uploadId)
    record = replace(record, attributes=attributes, content=Content(0))
    _, _, upload = _uploadName(record.bucket, record.key, uploadId)
    values = (
        upload,
        int4Array([number for number, _ in parts]),
        textArray([etag for _, etag in parts]),
        *_recordValues(record, change.condition),
    )
    return PendingMutation(
        record.bucket,
        ((record.key, (b"completeupload", values)),),
        partial(_completed, ids, record),
        uploads=(uploadId,),
        weight=_SEGMENT_WEIGHT * len(parts),
    )


def abortUpload(ids: VersionIds, change: AbortUpload) -> PendingMutation:
    """End an upload."""
    name = _uploadName(change.bucket, change.key, change.uploadId)
    step = (b"abortupload", (*name, optional(int8, change.generation)))
    return PendingMutation(
        change.bucket, ((change.key, step),), _checked, uploads=(change.uploadId,)
    )


def putProgress(ids: VersionIds, change: PutProgress) -> PendingMutation:
    """Store the progress of a background task."""
    return PendingMutation(
        _STORE, ((_TASKS, (b"putprogress", (change.task.encode(), change.document))),), _nothing
    )


def addAccessKey(ids: VersionIds, change: AddAccessKey) -> PendingMutation:
    """Issue a key."""
    return PendingMutation(
        _STORE, ((_KEYS, (b"addaccesskey", (keyDocument(change.key),))),), _checked
    )


def changeAccessKey(ids: VersionIds, change: ChangeAccessKey) -> PendingMutation:
    """Replace a key; the outcome is whether it existed."""
    step = (b"changeaccesskey", (keyDocument(change.key),))
    return PendingMutation(_STORE, ((_KEYS, step),), _wasFound)


def putIdentities(ids: VersionIds, change: PutIdentities) -> PendingMutation:
    """Store documents and keys of an account; the outcome is its new revision."""

    def read(results: Sequence[Rows]) -> int:
        _checked(results)
        return integer(results[0].get_value(0, 1))

    values = (
        change.account.encode(),
        int8(change.revision),
        textArray([kind for kind, _ in change.documents]),
        textArray([name for _, name in change.documents]),
        byteaArray(list(change.documents.values())),
        keyDocuments(change.addedKeys),
        keyDocuments(change.changedKeys),
        textArray(change.removedKeys),
    )
    return PendingMutation(_STORE, ((_KEYS, (b"putidentities", values)),), read)


def noteKeyUses(ids: VersionIds, change: NoteKeyUses) -> PendingMutation:
    """Record when keys were last used."""
    step = (b"notekeyuses", (textArray([*change.uses]), int8Array([*change.uses.values()])))
    return PendingMutation(_STORE, ((_KEYS, step),), _nothing)


def removeAccessKey(ids: VersionIds, change: RemoveAccessKey) -> PendingMutation:
    """Revoke a key; the outcome is whether it existed."""
    step = (b"removeaccesskey", (change.accessKey.encode(),))
    return PendingMutation(_STORE, ((_KEYS, step),), _wasFound)


def forgetBlobs(ids: VersionIds, change: ForgetBlobs) -> PendingMutation:
    """Remove the rows of blobs whose bytes are gone."""
    step = (b"forgetblobs", (textArray(change.ids),))
    return PendingMutation(_STORE, ((_BLOBS, step),), _nothing, blobs=change.ids)


def markCorrupt(ids: VersionIds, change: MarkCorrupt) -> PendingMutation:
    """Record that a blob is corrupt."""
    step = (b"markcorrupt", (textArray([change.blob]),))
    return PendingMutation(_STORE, ((_BLOBS, step),), _nothing, blobs=(change.blob,))


def clearCorrupt(ids: VersionIds, change: ClearCorrupt) -> PendingMutation:
    """Record that a blob is intact again, and notify the other nodes."""
    step = (b"clearcorrupt", (textArray([change.blob]),))
    return PendingMutation(_STORE, ((_BLOBS, step),), _nothing, blobs=(change.blob,))


def startWatch(bucket: str, lease: int) -> PendingMutation:
    """
    Start recording the changes of a bucket; the outcome is the current snapshot.

    @param lease: The lease of the watching node.
    """

    def read(results: Sequence[Rows]) -> str:
        _checked(results)
        position: bytes = results[0].get_value(0, 1)
        return position.decode()

    return _ofBucket(bucket, (b"startwatch", (_bucket(bucket), int8(lease))), read)


def stopWatch(bucket: str, lease: int) -> PendingMutation:
    """
    End L{startWatch}.

    @param lease: The lease of the node.
    """
    step = (b"stopwatch", (_bucket(bucket), int8(lease)))
    return PendingMutation(bucket, ((b"", step),), _nothing)


def moveWatches(before: int, lease: int) -> PendingMutation:
    """
    Transfer the watches of a lease to another lease of the same node; the outcome is whether it had
    any.

    @param before: The former lease.
    @param lease: The current lease.
    """
    step = (b"movewatches", (int8(before), int8(lease)))
    return PendingMutation(_STORE, ((_WATCHES, step),), _wasFound)


def _checked(results: Sequence[Rows]) -> None:
    """Raise the error of a nonzero status."""
    status = integer(results[0].get_value(0, 0))
    if status:
        raise STATUSES[status]()


def _wasFound(results: Sequence[Rows]) -> bool:
    """Return the boolean result."""
    return bool(results[0].get_value(0, 0) == TRUE)


def _unchanged(results: Sequence[Rows]) -> None:
    """Raise an error if no row was changed."""
    if not results[0].ntuples:
        raise ConcurrentChange


def _nothing(results: Sequence[Rows]) -> None:
    """Return L{None}."""


def _ofBucket(
    name: str, step: Step, read: Callable[[Sequence[Rows]], Any] = _checked
) -> PendingMutation:
    return PendingMutation(name, ((b"", step),), read, isAlone=True)


def _ofVersion(statement: bytes, name: VersionName, *values: Value) -> PendingMutation:
    bucket, key, *_ = name
    assert bucket is not None and key is not None
    return PendingMutation(bucket.decode(), ((key, (statement, (*name, *values))),), _checked)


def _stored(ids: VersionIds, record: ObjectRecord, results: Sequence[Rows]) -> ObjectRecord:
    """Return the record as it was stored."""
    _checked(results)
    get = results[0].get_value
    sequence = integer(get(0, 1))
    versionId = ids.make(sequence) if get(0, 2) == TRUE else NULL_VERSION
    mode = get(0, 3)
    lock = record.attributes.lock
    if mode is not None and not lock.mode:
        # The server applied the bucket's default.
        lock = replace(lock, mode=mode.decode(), untilMs=integer(get(0, 4)))
        record = replace(record, attributes=replace(record.attributes, lock=lock))
    return replace(record, sequence=sequence, versionId=versionId)


def _completed(ids: VersionIds, record: ObjectRecord, results: Sequence[Rows]) -> ObjectRecord:
    """Return the record of an upload's object, with its content."""
    stored = _stored(ids, record, results)
    size = integer(results[0].get_value(0, 5))
    segments = results[0].get_value(0, 6)
    found = () if segments is None else _decodeSegments(segments)
    content = Content(size, None, tuple(Segment(*each) for each in found))
    return replace(stored, size=size, content=content)


def _removedNothing(results: Sequence[Rows]) -> list[Removal | Exception]:
    if not results[0].ntuples:
        raise NoSuchBucket
    return []


def _removed(ids: VersionIds, bucket: str, key: bytes, rows: Rows) -> Removal | Exception:
    """
    Return the result of an entry.

    @raise NoSuchBucket: The bucket does not exist, which fails all entries.
    """
    get = rows.get_value
    status = integer(get(0, 0))
    if status:
        refusal = STATUSES[status]()
        if isinstance(refusal, NoSuchBucket):
            raise refusal
        return refusal
    _, found, sequence, numbered, marker, changed, *shown = [get(0, n) for n in range(13)]
    versionId = ""
    if sequence is not None:
        versionId = ids.make(integer(sequence)) if numbered == TRUE else NULL_VERSION
    return Removal(
        found == TRUE,
        versionId,
        marker == TRUE,
        changed == TRUE,
        None if shown[-1] is None else exposed(ids, bucket, key, *shown),
    )


def exposed(ids: VersionIds, bucket: str, key: bytes, *columns: Any) -> ObjectRecord:
    """
    Return the record of the new current version, without its bytes.

    @param ids: The store's version ids.
    @param columns: Size, ETag, time, account, attributes, whether it is numbered, sequence.
    """
    size, etag, modifiedMs, account, attributes, numbered, number = columns
    sequence = integer(number)
    return ObjectRecord(
        bucket,
        key,
        integer(size),
        etag.decode(),
        integer(modifiedMs),
        account.decode(),
        readAttributes(attributes),
        Content(integer(size)),
        ids.make(sequence) if numbered == TRUE else NULL_VERSION,
        sequence,
    )


def _bucket(name: str) -> bytes:
    """
    Return the name of a bucket.

    @raise NoSuchBucket: No bucket can have this name.
    """
    if not isText(name):
        raise NoSuchBucket
    return name.encode()


def _uploadName(bucket: str, key: bytes, uploadId: str) -> tuple[bytes, bytes, bytes]:
    """
    Return the name of an upload.

    @raise NoSuchUpload: No upload can have this id.
    """
    if not isText(uploadId):
        raise NoSuchUpload
    return _bucket(bucket), key, uploadId.encode()


def _text(value: str | None) -> Value:
    return None if value is None else value.encode()


def _conditionValues(condition: WriteCondition) -> tuple[Value, ...]:
    return (
        boolean(condition.absent),
        textArray(condition.etags) if condition.etags else None,
        textArray(condition.unlike) if condition.unlike else None,
    )


def _removalValues(condition: WriteCondition) -> tuple[Value, ...]:
    """Return the parameters of locks and rules."""
    bypass, expiry = boolean(condition.bypass), condition.expiry
    if expiry is None:
        return (bypass, FALSE, None, None, None, None, None, None)
    return (
        bypass,
        TRUE,
        int8(expiry.sequence),
        optional(int8, expiry.noncurrentMs),
        expiry.tags.encode(),
        int8(expiry.generation),
        int4(expiry.newer),
        boolean(expiry.isOnly),
    )


def _recordValues(record: ObjectRecord, condition: WriteCondition) -> tuple[Value, ...]:
    """Return the parameters for storing an object."""
    attributes, inline = record.attributes, record.content.inline
    checksum, lock = attributes.checksum, attributes.lock
    plain = attributes
    # These have separate columns.
    if attributes.tags or attributes.acl or lock is not UNLOCKED:
        plain = replace(attributes, tags="", acl="", lock=UNLOCKED)
    return (
        _bucket(record.bucket),
        record.key,
        int8(record.size),
        record.etag.encode(),
        int8(record.modifiedMs),
        record.account.encode(),
        attributes.storageClass.encode(),
        b"" if checksum is None else checksum.algorithm.encode(),
        b"" if checksum is None else checksum.kind.encode(),
        None if inline is None else int8(crcFunction("crc32c")(inline, 0)),
        msgspec.json.encode(plain),
        _text(segmentsText(record.content)),
        inline,
        attributes.tags.encode() or None,
        attributes.acl.encode() or None,
        lock.mode.encode() or None,
        int8(lock.untilMs) if lock.mode else None,
        None if lock.legalHold is None else boolean(lock.legalHold),
        *_conditionValues(condition),
    )


def _references(
    segments: Sequence[Segment], newBlobs: Mapping[str, int]
) -> tuple[Value, list[str]]:
    """
    Return the rows of new blobs as JSON, and the ids of the other blobs, one per reference.

    @param newBlobs: The new blobs with their CRC-32C.
    """
    if not segments:
        return None, []
    rows: dict[str, list[int]] = {}
    copied: list[str] = []
    for segment in segments:
        blob, end = segment.blob, segment.offset + segment.length
        if blob not in newBlobs:
            copied.append(blob)
        elif blob in rows:
            row = rows[blob]
            row[0], row[2] = max(row[0], end), row[2] + 1
        else:
            rows[blob] = [end, newBlobs[blob], 1]
    created = msgspec.json.encode([(blob, *row) for blob, row in rows.items()]) if rows else None
    return created, copied


M = TypeVar("M", bound=Mutation[Any])
Prepare = Callable[[VersionIds, M], PendingMutation]


def _row(kind: type[M], prepare: Prepare[M]) -> tuple[type[Mutation[Any]], Prepare[Any]]:
    return kind, prepare


MUTATIONS = dict(
    (
        _row(AbortUpload, abortUpload),
        _row(AddAccessKey, addAccessKey),
        _row(ChangeAccessKey, changeAccessKey),
        _row(ClearCorrupt, clearCorrupt),
        _row(CompleteUpload, completeUpload),
        _row(AddBucket, createBucket),
        _row(CreateUpload, createUpload),
        _row(RemoveBucket, deleteBucket),
        _row(RemoveObjects, deleteObjects),
        _row(ForgetBlobs, forgetBlobs),
        _row(MarkCorrupt, markCorrupt),
        _row(NoteKeyUses, noteKeyUses),
        _row(PutAcl, putAcl),
        _row(PutIdentities, putIdentities),
        _row(PutLegalHold, putLegalHold),
        _row(PutObject, putObject),
        _row(PutPart, putPart),
        _row(PutProgress, putProgress),
        _row(PutRetention, putRetention),
        _row(PutSettings, putSettings),
        _row(PutTags, putTags),
        _row(RemoveAccessKey, removeAccessKey),
        _row(SetObjectLock, setObjectLock),
        _row(SetVersioning, setVersioning),
    )
)
"""Prepares each mutation for the writer."""
