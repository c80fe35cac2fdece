"""
A catalog as it is behind a network: every look-up comes back late, and not in the order of the
calls. What it returns is read from a real L{SQLiteCatalog}.

Registered as C{"delayed"}. A daemon has it where C{STORE_UNDER_TEST} names it; see
L{tests.support.daemon}.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from storagegate.storage.backends import CATALOGS, DEFAULT_CATALOG, BackEndContext, OpenCatalog
from storagegate.storage.embedded.catalog import SQLiteCatalog
from storagegate.storage.embedded.catalog import openCatalog as openSQLiteCatalog
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import ForgetBlobs, Mutation, T

SHORTEST_SECONDS = 0.002
LONGEST_SECONDS = 0.020

GRACE_SECONDS = 2.0
"""Many times what a look-up takes to come back, also on a machine that is busy."""

DELAYED = "delayed"
"""The name of this back end."""

CATALOGS[DELAYED] = "tests.contract.delayedcatalog:openCatalog"

_LATE = frozenset(
    {
        "accessKeys",
        "blobRow",
        "blobRows",
        "bucket",
        "buckets",
        "bucketsWith",
        "checkInline",
        "completed",
        "deleteMarker",
        "expiryPage",
        "keysGeneration",
        "knownBlobs",
        "listObjects",
        "listVersions",
        "object",
        "olderVersions",
        "parts",
        "progress",
        "referenced",
        "settings",
        "upload",
        "uploads",
        "usage",
    }
)


@implementer(ICatalog)
class DelayedCatalog:
    """
    Delays each look-up of a catalog before it is read and after it. Mutations pass.

    @ivar lookUps: How many look-ups came back.
    """

    def __init__(
        self,
        catalog: SQLiteCatalog,
        clock: IReactorTime,
        graceSeconds: float = GRACE_SECONDS,
        seed: int = 1,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._random = Random(seed)
        self._openedAt = clock.seconds()
        self._garbageSince: dict[str, float] = {}
        self.graceSeconds = graceSeconds
        self.lookUps = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._catalog, name)
        return self._delayed(found) if name in _LATE else found

    def noteGarbage(self, blobs: Sequence[str]) -> None:
        """Remember when blobs lost their last reference."""
        self._garbageSince.update(dict.fromkeys(blobs, self._clock.seconds()))

    async def garbage(self, after: str, limit: int) -> list[str]:
        """See L{ICatalog.garbage}: the young garbage is left out."""
        await self._pause()
        while page := await self._catalog.garbage(after, limit):
            oldest = self._clock.seconds() - self.graceSeconds
            old = [b for b in page if self._garbageSince.get(b, self._openedAt) <= oldest]
            if old:
                return old
            after = page[-1]
        return []

    def commit(self, mutation: Mutation[T]) -> Deferred[T]:
        """See L{ICatalog.commit}."""
        if isinstance(mutation, ForgetBlobs):
            for blob in mutation.ids:
                self._garbageSince.pop(blob, None)
        return self._catalog.commit(mutation)

    def _delayed(self, lookUp: Callable[..., Any]) -> Callable[..., Any]:
        async def late(*arguments: Any, **named: Any) -> Any:
            await self._pause()
            try:
                return await lookUp(*arguments, **named)
            finally:
                await self._pause()
                self.lookUps += 1

        return late

    async def _pause(self) -> None:
        seconds = self._random.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) / 2
        await deferLater(self._clock, seconds)


def openCatalog(context: BackEndContext) -> OpenCatalog:
    """Open the C{catalog.sqlite} of a store behind the delay."""
    found: list[DelayedCatalog] = []

    def onGarbage(blobs: Sequence[str]) -> None:
        found[0].noteGarbage(blobs)
        context.onGarbage(blobs)

    opened = openSQLiteCatalog(evolve(context, onGarbage=onGarbage))
    assert isinstance(opened.catalog, SQLiteCatalog)
    found.append(DelayedCatalog(opened.catalog, context.reactor))
    return OpenCatalog(found[0], opened.knownBlobs)


def install() -> None:
    """Have every store of this process opened so."""
    CATALOGS[DEFAULT_CATALOG] = CATALOGS[DELAYED]
