"""Multipart uploads: creation, parts, completion and abort."""

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from storagegate.storage.embedded.buckets import bucketId, hasKeyOf
from storagegate.storage.embedded.expiry import hasGeneration
from storagegate.storage.embedded.groupcommit import (
    SEGMENT_WEIGHT,
    QueuedMutation,
    Transaction,
    asJSON,
    oneByOne,
)
from storagegate.storage.embedded.objects import evaluate, find, newRow, objectValues, stack
from storagegate.storage.embedded.refcounts import ReferenceBatch, ReferenceDelta, applyDeltas
from storagegate.storage.errors import BucketChanged, ConcurrentChange, InvalidPart, NoSuchUpload
from storagegate.storage.mutations import AbortUpload, CompleteUpload, CreateUpload, PutPart
from storagegate.storage.records import (
    Content,
    MultipartUpload,
    ObjectRecord,
    Segment,
)
from storagegate.storage.rows import readSegments, segmentsText
from storagegate.storage.versionids import VersionIds

_UPLOAD = "bucketId = (SELECT id FROM buckets WHERE name = ?) AND key = ? AND uploadId = ?"

_decodeParts = msgspec.json.Decoder(list[tuple[int, str, int, str | None]]).decode


class UploadName(Struct, frozen=True):
    """The name of an upload."""

    bucket: str
    key: bytes
    uploadId: str


def creation(ids: VersionIds, change: CreateUpload) -> QueuedMutation:
    """
    Prepare L{createUpload}.

    @raise UnicodeDecodeError: The key is not UTF-8.
    """
    change.upload.key.decode()
    return QueuedMutation(createUpload, change.upload)


def completion(ids: VersionIds, change: CompleteUpload) -> QueuedMutation:
    """Prepare L{completeUpload}."""
    name = (change.record.bucket, change.record.key)
    weight = SEGMENT_WEIGHT * len(change.parts)
    return QueuedMutation(completeUpload, (change, ids.make), weight=weight, names=(name,))


@oneByOne
def createUpload(transaction: Transaction, upload: MultipartUpload) -> None:
    """
    Create an upload.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketChanged: See L{CreateUpload}.
    """
    number = bucketId(transaction.connection, upload.bucket)
    if not hasKeyOf(transaction, number, upload.attributes):
        raise BucketChanged
    transaction.count(number, 0, 0, uploads=1)
    transaction.execute(
        "INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            upload.key,
            upload.uploadId,
            upload.account,
            upload.startedMs,
            upload.checksumAlgorithm,
            upload.checksumKind,
            asJSON(upload.attributes),
        ),
    )


@oneByOne
def putPart(transaction: Transaction, put: PutPart) -> None:
    """
    Store a part, replacing a part of the same number.

    @param put: The part, whose content is in blobs, never inline.
    @raise NoSuchUpload: The upload does not exist.
    @raise ConcurrentChange: A blob of the part is being removed.
    """
    number = _bucketOf(transaction, UploadName(put.bucket, put.key, put.uploadId))
    part, primaryKey = put.part, (put.uploadId, put.part.number)
    delta = ReferenceDelta(part.content.segments, put.newBlobs)
    if not ReferenceBatch(transaction, [delta]).allows(delta):
        raise ConcurrentChange
    replaced = transaction.connection.execute(
        "DELETE FROM parts WHERE uploadId = ? AND number = ? RETURNING segments, size", primaryKey
    ).fetchall()
    [(segments, size)] = replaced or [(None, 0)]
    applyDeltas(transaction, [delta], readSegments(segments))
    transaction.count(number, 0, 0, uploadBytes=part.size - size)
    transaction.execute(
        "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *primaryKey,
            part.size,
            part.etag,
            part.modifiedMs,
            None if part.checksum is None else asJSON(part.checksum),
            segmentsText(part.content),
        ),
    )


