"""
Object lock: the retention and the legal hold of versions, and the default of a bucket.

Locks are checked in the transaction that writes. A bucket with object lock has versioning enabled
permanently, so versions are never replaced there, and only a removal by id must check the lock.
"""

from collections.abc import Sequence
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from storagegate.storage.embedded.buckets import bucketId, storeSettings
from storagegate.storage.embedded.groupcommit import QueuedMutation, Transaction, oneByOne
from storagegate.storage.embedded.versions import Key, VersionName, versionOf
from storagegate.storage.errors import (
    BucketNotLocked,
    BucketNotVersioned,
    NoSuchKey,
    ObjectLocked,
)
from storagegate.storage.mutations import PutLegalHold, PutRetention, PutSettings, SetObjectLock
from storagegate.storage.records import (
    COMPLIANCE,
    DEFAULT_RETENTION,
    NULL_VERSION,
    UNLOCKED,
    VERSIONING_ENABLED,
    ObjectLock,
    readDefault,
)
from storagegate.storage.versionids import VersionIds

COLUMNS = "retainMode, retainUntilMs, legalHold"
"""The columns of a lock; all are NULL in the rows of most objects."""

_Columns = tuple[str | None, int | None, int | None]

_decodeColumns = msgspec.json.Decoder(_Columns).decode
_decodeRows = msgspec.json.Decoder(list[tuple[int, _Columns]]).decode
_decodeFound = msgspec.json.Decoder(tuple[int, _Columns]).decode


def _lockOf(mode: str | None, untilMs: int | None, legalHold: int | None) -> ObjectLock:
    if mode is None and legalHold is None:
        return UNLOCKED
    return ObjectLock(mode or "", untilMs or 0, None if legalHold is None else bool(legalHold))


def _columnsOf(lock: ObjectLock) -> _Columns:
    hold = None if lock.legalHold is None else int(lock.legalHold)
    return (lock.mode, lock.untilMs, hold) if lock.mode else (None, None, hold)


def readLock(text: str) -> ObjectLock:
    """Decode the columns of a lock from a JSON array."""
    return _lockOf(*_decodeColumns(text))


def readLocks(transaction: Transaction, rows: Sequence[tuple[Key, int]]) -> dict[int, ObjectLock]:
    """
    Look up the locks of versions, current or not, by position.

    @param rows: Keys and write numbers.
    """
    if not rows:
        return {}
    tables = " UNION ALL ".join(
        f"SELECT name.column1 AS position, {COLUMNS} FROM name CROSS JOIN {table} AS o"
        " ON o.bucketId = name.column2 AND o.key = name.column3 AND o.sequence = name.column4"
        for table in ("objects", "versions")
    )
    text = transaction.value(
        f"WITH name AS MATERIALIZED (VALUES {', '.join(['(?, ?, ?, ?)'] * len(rows))})"
        f" SELECT json_group_array(json_array(position, json_array({COLUMNS}))) FROM ({tables})",
        [each for position, (key, n) in enumerate(rows) for each in (position, *key, n)],
    )
    return {position: _lockOf(*columns) for position, columns in _decodeRows(text)}


def newLock(
    transaction: Transaction, bucketId: int, named: ObjectLock, modifiedMs: int
) -> ObjectLock:
    """
    Return the lock of a new version in a bucket with object lock.

    @param named: The lock given in the request, which takes precedence even if it has expired.
    @param modifiedMs: When the version is created, from which the default counts.
    """
    if named.mode:
        return named
    document = transaction.value(
        "SELECT document FROM bucketSettings WHERE bucketId = ? AND name = ?",
        (bucketId, DEFAULT_RETENTION),
    )
    if document is None:
        return named
    default = readDefault(document)
    return replace(named, mode=default.mode, untilMs=default.until(modifiedMs))


def writeLocks(transaction: Transaction, rows: Sequence[tuple[Key, ObjectLock]]) -> None:
    """
    Write the locks of newly inserted current objects.

    @param rows: Keys and locks; at least one.
    """
    transaction.execute(
        f"UPDATE objects SET ({COLUMNS}) = (name.column3, name.column4, name.column5)"
        f" FROM (VALUES {', '.join(['(?, ?, ?, ?, ?)'] * len(rows))}) AS name"
        " WHERE bucketId = name.column1 AND key = name.column2",
        list(chain.from_iterable((*key, *_columnsOf(lock)) for key, lock in rows)),
    )


