"""
What a store has where several processes serve one data directory.

One of them that dies leaves files of uploads and, in shared memory, its slot. Whoever comes next
clears both up. Everything that lasts is the catalog's: a write is judged in the transaction that
makes it, whichever process began it.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from storagegate.storage.blobs.durability import Durability, Latch
from storagegate.storage.blobs.filesystem import FileBlobs
from storagegate.storage.blobs.layout import BlobLayout
from storagegate.storage.catalog import ledger
from storagegate.storage.catalog.connections import Durability as CatalogDurability
from storagegate.storage.catalog.connections import Purpose, connect
from storagegate.storage.catalog.faults import CatalogUnusable
from storagegate.storage.catalog.sharedturns import SharedTurn, share
from storagegate.storage.changes import ChangeRelay, Observers
from storagegate.storage.errors import StoreError
from storagegate.storage.files import Files
from storagegate.storage.lock import DirectoryLock
from storagegate.storage.presence import Neighbours, OtherReaders, Presence
from storagegate.storage.records import ObjectChange
from storagegate.storage.sharedmemory import StoreMemory
from storagegate.storage.sharing import Sharing
from storagegate.storage.sweep import sweepLeft

_GONE = "store.gone"
_DAMAGED = "store.damaged"


class SharedBlobLatch(Latch):
    """Falls for all processes, when it does for one. Any thread."""

    def __init__(self, memory: StoreMemory) -> None:
        self._memory = memory
        super().__init__()

    @property
    def reason(self) -> str | None:
        """Why nothing may be written, or L{None}."""
        return self._memory.failure

    @reason.setter
    def reason(self, reason: str | None) -> None:
        if reason is not None:
            self._memory.fail(reason)


class Company:
    """
    This process among those that have the store open. Reactor thread.

    @ivar latch: For the blobs.
    @ivar commons: For the catalog.
    @ivar neighbours: For whoever reclaims blobs.
    @ivar observers: Those of the store.
    @ivar owner: What the ids of our blobs end with.
    @ivar isFirst: Whether this is the process that scrubs.
    @ivar catchesUp: Whether garbage of others is to be looked for.
    """

    def __init__(self, sharing: Sharing, reactor: object, directory: str) -> None:
        """
        Join the others; L{takeOver} comes next. Blocks.

        @raise StoreError: The data directory is not held for us, or the memory cannot be used.
        """
        if not DirectoryLock.isTaken(directory):
            raise StoreError(f"nobody holds {directory} for its workers")
        clock: Any = reactor
        memory = StoreMemory(sharing.memory)
        try:
            self._left = memory.claim()
        except BaseException:
            memory.close(isClean=True)
            raise
        self._memory = memory
        self._sharing = sharing
        self._presence = Presence(memory, clock)
        self.isFirst = sharing.index == 0
        self.catchesUp = self.isFirst or bool(self._left)
        self.owner = bytes((memory.slot,))
        self.latch = SharedBlobLatch(memory)
        self.commons = share(memory, self._presence)
        self.neighbours = Neighbours(self._presence, OtherReaders(memory, clock), clock)
        self.observers = Observers(memory)
        self._clock = clock
        self._relay: ChangeRelay | None = None
        self.isClean = False

    def takeOver(
        self, path: str, layout: BlobLayout, files: Files, durability: Durability, full: bool
    ) -> None:
        """
        Clear up after those that died. Blocks; before anything else is written.

        @param path: The catalog.
        """
        if not self._left:
            return
        kind = CatalogDurability.FULL if full else CatalogDurability.OS
        try:
            with SharedTurn(self._memory), closing(connect(path, kind, Purpose.WRITER)) as catalog:
                # One who died in a commit may have left all of it in the WAL, but not in the index:
                # nobody sees it, yet after a loss of power it would be there, without the blobs
                # that are removed below. Whatever is committed next takes its place.
                catalog.execute("UPDATE meta SET value = value WHERE name = 'sequence'")
                sweepLeft(
                    layout,
                    files,
                    durability,
                    [bytes((slot,)) for slot in self._left],
                    lambda ids: ledger.knownBlobs(catalog, ids),
                    lambda ids: ledger.referencedBlobs(catalog, ids),
                )
        except sqlite3.DatabaseError as error:
            raise CatalogUnusable(f"{path} cannot be opened: {error}") from error
        for slot in self._left:
            self._memory.clear(slot)
        self._left = []

    def begin(self, blobs: FileBlobs, tell: Callable[[ObjectChange], None]) -> None:
        """Listen to the others."""
        self._sharing.subscribe(_GONE, blobs.forget)
        self._sharing.subscribe(_DAMAGED, blobs.markDamaged)
        self._relay = ChangeRelay(self._sharing, self._memory, self._clock, tell)

    @property
    def relay(self) -> ChangeRelay:
        """What takes changes to the others, after L{begin}."""
        assert self._relay is not None
        return self._relay

    def tellGone(self, blobs: Sequence[str]) -> None:
        """Have the others close what they have open of blobs that were removed."""
        self._sharing.broadcast(_GONE, list(blobs))

    def tellDamaged(self, blobs: Sequence[str]) -> None:
        """Have the others open these blobs no more."""
        self._sharing.broadcast(_DAMAGED, list(blobs))

    def leave(self) -> None:
        """Send what waits, and let the slot go. Once."""
        if self._relay is not None:
            self._relay.close()
        self._presence.close()
        self._memory.close(self.isClean)
