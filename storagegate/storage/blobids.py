"""
The ids of blobs of a store with leases: 32 hexadecimal digits, of which all can be listed that a
node may have used::

    id = hexadecimal (lease * 2**64 + number), the low digits in front

The digits that change most come first, so that blobs that are written one after the other lie in
different folders and placement groups.

The leases of shard C{n} of the catalog have the numbers C{n + SHARDS}, C{n + 2 * SHARDS} ...: so
that an id tells the shard, too.
"""

from collections.abc import Iterator

DIGITS = 32

SHARDS = 256
"""The most shards of a catalog: as large as they are good for, they have 250 billion objects."""

_NUMBERS = 64

_LIKELY = 1 << 40
"""
No lease has so great a number, and no number under it is so great. Random ids, those of a store
that has moved from one machine to a cluster, are greater but for one in 2**48.
"""
_HEX = frozenset("0123456789abcdef")


def blobId(lease: int, number: int) -> str:
    """Make the id of the blob of a number, under a lease."""
    return f"{lease << _NUMBERS | number:032x}"[::-1]


def blobIds(lease: int, low: int, high: int) -> Iterator[str]:
    """Make the ids from a number up to, and without, another."""
    return (blobId(lease, number) for number in range(low, high))


def readBlobId(id: str) -> tuple[int, int] | None:
    """Return the lease and the number of an id; L{None} if its form is another."""
    if len(id) != DIGITS or not _HEX.issuperset(id):
        return None
    return divmod(int(id[::-1], 16), 1 << _NUMBERS)


def shardOf(id: str) -> int:
    """Return in which shard an id was made; one of another form is in the first."""
    lease, number = readBlobId(id) or (0, 0)
    return lease % SHARDS if lease < _LIKELY and number < _LIKELY else 0
