"""
The source bucket of a migration. Its cluster serves it until the switch. At the end the run seals
it: the server then refuses all changes of the bucket as long as the run's connection is open.
"""

from psycopg import Rollback

from storagegate.cluster.tables import (
    BUCKETS,
    OBJECTS,
    SETTINGS,
    UPLOADS,
    VERSIONS,
    MigrationError,
)
from storagegate.migration.bucketend import BucketEnd
from storagegate.migration.marks import FOLLOWING, MOVED, Mark


class BucketSource(BucketEnd):
    """The source of a bucket migration. All methods block, and must run in one thread."""

    _followed = (
        *(table.name for table in (BUCKETS, SETTINGS, OBJECTS, VERSIONS, UPLOADS)),
        "parts",
    )

    def check(self) -> None:
        """
        Check that the bucket can be moved, and allow writes again after an interrupted run.

        @raise MigrationError: If it cannot be moved; the text gives the reason in one line.
        """
        mark = self.mark()
        rows = self._rows("SELECT id, watched FROM buckets WHERE name = %s", (self.bucket,))
        if mark is None:
            if not rows:
                raise MigrationError(f"{self.cluster} has no bucket {self.bucket}")
            if rows[0][1]:
                raise MigrationError(f"{self.name} is watched by clients: end the watches first")
            self.number = rows[0][0]
        elif mark.state == FOLLOWING:
            if not rows or rows[0][0] != self.number:
                raise MigrationError(f"{self.name} was deleted: use --abandon to end the migration")
            self._withLocks(self._admitAll)

    def seal(self) -> bool:
        """See L{IMigrationEnd.seal}. Refuses changes while this connection is open."""
        self._withLocks(self._guard)
        return True

    def retire(self, mark: Mark) -> bool:
        """See L{IMigrationEnd.retire}. Deletes the bucket."""
        with self._connection.transaction() as transaction:
            self._lockBucket()
            if self.pending():
                raise Rollback(transaction)
            if self._value(f"SELECT dropbucket({self.number})") is None:
                raise MigrationError(f"{self.name} was deleted: use --abandon to end the migration")
            self._setMark(mark)
            return True
        return False

    def abandon(self) -> None:
        """See L{IMigrationEnd.abandon}."""
        self._withLocks(self._release)
        self._forget()

    def clear(self) -> None:
        """See L{IMigrationEnd.clear}. Removes the former content of the bucket."""
        mark = self.mark()
        if mark is None or mark.state != MOVED:
            return
        self._withLocks(self._release)
        self._purge()
        self._forget()

    def _guard(self) -> None:
        self._execute(f"LOCK TABLE {', '.join(self._followed)} IN SHARE ROW EXCLUSIVE MODE")
        for table in self._followed:
            self._refuse(table, "the bucket is being migrated", self.lock)

    def _release(self) -> None:
        self._unfollow()
        self._admitAll()
