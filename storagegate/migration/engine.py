"""
The steps of a migration, which are the same in both directions.

B{Following.} The source starts to note the keys of changed rows, in the transactions of the
changes. Then all tables are copied in key order, one page at a time, while the source serves: pages
may come from different snapshots, because changes are noted. Rounds then copy the noted rows until
few notes are left. A round reads notes, reads and writes their rows, and drops the notes last:
concurrent changes are noted again, and a crash repeats the round.

B{Blobs.} The target gets the row of a blob without references, then its bytes, which are read back;
then the row gets its references. A blob that is left over by a crash has no references: it is
garbage, as everywhere in the store.

A target in a store that serves has no such rows. For each page of other rows it returns the blobs
that it lacks; these are copied before the page. Blobs that are gone by then have changed, and are
noted.

B{Verification.} All rows of both stores are compared while the source serves. Rows that differ or
change later are compared again when the source is sealed. The numbers of versions and the sums of
their sequence numbers must also be equal then.

B{The switch.} The source durably refuses to serve; then the target serves. After a crash in
between, neither serves until the migration is run again.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from typing import Protocol

from attrs import asdict, define, field, frozen

from storagegate.cluster.tables import (
    BLOBS,
    START,
    TABLES,
    Key,
    MigrationError,
    Row,
    Table,
    nameOf,
    orderOf,
)
from storagegate.migration.interfaces import Ending, IMigrationEnd
from storagegate.migration.marks import (
    FILLING,
    MOVED,
    OPENED,
    Mark,
    movedMark,
    newMarks,
)

NOTES = 20_000
"""Notes in one round; their keys are held in memory."""

FEW = 500
"""This many notes are copied in much less than a second."""

_PAUSE_SECONDS = 0.2
"""Pause between two rounds while the operator stops the source."""

_REPORTED = 10
"""Rounds between two progress lines."""


class BlobMover(Protocol):
    """The blob store of the target. Methods block, and must run in the migration's thread."""

    def clear(self) -> None:
        """Undo the claim of an empty target, which will become another store."""

    def claim(self) -> None:
        """Claim the blob store for the store with the target's current secret. May be repeated."""

    def copy(self, rows: Sequence[Row]) -> list[str]:
        """See L{storagegate.cluster.blobcopier.BlobCopier.copy}."""

    def remove(self, blobs: Sequence[str]) -> None:
        """Remove blobs from the target."""


@frozen
class Outcome:
    """
    The result of a migration.

    @ivar rows: The number of rows that this run has copied in key order.
    @ivar seconds: The duration of this copy in seconds.
    @ivar downSeconds: Seconds between the end of the source's service and the start of the
        target's.
    @ivar rounds: The number of rounds.
    @ivar verified: The number of compared rows.
    """

    rows: int
    seconds: float
    downSeconds: float
    rounds: int
    verified: int


@define(eq=False)
class _Recheck:
    """Keys to compare again, in a temporary file."""

    _database: sqlite3.Connection = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute(
            "CREATE TABLE keys (kind, number, key, sequence, name,"
            " PRIMARY KEY (kind, number, key, sequence, name)) WITHOUT ROWID"
        )

    def add(self, table: Table, keys: Sequence[Key]) -> None:
        """Add keys."""
        self._database.executemany(
            "INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?, ?)",
            [(table.number, *key) for key in keys],
        )

    def remove(self, table: Table, keys: Sequence[Key]) -> None:
        """Remove keys."""
        self._database.executemany(
            "DELETE FROM keys WHERE (kind, number, key, sequence, name) = (?, ?, ?, ?, ?)",
            [(table.number, *key) for key in keys],
        )

    def pages(self, table: Table) -> Iterator[list[Key]]:
        """Yield all keys of a table in pages; the keys of a page may be removed meanwhile."""
        after = (-1, b"", 0, "")
        while keys := self._database.execute(
            "SELECT number, key, sequence, name FROM keys WHERE kind = ?"
            " AND (number, key, sequence, name) > (?, ?, ?, ?)"
            " ORDER BY number, key, sequence, name LIMIT ?",
            (table.number, *after, table.page),
        ).fetchall():
            yield keys
            after = keys[-1]

    def close(self) -> None:
        """Remove the file."""
        self._database.close()


