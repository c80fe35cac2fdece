"""
What is measured: each case, its objects and its requests.

Names are made so that one form serves all: C{f012-345} is key 12,345 of a bucket to list; the
part up to C{-} is its group, so a delimiter list of a million keys has a thousand groups, and yet
a server that keeps objects as files has them in one folder.
"""

import random
from collections.abc import Iterator

from attrs import frozen

from bench.signing import Request

KIB = 1 << 10
MIB = 1 << 20
ALL = (1, 16, 64)
FEW = (1, 16)
BUCKET = "/bench"
GROUP = 1000
"""Keys of one group in a bucket to list; also the page size, S3's largest."""

READ_SHARE = 0.7
LISTED_SIZE = 64
"""Bytes of an object in a bucket to list: its bytes are never read."""


@frozen
class Case:
    """
    One kind of load.

    @ivar work: C{put}, C{overwrite}, C{get}, C{head}, C{mixed}, C{delete} or C{list}.
    @ivar keys: How many objects: those read, those written before names repeat, those deleted,
        or those in the bucket that is listed.
    @ivar connections: With how many it is measured.
    """

    name: str
    work: str
    keys: int
    size: int = 4 * KIB
    connections: tuple[int, ...] = ALL
    delimiter: str = ""

    @property
    def bucket(self) -> str:
        """The path of the bucket that it works on."""
        return f"/list-{self.keys}" if self.work == "list" else BUCKET


CASES = {
    case.name: case
    for case in (
        Case("put4k", "put", 30_000),
        Case("get4k", "get", 1_000),
        Case("head", "head", 1_000),
        Case("mixed", "mixed", 1_000),
        Case("get1m", "get", 32, MIB),
        Case("put1m", "put", 4_000, MIB),
        # 64 connections would hold 4 GiB in flight: half a minute a cell with the slower servers.
        Case("get64m", "get", 2, 64 * MIB, FEW),
        Case("put64m", "put", 100, 64 * MIB, FEW),
        Case("delete", "delete", 3_000),
        Case("list10k", "list", 10_000, LISTED_SIZE, FEW),
        Case("list100k", "list", 100_000, LISTED_SIZE, FEW),
        Case("list1m", "list", 1_000_000, LISTED_SIZE, FEW),
        Case("listgroups", "list", 1_000_000, LISTED_SIZE, FEW, delimiter="-"),
    )
}


def sizeName(size: int) -> str:
    """Write a size for use in a key."""
    return f"{size // MIB}m" if size >= MIB else f"{size // KIB}k"


def storedPaths(case: Case) -> list[str]:
    """List the objects that must be there before a case that reads."""
    return [f"{BUCKET}/k/{sizeName(case.size)}-{i:06d}" for i in range(case.keys)]


def freshPaths(case: Case, nonce: str) -> list[str]:
    """List objects that are written new: overwriting is another kind of load."""
    return [f"{BUCKET}/w/{nonce}-{i:06d}" for i in range(case.keys)]


def listedKeys(count: int) -> Iterator[str]:
    """Name the objects of a bucket to list, in order."""
    return (f"f{i // GROUP:03d}-{i % GROUP:03d}" for i in range(count))


def puts(paths: list[str], size: int) -> list[Request]:
    """Write objects."""
    return [Request("PUT", path, length=size) for path in paths]


def deletes(paths: list[str]) -> list[Request]:
    """Delete objects."""
    return [Request("DELETE", path) for path in paths]


def listRequest(case: Case) -> Request:
    """List a page of a bucket from its beginning."""
    query = [("list-type", "2"), ("max-keys", str(GROUP))]
    if case.delimiter:
        query.append(("delimiter", case.delimiter))
    return Request("GET", case.bucket, tuple(query))


def mixture(paths: list[str], size: int) -> list[Request]:
    """Read seven objects of ten and overwrite three, in an order that is the same each time."""
    chance = random.Random(7)
    return [
        Request("GET", path)
        if chance.random() < READ_SHARE
        else Request("PUT", path, length=size, tag=1)
        for path in chance.choices(paths, k=4 * len(paths))
    ]


def requestsOf(case: Case, nonce: str) -> list[Request]:
    """
    List the requests of one measurement.

    @param nonce: Sets this measurement's new names apart from those of all others.
    """
    if case.work == "list":
        return [listRequest(case)]
    if case.work == "put":
        return puts(freshPaths(case, nonce), case.size)
    if case.work == "delete":
        return deletes(freshPaths(case, nonce))
    stored = storedPaths(case)
    if case.work == "mixed":
        return mixture(stored, case.size)
    if case.work == "overwrite":
        return puts(stored, case.size)
    return [Request(case.work.upper(), path) for path in stored]


def expectedBytes(case: Case, answered: int, written: int) -> int:
    """
    Say how many bytes the bodies of correct answers have at least.

    @param answered: How many requests were answered.
    @param written: How many of these were PUTs among the reads of a mixture.
    """
    if case.work in ("get", "mixed"):
        return (answered - written) * case.size
    return 0
