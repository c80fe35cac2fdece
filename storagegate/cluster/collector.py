"""
Garbage collection: removes the unreferenced blobs of all nodes.

Freed references are subtracted from the counts of their blobs once no read of any node can have
found them. An unreferenced blob is removed first, then its row: after a crash between the two steps
both are repeated.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import uniform

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.backoff import Backoff
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.cluster.interfaces import IClusterCatalog
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.mutations import ForgetBlobs
from storagegate.storage.periodic import PeriodicTask

COLLECT_SECONDS = 1.0
"""Pause between two rounds: reads keep garbage longer, for some renewals of the leases."""

_LONGEST_SECONDS = 30.0
"""The longest pause between failed rounds."""

FOLDED = 10_000
"""References that are folded at a time; if more may be left, the next round starts immediately."""

BATCH = 1000
"""Blobs that are removed at a time."""

_MOST_FAILURES = 20
"""Limit of failed removals in a round; the round stops after this number."""

_COUNT_ROUNDS = 10
"""Rounds between two counts of the backlog."""


@define(eq=False)
class Collector:
    """
    Collects garbage, one batch at a time. Methods must run in the reactor thread.

    @ivar _confirm: See L{storagegate.cluster.jobs.Job.confirm}.
    @ivar removed: The number of removed blobs.
    @ivar failed: The number of failed removals in the last round.
    @ivar backlog: The number of waiting references and blobs at the last count.
    @ivar problem: Why the last round failed; C{None} if it succeeded.
    """

    _log = Logger()

    _catalog: IClusterCatalog
    _blobs: IBlobStore
    _clock: IReactorTime
    _confirm: Callable[[], Awaitable[bool]]
    _pauseSeconds: float = COLLECT_SECONDS
    removed: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)
    backlog: int = field(default=0, init=False)
    problem: str | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _rest: int = field(default=0, init=False)
    _task: PeriodicTask = field(init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the garbage collector", self._clock)

    def start(self) -> None:
        """Collect in rounds until L{stop}, after which it may be called again."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop after the current batch."""
        await self._task.stop()

    async def collect(self) -> bool:
        """
        Fold once, and remove all garbage.

        @return: Whether more references may be left to fold.
        @raise StoreError: If the catalog or the blobs do not respond; the next round continues.
        """
        folded, _ = await self._catalog.cleanup.fold(FOLDED)
        self.failed = 0
        after = ""
        while not self._task.isStopping and self.failed < _MOST_FAILURES:
            ids = await self._catalog.garbage(after, BATCH)
            if not ids:
                return folded >= FOLDED
            after = ids[-1]
            # The list may come from a server that is no longer the primary.
            if not await self._confirm():
                return False
            await self._remove(ids)
        return False

    async def _remove(self, ids: Sequence[str]) -> None:
        """Remove blobs, then their rows; the rows of blobs that cannot be removed stay."""
        try:
            await self._blobs.remove(ids)
        except StoreBusy:
            raise
        except (StoreError, OSError) as error:
            if len(ids) == 1:
                self.failed += 1
                self.problem = f"blob {ids[0]}: {error}"
                return
            middle = len(ids) // 2
            for half in (ids[:middle], ids[middle:]):
                if self.failed < _MOST_FAILURES:
                    await self._remove(half)
            return
        await self._catalog.commit(ForgetBlobs(ids))
        self.removed += len(ids)

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            isMore = False
            self.problem = None
            try:
                isMore = await self.collect()
                if not isMore:
                    await self._count()
            except (StoreError, OSError) as error:
                self.problem = str(error)
            except Exception as error:
                # This node has claimed the job: no other node would continue it.
                self._log.failure("cannot remove garbage")
                self.problem = repr(error)
            self._logProblem()
            # Only one node of the cluster does this, so no jitter is needed.
            backoff = Backoff(
                firstSeconds=self._pauseSeconds, maxSeconds=_LONGEST_SECONDS, jitter=0.0
            )
            await self._task.pause(0 if isMore else backoff.seconds(self._failures, uniform))

    async def _count(self) -> None:
        """Count the backlog in every tenth round: the catalog has to read all of it."""
        self._rest = (self._rest or _COUNT_ROUNDS) - 1
        if not self._rest:
            found = await self._catalog.cleanup.backlog()
            self.backlog = found.freed + found.garbage

    def _logProblem(self) -> None:
        """Log the first failed round, and the next successful one."""
        if self.problem is not None:
            if not self._failures:
                self._log.error("cannot remove garbage: {problem}", problem=self.problem)
            self._failures += 1
        elif self._failures:
            self._failures = 0
            self._log.info("garbage removal works again")
