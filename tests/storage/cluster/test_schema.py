"""The migrations of the catalog in PostgreSQL stay as clusters have applied them."""

from hashlib import sha256

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.cluster.schema import MIGRATIONS

APPLIED = ("11f8f01fc006ae46", "1addff0437ab4754", "984d36653220e820")
"""
The hash of each migration. Only a new migration adds or changes the last row, and only until its
release.
"""


class MigrationTests(SynchronousTestCase):
    """The table of migrations."""

    def test_unchanged(self) -> None:
        """
        No statement of an applied migration changes, not even in a function of the server: existing
        clusters would never run it. The change is a new migration.
        """
        found = []
        for migration in MIGRATIONS:
            text = "\0".join(" ".join(statement.split()) for statement in migration)
            found.append(sha256(text.encode()).hexdigest()[:16])
        self.assertEqual(tuple(found), APPLIED)
