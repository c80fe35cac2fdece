"""The configuration of encryption, which all domains of a store share."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from attrs import define, field

from storagegate.storage.interfaces import ICatalog

if TYPE_CHECKING:
    # Imported with the first encrypted object.
    from storagegate.objects.encryption.interfaces import IMasterKeys
    from storagegate.objects.encryption.service import Encryption

KEY_CACHE_SECONDS = 300
"""How long a bucket key stays open in memory."""


@define(eq=False)
class EncryptionOptions:
    """
    The configuration of encryption in one store. Pass one instance to all domains of the store, so
    that they share the open bucket keys.

    @ivar masterKeys: Opens the provider of master keys, on first use; L{None} if there is none, so
        that only clients' keys can be used.
    @ivar encryptAll: Whether a write without an encryption, in a bucket without a default, is
        encrypted with keys of the store.
    @ivar keyCacheSeconds: How long a bucket key stays open in memory.
    @ivar seconds: Returns the monotonic time, by which it stays open: a clock that is set back must
        not prolong that beyond the provider's watch for disabled keys.
    @ivar blocksCustomerKeys: Whether new buckets block the keys of clients (SSE-C).
    @ivar opened: The encryption, after the first encrypted object.
    """

    masterKeys: "Callable[[], IMasterKeys] | None" = None
    encryptAll: bool = False
    keyCacheSeconds: float = KEY_CACHE_SECONDS
    seconds: Callable[[], float] = monotonic
    blocksCustomerKeys: bool = False
    opened: "Encryption | None" = field(default=None, init=False)

    def open(self, catalog: ICatalog, now: Callable[[], float]) -> "Encryption":
        """
        Return the encryption of the store.

        @param now: Returns seconds since the epoch.
        """
        if self.opened is None:
            from storagegate.objects.encryption.service import Encryption

            self.opened = Encryption(
                catalog,
                self.masterKeys,
                now,
                self.encryptAll,
                self.keyCacheSeconds,
                self.seconds,
            )
        return self.opened
