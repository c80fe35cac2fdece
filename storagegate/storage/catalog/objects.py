"""
Objects: their rows, and how they are stored, removed and looked up.

They are stored and removed in runs, each condition evaluated after the mutations before it. A run
is a number of successive mutations of different keys. One statement looks all of them up, the
conditions are evaluated here, and one statement writes.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from sqlite3 import Connection
from typing import TypeVar

import msgspec
from attrs import frozen
from msgspec.structs import replace

from storagegate.core.files import crcFunction
from storagegate.storage.catalog.refcounts import ReferenceBatch, ReferenceDelta, applyDeltas
from storagegate.storage.catalog.writer import Transaction, asJSON
from storagegate.storage.errors import (
    ConcurrentChange,
    CorruptObject,
    NoSuchBucket,
    NoSuchKey,
    PreconditionFailed,
    StoreError,
)
from storagegate.storage.records import (
    Attributes,
    Bucket,
    Content,
    InlineCheck,
    InlinePosition,
    ObjectRecord,
    Segment,
    WriteCondition,
)

CHUNK = 64
"""Rows in one statement. Beyond this a statement of its own costs less than it saves."""

Name = tuple[str, bytes]
"""A bucket and a key in it."""


class CurrentRow(msgspec.Struct, frozen=True, array_like=True):
    """
    The row of the current object with a name.

    @ivar bucketId: L{None} without such a bucket; the rest L{None} without such an object.
    """

    bucketId: int | None
    sequence: int | None = None
    etag: str | None = None
    versionId: str | None = None
    segments: str | None = None
    size: int = 0


_decodeRows = msgspec.json.Decoder(list[CurrentRow]).decode


def find(transaction: Transaction, names: Sequence[Name]) -> list[CurrentRow]:
    """Look at most L{CHUNK} names up, in their order."""
    parameters = list(chain.from_iterable(names))
    ((text,),) = transaction.connection.execute(_findSQL(len(names)), parameters).fetchall()
    return _decodeRows(text)


def evaluate(current: CurrentRow, condition: WriteCondition) -> StoreError | None:
    """Return the error with which a write must be refused; L{None} if it may happen."""
    if current.bucketId is None:
        return NoSuchBucket()
    if current.etag is not None and (condition.absent or current.etag in condition.unlike):
        return PreconditionFailed()
    if condition.etags:
        if current.etag is None:
            return NoSuchKey()
        if "*" not in condition.etags and current.etag not in condition.etags:
            return PreconditionFailed()
    return None


@cache
def _findSQL(count: int) -> str:
    names = ", ".join(["(?, ?)"] * count)
    return (
        "SELECT json_group_array(json_array(b.id, o.sequence, o.etag, o.versionId, o.segments,"
        " ifnull(o.size, 0)))"
        f" FROM (VALUES {names}) AS name"
        " LEFT JOIN buckets AS b ON b.name = name.column1"
        " LEFT JOIN objects AS o ON o.bucketId = b.id AND o.key = name.column2"
    )


class Put(msgspec.Struct, frozen=True, eq=False):
    """
    An object to be stored.

    @ivar name: Its bucket and key.
    @ivar values: The columns of its row. They are encoded in the reactor thread, so that the writer
        holds the interpreter for less long.
    """

    record: ObjectRecord
    condition: WriteCondition
    delta: ReferenceDelta
    name: Name
    values: tuple[object, ...]

    @classmethod
    def of(
        cls, record: ObjectRecord, condition: WriteCondition, newBlobs: Mapping[str, int]
    ) -> "Put":
        """
        Encode a record. Reactor thread.

        @param newBlobs: The new ones among its blobs, with their CRC-32C.
        @raise UnicodeDecodeError: The key is not UTF-8: it would make every list of its bucket
            fail.
        """
        record.key.decode()
        delta = ReferenceDelta(record.content.segments, newBlobs)
        return cls(record, condition, delta, (record.bucket, record.key), objectValues(record))


def putObjects(transaction: Transaction, puts: Sequence[Put]) -> list[ObjectRecord | StoreError]:
    """Store objects in place of the current ones."""
    outcomes: list[ObjectRecord | StoreError] = []
    for chunk in _chunks(puts):
        rows = find(transaction, [put.name for put in chunk])
        # Objects with inline bytes that replace such objects have no references to count.
        if any(put.delta.segments for put in chunk):
            references = ReferenceBatch(transaction, [put.delta for put in chunk])
        else:
            references = None
        inserts: list[Row] = []
        deltas: list[ReferenceDelta] = []
        replaced: list[tuple[Name, CurrentRow]] = []
        for put, current in zip(chunk, rows, strict=True):
            refusal = evaluate(current, put.condition)
            if refusal is None and references is not None and not references.allows(put.delta):
                refusal = ConcurrentChange()
            if refusal is not None or current.bucketId is None:
                outcomes.append(refusal or NoSuchBucket())
                continue
            record = replace(put.record, sequence=transaction.takeSequence())
            outcomes.append(record)
            inserts.append(Row(current.bucketId, record, put.values))
            if references is not None:
                deltas.append(put.delta)
                references.add(put.delta, readSegments(current.segments))
            if current.sequence is not None:
                replaced.append((put.name, current))
        released = remove(transaction, replaced)
        if deltas or released:
            applyDeltas(transaction, deltas, released)
        insert(transaction, inserts)
    return outcomes


class Row(msgspec.Struct, frozen=True, eq=False):
    """
    The row of an object that is to be inserted.

    @ivar values: The result of L{objectValues}.
    """

    bucketId: int
    record: ObjectRecord
    values: tuple[object, ...]


def insert(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Insert objects whose names are free; their inline bytes go into a table of their own."""
    for row in rows:
        transaction.count(row.bucketId, 1, row.record.size)
    columns = [(row.bucketId, row.record.key, row.record.sequence, *row.values) for row in rows]
    inline = [
        (row.record.sequence, row.record.content.inline)
        for row in rows
        if row.record.content.inline is not None
    ]
    for table, values in (("objects", columns), ("inline", inline)):
        for start, end in _cuts(len(values)):
            sql = _insertSQL(table, len(values[0]), end - start)
            transaction.connection.execute(sql, list(chain.from_iterable(values[start:end])))


