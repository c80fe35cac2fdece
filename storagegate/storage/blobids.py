"""
The blob ids of a store with leases: 32 hexadecimal digits. All ids that a node may have used can be
enumerated::

    id = hexadecimal (lease * 2**64 + number), low digits first

The fastest-changing digits come first, so that successive blobs lie in different directories and
placement groups.

The leases of shard C{n} of the catalog have the numbers C{n + SHARDS}, C{n + 2 * SHARDS} ..., so
that an id identifies the shard, too.
"""

from collections.abc import Iterator

DIGITS = 32

SHARDS = 256
"""The most shards of a catalog. At their practical size they hold 250 billion objects."""

_NUMBERS = 64

_LIKELY = 1 << 40
"""
An upper bound of lease numbers and of blob numbers. Random ids, from a store that has moved from
one machine to a cluster, exceed it with all but a probability of 1 in 2**48.
"""
_HEX = frozenset("0123456789abcdef")


def blobId(lease: int, number: int) -> str:
    """Return the blob id for a lease and a number."""
    return f"{lease << _NUMBERS | number:032x}"[::-1]


def blobIds(lease: int, low: int, high: int) -> Iterator[str]:
    """Yield the ids of the numbers from C{low} up to but excluding C{high}."""
    return (blobId(lease, number) for number in range(low, high))


def readBlobId(id: str) -> tuple[int, int] | None:
    """Return the lease and the number of an id; L{None} if it has another form."""
    if len(id) != DIGITS or not _HEX.issuperset(id):
        return None
    return divmod(int(id[::-1], 16), 1 << _NUMBERS)


def shardOf(id: str) -> int:
    """Return the shard that issued an id; 0 for ids of another form."""
    lease, number = readBlobId(id) or (0, 0)
    return lease % SHARDS if lease < _LIKELY and number < _LIKELY else 0
