"""
The additional interface of a catalog that several nodes share: leases, and work on behalf of all
nodes. The store itself does not use it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

from attrs import frozen
from zope.interface import Attribute, Interface

from storagegate.storage.consolerecords import IConsoleRecords
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import ObjectChange

REQUEST_LEASE: ContextVar[int] = ContextVar("REQUEST_LEASE", default=0)
"""
The number of the lease under which the current request commits; after it ends, the request commits
nothing. 0 outside a request and in a store without leases.
"""

REQUEST_LEASES: ContextVar[Mapping[int, int] | None] = ContextVar("REQUEST_LEASES", default=None)
"""
The lease numbers of the current request by shard, for a sharded catalog; 0 for a shard without a
lease.
"""


@frozen
class EndedLease:
    """
    An ended lease: nothing more can be committed under it.

    @ivar low: Blobs with lower numbers are settled.
    @ivar high: This number and higher numbers were never used.
    """

    number: int
    low: int
    high: int


@frozen
class NodeRow:
    """
    A lease as shown to operators.

    @ivar expiresSeconds: Seconds until the lease expires, by the server's clock.
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
    The backlog of garbage collection.

    @ivar freed: References that were freed and are not yet folded.
    @ivar garbage: Blobs without references.
    @ivar holds: Blobs held for long reads.
    """

    freed: int
    garbage: int
    holds: int


class INodeLeases(Interface):
    """
    The lease of this node. Methods: reactor thread.

    A lease is a row in the catalog. Writes of this node are committed only while that row is alive.
    The node itself measures the lease by its own clock, from before it sent the renewal.
    """

    number: int = Attribute("The number of the valid lease; 0 for none.")
    stamp: int = Attribute(
        "The stamp of reads that begin now. Such reads cannot find what was removed before the "
        "last renewal."
    )
    earlier: int = Attribute("The stamp before the last renewal, or of the beginning of the lease.")

    isSettled: bool = Attribute(
        "Whether every blob of the current lease is in a row of the catalog or was removed."
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

        @param seconds: How long the lease is valid from now on.
        @param readsFrom: The stamp of the oldest read in progress, or else the stamp of the
            previous heartbeat. A blob that a read with this stamp may have found is not collected.
        @return: The new C{stamp}.
        @raise StoreReadOnly: The lease has ended; the node must take a new one.
        @raise StoreBusy: The catalog did not answer.
        """

    def giveUp() -> None:
        """
        Give up the current lease. The catalog also does so itself when the outcome of a commit is
        unknown or another server was promoted.
        """

    def settle(id: str) -> None:
        """
        Record that a blob of this node was removed or will never be created. The catalog records
        committed blobs itself.

        @param id: The blob's id, of this lease or any other.
        """


class ICleanup(Interface):
    """
    Work on behalf of all nodes: expired leases, garbage, and jobs that run on one node. Methods:
    reactor thread; each may raise C{StoreBusy}.
    """

    async def endLapsed() -> list[EndedLease]:
        """
        End the expired leases, and return all leases that are ended but not forgotten. Ending a
        lease waits for its commits; nothing is committed under it afterwards.
        """

    async def endLease(number: int, evenValid: bool = ...) -> None:
        """
        End a lease after its commits.

        @param number: The number of the lease.
        @param evenValid: Whether to end a lease that has not expired: this node's own, when it
            stops.
        """

    async def settleLease(number: int, low: int) -> None:
        """Record that the numbers of an ended lease below C{low} are swept."""

    async def forgetLease(number: int) -> None:
        """Remove a swept lease and its holds."""

    async def fold(most: int = ...) -> tuple[int, int]:
        """
        Fold freed references that no reader can still have found into the counts of their blobs.

        @param most: The most references in one transaction.
        @return: The number of folded references, and the number of blobs left without references,
            which L{ICatalog.garbage} lists.
        """

    async def hold(lease: int, ids: Sequence[str]) -> None:
        """
        Hold blobs for a long read, until L{release} or the end of the lease.

        @param lease: The lease of this node.
        @param ids: The blobs' ids; the lease may already hold some.
        """

    async def release(lease: int, ids: Sequence[str]) -> None:
        """Undo L{hold}."""

    async def claimJob(name: str, lease: int, seconds: float) -> bool:
        """
        Claim a job for this node, or keep it; return whether this node has it.

        @param name: The name of the job.
        @param lease: The lease of this node.
        @param seconds: How long the claim lasts unless it is renewed.
        """

    async def releaseJob(name: str, lease: int) -> None:
        """Release a job to other nodes."""

    async def nodes() -> list[NodeRow]:
        """List all leases."""

    async def replication() -> tuple[str, int]:
        """Read C{synchronous_standby_names} and the number of standbys that commits wait for."""

    async def backlog() -> Backlog:
        """Count the backlog of garbage collection."""


