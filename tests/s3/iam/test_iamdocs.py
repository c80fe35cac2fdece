"""C{docs/iam.rst} is what the code does."""

import re

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.identities import groups, keys, policies, providers, roles, users
from storagegate.objects.identities.table import OPERATIONS
from storagegate.objects.identities.validation import TAGS_LIMIT
from storagegate.s3.errors import S3Error
from tests.support.documents import DOCS, table

PAGE = DOCS / "iam.rst"


class PageTests(SynchronousTestCase):
    """The page."""

    def test_operations(self) -> None:
        """It has every operation once."""
        rows = table(PAGE, "Operations of IAM")
        found = [name for _, names in rows for name in re.findall(r"``(\w+)``", names)]
        self.assertEqual(sorted(name for name in found if name != "404"), sorted(OPERATIONS))

    def test_limits(self) -> None:
        """It has every limit."""
        rows = table(PAGE, "Limits of IAM")
        expected = [
            users.USERS_LIMIT,
            groups.GROUPS_LIMIT,
            roles.ROLES_LIMIT,
            policies.POLICIES_LIMIT,
            providers.PROVIDERS_LIMIT,
            keys.KEYS_LIMIT,
            keys.SERVICE_KEYS_LIMIT,
            groups.GROUPS_OF_USER_LIMIT,
            policies.ATTACHED_LIMIT,
            policies.VERSIONS_LIMIT,
            TAGS_LIMIT,
            *policies.INLINE_LIMITS.values(),
            policies.MANAGED_LIMIT,
            providers.CLIENTS_LIMIT,
        ]
        self.assertEqual([int(number) for _, number in rows], expected)

    def test_errors(self) -> None:
        """The statuses are those of the codes."""
        for status, code, _ in table(PAGE, "Errors of IAM"):
            self.assertEqual(S3Error(code).status, int(status), code)
