"""
Fill a bucket with versions, in a store that no daemon has open, through the store's own interface.

    python -m bench.growth.versionfill DATA KIND COUNT

C{versions} makes ten versions of each of COUNT keys of a bucket to list, C{deleted} deletes COUNT
keys between a thousand that live, and C{deep} writes one object of 4 KiB COUNT times.
"""

import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react

from bench.s3.bulkfill import TOGETHER, template
from bench.s3.requests import BUCKET, GROUP, KIB, LISTED_SIZE, listedKeys
from storagegate.objects.accounts import ROOT_ACCOUNT
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.mutations import AddBucket, PutObject, RemoveObjects, SetVersioning
from storagegate.storage.records import VERSIONING_ENABLED, Bucket, ObjectRecord, WriteCondition
from storagegate.storage.store import ObjectStore

VERSIONS = 10
DEEP_KEY = "k/4k-000000"


def deletedKeys(count: int) -> Iterator[str]:
    """Name keys that are deleted, in order: as many behind each of a group's."""
    return (f"{key}-{number:04d}" for key in listedKeys(GROUP) for number in range(count // GROUP))


class _Filler:
    def __init__(self, store: ObjectStore, record: ObjectRecord) -> None:
        self._catalog: Any = store.catalog
        self._record = record

    async def put(self, keys: Iterator[str]) -> None:
        """Write objects; a key that comes again gets another version."""
        always = WriteCondition()
        while batch := list(islice(keys, TOGETHER)):
            records = [replace(self._record, key=key.encode()) for key in batch]
            await gatherResults(
                [self._catalog.commit(PutObject(each, always)) for each in records],
                consumeErrors=True,
            )

    async def delete(self, keys: Iterator[str]) -> None:
        """Put delete markers on objects."""
        always = WriteCondition()
        while batch := [(key.encode(), None, always) for key in islice(keys, TOGETHER)]:
            await self._catalog.commit(
                RemoveObjects(self._record.bucket, batch, ROOT_ACCOUNT, self._record.modifiedMs)
            )


async def fill(reactor: Any, data: str, kind: str, count: int) -> None:
    """
    Make a bucket with versions.

    @param kind: C{versions}, C{deleted} or C{deep}.
    @param count: Keys, keys that are deleted, or versions.
    """
    nowMs = int(time.time() * 1000)
    buckets = {"versions": f"list-{count}", "deleted": f"list-{GROUP}", "deep": BUCKET[1:]}
    store = openStore(data, reactor, durability="os")
    bucket = buckets[kind]
    await store.catalog.commit(AddBucket(Bucket(bucket, ROOT_ACCOUNT, nowMs, "us-east-1")))
    await store.catalog.commit(SetVersioning(bucket, VERSIONING_ENABLED))
    filler = _Filler(store, template(bucket, 4 * KIB if kind == "deep" else LISTED_SIZE, nowMs))
    if kind == "versions":
        for _ in range(VERSIONS):
            await filler.put(listedKeys(count))
    elif kind == "deleted":
        await filler.put(listedKeys(GROUP))
        await filler.put(deletedKeys(count))
        await filler.delete(deletedKeys(count))
    else:
        await filler.put(iter([DEEP_KEY] * count))
    await store.close()


def main(reactor: Any, data: str, kind: str, count: str) -> Deferred[None]:
    """Run as a program."""
    return Deferred.fromCoroutine(fill(reactor, data, kind, int(count)))


if __name__ == "__main__":
    react(main, sys.argv[1:])
