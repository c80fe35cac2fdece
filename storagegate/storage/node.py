"""
The node of a process in a store. It decides which requests the process may serve, when blobs are
removed, and which tasks run in only one process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from attrs import define
from zope.interface import Attribute, Interface

from storagegate.storage.records import ObjectChange


class HeldBlobs(Protocol):
    """Blobs that are kept for a reader."""

    def release(self) -> None:
        """Release the blobs. Idempotent."""


@define(eq=False)
class BlobLease:
    """A reader's lease on the blobs of one object, until L{release}."""

    _blobs: Sequence[str]
    _release: Callable[[Sequence[str]], None]

    def release(self) -> None:
        """End the lease. Idempotent."""
        blobs, self._blobs = self._blobs, ()
        self._release(blobs)


class BackgroundTask(Protocol):
    """A task that runs while the store is open. Reactor thread."""

    def start(self) -> None:
        """Start. Call once, unless another process ran the task in between."""

    async def stop(self) -> None:
        """Stop, after work in progress has finished."""


class IBucketWatches(Interface):
    """
    The buckets whose changes a process receives, for nodes that require a subscription. Methods:
    reactor thread.
    """

    missedObservers: list[Callable[[], object]] = Attribute(
        "Called when changes of watched buckets were missed, because this process was without "
        "the catalog for too long, or too slow."
    )

    async def watch(bucket: str) -> None:
        """
        Add a watcher of a bucket: the observers of the store are called with every change that is
        committed from now on.

        @param bucket: The bucket's name.
        @raise NoSuchBucket: The bucket does not exist.
        @raise StoreBusy: The catalog did not answer.
        """

    def unwatch(bucket: str) -> None:
        """
        Remove a watcher of a bucket, even if its L{watch} failed.

        @param bucket: The bucket's name.
        """


class IStoreNode(Interface):
    """The node of a process in a store. Methods: reactor thread."""

    admit: Callable[[], object] | None = Attribute(
        "Called for each request, in its own context. Raises C{StoreBusy} while this process "
        "may serve no requests. L{None} if it may always serve."
    )
    hold: Callable[[Iterable[str]], HeldBlobs] = Attribute(
        "Keeps blobs until the lease is released; see"
        " L{ObjectStore.hold<storagegate.storage.store.ObjectStore.hold>}."
    )
    watches: IBucketWatches | None = Attribute(
        "The watches of buckets; without them the observers receive the changes of all buckets."
    )
    backlog: int = Attribute("Number of blobs to remove, as far as this node knows.")
    publishes: bool = Attribute("Whether L{committed} does more than call the observers.")

    def start(observe: Callable[[ObjectChange], None]) -> None:
        """
        Start. Call once.

        @param observe: Calls the observers of this process with a change from any process.
        """

    def reclaim(blobs: Iterable[str]) -> None:
        """
        Remove blobs that have just lost their last reference, after their readers have finished.
        """

    def runInOne(name: str, task: BackgroundTask) -> None:
        """
        Run a task in one of the processes of the store, until L{stop}.

        @param name: The name of the task in all processes.
        """

    def committed(change: ObjectChange) -> None:
        """Publish a change that this process has committed, including to its own observers."""

    def corrupted(ids: Sequence[str]) -> None:
        """Publish that blobs were found corrupt."""

    def cleared(ids: Sequence[str]) -> None:
        """Publish that blobs found corrupt are intact again."""

    def full() -> None:
        """Record that a write was refused because blob storage is full. Any thread."""

    def space() -> tuple[int, int] | None:
        """
        Return the free and total bytes of the data directory's disk; L{None} if the store keeps
        nothing there.

        @raise OSError: The disk does not respond.
        """

    def health() -> Mapping[str, str | None]:
        """Return for each component of this node why writes are refused, or L{None}."""

    def warnings() -> Mapping[str, str | None]:
        """Return for each component a problem that does not stop the store, or L{None}."""

    async def idle() -> None:
        """Wait until all garbage without readers is removed."""

    async def stop() -> None:
        """Stop the tasks and finish work in progress. Call once, before the blobs are closed."""

    async def leave() -> None:
        """
        Release resources that other processes wait for. Call once, after the blobs are closed.
        """
