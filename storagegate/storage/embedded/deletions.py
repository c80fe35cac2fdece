"""
Deletion of current objects, which a bucket with versioning keeps as noncurrent versions below a
delete marker, and of versions by id.

Like puts, deletions run in batches: see L{storagegate.storage.embedded.objects}. If the current
version of a key is removed by id, the next newest becomes current in the same transaction.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from storagegate.storage.embedded import objectlocks, versions
from storagegate.storage.embedded.expiry import stillDue
from storagegate.storage.embedded.groupcommit import QueuedMutation, Transaction
from storagegate.storage.embedded.objects import (
    CurrentRow,
    Name,
    chunks,
    evaluate,
    find,
    remove,
    supersede,
)
from storagegate.storage.embedded.refcounts import applyDeltas
from storagegate.storage.embedded.versions import Key, Marker, VersionRow
from storagegate.storage.errors import (
    ConcurrentChange,
    NoSuchBucket,
    ObjectLocked,
    StoreError,
    StoreFull,
)
from storagegate.storage.mutations import RemoveObjects
from storagegate.storage.records import (
    NULL_VERSION,
    VERSIONING_SUSPENDED,
    Content,
    Expiry,
    ObjectLock,
    ObjectRecord,
    Removal,
    WriteCondition,
)
from storagegate.storage.rows import readAttributes, readSegments
from storagegate.storage.versionids import VersionIds


class Deletion(Struct, frozen=True, eq=False):
    """
    A request to remove objects of one bucket.

    @ivar entries: Key, version and condition. The version is a tuple of the write number, or of
        L{None} for the C{null} version; it is L{None} for the current object.
    @ivar account: The account of new delete markers.
    @ivar atMs: The time of the deletion, in milliseconds since the epoch.
    @ivar makeId: See L{Put}.
    """

    bucket: str
    entries: tuple[tuple[bytes, tuple[int | None] | None, WriteCondition], ...]
    account: str
    atMs: int
    makeId: Callable[[int], str]


def deletion(ids: VersionIds, change: RemoveObjects) -> QueuedMutation:
    """
    Prepare L{deleteObjects}.

    @raise InvalidVersionId: This store cannot have issued one of the ids.
    """
    rows = tuple(
        (key, None if version is None else (ids.read(version),), condition)
        for key, version, condition in change.entries
    )
    made = Deletion(change.bucket, rows, change.account, change.atMs, ids.make)
    names = [(change.bucket, key) for key, _, _ in rows]
    return QueuedMutation(deleteObjects, made, frees=True, names=names)


class _Target(Struct, frozen=True, eq=False):
    deletion: int
    name: Name
    version: tuple[int | None] | None
    condition: WriteCondition


# A placeholder that looks up the bucket of a request without entries; no write has this number.
_NO_ENTRY = ((b"", (0,), WriteCondition()),)


def deleteObjects(
    transaction: Transaction, deletions: Sequence[Deletion]
) -> list[list[Removal | Exception] | StoreError]:
    """Remove objects; the entries of successive requests are looked up together."""
    targets = [
        _Target(number, (deletion.bucket, key), version, condition)
        for number, deletion in enumerate(deletions)
        for key, version, condition in deletion.entries or _NO_ENTRY
    ]
    results: list[list[Removal | Exception]] = [[] for _ in deletions]
    withoutBucket: set[int] = set()
    # Removals of versions of the same key by id are independent of each other.
    names = [None if target.version else target.name for target in targets]
    for chunk in chunks(targets, [target.name for target in targets], names):
        rows = find(transaction, [target.name for target in chunk])
        removals = _Removals(transaction, deletions, chunk, rows)
        for target, result in zip(chunk, removals.apply(), strict=True):
            if result is None:
                withoutBucket.add(target.deletion)
            else:
                results[target.deletion].append(result)
    return [
        NoSuchBucket() if number in withoutBucket else results[number][: len(deletion.entries)]
        for number, deletion in enumerate(deletions)
    ]


class _Removals:
    """The removals of a run of targets; only removals by version may share a key."""

    def __init__(
        self,
        transaction: Transaction,
        deletions: Sequence[Deletion],
        targets: Sequence[_Target],
        rows: Sequence[CurrentRow],
    ) -> None:
        self._transaction = transaction
        self._deletions = deletions
        self._targets = targets
        self._rows = rows
        self._removed: list[tuple[bytes, CurrentRow]] = []
        self._versions: list[tuple[Key, VersionRow]] = []
        self._superseded: list[tuple[bytes, CurrentRow, int]] = []
        self._markers: list[Marker] = []
        self._exposed: dict[Key, int] = {}
        self._locks: dict[int, ObjectLock] = {}
        # Detects repeated ids: the second removal finds nothing.
        self._seen: set[tuple[Key, int | None]] = set()

    def apply(self) -> list[Removal | Exception | None]:
        """Apply the removals; return L{None} for each target whose bucket does not exist."""
        transaction = self._transaction
        named = self._findNamed()
        self._findLocks(named)
        refused = self._findRefused()
        results: list[Removal | Exception | None] = []
        for position, (target, current) in enumerate(zip(self._targets, self._rows, strict=True)):
            if current.bucketId is None:
                results.append(None)
            elif position in refused:
                results.append(ConcurrentChange())
            elif target.version is None:
                results.append(self._removeCurrent(target, current))
            else:
                results.append(self._removeVersion(position, target, current, named))
        released = remove(transaction, self._removed)
        for text in versions.removeVersions(transaction, self._versions):
            released += readSegments(text)
        if self._superseded:
            released += supersede(transaction, self._superseded)
            versions.insertMarkers(transaction, self._markers)
        applyDeltas(transaction, [], released)
        if self._exposed:
            self._promote(results)
        return results

    def _findRefused(self) -> set[int]:
        """Find the removals by rule whose version or settings have changed."""
        positions: list[int] = []
        rows: list[tuple[Key, Expiry]] = []
        for position, (target, row) in enumerate(zip(self._targets, self._rows, strict=True)):
            expiry = target.condition.expiry
            if expiry is not None and row.bucketId is not None:
                positions.append(position)
                rows.append(((row.bucketId, target.name[1]), expiry))
        if not rows:
            return set()
        due = stillDue(self._transaction, rows)
        return {position for index, position in enumerate(positions) if index not in due}

    def _findNamed(self) -> dict[int, VersionRow]:
        """Look up the versions that are not in C{objects}, by target position."""
        nulls: list[tuple[int, Key]] = []
        numbered: list[tuple[int, Key, int]] = []
        for position, (target, row) in enumerate(zip(self._targets, self._rows, strict=True)):
            if target.version and row.bucketId is not None and row.versioning:
                (sequence,) = target.version
                name = (row.bucketId, target.name[1])
                if sequence is None and row.versionId != NULL_VERSION:
                    nulls.append((position, name))
                elif sequence is not None and row.sequence != sequence:
                    numbered.append((position, name, sequence))
        if not nulls and not numbered:
            return {}
        transaction = self._transaction
        found = versions.findNulls(transaction, [name for _, name in nulls])
        result = {nulls[index][0]: row for index, row in found.items()}
        found = versions.findNumbered(transaction, [(name, n) for _, name, n in numbered])
        return result | {numbered[index][0]: row for index, row in found.items()}

    def _findLocks(self, named: dict[int, VersionRow]) -> None:
        """Look up the locks of versions to remove, if their buckets have object lock."""
        if not any(row.lockEnabled for row in self._rows):
            return
        rows: list[tuple[int, tuple[Key, int]]] = []
        for position, (target, current) in enumerate(zip(self._targets, self._rows, strict=True)):
            if target.version and current.lockEnabled:
                row = named.get(position, current)
                if row.sequence is not None and current.bucketId is not None:
                    rows.append((position, ((current.bucketId, target.name[1]), row.sequence)))
        found = objectlocks.readLocks(self._transaction, [row for _, row in rows])
        self._locks = {rows[index][0]: lock for index, lock in found.items()}

    def _removeCurrent(self, target: _Target, current: CurrentRow) -> Removal | Exception:
        refusal = evaluate(current, target.condition)
        if refusal is not None:
            return refusal
        key, isFound = target.name[1], current.sequence is not None
        if not current.versioning:
            if isFound:
                self._removed.append((key, current))
            return Removal(isFound, isChanged=isFound)
        assert current.bucketId is not None, "the caller has checked"
        if not self._transaction.mayGrow:
            return StoreFull()
        deletion = self._deletions[target.deletion]
        sequence = self._transaction.takeSequence()
        isSuspended = current.versioning == VERSIONING_SUSPENDED
        versionId = NULL_VERSION if isSuspended else deletion.makeId(sequence)
        self._superseded.append((key, current, deletion.atMs))
        marker = Marker(
            (current.bucketId, key), sequence, versionId, deletion.account, deletion.atMs
        )
        self._markers.append(marker)
        return Removal(isFound, versionId, True, isFound)

    def _removeVersion(
        self, position: int, target: _Target, current: CurrentRow, named: dict[int, VersionRow]
    ) -> Removal | Exception:
        assert current.bucketId is not None and target.version is not None
        key, (sequence,) = target.name[1], target.version
        name = (current.bucketId, key)
        isCurrent = current.sequence is not None and (
            current.versionId == NULL_VERSION if sequence is None else current.sequence == sequence
        )
        row = current if isCurrent else named.get(position)
        refusal = evaluate(row, target.condition)
        if refusal is not None:
            return refusal
        if row is None or (name, row.sequence) in self._seen:
            return Removal(False)
        lock = self._locks.get(position)
        if lock is not None:
            deletion = self._deletions[target.deletion]
            if lock.isActive(deletion.atMs, target.condition.bypass):
                return ObjectLocked(key)
        self._seen.add((name, row.sequence))
        isMarker = False
        if isinstance(row, VersionRow):
            isMarker = bool(row.isDeleteMarker)
            isCurrent = row.isCurrent
            self._versions.append((name, row))
        else:
            self._removed.append((key, row))
        if isCurrent and current.versioning:
            self._exposed[name] = position
        isChanged = isCurrent and not isMarker
        return Removal(True, row.versionId or NULL_VERSION, isMarker, isChanged)

    def _promote(self, results: list[Removal | Exception | None]) -> None:
        """Make the next newest versions current, and add new current objects to the results."""
        names = list(self._exposed)
        promoted = [names[index] for index in versions.promote(self._transaction, names)]
        for name, record in _currentRecords(self._transaction, promoted).items():
            position = self._exposed[name]
            result = results[position]
            assert isinstance(result, Removal), "it has exposed the next version"
            record = replace(record, bucket=self._targets[position].name[0])
            results[position] = replace(result, isChanged=True, current=record)


def _currentRecords(transaction: Transaction, names: Sequence[Key]) -> dict[Key, ObjectRecord]:
    """Read current objects, without bucket names and bytes."""
    if not names:
        return {}
    text = transaction.value(
        "SELECT json_group_array(json_array(name.column1, o.size, o.etag, o.modifiedMs, o.account,"
        " o.attributes, o.versionId, o.sequence))"
        f" FROM (VALUES {', '.join(['(?, ?, ?)'] * len(names))}) AS name CROSS JOIN objects AS o"
        " ON o.bucketId = name.column2 AND o.key = name.column3",
        [each for position, name in enumerate(names) for each in (position, *name)],
    )
    return {
        names[position]: ObjectRecord(
            "",
            names[position][1],
            size,
            etag,
            modifiedMs,
            account,
            readAttributes(attributes),
            Content(size),
            versionId,
            sequence,
        )
        for position, size, etag, modifiedMs, account, attributes, versionId, sequence in (
            _decodeCurrent(text)
        )
    }


_decodeCurrent = msgspec.json.Decoder(list[tuple[int, int, str, int, str, str, str, int]]).decode
