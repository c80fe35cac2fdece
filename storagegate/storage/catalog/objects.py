"""
Objects: stored and removed in runs, each condition judged against what came before it.

A run is a chunk of neighbouring mutations that concern different keys. One statement looks all of
them up, the conditions are judged here, and one statement writes.

What is there under a name, and whether a write may happen there.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeVar

import msgspec
from attrs import field, frozen

from storagegate.storage.catalog.refcounts import ReferenceBatch, ReferenceDelta, applyDeltas
from storagegate.storage.catalog.rows import objectValues, readSegments
from storagegate.storage.catalog.transactions import Transaction, asJSON, chunks
from storagegate.storage.errors import (
    ConcurrentChange,
    NoSuchBucket,
    NoSuchKey,
    PreconditionFailed,
    StoreError,
)
from storagegate.storage.records import ObjectRecord, Segment, WriteCondition

Name = tuple[str, bytes]
"""A bucket and a key in it."""


@frozen
class Found:
    """
    What is there under a name.

    @ivar bucketId: L{None} without such a bucket; the rest L{None} without such an object.
    """

    bucketId: int | None
    sequence: int | None = None
    etag: str | None = None
    versionId: str | None = None
    segments: str | None = None


_decodeFound = msgspec.json.Decoder(
    list[tuple[int | None, int | None, str | None, str | None, str | None]]
).decode


def find(transaction: Transaction, names: Sequence[Name]) -> list[Found]:
    """Look up to L{CHUNK} names up, in their order."""
    flat = [part for name in names for part in name]
    text = transaction.value(_findSQL(len(names)), flat)
    return [Found(*row) for row in _decodeFound(text)]


def judge(found: Found, condition: WriteCondition) -> StoreError | None:
    """Say why a write must not happen; L{None} if it may."""
    if found.bucketId is None:
        return NoSuchBucket()
    if condition.absent and found.etag is not None:
        return PreconditionFailed()
    if condition.etags:
        if found.etag is None:
            return NoSuchKey()
        if "*" not in condition.etags and found.etag not in condition.etags:
            return PreconditionFailed()
    return None


@cache
def _findSQL(count: int) -> str:
    names = ", ".join(["(?, ?)"] * count)
    return (
        "SELECT json_group_array(json_array(b.id, o.sequence, o.etag, o.versionId, o.segments))"
        f" FROM (VALUES {names}) AS name"
        " LEFT JOIN buckets AS b ON b.name = name.column1"
        " LEFT JOIN objects AS o ON o.bucketId = b.id AND o.key = name.column2"
    )


@frozen(eq=False)
class Put:
    """
    An object to be stored.

    The row is made in the reactor thread, so that the writer holds the interpreter for less long.
    """

    record: ObjectRecord
    condition: WriteCondition
    claim: ReferenceDelta
    values: tuple[object, ...] = field(init=False)

    @values.default
    def _row(self) -> tuple[object, ...]:
        # One key that is not UTF-8 would make every list of its bucket fail.
        self.record.key.decode()
        return objectValues(self.record)

    @property
    def name(self) -> Name:
        """What it is called."""
        return self.record.bucket, self.record.key


def putObjects(transaction: Transaction, puts: Sequence[Put]) -> list[ObjectRecord | StoreError]:
    """Store objects in place of the current ones."""
    return [
        outcome
        for run in _runs(puts)
        for chunk in chunks(run)
        for outcome in _put(transaction, chunk)
    ]


def _put(transaction: Transaction, puts: Sequence[Put]) -> list[ObjectRecord | StoreError]:
    found = find(transaction, [put.name for put in puts])
    tally = ReferenceBatch(transaction, [put.claim for put in puts])
    outcomes: list[ObjectRecord | StoreError] = []
    rows: list[Row] = []
    claims: list[ReferenceDelta] = []
    gone: list[tuple[Name, Found]] = []
    for put, there in zip(puts, found, strict=True):
        refusal = judge(there, put.condition)
        if refusal is None and not tally.grants(put.claim):
            refusal = ConcurrentChange()
        if refusal is not None:
            outcomes.append(refusal)
            continue
        record = put.record.numbered(transaction.takeSequence())
        outcomes.append(record)
        rows.append(Row(there.bucketId, record, put.values))
        claims.append(put.claim)
        tally.count(put.claim, readSegments(there.segments))
        if there.sequence is not None:
            gone.append((put.name, there))
    applyDeltas(transaction, claims, remove(transaction, gone))
    insert(transaction, rows)
    return outcomes


@frozen(eq=False)
class Row:
    """
    What is to be written of an object.

    @ivar values: What L{objectValues} makes of the record.
    """

    bucketId: int | None
    record: ObjectRecord
    values: tuple[object, ...]


def insert(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Write objects whose names are free."""
    for chunk in chunks(rows):
        flat: list[object] = []
        for row in chunk:
            flat += (row.bucketId, row.record.key, row.record.sequence, *row.values)
        transaction.execute(_insertSQL("objects", 15, len(chunk)), flat)
    withBytes = [row.record for row in rows if row.record.content.inline is not None]
    for some in chunks(withBytes):
        flat = []
        for record in some:
            flat += (record.sequence, record.content.inline)
        transaction.execute(_insertSQL("inline", 2, len(some)), flat)


