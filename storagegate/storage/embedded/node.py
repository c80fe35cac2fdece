"""The node of a process in a store on one machine."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.storage.backends import BackEndContext
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.embedded.gc import GarbageCollector
from storagegate.storage.embedded.recovery import removeUnconfirmed
from storagegate.storage.files import Files
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import ForgetBlobs
from storagegate.storage.node import BackgroundTask, IStoreNode
from storagegate.storage.records import INLINE_LIMIT, ObjectChange

if TYPE_CHECKING:
    # A single process does not need this module.
    from storagegate.storage.embedded.processgroup import ProcessGroup

LOW_SPACE = 20
"""A warning is reported when less than one twentieth of the disk is free."""


_SPACE_SECONDS = 10.0
"""
Time without a refused write before the disk counts as recovered: refused uploads free the bytes
they wrote.
"""


@implementer(IStoreNode)
class EmbeddedNode:
    """The node of a process in a store on this machine, which other processes may share."""

    _log = Logger()

    admit = None
    watches = None

    def __init__(
        self,
        context: BackEndContext,
        catalog: ICatalog,
        blobs: IBlobStore,
        group: "ProcessGroup | None",
    ) -> None:
        """
        @param context: The context of the back ends.
        @param group: The processes that share the store; L{None} for a single process.
        """
        self._blobs = blobs
        self._group = group
        self.publishes = group is not None
        self._directory = context.directory
        self._files: Files = context.files
        reactor = context.reactor
        self._clock: IReactorTime = reactor
        self._isFull = False
        self._fullAt: float | None = None
        self._tasks: list[BackgroundTask] = []
        self._collector = GarbageCollector(
            self._removeBlobs,
            lambda ids: catalog.commit(ForgetBlobs(ids)),
            catalog.garbage,
            reactor,
            None if group is None else group.peers,
            catalog.graceSeconds,
            partial(removeUnconfirmed, catalog, blobs, context.clock),
        )
        self.hold, self.reclaim = self._collector.hold, self._collector.reclaim
        # Deferred to the reactor: collection starts a thread, and the process may still fork.
        self._resuming: Any = reactor.callLater(0, self._collector.resumeCollection)
        if group is not None and not group.resumesCollection:
            self._resuming.cancel()

    @property
    def backlog(self) -> int:
        """The number of blobs waiting for removal."""
        return self._collector.backlog

    def start(self, observe: Callable[[ObjectChange], None]) -> None:
        """Receive the changes of the other processes."""
        self._observe = observe
        if self._group is not None:
            self._group.subscribe(self._blobs, observe)

    def runInOne(self, name: str, task: BackgroundTask) -> None:
        """Run a task if this is the first process."""
        if self._group is None or self._group.isFirst:
            self._tasks.append(task)
            task.start()

    def committed(self, change: ObjectChange) -> None:
        """Publish a change to the other processes, then here."""
        if self._group is not None:
            self._group.broadcastChange(change)
        self._observe(change)

    def corrupted(self, ids: Sequence[str]) -> None:
        """Publish corrupt blobs to the other processes."""
        if self._group is not None:
            self._group.broadcastCorrupt(ids)

    def cleared(self, ids: Sequence[str]) -> None:
        """Publish to the other processes that blobs are intact again."""
        if self._group is not None:
            self._group.broadcastCleared(ids)

    def full(self) -> None:
        """Record that the disk is full. Any thread."""
        self._isFull = True

    def space(self) -> tuple[int, int]:
        """
        Return the free and total bytes of the disk.

        @raise OSError: The disk does not respond.
        """
        return self._files.space(self._directory)

    def health(self) -> Mapping[str, str | None]:
        """Return whether the disk has space and is writable."""
        disk = self._disk(lambda free, total: free < INLINE_LIMIT)
        self._logFull(disk)
        return {"disk": disk or self._readOnly()}

    def warnings(self) -> Mapping[str, str | None]:
        """Return warnings about low disk space, few inodes, and garbage that is not removed."""
        return {
            "garbage": self._collector.problem,
            "disk": self._disk(lambda free, total: free * LOW_SPACE < total),
            "inodes": self._inodes(),
        }

    async def idle(self) -> None:
        """Wait until all garbage is removed, except blobs with leases."""
        await self._collector.idle()

    async def stop(self) -> None:
        """Stop the tasks and finish the collector's work."""
        if self._resuming.active():
            self._resuming.cancel()
        for task in self._tasks:
            await task.stop()
        await self._collector.stop()
        if self._group is not None:
            self._group.isClean = self._collector.isClean

    async def leave(self) -> None:
        """Do nothing: the parent of the processes holds the lock."""

    def _disk(self, isLow: Callable[[int, int], bool]) -> str | None:
        try:
            free, total = self.space()
        except OSError as error:
            return f"the disk does not respond: {error.strerror or error}"
        return f"{free >> 10} KiB are free" if isLow(free, total) else None

    def _readOnly(self) -> str | None:
        try:
            isReadOnly = self._files.isReadOnly(self._directory)
        except OSError:
            return None
        return "the file system is read-only" if isReadOnly else None

    def _logFull(self, problem: str | None) -> None:
        """Log once when the disk becomes full, and once when it has had space for a while."""
        isFull, self._isFull = self._isFull or problem is not None, False
        now = self._clock.seconds()
        if isFull:
            if self._fullAt is None:
                text = problem or "a write found no space"
                self._log.error("the disk is full, only deletes work: {text}", text=text)
            self._fullAt = now
        elif self._fullAt is not None and now - self._fullAt >= _SPACE_SECONDS:
            self._fullAt = None
            self._log.info("the disk has space again")

    def _inodes(self) -> str | None:
        try:
            free, total = self._files.inodes(self._directory)
        except OSError:
            # The disk warning reports this.
            return None
        return f"{free} inodes are free" if free * LOW_SPACE < total else None

    async def _removeBlobs(self, ids: Sequence[str]) -> None:
        """Remove blobs and notify the other processes."""
        await self._blobs.remove(ids)
        if self._group is not None:
            self._group.broadcastRemoved(ids)
