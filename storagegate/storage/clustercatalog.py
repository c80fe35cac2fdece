"""
The part of a catalog that several nodes share: leases, and the work for all nodes. The store itself
does without it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

from attrs import frozen
from zope.interface import Attribute, Interface

from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import ObjectChange

REQUEST_LEASE: ContextVar[int] = ContextVar("REQUEST_LEASE", default=0)
"""
The number of the lease under which the request in progress is committed, or nothing of it is; 0
outside of requests, and in a store without leases.
"""

REQUEST_LEASES: ContextVar[Mapping[int, int] | None] = ContextVar("REQUEST_LEASES", default=None)
"""
The same for a catalog of several shards: the number in each shard, 0 where there was no lease.
"""


@frozen
class EndedLease:
    """
    A lease under which nothing can be committed any more.

    @ivar low: The blobs of the numbers below it are settled.
    @ivar high: The numbers from it on were never used.
    """

    number: int
    low: int
    high: int


@frozen
class NodeRow:
    """
    A lease, as operators see it.

    @ivar expiresSeconds: Until it is over, by the server's clock.
    """

    number: int
    node: str
    isAlive: bool
    expiresSeconds: float
    low: int
    high: int


@frozen
class Backlog:
    """
    What waits to be collected.

    @ivar freed: References that were given back.
    @ivar garbage: Blobs without references.
    @ivar holds: Blobs that long reads have named.
    """

    freed: int
    garbage: int
    holds: int


class INodeLeases(Interface):
    """
    The lease of this node. Methods: reactor thread.

    A lease is a row in the catalog. What this node writes is committed only while it is alive
    there; this node itself counts by its own clock, from the moment before a renewal was sent.
    """

    number: int = Attribute("The number of the lease that is valid now; 0 if there is none.")
    stamp: int = Attribute(
        "That of reads that begin now. What was removed before the last renewal, they do not find."
    )

    isSettled: bool = Attribute(
        "Whether no blob of the current lease is left that may be in no row of the catalog."
    )

    onGivenUp: Callable[[], object] = Attribute(
        "Called when the lease is given up; the node needs a new one."
    )

    async def take(node: str, seconds: float) -> int:
        """
        Take a new lease in place of the current one.

        @param node: A name for operators.
        @param seconds: How long it is valid.
        @return: The new C{stamp}.
        @raise StoreBusy: The catalog did not answer.
        """

    async def renew(seconds: float, readsFrom: int) -> int:
        """
        Renew the lease.

        @param seconds: How long it is valid from now on.
        @param readsFrom: The stamp of the oldest read that is still in progress, or else that of
            the beat before: no blob is collected that a read with such a stamp may have found.
        @return: The new C{stamp}.
        @raise StoreReadOnly: The lease is over; another one is needed.
        @raise StoreBusy: The catalog did not answer.
        """

    def giveUp() -> None:
        """
        Use the current lease for nothing more; the catalog does so itself when the outcome of a
        commit is unknown, or another server was promoted.
        """

    def settle(id: str) -> None:
        """
        Note that a blob of this node was removed, or will never be made. The catalog notes itself
        what it has committed.

        @param id: Of a blob, of this lease or not.
        """


class ICleanup(Interface):
    """
    What nodes do for all of them: leases that are over, garbage, work of one node. Methods:
    reactor thread; each may raise C{StoreBusy}.
    """

    async def endLapsed() -> list[EndedLease]:
        """
        End the leases whose time is over; return all that are ended and not forgotten. Each waits
        for the commits under it; from then on nothing is committed under it.
        """

    async def endLease(number: int, evenValid: bool = ...) -> None:
        """
        End a lease, after the commits under it.

        @param number: Of the lease.
        @param evenValid: Also if it is not over: this node's own, when it stops.
        """

    async def settleLease(number: int, low: int) -> None:
        """Note that the numbers of an ended lease below C{low} are swept."""

    async def forgetLease(number: int) -> None:
        """Remove an ended lease that is swept, and its holds."""

    async def fold(most: int = ...) -> tuple[int, int]:
        """
        Take references that were given back off the counts of their blobs, if no reader can have
        found them any more.

        @param most: The most references in one transaction.
        @return: How many were folded, and how many blobs have none now: L{ICatalog.garbage} lists
            them.
        """

    async def hold(lease: int, ids: Sequence[str]) -> None:
        """
        Keep blobs for a long read, until L{release} or the end of the lease.

        @param lease: Of this node.
        @param ids: Of the blobs; some may be held by it already.
        """

    async def release(lease: int, ids: Sequence[str]) -> None:
        """Undo L{hold}."""

    async def claimJob(name: str, lease: int, seconds: float) -> bool:
        """
        Become, or stay, the only node that does some work; return whether it is.

        @param name: That of the work.
        @param lease: Of this node.
        @param seconds: Until another node may claim it, if this one does not do so again.
        """

    async def releaseJob(name: str, lease: int) -> None:
        """Let another node do the work."""

    async def nodes() -> list[NodeRow]:
        """List all leases."""

    async def replication() -> tuple[str, int]:
        """Read C{synchronous_standby_names}, and how many standbys commits wait for."""

    async def backlog() -> Backlog:
        """Count what waits to be collected."""


@frozen
class ChangePage:
    """
    Changes of the journal.

    @ivar position: The end of the run of changes that this page is of.
    @ivar changes: With their numbers, in their order.
    @ivar isMore: Whether the run may have more.
    @ivar isMissed: Whether changes before these were removed that were not read.
    @ivar isUsed: Whether the journal has any changes, of these buckets or others.
    @ivar timeline: Of the server. When it is another, positions are void that were not saved.
    """

    position: str
    changes: Sequence[tuple[int, ObjectChange]]
    isMore: bool
    isMissed: bool
    isUsed: bool
    timeline: int


class IChangeJournal(Interface):
    """
    The changes of buckets that nodes watch, in the order of their commits. Methods: reactor thread;
    each may raise C{StoreBusy}.
    """

    onEvents: Callable[[], object] = Attribute("Called when there are new ones, or may be.")

    async def watch(bucket: str, lease: int) -> str:
        """
        Begin to watch a bucket: changes that are committed later are in the journal.

        @param bucket: Its name.
        @param lease: Of this node.
        @return: The position of this moment.
        @raise NoSuchBucket: There is none.
        """

    async def unwatch(bucket: str, lease: int) -> None:
        """
        End L{watch}.

        @param bucket: Its name; it may be gone.
        @param lease: Of this node.
        """

    async def move(before: int, lease: int) -> bool:
        """
        Pass the watches of a lease on to another one of the same node.

        @param before: The former lease.
        @param lease: The one of now.
        @return: Whether they were still there: otherwise changes may not be in the journal.
        """

    async def read(
        position: str, upTo: str | None, after: int, buckets: Sequence[str], limit: int
    ) -> ChangePage:
        """
        Read what was committed after a position.

        @param position: That which is read from.
        @param upTo: The end of the run, for its further pages; L{None} for a new run, up to now.
        @param after: The last number of the page before; 0 for a new run.
        @param buckets: The names of those whose changes are wanted.
        @param limit: The most changes.
        """

    async def save(lease: int, position: str) -> None:
        """
        Note that this node has read everything before a position, durably.

        @param lease: Of this node.
        @param position: The end of a run.
        """

    def listen(isListening: bool) -> None:
        """Choose whether L{onEvents} is called for each commit, or never."""


class IClusterCatalog(ICatalog):
    """A catalog that several nodes share."""

    leases: INodeLeases = Attribute("The lease of this node, which its owner renews.")
    cleanup: ICleanup = Attribute("The work for all nodes.")
    journal: IChangeJournal = Attribute("The changes of buckets that nodes watch.")
    onBlobCleared: Callable[[str], object] = Attribute(
        "Called with a blob that any node, or the fsck, has found right again."
    )
    onBucketChanged: Callable[[str], object] = Attribute(
        "Called with the name of a bucket that any node has changed, made or removed, and with an"
        " empty name if some may have been missed."
    )

    async def shard(bucket: str) -> int | None:
        """
        Look up in which shard a bucket lives.

        @param bucket: Its name.
        @return: Its number; L{None} if there is no such bucket, and never was where there are
            several shards.
        """


class IShardedCatalog(ICatalog):
    """A catalog of several shards, each with leases and garbage of its own."""

    shards: Mapping[int, IClusterCatalog] = Attribute("The shards by their numbers; 0 is one.")

    async def shard(bucket: str) -> int | None:
        """See L{IClusterCatalog.shard}."""
