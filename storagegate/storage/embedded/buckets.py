"""
Buckets, access keys, and the documents of users and policies.

Each change of keys or documents increments a generation, which other processes poll.
"""

from collections.abc import Mapping
from sqlite3 import Connection
from typing import Any

import msgspec
from attrs import astuple, evolve, fields
from msgspec.structs import astuple as structTuple

from storagegate.storage.embedded.groupcommit import QueuedMutation, Transaction, oneByOne
from storagegate.storage.errors import (
    BucketExists,
    BucketLocked,
    BucketNotEmpty,
    IdentitiesChanged,
    KeyExists,
    NoSuchBucket,
    SettingsChanged,
)
from storagegate.storage.mutations import PutIdentities, PutSettings, RemoveBucket, SetVersioning
from storagegate.storage.records import (
    ACCOUNT,
    BUCKET_KEY,
    VERSIONING_ENABLED,
    AccessKey,
    AccountDocuments,
    Attributes,
    Bucket,
)
from storagegate.storage.rows import gatherIdentities
from storagegate.storage.versionids import VersionIds

BUCKET = "name, account, createdMs, region, ownership, versioning, lockEnabled, generation"
"""The columns of a L{Bucket}, in the order of its fields."""

BUCKET_JSON = (
    "json_object('name', name, 'account', account, 'createdMs', createdMs, 'region', region,"
    " 'ownership', ownership, 'versioning', versioning,"
    " 'lockEnabled', json(iif(lockEnabled, 'true', 'false')), 'generation', generation)"
)
"""A L{Bucket} as JSON."""

_decodeBucket = msgspec.json.Decoder(Bucket).decode


def readBucket(connection: Connection, name: str) -> Bucket | None:
    """Look up a bucket; L{None} if it does not exist."""
    rows = connection.execute(f"SELECT {BUCKET} FROM buckets WHERE name = ?", (name,)).fetchall()
    if not rows:
        return None
    _, account, createdMs, region, ownership, versioning, locks, generation = rows[0]
    return Bucket(name, account, createdMs, region, ownership, versioning, bool(locks), generation)


def bucketId(connection: Connection, name: str) -> int:
    """
    Look up the number of a bucket.

    @raise NoSuchBucket: The bucket does not exist.
    """
    rows = connection.execute("SELECT id FROM buckets WHERE name = ?", (name,)).fetchall()
    if not rows:
        raise NoSuchBucket
    number: int = rows[0][0]
    return number


@oneByOne
def createBucket(transaction: Transaction, bucket: Bucket) -> None:
    """
    Create a bucket.

    @raise BucketExists: The bucket already exists.
    """
    existing = transaction.value(
        f"SELECT {BUCKET_JSON} FROM buckets WHERE name = ?",
        (bucket.name,),
    )
    if existing is not None:
        raise BucketExists(_decodeBucket(existing))
    transaction.execute(
        f"INSERT INTO buckets ({BUCKET}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        structTuple(bucket),
    )


def deletion(ids: VersionIds, change: RemoveBucket) -> QueuedMutation:
    """Prepare L{deleteBucket}."""
    name = change.bucket
    return QueuedMutation(deleteBucket, name, frees=True, names=((name, b""),))


@oneByOne
def deleteBucket(transaction: Transaction, name: str) -> None:
    """
    Remove a bucket.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketNotEmpty: It holds objects, versions, delete markers or uploads.
    """
    number = bucketId(transaction.connection, name)
    if transaction.value(
        "SELECT EXISTS (SELECT 1 FROM objects WHERE bucketId = :bucket)"
        " OR EXISTS (SELECT 1 FROM versions WHERE bucketId = :bucket)"
        " OR EXISTS (SELECT 1 FROM uploads WHERE bucketId = :bucket)",
        {"bucket": number},
    ):
        raise BucketNotEmpty
    transaction.execute("DELETE FROM buckets WHERE id = ?", (number,))
    transaction.execute("DELETE FROM bucketSettings WHERE bucketId = ?", (number,))
    transaction.forgetUsage(number)


