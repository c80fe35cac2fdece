#!/usr/bin/env python3
"""
How fast the catalog in PostgreSQL is beside the embedded one, each by itself, without HTTP.

    python bench/bench_catalog.py CONNINFO DIRECTORY [--keys 100000] [--rounds 5] [--seconds 2]

CONNINFO names an empty database of a server whose disk is as durable as that of DIRECTORY, where
the embedded catalog lies; both commit with C{fsync}. In each round every catalog has its turn with
each work, so what is compared was measured within seconds. Ratios above 1 are rates in favour of
PostgreSQL; of lists, whose times are compared, those below 1. Where the server is on this machine,
the time is shown that processors spent on it, too.
"""

import argparse
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import psycopg
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThreadPool

from storagegate.storage.catalog.postgresql.catalog import openPostgreSQL
from storagegate.storage.catalog.sqlite import SQLiteCatalog
from storagegate.storage.records import Attributes, Bucket, Content, ObjectRecord, WriteCondition

TOGETHER = 64
GROUP = 25
PAGES = 20
LIMIT = 1000

PAGES_OF: dict[str, tuple[bytes, bytes, bool]] = {
    "keys": (b"t", b"", False),
    "keys with delimiter": (b"t", b"/", False),
    "groups": (b"g", b"/", True),
}
"""Lists: the prefix, the delimiter, whether it is one of groups."""


def recordOf(bucket: str, key: bytes, size: int) -> ObjectRecord:
    """Make a small object."""
    attributes = Attributes(contentType="application/octet-stream")
    content = Content(size, b"x" * size)
    etag = "0123456789abcdef0123456789abcdef"
    return ObjectRecord(bucket, key, size, etag, 1_700_000_000_123, "bench", attributes, content)


