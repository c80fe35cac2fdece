"""
Fill a bucket of a store that no daemon has open, through the store's own interface.

    python -m bench.s3.bulkfill DATA BUCKET COUNT SIZE

A million PUTs over the wire take one core three minutes and more. This writes the same rows, object
by object through C{putObject} of the catalog with its group commit, without HTTP and without
syncing each group.
"""

import hashlib
import sys
import time
from itertools import islice
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from bench.s3.requests import listedKeys
from storagegate.objects.accounts import ROOT_ACCOUNT
from storagegate.objects.checksums import DEFAULT_ALGORITHM, encodeDigest, newHasher
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.mutations import AddBucket, PutObject
from storagegate.storage.records import (
    Attributes,
    Bucket,
    Checksum,
    Content,
    ObjectRecord,
    WriteCondition,
)

TOGETHER = 1000
"""Objects of one commit: the catalog holds this many in memory."""


def template(bucket: str, size: int, nowMs: int) -> ObjectRecord:
    """Make the record that a PUT of C{size} bytes would leave, under no key yet."""
    body = b"x" * size
    hasher = newHasher(DEFAULT_ALGORITHM)
    hasher.update(body)
    return ObjectRecord(
        bucket=bucket,
        key=b"",
        size=size,
        etag=hashlib.md5(body, usedforsecurity=False).hexdigest(),
        modifiedMs=nowMs,
        account=ROOT_ACCOUNT,
        attributes=Attributes(
            contentType="application/octet-stream",
            checksum=Checksum(DEFAULT_ALGORITHM, encodeDigest(hasher.digest())),
        ),
        content=Content(size, inline=body),
    )


async def fill(reactor: Any, data: str, bucket: str, count: int, size: int) -> None:
    """Make a bucket of C{count} objects."""
    nowMs = int(time.time() * 1000)
    store = openStore(data, reactor, durability="os")
    await store.catalog.commit(AddBucket(Bucket(bucket, ROOT_ACCOUNT, nowMs, "us-east-1")))
    record = template(bucket, size, nowMs)
    keys = listedKeys(count)
    while batch := list(islice(keys, TOGETHER)):
        records = [replace(record, key=key.encode()) for key in batch]
        await gatherResults(
            [store.catalog.commit(PutObject(each, WriteCondition())) for each in records],
            consumeErrors=True,
        )
    await store.close()


def main(reactor: Any, data: str, bucket: str, count: str, size: str) -> Deferred[None]:
    """Run as a program."""
    return Deferred.fromCoroutine(fill(reactor, data, bucket, int(count), int(size)))


if __name__ == "__main__":
    react(main, sys.argv[1:])
