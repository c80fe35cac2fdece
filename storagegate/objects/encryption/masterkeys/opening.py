"""Opens the provider of the master keys of a store."""

from typing import TYPE_CHECKING, Any

from attrs import frozen

from storagegate.objects.encryption.interfaces import IMasterKeys
from storagegate.storage.records import KEYED

if TYPE_CHECKING:
    from storagegate.objects.encryption.masterkeys.options import VaultOptions
    from storagegate.storage.interfaces import ICatalog
    from storagegate.storage.threadpool import IWorkPool


async def hasBucketKeys(catalog: "ICatalog") -> bool:
    """Return whether any bucket of a store has wrapped keys."""
    return bool(await catalog.bucketsWith(KEYED, "", 1))


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
            lambda: hasBucketKeys(catalog),
            mayCreate=not catalog.isRemote,
            openSeconds=self.keyCacheSeconds,
        )
