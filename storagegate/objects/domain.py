"""Makes the domain of a store."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from storagegate.objects.accounts import AccessKeyStore
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.service import Functions, ObjectService
from storagegate.storage.store import ObjectStore

if TYPE_CHECKING:
    from storagegate.objects.identities.entities import OIDCProvider
    from storagegate.objects.identities.webidentity import Providers


def openDomain(
    store: ObjectStore,
    accounts: AccessKeyStore,
    region: str,
    now: Callable[[], float],
    ownership: str = "",
    encryption: EncryptionOptions | None = None,
    providers: "Providers | None" = None,
) -> ObjectService:
    """
    Make the domain of a store.

    @param store: An open store, which the caller closes.
    @param accounts: The accounts that policies and ACLs can name.
    @param region: The region of new buckets.
    @param now: Returns seconds since the epoch.
    @param ownership: The object ownership of new buckets that name none; empty for none.
    @param encryption: The configuration that all domains of the store share; L{None} for a store
        without master keys.
    @param providers: Returns the configured OpenID Connect providers of an account, whose tokens
        can be exchanged for sessions; L{None} for none.
    """
    options = EncryptionOptions() if encryption is None else encryption
    return ObjectService(
        store, accounts, region, now, ownership, _loadTable, options, providers or _noProviders
    )


def _noProviders(account: str) -> Sequence["OIDCProvider"]:
    return ()


def _loadTable() -> Functions:
    # Reads and writes of contents, which most clients only do, do without these modules.
    from storagegate.objects.table import FUNCTIONS

    return FUNCTIONS
