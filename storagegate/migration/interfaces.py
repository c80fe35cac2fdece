"""The interface of both ends of a migration; each store may be its source or its target."""

from collections.abc import Mapping, Sequence

from attrs import frozen
from zope.interface import Attribute, Interface

from storagegate.cluster.tables import Key, Row, Table
from storagegate.migration.marks import Mark


@frozen
class Ending:
    """
    The state of a store besides its rows, and sums of the rows.

    @ivar sequence: The greatest number of a write.
    @ivar keysGeneration: The generation of the access keys.
    @ivar lastBucket: The greatest number that a bucket has had.
    @ivar usage: The usage of each bucket, by its number: objects, bytes, uploads, bytes of uploads.
    @ivar keyUses: The last use of each access key, in ms.
    @ivar progress: The state of background tasks.
    @ivar sums: For each table of versions, the number of rows and the sum of their write numbers,
        which are unique.
    """

    sequence: int
    keysGeneration: int
    lastBucket: int
    usage: Mapping[int, tuple[int, ...]]
    keyUses: Mapping[str, int]
    progress: Mapping[str, bytes]
    sums: Mapping[Table, tuple[int, int]]


class IMigrationEnd(Interface):
    """
    The catalog of the source or the target. All methods block, and must run in one thread.

    A page, or the rows of some keys, are a consistent snapshot; several pages are not.
    """

    name: str = Attribute("A description of the store for operators, without passwords.")

    def close() -> None:
        """Close the catalog."""

    def mark() -> Mark | None:
        """Read the mark; C{None} without one."""

    def secret() -> bytes:
        """Return the random secret of the store, the origin of its id and its version ids."""

    def isEmpty() -> bool:
        """Return whether the catalog has never held data and is not in use."""

    def page(table: Table, after: Key, limit: int) -> list[Row]:
        """
        Read rows in key order.

        @param after: The key before the first row.
        @param limit: The number of rows; the end of the table may have fewer.
        """

    def read(table: Table, keys: Sequence[Key]) -> list[Row]:
        """Read the rows of keys, in any order. Keys without a row are skipped."""

    def follow(mark: Mark) -> None:
        """As a source, note all changes from now on; earlier notes are dropped."""

    def notes(limit: int) -> tuple[list[int], Mapping[Table, set[Key]]]:
        """
        Return the ids of notes, oldest first, and the changed keys by table.

        @param limit: Limit of the notes.
        """

    def dropNotes(ids: Sequence[int]) -> None:
        """
        Drop notes.

        @param ids: All ids that L{notes} has returned; at least one.
        """

    def pending() -> int:
        """Count the notes."""

    def seal() -> bool:
        """
        As a source that is not in use, prevent all writes by others; return whether it is sealed.
        """

    def settle() -> None:
        """As a sealed source, perform the work that nodes have deferred."""

    def ending() -> Ending:
        """Read the state besides the rows."""

    def retire(mark: Mark) -> bool:
        """
        As a sealed source, durably refuse to serve and stop noting changes. Return whether this was
        done; it is not if notes are left.
        """

    def abandon() -> None:
        """As a source, forget the migration."""

    def claim(mark: Mark, secret: bytes) -> None:
        """
        As an empty target, take the identity of a source, and durably refuse to serve for now.
        """

    def reopen() -> None:
        """As a target of an earlier run, prepare to continue."""

    def append(table: Table, rows: Sequence[Row], mark: Mark) -> None:
        """As a target, add rows and store the position, atomically and durably."""

    def replace(table: Table, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        """
        As a target, replace the rows of some keys, atomically and durably. Rows of blobs without
        references record which blobs are copied next.

        @param keys: The changed keys.
        @param rows: The current rows of the keys. Conflicting rows are removed.
        """

    def blobReferences(ids: Sequence[str]) -> Mapping[str, int]:
        """Return the reference counts of blobs that have a row, including counts of 0."""

    def missingBlobs(table: Table, rows: Sequence[Row]) -> list[str]:
        """
        As a target, return the blobs that must be copied before these rows.

        @return: The ids; empty if blobs are copied as a table.
        """

    def analyse() -> None:
        """As a target with most of its rows, prepare for look-ups, for example with statistics."""

    def finish(ending: Ending) -> None:
        """As a target, write the state besides the rows."""

    def open() -> None:
        """As a target, durably serve from now on; repeated calls have no effect."""

    def clear() -> None:
        """After the switch, remove data that is no longer needed. May be repeated."""