@oneByOne
def setVersioning(transaction: Transaction, change: SetVersioning) -> None:
    """
    Enable or suspend versioning of a bucket for all later writes.

    @raise NoSuchBucket: The bucket does not exist.
    @raise BucketLocked: Versioning cannot be suspended: the bucket has object lock.
    """
    number = bucketId(transaction.connection, change.bucket)
    isLocked = transaction.value("SELECT lockEnabled FROM buckets WHERE id = ?", (number,))
    if isLocked and change.versioning != VERSIONING_ENABLED:
        raise BucketLocked(change.bucket)
    transaction.execute(
        "UPDATE buckets SET versioning = ? WHERE id = ?", (change.versioning, number)
    )


def storeSettings(transaction: Transaction, change: PutSettings) -> int:
    """
    Store and remove settings of a bucket; return their new generation.

    @raise NoSuchBucket: The bucket does not exist.
    @raise SettingsChanged: A setting differs from the expected one.
    """
    number = bucketId(transaction.connection, change.bucket)
    if change.expected:
        _, present = readSettings(transaction.connection, change.bucket)
        if any(present.get(name) != document for name, document in change.expected.items()):
            raise SettingsChanged
    for name, document in change.documents.items():
        if document is None:
            transaction.execute(
                "DELETE FROM bucketSettings WHERE bucketId = ? AND name = ?", (number, name)
            )
        else:
            transaction.execute(
                "INSERT OR REPLACE INTO bucketSettings VALUES (?, ?, ?)", (number, name, document)
            )
    # A write number never repeats, even for a later bucket of the same name.
    generation = transaction.takeSequence()
    transaction.execute("UPDATE buckets SET generation = ? WHERE id = ?", (generation, number))
    return generation


def hasKeyOf(transaction: Transaction, number: int, attributes: Attributes) -> bool:
    """
    Return whether a bucket has the key that wraps the key of an object. The bucket may have been
    removed and created again since the object was encrypted.

    @param number: The number of the bucket.
    """
    encryption = attributes.encryption
    if encryption is None or not encryption.bucketKey:
        return True
    found = transaction.value(
        "SELECT 1 FROM bucketSettings WHERE bucketId = ? AND name = ?",
        (number, BUCKET_KEY + encryption.bucketKey),
    )
    return found is not None


putSettings = oneByOne(storeSettings)
"""Applies L{storeSettings} to requests one by one."""


def readSettings(connection: Connection, name: str) -> tuple[int, dict[str, bytes]]:
    """
    Read the settings of a bucket and their generation, in one statement.

    @raise NoSuchBucket: The bucket does not exist.
    """
    rows = connection.execute(
        "SELECT b.generation, s.name, s.document FROM buckets AS b"
        " LEFT JOIN bucketSettings AS s ON s.bucketId = b.id WHERE b.name = ?",
        (name,),
    ).fetchall()
    if not rows:
        raise NoSuchBucket
    documents = {setting: document for _, setting, document in rows if setting is not None}
    return rows[0][0], documents


def readAccessKeys(connection: Connection) -> tuple[int, list[AccessKey]]:
    """Read the generation and all keys, by name, in one statement, and so in one snapshot."""
    rows = connection.execute(
        "SELECT value, accessKeys.* FROM meta LEFT JOIN accessKeys ON TRUE"
        " WHERE name = 'keysGeneration' ORDER BY accessKey"
    ).fetchall()
    return rows[0][0], [_accessKey(*row) for _, *row in rows if row[0] is not None]


def _accessKey(*row: Any) -> AccessKey:
    key = AccessKey(*row)
    return evolve(key, disabled=bool(key.disabled))


def readKeyUses(connection: Connection) -> dict[str, int]:
    """Read when each key was last used, in ms."""
    return dict(connection.execute("SELECT accessKey, lastUsedMs FROM keyUses").fetchall())


def readKeysGeneration(connection: Connection) -> int:
    """Read the generation of the keys."""
    rows = connection.execute("SELECT value FROM meta WHERE name = 'keysGeneration'").fetchall()
    generation: int = rows[0][0]
    return generation


def readIdentities(
    connection: Connection, after: int = 0
) -> tuple[int, dict[str, AccountDocuments]]:
    """
    Read the generation of the keys and the documents of accounts, in one statement.

    @param after: Only accounts with a greater revision.
    """
    rows = connection.execute(
        "SELECT m.value, a.account, a.revision, i.kind, i.name, i.document FROM meta AS m"
        " LEFT JOIN identities AS a ON a.kind = ? AND a.revision > ?"
        " LEFT JOIN identities AS i ON i.account = a.account"
        " WHERE m.name = 'keysGeneration'",
        (ACCOUNT, after),
    ).fetchall()
    found = gatherIdentities(row for _, *row in rows if row[0] is not None)
    return rows[0][0], found


