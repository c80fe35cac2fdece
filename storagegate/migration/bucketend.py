"""
The common base of both ends of a bucket migration: each end is part of a catalog that serves.

The bucket has a mark in C{bucketmoves}. A run holds an advisory lock on the bucket's name, which
ends with the connection.
"""

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import psycopg
from psycopg.errors import LockNotAvailable

from storagegate.cluster.tables import (
    ACCESS_KEYS,
    BLOBS,
    BUCKETS,
    IDENTITIES,
    OBJECTS,
    VERSIONS,
    MigrationError,
    Row,
    Table,
)
from storagegate.migration.interfaces import Ending
from storagegate.migration.marks import FILLING, MOVED, Mark
from storagegate.migration.shared import SharedEnd
from storagegate.storage.cluster.databaselocks import AdvisoryLocks
from storagegate.storage.cluster.primary import findPrimary
from storagegate.storage.cluster.schema import (
    CONNECT_SECONDS,
    checkShard,
    migrate,
    readShards,
)
from storagegate.storage.records import MIGRATION
from storagegate.storage.sqlite import CatalogUnusable

_LOCKS = 1 << 61
"""Base of the advisory locks of bucket migrations; the bucket's own lock number is added."""

_WAIT = "10s"
"""Limit of the time in which the server notices that an earlier run is gone."""

_PAGE = 1000
"""Rows that are removed in one transaction."""


class BucketEnd(SharedEnd):
    """
    A bucket of a cluster. All methods block, and must run in one thread.

    @ivar bucket: The name of the bucket.
    @ivar number: The number of the bucket in this catalog; 0 until it is known.
    @ivar conninfo: The conninfo of the primary.
    @ivar lock: The advisory lock of the run.
    """

    conninfo = ""

    def __init__(self, connection: psycopg.Connection[Any], bucket: str) -> None:
        """@param connection: A connection to the primary, in autocommit mode."""
        super().__init__(connection)
        self.cluster = self.name
        self.name = f"bucket {bucket} of {self.cluster}"
        self.bucket = bucket
        self.number = 0
        self.lock = _LOCKS + AdvisoryLocks().numberOf(bucket)

    @classmethod
    def connectTo(cls, conninfos: tuple[str, ...], bucket: str) -> Self:
        """
        Connect to an initialised cluster.

        @param conninfos: One conninfo per server.
        @param bucket: The name of the bucket.
        @raise CatalogUnusable: If the catalog cannot be used; the text gives the reason in one
            line.
        @raise MigrationError: If the whole store is being migrated.
        """
        conninfo, _ = findPrimary(conninfos)
        migrate(conninfo, mayCreate=False)
        connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS)
        checkShard(connection, 0, None)
        if readShards(connection):
            connection.close()
            raise CatalogUnusable("cluster migrate does not support catalogs with several shards")
        made = cls(connection, bucket)
        made.conninfo = conninfo
        if made._rows("SELECT FROM meta WHERE name = %s", (MIGRATION,)):
            connection.close()
            raise MigrationError(f"{made.cluster} is being migrated as a whole")
        return made

    @property
    def _suffix(self) -> str:
        return str(self.number)

    def reserve(self) -> None:
        """
        Prevent other runs from moving the bucket until the connection is closed.

        @raise MigrationError: If another run is moving it.
        """
        self._execute(f"SET lock_timeout = '{_WAIT}'")
        try:
            self._execute("SELECT pg_advisory_lock(%s)", (self.lock,))
        except LockNotAvailable:
            raise MigrationError(f"{self.name} is being migrated by another process") from None
        self._execute("RESET lock_timeout")

    def mark(self) -> Mark | None:
        """See L{IMigrationEnd.mark}."""
        rows = self._rows("SELECT mark, bucketid FROM bucketmoves WHERE name = %s", (self.bucket,))
        if not rows:
            return None
        self.number = rows[0][1]
        return msgspec.json.decode(rows[0][0], type=Mark)

    def settle(self) -> None:
        """See L{IMigrationEnd.settle}. Does nothing."""

    def analyse(self) -> None:
        """See L{IMigrationEnd.analyse}. Does nothing: the server analyses tables in use."""

    def ending(self) -> Ending:
        """See L{IMigrationEnd.ending}. Covers only the bucket."""
        [usage] = self._rows(
            "SELECT coalesce(sum(objects), 0)::bigint, coalesce(sum(bytes), 0)::bigint,"
            " coalesce(sum(uploads), 0)::bigint, coalesce(sum(uploadbytes), 0)::bigint"
            " FROM (SELECT * FROM usage UNION ALL SELECT * FROM usagedeltas) AS each"
            " WHERE bucketid = %s",
            (self.number,),
        )
        newest, sums = 0, {}
        for table in (OBJECTS, VERSIONS):
            [(count, total, last)] = self._rows(
                f"SELECT count(*), coalesce(sum(sequence), 0), coalesce(max(sequence), 0)"
                f" FROM {table.name} WHERE bucketid = %s",
                (self.number,),
            )
            sums[table] = (count, int(total))
            newest = max(newest, last)
        return Ending(newest, 0, 0, {0: usage}, {}, {}, sums)

    def _setMark(self, mark: Mark) -> None:
        self._execute(
            "INSERT INTO bucketmoves VALUES (%s, %s, %s, %s) ON CONFLICT (name) DO UPDATE"
            " SET isreserved = excluded.isreserved, mark = excluded.mark",
            (
                self.bucket,
                self.number,
                mark.state in (FILLING, MOVED),
                msgspec.json.encode(mark),
            ),
        )

    def _forget(self) -> None:
        self._execute("DELETE FROM bucketmoves WHERE name = %s", (self.bucket,))

    def _lockBucket(self) -> None:
        """Lock the name until the end of the transaction, as every change of the bucket does."""
        lock = AdvisoryLocks().numberOf(self.bucket)
        self._execute("SELECT pg_advisory_xact_lock(%s)", (lock,))

    def _scopeOf(self, table: Table) -> str:
        if table in (BLOBS, ACCESS_KEYS, IDENTITIES):
            return "AND false"
        return f"AND {'id' if table is BUCKETS else 'bucketid'} = {self.number}"

    def _when(self, row: str, table: str) -> str:
        column = "id" if table == BUCKETS.name else "bucketid"
        return f"WHEN ({row}.{column} = {self.number})"

    def _purge(self) -> None:
        """Remove all rows of the bucket, and give back their references."""
        for table in ("objects", "versions", "parts"):
            while self._purgePage(table):
                pass
        for table in ("uploads", "bucketsettings"):
            self._execute(f"DELETE FROM {table} WHERE bucketid = %s", (self.number,))

    def _purgePage(self, table: str) -> bool:
        with self._connection.transaction():
            rows = self._rows(
                f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table}"
                f" WHERE bucketid = %s LIMIT {_PAGE})) RETURNING segments",
                (self.number,),
            )
            self._giveBack(rows)
        return bool(rows)

    def _giveBack(self, rows: Sequence[Row]) -> None:
        """Give back the references of rows, whose only column is C{segments}."""
        given = [segments for (segments,) in rows if segments is not None]
        if given:
            self._execute("SELECT giveback(each) FROM unnest(%s::text[]) AS each", (given,))
