"""The issued access keys, kept in memory and fresh."""

import time
from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import WeakSet

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.core.task import IdleWaiters
from storagegate.storage.errors import StoreError
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import NoteKeyUses
from storagegate.storage.records import AccessKey, AccountDocuments

_NO_IDENTITIES: Mapping[str, AccountDocuments] = {}

KEYS_POLL_SECONDS = 0.5
"""Half of the second within which a key revoked by another process must stop working."""


_CERTAIN_SECONDS = 4.0
"""Less than the five seconds within which a request must be answered."""


USES_SECONDS = 60.0
"""Interval between commits of key uses, if any key was used."""


class KeyUser(Protocol):
    """Tracks which access keys were used."""

    def takeUsed(self) -> Iterable[str]:
        """Return the issued keys that were used since the last call."""


@define(eq=False)
class AccessKeySnapshot:
    """
    A snapshot of a store's access keys, at most half a second old.

    All methods: reactor thread.

    @ivar _staleSeconds: How long the keys may be used after they were read; L{None}: until a poll
        fails.
    @ivar generation: The catalog's generation of this snapshot; -1 before the first.
    @ivar keys: The keys by name. The mapping is replaced, never mutated.
    @ivar identities: The documents of accounts, by account. The mapping is replaced, never mutated;
        the documents of an unchanged account stay the same object.
    @ivar problem: Why the last poll failed; L{None} if it succeeded.
    @ivar users: The sources of key uses, which are recorded in the catalog once a minute.
    """

    _log = Logger()

    _catalog: ICatalog
    _clock: IReactorTime
    _staleSeconds: float | None = None
    generation: int = field(default=-1, init=False)
    keys: Mapping[str, AccessKey] = field(factory=dict, init=False)
    identities: Mapping[str, AccountDocuments] = field(factory=dict, init=False)
    problem: str | None = field(default=None, init=False)
    users: "WeakSet[KeyUser]" = field(factory=WeakSet, init=False)
    _notedAt: float = field(init=False)
    _polling: Deferred[None] | None = field(default=None, init=False)
    _waiters: IdleWaiters = field(factory=IdleWaiters, init=False)
    _begun: int = field(default=0, init=False)
    _taken: int = field(default=0, init=False)
    # The generation to which the documents are complete.
    _complete: int = field(default=0, init=False)
    # Keys that were never read are in doubt.
    _takenAt: float = field(default=float("-inf"), init=False)

    @_notedAt.default
    def _makeNotedAt(self) -> float:
        return self._clock.seconds()

    def start(self) -> None:
        """Poll immediately and then until L{stop}. Call once."""
        self._polling = Deferred.fromCoroutine(self._poll())

    @property
    def isLoaded(self) -> bool:
        """Whether the keys have been read."""
        return self.generation >= 0

    def loaded(self) -> Deferred[None]:
        """Wait until the keys have been read for the first time."""
        return self._waiters.wait(not self.isLoaded)

    @property
    def isInDoubt(self) -> bool:
        """Whether a key may have been revoked for longer than a second."""
        stale = self._staleSeconds
        if stale is not None and self._clock.seconds() > self._takenAt + stale:
            return True
        return self.problem is not None

    def secret(self) -> bytes:
        """Return the secret of the store, see L{ICatalog.secret}."""
        return self._catalog.secret()

    async def certain(self) -> None:
        """Wait until the keys are not in doubt, or until a timeout."""
        waiting = self._waiters.wait(self.isInDoubt)
        await waiting.addTimeout(_CERTAIN_SECONDS, self._clock, lambda result, seconds: None)

    async def refresh(self) -> None:
        """Read the keys if their generation has changed. A failure is kept in L{problem}."""
        self._begun += 1
        number, began = self._begun, self._clock.seconds()
        try:
            generation, keys = await self._catalog.keysGeneration(), None
            complete, changed = self._complete, _NO_IDENTITIES
            if generation != self.generation:
                generation, keys = await self._catalog.accessKeys()
                # Read last, so these are as new as the keys; a newer generation is read again.
                complete, changed = await self._catalog.identities(complete)
            # The older of two concurrent reads may end last.
            if number > self._taken:
                self._taken, self._takenAt = number, began
                if keys is not None:
                    self.generation = generation
                    self.keys = {key.accessKey: key for key in keys}
                    self._complete = complete
                    if changed:
                        self.identities = {**self.identities, **changed}
        except CancelledError:
            raise
        except Exception as error:
            if self.problem is None:
                self._log.error("cannot read access keys: {error}", error=str(error))
            self.problem = str(error) or type(error).__name__
            return
        self.problem = None
        self._waiters.notify()

    def notice(self) -> None:
        """Read the keys now, because they have changed."""
        if self._polling is not None:
            Deferred.fromCoroutine(self.refresh()).addErrback(lambda failure: None)

    async def stop(self) -> None:
        """Stop polling and record the last uses."""
        polling, self._polling = self._polling, None
        if polling is not None:
            polling.cancel()
            await polling
        await self._noteUses()

    async def _noteUses(self) -> None:
        self._notedAt = self._clock.seconds()
        nowMs = time.time_ns() // 1_000_000
        uses = {name: nowMs for user in tuple(self.users) for name in user.takeUsed()}
        if uses:
            try:
                await self._catalog.commit(NoteKeyUses(uses))
            except StoreError as error:
                self._log.info("cannot record the use of keys: {error}", error=str(error))

    async def _poll(self) -> None:
        try:
            while True:
                await self.refresh()
                if self._clock.seconds() - self._notedAt >= USES_SECONDS:
                    await self._noteUses()
                await deferLater(self._clock, KEYS_POLL_SECONDS)
        except CancelledError:
            return
