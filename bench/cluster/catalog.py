"""
The catalog by itself, embedded or in PostgreSQL, without HTTP.

    python -m bench.cluster.catalog sqlite|postgresql PLACE KEYS WORK CONNECTIONS SECONDS

PLACE is a directory, or the conninfo of a database with the schema. WORK is C{fill}, C{put},
C{put4k}, C{replace}, C{get}, C{list} or C{groups}. Both catalogs commit with C{fsync}.
"""

import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThreadPool

from bench.loads import prints, report
from storagegate.storage.cluster.catalog import openPostgreSQL
from storagegate.storage.embedded.catalog import SQLiteCatalog
from storagegate.storage.mutations import AddBucket, PutObject
from storagegate.storage.ranges import ObjectRange
from storagegate.storage.records import Attributes, Bucket, Content, ObjectRecord, WriteCondition

GROUP = 25
LIMIT = 1000
WRITTEN = 2000
"""Objects that are replaced and looked up."""

_STEP = 7919
"""A prime: the keys are visited in no order."""


def recordOf(bucket: str, key: bytes, size: int = 128) -> ObjectRecord:
    """Make a small object."""
    attributes = Attributes(contentType="application/octet-stream")
    content = Content(size, b"x" * size)
    etag = "0123456789abcdef0123456789abcdef"
    return ObjectRecord(bucket, key, size, etag, 1_700_000_000_123, "bench", attributes, content)


def keysOf(most: int) -> Iterator[str]:
    """Return the keys of the bucket to list: one half in groups, the other not."""
    for number in range(most // 2):
        yield f"g{number // GROUP:07d}/{number % GROUP:02d}"
    for number in range(most // 2):
        yield f"t{number:08d}"


def copyPostgreSQL(conninfo: str, most: int) -> None:
    """Copy the one row of the bucket C{listed}, under other keys."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        [[bucket, *values]] = connection.execute(
            "SELECT o.* FROM objects AS o JOIN buckets AS b ON b.id = o.bucketid"
            " WHERE b.name = 'listed'"
        ).fetchall()
        with connection.cursor().copy("COPY objects FROM STDIN") as copy:
            for number, key in enumerate(keysOf(most)):
                copy.write_row([bucket, key.encode(), number - most, *values[2:]])
        connection.execute("VACUUM ANALYZE objects")


def copySQLite(path: Path, most: int) -> None:
    """Copy the one row of the bucket C{listed}, under other keys."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT o.* FROM objects AS o JOIN buckets AS b ON b.id = o.bucketId"
        " WHERE b.name = 'listed'"
    )
    names = [each[0] for each in found.description]
    values = found.fetchone()
    place, sequence = names.index("key"), names.index("sequence")
    kind = type(values[place])

    def rows() -> Iterator[list[Any]]:
        for number, key in enumerate(keysOf(most)):
            row = list(values)
            row[place], row[sequence] = (key if kind is str else key.encode()), number - most
            yield row

    marks = ", ".join("?" * len(names))
    connection.executemany(f"INSERT INTO objects VALUES ({marks})", rows())
    connection.commit()
    connection.close()


def written(number: int) -> bytes:
    """Return the key of an object that is replaced and looked up."""
    return b"w%06d" % (number * _STEP % WRITTEN)


async def fill(catalog: Any, inThread: Any, copy: Callable[..., None], *arguments: object) -> None:
    """Make the objects to list, to replace and to look up."""
    for name in ("listed", "written"):
        await catalog.commit(AddBucket(Bucket(name, "bench", 0, "us-east-1")))
    await catalog.commit(PutObject(recordOf("listed", b"z"), WriteCondition()))
    always = WriteCondition()
    records = [recordOf("written", written(number)) for number in range(WRITTEN)]
    await gatherResults([catalog.commit(PutObject(each, always)) for each in records])
    await inThread(copy, *arguments)


def worksOf(catalog: Any, keys: int) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return the works."""
    numbers, nonce, always = count(), os.urandom(4).hex().encode(), WriteCondition()

    def put(size: int) -> Callable[[], Awaitable[object]]:
        return lambda: catalog.commit(
            PutObject(recordOf("written", b"n%b/%07d" % (nonce, next(numbers)), size), always)
        )

    def replace() -> Awaitable[object]:
        return catalog.commit(
            PutObject(  # type: ignore[no-any-return]
                recordOf("written", written(next(numbers))), always
            )
        )

    async def get() -> None:
        # A record in the cache of the embedded catalog is no look-up.
        if isinstance(catalog, SQLiteCatalog):
            catalog._cache.clear()
        await catalog.object("written", written(next(numbers)))

    def page(prefix: bytes, delimiter: bytes, places: int) -> Callable[[], Awaitable[object]]:
        async def one() -> None:
            place = next(numbers) * _STEP % max(1, places - LIMIT)
            after = b"g%07d/" % place if delimiter else b"t%08d" % place
            found = await catalog.listObjects(
                ObjectRange("listed", prefix, delimiter, after, LIMIT)
            )
            assert len(found.objects) + len(found.prefixes) == min(LIMIT, places - place - 1)

        return one

    return {
        "put": put(128),
        "put4k": put(4096),
        "replace": replace,
        "get": get,
        "list": page(b"t", b"", keys // 2),
        "groups": page(b"g", b"/", keys // 2 // GROUP),
    }


async def run(reactor: Any, kind: str, place: str, keys: str, name: str, *rest: str) -> None:
    """Measure, and print the report."""

    def inThread(function: Any, *arguments: Any) -> Any:
        return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

    catalog: Any
    path = Path(place, "catalog.sqlite")
    if kind == "postgresql":
        catalog = openPostgreSQL(reactor, [place], "bench", 86400.0)
    else:
        catalog = SQLiteCatalog(str(path), reactor, inThread, "full", lambda garbage: None)
    if name == "fill":
        copy, target = (copySQLite, path) if kind == "sqlite" else (copyPostgreSQL, place)
        await fill(catalog, inThread, copy, target, int(keys))
    else:
        connections, seconds = int(rest[0]), float(rest[1])
        work = worksOf(catalog, int(keys))[name]
        times: list[float] = []
        began, used = perf_counter(), process_time()

        async def client() -> None:
            while (start := perf_counter()) < began + seconds:
                await work()
                times.append(perf_counter() - start)
                if not len(times) % 256:
                    # A catalog in memory never lets the reactor run.
                    await deferLater(reactor, 0)

        await gatherResults([Deferred.fromCoroutine(client()) for _ in range(connections)])
        print(prints(report(times, perf_counter() - began, process_time() - used)), flush=True)
    await catalog.close()


def main(reactor: Any, *arguments: str) -> Deferred[None]:
    """Run as a program."""
    return Deferred.fromCoroutine(run(reactor, *arguments))


if __name__ == "__main__":
    react(main, sys.argv[1:])