@frozen
class ChangePage:
    """
    A page of changes from the journal.

    @ivar position: The end of the run of changes that contains this page.
    @ivar changes: Numbered changes, in order.
    @ivar isMore: Whether the run may have further pages.
    @ivar isMissed: Whether earlier changes were removed before they were read.
    @ivar isUsed: Whether the journal has any changes, of these or other buckets.
    @ivar timeline: The timeline of the server. A new timeline invalidates positions that were not
        saved.
    """

    position: str
    changes: Sequence[tuple[int, ObjectChange]]
    isMore: bool
    isMissed: bool
    isUsed: bool
    timeline: int


class IChangeJournal(Interface):
    """
    The changes of watched buckets, in commit order. Methods: reactor thread; each may raise
    C{StoreBusy}.
    """

    onEvents: Callable[[], object] = Attribute("Called when there are, or may be, new events.")

    async def watch(bucket: str, lease: int) -> str:
        """
        Start watching a bucket: the journal records all changes that are committed later.

        @param bucket: The bucket's name.
        @param lease: The lease of this node.
        @return: The current position.
        @raise NoSuchBucket: The bucket does not exist.
        """

    async def unwatch(bucket: str, lease: int) -> None:
        """
        End L{watch}.

        @param bucket: The bucket's name; the bucket may be gone.
        @param lease: The lease of this node.
        """

    async def move(before: int, lease: int) -> bool:
        """
        Transfer the watches of a lease to another lease of the same node.

        @param before: The former lease.
        @param lease: The current lease.
        @return: Whether the watches still existed; if not, the journal may lack changes.
        """

    async def read(
        position: str, upTo: str | None, after: int, buckets: Sequence[str], limit: int
    ) -> ChangePage:
        """
        Read the changes committed after a position.

        @param position: The position to read from.
        @param upTo: The end of the run, for its further pages; L{None} starts a new run up to now.
        @param after: The last number of the previous page; 0 for a new run.
        @param buckets: The names of the buckets to read.
        @param limit: The most changes in the page.
        """

    async def save(lease: int, position: str) -> None:
        """
        Durably record that this node has read everything before a position.

        @param lease: The lease of this node.
        @param position: The end of a run.
        """

    def listen(isListening: bool) -> None:
        """Choose whether L{onEvents} is called for each commit or never."""


class IClusterCatalog(ICatalog):
    """A catalog that several nodes share."""

    leases: INodeLeases = Attribute("The lease of this node, which its owner renews.")
    cleanup: ICleanup = Attribute("The work of one node for all nodes.")
    journal: IChangeJournal = Attribute("The changes of buckets that nodes watch.")
    consoleRecords: IConsoleRecords = Attribute("The records of the console, for all nodes.")
    onBlobCleared: Callable[[str], object] = Attribute(
        "Called with a blob that any node, or fsck, has found to be correct again."
    )
    onBucketChanged: Callable[[str], object] = Attribute(
        "Called with the name of a bucket that any node has changed, created or removed; with "
        "an empty name if changes may have been missed."
    )

    def requireStandby() -> None:
        """Refuse changes with C{NoStandby} from now on, while commits wait for no standby."""

    async def shard(bucket: str) -> int | None:
        """
        Look up the shard of a bucket.

        @param bucket: The bucket's name.
        @return: The number of the shard; L{None} if the bucket does not exist. With several shards,
            L{None} means that it never existed.
        """


class IShardedCatalog(ICatalog):
    """A catalog of several shards, each with its own leases and garbage."""

    shards: Mapping[int, IClusterCatalog] = Attribute(
        "The shards by number; shard 0 always exists."
    )
    consoleRecords: IConsoleRecords = Attribute("See L{IClusterCatalog}.")

    async def shard(bucket: str) -> int | None:
        """See L{IClusterCatalog.shard}."""
