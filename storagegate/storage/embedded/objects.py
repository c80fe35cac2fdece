"""
Objects: their rows, and the operations to store, remove and look them up.

Objects are stored and removed in runs: successive mutations of different keys. One statement looks
up all keys of a run, the conditions are evaluated here, and one statement writes. Each condition
sees the mutations before it.

The bucket's versioning at that moment decides here whether a write replaces the object or is
stacked on it; L{storagegate.storage.embedded.versions} manages the rows below the current ones::

                  never           enabled             suspended
    put           replaces        the old one moves   the null version is removed at any position; a
                                                      current numbered one moves; the new is null
    delete        removes         like a put of a     like a put of a marker
                                  marker
    delete by id  removes that version; if it was current, the next newest becomes current
"""

from collections.abc import Callable, Sequence
from functools import cache
from sqlite3 import Connection
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from storagegate.core.files import crcFunction
from storagegate.storage.embedded import buckets, objectlocks, versions
from storagegate.storage.embedded.groupcommit import (
    SEGMENT_WEIGHT,
    QueuedMutation,
    Transaction,
    asJSON,
    oneByOne,
)
from storagegate.storage.embedded.refcounts import ReferenceBatch, ReferenceDelta, applyDeltas
from storagegate.storage.embedded.versions import Key, VersionName, VersionRow, cuts, versionOf
from storagegate.storage.errors import (
    BucketChanged,
    BucketNotLocked,
    ConcurrentChange,
    CorruptObject,
    NoSuchBucket,
    NoSuchKey,
    PreconditionFailed,
    StoreError,
)
from storagegate.storage.mutations import PutAcl, PutObject, PutTags
from storagegate.storage.records import (
    NULL_VERSION,
    UNLOCKED,
    VERSIONING_ENABLED,
    VERSIONING_SUSPENDED,
    Attributes,
    Bucket,
    Content,
    InlineCheck,
    InlinePosition,
    ObjectLock,
    ObjectRecord,
    Segment,
    WriteCondition,
)
from storagegate.storage.rows import readAttributes, readSegments, segmentsText
from storagegate.storage.sqlite import asBlob
from storagegate.storage.versionids import VersionIds

Name = tuple[str, bytes]
"""A bucket and a key in it."""


class CurrentRow(msgspec.Struct, frozen=True, array_like=True):
    """
    The row of the current object of a name.

    @ivar bucketId: L{None} if the bucket does not exist. Further fields are L{None} if the object
        does not exist.
    @ivar versioning: The bucket's versioning.
    @ivar lockEnabled: Whether the bucket has object lock.
    """

    bucketId: int | None
    versioning: str | None = None
    sequence: int | None = None
    etag: str | None = None
    versionId: str | None = None
    segments: str | None = None
    size: int = 0
    modifiedMs: int = 0
    lockEnabled: int | None = 0


_decodeRows = msgspec.json.Decoder(list[CurrentRow]).decode
_Item = TypeVar("_Item")


def find(transaction: Transaction, names: Sequence[Name]) -> list[CurrentRow]:
    """Look up at most L{CHUNK} names, in order."""
    parameters: list[object] = []
    for bucket, key in names:
        parameters += (bucket, asBlob(key))
    ((text,),) = transaction.connection.execute(_findSQL(len(names)), parameters).fetchall()
    return _decodeRows(text)