@oneByOne
def setObjectLock(transaction: Transaction, change: SetObjectLock) -> None:
    """
    Permanently enable object lock on a bucket, and set the default retention of new versions.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotVersioned: The bucket's versioning is not enabled.
    """
    number = bucketId(transaction.connection, change.bucket)
    versioning = transaction.value("SELECT versioning FROM buckets WHERE id = ?", (number,))
    if versioning != VERSIONING_ENABLED:
        raise BucketNotVersioned(change.bucket)
    document = None if change.default is None else msgspec.json.encode(change.default)
    storeSettings(transaction, PutSettings(change.bucket, {DEFAULT_RETENTION: document}))
    transaction.execute("UPDATE buckets SET lockEnabled = 1 WHERE id = ?", (number,))


def retention(ids: VersionIds, change: PutRetention) -> QueuedMutation:
    """Prepare L{putRetention}."""
    argument = (change, versionOf(ids, change.versionId))
    return QueuedMutation(putRetention, argument, names=((change.bucket, change.key),))


def legalHold(ids: VersionIds, change: PutLegalHold) -> QueuedMutation:
    """Prepare L{putLegalHold}."""
    argument = (change, versionOf(ids, change.versionId))
    return QueuedMutation(putLegalHold, argument, names=((change.bucket, change.key),))


@oneByOne
def putRetention(transaction: Transaction, argument: tuple[PutRetention, VersionName]) -> None:
    """
    Change the retention of a version. Nothing else changes.

    An active retention may be extended. Any other change needs a bypass in governance mode and is
    impossible in compliance mode.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotLocked: The bucket has no object lock.
    @raise NoSuchKey: The object or version does not exist or is a delete marker.
    @raise ObjectLocked: The existing retention forbids the change.
    """
    change, version = argument
    found = _locate(transaction, change.bucket, change.key, version)
    lock = found.lock
    if lock.untilMs > change.atMs:
        isExtended = change.mode == lock.mode and change.untilMs >= lock.untilMs
        if not isExtended and (lock.mode == COMPLIANCE or not change.bypass):
            raise ObjectLocked(change.key)
    _write(transaction, found, replace(lock, mode=change.mode, untilMs=change.untilMs))


@oneByOne
def putLegalHold(transaction: Transaction, argument: tuple[PutLegalHold, VersionName]) -> None:
    """
    Place or release the legal hold of a version.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotLocked: The bucket has no object lock.
    @raise NoSuchKey: The object or version does not exist or is a delete marker.
    """
    change, version = argument
    found = _locate(transaction, change.bucket, change.key, version)
    _write(transaction, found, replace(found.lock, legalHold=change.isOn))


class _LockedRow(Struct, frozen=True):
    table: str
    bucketId: int
    key: bytes
    sequence: int
    lock: ObjectLock


def _locate(transaction: Transaction, bucket: str, key: bytes, version: VersionName) -> _LockedRow:
    number = bucketId(transaction.connection, bucket)
    if not transaction.value("SELECT lockEnabled FROM buckets WHERE id = ?", (number,)):
        raise BucketNotLocked(bucket)
    which, more = "", []
    if version is not None:
        which = f"AND {'versionId' if version == NULL_VERSION else 'sequence'} = ?"
        more = [version]
    for table in ("objects",) if version is None else ("objects", "versions"):
        text = transaction.value(
            f"SELECT json_array(sequence, json_array({COLUMNS})) FROM {table}"
            f" WHERE bucketId = ? AND key = ? {which} AND NOT deleteMarker",
            [number, key, *more],
        )
        if text is not None:
            sequence, columns = _decodeFound(text)
            return _LockedRow(table, number, key, sequence, _lockOf(*columns))
    raise NoSuchKey(key)


def _write(transaction: Transaction, found: _LockedRow, lock: ObjectLock) -> None:
    transaction.execute(
        f"UPDATE {found.table} SET ({COLUMNS}) = (?, ?, ?)"
        " WHERE bucketId = ? AND key = ? AND sequence = ?",
        (*_columnsOf(lock), found.bucketId, found.key, found.sequence),
    )
