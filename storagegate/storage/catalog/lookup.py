"""What is there under a name, and whether a write may happen there."""

from collections.abc import Sequence
from functools import cache

import msgspec
from attrs import frozen

from storagegate.storage.catalog.transactions import Transaction
from storagegate.storage.errors import NoSuchBucket, NoSuchKey, PreconditionFailed, StoreError
from storagegate.storage.records import WriteCondition

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
