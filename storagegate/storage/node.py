"""
The part of one process in a store: which requests it may serve, when blobs are removed, and what
only one process does.

L{EmbeddedNode} is that of a store on one machine; a store over several machines has another.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import Attribute, Interface, implementer

from storagegate.storage.backends import BackEndContext
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.files import Files
from storagegate.storage.gc import GarbageCollector, HeldBlobs
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import INLINE_LIMIT, ObjectChange
from storagegate.storage.recovery import removeUnconfirmed

if TYPE_CHECKING:
    # A process that is alone does not import it.
    from storagegate.storage.processgroup import ProcessGroup

LOW_SPACE = 20
"""A warning is given when less than one part in twenty of the disk is free."""

_SPACE_SECONDS = 10.0
"""Uploads that are refused free what they wrote: so long none is, before that is recovery."""


class BackgroundTask(Protocol):
    """Work on a store that goes on for as long as the store is open. Reactor thread."""

    def start(self) -> None:
        """Begin. Once, unless another process did the work meanwhile."""

    async def stop(self) -> None:
        """End, when nothing is in work any more."""


class IBucketWatches(Interface):
    """
    The buckets whose changes a process receives, where that has to be requested. Methods: reactor
    thread.
    """

    missedObservers: list[Callable[[], object]] = Attribute(
        "Called when changes of watched buckets were missed: this process was too long without the"
        " catalog, or too slow."
    )

    async def watch(bucket: str) -> None:
        """
        Begin to watch a bucket for one more watcher: the observers of the store are called with
        every change that is committed after this.

        @param bucket: Its name.
        @raise NoSuchBucket: There is none.
        @raise StoreBusy: The catalog did not answer.
        """

    def unwatch(bucket: str) -> None:
        """
        End L{watch} for one watcher, also if it has failed.

        @param bucket: Its name.
        """


class IStoreNode(Interface):
    """The part of one process in a store. Methods: reactor thread."""

    admit: Callable[[], object] | None = Attribute(
        "Called when a request comes, in its own context; raises C{StoreBusy} while this process"
        " may serve none. L{None}: all are served."
    )
    hold: Callable[[Iterable[str]], HeldBlobs] = Attribute(
        "Keeps blobs until the lease is released; see"
        " L{ObjectStore.hold<storagegate.storage.store.ObjectStore.hold>}."
    )
    watches: IBucketWatches | None = Attribute(
        "Without them the observers are called with the changes of all buckets."
    )
    backlog: int = Attribute("How many blobs are to be removed, as far as it is known here.")
    publishes: bool = Attribute("Whether L{committed} does more than to call the observers.")

    def start(observe: Callable[[ObjectChange], None]) -> None:
        """
        Begin. Once.

        @param observe: Calls the observers of this process with a change of any process.
        """

    def reclaim(blobs: Iterable[str]) -> None:
        """Remove blobs that have just lost their last reference, when their readers have ended."""

    def runInOne(name: str, task: BackgroundTask) -> None:
        """
        Run a task in one of the processes of the store, until L{stop}.

        @param name: That of the task in all of them.
        """

    def committed(change: ObjectChange) -> None:
        """Publish a change that this process has committed, also to its own observers."""

    def corrupted(ids: Sequence[str]) -> None:
        """Publish that blobs were found corrupt."""

    def cleared(ids: Sequence[str]) -> None:
        """Publish that blobs are right again that were found corrupt."""

    def full() -> None:
        """Note that a write was refused because the blobs' storage is full. Any thread."""

    def space() -> tuple[int, int] | None:
        """
        Return the free and all bytes of the data directory's disk; L{None}: nothing lies there.

        @raise OSError: The disk does not respond.
        """

    def health() -> Mapping[str, str | None]:
        """Return for each part of this node why writes are refused, or L{None}."""

    def warnings() -> Mapping[str, str | None]:
        """Return problems that an operator should see although the store works, or L{None}s."""

    async def idle() -> None:
        """Wait until all garbage is removed that has no readers."""

    async def stop() -> None:
        """End the tasks, and what is in work. Once, before the blobs are closed."""

    async def leave() -> None:
        """Give up what other processes wait for. Once, after the blobs are closed."""


@implementer(IStoreNode)
class EmbeddedNode:
    """The part of a process in a store on this machine, which it may serve with others."""

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
        @param context: What the back ends were opened with.
        @param group: The other processes of the store, if there may be some.
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
            catalog.forgetBlobs,
            catalog.garbage,
            reactor,
            None if group is None else group.peers,
            catalog.graceSeconds,
            partial(removeUnconfirmed, catalog, blobs, context.clock),
        )
        self.hold, self.reclaim = self._collector.hold, self._collector.reclaim
        # Not now, for that would start a thread, and a process may fork before it serves.
        self._resuming: Any = reactor.callLater(0, self._collector.resumeCollection)
        if group is not None and not group.resumesCollection:
            self._resuming.cancel()

    @property
    def backlog(self) -> int:
        """How many blobs are to be removed."""
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
        """Publish to the other processes that blobs are right again."""
        if self._group is not None:
            self._group.broadcastCleared(ids)

    def full(self) -> None:
        """Note that the disk is full. Any thread."""
        self._isFull = True

    def space(self) -> tuple[int, int]:
        """
        Return the bytes that are free on the disk, and all of its bytes.

        @raise OSError: The disk does not respond.
        """
        return self._files.space(self._directory)

    def health(self) -> Mapping[str, str | None]:
        """Return whether the disk has space, and may be written to."""
        disk = self._disk(lambda free, total: free < INLINE_LIMIT)
        self._logFull(disk)
        return {"disk": disk or self._readOnly()}

    def warnings(self) -> Mapping[str, str | None]:
        """Return whether the disk has little space, and garbage stays."""
        return {
            "garbage": self._collector.problem,
            "disk": self._disk(lambda free, total: free * LOW_SPACE < total),
            "inodes": self._inodes(),
        }

    async def idle(self) -> None:
        """Wait until all garbage is removed, except blobs with leases."""
        await self._collector.idle()

    async def stop(self) -> None:
        """End the tasks, and what the collector has in work."""
        if self._resuming.active():
            self._resuming.cancel()
        for task in self._tasks:
            await task.stop()
        await self._collector.stop()
        if self._group is not None:
            self._group.isClean = self._collector.isClean

    async def leave(self) -> None:
        """Do nothing: the parent of the processes has the lock."""

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
        """Log that the disk is full, and that it has not been for a while: one line each."""
        isFull, self._isFull = self._isFull or problem is not None, False
        now = self._clock.seconds()
        if isFull:
            if self._fullAt is None:
                text = problem or "a write did not fit"
                self._log.error("the disk is full, deletes work: {text}", text=text)
            self._fullAt = now
        elif self._fullAt is not None and now - self._fullAt >= _SPACE_SECONDS:
            self._fullAt = None
            self._log.info("the disk has space again")

    def _inodes(self) -> str | None:
        try:
            free, total = self._files.inodes(self._directory)
        except OSError:
            # The warning of the disk says so.
            return None
        return f"{free} inodes are free" if free * LOW_SPACE < total else None

    async def _removeBlobs(self, ids: Sequence[str]) -> None:
        """Remove blobs, in all processes."""
        await self._blobs.remove(ids)
        if self._group is not None:
            self._group.broadcastRemoved(ids)