def remove(transaction: Transaction, rows: Sequence[tuple[Name, CurrentRow]]) -> list[Segment]:
    """
    Delete rows that L{find} has found.

    @param rows: Of existing objects, with their names.
    @param transaction: In which the rows were found.
    @return: Their segments, for L{applyDeltas}.
    """
    if not rows:
        return []
    byBucket: dict[int, list[bytes]] = {}
    for (_, key), row in rows:
        assert row.bucketId is not None, "it was found"
        byBucket.setdefault(row.bucketId, []).append(key)
        transaction.count(row.bucketId, -1, -row.size)
    for bucketId, keys in byBucket.items():
        for start, end in _cuts(len(keys)):
            transaction.execute(_deleteSQL(end - start), [bucketId, *keys[start:end]])
    transaction.execute(
        "DELETE FROM inline WHERE sequence IN (SELECT value FROM json_each(?))",
        (asJSON([row.sequence for _, row in rows]),),
    )
    return [segment for _, row in rows if row.segments for segment in readSegments(row.segments)]


@frozen(eq=False)
class Deletion:
    """A request to remove objects of one bucket: key, version id or L{None}, condition."""

    bucket: str
    entries: tuple[tuple[bytes, str | None, WriteCondition], ...]


@frozen(eq=False)
class _Target:
    deletion: int
    name: Name
    versionId: str | None
    condition: WriteCondition


# Looks up the bucket of a request without entries; no version has an empty id.
_NO_ENTRY = ((b"", "", WriteCondition()),)


def deleteObjects(
    transaction: Transaction, deletions: Sequence[Deletion]
) -> list[list[bool | Exception] | StoreError]:
    """Remove objects; the entries of successive requests are looked up together."""
    targets = [
        _Target(number, (deletion.bucket, key), versionId, condition)
        for number, deletion in enumerate(deletions)
        for key, versionId, condition in deletion.entries or _NO_ENTRY
    ]
    results: list[list[bool | Exception]] = [[] for _ in deletions]
    withoutBucket: set[int] = set()
    for chunk in _chunks(targets):
        removed: list[tuple[Name, CurrentRow]] = []
        rows = find(transaction, [target.name for target in chunk])
        for target, current in zip(chunk, rows, strict=True):
            if current.bucketId is None:
                withoutBucket.add(target.deletion)
                continue
            if target.versionId is not None and target.versionId != current.versionId:
                current = CurrentRow(current.bucketId)
            result = evaluate(current, target.condition) or current.etag is not None
            results[target.deletion].append(result)
            if result is True:
                removed.append((target.name, current))
        applyDeltas(transaction, [], remove(transaction, removed))
    return [
        NoSuchBucket() if number in withoutBucket else results[number][: len(deletion.entries)]
        for number, deletion in enumerate(deletions)
    ]


_Named = TypeVar("_Named", Put, _Target)


def _chunks(items: Sequence[_Named]) -> list[Sequence[_Named]]:
    """
    Cut into the lengths of L{_cuts}, and before a name that comes a second time, for that mutation
    must see the result of the first.
    """
    chunks: list[Sequence[_Named]] = []
    begin = 0
    seen: set[Name] = set()
    for index, item in enumerate(items):
        if item.name in seen:
            chunks += [items[begin + start : begin + end] for start, end in _cuts(index - begin)]
            begin, seen = index, set()
        seen.add(item.name)
    rest = _cuts(len(items) - begin)
    return chunks + [items[begin + start : begin + end] for start, end in rest]


