"""
The content of a store, in a common form for both catalogs: tables of rows with keys.

A row has the columns of the PostgreSQL table in their order. The parts of an upload are the last
column of its row, because they share its lifetime. A key always has four elements; each table uses
some of them. Rows are read, copied and compared in key order, in which the newest version of an
object comes first.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

from storagegate.storage.errors import StoreError

Row = tuple[Any, ...]

Key = tuple[int, bytes, int, str]
"""Bucket number, object key, write number and name."""

START: Key = (0, b"", 0, "")
"""Sorts before all keys."""


class MigrationError(StoreError):
    """A store cannot be moved; the text is one line for the operator."""


@frozen
class Table:
    """
    A table of the store.

    @ivar number: The index in L{TABLES}; notes contain it.
    @ivar columns: The columns of the PostgreSQL table, with their types.
    @ivar keyOf: Returns the key of a row.
    @ivar page: Rows in one read, few enough that the largest rows fit in memory.
    """

    number: int
    name: str
    columns: tuple[tuple[str, str], ...]
    keyOf: Callable[[Row], Key]
    page: int


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    named = (each.split() for each in text.split(","))
    return tuple((name, kind) for name, kind in named)


_RECORD = (
    "bucketid int8, key bytea, sequence int8, numbered bool, size int8, etag text,"
    " modifiedms int8, account text, storageclass text, checksumalgorithm text,"
    " checksumkind text, storagechecksum int8, attributes text, segments text, tags text,"
    " acl text, retainmode text, retainuntilms int8, legalhold bool, inline bytea"
)


def _ofVersion(row: Row) -> Key:
    return row[0], row[1], row[2], ""


BUCKETS = Table(
    0,
    "buckets",
    _columns(
        "id int8, name text, account text, createdms int8, region text, ownership text,"
        " versioning text, lockenabled bool, generation int8"
    ),
    lambda row: (row[0], b"", 0, ""),
    1000,
)
SETTINGS = Table(
    1,
    "bucketsettings",
    _columns("bucketid int8, name text, document bytea"),
    lambda row: (row[0], b"", 0, row[1]),
    100,
)
ACCESS_KEYS = Table(
    2,
    "issuedkeys",
    _columns(
        "accesskey text, secretkey text, account text, policy text, bucketpattern text,"
        " prefixpattern text, email text, createdms int8, role text, expiresms int8,"
        " disabled bool, note text, username text, parent text, sessionpolicy text"
    ),
    lambda row: (0, b"", 0, row[0]),
    1000,
)
BLOBS = Table(
    3,
    "blobs",
    _columns("id text, size int8, crc int8, refs int8, damaged bool"),
    lambda row: (0, b"", 0, row[0]),
    256,
)
"""Only blobs with references: the others are being removed, and are not copied."""

OBJECTS = Table(4, "objects", _columns(_RECORD), _ofVersion, 1000)
VERSIONS = Table(
    5,
    "versions",
    _columns(f"{_RECORD}, deletemarker bool, noncurrentms int8"),
    _ofVersion,
    1000,
)
UPLOADS = Table(
    6,
    "uploads",
    _columns(
        "bucketid int8, key bytea, uploadid text, account text, startedms int8,"
        " checksumalgorithm text, checksumkind text, attributes text"
    ),
    lambda row: (row[0], row[1], 0, row[2]),
    # Each upload may have ten thousand parts.
    16,
)
IDENTITIES = Table(
    7,
    "identities",
    _columns("account text, kind text, name text, revision int8, document bytea"),
    lambda row: (0, b"", 0, "\n".join(row[:3])),
    100,
)
PARTS = _columns("number int4, size int8, etag text, modifiedms int8, checksum text, segments text")
"""The columns of a part after the key of its upload."""

TABLES = (BUCKETS, SETTINGS, ACCESS_KEYS, BLOBS, OBJECTS, VERSIONS, UPLOADS, IDENTITIES)
"""The tables in the order in which they are copied."""


def orderOf(key: Key) -> Key:
    """Return a value that sorts like the rows of a table."""
    return key[0], key[1], -key[2], key[3]


def nameOf(table: Table, key: Key) -> str:
    """Describe a row for an operator."""
    number, name, sequence, text = key
    parts = [f"bucket {number}"] if number else []
    if name:
        parts.append(repr(name.decode("utf-8", "backslashreplace")))
    if sequence:
        parts.append(f"write {sequence}")
    if text:
        parts.append(text)
    return f"{table.name}: {', '.join(parts)}"
