"""
The changes that any node makes to watched buckets, for the watchers of this node.

The journal in the catalog records them (L{IChangeJournal}). It is read when the catalog notifies,
and every half second; a read returns the changes that the current snapshot shows and the previous
one did not. Therefore each change arrives once, including this node's own, and the changes of a key
arrive in the order of their commits.

B{A lost connection} has no effect: the next read continues. After a promotion, reads continue from
the saved position, without the changes that were delivered since. A new lease takes over the
watches of the previous one.

B{Missed changes.} If the journal was trimmed before this node had read it, or the watches expired
before they could be taken over, the watchers get an error and may start again.
"""

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.storage.cluster.interfaces import ChangePage, IClusterCatalog
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.node import IBucketWatches
from storagegate.storage.periodic import PeriodicTask
from storagegate.storage.records import ObjectChange

POLL_SECONDS = 0.5
"""Interval of reads without a notification."""

_SPACING_SECONDS = 0.01
"""Minimum interval of reads: under load one read returns the changes of many commits."""

_SAVE_SECONDS = 1.0
"""Interval at which the position is saved; each save is a commit."""

PAGE = 500
"""Changes in one read: half of the limit of a watcher's queue."""

_MAX_UNSAVED = 10_000
"""Delivered changes after which the position is saved without delay."""


@define(eq=False)
class _Progress:
    """
    The progress of reading the journal.

    @ivar position: The snapshot up to which all changes were read.
    @ivar upTo: The end of a run of changes that is partly read; C{None} between runs.
    @ivar after: The number of the last change that was read in this run.
    @ivar saved: The position in the catalog.
    @ivar savedAt: The time of the last save, by the clock.
    @ivar unsaved: The numbers of changes that were delivered since the last save.
    """

    position: str
    savedAt: float
    upTo: str | None = field(default=None, init=False)
    after: int = field(default=0, init=False)
    saved: str = field(init=False)
    unsaved: set[int] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.saved = self.position

    def turn(self, page: ChangePage) -> None:
        """Advance past a page."""
        if page.isMore:
            self.upTo, self.after = page.position, page.changes[-1][0]
        else:
            self.position, self.upTo, self.after = page.position, None, 0

    def reset(self) -> None:
        """Return to the saved position."""
        self.position, self.upTo, self.after = self.saved, None, 0


