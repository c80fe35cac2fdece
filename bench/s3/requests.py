"""
The work of S3 cases: its objects and its requests.

One form of name serves all cases: C{f012-345} is key 12,345 of a bucket to list. The part before
the C{-} is its group, so a delimiter makes a thousand groups of a million keys, and yet a server
that keeps objects as files has all of them in one directory.
"""

import random
from collections.abc import Iterator

from attrs import evolve, frozen

from bench.processes import Session
from bench.s3.signing import Request

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
MILLION = 1_000_000
BUCKET = "/bench"
GROUP = 1000
"""Keys of one group in a bucket to list; also the page size, the largest of S3."""

READ_SHARE = 0.7
LISTED_SIZE = 64
"""Bytes of an object in a bucket to list: they are never read."""


@frozen
class Work:
    """
    The work of a case.

    @ivar kind: C{put}, C{overwrite}, C{get}, C{head}, C{mixed}, C{delete}, C{list} or C{range}.
    @ivar keys: The number of objects: those that are read, those that are written before names
        repeat, those that are deleted, or those in the bucket to list.
    """

    kind: str
    keys: int
    size: int = 4 * KIB
    delimiter: str = ""

    @property
    def bucket(self) -> str:
        """Return the path of its bucket."""
        return f"/list-{self.keys}" if self.kind == "list" else BUCKET

    def scaled(self, session: Session) -> "Work":
        """Return it with fewer keys if the run has less data."""
        return evolve(self, keys=self.keys // session.scale) if self.keys >= MILLION else self


PUT4K = Work("put", 30_000)
GET4K = Work("get", 1_000)
HEAD = Work("head", 1_000)
LIST10K = Work("list", 10_000, LISTED_SIZE)


def sizeName(size: int) -> str:
    """Return a size as a part of a key."""
    return f"{size // MIB}m" if size >= MIB else f"{size // KIB}k"


def storedPaths(work: Work) -> list[str]:
    """Return the objects that must exist before work that reads."""
    return [f"{BUCKET}/k/{sizeName(work.size)}-{i:06d}" for i in range(work.keys)]


def freshPaths(work: Work, nonce: str) -> list[str]:
    """Return objects that do not exist yet: to overwrite is another kind of work."""
    return [f"{BUCKET}/w/{nonce}-{i:06d}" for i in range(work.keys)]


def listedKeys(count: int) -> Iterator[str]:
    """Return the keys of a bucket to list, in order."""
    return (f"f{i // GROUP:03d}-{i % GROUP:03d}" for i in range(count))


def puts(paths: list[str], size: int) -> list[Request]:
    """Return requests that write objects."""
    return [Request("PUT", path, length=size) for path in paths]


def mixture(paths: list[str], size: int) -> list[Request]:
    """Read seven objects of ten and overwrite three, in an order that is always the same."""
    chance = random.Random(7)
    return [
        Request("GET", path)
        if chance.random() < READ_SHARE
        else Request("PUT", path, length=size, tag=1)
        for path in chance.choices(paths, k=4 * len(paths))
    ]


def requestsOf(work: Work, nonce: str) -> list[Request]:
    """
    Return the requests of one measurement.

    @param nonce: Makes the new names of this measurement unique.
    """
    if work.kind == "list":
        query = [("list-type", "2"), ("max-keys", str(GROUP))]
        if work.delimiter:
            query.append(("delimiter", work.delimiter))
        return [Request("GET", work.bucket, tuple(query))]
    if work.kind == "put":
        return puts(freshPaths(work, nonce), work.size)
    if work.kind == "delete":
        return [Request("DELETE", path) for path in freshPaths(work, nonce)]
    stored = storedPaths(work)
    if work.kind == "mixed":
        return mixture(stored, work.size)
    if work.kind == "overwrite":
        return puts(stored, work.size)
    return [Request(work.kind.upper(), path) for path in stored]
