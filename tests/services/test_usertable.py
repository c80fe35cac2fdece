"""The file of users, and its thread."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults

from storagegate.core.errors import DATABASE_MESSAGE, ServiceError, asServiceError, isExpected
from storagegate.services.users import makeUserService
from storagegate.services.usertable import (
    DatabaseError,
    SQLiteUserStore,
    User,
    UserFileError,
    UserTable,
)
from storagegate.storage.sqlite import MEMORY
from tests.services.usercase import ADA, UNKNOWN, UserCase, ended

# Another program that holds the database until it is told to let go.
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
"""


def someUsers(count: int) -> list[User]:
    """Make users."""
    return [
        User(f"{number:032x}", "x", f"{number}@x.yz", "", {}, (), number, number)
        for number in range(count)
    ]


class FileTests(UserCase):
    """The file."""

    async def test_private(self) -> None:
        """The file, with its log, is for its owner alone, and so is the directory made for it."""
        self.assertFalse(os.path.exists(self.directory))
        await self.create()
        self.assertEqual(os.stat(self.directory).st_mode & 0o777, 0o700)
        for suffix in ("", "-wal", "-shm"):
            self.assertEqual(os.stat(self.path + suffix).st_mode & 0o777, 0o600, suffix)

    async def test_survives(self) -> None:
        """A store that is opened again has the users as they were."""
        user = await self.create(name="Ærøskøbing")
        await self.store.close()
        self.assertEqual(os.listdir(self.directory), ["users.sqlite"])
        self.store = self.makeStore()
        self.definition = makeUserService(self.store)
        self.assertEqual(await self.call("GetUser", {"id": user["id"]}), user)
        self.assertEqual((await self.refused("CreateUser", ADA)).code, "ALREADY_EXISTS")

    async def test_durable(self) -> None:
        """The log is used, and synced with each commit; the version is there."""
        await self.store.open()
        self.assertEqual(self.query("PRAGMA journal_mode"), ("wal",))
        self.assertEqual(self.query("PRAGMA user_version"), (1,))
        synchronous = self.store._table._execute("PRAGMA synchronous").fetchone()
        self.assertEqual(synchronous, (2,))

    async def test_memory(self) -> None:
        """Without a file users live as long as the store."""
        from twisted.internet import reactor

        store = SQLiteUserStore(MEMORY, reactor)
        self.definition = makeUserService(store)
        user = await self.create()
        self.assertEqual(await self.call("GetUser", {"id": user["id"]}), user)
        await store.close()
        self.assertFalse(os.path.exists(MEMORY))

    async def unusable(self) -> str:
        """Give the error of a file that is none of ours."""
        with self.assertRaises(UserFileError) as raised:
            await self.store.open()
        # Nothing is broken by the first failure; and callers are told nothing of files.
        called = self.call("GetUser", {"id": UNKNOWN})
        with self.assertRaises(DatabaseError) as told:
            await called
        error = asServiceError(told.exception)
        self.assertEqual((error.code, error.message), ("UNAVAILABLE", DATABASE_MESSAGE))
        return str(raised.exception)

    async def test_noDatabase(self) -> None:
        """A file that is no database is left alone: an error that names it."""
        os.mkdir(self.directory)
        with open(self.path, "w") as file:
            file.write("hello " * 1000)
        self.assertIn(f"{self.path} is not a database", await self.unusable())
        with open(self.path) as file:
            self.assertEqual(file.read(), "hello " * 1000)

    async def test_foreign(self) -> None:
        """So is a database of another program, whatever its version."""
        os.mkdir(self.directory)
        self.query("CREATE TABLE users (a, b)")
        self.assertIn("another program", await self.unusable())
        self.query("PRAGMA user_version = 1")
        self.assertIn("another program", await self.unusable())

    async def test_newer(self) -> None:
        """A file that a newer program has written is not touched."""
        await self.store.open()
        await self.store.close()
        self.query("PRAGMA user_version = 2")
        self.store = self.makeStore()
        self.definition = makeUserService(self.store)
        self.assertIn("newer", await self.unusable())

    async def test_noRoom(self) -> None:
        """Where no file can be made the error says so; when one can, it is."""
        with open(self.directory, "w"):
            pass
        self.assertIn(f"{self.path} cannot store users: ", await self.unusable())
        os.unlink(self.directory)
        await self.create()


