"""A catalog in memory, without threads: its functions are plain functions of a connection."""

from collections.abc import Mapping
from sqlite3 import Connection

from storagegate.storage.embedded.buckets import createBucket
from storagegate.storage.embedded.connections import Durability, Purpose, connect, migrate
from storagegate.storage.embedded.deletions import deletion
from storagegate.storage.embedded.groupcommit import Apply, QueuedMutation, runTogether
from storagegate.storage.embedded.objects import storing
from storagegate.storage.embedded.uploads import createUpload
from storagegate.storage.mutations import PutObject, RemoveObjects
from storagegate.storage.records import ObjectRecord, Removal, WriteCondition
from storagegate.storage.versionids import VersionIds
from tests.contract.catalogcase import ALWAYS, bucketNamed

IDS = VersionIds(b"s" * 32)
CREATE_BUCKET = createBucket
REMOVED = Removal(True, isChanged=True)
"""The outcome where an object was removed from a bucket that never had versioning."""
CREATE_UPLOAD = createUpload


def memoryCatalog() -> Connection:
    """Open a catalog in memory that has the bucket C{b}, and a neighbour on each side of it."""
    connection = connect(":memory:", Durability.OS, Purpose.WRITER)
    migrate(connection, "memory")
    change(connection, CREATE_BUCKET, *map(bucketNamed, ("a", "b", "c")))
    return connection


def change(connection: Connection, apply: Apply, *arguments: object) -> list[object]:
    """Run mutations together and give their outcomes."""
    return runTogether(connection, [QueuedMutation(apply, argument) for argument in arguments])[0]


def putOf(
    record: ObjectRecord,
    condition: WriteCondition = ALWAYS,
    newBlobs: Mapping[str, int] | None = None,
) -> QueuedMutation:
    """Make the mutation that stores an object."""
    return storing(IDS, PutObject(record, condition, newBlobs or {}))


def deletionOf(*keys: bytes) -> QueuedMutation:
    """Make the mutation that removes objects of the bucket C{b}."""
    entries = tuple((key, None, ALWAYS) for key in keys)
    return deletion(IDS, RemoveObjects("b", entries, "alice", 1))
