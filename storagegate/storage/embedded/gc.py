"""
The garbage collector of blobs, and the leases of readers.

A reader may need an object's next blob long after the object was replaced, so a leased blob is
kept. If look-ups suspend, a lease may begin after the last reference has ended; a blob is then
removed only after the catalog's C{graceSeconds}. The catalog keeps the row of each blob until its
file is removed, so that a crash cannot lose track of a blob.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.task import IdleWaiters
from storagegate.storage.errors import StoreError, StoreReadOnly
from storagegate.storage.node import BlobLease

if TYPE_CHECKING:
    # A single process does not need this module.
    from storagegate.storage.embedded.processgroup import PeerReaders

BATCH = 1000
"""Blobs per batch: one job and one commit for the size of a bulk delete."""

_RETRY_SECONDS = 60.0
"""Delay before garbage that could not be removed is read from the catalog again."""

_BACKLOG = 100_000
"""The most ids kept in memory (10 MB); further ids are reread from the catalog."""


@define(eq=False)
class GarbageCollector:
    """
    Removes garbage in the background, one batch at a time. All methods: reactor thread.

    @ivar _removeBlobs: Removes blobs.
    @ivar _forget: Removes the rows of removed blobs.
    @ivar _garbage: Reads a page of ids of unreferenced blobs, given an id to start after and a
        limit.
    @ivar _clock: Schedules the end of the grace.
    @ivar _peers: The processes that share the store; L{None} for a single process.
    @ivar _graceSeconds: How long a blob is kept after the end of its last reference; see
        L{storagegate.storage.interfaces.ICatalog}. Blobs that still wait when the process exits
        keep their rows and are removed after the next start.
    @ivar problem: Why the collector has stopped; L{None} while it works, and once it has started
        again.
    @ivar _removeUnconfirmed: Removes blobs that were never committed, after L{resumeCollection}. If
        it returns L{None}, it is repeated later.
    """

    _log = Logger()

    _removeBlobs: Callable[[Sequence[str]], Awaitable[None]]
    _forget: Callable[[Sequence[str]], Awaitable[None]]
    _garbage: Callable[[str, int], Awaitable[Sequence[str]]]
    _clock: IReactorTime
    _peers: "PeerReaders | None" = None
    _graceSeconds: float = 0.0
    _removeUnconfirmed: Callable[[], Awaitable[object | None]] | None = None
    problem: str | None = field(default=None, init=False)
    _checksUnconfirmed: bool = field(default=False, init=False)
    # Garbage, with the end of its grace. The empty id stands for blobs to reread from the catalog.
    _inGrace: deque[tuple[float, str]] = field(factory=deque, init=False)
    _graceTimer: IDelayedCall | None = field(default=None, init=False)
    _retryTimer: IDelayedCall | None = field(default=None, init=False)
    _isStopping: bool = field(default=False, init=False)
    _leases: dict[str, int] = field(factory=dict, init=False)
    _leased: set[str] = field(factory=set, init=False)
    _queue: list[str] = field(factory=list, init=False)
    _mustReadCatalog: bool = field(default=False, init=False)
    _running: bool = field(default=False, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)

    @property
    def backlog(self) -> int:
        """The number of blobs that this process knows to be waiting for removal."""
        return len(self._queue) + len(self._leased) + len(self._inGrace)

    def hold(self, blobs: Iterable[str]) -> BlobLease:
        """
        Lease blobs until the lease is released.

        Call this in the reactor iteration in which a look-up returned the blobs. The lease then
        precedes their removal: a look-up that does not suspend is in the same iteration, and any
        other ends within the grace.

        @param blobs: Ids, each once.
        """
        held = tuple(blobs)
        for blob in held:
            count = self._leases.get(blob, 0)
            self._leases[blob] = count + 1
            if not count and self._peers is not None:
                self._peers.epoch.hold(blob)
        return BlobLease(held, self._release)

    def reclaim(self, blobs: Iterable[str]) -> None:
        """
        Remove blobs that have just lost their last reference, after their grace and leases have
        ended.

        @param blobs: The blobs' ids; beyond 100,000 waiting ids, they are reread from the catalog.
        """
        if not self._graceSeconds:
            self._collect(blobs)
            return
        if self._isStopping:
            return
        due = self._clock.seconds() + self._graceSeconds
        for blob in blobs:
            if len(self._inGrace) < _BACKLOG:
                self._inGrace.append((due, blob))
            elif self._inGrace[-1][1]:
                self._inGrace.append((due, ""))
            else:
                self._inGrace[-1] = (due, "")
        self._waitForGrace()

    def _waitForGrace(self) -> None:
        if self._graceTimer is None and self._inGrace:
            seconds = max(0.0, self._inGrace[0][0] - self._clock.seconds())
            self._graceTimer = self._clock.callLater(seconds, self._endGrace)

    def _endGrace(self) -> None:
        self._graceTimer = None
        now = self._clock.seconds()
        over = []
        while self._inGrace and self._inGrace[0][0] <= now:
            over.append(self._inGrace.popleft()[1])
        self._mustReadCatalog |= "" in over
        self._waitForGrace()
        self._collect(filter(None, over))

    def _collect(self, blobs: Iterable[str]) -> None:
        for blob in blobs:
            if blob in self._leases:
                self._leased.add(blob)
            elif len(self._queue) < _BACKLOG:
                self._queue.append(blob)
            else:
                self._mustReadCatalog = True
        self._start()

    def resumeCollection(self) -> None:
        """
        Remove the leftovers of earlier processes: the garbage that the catalog lists, after its
        grace period, and the blobs that were never committed.
        """
        self._checksUnconfirmed = self._removeUnconfirmed is not None
        if self._graceSeconds:
            self._inGrace.append((self._clock.seconds() + self._graceSeconds, ""))
            self._waitForGrace()
            return
        self._mustReadCatalog = True
        self._start()

    def idle(self) -> Deferred[None]:
        """Wait until only blobs with leases are left."""
        return self._waiters.wait(self._running or bool(self._inGrace))

    def stop(self) -> Deferred[None]:
        """
        Wait like L{idle}, but not for a grace and only briefly for other processes. Blobs that they
        may still read keep their rows, and L{isClean} is then false.
        """
        if self._graceTimer is not None:
            self._graceTimer.cancel()
            self._graceTimer = None
            self._inGrace.clear()
            if not self._running:
                self._waiters.notify()
        self._isStopping = True
        if self._retryTimer is not None:
            self._retryTimer.cancel()
            self._retryTimer = None
        if self._peers is None:
            return self.idle()
        peers = self._peers
        peers.scheduleClose()
        return self.idle().addCallback(lambda _: peers.close())

    @property
    def isClean(self) -> bool:
        """Whether all garbage is removed."""
        return not self._leased and (self._peers is None or self._peers.isClean)

    def _release(self, blobs: Sequence[str]) -> None:
        free = []
        for blob in blobs:
            self._leases[blob] -= 1
            if not self._leases[blob]:
                del self._leases[blob]
                if self._peers is not None:
                    self._peers.epoch.release(blob)
                if blob in self._leased:
                    self._leased.discard(blob)
                    free.append(blob)
        if free:
            self._collect(free)

    def _start(self) -> None:
        if not self._running:
            self._running = True
            self.problem = None
            Deferred.fromCoroutine(self._work()).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        """
        Record an unexpected error. The rows stay, and the next garbage starts another attempt.
        """
        self._log.failure("cannot remove garbage", failure)
        self.problem = f"cannot remove garbage: {failure.getErrorMessage()}"
        self._retryAfter(failure.value)

    def _retryAfter(self, error: BaseException | None) -> None:
        """Read the garbage from the catalog after a while: its rows stay until it is removed."""
        # If writing has stopped, nothing can be removed before the next start.
        isPossible = not self._isStopping and not isinstance(error, StoreReadOnly)
        if isPossible and self._retryTimer is None:
            self._retryTimer = self._clock.callLater(_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._retryTimer = None
        self._mustReadCatalog = True
        self._start()

    async def _work(self) -> None:
        try:
            while self._queue or self._mustReadCatalog:
                if self._queue:
                    batch, self._queue = self._queue[:BATCH], self._queue[BATCH:]
                    await self._remove(batch)
                else:
                    self._mustReadCatalog = False
                    after = ""
                    while page := await self._garbage(after, BATCH):
                        after = page[-1]
                        self._leased.update(blob for blob in page if blob in self._leases)
                        await self._remove([blob for blob in page if blob not in self._leases])
                    if self._checksUnconfirmed and self._removeUnconfirmed is not None:
                        if await self._removeUnconfirmed() is None:
                            self._retryAfter(None)
                        else:
                            self._checksUnconfirmed = False
        except (CancelledError, StoreError, OSError) as error:
            # All garbage keeps its rows. Cancellation means that the store closes while other
            # processes may still read the rest, which the next start finds.
            self._queue.clear()
            self._mustReadCatalog = False
            if not isinstance(error, CancelledError):
                self._log.error("cannot read garbage: {error}", error=str(error))
                self._retryAfter(error)
        finally:
            self._running = False
            if not self._inGrace:
                self._waiters.notify()

    async def _remove(self, blobs: Sequence[str]) -> None:
        try:
            if self._peers is not None:
                blobs = await self._peers.withoutReaders(blobs, self._collect)
            await self._removeBlobs(blobs)
            await self._forget(blobs)
        except (StoreError, OSError) as error:
            self._log.error(
                "cannot remove {count} blobs: {error}", count=len(blobs), error=str(error)
            )
            self._retryAfter(error)