class BusyTests(UserCase):
    """A database that others use as well."""

    def setUp(self) -> None:
        """Make a store that waits for a short time."""
        super().setUp()
        self.store = self.makeStore(busyMs=20)
        self.definition = makeUserService(self.store)

    def hold(self) -> "subprocess.Popen[bytes]":
        """Have another process hold the database."""
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        assert holder.stdout is not None
        self.assertEqual(holder.stdout.readline(), b"held\n")
        self.addCleanup(holder.stdout.close)
        return holder

    def release(self, holder: "subprocess.Popen[bytes]") -> None:
        """Have it let go."""
        holder.communicate(b"\n")

    async def test_busy(self) -> None:
        """A write is UNAVAILABLE while others hold the lock; reads go on, and so does it after."""
        user = await self.create()
        holder = self.hold()
        id = {"id": user["id"]}
        for method, request in (
            ("CreateUser", {**ADA, "email": "x@example.org"}),
            ("UpdateUser", {**id, "name": "x"}),
            ("DeleteUser", id),
        ):
            error = await self.refused(method, request)
            self.assertEqual((error.code, error.statusCode), ("UNAVAILABLE", 503))
            self.assertEqual((error.grpcStatus, error.message), (14, DATABASE_MESSAGE))
        refused = self.store.write(lambda table: table.remove(user["id"]))
        waiting = [
            self.store.write(lambda table: table.remove(user["id"])),
            self.store.read(lambda table: table.get(user["id"])),
        ]
        self.assertEqual((await waiting[1]).asDict(), user)
        for result in (refused, waiting[0]):
            self.failureResultOf(result, ServiceError)
        self.assertEqual(await self.stream("ListUsers", {}), [user])
        self.release(holder)
        self.assertEqual((await self.call("UpdateUser", {**id, "name": "x"}))["name"], "x")

    async def test_busyAtFirst(self) -> None:
        """A file that is held when it is to be opened is opened later."""
        os.mkdir(self.directory)
        holder = self.hold()
        self.assertEqual((await self.refused("CreateUser", ADA)).code, "UNAVAILABLE")
        self.release(holder)
        await self.create()

    async def test_others(self) -> None:
        """Two stores on one file see each other's users."""
        other = makeUserService(self.makeStore())
        user = await self.create()
        mine, self.definition = self.definition, other
        self.assertEqual(await self.call("GetUser", {"id": user["id"]}), user)
        self.assertEqual((await self.refused("CreateUser", ADA)).code, "ALREADY_EXISTS")
        await self.call("DeleteUser", {"id": user["id"]})
        self.definition = mine
        self.assertEqual((await self.refused("GetUser", {"id": user["id"]})).code, "NOT_FOUND")

    async def test_damaged(self) -> None:
        """An error of the database is for the log, and callers are told nothing of it."""
        user = await self.create()
        self.query("DROP INDEX usersByName")
        self.query("ALTER TABLE users RENAME TO others")
        with self.assertRaises(DatabaseError) as raised:
            await self.call("DeleteUser", {"id": user["id"]})
        self.assertIn("no such table", str(raised.exception))
        self.assertFalse(isExpected(raised.exception))
        self.assertEqual(asServiceError(raised.exception).message, DATABASE_MESSAGE)
        self.assertEqual(self.query("SELECT count(*) FROM others"), (1,))


