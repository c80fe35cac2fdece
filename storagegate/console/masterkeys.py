"""Master keys: listing, changes, and rewrapping of bucket keys."""

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.core.errors import codedError
from storagegate.objects.encryption.interfaces import IMasterKeys, MasterKey
from storagegate.objects.errors import MasterKeyExists, MasterKeyNotFound


class MasterKeyList(Struct, kw_only=True):
    """The master keys, by name."""

    items: list[MasterKey]


class NewMasterKey(Struct, kw_only=True, forbid_unknown_fields=True):
    """A wanted master key."""

    name: str


class MasterKeyChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A change of a master key.

    @ivar disabled: Whether the key is disabled: nothing is wrapped or opened with it.
    """

    disabled: bool


class RewrapRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A page of buckets.

    @ivar after: Buckets with names after this one; empty begins.
    """

    after: str = ""


class RewrapPage(Struct, kw_only=True):
    """
    The result for a page of buckets.

    @ivar rewrapped: The number of rewrapped keys.
    @ivar current: The number of keys that needed nothing.
    @ivar failed: The keys that could not be rewrapped, each with its bucket and the reason.
    @ivar next: The C{after} of the next page; C{null} on the last page.
    """

    rewrapped: int
    current: int
    failed: list[str]
    next: str | None


async def listMasterKeys(call: ConsoleCall) -> MasterKeyList:
    """List the master keys."""
    return MasterKeyList(items=list(await _provider(call).keys()))


async def createMasterKey(call: ConsoleCall, body: NewMasterKey) -> None:
    """Create a master key."""
    call.note(masterKey=body.name)
    try:
        await _provider(call).newKey(body.name)
    except MasterKeyExists as error:
        raise codedError("ALREADY_EXISTS", "The master key already exists") from error


async def rotateMasterKey(call: ConsoleCall) -> None:
    """Add a version to a master key."""
    name = call.params["name"]
    call.note(masterKey=name)
    with _known():
        await _provider(call).rotate(name)


async def changeMasterKey(call: ConsoleCall, body: MasterKeyChange) -> None:
    """Disable a master key, or enable it again."""
    name = call.params["name"]
    call.note(masterKey=name, disabled=body.disabled)
    with _known():
        await _provider(call).disable(name, body.disabled)


async def rewrapKeys(call: ConsoleCall, body: RewrapRequest) -> RewrapPage:
    """Wrap the keys of a page of buckets under the last versions of their master keys."""
    # Loaded with cryptography, which most daemons do without.
    from storagegate.objects.encryption.rewrapping import rewrapPage

    found = await rewrapPage(call.services.store.catalog, _provider(call), body.after)
    call.note(rewrapped=found.rewrapped, failed=len(found.failed))
    return RewrapPage(
        rewrapped=found.rewrapped,
        current=found.current,
        failed=list(found.failed),
        next=found.next,
    )


@contextmanager
def _known() -> Iterator[None]:
    """
    @raise ServiceError: C{NOT_FOUND}: there is no such key.
    """
    try:
        yield
    except MasterKeyNotFound as error:
        raise codedError("NOT_FOUND", "No such master key") from error


def _provider(call: ConsoleCall) -> IMasterKeys:
    return call.services.objects.encryption.bucketKeys.masterKeys