@implementer(IBucketWatches)
class ChangeFollower:
    """
    Follows the journal while this node watches a bucket. Methods must run in the reactor thread.

    @ivar missedObservers: Called when changes were missed.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, catalog: IClusterCatalog) -> None:
        """@param catalog: The catalog of this node, with its lease."""
        self.missedObservers: list[Callable[[], object]] = []
        self._clock = clock
        self._journal = catalog.journal
        self._leases = catalog.leases
        self._notify: Callable[[ObjectChange], object] = lambda change: None
        self._task = PeriodicTask("the change follower", clock)
        # Held while the journal is read or watches change, so that watches change only between two
        # reads.
        self._lock = DeferredLock()
        self._watchers: dict[str, int] = {}
        # The buckets with a row under the lease, and the buckets that may have an unneeded row.
        self._watched: set[str] = set()
        self._unwanted: set[str] = set()
        self._lease = 0
        self._timeline = 0
        self._isNew = False
        self._isSpacing = False
        self._problem = ""
        # C{None} while no bucket is watched.
        self._progress: _Progress | None = None

    def start(self, notify: Callable[[ObjectChange], object]) -> None:
        """
        Start to follow. May be called once.

        @param notify: Called with each change of a watched bucket.
        """
        self._notify = notify
        self._journal.onEvents = self._wake
        self._task.start(self._follow)

    async def stop(self) -> None:
        """End all watches. May be called once."""
        await self._task.stop()
        self._watchers.clear()
        try:
            async with self._lock:
                await self._dropUnwanted(self._leases.number)
        except StoreError as error:
            # The watches end with the lease.
            self._log.info("cannot end watches: {error}", error=str(error))

    async def watch(self, bucket: str) -> None:
        """See L{IBucketWatches.watch}."""
        self._watchers[bucket] = self._watchers.get(bucket, 0) + 1
        async with self._lock:
            lease = self._leases.number
            if not lease:
                raise StoreBusy("this node holds no lease")
            await self._takeOver(lease)
            if bucket in self._watched:
                return
            # Set first, in case this call is cancelled.
            self._unwanted.add(bucket)
            position = await self._journal.watch(bucket, lease)
            self._unwanted.discard(bucket)
            self._watched.add(bucket)
            if self._progress is None:
                self._lease = lease
                self._progress = _Progress(position, self._clock.seconds())
                self._journal.listen(True)

    def unwatch(self, bucket: str) -> None:
        """See L{IBucketWatches.unwatch}."""
        count = self._watchers.get(bucket, 0) - 1
        if count > 0:
            self._watchers[bucket] = count
        else:
            self._watchers.pop(bucket, None)

    def _wake(self) -> None:
        self._isNew = True
        if self._watched and not self._isSpacing:
            self._task.wake()

    async def _follow(self) -> None:
        while not self._task.isStopping:
            self._isNew = False
            try:
                while await self._round():
                    pass
                self._problem = ""
            except StoreError as error:
                if not self._problem:
                    self._log.warn("cannot read changes: {error}", error=str(error))
                self._problem = str(error)
                self._isNew = False
            self._isSpacing = True
            await self._task.pause(_SPACING_SECONDS)
            self._isSpacing = False
            if not self._isNew:
                await self._task.pause(POLL_SECONDS)

    async def _round(self) -> bool:
        """Read a page; return whether more pages follow."""
        lease = self._leases.number
        if not lease or self._task.isStopping:
            return False
        async with self._lock:
            await self._takeOver(lease)
            await self._dropUnwanted(lease)
            progress = self._progress
            if progress is None:
                return False
            page = await self._journal.read(
                progress.position, progress.upTo, progress.after, sorted(self._watched), PAGE
            )
            if self._isPromoted(page.timeline):
                # A new primary reuses transaction numbers that it has not seen.
                progress.reset()
                return True
            if page.isMissed:
                self._miss("the journal no longer has them")
                return False
            self._passOn(page, progress)
            if page.isUsed:
                await self._save(lease, progress)
            return page.isMore

    def _passOn(self, page: ChangePage, progress: _Progress) -> None:
        """
        Notify the watchers of the changes of a page, and advance past it.

        After a promotion the journal is read again from the saved position. Changes that were
        delivered since then are skipped.
        """
        for number, change in page.changes:
            if number in progress.unsaved:
                continue
            progress.unsaved.add(number)
            if change.key is None:
                # The bucket was deleted; its watch may have a row that is no longer needed.
                self._watched.discard(change.bucket)
                self._unwanted.add(change.bucket)
            self._notify(change)
        progress.turn(page)

    def _isPromoted(self, timeline: int) -> bool:
        """
        Record the timeline of the server; return whether it is newer than the previous one.

        @raise StoreBusy: If the timeline is older than the previous one.
        """
        before, self._timeline = self._timeline, max(timeline, self._timeline)
        if timeline < before:
            raise StoreBusy("the journal belongs to an older primary")
        return 0 < before < timeline

    async def _save(self, lease: int, progress: _Progress) -> None:
        """Save the position if it is due, to trim the journal and to continue after a promotion."""
        now, position = self._clock.seconds(), progress.position
        isDue = now - progress.savedAt >= _SAVE_SECONDS or len(progress.unsaved) >= _MAX_UNSAVED
        if isDue and progress.upTo is None and position != progress.saved:
            await self._journal.save(lease, position)
            progress.saved, progress.savedAt = position, now
            progress.unsaved.clear()

    async def _takeOver(self, lease: int) -> None:
        """Move the watches of the previous lease to the current one."""
        if lease == self._lease or self._progress is None:
            return
        isMoved = await self._journal.move(self._lease, lease)
        self._lease = lease
        if not isMoved:
            self._miss("the lease of this node expired too long ago")

    async def _dropUnwanted(self, lease: int) -> None:
        """End the watches of buckets without watchers."""
        unused = [bucket for bucket in self._watched if bucket not in self._watchers]
        for bucket in (*self._unwanted, *unused):
            if lease:
                await self._journal.unwatch(bucket, lease)
            self._unwanted.discard(bucket)
            self._watched.discard(bucket)
        if not self._watched and self._progress is not None:
            self._journal.listen(False)
            self._progress = None

    def _miss(self, reason: str) -> None:
        self._log.error("changes of watched buckets were missed: {reason}", reason=reason)
        self._unwanted |= self._watched
        self._watched.clear()
        self._journal.listen(False)
        self._progress = None
        for observer in tuple(self.missedObservers):
            observer()
