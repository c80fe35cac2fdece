"""Access keys; each change counts the generation up, which other processes watch."""

from sqlite3 import Connection

from attrs import astuple

from storagegate.storage.catalog.transactions import Transaction
from storagegate.storage.errors import KeyExists
from storagegate.storage.records import AccessKey


def readAccessKeys(connection: Connection) -> list[AccessKey]:
    """Read all keys, by name."""
    rows = connection.execute("SELECT * FROM accessKeys ORDER BY accessKey").fetchall()
    return [AccessKey(*row) for row in rows]


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
