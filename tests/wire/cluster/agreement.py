"""
Whether the catalog and the blobs of a cluster agree, to the byte: read from PostgreSQL and from the
store of blobs themselves, past the program.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic

from awscrt.checksums import crc32c

from storagegate.storage.cluster.blobs.pieces import MARKER
from tests.support.postgresql import execute

SETTLE_SECONDS = 60.0
"""Within so long leases that ended are swept and garbage is collected, on a busy machine."""

BlobBytes = Callable[[], Mapping[str, bytes]]
"""Reads the whole store of blobs: bytes by id."""

_UNSETTLED = """
    SELECT (SELECT count(*) FROM leases WHERE NOT alive OR expires < clock_timestamp()),
        (SELECT count(*) FROM freed), (SELECT count(*) FROM blobs WHERE refs <= 0)
"""

_SEGMENTS = """
    SELECT segments FROM objects WHERE segments IS NOT NULL
    UNION ALL SELECT segments FROM versions WHERE segments IS NOT NULL
    UNION ALL SELECT segments FROM parts WHERE segments IS NOT NULL
"""

_USAGE = """
    SELECT b.name, coalesce(sum(u.objects), 0), coalesce(sum(u.bytes), 0) FROM buckets AS b
        LEFT JOIN (SELECT bucketid, objects, bytes FROM usage
            UNION ALL SELECT bucketid, objects, bytes FROM usagedeltas) AS u ON u.bucketid = b.id
        GROUP BY b.name
"""

_COUNTED = """
    SELECT b.name, count(o.size), coalesce(sum(o.size), 0) FROM buckets AS b
        LEFT JOIN (SELECT bucketid, size FROM objects
            UNION ALL SELECT bucketid, size FROM versions WHERE NOT deletemarker) AS o
            ON o.bucketid = b.id
        GROUP BY b.name
"""


def sharedFiles(directory: str | Path) -> BlobBytes:
    """Return the reader of a directory of blobs as files."""

    def read() -> dict[str, bytes]:
        return {
            name: Path(folder, name).read_bytes()
            for folder, _, names in os.walk(Path(directory, "blobs"))
            for name in names
            if name != MARKER
        }

    return read


def joined(pieces: Mapping[str, bytes]) -> dict[str, bytes]:
    """Join the pieces of blobs that are kept as several, C{id.0}, C{id.1} and so on."""
    found: dict[str, bytes] = {}
    numbered: dict[str, dict[int, bytes]] = {}
    for name, body in pieces.items():
        id, dot, number = name.partition(".")
        if dot:
            numbered.setdefault(id, {})[int(number)] = body
        elif name != MARKER:
            found[id] = body
    for id, parts in numbered.items():
        assert sorted(parts) == list(range(len(parts))), f"{id} has the pieces {sorted(parts)}"
        found[id] = b"".join(parts[number] for number in range(len(parts)))
    return found


def waitUntilSettled(conninfo: str, seconds: float = SETTLE_SECONDS) -> None:
    """
    Wait until nothing is left to sweep and to collect.

    @raise AssertionError: There still is.
    """
    end, never = monotonic() + seconds, Event()
    while any(found := execute(conninfo, _UNSETTLED)[0]):
        assert monotonic() < end, (
            f"{found[0]} leases are not swept, {found[1]} references are not folded and"
            f" {found[2]} blobs are not collected"
        )
        never.wait(0.1)


def disagreements(conninfo: str, blobs: BlobBytes) -> list[str]:
    """
    Compare the catalog with the blobs, while nothing writes and all is settled.

    @param conninfo: Of the primary.
    @return: A sentence for each difference.
    """
    references: Counter[str] = Counter()
    ends: dict[str, int] = {}
    for (text,) in execute(conninfo, _SEGMENTS):
        for id, offset, length in json.loads(text):
            references[id] += 1
            ends[id] = max(ends.get(id, 0), offset + length)
    rows = {
        id: (size, crc, refs)
        for id, size, crc, refs in execute(conninfo, "SELECT id, size, crc, refs FROM blobs")
    }
    stored = blobs()
    found = [f"{id} is an orphan" for id in stored.keys() - rows.keys()]
    found += [f"{id} is missing" for id in rows.keys() - stored.keys()]
    found += [f"{id} is named and has no row" for id in references.keys() - rows.keys()]
    for id, (size, crc, refs) in rows.items():
        if refs != references[id]:
            found.append(f"{id} has {references[id]} references, and {refs} are counted")
        if ends.get(id, 0) > size:
            found.append(f"{id} has {size} bytes, and {ends[id]} are named")
        body = stored.get(id)
        if body is not None and (len(body), crc32c(body)) != (size, crc):
            found.append(f"{id} has other bytes: {len(body)} instead of {size}")
    if execute(conninfo, f"({_USAGE}) EXCEPT ({_COUNTED})"):
        found.append("the usage of buckets is not what they hold")
    return found