def remove(transaction: Transaction, gone: Sequence[tuple[Name, Found]]) -> list[Segment]:
    """
    Delete rows that L{find} has found.

    @return: What they named, for L{applyDeltas}.
    """
    if not gone:
        return []
    byBucket: dict[int | None, list[bytes]] = {}
    for (_, key), found in gone:
        byBucket.setdefault(found.bucketId, []).append(key)
    for bucketId, keys in byBucket.items():
        for chunk in chunks(keys):
            transaction.execute(_deleteSQL(len(chunk)), [bucketId, *chunk])
    transaction.execute(
        "DELETE FROM inline WHERE sequence IN (SELECT value FROM json_each(?))",
        (asJSON([found.sequence for _, found in gone]),),
    )
    return [segment for _, found in gone for segment in readSegments(found.segments)]


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


# Asks for the bucket of a request without entries; no version has an empty id.
_NOTHING = ((b"", "", WriteCondition()),)


def deleteObjects(
    transaction: Transaction, deletions: Sequence[Deletion]
) -> list[list[bool | Exception] | StoreError]:
    """Remove objects; all the entries of neighbouring requests are looked up together."""
    targets = [
        _Target(number, (deletion.bucket, key), versionId, condition)
        for number, deletion in enumerate(deletions)
        for key, versionId, condition in deletion.entries or _NOTHING
    ]
    answers: list[list[bool | Exception]] = [[] for _ in deletions]
    homeless: set[int] = set()
    for run in _runs(targets):
        for chunk in chunks(run):
            gone: list[tuple[Name, Found]] = []
            found = find(transaction, [target.name for target in chunk])
            for target, there in zip(chunk, found, strict=True):
                if there.bucketId is None:
                    homeless.add(target.deletion)
                    continue
                verdict = _delete(target, there)
                answers[target.deletion].append(verdict)
                if verdict is True:
                    gone.append((target.name, there))
            applyDeltas(transaction, [], remove(transaction, gone))
    return [
        NoSuchBucket() if number in homeless else answers[number][: len(deletion.entries)]
        for number, deletion in enumerate(deletions)
    ]


def _delete(target: _Target, there: Found) -> bool | StoreError:
    if target.versionId is not None and target.versionId != there.versionId:
        there = Found(there.bucketId)
    return judge(there, target.condition) or there.etag is not None


_Named = TypeVar("_Named", Put, _Target)


def _runs(items: Sequence[_Named]) -> Iterator[list[_Named]]:
    """Cut where a name comes a second time, for it must see what the first has done."""
    run: list[_Named] = []
    seen: set[Name] = set()
    for item in items:
        if item.name in seen:
            yield run
            run, seen = [], set()
        run.append(item)
        seen.add(item.name)
    if run:
        yield run


@cache
def _deleteSQL(count: int) -> str:
    return f"DELETE FROM objects WHERE bucketId = ? AND key IN ({', '.join('?' * count)})"


@cache
def _insertSQL(table: str, columns: int, count: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * count)}"