def keysOf(most: int) -> Iterator[str]:
    """Give the keys of a bucket: one half in groups, the other not."""
    for number in range(most // 2):
        yield f"g{number // GROUP:07d}/{number % GROUP:02d}"
    for number in range(most // 2):
        yield f"t{number:08d}"


def fillPostgreSQL(conninfo: str, most: int) -> None:
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


def fillSQLite(path: Path, most: int) -> None:
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


class ServerTime:
    """The processor time of a server's processes for one database, if they run here."""

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._ticks = os.sysconf("SC_CLK_TCK")

    def seconds(self) -> float:
        """Return the seconds until now, of the processes that live now."""
        rows = self._connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " OR backend_type IN ('walwriter', 'checkpointer', 'background writer')"
        ).fetchall()
        ticks = 0
        for (number,) in rows:
            with suppress(OSError):
                fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / self._ticks


class Bench:
    """
    Both catalogs, and what was measured.

    @ivar figures: For each work and catalog what each round has measured.
    """

    def __init__(self, reactor: Any, options: argparse.Namespace) -> None:
        self._reactor = reactor
        self._options = options
        self._server = ServerTime(options.conninfo)
        self.figures: dict[str, dict[str, list[float]]] = {}

    async def run(self) -> None:
        """Fill both, measure, print."""
        options, reactor = self._options, self._reactor
        path = Path(options.directory, "catalog.sqlite")

        def inThread(function: Any, *arguments: Any) -> Any:
            return deferToThreadPool(reactor, reactor.getThreadPool(), function, *arguments)

        remote = openPostgreSQL(reactor, [options.conninfo], "bench", 86400.0)
        local = SQLiteCatalog(str(path), reactor, inThread, "full", lambda garbage: None)
        self.catalogs: dict[str, Any] = {"postgresql": remote, "sqlite": local}
        if await local.bucket("listed") is None:
            for catalog in self.catalogs.values():
                for name in ("listed", "written"):
                    await catalog.createBucket(Bucket(name, "bench", 0, "us-east-1"))
                await catalog.putObject(recordOf("listed", b"z", 0), WriteCondition())
            await gatherResults(
                [
                    inThread(fillSQLite, path, options.keys),
                    inThread(fillPostgreSQL, options.conninfo, options.keys),
                ]
            )
        for number in range(options.rounds):
            if "rows" in options.works:
                for size in (128, 4096):
                    await self._rows(number, size)
            if "lists" in options.works:
                await self._lists()
        self._print()
        for catalog in self.catalogs.values():
            await catalog.close()

    async def _rows(self, round: int, size: int) -> None:
        """Put new objects, replace them, look them up."""
        for name, catalog in self.catalogs.items():
            await self._rowsOf(name, catalog, f"{size}/{round}", size)

    async def _rowsOf(self, name: str, catalog: Any, prefix: str, size: int) -> None:
        written: list[bytes] = []
        reads = count()

        def key() -> bytes:
            """Give one of those that were written, in no order."""
            return written[next(reads) * 7919 % len(written)]

        async def put() -> None:
            written.append(f"{prefix}/{len(written):07d}".encode())
            await catalog.putObject(recordOf("written", written[-1], size), WriteCondition())

        async def replace() -> None:
            await catalog.putObject(recordOf("written", key(), size), WriteCondition())

        async def read() -> None:
            if name == "sqlite":
                # Records that are cached there are no look-ups.
                catalog._cache.clear()
            await catalog.object("written", key())

        for work, one, atOnce in (
            (f"new row x64, {size} B", put, TOGETHER),
            (f"row replaced x64, {size} B", replace, TOGETHER),
            (f"look-up x64, {size} B", read, TOGETHER),
            (f"look-up alone, {size} B", read, 1),
        ):
            used, server = process_time(), self._server.seconds()
            rate, done = await self._rate(one, atOnce)
            self._add(work, name, rate)
            server = self._server.seconds() - server
            self._add(work + ", us here", name, (process_time() - used) / done * 1e6)
            if name == "postgresql":
                self._add(work + ", us there", name, server / done * 1e6)

    async def _rate(self, one: Callable[[], Awaitable[None]], atOnce: int) -> tuple[float, int]:
        """Return how often a second something is done, and how often it was done."""
        seconds: float = self._options.seconds
        began = perf_counter()
        done = 0

        async def loop() -> None:
            nonlocal done
            while perf_counter() < began + seconds:
                await one()
                done += 1
                if not done % 256:
                    # A catalog in memory never lets the reactor run.
                    await deferLater(self._reactor, 0)

        await gatherResults([Deferred.fromCoroutine(loop()) for _ in range(atOnce)])
        return done / (perf_counter() - began), done

    async def _lists(self) -> None:
        """List pages from all over the bucket."""
        half = self._options.keys // 2
        for work, (prefix, delimiter, isGrouped) in PAGES_OF.items():
            places = max(1, half // GROUP if isGrouped else half) - LIMIT
            times: dict[str, list[float]] = {name: [] for name in self.catalogs}
            busy: dict[str, list[float]] = {name: [] for name in self.catalogs}
            server = self._server.seconds()
            for number in range(PAGES):
                place = max(0, places) * number // PAGES
                after = b"g%07d/" % place if isGrouped else b"t%08d" % place
                # In turns, so that what else the machine does meets both.
                for name, catalog in self.catalogs.items():
                    began, used = perf_counter(), process_time()
                    page = await catalog.listObjects("listed", prefix, delimiter, after, LIMIT)
                    times[name].append((perf_counter() - began) * 1000)
                    busy[name].append((process_time() - used) * 1000)
                    assert len(page.objects) + len(page.prefixes) == LIMIT
            for name in self.catalogs:
                self._add(work + ", ms", name, median(times[name]))
                self._add(work + ", CPU ms here", name, median(busy[name]))
            spent = (self._server.seconds() - server) / PAGES * 1000
            self._add(work + ", CPU ms there", "postgresql", spent)

    def _add(self, work: str, name: str, figure: float) -> None:
        self.figures.setdefault(work, {}).setdefault(name, []).append(figure)

    def _print(self) -> None:
        print(f"{self._options.keys} keys listed, {self._options.rounds} rounds")
        print(f"{'work':32}{'sqlite':>10}{'postgresql':>12}{'ratio':>8}{'least':>7}{'most':>7}")
        for work, both in self.figures.items():
            if "sqlite" not in both:
                print(f"{work:32}{'':10}{median(both['postgresql']):12.2f}")
                continue
            ratios = [a / b for a, b in zip(both["postgresql"], both["sqlite"], strict=True)]
            sqlite, remote = median(both["sqlite"]), median(both["postgresql"])
            spread = f"{median(ratios):8.2f}{min(ratios):7.2f}{max(ratios):7.2f}"
            print(f"{work:32}{sqlite:10.2f}{remote:12.2f}{spread}")


def main(reactor: Any, *arguments: str) -> Deferred[None]:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("conninfo")
    parser.add_argument("directory")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--works", nargs="+", default=["rows", "lists"])
    return Deferred.fromCoroutine(Bench(reactor, parser.parse_args(arguments)).run())


if __name__ == "__main__":
    react(main, sys.argv[1:])
