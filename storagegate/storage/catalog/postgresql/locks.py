"""
The locks with which a batch begins: shared ones of its buckets and then of its leases, in their
order, or the lock of one bucket alone. They end with the transaction.

A batch that has the shared lock of a lease is waited for by the end of that lease, which takes it
alone. A bucket is locked by its name, for it may not exist yet.

L{AdvisoryLocks} are what PostgreSQL has besides rows. L{RowLocks} lock the rows themselves: they
write to each page that they lock, which costs 10 to 20 % of a write. They are for servers without
the others, CockroachDB and YugabyteDB, neither of which is tested.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from storagegate.storage.catalog.postgresql.connection import Step
from storagegate.storage.catalog.postgresql.values import int8, int8Array, textArray

LEASE_LOCKS = 1 << 62
"""The advisory lock of a lease is this and its number; those of buckets are less."""

_NAMES = 2048
"""Buckets whose locks' numbers are remembered."""


class Locks(Protocol):
    """
    Returns the statements that take locks.

    @ivar statements: Those of connections that take them, by their names.
    """

    statements: Mapping[bytes, str]

    def shared(self, buckets: set[str], leases: Sequence[int]) -> list[Step]:
        """
        Lock buckets and leases, which others may do, too.

        @param buckets: Their names.
        @param leases: Their numbers, sorted.
        """

    def bucketAlone(self, bucket: str, leases: Sequence[int]) -> list[Step]:
        """
        Lock a bucket as no other transaction may, and leases as others may.

        @param bucket: Its name.
        @param leases: Their numbers, sorted.
        """

    def leaseAlone(self, lease: int) -> Step:
        """
        Lock a lease as no other transaction may.

        @param lease: Its number.
        """


class AdvisoryLocks:
    """Locks of numbers."""

    statements: Mapping[bytes, str] = {
        b"lock": "SELECT pg_advisory_xact_lock_shared(each) FROM unnest($1::bigint[]) AS each",
        b"lockalone": "SELECT pg_advisory_xact_lock($1::bigint)",
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

    def numberOf(self, bucket: str) -> int:
        """Return the lock of a bucket, less than 2**61."""
        found = self._numbers.get(bucket)
        if found is None:
            if len(self._numbers) >= _NAMES:
                self._numbers.clear()
            digest = blake2b(bucket.encode(), digest_size=8, person=b"bucket lock").digest()
            found = self._numbers[bucket] = int.from_bytes(digest, "big") >> 3
        return found


class RowLocks:
    """
    Locks of rows. A bucket that does not exist has none: of two that make it one finds the name
    taken, and all other changes of it find nothing.
    """

    # A renewal changes no key, and so waits for no commit under its lease.
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
