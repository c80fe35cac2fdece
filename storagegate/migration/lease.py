"""
The lease under which a migration makes blobs in a cluster that serves. It is like a node's lease,
so nodes sweep the blobs of an interrupted run.
"""

from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import Any

import psycopg
from attrs import define, field
from psycopg.errors import DivisionByZero

from storagegate.cluster.tables import MigrationError
from storagegate.storage.blobids import blobId, readBlobId
from storagegate.storage.clock import bootSeconds
from storagegate.storage.cluster.databaselocks import LEASE_LOCKS
from storagegate.storage.cluster.leases import NodeLease
from storagegate.storage.cluster.schema import CONNECT_SECONDS
from storagegate.storage.cluster.statements import CLUSTER, FENCE, LOOKUPS, WRITES
from storagegate.storage.errors import StoreReadOnly

_RENEWALS = 3
"""Renewals within the duration of a lease."""


@define(eq=False)
class MigrationLease:
    """
    A lease that a separate thread renews, from L{take} to L{end}. Methods block, except L{check},
    and may be called in any thread.
    """

    _conninfo: str
    _seconds: float
    _lease: NodeLease | None = field(default=None, init=False)
    _connection: "psycopg.Connection[Any] | None" = field(default=None, init=False)
    _stamp: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _isEnding: Event = field(factory=Event, init=False)
    _thread: Thread | None = field(default=None, init=False)

    def take(self) -> None:
        """Take the lease, if it is not taken yet."""
        if self._lease is not None:
            return
        self._connection = psycopg.connect(
            self._conninfo, autocommit=True, connect_timeout=CONNECT_SECONDS
        )
        began = bootSeconds()
        [(number, self._stamp)] = self._run(
            LOOKUPS[b"takelease"], "cluster migrate", float(self._seconds), 0
        )
        self._lease = NodeLease(number, began + self._seconds, 0)
        self._thread = Thread(target=self._renewals, daemon=True)
        self._thread.start()

    def makeIds(self, count: int) -> list[str]:
        """
        Reserve ids for new blobs.

        @raise MigrationError: If the lease has expired.
        """
        lease = self._current()
        with self._lock:
            high = lease.next + count
            if not self._run(LOOKUPS[b"reserve"], lease.number, high):
                raise _over()
            lease.high = max(lease.high, high)
            return [blobId(lease.number, lease.take()) for _ in range(count)]

    def settle(self, ids: Sequence[str]) -> None:
        """Record that blobs are in the catalog."""
        lease = self._current()
        with self._lock:
            for id in ids:
                name = readBlobId(id)
                assert name is not None, "it was made here"
                lease.settle(name[1])

    def fence(self, connection: psycopg.Connection[Any]) -> None:
        """
        Let a transaction commit only while the lease is alive.

        @raise MigrationError: If the lease has expired.
        """
        cursor = psycopg.RawCursor(connection)
        number = self._current().number
        cursor.execute(b"SELECT pg_advisory_xact_lock_shared($1)", (LEASE_LOCKS + number,))
        try:
            cursor.execute(WRITES[FENCE].encode(), ([number],))
        except DivisionByZero:
            raise _over() from None

    def check(self) -> None:
        """
        Check that a blob may be written now.

        @raise StoreReadOnly: If the lease has expired.
        """
        if self._lease is None or bootSeconds() >= self._lease.validUntil:
            raise StoreReadOnly("the lease of this migration has expired: run the command again")

    def end(self) -> None:
        """End the lease, if it was taken; nodes sweep its unused blobs."""
        self._isEnding.set()
        if self._thread is not None:
            self._thread.join()
        if self._connection is None:
            return
        try:
            if self._lease is not None:
                self._renew(self._lease)
                with self._connection.transaction():
                    lock = LEASE_LOCKS + self._lease.number
                    self._run("SELECT pg_advisory_xact_lock($1)", lock)
                    self._run(CLUSTER[b"endlease"], self._lease.number, True)
        except psycopg.Error:
            # The lease expires on its own.
            pass
        finally:
            self._connection.close()

    def _renewals(self) -> None:
        lease = self._lease
        assert lease is not None
        while not self._isEnding.wait(self._seconds / _RENEWALS):
            try:
                self._renew(lease)
            except psycopg.Error:
                # The next renewal may be in time.
                continue

    def _renew(self, lease: NodeLease) -> None:
        began = bootSeconds()
        with self._lock:
            rows = self._run(
                LOOKUPS[b"renewlease"],
                lease.number,
                float(self._seconds),
                lease.low,
                lease.high,
                self._stamp,
            )
        if rows:
            self._stamp = rows[0][0]
            lease.validUntil = max(lease.validUntil, began + self._seconds)

    def _current(self) -> NodeLease:
        assert self._lease is not None, "it was taken"
        return self._lease

    def _run(self, text: str, *values: object) -> list[Any]:
        assert self._connection is not None
        cursor = psycopg.RawCursor(self._connection)
        cursor.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []


def _over() -> MigrationError:
    return MigrationError("the lease of this migration has expired: run the command again")