@oneByOne
def completeUpload(
    transaction: Transaction, argument: tuple[CompleteUpload, Callable[[int], str]]
) -> ObjectRecord:
    """
    Assemble the listed parts into an object and end the upload.

    @param argument: The completion, whose record gets the parts' segments as its content, and a
        function that returns the version id for a write number.
    @raise NoSuchUpload: The upload does not exist.
    @raise InvalidPart: A part does not exist, or its ETag differs.
    @raise StoreError: The result of L{evaluate} for the condition.
    """
    completion, makeId = argument
    record = completion.record
    upload = UploadName(record.bucket, record.key, completion.uploadId)
    number = _bucketOf(transaction, upload)
    stored = _stored(transaction, upload.uploadId)
    content = _assemble(stored, completion.parts)
    name = (record.bucket, record.key)
    (current,) = find(transaction, [name])
    refusal = evaluate(current, completion.condition)
    if refusal is not None:
        raise refusal
    attributes = replace(record.attributes, uploadId=upload.uploadId)
    record = replace(record, size=content.size, content=content, attributes=attributes)
    row = newRow(transaction, current, record, objectValues(record), makeId)
    released = stack(transaction, [row]) + _segmentsOf(stored)
    applyDeltas(transaction, [ReferenceDelta(content.segments, {})], released)
    _drop(transaction, upload, number, stored)
    return row.record


@oneByOne
def abortUpload(transaction: Transaction, abort: AbortUpload) -> None:
    """
    End an upload and drop its parts.

    @raise NoSuchUpload: The upload does not exist.
    @raise ConcurrentChange: The bucket's settings have changed.
    """
    upload = UploadName(abort.bucket, abort.key, abort.uploadId)
    number = _bucketOf(transaction, upload)
    if abort.generation is not None and not hasGeneration(transaction, number, abort.generation):
        raise ConcurrentChange
    stored = _stored(transaction, upload.uploadId)
    applyDeltas(transaction, [], _segmentsOf(stored))
    _drop(transaction, upload, number, stored)


def _bucketOf(transaction: Transaction, upload: UploadName) -> int:
    """
    Return the number of the bucket of an upload.

    @raise NoSuchUpload: The upload does not exist.
    """
    number: int | None = transaction.value(
        f"SELECT bucketId FROM uploads WHERE {_UPLOAD}",
        (upload.bucket, upload.key, upload.uploadId),
    )
    if number is None:
        raise NoSuchUpload
    return number


_Stored = Mapping[int, tuple[str, int, str | None]]
"""Parts by number: ETag, size, segments."""


def _drop(transaction: Transaction, upload: UploadName, bucketId: int, stored: _Stored) -> None:
    transaction.count(
        bucketId, 0, 0, uploads=-1, uploadBytes=-sum(size for _, size, _ in stored.values())
    )
    transaction.execute("DELETE FROM parts WHERE uploadId = ?", (upload.uploadId,))
    transaction.execute(
        f"DELETE FROM uploads WHERE {_UPLOAD}", (upload.bucket, upload.key, upload.uploadId)
    )


def _stored(transaction: Transaction, uploadId: str) -> _Stored:
    rows = _decodeParts(
        transaction.value(
            "SELECT json_group_array(json_array(number, etag, size, segments))"
            " FROM parts WHERE uploadId = ?",
            (uploadId,),
        )
    )
    return {number: (etag, size, segments) for number, etag, size, segments in rows}


def _segmentsOf(stored: _Stored) -> list[Segment]:
    return [each for _, _, segments in stored.values() for each in readSegments(segments)]


def _assemble(stored: _Stored, named: Iterable[tuple[int, str]]) -> Content:
    total = 0
    segments: list[Segment] = []
    for number, wanted in named:
        etag, size, text = stored.get(number, (None, 0, None))
        if etag != wanted:
            raise InvalidPart(number)
        total += size
        segments += readSegments(text)
    return Content(total, None, tuple(segments))
