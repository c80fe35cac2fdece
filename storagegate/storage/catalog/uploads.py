"""Multipart uploads: created, filled, completed, aborted."""

from collections.abc import Iterable, Mapping

import msgspec
from attrs import evolve, frozen

from storagegate.storage.catalog.buckets import bucketId
from storagegate.storage.catalog.objects import (
    Row,
    attributesText,
    evaluate,
    find,
    insert,
    objectValues,
    readSegments,
    remove,
    segmentsText,
)
from storagegate.storage.catalog.refcounts import ReferenceBatch, ReferenceDelta, applyDeltas
from storagegate.storage.catalog.writer import Transaction, asJSON, oneByOne
from storagegate.storage.errors import ConcurrentChange, InvalidPart, NoSuchUpload
from storagegate.storage.records import (
    Content,
    MultipartUpload,
    ObjectRecord,
    Part,
    Segment,
    WriteCondition,
)

_UPLOAD = "bucketId = (SELECT id FROM buckets WHERE name = ?) AND key = ? AND uploadId = ?"

_decodeParts = msgspec.json.Decoder(list[tuple[int, str, int, str | None]]).decode


@frozen
class UploadName:
    """The name of an upload."""

    bucket: str
    key: bytes
    uploadId: str


@frozen(eq=False)
class PartPut:
    """A part to be stored."""

    upload: UploadName
    part: Part
    newBlobs: Mapping[str, int]


@frozen(eq=False)
class Completion:
    """An upload to be made an object of: the record to be, and part numbers with ETags."""

    uploadId: str
    record: ObjectRecord
    parts: tuple[tuple[int, str], ...]
    condition: WriteCondition


@oneByOne
def createUpload(transaction: Transaction, upload: MultipartUpload) -> None:
    """
    Begin an upload.

    @raise NoSuchBucket: The bucket is not there.
    """
    transaction.execute(
        "INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            bucketId(transaction.connection, upload.bucket),
            upload.key,
            upload.uploadId,
            upload.account,
            upload.startedMs,
            upload.checksumAlgorithm,
            upload.checksumKind,
            attributesText(upload.attributes),
        ),
    )


@oneByOne
def putPart(transaction: Transaction, put: PartPut) -> None:
    """
    Store a part in place of one of the same number.

    @param put: Its content is blobs, never inline bytes.
    @raise NoSuchUpload: The upload is not there.
    @raise ConcurrentChange: A blob that it names is being removed.
    """
    _checkExists(transaction, put.upload)
    part, primaryKey = put.part, (put.upload.uploadId, put.part.number)
    delta = ReferenceDelta(part.content.segments, put.newBlobs)
    if not ReferenceBatch(transaction, [delta]).allows(delta):
        raise ConcurrentChange
    replaced = transaction.value(
        "DELETE FROM parts WHERE uploadId = ? AND number = ? RETURNING segments", primaryKey
    )
    applyDeltas(transaction, [delta], readSegments(replaced))
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
def completeUpload(transaction: Transaction, completion: Completion) -> ObjectRecord:
    """
    Make an object of the named parts and end the upload.

    @param completion: The content of its record is replaced by the parts' segments.
    @raise NoSuchUpload: The upload is not there.
    @raise InvalidPart: A part is not there or has another ETag.
    @raise StoreError: The result of L{evaluate} for the condition.
    """
    record = completion.record
    upload = UploadName(record.bucket, record.key, completion.uploadId)
    _checkExists(transaction, upload)
    stored = _stored(transaction, upload.uploadId)
    content = _assemble(stored, completion.parts)
    name = (record.bucket, record.key)
    (current,) = find(transaction, [name])
    refusal = evaluate(current, completion.condition)
    if refusal is not None:
        raise refusal
    record = evolve(record, size=content.size, content=content, sequence=transaction.takeSequence())
    replaced = [(name, current)] if current.sequence is not None else []
    released = remove(transaction, replaced) + _segmentsOf(stored)
    applyDeltas(transaction, [ReferenceDelta(content.segments, {})], released)
    _drop(transaction, upload)
    insert(transaction, [Row(current.bucketId, record, objectValues(record))])
    return record


@oneByOne
def abortUpload(transaction: Transaction, upload: UploadName) -> None:
    """
    End an upload and drop its parts.

    @raise NoSuchUpload: The upload is not there.
    """
    _checkExists(transaction, upload)
    applyDeltas(transaction, [], _segmentsOf(_stored(transaction, upload.uploadId)))
    _drop(transaction, upload)


def _checkExists(transaction: Transaction, upload: UploadName) -> None:
    if not transaction.value(
        f"SELECT 1 FROM uploads WHERE {_UPLOAD}", (upload.bucket, upload.key, upload.uploadId)
    ):
        raise NoSuchUpload


def _drop(transaction: Transaction, upload: UploadName) -> None:
    transaction.execute("DELETE FROM parts WHERE uploadId = ?", (upload.uploadId,))
    transaction.execute(
        f"DELETE FROM uploads WHERE {_UPLOAD}", (upload.bucket, upload.key, upload.uploadId)
    )


def _stored(transaction: Transaction, uploadId: str) -> dict[int, tuple[str, int, str | None]]:
    rows = _decodeParts(
        transaction.value(
            "SELECT json_group_array(json_array(number, etag, size, segments))"
            " FROM parts WHERE uploadId = ?",
            (uploadId,),
        )
    )
    return {number: (etag, size, segments) for number, etag, size, segments in rows}


def _segmentsOf(stored: Mapping[int, tuple[str, int, str | None]]) -> list[Segment]:
    return [each for _, _, segments in stored.values() for each in readSegments(segments)]


def _assemble(
    stored: Mapping[int, tuple[str, int, str | None]], named: Iterable[tuple[int, str]]
) -> Content:
    total = 0
    segments: list[Segment] = []
    for number, wanted in named:
        etag, size, text = stored.get(number, (None, 0, None))
        if etag != wanted:
            raise InvalidPart(number)
        total += size
        segments += readSegments(text)
    return Content(total, None, tuple(segments))
