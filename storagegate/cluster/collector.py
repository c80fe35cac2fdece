"""
Removes the blobs that no object has any more, of all nodes.

The references that mutations gave back are taken off the counts of their blobs, once no read of any
node can have found them. A blob without references is removed, and then its row: a crash between
the two repeats it.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import uniform

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.core.backoff import Backoff
from storagegate.storage.blobinterfaces import IBlobStore
from storagegate.storage.clustercatalog import IClusterCatalog
from storagegate.storage.errors import StoreBusy, StoreError
from storagegate.storage.periodic import PeriodicTask

COLLECT_SECONDS = 1.0
"""Between rounds: reads keep garbage for longer, by some renewals of the leases."""

_LONGEST_SECONDS = 30.0
"""Between rounds that fail."""

FOLDED = 10_000
"""References that are folded at once; the next round follows at once if there may be more."""

BATCH = 1000
"""Blobs that are removed at once."""

_MOST_FAILURES = 20
"""Blobs of a round that cannot be removed; after so many the others are not tried."""

_COUNT_ROUNDS = 10
"""Rounds from one count of the backlog to the next."""


@define(eq=False)
class Collector:
    """
    Collects garbage, one batch at a time. All methods: reactor thread.

    @ivar _confirm: See L{storagegate.cluster.jobs.Job.confirm}.
    @ivar removed: How many blobs were removed.
    @ivar failed: How many blobs could not be removed in the last round.
    @ivar backlog: How much waited when it was counted last: references and blobs.
    @ivar problem: Why the last round has failed; L{None} if it has not.
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
        return PeriodicTask("the collector of garbage", self._clock)

    def start(self) -> None:
        """Collect, round after round, until L{stop}. Also again after that."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop, when no batch is in work."""
        await self._task.stop()

    async def collect(self) -> bool:
        """
        Fold once, and remove all garbage.

        @return: Whether there may be more to fold.
        @raise StoreError: Catalog or blobs do not answer; the next round goes on.
        """
        folded, _ = await self._catalog.cleanup.fold(FOLDED)
        self.failed = 0
        after = ""
        while not self._task.isStopping and self.failed < _MOST_FAILURES:
            ids = await self._catalog.garbage(after, BATCH)
            if not ids:
                return folded >= FOLDED
            after = ids[-1]
            # What was read may be of a server that is no primary any more.
            if not await self._confirm():
                return False
            await self._remove(ids)
        return False

    async def _remove(self, ids: Sequence[str]) -> None:
        """Remove blobs, then their rows; of those that cannot be removed the rows stay."""
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
        await self._catalog.forgetBlobs(ids)
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
                # This node has claimed the work: none would go on in its place.
                self._log.failure("garbage was not removed")
                self.problem = repr(error)
            self._logProblem()
            # Of all nodes only one does this: none come back together.
            backoff = Backoff(
                firstSeconds=self._pauseSeconds, maxSeconds=_LONGEST_SECONDS, jitter=0.0
            )
            await self._task.pause(0 if isMore else backoff.seconds(self._failures, uniform))

    async def _count(self) -> None:
        """Count what waits, now and then: the catalog reads all of it."""
        self._rest = (self._rest or _COUNT_ROUNDS) - 1
        if not self._rest:
            found = await self._catalog.cleanup.backlog()
            self.backlog = found.freed + found.garbage

    def _logProblem(self) -> None:
        """Log the first round that fails, and the next that does not."""
        if self.problem is not None:
            if not self._failures:
                self._log.error("garbage was not removed: {problem}", problem=self.problem)
            self._failures += 1
        elif self._failures:
            self._failures = 0
            self._log.info("garbage is removed again")
