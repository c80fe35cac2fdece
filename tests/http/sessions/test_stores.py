"""The stores of sessions."""

import os
import sqlite3
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.http.options import Runtime
from storagegate.http.sessions.stores import (
    MemorySessionStore,
    SessionFileError,
    SessionStoreBusy,
    SQLiteSessionStore,
)
from storagegate.storage.sqlite import SQLiteFile
from tests.contract.sessionstore import MINUTE_MS, SessionStoreContract, settled
from tests.support.pools import HeldPool

START = 1_700_000_000.0


def clockAt(seconds: float = START) -> Clock:
    """Make a clock that shows a time of our days."""
    clock = Clock()
    clock.advance(seconds)
    return clock


def immediate(clock: Clock) -> Runtime:
    """Make a runtime that does everything at once."""
    return Runtime(clock, maybeDeferred, clock.seconds)


class MemoryContractTests(SessionStoreContract, TestCase):
    """The store in memory keeps the contract."""

    def setUp(self) -> None:
        """Make a store."""
        self.clock = clockAt()
        self.store = MemorySessionStore(clock=self.clock)


class SQLiteContractTests(SessionStoreContract, TestCase):
    """The store in a file keeps the contract."""

    def setUp(self) -> None:
        """Make a store."""
        self.clock = clockAt()
        self.store = SQLiteSessionStore(self.mktemp(), immediate(self.clock))
        self.addCleanup(self.store.close)


class MemorySessionStoreTests(SynchronousTestCase):
    """The bounds of the store in memory, and its time."""

    def setUp(self) -> None:
        """Make a small store."""
        self.clock = clockAt()
        self.store = MemorySessionStore(3, self.clock)

    def kept(self, *ids: str) -> list[str]:
        """Say which of some sessions are there."""
        return [id for id in ids if self.store.get(id) is not None]

    def test_leastRecentlyUsed(self) -> None:
        """Where there is no room, the session that was not used for longest gives way."""
        for id in "abc":
            self.store.set(id, {"cookie": {}})
        self.store.get("a")
        self.store.touch("b", {"cookie": {}})
        self.store.set("d", {"cookie": {}})
        self.assertEqual(self.kept(*"abcd"), ["a", "b", "d"])

    def test_bytes(self) -> None:
        """Bytes are bounded, too; what has left does not count."""
        store = MemorySessionStore(1000, self.clock, maxBytes=10_000)
        for index in range(100):
            store.set("same", {"cookie": {}, "text": "x" * 900})
            store.set(f"{index}", {"cookie": {}, "text": "x" * 900})
            store.set(f"gone{index}", {"cookie": {}, "text": "x" * 900})
            store.destroy(f"gone{index}")
        # There is room for ten, and the last that is gone took one's place.
        self.assertEqual(len(store), 9)
        self.assertIsNotNone(store.get("same"))
        self.assertIsNotNone(store.get("99"))

    def test_tooLarge(self) -> None:
        """A session with more bytes than there is room for is not kept."""
        store = MemorySessionStore(10, self.clock, maxBytes=100)
        store.set("large", {"cookie": {}, "text": "x" * 100})
        self.assertEqual(len(store), 0)
        store.set("small", {"cookie": {}})
        self.assertEqual(len(store), 1)

    def test_expiredLeave(self) -> None:
        """Sessions that nobody asks for any more leave when their time is over."""
        store = MemorySessionStore(1000, self.clock)
        for index in range(500):
            store.set(f"{index}", {"cookie": {}}, MINUTE_MS)
        store.set("long", {"cookie": {}}, 60 * MINUTE_MS)
        self.clock.advance(121)
        store.set("new", {"cookie": {}})
        self.assertEqual(len(store), 2)

    def test_expiredFirst(self) -> None:
        """A session in use is not pushed out by ones whose time is over."""
        store = MemorySessionStore(3, self.clock)
        store.set("long", {"cookie": {}}, 60 * MINUTE_MS)
        store.set("a", {"cookie": {}}, MINUTE_MS)
        store.set("b", {"cookie": {}}, MINUTE_MS)
        self.clock.advance(121)
        store.set("c", {"cookie": {}})
        self.assertIsNotNone(store.get("long"))

    def test_noRoom(self) -> None:
        """A store without any room is an error at set-up."""
        self.assertRaises(ValueError, MemorySessionStore, 0)
        self.assertRaises(ValueError, MemorySessionStore, 1, None, 0)

    def test_bound(self) -> None:
        """Without a clock of its own a store takes the application's time, and the first stays."""
        store = MemorySessionStore()
        store.bind(immediate(self.clock))
        store.bind(immediate(clockAt(5)))
        store.set("id", {"cookie": {}}, MINUTE_MS)
        self.clock.advance(60)
        self.assertIsNone(store.get("id"))

    def test_ownClock(self) -> None:
        """A store with a clock of its own keeps it."""
        self.store.bind(immediate(Clock()))
        self.store.set("id", {"cookie": {}}, MINUTE_MS)
        self.clock.advance(60)
        self.assertIsNone(self.store.get("id"))


