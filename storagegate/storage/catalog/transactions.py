"""
Mutations, the transaction that they run in, and records as rows and back.

A mutation is a function of a L{Transaction} and of the arguments of all the mutations beside it in
the batch that have the same function. It checks first and writes after, so that a refusal (a
C{StoreError} among the results) leaves no trace and concerns no other mutation. It receives a
whole run because each statement gives the interpreter lock away and may wait 5 ms to have it back
from a busy reactor: beside one, 6 rows/s were measured with a statement for each of 64 rows, and
1,800 with one for all of them.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import msgspec
from attrs import asdict, frozen

from storagegate.core.files import crcFunction
from storagegate.storage.errors import StoreError
from storagegate.storage.records import Attributes, Checksum, Content, ObjectRecord, Part, Segment
from storagegate.storage.sqlite import transact

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

SEQUENCES = 512
"""
Numbers reserved for one transaction. A mutation that stores an object uses one, so a batch holds at
most as many mutations.
"""


class Transaction:
    """
    An open write transaction. Lives in the thread that owns the connection.

    @ivar garbage: Blobs that lost their last reference in it.
    @param connection: A connection with an open transaction that writes.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.garbage: list[str] = []
        self._next = 0
        self._end = 0

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """
        Run a statement that returns nothing.

        @param sql: One statement.
        @param parameters: The values of its C{?} marks, in order.
        """
        self.connection.execute(sql, parameters)

    def value(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """
        Run a statement and return the only column of its only row; L{None} without a row.

        @param sql: One statement with one column and at most one row.
        @param parameters: The values of its C{?} marks, in order.
        """
        rows = self.connection.execute(sql, parameters).fetchall()
        return rows[0][0] if rows else None

    def takeSequence(self) -> int:
        """Return the next number of a write; numbers that are not used are skipped."""
        if self._next == self._end:
            self._end = self.value(
                "UPDATE meta SET value = value + ? WHERE name = 'sequence' RETURNING value",
                (SEQUENCES,),
            )
            self._next = self._end - SEQUENCES
        self._next += 1
        return self._next


Apply = Callable[[Transaction, Sequence[Any]], Sequence[object]]


@frozen(eq=False)
class Mutation:
    """
    A change that waits to be committed.

    @ivar apply: Called with the arguments of successive mutations with the same function; returns
        for each its result, or the L{StoreError} that it failed with.
    @ivar frees: Whether it frees space, so that it must work on a full disk.
    @ivar weight: Bytes that it carries besides small columns.
    @ivar names: Bucket and key of the objects that it may change.
    """

    apply: Apply
    argument: object
    frees: bool = False
    weight: int = 0
    names: Sequence[tuple[str, bytes]] = ()


def oneByOne(function: Callable[[Transaction, T], R]) -> Apply:
    """
    Make an L{Apply} of a function of one argument that raises its L{StoreError}.

    @param function: Called with the transaction and one argument; other exceptions end the whole
        batch.
    """

    @wraps(function)
    def apply(transaction: Transaction, arguments: Sequence[T]) -> list[object]:
        outcomes: list[object] = []
        for argument in arguments:
            try:
                outcomes.append(function(transaction, argument))
            except StoreError as error:
                outcomes.append(error)
        return outcomes

    return apply


def asJSON(value: object) -> str:
    """
    Encode for a text column, or for C{json_each}.

    @param value: Any value that C{msgspec} encodes; bytes become base64.
    """
    return msgspec.json.encode(value).decode()


def runAlone(connection: sqlite3.Connection, mutation: Mutation) -> tuple[object, list[str]]:
    """
    Run one mutation in a transaction of its own, and commit it.

    @param connection: The writer's connection, without an open transaction.
    @param mutation: Its L{StoreError} is the outcome, and is not raised.
    @return: The outcome and the blobs that became garbage.
    @raise sqlite3.Error: Nothing was changed.
    """
    (outcome,), garbage = runTogether(connection, [mutation])
    return outcome, garbage


def runTogether(
    connection: sqlite3.Connection, mutations: Sequence[Mutation]
) -> tuple[list[object], list[str]]:
    """
    Run mutations in order in one transaction, successive ones of one function at once, and commit.

    @param connection: The writer's connection, without an open transaction.
    @param mutations: In the order of their commit.
    @return: An outcome for each, and the blobs that became garbage.
    @raise Exception: Any error but a L{StoreError} of a mutation; nothing was changed.
    """
    transaction = Transaction(connection)

    def act() -> list[object]:
        outcomes: list[object] = []
        start = 0
        while start < len(mutations):
            apply = mutations[start].apply
            end = start + 1
            while end < len(mutations) and mutations[end].apply is apply:
                end += 1
            arguments = [mutation.argument for mutation in mutations[start:end]]
            outcomes.extend(apply(transaction, arguments))
            start = end
        return outcomes

    return transact(connection, act), transaction.garbage


OBJECT_COLUMNS = """
    o.size, o.etag, o.modifiedMs, o.account, o.attributes, o.versionId, o.sequence, o.segments
"""

_DEFAULTS = asdict(Attributes(), recurse=False)

_decodeAttributes = msgspec.json.Decoder(Attributes).decode
_decodeSegments = msgspec.json.Decoder(tuple[tuple[str, int, int], ...]).decode
_decodeChecksum = msgspec.json.Decoder(Checksum).decode


def segmentsText(content: Content) -> str | None:
    """
    Encode the segments of a content; L{None} if it has none.

    @param content: Its C{inline} bytes are not encoded.
    """
    if not content.segments:
        return None
    return asJSON([(each.blob, each.offset, each.length) for each in content.segments])


def readSegments(text: str | None) -> tuple[Segment, ...]:
    """
    Decode the result of L{segmentsText}.

    @param text: JSON, or L{None} for no segments.
    """
    return () if text is None else tuple(Segment(*each) for each in _decodeSegments(text))


def checksumText(checksum: Checksum | None) -> str | None:
    """
    Encode the checksum of a part.

    @param checksum: The checksum that the client declared; L{None} becomes C{NULL}.
    """
    return None if checksum is None else asJSON(checksum)


def readPart(
    number: int, size: int, etag: str, modifiedMs: int, checksum: str | None, segments: str | None
) -> Part:
    """
    Make a part of its row.

    @param size: Bytes in the part.
    @param modifiedMs: Milliseconds since the epoch.
    @param checksum: The result of L{checksumText}.
    @param segments: The result of L{segmentsText}.
    """
    return Part(
        number,
        size,
        etag,
        modifiedMs,
        Content(size, None, readSegments(segments)),
        None if checksum is None else _decodeChecksum(checksum),
    )


def readAttributes(text: str) -> Attributes:
    """
    Decode the attributes of an object or an upload.

    @param text: The result of L{attributesText}; absent fields have their defaults.
    """
    return _decodeAttributes(text)


def attributesText(attributes: Attributes) -> str:
    """
    Encode the attributes that have no default value: short rows are many in a page.

    @param attributes: Fields that equal their defaults are left out.
    """
    changed = {
        name: value
        for name, default in _DEFAULTS.items()
        if (value := getattr(attributes, name)) != default
    }
    return asJSON(changed)


def objectValues(record: ObjectRecord) -> tuple[object, ...]:
    """
    Return the columns of an object's row from C{versionId} on.

    The storage class and the kind of checksum repeat what the attributes hold, for lists, which
    must not parse the attributes of each row: they may hold ten thousand part summaries.

    @param record: The object; its C{sequence} is not used, the row's is 0 until it is numbered.
    """
    attributes, content = record.attributes, record.content
    checksum = attributes.checksum
    return (
        record.versionId,
        0,
        record.size,
        record.etag,
        record.modifiedMs,
        record.account,
        attributes.storageClass,
        "" if checksum is None else checksum.algorithm,
        "" if checksum is None else checksum.kind,
        None if content.inline is None else crcFunction("crc32c")(content.inline, 0),
        attributesText(attributes),
        segmentsText(content),
    )


def isIntact(inline: bytes | None, checksum: int | None) -> bool:
    """
    Compare the bytes in the catalog with their checksum.

    @param inline: The bytes in the row; L{None} if it has none.
    @param checksum: L{None} for an object whose bytes are elsewhere.
    """
    return checksum is None or (inline is not None and crcFunction("crc32c")(inline, 0) == checksum)


def readObject(
    bucket: str, key: bytes, inline: bytes | None, columns: Sequence[Any]
) -> ObjectRecord:
    """
    Make a record of L{OBJECT_COLUMNS}.

    @param bucket: The bucket's name.
    @param key: The object's key in UTF-8.
    @param inline: The bytes in the row; L{None} if they are in blobs.
    @param columns: The values of L{OBJECT_COLUMNS}, in that order.
    """
    size, etag, modifiedMs, account, attributes, versionId, sequence, segments = columns
    return ObjectRecord(
        bucket,
        key,
        size,
        etag,
        modifiedMs,
        account,
        _decodeAttributes(attributes),
        Content(size, inline, readSegments(segments)),
        versionId,
        sequence,
    )