def evaluate(
    current: CurrentRow | VersionRow | None, condition: WriteCondition
) -> StoreError | None:
    """
    Return the error that refuses a write; L{None} if the write is allowed.

    @param current: The object that the condition applies to, if it exists.
    @param condition: The condition of the write.
    """
    etag = None if current is None else current.etag
    if current is None or etag is None:
        # Conditions on size or time hold for an object that does not exist.
        return NoSuchKey() if condition.etags else None
    if condition.absent or etag in condition.unlike:
        return PreconditionFailed()
    if condition.etags and "*" not in condition.etags and etag not in condition.etags:
        return PreconditionFailed()
    if condition.size not in (None, current.size):
        return PreconditionFailed()
    if condition.modifiedSeconds not in (None, current.modifiedMs // 1000):
        return PreconditionFailed()
    return None


@cache
def _findSQL(count: int) -> str:
    names = ", ".join(["(?, ?)"] * count)
    return (
        "SELECT json_group_array(json_array(b.id, b.versioning, o.sequence, o.etag, o.versionId,"
        " o.segments, ifnull(o.size, 0), ifnull(o.modifiedMs, 0), b.lockEnabled))"
        f" FROM (VALUES {names}) AS name"
        " LEFT JOIN buckets AS b ON b.name = name.column1"
        " LEFT JOIN objects AS o ON o.bucketId = b.id AND o.key = name.column2"
    )


class Put(msgspec.Struct, frozen=True, eq=False):
    """
    A request to store an object.

    @ivar name: The object's bucket and key.
    @ivar values: The columns of its row, encoded in the reactor thread so that the writer holds the
        GIL for less time.
    @ivar makeId: Returns the version id for a write number.
    """

    record: ObjectRecord
    condition: WriteCondition
    delta: ReferenceDelta
    name: Name
    values: tuple[object, ...]
    makeId: Callable[[int], str]


def storing(ids: VersionIds, change: PutObject) -> QueuedMutation:
    """
    Prepare L{putObjects}: encode the record. Reactor thread.

    @raise UnicodeDecodeError: The key is not UTF-8, which would make every listing of its bucket
        fail.
    """
    record = change.record
    content, key = record.content, record.key
    key.decode()
    delta = ReferenceDelta(content.segments, change.newBlobs)
    name = (record.bucket, key)
    put = Put(record, change.condition, delta, name, objectValues(record), ids.make)
    weight = len(content.inline or b"") + SEGMENT_WEIGHT * len(content.segments)
    return QueuedMutation(putObjects, put, False, weight, (name,))


def putObjects(transaction: Transaction, puts: Sequence[Put]) -> list[ObjectRecord | StoreError]:
    """Store objects as new versions, or in place of the current versions."""
    outcomes: list[ObjectRecord | StoreError] = []
    # The bucket keys that were found: most objects of a run have the same.
    held: set[tuple[int, str]] = set()
    for chunk in chunks(puts, [put.name for put in puts]):
        rows = find(transaction, [put.name for put in chunk])
        # Inline objects that replace inline objects have no references to count.
        if any(put.delta.segments for put in chunk):
            references = ReferenceBatch(transaction, [put.delta for put in chunk])
        else:
            references = None
        inserts: list[Row] = []
        deltas: list[ReferenceDelta] = []
        for put, current in zip(chunk, rows, strict=True):
            refusal: StoreError | None
            if current.bucketId is None:
                refusal = NoSuchBucket()
            elif put.record.attributes.lock is not UNLOCKED and not current.lockEnabled:
                refusal = BucketNotLocked()
            elif put.record.attributes.encryption is not None and not _hasKey(
                transaction, current.bucketId, put.record.attributes, held
            ):
                refusal = BucketChanged()
            else:
                refusal = evaluate(current, put.condition)
            if refusal is None and references is not None and not references.allows(put.delta):
                refusal = ConcurrentChange()
            if refusal is not None:
                outcomes.append(refusal)
                continue
            row = newRow(transaction, current, put.record, put.values, put.makeId)
            outcomes.append(row.record)
            inserts.append(row)
            if references is not None:
                deltas.append(put.delta)
                # An object that becomes noncurrent keeps its references.
                replaced = None if current.versioning else current.segments
                references.add(put.delta, readSegments(replaced))
        released = stack(transaction, inserts)
        if deltas or released:
            applyDeltas(transaction, deltas, released)
    return outcomes


def _hasKey(
    transaction: Transaction,
    number: int,
    attributes: Attributes,
    held: set[tuple[int, str]],
) -> bool:
    """
    Return whether a bucket has the key of an object; see L{buckets.hasKeyOf}. The query takes as
    long as the insert of a small object.

    @param held: The keys already found in this transaction, by bucket; receives this one.
    """
    assert attributes.encryption is not None
    name = (number, attributes.encryption.bucketKey)
    if name not in held:
        if not buckets.hasKeyOf(transaction, number, attributes):
            return False
        held.add(name)
    return True


class Row(msgspec.Struct, frozen=True, eq=False):
    """
    The row of an object to insert.

    @ivar current: The previous current row.
    @ivar values: The result of L{objectValues}.
    """

    current: CurrentRow
    record: ObjectRecord
    values: tuple[object, ...]


def newRow(
    transaction: Transaction,
    current: CurrentRow,
    record: ObjectRecord,
    values: tuple[object, ...],
    makeId: Callable[[int], str],
) -> Row:
    """
    Assign a write number to an object and, if versioning is enabled, a version id and the bucket's
    default lock.

    @param current: The current row of its name, in an existing bucket.
    @param values: The result of L{objectValues}.
    @param makeId: See L{Put}.
    """
    sequence = transaction.takeSequence()
    if current.versioning != VERSIONING_ENABLED:
        return Row(current, replace(record, sequence=sequence), values)
    versionId = makeId(sequence)
    if current.lockEnabled:
        assert current.bucketId is not None, "the caller has checked"
        attributes = record.attributes
        lock = objectlocks.newLock(
            transaction, current.bucketId, attributes.lock, record.modifiedMs
        )
        record = replace(record, attributes=replace(attributes, lock=lock))
    return Row(
        current,
        replace(record, sequence=sequence, versionId=versionId),
        (versionId, *values[1:]),
    )


def stack(transaction: Transaction, rows: Sequence[Row]) -> list[Segment]:
    """
    Insert objects, and remove or move the previous current ones.

    @param rows: Rows with different names.
    @return: The segments of removed objects, for L{applyDeltas}.
    """
    replaced: list[tuple[bytes, CurrentRow]] = []
    superseded: list[tuple[bytes, CurrentRow, int]] = []
    for row in rows:
        if row.current.versioning:
            superseded.append((row.record.key, row.current, row.record.modifiedMs))
        elif row.current.sequence is not None:
            replaced.append((row.record.key, row.current))
    released = remove(transaction, replaced)
    if superseded:
        released += supersede(transaction, superseded)
    _insert(transaction, rows)
    return released


_OBJECTS = (
    "objects (bucketId, key, sequence, versionId, deleteMarker, size, etag, modifiedMs, account,"
    " storageClass, checksumAlgorithm, checksumKind, storageChecksum, attributes, segments, tags,"
    " acl)"
)
_OBJECT_COLUMNS = _OBJECTS.count(",") + 1
# Empty text stands for NULL: sqlite3 looks up an adapter for None, as for bytes; see asBlob.
_OBJECT = f"({'?, ' * (_OBJECT_COLUMNS - 3)}nullif(?, ''), nullif(?, ''), nullif(?, ''))"


def _insert(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Insert objects whose names are free, with inline bytes in a separate table."""
    columns: list[object] = []
    inline: list[object] = []
    locked: list[tuple[Key, ObjectLock]] = []
    for row in rows:
        bucketId, record = row.current.bucketId, row.record
        assert bucketId is not None, "it was found"
        transaction.count(bucketId, 1, record.size)
        columns += (bucketId, asBlob(record.key), record.sequence, *row.values)
        if record.content.inline is not None:
            inline += (record.sequence, asBlob(record.content.inline))
        if row.current.lockEnabled and record.attributes.lock is not UNLOCKED:
            locked.append(((bucketId, record.key), record.attributes.lock))
    for table, place, width, values in (
        (_OBJECTS, _OBJECT, _OBJECT_COLUMNS, columns),
        ("inline", "(?, ?)", 2, inline),
    ):
        for start, end in cuts(len(values) // width):
            sql = _insertSQL(table, place, end - start)
            transaction.connection.execute(sql, values[start * width : end * width])
    if locked:
        objectlocks.writeLocks(transaction, locked)


def remove(transaction: Transaction, rows: Sequence[tuple[bytes, CurrentRow]]) -> list[Segment]:
    """
    Delete rows that L{find} has found.

    @param rows: Keys and rows of existing objects.
    @param transaction: The transaction in which the rows were found.
    @return: The segments of the rows, for L{applyDeltas}.
    """
    if not rows:
        return []
    keys: list[Key] = []
    sequences: list[int] = []
    for key, row in rows:
        assert row.bucketId is not None and row.sequence is not None, "it was found"
        keys.append((row.bucketId, key))
        sequences.append(row.sequence)
        transaction.count(row.bucketId, -1, -row.size)
    versions.deleteObjectRows(transaction, keys)
    versions.deleteInline(transaction, sequences)
    return [segment for _, row in rows if row.segments for segment in readSegments(row.segments)]


def supersede(
    transaction: Transaction, changes: Sequence[tuple[bytes, CurrentRow, int]]
) -> list[Segment]:
    """
    Make way for a newer version on top of each key's versions.

    @param changes: Key, current row in a bucket that has ever had versioning, and the time of the
        newer version in milliseconds.
    @return: The segments of removed C{null} versions, for L{applyDeltas}.
    """
    moved: list[tuple[Key, int]] = []
    replaced: list[tuple[bytes, CurrentRow]] = []
    onMarkers: list[tuple[Key, int]] = []
    withNulls: list[Key] = []
    for key, current, atMs in changes:
        assert current.bucketId is not None, "it was found"
        name = (current.bucketId, key)
        isSuspended = current.versioning == VERSIONING_SUSPENDED
        if current.sequence is None:
            onMarkers.append((name, atMs))
        elif isSuspended and current.versionId == NULL_VERSION:
            replaced.append((key, current))
            continue
        else:
            moved.append((name, atMs))
        if isSuspended:
            withNulls.append(name)
    nulls = versions.findNulls(transaction, withNulls)
    gone = [(withNulls[position], row) for position, row in nulls.items()]
    texts = versions.removeVersions(transaction, gone)
    tops = versions.findTops(transaction, [name for name, _ in onMarkers])
    covered = [(*onMarkers[position], row) for position, row in tops.items() if row.isCurrent]
    versions.setNoncurrent(transaction, [(name, row.sequence, atMs) for name, atMs, row in covered])
    versions.moveAside(transaction, moved)
    released = remove(transaction, replaced)
    return released + [segment for text in texts for segment in readSegments(text)]


def chunks(
    items: Sequence[_Item], names: Sequence[Name], exclusive: Sequence[Name | None] | None = None
) -> list[Sequence[_Item]]:
    """
    Split a run of mutations into the lengths of L{cuts}, and before a repeated name, whose mutation
    must see the result of the first.

    @param names: The names of the items.
    @param exclusive: The names, with L{None} for each item that may share its name with others of
        its kind.
    """
    if len(set(names)) == len(names):
        return [items[start:end] for start, end in cuts(len(items))]
    chunks: list[Sequence[_Item]] = []
    begin = 0
    seen: set[Name] = set()
    alone: set[Name | None] = set()
    for index, name in enumerate(names):
        own = name if exclusive is None else exclusive[index]
        if name in (seen if own is not None else alone):
            chunks += [items[begin + start : begin + end] for start, end in cuts(index - begin)]
            begin, seen, alone = index, set(), set()
        seen.add(name)
        if own is not None:
            alone.add(own)
    rest = cuts(len(items) - begin)
    return chunks + [items[begin + start : begin + end] for start, end in rest]


@cache
def _insertSQL(table: str, row: str, count: int) -> str:
    return f"INSERT INTO {table} VALUES {', '.join([row] * count)}"


class TextChange(msgspec.Struct, frozen=True):
    """
    A request to change the tags or the access control list of an object.

    @ivar version: The write number of a version, or L{NULL_VERSION}; L{None} for the current
        object.
    @ivar column: C{"tags"} or C{"acl"}.
    @ivar text: See L{Attributes}; empty for none.
    @ivar seen: See L{PutTags}.
    """

    bucket: str
    key: bytes
    version: VersionName
    column: Literal["tags", "acl"]
    text: str
    seen: tuple[int, str] | None = None


def tagging(ids: VersionIds, change: PutTags) -> QueuedMutation:
    """Prepare L{putText} for tags."""
    version = versionOf(ids, change.versionId)
    text = TextChange(change.bucket, change.key, version, "tags", change.tags, change.seen)
    return QueuedMutation(putText, text, names=((change.bucket, change.key),))


def aclChange(ids: VersionIds, change: PutAcl) -> QueuedMutation:
    """Prepare L{putText} for an access control list."""
    text = TextChange(change.bucket, change.key, change.sequence, "acl", change.acl)
    return QueuedMutation(putText, text, names=((change.bucket, change.key),))


@oneByOne
def putText(transaction: Transaction, change: TextChange) -> None:
    """
    Replace the tags or the access control list of an object. Nothing else changes.

    @raise NoSuchBucket: The bucket does not exist.
    @raise NoSuchKey: The object or version does not exist or is a delete marker.
    @raise ConcurrentChange: There is no current object as the change has seen it.
    """
    name: list[object] = [
        buckets.bucketId(transaction.connection, change.bucket),
        change.key,
    ]
    which = ""
    if change.version is not None:
        which = f"AND {'versionId' if change.version == NULL_VERSION else 'sequence'} = ?"
        name.append(change.version)
    if change.seen is not None:
        which += " AND sequence = ? AND ifnull(tags, '') = ?"
        name += change.seen
    for table in ("objects",) if change.version is None else ("objects", "versions"):
        found = transaction.value(
            f"UPDATE {table} SET {change.column} = ? WHERE bucketId = ? AND key = ? {which}"
            " AND NOT deleteMarker RETURNING sequence",
            [change.text or None, *name],
        )
        if found is not None:
            return
    raise NoSuchKey if change.seen is None else ConcurrentChange


def objectValues(record: ObjectRecord) -> tuple[object, ...]:
    """
    Return the columns of an object's row from C{versionId} on; in the last three, empty text stands
    for NULL.

    The storage class and checksum type duplicate the attributes for listings, which must not parse
    each row's attributes, because those may hold ten thousand part summaries.

    @param record: The record; its C{sequence} is not used.
    """
    attributes, content = record.attributes, record.content
    checksum, tags, acl = attributes.checksum, attributes.tags, attributes.acl
    if tags or acl or attributes.lock is not UNLOCKED:
        # These have separate columns, because they change.
        attributes = replace(attributes, tags="", acl="", lock=UNLOCKED)
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
        # A small object has none.
        (segmentsText(content) or "") if content.segments else "",
        tags,
        acl,
    )


def _isIntact(inline: bytes | None, checksum: int | None) -> bool:
    """Return whether inline bytes match their checksum; true if there is no checksum."""
    return checksum is None or (inline is not None and crcFunction("crc32c")(inline, 0) == checksum)


_FOUND = (
    "b.account, b.createdMs, b.region, b.ownership, b.versioning, b.lockEnabled, b.generation,"
    " i.bytes, o.storageChecksum, o.deleteMarker, o.size, o.etag, o.modifiedMs, o.account,"
    " o.attributes, o.versionId, o.sequence, o.segments, o.tags, o.acl,"
    " iif(b.lockEnabled, json_array(o.retainMode, o.retainUntilMs, o.legalHold), NULL)"
)


def _lookUpSQL(table: str, condition: str) -> str:
    return (
        f"SELECT {_FOUND} FROM buckets AS b"
        f" LEFT JOIN {table} AS o ON o.bucketId = b.id AND o.key = ?{condition}"
        " LEFT JOIN inline AS i USING (sequence) WHERE b.name = ?"
    )


_CURRENT = _lookUpSQL("objects", "")
_NUMBERED = _lookUpSQL("versions", " AND o.sequence = ?")
_NULL = _lookUpSQL("versions", f" AND o.versionId = {versions.NULL}")
_MARKER = _lookUpSQL(
    "versions",
    " AND o.deleteMarker AND o.sequence = (SELECT sequence FROM versions"
    " WHERE bucketId = b.id AND key = o.key ORDER BY sequence DESC LIMIT 1)",
)


def lookUp(
    connection: Connection, bucket: str, key: bytes, verify: bool = False
) -> tuple[Bucket | None, ObjectRecord | None]:
    """
    Look up a current object.

    See L{ICatalog.object<storagegate.storage.interfaces.ICatalog.object>}. Blocks.
    """
    return _lookUp(connection, _CURRENT, bucket, key, (asBlob(key), bucket), verify)


def lookUpVersion(
    connection: Connection, bucket: str, key: bytes, sequence: int | None, verify: bool = False
) -> tuple[Bucket | None, ObjectRecord | None]:
    """
    Look up a version by write number, or the C{null} version.

    Most versions looked up this way are noncurrent, so C{versions} is read first. Both tables are
    read in one snapshot, because a version moves between them.

    @param connection: A read connection.
    @param sequence: L{None} for the C{null} version.
    """
    sql, which = (_NULL, ()) if sequence is None else (_NUMBERED, (sequence,))
    parameters = (asBlob(key), *which, bucket)
    connection.execute("BEGIN")
    try:
        found, record = _lookUp(connection, sql, bucket, key, parameters, verify)
        if record is None and found is not None:
            found, record = lookUp(connection, bucket, key, verify)
            if record is not None and not _isVersion(record, sequence):
                record = None
    finally:
        connection.execute("COMMIT")
    return found, record


def _isVersion(record: ObjectRecord, sequence: int | None) -> bool:
    return record.versionId == NULL_VERSION if sequence is None else record.sequence == sequence


def lookUpMarker(connection: Connection, bucket: str, key: bytes) -> ObjectRecord | None:
    """Look up the newest version of a key if it is a delete marker."""
    return _lookUp(connection, _MARKER, bucket, key, (asBlob(key), bucket), False)[1]


def _lookUp(
    connection: Connection,
    sql: str,
    bucket: str,
    key: bytes,
    parameters: Sequence[object],
    verify: bool,
) -> tuple[Bucket | None, ObjectRecord | None]:
    rows = connection.execute(sql, parameters).fetchall()
    if not rows:
        return None, None
    ((account, createdMs, region, ownership, versioning, isLocked, generation, *row),) = rows
    found = Bucket(
        bucket, account, createdMs, region, ownership, versioning, bool(isLocked), generation
    )
    inline, checksum, marker, size, etag, modifiedMs, writer, attributes, *rest = row
    version, sequence, segments, tags, acl, lock = rest
    # Without a sequence the object does not exist.
    if sequence is None:
        return found, None
    if verify and not _isIntact(inline, checksum):
        raise CorruptObject(f"object {bucket}/{key!r} is damaged")
    content = Content(size, inline, readSegments(segments))
    described = readAttributes(attributes)
    if tags is not None or acl is not None:
        described = replace(described, tags=tags or "", acl=acl or "")
    if lock is not None:
        described = replace(described, lock=objectlocks.readLock(lock))
    return found, ObjectRecord(
        bucket,
        key,
        size,
        etag,
        modifiedMs,
        writer,
        described,
        content,
        version,
        sequence,
        bool(marker),
    )


def lookUpCompleted(
    connection: Connection, bucket: str, key: bytes, uploadId: str
) -> ObjectRecord | None:
    """
    Look up the version that the completion of a multipart upload created.

    This reads all versions of the key, which only a repeated completion needs.

    @param connection: A read connection.
    @param uploadId: The id of the ended upload.
    """
    rows = connection.execute(
        "SELECT sequence FROM buckets AS b JOIN (SELECT * FROM"
        " (SELECT bucketId, key, sequence, attributes FROM objects UNION ALL"
        " SELECT bucketId, key, sequence, attributes FROM versions)) AS o ON o.bucketId = b.id"
        " WHERE b.name = ? AND o.key = ? AND o.attributes ->> 'uploadId' = ?",
        (bucket, key, uploadId),
    ).fetchall()
    return lookUpVersion(connection, bucket, key, rows[0][0])[1] if rows else None


def checkInline(connection: Connection, start: InlinePosition | None, limit: int) -> InlineCheck:
    """
    Read a page of inline objects and compare their checksums: current objects first, then
    noncurrent versions.

    @param start: The position after which the page begins; L{None} starts with the first bucket.
    @param limit: The most objects in the page.
    """
    damaged: list[tuple[str, bytes]] = []
    read = bytesRead = 0
    position: InlinePosition | None = start or (False, -1, b"", 0)
    while position is not None and read < limit:
        isOld, *place = position
        values = dict(zip(("bucket", "key", "sequence"), place, strict=True))
        position = None if isOld else (True, -1, b"", 0)
        # Row by row, because a page may hold many megabytes.
        for bucketId, key, sequence, bucket, checksum, inline in connection.execute(
            _CHECKED[isOld], {**values, "limit": limit - read}
        ):
            read += 1
            bytesRead += len(inline or b"")
            if not _isIntact(inline, checksum):
                damaged.append((bucket, key))
            if read == limit:
                position = (isOld, bucketId, key, sequence)
    return InlineCheck(tuple(damaged), bytesRead, position)


def _checkedSQL(table: str) -> str:
    columns = "bucketId, key, sequence, storageChecksum"
    return (
        "SELECT bucketId, key, sequence, (SELECT name FROM buckets WHERE id = bucketId),"
        " storageChecksum, (SELECT bytes FROM inline WHERE sequence = o.sequence) FROM"
        f" (SELECT {columns} FROM {table} WHERE bucketId = :bucket AND key = :key"
        " AND sequence < :sequence"
        f" UNION ALL SELECT {columns} FROM {table} WHERE (bucketId, key) > (:bucket, :key)"
        " ORDER BY bucketId, key, sequence DESC LIMIT :limit) AS o"
    )


_CHECKED = (_checkedSQL("objects"), _checkedSQL("versions"))
