"""
The open reads of this node, which the collector of any node waits for.

Each read has a stamp of the lease that is not younger than its look-up. Each renewal publishes the
oldest stamp, and no blob is collected that a read with this stamp may have found. To prevent a long
read from blocking all garbage collection, it names its blobs in the catalog after a minute; its
stamp is then ignored::

    open -> naming -> named        release() ends a read in each state
"""

from collections.abc import Collection, Iterable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.cluster.interfaces import ICleanup, INodeLeases
from storagegate.storage.errors import StoreBusy

LONG_SECONDS = 60.0
"""Most reads have ended by then; until then they delay the collection of all garbage."""

_AT_ONCE = 1000
"""Blobs in one statement, unless a single read has more: 50 KiB of ids."""


@define(eq=False)
class OpenRead:
    """
    A reader's lease on the blobs of one object, until L{release}.

    @ivar blobs: The ids of the blobs.
    @ivar stamp: A stamp of the lease that is not younger than the look-up of the blobs.
    @ivar since: The start of the read, by the reactor's clock.
    @ivar isOpen: Whether the blobs are kept for the read; false after the end of the lease.
    """

    blobs: Collection[str]
    stamp: int
    since: float
    _reads: "OpenReads"
    isOpen: bool = field(default=True, init=False)

    def release(self) -> None:
        """End the read. Further calls have no effect."""
        if self.isOpen:
            self.isOpen = False
            self._reads.remove(self)


@define(eq=False)
class _NamedBlobs:
    """
    The blobs that the catalog holds for the long reads of one lease.

    @ivar number: The number of the lease.
    @ivar counts: The number of reads of each blob.
    @ivar unused: The blobs without reads that are not released yet.
    @ivar releasing: The unused blobs whose release is in progress or has an unknown outcome. Until
        a later release succeeds, they may be released at any moment.
    """

    number: int
    counts: dict[str, int] = field(factory=dict, init=False)
    unused: set[str] = field(factory=set, init=False)
    releasing: set[str] = field(factory=set, init=False)

    def add(self, blobs: Iterable[str]) -> None:
        """Add a read whose blobs the catalog holds or will hold."""
        for blob in blobs:
            self.counts[blob] = self.counts.get(blob, 0) + 1
            self.unused.discard(blob)

    def remove(self, blobs: Iterable[str]) -> None:
        """Remove a read whose blobs the catalog holds."""
        for blob in blobs:
            self.counts[blob] -= 1
            if not self.counts[blob]:
                del self.counts[blob]
                self.unused.add(blob)


@define(eq=False)
class OpenReads:
    """
    The open reads of this node. Methods must run in the reactor thread.

    @ivar _longSeconds: The age at which a read names its blobs.
    """

    _log = Logger()

    _leases: INodeLeases
    _cleanup: ICleanup
    _clock: IReactorTime
    _longSeconds: float = LONG_SECONDS
    # In the order of their start, and therefore of their stamps.
    _open: dict[OpenRead, None] = field(factory=dict, init=False)
    _naming: set[OpenRead] = field(factory=set, init=False)
    _long: set[OpenRead] = field(factory=set, init=False)
    _named: _NamedBlobs = field(factory=lambda: _NamedBlobs(0), init=False)
    _isWorking: bool = field(default=False, init=False)
    _isFailing: bool = field(default=False, init=False)

    def hold(self, blobs: Collection[str]) -> OpenRead:
        """
        Keep blobs until the read is released.

        This must be called before the second renewal after the look-up that returned them. Look-ups
        and renewals complete in order, so the stamp before the last renewal is not younger than the
        look-up, although the request may have waited in between for a decision on access.

        @param blobs: The ids of the blobs, without duplicates.
        @raise StoreBusy: If this node has no lease.
        """
        if not self._leases.number:
            raise StoreBusy("this node holds no lease")
        read = OpenRead(blobs, self._leases.earlier, self._clock.seconds(), self)
        self._open[read] = None
        return read

    def __len__(self) -> int:
        return len(self._open) + len(self._long)

    def oldest(self) -> int | None:
        """Return the oldest stamp of the reads whose blobs are not named in the catalog."""
        first = next(iter(self._open), None)
        return None if first is None else first.stamp

    def remove(self, read: OpenRead) -> None:
        """Remove a read that has ended."""
        self._open.pop(read, None)
        if read in self._naming or read in self._long:
            self._naming.discard(read)
            self._long.discard(read)
            self._named.remove(read.blobs)
            self._work()

    def beat(self) -> None:
        """Name the blobs of long reads in the catalog. Called with each renewal."""
        self._work()

    def end(self) -> None:
        """
        Forget all reads: the lease has ended, and the catalog no longer holds their blobs. A read
        that continues gets the bytes of its blobs, whose ids are never reused, or an error.
        """
        ended = [*self._open, *self._long]
        self._open.clear()
        self._naming.clear()
        self._long.clear()
        self._named = _NamedBlobs(0)
        for read in ended:
            read.isOpen = False

    def _work(self) -> None:
        if not self._isWorking and self._leases.number:
            self._isWorking = True
            if not self._named.number:
                self._named = _NamedBlobs(self._leases.number)
            Deferred.fromCoroutine(self._name(self._named)).addErrback(
                lambda failure: self._log.failure(
                    "long reads are not protected from garbage collection", failure
                )
            )

    async def _name(self, named: _NamedBlobs) -> None:
        """Update the catalog; the next beat retries failures."""
        try:
            while await self._release(named) or await self._hold(named):
                pass
            if self._isFailing:
                self._isFailing = False
                self._log.info("long reads are protected again")
        except StoreBusy as error:
            if not self._isFailing:
                self._isFailing = True
                self._log.warn("long reads are not protected yet: {error}", error=str(error))
        finally:
            self._isWorking = False

    async def _release(self, named: _NamedBlobs) -> bool:
        named.releasing.update([*named.unused][:_AT_ONCE])
        if named is not self._named or not named.releasing:
            return False
        ids = [*named.releasing]
        await self._cleanup.release(named.number, ids)
        named.releasing.clear()
        named.unused.difference_update(ids)
        return True

    async def _hold(self, named: _NamedBlobs) -> bool:
        reads: list[OpenRead] = []
        blobs: set[str] = set()
        latest = self._clock.seconds() - self._longSeconds
        for read in self._open:
            if read.since > latest or len(blobs) >= _AT_ONCE:
                break
            reads.append(read)
            blobs.update(read.blobs)
        if named is not self._named or not reads:
            return False
        self._naming.update(reads)
        for read in reads:
            named.add(read.blobs)
        try:
            await self._cleanup.hold(named.number, [*blobs])
        except BaseException:
            self._failed(named, reads)
            raise
        if named is self._named:
            for read in self._naming.intersection(reads):
                # Now a renewal may publish a younger stamp.
                del self._open[read]
                self._long.add(read)
            self._naming.clear()
        return True

    def _failed(self, named: _NamedBlobs, reads: Iterable[OpenRead]) -> None:
        """Record that blobs may be held or not: they are released, or held once more."""
        if named is self._named:
            for read in self._naming.intersection(reads):
                named.remove(read.blobs)
            self._naming.clear()
