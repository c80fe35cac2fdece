"""Opens the provider of the master keys of a store."""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen

from storagegate.objects.encryption.interfaces import IMasterKeys
from storagegate.storage.errors import NoSuchBucket
from storagegate.storage.records import KEYED

if TYPE_CHECKING:
    from storagegate.objects.encryption.masterkeys.options import VaultOptions
    from storagegate.storage.interfaces import ICatalog
    from storagegate.storage.threadpool import IWorkPool


async def sampleWrapped(catalog: "ICatalog", most: int) -> list[str]:
    """
    Return the wrapped keys of some buckets of a store.

    @param most: The most buckets.
    """
    from storagegate.objects.encryption.bucketkeys import keysIn

    found: list[str] = []
    for name in await catalog.bucketsWith(KEYED, "", most):
        with suppress(NoSuchBucket):
            _, documents = await catalog.settings(name)
            found += [key.wrapped for key in keysIn(documents).values()]
    return found


@frozen
class MasterKeyLocation:
    """
    Where the master keys of a store are.

    @ivar path: The file of the master keys, if C{vault} is L{None}.
    @ivar vault: The transit engine.
    @ivar keyCacheSeconds: How long bucket keys stay open in memory.
    """

    path: str
    vault: "VaultOptions | None"
    keyCacheSeconds: float

    def open(self, catalog: "ICatalog", reactor: Any, pool: "IWorkPool") -> IMasterKeys:
        """
        Open the provider.

        @param pool: Runs blocking functions.
        """
        if self.vault is not None:
            from storagegate.objects.encryption.masterkeys.vault import VaultMasterKeys

            return VaultMasterKeys(self.vault, reactor, pool.run)
        from storagegate.objects.encryption.masterkeys.file import FileMasterKeys

        return FileMasterKeys(
            self.path,
            reactor,
            pool.run,
            partial(sampleWrapped, catalog),
            mayCreate=not catalog.isRemote,
            openSeconds=self.keyCacheSeconds,
        )
