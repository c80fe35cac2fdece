"""
What every catalog promises, as one mixin: L{CatalogContract}.

A case mixes it in before C{TestCase} and gives L{makeCatalog<CatalogCase.makeCatalog>}.
"""

from tests.contract.catalogexpiry import ExpiryContract
from tests.contract.catalogidentities import IdentityContract
from tests.contract.catalogkeys import KeyContract
from tests.contract.cataloglists import ListContract
from tests.contract.cataloglocks import LockContract
from tests.contract.catalogobjects import BucketContract, DeleteContract, ObjectContract
from tests.contract.catalogreferences import ReferenceContract
from tests.contract.cataloguploads import UploadContract
from tests.contract.catalogusage import UsageContract
from tests.contract.catalogversions import SettingContract, VersionContract


class CatalogContract(
    BucketContract,
    ObjectContract,
    DeleteContract,
    ReferenceContract,
    UploadContract,
    UsageContract,
    VersionContract,
    SettingContract,
    LockContract,
    ExpiryContract,
    ListContract,
    KeyContract,
    IdentityContract,
):
    """The whole of L{storagegate.storage.interfaces.ICatalog}."""
