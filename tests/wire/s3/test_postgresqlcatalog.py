"""S3 where the catalog is in PostgreSQL."""

import os

from tests.contract.postgresqlbackend import VARIABLE
from tests.support.postgresql import sharedServer
from tests.support.selection import long
from tests.wire.s3 import (
    test_answers,
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


@long("starts PostgreSQL")
class KeyTests(CatalogCase, test_boto_keys.KeyTests):
    """Names of objects."""


@long("starts PostgreSQL")
class HeaderTests(CatalogCase, test_boto_objects.HeaderTests):
    """What an object has besides its bytes."""


@long("starts PostgreSQL")
class CopyTests(CatalogCase, test_boto_objects.CopyTests):
    """Copies."""


@long("starts PostgreSQL")
class MultipartTests(CatalogCase, test_boto_multipart.MultipartTests):
    """Uploads in parts."""


@long("starts PostgreSQL")
class RaceTests(CatalogCase, test_boto_races.RaceTests):
    """Writers and readers at one time."""


@long("starts PostgreSQL")
class ThousandsOfKeysTests(CatalogCase, test_boto_lists.ThousandsOfKeysTests):
    """Long lists."""


@long("starts PostgreSQL")
class StateTests(CatalogCase, test_boto_versioning.StateTests):
    """Versioning, enabled and suspended."""


@long("starts PostgreSQL")
class WriteTests(CatalogCase, test_boto_versioning.WriteTests):
    """Writes that make versions."""


@long("starts PostgreSQL")
class ListTests(CatalogCase, test_boto_versioning.ListTests):
    """Lists of versions."""


@long("starts PostgreSQL")
class VersionLockTests(CatalogCase, test_boto_locks.VersionLockTests):
    """Object lock."""


@long("starts PostgreSQL")
class ConditionTests(CatalogCase, test_answers.ConditionTests):
    """The condition in a 412, which the catalog does not report."""


@long("starts PostgreSQL")
class DocumentTests(CatalogCase, test_answers.DocumentTests):
    """Documents of requests."""
