"""The issued access keys in memory, read again from the catalog when they have changed."""

from collections.abc import Mapping

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.task import IdleWaiters
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import AccessKey

POLL_SECONDS = 0.5
"""Half of the second within which a key that another process revokes must stop working."""


class AccessKeySnapshot:
    """
    The access keys of a store as the catalog had them half a second ago at most.

    All methods: reactor thread.

    @ivar generation: The catalog's number of this snapshot; -1 before the first.
    @ivar keys: The keys by name. Replaced, never changed.
    @ivar problem: Why the last poll failed; L{None} if it did not.
    """

    _log = Logger()

    def __init__(self, catalog: ICatalog, clock: IReactorTime) -> None:
        self._catalog = catalog
        self._clock = clock
        self.generation = -1
        self.keys: Mapping[str, AccessKey] = {}
        self.problem: str | None = None
        self._polling: Deferred[None] | None = None
        self._waiters = IdleWaiters()

    def start(self) -> None:
        """Poll until L{stop}; the first time at once. Once."""
        self._polling = Deferred.fromCoroutine(self._poll())

    @property
    def isLoaded(self) -> bool:
        """Whether the keys have been read."""
        return self.generation >= 0

    def loaded(self) -> Deferred[None]:
        """Wait until the keys have been read for the first time."""
        return self._waiters.wait(not self.isLoaded)

    async def refresh(self) -> None:
        """Read the keys if their generation is a newer one. A failure is kept as L{problem}."""
        try:
            if await self._catalog.keysGeneration() != self.generation:
                generation, keys = await self._catalog.accessKeys()
                # Of two that are read at one time the older one may come last.
                if generation > self.generation:
                    self.generation = generation
                    self.keys = {key.accessKey: key for key in keys}
        except CancelledError:
            raise
        except Exception as error:
            if self.problem is None:
                self._log.error("access keys were not read: {error}", error=str(error))
            self.problem = str(error) or type(error).__name__
            return
        self.problem = None
        self._waiters.notify()

    async def stop(self) -> None:
        """Poll no more."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await polling

    async def _poll(self) -> None:
        try:
            while True:
                await self.refresh()
                await deferLater(self._clock, POLL_SECONDS)
        except CancelledError:
            return