class SQLiteSessionStoreTests(SynchronousTestCase):
    """What the store in a file does about its file and its queue."""

    def setUp(self) -> None:
        """Make a store whose jobs wait for the test."""
        self.clock = clockAt()
        self.pool = HeldPool()
        self.path = self.mktemp()
        self.runtime = Runtime(self.clock, self.pool.run, self.clock.seconds)
        self.store = SQLiteSessionStore(self.path, self.runtime)
        self.addCleanup(self.shut)

    def shut(self) -> None:
        """Close the store."""
        closed = self.store.close()
        self.pool.goAll()
        self.successResultOf(closed)

    def rows(self) -> int:
        """Count what is in the file."""
        connection = sqlite3.connect(self.path)
        self.addCleanup(connection.close)
        (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
        return int(count)

    def test_neverInTheReactor(self) -> None:
        """Nothing touches the file but jobs, not even the first use, and one runs at a time."""
        self.store.get("a")
        results = [self.store.set("a", {"cookie": {}}), self.store.get("a")]
        self.assertFalse(os.path.exists(self.path))
        self.assertEqual(len(self.pool.waiting), 1)
        self.pool.goAll()
        self.successResultOf(results[0])
        self.assertEqual(self.successResultOf(results[1]), {"cookie": {}})

    def test_order(self) -> None:
        """What is asked for one after the other is done in that order."""
        self.store.set("id", {"cookie": {}, "n": 1})
        first = self.store.get("id")
        self.store.destroy("id")
        second = self.store.get("id")
        self.store.replace("id", {"cookie": {}, "n": 2})
        third = self.store.get("id")
        self.pool.goAll()
        self.assertEqual(self.successResultOf(first), {"cookie": {}, "n": 1})
        self.assertIsNone(self.successResultOf(second))
        self.assertIsNone(self.successResultOf(third))

    def test_batches(self) -> None:
        """What comes while a job runs makes up the next one, with one transaction for all."""
        for index in range(100):
            self.store.set(f"{index}", {"cookie": {}})
        self.assertEqual(len(self.pool.waiting), 1)
        self.pool.go()
        self.assertEqual(self.rows(), 1)
        self.pool.go()
        self.assertEqual(self.rows(), 100)
        self.assertEqual(self.pool.waiting, [])

    def test_busy(self) -> None:
        """Past its bound the store takes no more, with an error that is answered 503."""
        results = [self.store.get("id") for _ in range(4097)]
        # One is on its way, 4096 wait.
        error = self.failureResultOf(self.store.get("id"), SessionStoreBusy)
        self.assertEqual(error.value.statusCode, 503)
        self.pool.goAll()
        for result in results:
            self.assertIsNone(self.successResultOf(result))
        again = self.store.get("id")
        self.pool.goAll()
        self.successResultOf(again)

    def test_private(self) -> None:
        """The file, with its log, is for its owner alone."""
        self.store.set("id", {"cookie": {}})
        self.pool.goAll()
        for suffix in ("", "-wal", "-shm"):
            self.assertEqual(os.stat(self.path + suffix).st_mode & 0o777, 0o600, suffix)

    def test_survives(self) -> None:
        """A store that is opened again has what was kept before."""
        self.store.set("id", {"cookie": {}, "n": 1})
        self.pool.goAll()
        self.shut()
        store = SQLiteSessionStore(self.path, immediate(self.clock))
        self.assertEqual(self.successResultOf(store.get("id")), {"cookie": {}, "n": 1})
        self.successResultOf(store.close())

    def test_closed(self) -> None:
        """A closed store has done what it was asked, and takes no more; it can be closed again."""
        kept = self.store.set("id", {"cookie": {}})
        closed = self.store.close()
        self.failureResultOf(self.store.get("id"), SessionStoreBusy)
        self.assertNoResult(closed)
        self.pool.goAll()
        self.successResultOf(kept)
        self.successResultOf(closed)
        self.successResultOf(self.store.close())
        self.assertFalse(os.path.exists(self.path + "-wal"))

    def test_unbound(self) -> None:
        """A store that no application has used yet says what it needs, and can be closed."""
        store = SQLiteSessionStore(self.mktemp())
        error = self.assertRaises(RuntimeError, store.get, "id")
        self.assertIn("runtime", str(error))
        self.successResultOf(store.close())

    def test_bound(self) -> None:
        """It takes the runtime of the application that uses it first."""
        store = SQLiteSessionStore(self.mktemp())
        store.bind(immediate(self.clock))
        store.bind(self.runtime)
        self.assertIsNone(self.successResultOf(store.get("id")))
        self.successResultOf(store.close())

    def refused(self, path: str) -> str:
        """Give the error of a store at a path."""
        store = SQLiteSessionStore(path, immediate(self.clock))
        self.addCleanup(store.close)
        failure = self.failureResultOf(store.get("id"), SessionFileError)
        # Nothing is broken by the first failure.
        self.failureResultOf(store.set("id", {"cookie": {}}), SessionFileError)
        return str(failure.value)

    def test_noDatabase(self) -> None:
        """A file that is no database, or one of something else, is left alone: a clear error."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("hello " * 1000)
        self.assertIn(path, self.refused(path))
        with open(path) as file:
            self.assertEqual(file.read(), "hello " * 1000)
        other = self.mktemp()
        connection = sqlite3.connect(other)
        connection.execute("CREATE TABLE sessions (a, b)")
        connection.close()
        self.assertIn("another program", self.refused(other))

    def test_noDirectory(self) -> None:
        """Where there is no directory the error names the path."""
        path = os.path.join(self.mktemp(), "sessions.sqlite")
        self.assertIn(path, self.refused(path))

    def test_recovers(self) -> None:
        """A file that could not be opened is opened when it can be."""
        directory = self.mktemp()
        path = os.path.join(directory, "sessions.sqlite")
        store = SQLiteSessionStore(path, immediate(self.clock))
        self.failureResultOf(store.get("id"), SessionFileError)
        os.mkdir(directory)
        self.successResultOf(store.set("id", {"cookie": {}}))
        self.assertEqual(self.successResultOf(store.get("id")), {"cookie": {}})
        self.successResultOf(store.close())


class SharedFileTests(SynchronousTestCase):
    """A file that another process writes to, too."""

    def test_readThenWrite(self) -> None:
        """A batch that reads before it writes is not refused for what others wrote in between."""
        clock = clockAt()
        pool = HeldPool()
        path = self.mktemp()
        store = SQLiteSessionStore(path, Runtime(clock, pool.run, clock.seconds))
        store.set("a", {"cookie": {"n": 1}}, MINUTE_MS)
        pool.goAll()
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        self.addCleanup(other.close)
        refusals: list[str] = []
        execute = SQLiteFile.execute

        def intrude(file: SQLiteFile, statement: str, *values: Any) -> Any:
            cursor = execute(file, statement, *values)
            if statement.startswith("SELECT content"):
                try:
                    other.execute("UPDATE sessions SET cookie = '2'")
                except sqlite3.OperationalError as error:
                    refusals.append(str(error))
            return cursor

        store.destroy("b")
        found = store.get("a")
        written = store.set("a", {"cookie": {"n": 3}}, MINUTE_MS)
        pool.go()
        self.patch(SQLiteFile, "execute", intrude)
        pool.goAll()
        self.assertEqual(self.successResultOf(found), {"cookie": {"n": 1}})
        self.successResultOf(written)
        self.assertEqual(refusals, ["database is locked"])
        closed = store.close()
        pool.goAll()
        self.successResultOf(closed)


class SweepTests(SynchronousTestCase):
    """What leaves the file by itself."""

    def setUp(self) -> None:
        """Make a store."""
        self.clock = clockAt()
        self.path = self.mktemp()
        self.store = self.make()

    def make(self, **options: Any) -> SQLiteSessionStore:
        """Make a store that does everything at once."""
        store = SQLiteSessionStore(self.path, immediate(self.clock), **options)
        self.addCleanup(store.close)
        return store

    def rows(self) -> int:
        """Count what is in the file."""
        connection = sqlite3.connect(self.path)
        try:
            (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
        finally:
            connection.close()
        return int(count)

    def test_expired(self) -> None:
        """Rows of sessions that have expired are taken out, a bounded number at a time."""
        for index in range(2500):
            self.store.set(f"{index}", {"cookie": {}}, MINUTE_MS)
        self.clock.advance(120)
        counts = []
        for _ in range(4):
            self.store.set("other", {"cookie": {}})
            counts.append(self.rows())
        self.assertEqual(counts, [1501, 501, 1, 1])

    def test_bounded(self) -> None:
        """Where too many are kept, those that would expire first go."""
        store = self.make(maxSessions=100)
        for index in range(150):
            store.set(f"{index}", {"cookie": {}}, (index + 10) * MINUTE_MS)
        self.clock.advance(61)
        store.set("last", {"cookie": {}}, 10_000 * MINUTE_MS)
        self.assertEqual(self.rows(), 100)
        self.assertIsNone(self.successResultOf(store.get("50")))
        self.assertIsNotNone(self.successResultOf(store.get("51")))

    def test_manyWrites(self) -> None:
        """Where much comes, there is no waiting for the minute."""
        store = self.make(maxSessions=100)

        async def fill() -> None:
            for index in range(10_001):
                await settled(store.set(f"{index}", {"cookie": {}}))

        self.successResultOf(maybeDeferred(fill))
        self.assertLess(self.rows(), 10_000)
