"""
The reads in progress of this node, which the collector of any node waits for.

Each read has the stamp of the lease at the moment of its look-up. With each renewal the node tells
the oldest of them, and nothing is collected that a read of that age may have found. So that one
long read does not keep all garbage of the store, it names its blobs in the catalog after a minute,
and its stamp counts no longer::

    open -> naming -> named        release() ends a read in each state
"""

from collections.abc import Collection, Iterable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.clustercatalog import ICleanup, INodeLeases
from storagegate.storage.errors import StoreBusy

LONG_SECONDS = 60.0
"""Most reads are over by then; until then they delay the collection of all garbage."""

_AT_ONCE = 1000
"""Blobs in one statement, unless one read has more: 50 KiB of ids."""


@define(eq=False)
class OpenRead:
    """
    The right of a reader to the blobs of one object, until L{release}.

    @ivar blobs: Their ids.
    @ivar stamp: That of the lease when the blobs were looked up.
    @ivar since: By the clock of the reactor.
    @ivar isOpen: Whether the blobs are kept for it: no more after the end of the lease.
    """

    blobs: Collection[str]
    stamp: int
    since: float
    _reads: "OpenReads"
    isOpen: bool = field(default=True, init=False)

    def release(self) -> None:
        """End the read. A second time does nothing."""
        if self.isOpen:
            self.isOpen = False
            self._reads.remove(self)


@define(eq=False)
class _NamedBlobs:
    """
    The blobs that the catalog holds for the long reads of one lease.

    @ivar number: Of the lease.
    @ivar counts: How many reads have each.
    @ivar unused: Those that have no reads any more, and are not released yet.
    @ivar releasing: Those of them whose release is under way, or of unknown outcome: until another
        one has succeeded, they may be released at any moment.
    """

    number: int
    counts: dict[str, int] = field(factory=dict, init=False)
    unused: set[str] = field(factory=set, init=False)
    releasing: set[str] = field(factory=set, init=False)

    def add(self, blobs: Iterable[str]) -> None:
        """Note a read that the catalog holds the blobs for, or will."""
        for blob in blobs:
            self.counts[blob] = self.counts.get(blob, 0) + 1
            self.unused.discard(blob)

    def remove(self, blobs: Iterable[str]) -> None:
        """Note the end of such a read."""
        for blob in blobs:
            self.counts[blob] -= 1
            if not self.counts[blob]:
                del self.counts[blob]
                self.unused.add(blob)


@define(eq=False)
class OpenReads:
    """
    The reads of this node. Methods: reactor thread.

    @ivar _longSeconds: After so long a read names its blobs.
    """

    _log = Logger()

    _leases: INodeLeases
    _cleanup: ICleanup
    _clock: IReactorTime
    _longSeconds: float = LONG_SECONDS
    # In the order in which they began, and so of their stamps.
    _open: dict[OpenRead, None] = field(factory=dict, init=False)
    _naming: set[OpenRead] = field(factory=set, init=False)
    _long: set[OpenRead] = field(factory=set, init=False)
    _named: _NamedBlobs = field(factory=lambda: _NamedBlobs(0), init=False)
    _isWorking: bool = field(default=False, init=False)
    _isFailing: bool = field(default=False, init=False)

    def hold(self, blobs: Collection[str]) -> OpenRead:
        """
        Keep blobs until the read is released.

        It must be called in the reactor iteration in which a look-up returned them: look-ups and
        renewals are answered in their order, so the current stamp is not younger than the look-up.

        @param blobs: Ids, each once.
        @raise StoreBusy: This node has no lease.
        """
        if not self._leases.number:
            raise StoreBusy("this node has no lease")
        read = OpenRead(blobs, self._leases.stamp, self._clock.seconds(), self)
        self._open[read] = None
        return read

    def __len__(self) -> int:
        return len(self._open) + len(self._long)

    def oldest(self) -> int | None:
        """Return the oldest stamp of the reads whose blobs the catalog does not hold."""
        first = next(iter(self._open), None)
        return None if first is None else first.stamp

    def remove(self, read: OpenRead) -> None:
        """Note the end of a read."""
        self._open.pop(read, None)
        if read in self._naming or read in self._long:
            self._naming.discard(read)
            self._long.discard(read)
            self._named.remove(read.blobs)
            self._work()

    def beat(self) -> None:
        """Have the catalog hold the blobs of reads that have become long. With each renewal."""
        self._work()

    def end(self) -> None:
        """
        Forget all reads: the lease is over, and with it what the catalog holds for them. One that
        goes on gets the bytes of its blobs, whose ids are never used again, or an error.
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
                lambda failure: self._log.failure("long reads were not held", failure)
            )

    async def _name(self, named: _NamedBlobs) -> None:
        """Bring the catalog up to date; what fails is tried again with the next beat."""
        try:
            while await self._release(named) or await self._hold(named):
                pass
            if self._isFailing:
                self._isFailing = False
                self._log.info("long reads are held again")
        except StoreBusy as error:
            if not self._isFailing:
                self._isFailing = True
                self._log.warn("long reads are not held yet: {error}", error=str(error))
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
                # Now a renewal may pass a younger stamp.
                del self._open[read]
                self._long.add(read)
            self._naming.clear()
        return True

    def _failed(self, named: _NamedBlobs, reads: Iterable[OpenRead]) -> None:
        """Note that blobs may be held, or not: they are released, or held once more."""
        if named is self._named:
            for read in self._naming.intersection(reads):
                named.remove(read.blobs)
            self._naming.clear()
