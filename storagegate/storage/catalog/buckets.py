"""
Buckets.

Access keys; each change counts the generation up, which other processes watch.
"""

from sqlite3 import Connection

import msgspec
from attrs import astuple

from storagegate.storage.catalog.transactions import Transaction
from storagegate.storage.errors import BucketExists, BucketNotEmpty, KeyExists, NoSuchBucket
from storagegate.storage.records import AccessKey, Bucket

_decodeBucket = msgspec.json.Decoder(Bucket).decode


def bucketId(transaction: Transaction, name: str) -> int:
    """
    Look up the number of a bucket.

    @raise NoSuchBucket: There is none of that name.
    """
    found: int | None = transaction.value("SELECT id FROM buckets WHERE name = ?", (name,))
    if found is None:
        raise NoSuchBucket
    return found


def createBucket(transaction: Transaction, bucket: Bucket) -> None:
    """
    Create a bucket.

    @raise BucketExists: It is there already.
    """
    there = transaction.value(
        "SELECT json_object('name', name, 'account', account, 'createdMs', createdMs,"
        " 'region', region) FROM buckets WHERE name = ?",
        (bucket.name,),
    )
    if there is not None:
        raise BucketExists(_decodeBucket(there))
    transaction.execute(
        "INSERT INTO buckets (name, account, createdMs, region) VALUES (?, ?, ?, ?)",
        (bucket.name, bucket.account, bucket.createdMs, bucket.region),
    )


def deleteBucket(transaction: Transaction, name: str) -> None:
    """
    Remove a bucket.

    @raise NoSuchBucket: It is not there.
    @raise BucketNotEmpty: It holds objects or uploads.
    """
    number = bucketId(transaction, name)
    if transaction.value(
        "SELECT EXISTS (SELECT 1 FROM objects WHERE bucketId = ?)"
        " OR EXISTS (SELECT 1 FROM uploads WHERE bucketId = ?)",
        (number, number),
    ):
        raise BucketNotEmpty
    transaction.execute("DELETE FROM buckets WHERE id = ?", (number,))


def readAccessKeys(connection: Connection) -> list[AccessKey]:
    """Read all keys, by name."""
    rows = connection.execute("SELECT * FROM accessKeys ORDER BY accessKey").fetchall()
    return [AccessKey(*row) for row in rows]


def readSnapshot(connection: Connection) -> tuple[int, list[AccessKey]]:
    """Read the generation and all keys by name as they are at one moment: in one statement."""
    rows = connection.execute(
        "SELECT value, accessKeys.* FROM meta LEFT JOIN accessKeys ON TRUE"
        " WHERE name = 'keysGeneration' ORDER BY accessKey"
    ).fetchall()
    return rows[0][0], [AccessKey(*row) for _, *row in rows if row[0] is not None]


def readKeysGeneration(connection: Connection) -> int:
    """Read the number that changes with the keys."""
    rows = connection.execute("SELECT value FROM meta WHERE name = 'keysGeneration'").fetchall()
    generation: int = rows[0][0]
    return generation


def addAccessKey(transaction: Transaction, key: AccessKey) -> None:
    """
    Issue a key.

    @raise KeyExists: The access key is taken.
    """
    if transaction.value("SELECT 1 FROM accessKeys WHERE accessKey = ?", (key.accessKey,)):
        raise KeyExists
    transaction.execute("INSERT INTO accessKeys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(key))
    _countUp(transaction)


def removeAccessKey(transaction: Transaction, accessKey: str) -> bool:
    """Revoke a key; say whether it was there."""
    gone = transaction.value(
        "DELETE FROM accessKeys WHERE accessKey = ? RETURNING accessKey", (accessKey,)
    )
    if gone is None:
        return False
    _countUp(transaction)
    return True


def _countUp(transaction: Transaction) -> None:
    transaction.execute("UPDATE meta SET value = value + 1 WHERE name = 'keysGeneration'")
