"""
Blobs that no object names any more, and the readers that still have them.

A reader may need an object's next blob long after the object was replaced, so what a reader holds
stays. Where a look-up may come back late, a reader's lease may come later than the end of the last
reference; there a blob is removed only when the catalog's C{graceSeconds} are over.

The catalog keeps a row for each blob until L{GarbageCollector} says that its file is gone:
nothing is lost
track of, whenever the process ends.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from storagegate.core.task import IdleWaiters
from storagegate.storage.errors import StoreError

if TYPE_CHECKING:
    # A process that is alone has no use for it.
    from storagegate.storage.multiprocess.readers import PeerReaders

BATCH = 1000
"""Blobs a round: one job and one commit for as many as a bulk delete names."""

_BACKLOG = 100_000
"""Ids kept in memory (10 MB of them); beyond it the catalog is asked again."""


class BlobLease:
    """A reader's claim on the blobs of one object."""

    __slots__ = ("_blobs", "_release")

    def __init__(self, blobs: Sequence[str], release: Callable[[Sequence[str]], None]) -> None:
        self._blobs = blobs
        self._release = release

    def release(self) -> None:
        """Say that the blobs are not needed any more. A second time does nothing."""
        blobs, self._blobs = self._blobs, ()
        self._release(blobs)


class GarbageCollector:
    """
    Removes garbage in the background, one round at a time. All methods: reactor thread.

    @param discard: Removes files.
    @param forget: Removes the rows of blobs whose files are gone.
    @param garbage: Reads ids of blobs without references, in order: after this id, so many.
    @param neighbours: The other processes of the store, where there may be some.
    @param graceSeconds: How long a blob stays after its last reference went; see
        L{storagegate.storage.interfaces.ICatalog}. What waits so long when the process ends keeps
        its row, and is removed after the next start.
    @param clock: Keeps that time; needed if there is any.
    @param removeUnconfirmed: Removes what was never committed; called when L{catchUp} is.
    """

    _log = Logger()

    def __init__(
        self,
        discard: Callable[[Sequence[str]], Awaitable[None]],
        forget: Callable[[Sequence[str]], Awaitable[None]],
        garbage: Callable[[str, int], Awaitable[Sequence[str]]],
        neighbours: "PeerReaders | None" = None,
        graceSeconds: float = 0.0,
        clock: IReactorTime | None = None,
        removeUnconfirmed: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._discard = discard
        self._forget = forget
        self._garbage = garbage
        self._neighbours = neighbours
        self._graceSeconds = graceSeconds
        self._clock = clock
        self._removeUnconfirmed = removeUnconfirmed
        self._checksUnconfirmed = False
        # What has lost its last reference, and until when it stays; the empty id stands for blobs
        # that the catalog is asked for again.
        self._graced: deque[tuple[float, str]] = deque()
        self._grace: IDelayedCall | None = None
        self._isStopping = False
        self._holds: dict[str, int] = {}
        self._kept: set[str] = set()
        self._queue: list[str] = []
        self._behind = False
        self._running = False
        self._waiters = IdleWaiters()

    @property
    def backlog(self) -> int:
        """Count the blobs that are to be removed, and are known here."""
        return len(self._queue) + len(self._kept) + len(self._graced)

    def hold(self, blobs: Iterable[str]) -> BlobLease:
        """
        Keep blobs until the hold is released.

        Called in the iteration of the reactor in which a look-up returned the blobs, it comes
        before any removal of them: at once after a look-up that does not suspend, within the grace
        after any other.
        """
        held = tuple(blobs)
        for blob in held:
            holders = self._holds.get(blob, 0)
            self._holds[blob] = holders + 1
            if not holders and self._neighbours is not None:
                self._neighbours.presence.hold(blob)
        return BlobLease(held, self._release)

    def reclaim(self, blobs: Iterable[str]) -> None:
        """
        Remove blobs that have just lost their last reference, once their grace is over; those that
        are held then, after that.
        """
        if not self._graceSeconds:
            self._collect(blobs)
            return
        if self._isStopping:
            return
        assert self._clock is not None
        due = self._clock.seconds() + self._graceSeconds
        for blob in blobs:
            if len(self._graced) < _BACKLOG:
                self._graced.append((due, blob))
            elif self._graced[-1][1]:
                self._graced.append((due, ""))
            else:
                self._graced[-1] = (due, "")
        self._waitForGrace()

    def _waitForGrace(self) -> None:
        if self._grace is None and self._graced:
            assert self._clock is not None
            seconds = max(0.0, self._graced[0][0] - self._clock.seconds())
            self._grace = self._clock.callLater(seconds, self._endGrace)

    def _endGrace(self) -> None:
        assert self._clock is not None
        self._grace = None
        now = self._clock.seconds()
        over = []
        while self._graced and self._graced[0][0] <= now:
            blob = self._graced.popleft()[1]
            if blob:
                over.append(blob)
            else:
                self._behind = True
        self._waitForGrace()
        self._collect(over)

    def _collect(self, blobs: Iterable[str]) -> None:
        for blob in blobs:
            if blob in self._holds:
                self._kept.add(blob)
            elif len(self._queue) < _BACKLOG:
                self._queue.append(blob)
            else:
                self._behind = True
        self._start()

    def catchUp(self) -> None:
        """
        Remove what the catalog knows as garbage from earlier, once its grace is over, and blobs
        that were never committed.
        """
        self._checksUnconfirmed = self._removeUnconfirmed is not None
        if self._graceSeconds:
            assert self._clock is not None
            self._graced.append((self._clock.seconds() + self._graceSeconds, ""))
            self._waitForGrace()
            return
        self._behind = True
        self._start()

    def idle(self) -> Deferred[None]:
        """Wait until nothing is left but what is held."""
        return self._waiters.wait(self._running or bool(self._graced))

    def stop(self) -> Deferred[None]:
        """
        Wait as L{idle}, but not for a grace, and not for long for other processes: what they may
        still read keeps its rows, and L{isClean} is false.
        """
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
            self._graced.clear()
            if not self._running:
                self._waiters.notify()
        self._isStopping = True
        if self._neighbours is None:
            return self.idle()
        neighbours = self._neighbours
        neighbours.closeSoon()
        return self.idle().addCallback(lambda _: neighbours.close())

    @property
    def isClean(self) -> bool:
        """Whether nothing that was to be removed is left."""
        return not self._kept and (self._neighbours is None or self._neighbours.isClean)

    def _release(self, blobs: Sequence[str]) -> None:
        free = []
        for blob in blobs:
            self._holds[blob] -= 1
            if not self._holds[blob]:
                del self._holds[blob]
                if self._neighbours is not None:
                    self._neighbours.presence.release(blob)
                if blob in self._kept:
                    self._kept.discard(blob)
                    free.append(blob)
        if free:
            self._collect(free)

    def _start(self) -> None:
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._work()).addErrback(
                lambda failure: self._log.failure("garbage was not removed", failure)
            )

    async def _work(self) -> None:
        try:
            while self._queue or self._behind:
                if self._queue:
                    batch, self._queue = self._queue[:BATCH], self._queue[BATCH:]
                    await self._remove(batch)
                else:
                    self._behind = False
                    await self._readGarbage()
                    if self._checksUnconfirmed and self._removeUnconfirmed is not None:
                        self._checksUnconfirmed = False
                        await self._removeUnconfirmed()
        except CancelledError:
            # The store closes, and other processes may still read what is left: it keeps its rows.
            self._queue.clear()
            self._behind = False
        except (StoreError, OSError) as error:
            # All of it keeps its rows: the next start finds it.
            self._queue.clear()
            self._behind = False
            self._log.error("garbage was not read: {error}", error=str(error))
        finally:
            self._running = False
            if not self._graced:
                self._waiters.notify()

    async def _readGarbage(self) -> None:
        after = ""
        while page := await self._garbage(after, BATCH):
            after = page[-1]
            self._kept.update(blob for blob in page if blob in self._holds)
            await self._remove([blob for blob in page if blob not in self._holds])

    async def _remove(self, blobs: Sequence[str]) -> None:
        try:
            if self._neighbours is not None:
                blobs = await self._neighbours.spare(blobs, self._collect)
            await self._discard(blobs)
            await self._forget(blobs)
        except (StoreError, OSError) as error:
            # Their rows stay: the next start tries again.
            self._log.error(
                "{count} blobs were not removed: {error}", count=len(blobs), error=str(error)
            )
