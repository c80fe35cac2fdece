"""
The locks that a batch takes first: shared locks of its buckets and then of its leases, in order, or
the exclusive lock of one bucket. They end with the transaction.

Ending a lease takes its lock exclusively and so waits for batches that hold it shared. A bucket is
locked by name, because it may not exist yet.

L{AdvisoryLocks} use PostgreSQL's advisory locks. L{RowLocks} lock the rows themselves and write to
each locked page, which costs 10 to 20 % of a write. They are for servers without advisory locks,
CockroachDB and YugabyteDB, neither of which is tested.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from storagegate.storage.cluster.connection import Step
from storagegate.storage.cluster.values import int8, int8Array, textArray

LEASE_LOCKS = 1 << 62
"""The advisory lock of a lease is this plus its number; bucket locks are smaller."""

_NAMES = 2048
"""The most buckets whose lock numbers are cached."""


STALLED_SECONDS = 3
"""A client that sends a batch sends all of it at once, so it is frozen or gone by then."""


class Locks(Protocol):
    """
    Returns the statements that take locks.

    @ivar statements: The statements by name, for connections that take locks.
    """

    statements: Mapping[bytes, str]

    def shared(self, buckets: set[str], leases: Sequence[int]) -> list[Step]:
        """
        Take shared locks of buckets and leases.

        @param buckets: The names of the buckets.
        @param leases: The sorted numbers of the leases.
        """

    def bucketAlone(self, bucket: str, leases: Sequence[int]) -> list[Step]:
        """
        Take the exclusive lock of a bucket and shared locks of leases.

        @param bucket: The bucket's name.
        @param leases: The sorted numbers of the leases.
        """

    def leaseAlone(self, lease: int) -> Step:
        """
        Take the exclusive lock of a lease.

        @param lease: The lease's number.
        """

    def endStalled(self, lease: int) -> list[Step]:
        """
        End the server's sessions with a shared lock of a lease that wait for the rest of a batch.
        The server has no timeout for them. There is no statement if it does not show them.

        @param lease: The lease's number.
        """


class AdvisoryLocks:
    """Locks by number."""

    statements: Mapping[bytes, str] = {
        b"lock": "SELECT pg_advisory_xact_lock_shared(each) FROM unnest($1::bigint[]) AS each",
        b"lockalone": "SELECT pg_advisory_xact_lock($1::bigint)",
        b"endstalled": f"""
            SELECT pg_terminate_backend(a.pid) FROM pg_locks AS l
            JOIN pg_stat_activity AS a ON a.pid = l.pid
            WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                AND (l.classid::bigint << 32) + l.objid::bigint = $1::bigint
                AND a.datname = current_database() AND a.usename = current_user
                AND a.state = 'active' AND a.wait_event = 'ClientRead'
                AND a.state_change < clock_timestamp() - interval '{STALLED_SECONDS} s'
        """,
    }

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def shared(self, buckets: set[str], leases: Sequence[int]) -> list[Step]:
        """See L{Locks.shared}."""
        numbers = sorted({self.numberOf(bucket) for bucket in buckets})
        return [(b"lock", (int8Array([*numbers, *map(LEASE_LOCKS.__add__, leases)]),))]

    def bucketAlone(self, bucket: str, leases: Sequence[int]) -> list[Step]:
        """See L{Locks.bucketAlone}."""
        return [
            (b"lockalone", (int8(self.numberOf(bucket)),)),
            (b"lock", (int8Array([*map(LEASE_LOCKS.__add__, leases)]),)),
        ]

    def leaseAlone(self, lease: int) -> Step:
        """See L{Locks.leaseAlone}."""
        return b"lockalone", (int8(LEASE_LOCKS + lease),)

    def endStalled(self, lease: int) -> list[Step]:
        """See L{Locks.endStalled}."""
        return [(b"endstalled", (int8(LEASE_LOCKS + lease),))]

    def numberOf(self, bucket: str) -> int:
        """Return the lock number of a bucket, less than 2**61."""
        found = self._numbers.get(bucket)
        if found is None:
            if len(self._numbers) >= _NAMES:
                self._numbers.clear()
            digest = blake2b(bucket.encode(), digest_size=8, person=b"bucket lock").digest()
            found = self._numbers[bucket] = int.from_bytes(digest, "big") >> 3
        return found


class RowLocks:
    """
    Locks of rows. A bucket that does not exist has no lock: if two transactions create it, one
    finds the name taken, and all other changes find no bucket.
    """

    # A renewal changes no key, so it does not wait for commits under its lease.
    statements: Mapping[bytes, str] = {
        b"lockbuckets": """
            SELECT FROM buckets WHERE name = ANY ($1::text[]) ORDER BY name FOR KEY SHARE
        """,
        b"lockbucket": "SELECT FROM buckets WHERE name = $1::text FOR UPDATE",
        b"lockleases": """
            SELECT FROM leases WHERE id = ANY ($1::bigint[]) ORDER BY id FOR KEY SHARE
        """,
        b"locklease": "SELECT FROM leases WHERE id = $1::bigint FOR UPDATE",
    }

    def shared(self, buckets: set[str], leases: Sequence[int]) -> list[Step]:
        """See L{Locks.shared}."""
        names = sorted(bucket for bucket in buckets if "\0" not in bucket)
        return [
            (b"lockbuckets", (textArray(names),)),
            (b"lockleases", (int8Array(leases),)),
        ]

    def bucketAlone(self, bucket: str, leases: Sequence[int]) -> list[Step]:
        """See L{Locks.bucketAlone}."""
        return [
            (b"lockbucket", (bucket.encode(),)),
            (b"lockleases", (int8Array(leases),)),
        ]

    def leaseAlone(self, lease: int) -> Step:
        """See L{Locks.leaseAlone}."""
        return b"locklease", (int8(lease),)

    def endStalled(self, lease: int) -> list[Step]:
        """See L{Locks.endStalled}: the server does not show who locks a row."""
        return []
