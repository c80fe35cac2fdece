"""Look-ups of objects while others write."""

from collections.abc import Callable
from sqlite3 import Connection
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.buckets import readBucket
from storagegate.storage.embedded.objects import lookUpCompleted, lookUpVersion
from storagegate.storage.errors import BucketExists, NoSuchBucket
from storagegate.storage.mutations import AddBucket, CompleteUpload, RemoveBucket
from storagegate.storage.records import (
    VERSIONING_ENABLED,
    Attributes,
    Bucket,
    Content,
    ObjectRecord,
)
from tests.support.delayed import PATIENCE
from tests.support.faultyfiles import FaultyFiles
from tests.support.model import etagOf
from tests.support.stores import ALWAYS, StoreDriver, fastDirectory

_MOST = 10
"""More statements than a look-up has."""


class RacedConnection:
    """A connection before whose statements others commit."""

    def __init__(self, connection: Connection, acts: dict[int, Callable[[], object]]) -> None:
        """@param acts: Called before the statement with this number."""
        self._connection = connection
        self._acts = acts
        self._count = 0

    def execute(self, *arguments: Any) -> Any:
        """Execute a statement."""
        act = self._acts.get(self._count)
        self._count += 1
        if act is not None:
            act()
        return self._connection.execute(*arguments)


class RacedLookUpTests(SynchronousTestCase):
    """A version moves between two tables when it becomes noncurrent or current again."""

    def setUp(self) -> None:
        """Have a bucket with versions."""
        self.driver = StoreDriver(fastDirectory(self), FaultyFiles())
        self.addCleanup(self.driver.close)
        self.driver.createBucket("b")
        self.driver.setVersioning("b", VERSIONING_ENABLED)
        self.driver.put("b", b"k", b"first")
        record = self.driver.find("b", b"k")
        assert record is not None
        self.record = record

    def cover(self) -> None:
        """Write a newer version."""
        self.driver.put("b", b"k", b"second")

    def uncover(self) -> None:
        """Remove the newer version."""
        self.driver.deleteVersions("b", [(b"k", 0)])

    def assertFound(self, look: Callable[[Any], Any]) -> None:
        """A look-up finds the version, whatever is committed in the meantime."""
        connection = self.driver.store.catalog._connection
        for first in range(_MOST):
            for second in range(first + 1, _MOST + 1):
                raced = RacedConnection(connection, {first: self.cover, second: self.uncover})
                self.assertEqual(look(raced).sequence, self.record.sequence, (first, second))
                if raced._count <= second:
                    if raced._count > first:
                        self.uncover()
                    break
        self.assertFalse(connection.in_transaction)

    def test_version(self) -> None:
        """A version that exists all the time is found by its id."""
        sequence = self.record.sequence
        self.assertFound(lambda raced: lookUpVersion(raced, "b", b"k", sequence)[1])

    def test_null(self) -> None:
        """So is the null version."""
        self.driver.createBucket("c")
        self.driver.put("c", b"k", b"null")
        self.driver.setVersioning("c", VERSIONING_ENABLED)
        connection: Any = RacedConnection(
            self.driver.store.catalog._connection,
            {1: lambda: self.driver.put("c", b"k", b"newer")},
        )
        _, found = lookUpVersion(connection, "c", b"k", None)
        assert found is not None
        self.assertEqual(found.content.inline, b"null")

    def test_completed(self) -> None:
        """So is the version that a completed upload made."""
        driver = self.driver
        driver.createUpload("u", "b", b"k")
        driver.putPart("b", b"k", "u", 1, b"part" * 100)
        record = driver.record("b", b"k", Content(0), "e-1")
        made = CompleteUpload("u", record, [(1, etagOf(b"part" * 100))], ALWAYS)
        self.record = driver.reactor.settle(driver.store.catalog.commit(made))
        self.assertEqual(self.record.attributes, Attributes(uploadId="u"))
        self.assertFound(lambda raced: lookUpCompleted(raced, "b", b"k", "u"))

    def test_failed(self) -> None:
        """A look-up that fails in one of its two statements ends its transaction."""
        connection = self.driver.store.catalog._connection

        def fail() -> None:
            raise ZeroDivisionError

        for number in (1, 2):
            raced: Any = RacedConnection(connection, {number: fail})
            self.assertRaises(ZeroDivisionError, lookUpVersion, raced, "b", b"k", 0)
            self.assertFalse(connection.in_transaction)


class RecreatedBucketTests(SynchronousTestCase):
    """A bucket that its account removes and another one creates while the first still writes."""

    def setUp(self) -> None:
        """Have a bucket that the reactor knows."""
        self.driver = StoreDriver(fastDirectory(self), FaultyFiles())
        self.addCleanup(self.driver.close)
        self.driver.createBucket("b")
        self.refusals: list[Failure] = []
        self.catalog = self.driver.store.catalog
        self.look()

    def look(self) -> str | None:
        """Return the account by which a request is decided on now."""
        found = self.driver.reactor.settle(self.catalog.bucket("b"))
        return None if found is None else found.account

    def create(self) -> Deferred[None]:
        """Create the bucket for another account."""
        result = self.catalog.commit(AddBucket(Bucket("b", "other", 2, "us-east-1")))
        result.addErrback(self.refusals.append)
        return result

    def assertRefused(self, write: Deferred[ObjectRecord]) -> None:
        """The object of the first account is not in the bucket of the other one."""
        reactor = self.driver.reactor
        self.assertRaises(NoSuchBucket, reactor.settle, write)
        [failure] = self.refusals
        self.assertEqual(failure.check(BucketExists), BucketExists)
        self.assertEqual(failure.value.bucket.account, "account")
        reactor.settle(self.create())
        self.assertEqual((self.look(), self.driver.get("b", b"k")), ("other", None))

    def test_queued(self) -> None:
        """The removal waits for its commit."""
        removing = self.catalog.commit(RemoveBucket("b"))
        creating = self.create()
        self.assertEqual(self.look(), "account")
        write = self.driver.store.putObject(self.record(), None, ALWAYS)
        for result in (removing, creating):
            self.driver.reactor.settle(result)
        self.assertRefused(write)

    def test_committed(self) -> None:
        """The removal is committed, but the reactor does not know it yet."""
        removing = self.catalog.commit(RemoveBucket("b"))
        self.driver.reactor.advance(0)
        deadline = monotonic() + PATIENCE
        while readBucket(self.catalog._connection, "b") is not None:
            self.assertLess(monotonic(), deadline)
        creating = self.create()
        self.assertEqual(self.look(), "account")
        write = self.driver.store.putObject(self.record(), None, ALWAYS)
        for result in (removing, creating):
            self.driver.reactor.settle(result)
        self.assertRefused(write)

    def test_sameAccount(self) -> None:
        """The same account may create it again at once."""
        removing = self.catalog.commit(RemoveBucket("b"))
        creating = self.catalog.commit(AddBucket(Bucket("b", "account", 2, "us-east-1")))
        for result in (removing, creating):
            self.driver.reactor.settle(result)
        found = self.driver.reactor.settle(self.catalog.bucket("b"))
        assert found is not None
        self.assertEqual(found.createdMs, 2)

    def record(self) -> ObjectRecord:
        """Make the record of an object."""
        return self.driver.record("b", b"k", Content(3, b"abc"), "e")
