"""
Reads and changes of the entities and user keys of an account.

A change is a pure function from the state of the account to a new state. It is committed only if no
other process has changed the account since; otherwise the function is called again with the newer
state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from attrs import frozen
from twisted.internet.defer import DeferredLock

from storagegate.objects import errors
from storagegate.objects.identities.entities import (
    AccountState,
    encodeEntity,
    readEntities,
)
from storagegate.storage.accesskeys import AccessKeySnapshot
from storagegate.storage.errors import IdentitiesChanged, KeyExists, StoreBusy
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.mutations import PutIdentities
from storagegate.storage.records import AccessKey, AccountDocuments

T = TypeVar("T")

Change = Callable[[AccountState], tuple[AccountState, T]]
"""Computes the new state of an account, and a result for the caller. Has no side effects."""

_TRIES = 20
"""Each repetition means that another change of the account was committed; 20 take a second."""

NO_DOCUMENTS = AccountDocuments(0, {})
"""The documents of an account without entities."""


KEPT_STATES = 4
"""
States of accounts that are kept until they change. Anyone can name an account in a call without a
signature, and 5,000 users take 7 ms to decode.
"""


@frozen(eq=False)
class _KeptState:
    """A state, and what it was made of."""

    documents: AccountDocuments
    keys: Mapping[str, AccessKey]
    state: AccountState


class IdentityStore:
    """
    The entities of all accounts of a store.

    Methods: reactor thread.
    """

    def __init__(self, catalog: ICatalog, snapshot: AccessKeySnapshot) -> None:
        """@param snapshot: The keys and documents, which the store refreshes."""
        self._catalog = catalog
        self._snapshot = snapshot
        # The accounts that this process changes now.
        self._changing: dict[str, DeferredLock] = {}
        self._states: dict[str, _KeptState] = {}

    async def read(self, account: str) -> AccountState:
        """
        Read the state of an account, with all changes that were committed before the call.

        @raise StoreBusy: The catalog cannot be read.
        """
        snapshot = self._snapshot
        await snapshot.refresh()
        if snapshot.problem is not None:
            raise StoreBusy(f"cannot read the users: {snapshot.problem}")
        documents, keys = snapshot.identities.get(account, NO_DOCUMENTS), snapshot.keys
        known = self._states.pop(account, None)
        if known is None or known.documents is not documents or known.keys is not keys:
            known = _KeptState(documents, keys, makeState(account, documents, keys.values()))
        if len(self._states) >= KEPT_STATES:
            del self._states[next(iter(self._states))]
        self._states[account] = known
        return known.state

    async def change(self, account: str, function: Change[T]) -> T:
        """
        Change an account.

        @param function: Called again if the account has changed; raises the errors of the change.
        @return: The result of the function's last call.
        @raise EntityAlreadyExists: A new access key is taken.
        @raise SlowDown: The account changes too often.
        """
        lock = self._changing.setdefault(account, DeferredLock())
        await lock.acquire()
        try:
            return await self._change(account, function)
        finally:
            lock.release()
            if not lock.locked:
                self._changing.pop(account, None)

    async def _change(self, account: str, function: Change[T]) -> T:
        """Change an account that no other caller in this process changes now."""
        for _ in range(_TRIES):
            state = await self.read(account)
            after, result = function(state)
            mutation = difference(state, after)
            if mutation is None:
                return result
            try:
                await self._catalog.commit(mutation)
            except IdentitiesChanged:
                continue
            except KeyExists as error:
                raise errors.EntityAlreadyExists("The access key already exists.") from error
            await self._snapshot.refresh()
            return result
        raise errors.SlowDown()


class BlockingIdentities(Protocol):
    """What commands have of a catalog: see L{CatalogAdmin
    <storagegate.storage.embedded.keyadmin.CatalogAdmin>}."""

    def accessKeys(self) -> list[AccessKey]:
        """Read all issued keys."""

    def identities(self) -> dict[str, AccountDocuments]:
        """Read the documents of all accounts."""

    def putIdentities(self, mutation: PutIdentities) -> int:
        """Commit a change."""


def readNow(admin: BlockingIdentities, account: str) -> AccountState:
    """The same as L{IdentityStore.read} without a reactor. Blocks."""
    documents = admin.identities().get(account, NO_DOCUMENTS)
    return makeState(account, documents, admin.accessKeys())


def changeNow(admin: BlockingIdentities, account: str, function: Change[T]) -> T:
    """The same as L{IdentityStore.change} without a reactor. Blocks."""
    for _ in range(_TRIES):
        state = readNow(admin, account)
        after, result = function(state)
        mutation = difference(state, after)
        if mutation is None:
            return result
        try:
            admin.putIdentities(mutation)
        except IdentitiesChanged:
            continue
        except KeyExists as error:
            raise errors.EntityAlreadyExists("The access key already exists.") from error
        return result
    raise errors.SlowDown()


def makeState(account: str, documents: AccountDocuments, keys: Iterable[AccessKey]) -> AccountState:
    """
    Decode the state of an account.

    @param keys: All issued keys.
    """
    return AccountState(
        account=account,
        revision=documents.revision,
        entities=readEntities(documents),
        keys={key.accessKey: key for key in keys if key.account == account},
    )


def difference(before: AccountState, after: AccountState) -> PutIdentities | None:
    """Return the mutation that turns one state into another; L{None} if they are equal."""
    documents: dict[tuple[str, str], bytes | None] = {}
    for key, entity in after.entities.items():
        if before.entities.get(key) != entity:
            documents[key] = encodeEntity(entity)
    for key in before.entities:
        if key not in after.entities:
            documents[key] = None
    added = [key for name, key in after.keys.items() if name not in before.keys]
    changed = [
        key for name, key in after.keys.items() if name in before.keys and before.keys[name] != key
    ]
    removed = [name for name in before.keys if name not in after.keys]
    if not (documents or added or changed or removed):
        return None
    return PutIdentities(before.account, before.revision, documents, added, changed, removed)
