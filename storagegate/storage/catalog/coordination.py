"""Whose turn it is to write, and what the catalog shares with those of other processes."""

from types import TracebackType

from attrs import define, field

from storagegate.storage.catalog.cache import RecordCache
from storagegate.storage.sqlite import FailStopLatch


class WriteLock:
    """
    The right to write; of a process that is alone it is always the turn.

    It is entered and left in the writer thread.
    """

    def __enter__(self) -> None:
        """Wait for the turn. Blocks."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let others write."""

    def began(self) -> None:
        """Note that a batch is about to be committed: what was read before may be old."""

    def delivered(self) -> None:
        """Note that this process knows what became of the batch. Reactor thread."""

    @property
    def waitedSeconds(self) -> float:
        """How long it has been waited for now. Any thread."""
        return 0.0


class WALSizeCounter:
    """
    How much has been written to the WAL. Any thread.

    @ivar total: Bytes, by all who write, since some time.
    """

    total = 0

    def add(self, size: int) -> None:
        """Count more. Writer thread."""
        self.total += size


@define
class SharedCatalogState:
    """
    What a catalog shares with those of other processes; by default nothing.

    @ivar isShared: Whether there may be others.
    """

    hot: RecordCache = field(factory=RecordCache)
    latch: FailStopLatch = field(factory=FailStopLatch)
    turn: WriteLock = field(factory=WriteLock)
    growth: WALSizeCounter = field(factory=WALSizeCounter)
    isShared: bool = False
