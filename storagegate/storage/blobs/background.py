"""Unlinks that nobody waits for."""

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.storage.errors import StoreBusy
from storagegate.storage.files import Files, unlinkIfThere
from storagegate.storage.pool import IWorkPool
from storagegate.storage.waiters import IdleWaiters

_BATCH = 512
"""Names a job: few jobs, yet none that keeps a thread for long."""

_BACKLOG = 65_536
"""Names that may wait (8 MB of them); any more are left for the sweep of the next start."""


class BackgroundUnlinker:
    """Takes names away in the pool, one job at a time. All methods but one: reactor thread."""

    _log = Logger()

    def __init__(self, pool: IWorkPool, files: Files) -> None:
        self._pool = pool
        self._files = files
        self._paths: list[str] = []
        self._running = False
        self._waiters = IdleWaiters()

    def unlink(self, paths: Iterable[str]) -> None:
        """Take these names away, some time."""
        if len(self._paths) < _BACKLOG:
            self._paths.extend(paths)
        if not self._running:
            self._next()

    def idle(self) -> Deferred[None]:
        """Wait until nothing is left to do."""
        return self._waiters.wait(self._running)

    def _next(self) -> None:
        batch, self._paths = self._paths[:_BATCH], self._paths[_BATCH:]
        self._running = bool(batch)
        if batch:
            job = self._pool.runAnyway(self._unlinkAll, batch)
            job.addCallbacks(lambda _: self._next(), self._giveUp)
        else:
            self._waiters.tell()

    def _giveUp(self, failure: Failure) -> None:
        # A pool that has stopped refuses: the rest is for the sweep of the next start.
        if failure.check(StoreBusy) is None:
            self._log.failure("names were not removed", failure)
        self._paths.clear()
        self._running = False
        self._waiters.tell()

    def _unlinkAll(self, paths: list[str]) -> None:
        """Take names away; one that resists is logged. Runs in a pool thread."""
        for path in paths:
            try:
                unlinkIfThere(self._files, path)
            except OSError as error:
                self._log.error("{path} was not removed: {error}", path=path, error=str(error))
