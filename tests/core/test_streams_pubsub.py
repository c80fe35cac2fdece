"""Topics, chats and updates of several processes on one bus."""

import os
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from storagegate.core.errors import ServiceError
from storagegate.core.streams import MAX_ITEMS, BoundedStream, PubSub
from storagegate.services.users import makeUserService
from storagegate.services.usertable import SQLiteUserStore, UserTable
from tests.services.usercase import ADA, Requests, contextOf, ended
from tests.support.buses import Buses

HELLO = {"userId": "ada", "message": "hello"}


class PubSubTests(SynchronousTestCase):
    """Topics on a bus."""

    def setUp(self) -> None:
        """Make two that hear each other, and one of another name."""
        self.buses = Buses()
        self.one, self.two = (PubSub(self.buses.make(), "same") for _ in range(2))
        self.other = PubSub(self.buses.make(), "other")

    def read(self, box: BoundedStream[Any]) -> Any:
        """Read a message that is there."""
        return self.successResultOf(Deferred.fromCoroutine(box.get()))

    def test_told(self) -> None:
        """What is told of a topic is heard once by everybody who has joined it, in its order."""
        boxes = [topics.subscribe("a") for topics in (self.one, self.two)]
        apart = [self.two.subscribe("b"), self.other.subscribe("a")]
        self.one.publish("a", [1, 2])
        self.one.publish("a", [])
        self.two.publish("a", [3])
        self.buses.deliver()
        self.assertEqual([self.read(boxes[0]) for _ in range(3)], [1, 2, 3])
        self.assertEqual(sorted(self.read(boxes[1]) for _ in range(3)), [1, 2, 3])
        for box in (*boxes, *apart):
            self.assertNoResult(Deferred.fromCoroutine(box.get()))

    def test_wanted(self) -> None:
        """Who wants some of it gets only that, from elsewhere too."""
        box = self.two.subscribe("a", lambda item: bool(item % 2))
        self.one.publish("a", [1, 2, 3])
        self.buses.deliver()
        self.assertEqual([self.read(box), self.read(box)], [1, 3])

    def test_nothing(self) -> None:
        """Of nothing nobody is told."""
        self.one.publish("a", [])
        self.assertEqual(self.buses.said, [])

    def test_closed(self) -> None:
        """A topic that ends does so everywhere, behind what was told before."""
        box, apart = self.two.subscribe("a"), self.two.subscribe("b")
        self.one.publish("a", [1])
        self.one.close("a")
        self.buses.deliver()
        self.assertEqual([self.read(box), self.read(box)], [1, None])
        self.assertFalse(apart.isEnded)

    def test_answeredAtOnce(self) -> None:
        """Whoever says something as soon as it hears something is heard behind it, elsewhere."""
        here, there = self.one.subscribe("a"), self.two.subscribe("a")
        heard = Deferred.fromCoroutine(here.get())
        heard.addCallback(lambda item: self.one.publish("a", ["answer"]))
        self.one.publish("a", ["question"])
        self.buses.deliver()
        self.assertEqual([self.read(there), self.read(there)], ["question", "answer"])

    def test_slow(self) -> None:
        """One who does not read what comes from elsewhere is ended, and nobody else."""
        slow, quick = self.two.subscribe("a"), self.two.subscribe("a")
        for number in range(MAX_ITEMS + 1):
            self.one.publish("a", [number])
            self.buses.deliver()
            self.assertEqual(self.read(quick), number)
        self.failureResultOf(Deferred.fromCoroutine(slow.get()), ServiceError)
        self.assertFalse(quick.isEnded)