class QueueTests(UserCase):
    """What waits for the thread."""

    def holdThread(self) -> threading.Event:
        """Keep the thread busy until the event is set."""
        gate, begun = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def wait(table: UserTable) -> None:
            begun.set()
            gate.wait(60)

        self.held: Deferred[Any] = self.store.read(wait)
        self.assertTrue(begun.wait(60))
        return gate

    async def test_elsewhere(self) -> None:
        """Nothing touches the file but one thread of the store's own."""
        names: list[str] = []
        for _ in range(3):
            await self.store.read(lambda table: names.append(threading.current_thread().name))
        self.assertEqual(set(names), {"storagegate-users-0"})

    async def test_groups(self) -> None:
        """Writes that wait together share a transaction; each has its own outcome."""
        gate = self.holdThread()
        first, other = someUsers(2)
        adding = [
            self.store.write(lambda table: table.add([first])),
            self.store.write(lambda table: table.add([first])),
            self.store.write(lambda table: table.add([other])),
        ]
        changing = self.store.write(
            lambda table: table.update(UNKNOWN[:-1] + "9", {"name": "y"}, 5)
        )
        seen: list[bool] = []
        looking = self.store.write(
            lambda table: seen.append(self.query("SELECT count(*) FROM users") == (0,))
        )
        gate.set()
        self.assertEqual(await gatherResults(adding), [[True], [False], [True]])
        with self.assertRaises(ServiceError) as raised:
            await changing
        self.assertEqual(raised.exception.code, "NOT_FOUND")
        await looking
        self.assertEqual(seen, [True])
        self.assertEqual(self.query("SELECT count(*) FROM users"), (2,))

    async def test_allOrNone(self) -> None:
        """Where the database fails, nothing of a transaction was done."""
        await self.store.open()
        gate = self.holdThread()
        adding = self.store.write(lambda table: table.add(someUsers(3)))
        breaking = self.store.write(lambda table: table._execute("SELECT nothing"))
        gate.set()
        for result in (adding, breaking):
            with self.assertRaises(DatabaseError):
                await result
        self.assertEqual(self.query("SELECT count(*) FROM users"), (0,))
        await self.create()

    async def test_order(self) -> None:
        """What is asked for one after the other is done in that order, reads and writes."""
        gate = self.holdThread()
        [user] = someUsers(1)
        results = [
            self.store.read(lambda table: table.get(user.id)),
            self.store.write(lambda table: table.add([user])),
            self.store.read(lambda table: table.get(user.id)),
            self.store.write(lambda table: table.remove(user.id)),
            self.store.read(lambda table: table.get(user.id)),
        ]
        gate.set()
        self.assertEqual(await gatherResults(results), [None, [True], user, True, None])

    async def test_turns(self) -> None:
        """A client waits for a few jobs of another one, and not for all that it has sent."""
        gate = self.holdThread()
        done: list[str] = []

        def noteLater(name: str) -> Callable[[UserTable], None]:
            return lambda table: done.append(name)

        waiting: list[Deferred[None]] = []
        for _ in range(500):
            waiting.append(self.store.write(noteLater("greedy"), "greedy"))
            waiting.append(self.store.read(noteLater("greedy"), "greedy"))
        waiting.append(self.store.read(noteLater("read"), "other"))
        waiting.append(self.store.write(noteLater("write"), "third"))
        gate.set()
        await gatherResults(waiting)
        self.assertEqual(len(done), 1002)
        self.assertLess(max(done.index("read"), done.index("write")), 4)

    async def test_turnsOfReads(self) -> None:
        """So it is among reads, of which a batch ends before it has taken all."""
        gate = self.holdThread()
        done: list[str] = []
        waiting = [
            self.store.read(lambda table: done.append("greedy"), "greedy") for _ in range(500)
        ]
        gate.set()
        await waiting[0]
        await self.store.read(lambda table: done.append("other"), "other")
        await gatherResults(waiting)
        self.assertLess(done.index("other"), 200)

    async def test_clients(self) -> None:
        """Each method of the service waits for the turn of its client."""
        gate = self.holdThread()
        clients: list[str] = []
        push = self.store._push
        self.patch(self.store, "_push", lambda job: (clients.append(job.client), push(job)))
        calls = [
            Deferred.fromCoroutine(self.call(method, {"id": UNKNOWN, **ADA}))
            for method in ("GetUser", "CreateUser", "UpdateUser", "DeleteUser")
        ]
        calls.append(Deferred.fromCoroutine(self.call("CreateMultipleUsers", ended(ADA))))
        for method in ("ListUsers", "SearchUsers"):
            calls.append(Deferred.fromCoroutine(self.stream(method, {"query": "a"})))
        gate.set()
        for call in calls:
            call.addErrback(lambda failure: failure.trap(ServiceError))
            await call
        self.assertEqual(clients, ["a"] * 7)

    async def test_manyCancelled(self) -> None:
        """However many have given up, who comes behind them is answered."""
        gate = self.holdThread()
        for reading in [self.store.read(lambda table: table.get(UNKNOWN)) for _ in range(1500)]:
            reading.addErrback(lambda failure: failure.trap(CancelledError))
            reading.cancel()
        last = self.store.read(lambda table: table.get(UNKNOWN))
        gate.set()
        self.assertIsNone(await last)

    async def test_bounded(self) -> None:
        """Past its bound the store takes no more, which is UNAVAILABLE; then it goes on."""
        gate = self.holdThread()
        results = [self.store.read(lambda table: table.get(UNKNOWN)) for _ in range(2048)]
        error = self.failureResultOf(
            self.store.read(lambda table: table.get(UNKNOWN)), ServiceError
        ).value
        self.assertEqual(error.code, "UNAVAILABLE")
        gate.set()
        await gatherResults(results)
        self.assertIsNone(await self.store.read(lambda table: table.get(UNKNOWN)))

    async def test_cancelled(self) -> None:
        """A read whose caller has left is not done; a write that was asked for is."""
        gate = self.holdThread()
        done: list[str] = []
        reading = self.store.read(lambda table: done.append("read"))
        writing = self.store.write(lambda table: done.append("written"))
        reading.cancel()
        writing.cancel()
        self.failureResultOf(reading, CancelledError)
        gate.set()
        await writing
        self.assertEqual(done, ["written"])

    async def test_reactorFree(self) -> None:
        """While the thread waits, the reactor does other things."""
        from twisted.internet import reactor
        from twisted.internet.task import deferLater

        gate = self.holdThread()
        creating = Deferred.fromCoroutine(self.create())
        await deferLater(reactor, 0)
        self.assertNoResult(creating)
        gate.set()
        await creating

    async def test_close(self) -> None:
        """A closed store has done what it was asked, takes no more, and leaves no thread."""
        gate = self.holdThread()
        adding = self.store.write(lambda table: table.add(someUsers(1)))
        closing = [self.store.close(), self.store.close()]
        error = self.failureResultOf(
            self.store.read(lambda table: table.get(UNKNOWN)), ServiceError
        ).value
        self.assertEqual(error.code, "UNAVAILABLE")
        gate.set()
        self.assertEqual(await adding, [True])
        await gatherResults(closing)
        await self.store.close()
        names = [thread.name for thread in threading.enumerate()]
        self.assertNotIn("storagegate-users-0", names)
        self.assertEqual(os.listdir(self.directory), ["users.sqlite"])

    async def test_closeUnused(self) -> None:
        """A store that was never used makes no file when it is closed."""
        await self.store.close()
        self.assertFalse(os.path.exists(self.directory))
