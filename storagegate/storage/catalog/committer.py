"""
Commits a batch, and decides what its mutations are told when that fails.

A full disk lets pass what frees room and refuses the rest; a lock held elsewhere is C{StoreBusy};
an I/O error in a write is for good (L{Latch}); anything else is somebody's own, so each mutation is
tried alone and the guilty one is told.
"""

from collections.abc import Sequence
from sqlite3 import Connection

from storagegate.storage.catalog.checkpoints import WALKeeper
from storagegate.storage.catalog.connections import PAGE_SIZE
from storagegate.storage.catalog.faults import Fault, Latch, classify
from storagegate.storage.catalog.reserve import Reserve
from storagegate.storage.catalog.transactions import Mutation, runTogether
from storagegate.storage.errors import StoreBusy, StoreFull, StoreReadOnly

# Pages that a mutation may add besides its bulk: its row's, and those of a tree that splits.
_PAGES = 4

Committed = tuple[list[object], list[str]]
"""An outcome for each mutation, and the blobs that became garbage."""


class Committer:
    """
    Owns the write connection. Made in any thread, then lives in the writer's.

    @param wal: The keeper of this connection's WAL.
    """

    def __init__(
        self, connection: Connection, reserve: Reserve, latch: Latch, wal: WALKeeper
    ) -> None:
        self._connection = connection
        self._reserve = reserve
        self._latch = latch
        self._wal = wal

    def commit(self, mutations: Sequence[Mutation]) -> Committed:
        """Commit what can be committed, at best all in one transaction."""
        if self._latch.failure is not None:
            return self._refuse(mutations)
        growing = [mutation for mutation in mutations if not mutation.frees]
        size = sum(mutation.weight + _PAGES * PAGE_SIZE for mutation in growing)
        done = self._settle(mutations) if self._hasRoom(size) else None
        if done is None and growing and self._hasFreedRoom(size):
            done = self._settle(mutations)
        return self._whenFull(mutations) if done is None else done

    def afterwards(self) -> None:
        """Do what is due between two commits, when nobody waits for the last one any more."""
        self._wal.keep()
        # It was lent or given up; the WAL has its room now.
        if not self._reserve.ensure() and self._wal.shrink():
            self._reserve.ensure()

    def close(self) -> None:
        """Leave everything in the database and the WAL empty."""
        self._wal.shrink()
        self._connection.close()

    def _hasRoom(self, size: int) -> bool:
        """Say whether the disk can take a commit, and the reserve beside it."""
        return self._reserve.ensure() and (not size or self._wal.hasRoom(size))

    def _hasFreedRoom(self, size: int) -> bool:
        """Say whether deleted rows have left room for a commit; the reserve is lent to it."""
        return self._wal.fitsFreed(size) and self._reserve.lend(size)

    def _settle(self, mutations: Sequence[Mutation]) -> Committed | None:
        """Commit, or answer any fault but a full disk: that gives L{None}."""
        try:
            done = runTogether(self._connection, mutations)
        except Exception as error:
            fault = classify(error)
            if fault is Fault.FULL:
                return None
            if fault is Fault.BUSY:
                return [StoreBusy() for _ in mutations], []
            if fault is Fault.UNSAFE:
                self._latch.set(error)
                return self._refuse(mutations)
            if len(mutations) == 1:
                return [error], []
            return self._separately(mutations)
        self._wal.note(sum(mutation.weight for mutation in mutations))
        return done

    def _separately(self, mutations: Sequence[Mutation]) -> Committed:
        outcomes: list[object] = []
        garbage: list[str] = []
        for mutation in mutations:
            outcome, left = self.commit([mutation])
            outcomes += outcome
            garbage += left
        return outcomes, garbage

    def _whenFull(self, mutations: Sequence[Mutation]) -> Committed:
        outcomes, garbage = self._free([mutation for mutation in mutations if mutation.frees])
        answers = iter(outcomes)
        return [next(answers) if each.frees else StoreFull() for each in mutations], garbage

    def _free(self, freeing: Sequence[Mutation]) -> Committed:
        """Commit what frees room, in all the room that can be had."""
        self._wal.shrink()
        done = self._settle(freeing) if freeing else ([], [])
        if done is None and self._reserve.release():
            done = self._settle(freeing)
            self._wal.shrink()
        if done is None and len(freeing) > 1:
            # Half of them need half of the WAL, and it is short again for the other half.
            half = len(freeing) // 2
            halves = self._free(freeing[:half]), self._free(freeing[half:])
            done = halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]
        return done or ([StoreFull() for _ in freeing], [])

    def _refuse(self, mutations: Sequence[Mutation]) -> Committed:
        return [StoreReadOnly(self._latch.failure) for _ in mutations], []