@oneByOne
def putIdentities(transaction: Transaction, change: PutIdentities) -> int:
    """
    Store documents and keys of an account; return the account's new revision.

    @raise IdentitiesChanged: The account has another revision, or a changed key does not exist.
    @raise KeyExists: The access key of a new key is taken.
    """
    account = change.account
    found = transaction.value(
        "SELECT revision FROM identities WHERE account = ? AND kind = ? AND name = ''",
        (account, ACCOUNT),
    )
    if (found or 0) != change.revision:
        raise IdentitiesChanged
    for key in change.addedKeys:
        if _hasKey(transaction, key.accessKey):
            raise KeyExists
    if not all(_hasKey(transaction, key.accessKey) for key in change.changedKeys):
        raise IdentitiesChanged
    # Nothing is written before all of it is known to be valid.
    _incrementGeneration(transaction)
    revision = transaction.value("SELECT value FROM meta WHERE name = 'keysGeneration'")
    assert isinstance(revision, int)
    for accessKey in (*change.removedKeys, *(key.accessKey for key in change.changedKeys)):
        _deleteKey(transaction, accessKey)
    for accessKey in change.removedKeys:
        transaction.execute("DELETE FROM keyUses WHERE accessKey = ?", (accessKey,))
    for key in (*change.changedKeys, *change.addedKeys):
        _insertKey(transaction, key)
    for (kind, name), document in ((ACCOUNT, ""), b"{}"), *change.documents.items():
        if document is None:
            transaction.execute(
                "DELETE FROM identities WHERE account = ? AND kind = ? AND name = ?",
                (account, kind, name),
            )
        else:
            transaction.execute(
                "INSERT OR REPLACE INTO identities VALUES (?, ?, ?, ?, ?)",
                (account, kind, name, revision, document),
            )
    return revision


def _hasKey(transaction: Transaction, accessKey: str) -> bool:
    found = transaction.value("SELECT 1 FROM accessKeys WHERE accessKey = ?", (accessKey,))
    return found is not None


@oneByOne
def addAccessKey(transaction: Transaction, key: AccessKey) -> None:
    """
    Issue a key.

    @raise KeyExists: The access key is taken.
    """
    if _hasKey(transaction, key.accessKey):
        raise KeyExists
    _insertKey(transaction, key)
    _incrementGeneration(transaction)


@oneByOne
def changeAccessKey(transaction: Transaction, key: AccessKey) -> bool:
    """Replace a key of the same name; return whether it existed."""
    if not _deleteKey(transaction, key.accessKey):
        return False
    _insertKey(transaction, key)
    _incrementGeneration(transaction)
    return True


@oneByOne
def removeAccessKey(transaction: Transaction, accessKey: str) -> bool:
    """Revoke a key; return whether it existed."""
    if not _deleteKey(transaction, accessKey):
        return False
    transaction.execute("DELETE FROM keyUses WHERE accessKey = ?", (accessKey,))
    _incrementGeneration(transaction)
    return True


@oneByOne
def noteKeyUses(transaction: Transaction, uses: Mapping[str, int]) -> None:
    """Record when keys were last used; ignore revoked keys."""
    for accessKey, lastUsedMs in uses.items():
        transaction.execute(
            "INSERT OR REPLACE INTO keyUses"
            " SELECT accessKey, max(?, ifnull(lastUsedMs, 0)) FROM accessKeys"
            " LEFT JOIN keyUses USING (accessKey) WHERE accessKey = ?",
            (lastUsedMs, accessKey),
        )


def _insertKey(transaction: Transaction, key: AccessKey) -> None:
    marks = ", ".join("?" * len(fields(AccessKey)))
    transaction.execute(f"INSERT INTO accessKeys VALUES ({marks})", astuple(key))


def _deleteKey(transaction: Transaction, accessKey: str) -> bool:
    gone = transaction.value(
        "DELETE FROM accessKeys WHERE accessKey = ? RETURNING accessKey", (accessKey,)
    )
    return gone is not None


def _incrementGeneration(transaction: Transaction) -> None:
    transaction.execute("UPDATE meta SET value = value + 1 WHERE name = 'keysGeneration'")
