"""
Buckets and access keys.

Each change of the keys increments their generation, which other processes poll. L{CatalogAdmin}
changes keys without a reactor, beside a running daemon or without one.
"""

from sqlite3 import Connection

import msgspec
from attrs import astuple, define

from storagegate.storage.catalog.connections import Durability, Purpose, connect, prepare
from storagegate.storage.catalog.writer import (
    Apply,
    Mutation,
    Transaction,
    oneByOne,
    runTogether,
)
from storagegate.storage.errors import (
    BucketExists,
    BucketNotEmpty,
    KeyExists,
    NoSuchBucket,
    StoreBusy,
    StoreFull,
)
from storagegate.storage.records import AccessKey, Bucket
from storagegate.storage.sqlite import Fault, classify

_decodeBucket = msgspec.json.Decoder(Bucket).decode


def bucketId(connection: Connection, name: str) -> int:
    """
    Look up the number of a bucket.

    @raise NoSuchBucket: There is none of that name.
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

    @raise BucketExists: It exists already.
    """
    existing = transaction.value(
        "SELECT json_object('name', name, 'account', account, 'createdMs', createdMs,"
        " 'region', region, 'ownership', ownership) FROM buckets WHERE name = ?",
        (bucket.name,),
    )
    if existing is not None:
        raise BucketExists(_decodeBucket(existing))
    transaction.execute(
        "INSERT INTO buckets (name, account, createdMs, region, ownership) VALUES (?, ?, ?, ?, ?)",
        astuple(bucket),
    )


@oneByOne
def deleteBucket(transaction: Transaction, name: str) -> None:
    """
    Remove a bucket.

    @raise NoSuchBucket: It does not exist.
    @raise BucketNotEmpty: It holds objects or uploads.
    """
    number = bucketId(transaction.connection, name)
    if transaction.value(
        "SELECT EXISTS (SELECT 1 FROM objects WHERE bucketId = ?)"
        " OR EXISTS (SELECT 1 FROM uploads WHERE bucketId = ?)",
        (number, number),
    ):
        raise BucketNotEmpty
    transaction.execute("DELETE FROM buckets WHERE id = ?", (number,))
    transaction.forgetUsage(number)


def readAccessKeys(connection: Connection) -> tuple[int, list[AccessKey]]:
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


@oneByOne
def addAccessKey(transaction: Transaction, key: AccessKey) -> None:
    """
    Issue a key.

    @raise KeyExists: The access key is taken.
    """
    if transaction.value("SELECT 1 FROM accessKeys WHERE accessKey = ?", (key.accessKey,)):
        raise KeyExists
    transaction.execute("INSERT INTO accessKeys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(key))
    _incrementGeneration(transaction)


@oneByOne
def removeAccessKey(transaction: Transaction, accessKey: str) -> bool:
    """Revoke a key; return whether it existed."""
    gone = transaction.value(
        "DELETE FROM accessKeys WHERE accessKey = ? RETURNING accessKey", (accessKey,)
    )
    if gone is None:
        return False
    _incrementGeneration(transaction)
    return True


def _incrementGeneration(transaction: Transaction) -> None:
    transaction.execute("UPDATE meta SET value = value + 1 WHERE name = 'keysGeneration'")


@define(eq=False)
class CatalogAdmin:
    """
    Issues and revokes access keys. All methods block.

    @ivar _connection: L{close} closes it.
    """

    _connection: Connection

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def accessKeys(self) -> list[AccessKey]:
        """Read all issued keys."""
        return readAccessKeys(self._connection)[1]

    def addAccessKey(self, key: AccessKey) -> None:
        """
        Issue a key.

        @raise KeyExists: The access key is taken.
        """
        self._change(addAccessKey, key)

    def removeAccessKey(self, accessKey: str) -> bool:
        """Revoke a key; return whether it existed."""
        return self._change(removeAccessKey, accessKey) is True

    def _change(self, apply: Apply, argument: object) -> object:
        try:
            (outcome,), _ = runTogether(self._connection, [Mutation(apply, argument)])
        except Exception as error:
            fault = classify(error)
            if fault is Fault.BUSY:
                raise StoreBusy from error
            if fault is Fault.FULL:
                raise StoreFull from error
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def openForTools(path: str) -> CatalogAdmin:
    """
    Open a catalog, making and migrating it as the daemon would.

    @param path: The C{catalog.sqlite} of a store.
    @raise CatalogUnusable: It cannot be opened; the text says why in one line.
    """
    prepare(path, Durability.FULL)
    return CatalogAdmin(connect(path, Durability.FULL, Purpose.WRITER))
