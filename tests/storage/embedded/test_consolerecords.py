"""The records of the console in a file."""

import os
import sqlite3
from contextlib import closing
from threading import Event
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.console.sessions import ConsoleSessions, SignInGrant
from storagegate.storage.consolerecords import ConsoleRecord, RecordLimits
from storagegate.storage.embedded.consolerecords import _KIND, EmbeddedConsoleRecords
from storagegate.storage.sqlite import SQLiteFile
from storagegate.storage.threadpool import BoundedThreadPool
from tests.contract.consolerecords import ConsoleRecordsContract
from tests.support.delayed import TurnedReactor


class _Pool:
    """Runs blocking calls at once."""

    def run(self, function, *arguments):  # type: ignore[no-untyped-def]
        """Call a function."""
        return succeed(function(*arguments))


class EmbeddedConsoleRecordsTests(ConsoleRecordsContract, TestCase):
    """The contract."""

    def setUp(self) -> None:
        """Open the file twice."""
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.stores = [self.open(), self.open()]

    def open(self) -> EmbeddedConsoleRecords:
        """Open the file, as a worker does."""
        opened = EmbeddedConsoleRecords(self.directory, _Pool())  # type: ignore[arg-type]
        self.addCleanup(lambda: Deferred.fromCoroutine(opened.close()))
        return opened


class CancelledTests(SynchronousTestCase):
    """Callers that disconnect."""

    def test_next(self) -> None:
        """A write whose caller is cancelled ends before the next one begins, which succeeds."""
        directory = self.mktemp()
        os.mkdir(directory)
        reactor = TurnedReactor()
        pool = BoundedThreadPool(reactor)
        records = EmbeddedConsoleRecords(directory, pool)
        isWriting, mayEnd = Event(), Event()
        self.addCleanup(mayEnd.set)

        def write(self: SQLiteFile, statement: str, *values: Any) -> sqlite3.Cursor:
            if statement.startswith("INSERT") and "first" in values:
                isWriting.set()
                mayEnd.wait()
            return execute(self, statement, *values)

        execute = SQLiteFile.execute
        self.patch(SQLiteFile, "execute", write)
        limits = RecordLimits(most=10, mostOfOwner=10, mostBytesOfOwner=1000)
        first, second = (
            Deferred.fromCoroutine(
                records.add(ConsoleRecord("session", id, "owner", 1000, b"{}"), limits, 0)
            )
            for id in ("first", "second")
        )
        isWriting.wait()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        reactor.callLater(0, mayEnd.set)
        self.assertIs(reactor.settle(second), True)
        found = reactor.settle(records.records("session", "owner"))
        self.assertEqual({each.id for each in found}, {"first", "second"})
        reactor.settle(records.close())
        reactor.settle(pool.stop())


class MigrationTests(TestCase):
    """The file of an earlier release."""

    async def test_sessions(self) -> None:
        """Sessions of keys and of people, tickets and used sign-ins stay."""
        directory = self.mktemp()
        os.mkdir(directory)
        grant = (
            '{"issuer":"i","account":"a","user":"u","role":"none","claimed":[],"isGrouped":true}'
        )
        with closing(sqlite3.connect(os.path.join(directory, "sessions.sqlite"))) as old, old:
            for statement in (each for migration in _KIND.migrations[:3] for each in migration):
                old.execute(statement)
            old.execute("PRAGMA user_version = 3")
            insert = (
                "INSERT INTO consoleSessions VALUES (?, 'token', ?, 'proof', ?, ?, '::1', ?, ?)"
            )
            old.execute(insert, ("one", "KEY", 1000, 2000, 'a "quoted" agent', ""))
            old.execute(insert, ("two", "user/i/u", 1000, 43_100_000, "agent", grant))
            old.execute("INSERT INTO consoleTickets VALUES ('t', 'one', 9000, x'00ff')")
            old.execute("INSERT INTO consoleSignIns VALUES ('s', 9000)")
        records = EmbeddedConsoleRecords(directory, _Pool())  # type: ignore[arg-type]
        self.addCleanup(lambda: Deferred.fromCoroutine(records.close()))
        sessions = ConsoleSessions(records, lambda: 3.0)
        two, one = await sessions.sessions()
        self.assertEqual((one.id, one.accessKey, one.agent), ("one", "KEY", 'a "quoted" agent'))
        self.assertEqual((one.endMs(), two.endMs()), (1_802_000, 43_201_000))
        self.assertEqual([one, two], [await self.stored(records, each) for each in ("one", "two")])
        self.assertEqual(two.grant, SignInGrant("i", "a", "u", "none", [], isGrouped=True))
        self.assertIsNone(one.grant)
        [ticket] = await records.records("ticket", "one")
        self.assertEqual((ticket.expiresMs, ticket.document), (9000, b"\0\xff"))
        [used] = await records.records("signIn", None)
        self.assertEqual((used.id, used.expiresMs), ("s", 9000))

    async def stored(self, records: EmbeddedConsoleRecords, id: str):  # type: ignore[no-untyped-def]
        """Return a session whose record expires when the session ends."""
        found = await records.find("session", id)
        assert found is not None
        session = (await ConsoleSessions(records, lambda: 3.0).sessions(found.owner))[0]
        self.assertEqual(found.expiresMs, session.endMs())
        return session
