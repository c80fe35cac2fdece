"""The task that takes a sample of the store's usage at each full hour, see L{UsageHistory}."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from storagegate.storage.errors import StoreError
from storagegate.storage.periodic import PeriodicTask

if TYPE_CHECKING:
    from storagegate.console.usagehistory import UsageHistory
    from storagegate.storage.store import ObjectStore

_HOUR_SECONDS = 3600.0

_LATE_SECONDS = 1.0
"""A timer may fire early by the clock of the machine."""


class UsageSampler:
    """A background task of the store. Must run in the reactor thread."""

    _log = Logger()

    def __init__(
        self,
        store: "ObjectStore",
        makeHistory: "Callable[[], UsageHistory]",
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        """
        @param makeHistory: Opens the history, for each sample: an idle daemon holds no file for it.
        @param now: Returns seconds since the epoch.
        """
        self._store = store
        self._makeHistory = makeHistory
        self._now = now
        self._task = PeriodicTask("the sampler of usage", clock)

    def start(self) -> None:
        """Take a sample at each full hour from now on."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop, after the sample that is being taken."""
        await self._task.stop()

    async def _rounds(self) -> None:
        while not self._task.isStopping:
            await self._task.pause(_HOUR_SECONDS - self._now() % _HOUR_SECONDS + _LATE_SECONDS)
            if not self._task.isStopping:
                await self._sample()

    async def _sample(self) -> None:
        history = self._makeHistory()
        try:
            await history.record(self._store.catalog)
        except StoreError as error:
            self._log.warn("the usage of this hour is not recorded: {error}", error=str(error))
        finally:
            await history.close()