class Migration:
    """Migrates a store. All methods block, and must run in one thread."""

    def __init__(
        self,
        source: IMigrationEnd,
        target: IMigrationEnd,
        blobs: BlobMover,
        report: Callable[[str], object],
        onStep: Callable[[str], object] = lambda name: None,
        mostRows: int = 1 << 20,
    ) -> None:
        """
        @param source: The store to migrate.
        @param target: The store that serves after the switch.
        @param blobs: Copies the bytes of blobs to the target.
        @param report: Called with each line for the operator.
        @param onStep: Called with the name of each step before it makes a change.
        @param mostRows: Upper limit of the rows in a page.
        """
        self._mostRows = mostRows
        self._source = source
        self._target = target
        self._blobs = blobs
        self._report = report
        self._onStep = onStep
        self._recheck = _Recheck()
        self._isVerifying = False
        self._rows = self._rounds = self._verified = 0

    def run(self, onReady: Callable[[], object]) -> Outcome:
        """
        Migrate the store, or continue an earlier run.

        @param onReady: Called once, when the operator should stop the source.
        @raise MigrationError: If the migration fails; the text gives the reason in one line.
        """
        try:
            began = monotonic()
            mark = self._agree()
            if mark is None:
                return Outcome(0, 0.0, 0.0, 0, 0)
            self._copyTables(mark)
            self._target.analyse()
            copied = monotonic()
            self._catchUp()
            self._verify()
            self._catchUp()
            onReady()
            sealed = self._seal()
            self._finish()
            outcome = (self._rows, copied - began, monotonic() - sealed, self._rounds)
            self._clear()
            return Outcome(*outcome, self._verified)
        finally:
            self._recheck.close()

    def _agree(self) -> Mark | None:
        """Compare the marks; return the target's mark, or C{None} if the migration is complete."""
        source, target = self._source, self._target
        mine, theirs = source.mark(), target.mark()
        if mine is not None and mine.state == FILLING:
            raise MigrationError(f"{source.name} is itself the target of a migration")
        isSame = mine is not None and theirs is not None and mine.id == theirs.id
        if mine is not None and mine.state == MOVED:
            if not isSame and (theirs is not None or source.secret() != target.secret()):
                raise MigrationError(f"{source.name} was already migrated to {mine.peer}")
            self._open()
            self._clear()
            self._report("an earlier run switched the store: it may serve now")
            return None
        isOpen = mine is None and theirs is not None and theirs.state == OPENED
        if isOpen and theirs is not None and theirs.peer == source.name:
            self._onStep("clear target")
            target.clear()
            self._report("an earlier run switched it, and it serves")
            return None
        if isSame and theirs is not None and theirs.state == FILLING:
            self._report("continuing an earlier run")
            target.reopen()
            self._blobs.claim()
            return theirs
        if theirs is not None:
            raise MigrationError(
                f"{target.name} is part of another migration: empty it, or use another target"
            )
        if not target.isEmpty():
            raise MigrationError(f"{target.name} is not empty, or in use")
        following, filling = newMarks(source.name, target.name)
        self._onStep("follow")
        source.follow(following)
        self._onStep("clear")
        self._blobs.clear()
        self._onStep("claim")
        target.claim(filling, source.secret())
        self._onStep("claimBlobs")
        self._blobs.claim()
        return filling

    def _copyTables(self, mark: Mark) -> None:
        """Copy all remaining rows."""
        while True:
            table, after = mark.position
            if table is None:
                return
            rows = self._source.page(table, after, self._limit(table))
            mark = mark.at(table, table.keyOf(rows[-1]) if rows else None)
            if table is BLOBS and rows:
                self._putBlobs(rows)
            self._putMissing(table, rows)
            self._onStep(f"copy {table.name}")
            # The rows of blobs are written already.
            self._target.append(table, () if table is BLOBS else rows, mark)
            self._rows += len(rows)
            if not rows:
                self._report(f"{table.name}: all copied, {self._rows} rows by now")

    def _putMissing(self, table: Table, rows: Sequence[Row]) -> None:
        """Copy the referenced blobs that the target lacks, if it gets blobs together with rows."""
        missing = [(0, b"", 0, blob) for blob in self._target.missingBlobs(table, rows)]
        limit = self._limit(BLOBS)
        for start in range(0, len(missing), limit):
            there = self._source.read(BLOBS, missing[start : start + limit])
            if there:
                self._putBlobs(there)

    def _putBlobs(self, rows: Sequence[Row]) -> None:
        """Copy blobs and their rows. Blobs that are gone by now are noted."""
        keys = list(map(BLOBS.keyOf, rows))
        self._onStep("intend blobs")
        self._target.replace(BLOBS, keys, [(*row[:3], 0, row[4]) for row in rows])
        self._onStep("copy bytes")
        failed = set(self._blobs.copy(rows))
        if failed:
            there = self._source.read(BLOBS, [(0, b"", 0, blob) for blob in sorted(failed)])
            for blob, _, _, _, damaged in there:
                if not damaged:
                    raise MigrationError(
                        f"blob {blob} of {self._source.name} is damaged or missing: delete what"
                        " names it, or have it marked by fsck --repair, and run this again"
                    )
        self._onStep("name blobs")
        good = [row for row in rows if row[0] not in failed]
        self._target.replace(BLOBS, list(map(BLOBS.keyOf, good)), good)

    def _catchUp(self, few: int = FEW) -> None:
        """Copy changes until few notes are left."""
        while (pending := self._source.pending()) > few:
            if self._rounds % _REPORTED == 0:
                self._report(f"{pending} changes remain")
            self._round()

    def _round(self) -> None:
        """Copy the rows of one batch of notes."""
        ids, changed = self._source.notes(NOTES)
        if not ids:
            return
        for table in TABLES:
            keys = sorted(changed.get(table, ()))
            limit = self._limit(table)
            for start in range(0, len(keys), limit):
                self._update(table, keys[start : start + limit])
        self._onStep("drop notes")
        self._source.dropNotes(ids)
        self._rounds += 1

    def _update(self, table: Table, keys: Sequence[Key]) -> None:
        rows = self._source.read(table, keys)
        self._putMissing(table, rows)
        self._onStep(f"update {table.name}")
        if table is BLOBS:
            self._updateBlobs(keys, rows)
        else:
            self._target.replace(table, keys, rows)
        if self._isVerifying:
            self._recheck.add(table, keys)

    def _updateBlobs(self, keys: Sequence[Key], rows: Sequence[Row]) -> None:
        references = self._target.blobReferences([key[3] for key in keys])
        there = set(map(BLOBS.keyOf, rows))
        gone = [key for key in keys if key not in there and key[3] in references]
        if gone:
            self._blobs.remove([key[3] for key in gone])
            self._onStep("forget blobs")
            self._target.replace(BLOBS, gone, ())
        new = [row for row in rows if not references.get(row[0])]
        if new:
            self._putBlobs(new)
        old = [row for row in rows if references.get(row[0])]
        self._target.replace(BLOBS, list(map(BLOBS.keyOf, old)), old)

    def _verify(self) -> None:
        """Compare all rows; differing rows are compared again later."""
        self._isVerifying = True
        for table in TABLES:
            ours, theirs = self._all(self._source, table), self._all(self._target, table)
            left, right = next(ours, None), next(theirs, None)
            differing: list[Key] = []
            while left is not None or right is not None:
                mine = None if left is None else table.keyOf(left)
                other = None if right is None else table.keyOf(right)
                if mine is not None and mine == other:
                    self._verified += 1
                    if left != right:
                        differing.append(mine)
                    left, right = next(ours, None), next(theirs, None)
                elif other is None or (mine is not None and orderOf(mine) < orderOf(other)):
                    assert mine is not None
                    differing.append(mine)
                    left = next(ours, None)
                else:
                    differing.append(other)
                    right = next(theirs, None)
                if len(differing) >= table.page:
                    self._recheck.add(table, differing)
                    differing = []
            self._recheck.add(table, differing)
        self._report(f"{self._verified} rows were compared")

    def _all(self, end: IMigrationEnd, table: Table) -> Iterator[Row]:
        after = START
        while rows := end.page(table, after, self._limit(table)):
            yield from rows
            after = table.keyOf(rows[-1])

    def _limit(self, table: Table) -> int:
        return min(table.page, self._mostRows)

    def _seal(self) -> float:
        """Copy changes until the source is stopped; return when it was last in use."""
        inUse = monotonic()
        self._onStep("seal")
        while not self._source.seal():
            inUse = monotonic()
            self._catchUp()
            self._round()
            self._compare(False)
            sleep(_PAUSE_SECONDS)
        return inUse

    def _finish(self) -> None:
        """Copy the last changes, compare and switch."""
        source, target = self._source, self._target
        self._onStep("settle")
        source.settle()
        while True:
            self._catchUp(0)
            self._compare(True)
            ending = source.ending()
            self._onStep("finish")
            target.finish(ending)
            found = target.ending()
            if found != ending:
                if source.pending():
                    continue
                what = _difference(found, ending)
                raise MigrationError(f"{target.name} differs from {source.name}: {what}")
            mark = source.mark()
            assert mark is not None, "it follows"
            self._onStep("retire")
            if source.retire(movedMark(mark)):
                break
        self._open()

    def _open(self) -> None:
        self._onStep("open")
        self._target.open()

    def _clear(self) -> None:
        self._onStep("clear source")
        self._source.clear()
        self._onStep("clear target")
        self._target.clear()

    def _compare(self, isLast: bool) -> None:
        """
        Compare rows that have differed or changed.

        @param isLast: Whether the source is sealed, so that a difference is an error.
        """
        for table in TABLES:
            for keys in self._recheck.pages(table):
                ours = {table.keyOf(row): row for row in self._source.read(table, keys)}
                theirs = {table.keyOf(row): row for row in self._target.read(table, keys)}
                same = [key for key in keys if ours.get(key) == theirs.get(key)]
                if isLast and len(same) < len(keys):
                    wrong = next(key for key in keys if ours.get(key) != theirs.get(key))
                    raise MigrationError(f"both stores differ in {nameOf(table, wrong)}")
                self._recheck.remove(table, same)


def _difference(found: Ending, wanted: Ending) -> str:
    ours, theirs = asdict(found, recurse=False), asdict(wanted, recurse=False)
    return ", ".join(
        f"{name} is {value!r}, not {theirs[name]!r}"
        for name, value in ours.items()
        if value != theirs[name]
    )