@cache
def _cuts(count: int) -> tuple[tuple[int, int], ...]:
    """
    Cut a range into multiples of eight up to L{CHUNK} and a rest, so that few different statements
    are prepared.
    """
    cuts: list[tuple[int, int]] = []
    start = 0
    while start < count:
        end = start + (min(CHUNK, (count - start) // 8 * 8) or count - start)
        cuts.append((start, end))
        start = end
    return tuple(cuts)


@cache
def _deleteSQL(count: int) -> str:
    return f"DELETE FROM objects WHERE bucketId = ? AND key IN ({', '.join('?' * count)})"


@cache
def _insertSQL(table: str, columns: int, count: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * count)}"


_decodeSegments = msgspec.json.Decoder(tuple[tuple[str, int, int], ...]).decode

readAttributes = msgspec.json.Decoder(Attributes).decode
"""Decodes attributes; absent fields have their defaults."""


def segmentsText(content: Content) -> str | None:
    """Encode the segments of a content; L{None} if it has none."""
    if not content.segments:
        return None
    return asJSON([(each.blob, each.offset, each.length) for each in content.segments])


def readSegments(text: str | None) -> tuple[Segment, ...]:
    """Decode the result of L{segmentsText}."""
    return () if text is None else tuple(Segment(*each) for each in _decodeSegments(text))


def objectValues(record: ObjectRecord) -> tuple[object, ...]:
    """
    Return the columns of an object's row from C{versionId} on.

    The storage class and the kind of checksum repeat what the attributes hold, for lists, which
    must not parse the attributes of each row: they may hold ten thousand part summaries.

    @param record: Its C{sequence} is not used: the row's is 0 until it is numbered.
    """
    attributes, content = record.attributes, record.content
    checksum = attributes.checksum
    return (
        record.versionId,
        0,
        record.size,
        record.etag,
        record.modifiedMs,
        record.account,
        attributes.storageClass,
        "" if checksum is None else checksum.algorithm,
        "" if checksum is None else checksum.kind,
        None if content.inline is None else crcFunction("crc32c")(content.inline, 0),
        asJSON(attributes),
        segmentsText(content),
    )


def _isIntact(inline: bytes | None, checksum: int | None) -> bool:
    """Compare the bytes in the catalog with their checksum, if they are there."""
    return checksum is None or (inline is not None and crcFunction("crc32c")(inline, 0) == checksum)


def lookUp(
    connection: Connection, bucket: str, key: bytes, versionId: str | None, verify: bool = False
) -> tuple[Bucket | None, ObjectRecord | None]:
    """See L{ICatalog.object<storagegate.storage.interfaces.ICatalog.object>}. Blocks."""
    rows = connection.execute(
        "SELECT b.account, b.createdMs, b.region, b.ownership, i.bytes, o.storageChecksum, o.size,"
        " o.etag, o.modifiedMs, o.account, o.attributes, o.versionId, o.sequence, o.segments"
        " FROM buckets AS b LEFT JOIN objects AS o ON o.bucketId = b.id AND o.key = ?"
        " LEFT JOIN inline AS i USING (sequence) WHERE b.name = ?",
        (key, bucket),
    ).fetchall()
    if not rows:
        return None, None
    ((account, createdMs, region, ownership, inline, checksum, *columns),) = rows
    found = Bucket(bucket, account, createdMs, region, ownership)
    size, etag, modifiedMs, writer, attributes, version, sequence, segments = columns
    # Without a sequence there is no such object.
    if sequence is None or versionId not in (None, version):
        return found, None
    if verify and not _isIntact(inline, checksum):
        raise CorruptObject(f"object {bucket}/{key!r} is damaged")
    content = Content(size, inline, readSegments(segments))
    return found, ObjectRecord(
        bucket,
        key,
        size,
        etag,
        modifiedMs,
        writer,
        readAttributes(attributes),
        content,
        version,
        sequence,
    )


def checkInline(connection: Connection, start: InlinePosition | None, limit: int) -> InlineCheck:
    """
    Read a page of inline objects and compare their checksums.

    @param start: The position after which the page begins; L{None} begins with the first bucket.
    @param limit: The most objects in the page.
    """
    damaged: list[tuple[str, bytes]] = []
    read = bytesRead = 0
    last: InlinePosition = (-1, b"") if start is None else start
    # Row by row, for a page of them may hold many megabytes.
    for bucketId, key, bucket, checksum, inline in connection.execute(
        "SELECT bucketId, key, (SELECT name FROM buckets WHERE id = bucketId),"
        " storageChecksum, bytes FROM objects LEFT JOIN inline USING (sequence)"
        " WHERE (bucketId, key) > (?, ?)"
        " ORDER BY bucketId, key, sequence DESC LIMIT ?",
        (*last, limit),
    ):
        read += 1
        last = (bucketId, key)
        bytesRead += len(inline or b"")
        if not _isIntact(inline, checksum):
            damaged.append((bucket, key))
    return InlineCheck(tuple(damaged), bytesRead, last if read == limit else None)
