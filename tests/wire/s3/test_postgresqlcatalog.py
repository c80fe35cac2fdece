"""S3 where the catalog is in PostgreSQL."""

import os

from tests.contract.postgresqlbackend import VARIABLE
from tests.support.postgresql import sharedServer
from tests.wire.s3 import (
    test_boto_keys,
    test_boto_lists,
    test_boto_locks,
    test_boto_multipart,
    test_boto_objects,
    test_boto_races,
    test_boto_versioning,
)
from tests.wire.s3.fixture import S3Case


class CatalogCase(S3Case):
    """A daemon with its catalog in PostgreSQL."""

    backEnds = ("tests.contract.postgresqlbackend",)

    def setUp(self) -> None:
        """Have the daemon, with a database of its own."""
        if VARIABLE not in os.environ:
            os.environ[VARIABLE] = sharedServer().store()
        super().setUp()


class KeyTests(CatalogCase, test_boto_keys.KeyTests):
    """Names of objects."""


class HeaderTests(CatalogCase, test_boto_objects.HeaderTests):
    """What an object has besides its bytes."""


class CopyTests(CatalogCase, test_boto_objects.CopyTests):
    """Copies."""


class MultipartTests(CatalogCase, test_boto_multipart.MultipartTests):
    """Uploads in parts."""


class RaceTests(CatalogCase, test_boto_races.RaceTests):
    """Writers and readers at one time."""


class TenThousandKeysTests(CatalogCase, test_boto_lists.TenThousandKeysTests):
    """Long lists."""


class StateTests(CatalogCase, test_boto_versioning.StateTests):
    """Versioning, enabled and suspended."""


class WriteTests(CatalogCase, test_boto_versioning.WriteTests):
    """Writes that make versions."""


class ListTests(CatalogCase, test_boto_versioning.ListTests):
    """Lists of versions."""


class VersionLockTests(CatalogCase, test_boto_locks.VersionLockTests):
    """Object lock."""
