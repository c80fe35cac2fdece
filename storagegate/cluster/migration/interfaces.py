"""What both ends of a migration can do; each may be its source or its target."""

from collections.abc import Mapping, Sequence

from attrs import frozen
from zope.interface import Attribute, Interface

from storagegate.cluster.migration.marks import Mark
from storagegate.cluster.migration.tables import Key, Row, Table


@frozen
class Ending:
    """
    What a store has besides rows, and sums of those.

    @ivar sequence: No write has a greater number.
    @ivar keysGeneration: That of the access keys.
    @ivar lastBucket: No bucket has had a greater number.
    @ivar usage: What each bucket holds, by its number: objects, bytes, uploads, bytes of uploads.
    @ivar keyUses: When each access key was used last, in ms.
    @ivar progress: The state of tasks in the background.
    @ivar sums: How many rows the tables of versions have, and the sum of the numbers of their
        writes, of which each has its own.
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
    A catalog that a store is moved from, or to. All methods block, in one thread.

    A page, and the rows of some keys, are those of one moment; several pages are not.
    """

    name: str = Attribute("The store in words, for operators; it has no password.")

    def close() -> None:
        """Close the catalog."""

    def mark() -> Mark | None:
        """Read the mark; L{None} without one."""

    def secret() -> bytes:
        """Return the store's own random bytes, of which its id and the ids of versions are made."""

    def isEmpty() -> bool:
        """Return whether it has never held anything, and is not in use."""

    def page(table: Table, after: Key, limit: int) -> list[Row]:
        """
        Read rows in the order of their keys.

        @param after: The last key before them.
        @param limit: So many, or fewer at the end of the table.
        """

    def read(table: Table, keys: Sequence[Key]) -> list[Row]:
        """Read the rows of keys, as far as there are such, in any order."""

    def follow(mark: Mark) -> None:
        """As a source, have all changes noted from now on; notes of before are dropped."""

    def notes(limit: int) -> tuple[list[int], Mapping[Table, set[Key]]]:
        """
        Return notes, the oldest first, and the keys that have changed.

        @param limit: The most notes.
        """

    def dropNotes(ids: Sequence[int]) -> None:
        """
        Drop notes.

        @param ids: All that L{notes} has returned; at least one.
        """

    def pending() -> int:
        """Count the notes."""

    def seal() -> bool:
        """As a source, keep all others from writing, if none is able to now; return whether so."""

    def settle() -> None:
        """As a source that is sealed, do what nodes have put off."""

    def ending() -> Ending:
        """Read what there is besides rows."""

    def retire(mark: Mark) -> bool:
        """
        As a source that is sealed, refuse to serve from now on, durably, and note nothing more;
        return whether so: not if there are notes.
        """

    def abandon() -> None:
        """As a source, forget the migration."""

    def claim(mark: Mark, secret: bytes) -> None:
        """As an empty target, become the store of a source; it must not serve yet, durably."""

    def reopen() -> None:
        """As a target of before, prepare to go on."""

    def append(table: Table, rows: Sequence[Row], mark: Mark) -> None:
        """As a target, add rows, and write how far that has come; all or nothing, durably."""

    def replace(table: Table, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        """
        As a target, remove the rows of some keys and add others; all or nothing, durably. Rows of
        blobs without references announce what is copied next.

        @param keys: Those that have changed.
        @param rows: What they have now. Rows that cannot be beside these are removed.
        """

    def blobReferences(ids: Sequence[str]) -> Mapping[str, int]:
        """Return the counts of blobs that have a row, also of those without references."""

    def missingBlobs(table: Table, rows: Sequence[Row]) -> list[str]:
        """
        As a target, return which blobs of these rows are to be copied before the rows are.

        @return: None, if blobs are copied as a table is.
        """

    def analyse() -> None:
        """As a target that has most rows, make what look-ups need besides indexes."""

    def finish(ending: Ending) -> None:
        """As a target, write what there is besides rows."""

    def open() -> None:
        """As a target, serve from now on, durably; a second time does nothing."""

    def clear() -> None:
        """After the switch, remove what is needed no more; perhaps again."""
