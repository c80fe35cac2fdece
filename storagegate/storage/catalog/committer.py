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
        room = self._reserve.ensure() and self._hasRoom(mutations)
        done = self._settle(mutations) if room else None
        return self._whenFull(mutations) if done is None else done

    def afterwards(self) -> None:
        """Do what is due between two commits, when nobody waits for the last one any more."""
        self._wal.keep()

    def close(self) -> None:
        """Leave everything in the database and the WAL empty."""
        self._wal.shrink()
        self._connection.close()

    def _hasRoom(self, mutations: Sequence[Mutation]) -> bool:
        growing = [mutation for mutation in mutations if not mutation.frees]
        size = sum(mutation.weight + _PAGES * PAGE_SIZE for mutation in growing)
        return not growing or self._wal.hasRoom(size)

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
        freeing = [mutation for mutation in mutations if mutation.frees]
        self._wal.shrink()
        done = self._settle(freeing) if freeing else ([], [])
        if done is None and self._reserve.release():
            done = self._settle(freeing)
            self._wal.shrink()
        outcomes, garbage = done or ([StoreFull() for _ in freeing], [])
        answers = iter(outcomes)
        return [next(answers) if each.frees else StoreFull() for each in mutations], garbage

    def _refuse(self, mutations: Sequence[Mutation]) -> Committed:
        return [StoreReadOnly(self._latch.failure) for _ in mutations], []