class ServicesTests(TestCase):
    """Two services on one file."""

    timeout = 60

    def setUp(self) -> None:
        """Make them."""
        from twisted.internet import reactor

        path = os.path.join(os.path.abspath(self.mktemp()), "users.sqlite")
        self.buses = Buses()
        self.stores = [SQLiteUserStore(path, reactor) for _ in range(2)]
        for store in self.stores:
            self.addCleanup(store.close)
        self.services = [makeUserService(each, bus=self.buses.make()) for each in self.stores]

    def call(self, number: int, method: str, request: Any) -> Any:
        """Call a method of one of them."""
        handler: Any = self.services[number].methods[method].handler
        return handler(request, contextOf(method))

    def begin(self, stream: AsyncIterator[Any]) -> Deferred[Any]:
        """Begin to read an item."""

        async def read() -> Any:
            return await anext(stream)

        return Deferred.fromCoroutine(read())

    async def test_chats(self) -> None:
        """Both kinds of chat hear those of the other service, each once, in the sender's order."""
        talking = Requests()
        near = self.call(0, "ChatWithUsers", talking)
        far = [self.call(1, method, Requests()) for method in ("Chat", "ChatWithUsers")]
        await anext(far[0])
        waiting = [self.begin(stream) for stream in (near, *far)]
        talking.put(*({**HELLO, "message": f"{number}"} for number in range(3)))
        self.buses.deliver()
        for stream, first in zip((near, *far), waiting, strict=True):
            heard = [await first, await anext(stream), await anext(stream)]
            self.assertEqual([item["message"] for item in heard], ["0", "1", "2"])
            self.assertEqual({item["userId"] for item in heard}, {"ada"})
        self.assertEqual(len({item["timestamp"] for item in heard}), 3)
        for stream in (near, *far):
            await stream.aclose()

    async def test_welcome(self) -> None:
        """A welcome is for one's own; nobody else is told of it."""
        self.assertEqual(len([item async for item in self.call(0, "Chat", ended())]), 1)
        self.assertEqual(self.buses.said, [])

    async def test_updates(self) -> None:
        """Who watches a user by one service hears what is changed by the other, and the end."""
        user = await self.call(0, "CreateUser", ADA)
        stream = self.call(1, "StreamUserUpdates", {"userId": user["id"]})
        waiting = self.begin(stream)
        await self.stores[1].open()
        changes = {"id": user["id"], "name": "Augusta", "roles": ["x"]}
        updated = await self.call(0, "UpdateUser", changes)
        self.buses.deliver()
        common = {"userId": user["id"], "timestamp": updated["updatedAt"]}
        self.assertEqual(
            [await waiting, await anext(stream)],
            [
                {**common, "field": "name", "oldValue": ADA["name"], "newValue": "Augusta"},
                {**common, "field": "roles", "oldValue": ADA["roles"], "newValue": ["x"]},
            ],
        )
        waiting = self.begin(stream)
        await self.call(0, "DeleteUser", {"id": user["id"]})
        self.assertNoResult(waiting)
        self.buses.deliver()
        self.failureResultOf(waiting, StopAsyncIteration)


class PatienceTests(SynchronousTestCase):
    """A table whose file another connection uses."""

    def setUp(self) -> None:
        """Have another one use it."""
        self.path = self.mktemp()
        self.other = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(self.other.close)
        self.naps: list[float] = []

    def nap(self, seconds: float) -> None:
        """Let go of the file after some naps."""
        self.naps.append(seconds)
        if len(self.naps) == 5:
            self.other.execute("ROLLBACK")

    def table(self, busyMs: int = 20_000) -> UserTable:
        """Make a table."""
        table = UserTable(self.path, busyMs, self.nap)
        self.addCleanup(table.close)
        return table

    def test_newFile(self) -> None:
        """A file that somebody reads while it is made one with a log is opened a little later."""
        self.other.execute("BEGIN")
        self.other.execute("SELECT * FROM sqlite_schema").fetchall()
        self.assertEqual(self.table().perform([lambda table: table.get("x")], False), [None])
        self.assertEqual(len(self.naps), 5)

    def test_writers(self) -> None:
        """Who waits for a writer looks often enough to find the moment between two writes."""
        table = self.table()
        table.perform([lambda table: None], False)
        self.other.execute("BEGIN IMMEDIATE")
        self.assertEqual(table.perform([lambda table: table.remove("x")], True), [False])
        self.assertEqual(len(self.naps), 5)
        self.assertLess(max(self.naps), 0.005)

    def test_bounded(self) -> None:
        """It does not wait longer than it should."""
        table = self.table(busyMs=0)
        table.perform([lambda table: None], False)
        self.other.execute("BEGIN IMMEDIATE")
        with self.assertRaises(sqlite3.OperationalError):
            table.perform([lambda table: table.remove("x")], True)
        self.assertEqual(self.naps, [])
