"""The UserService: chats, updates, uploads and data."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults

from storagegate.core.errors import ServiceError
from storagegate.core.streams import MAX_ITEMS
from tests.services.usercase import ADA, FIRST, UNKNOWN, Requests, UserCase, ended

HELLO = {"userId": "ada", "message": "hello"}


class StreamCase(UserCase):
    """A test with streams that are read step by step."""

    def after(self, stream: Any) -> Deferred[Any]:
        """Begin to read the next item."""
        return Deferred.fromCoroutine(self._next(stream))

    async def _next(self, stream: Any) -> Any:
        return await anext(stream)

    async def take(self, stream: Any, count: int) -> list[Any]:
        """Read some items."""
        return [await anext(stream) for _ in range(count)]


class ChatTests(StreamCase):
    """C{Chat} and C{ChatWithUsers}."""

    def open(self, method: str = "ChatWithUsers") -> tuple[Requests, Any]:
        """Open a chat."""
        requests = Requests()
        return requests, self.call(method, requests)

    def assertEmpty(self) -> None:
        """Assert that no call is in the chat any more."""
        handler: Any = self.definition.methods["Chat"].handler
        self.assertEqual(len(handler.__self__), 0)

    async def test_alone(self) -> None:
        """Who is alone hears itself; when it ends, it has heard everything and the chat ends."""
        heard = await self.stream("ChatWithUsers", ended(HELLO, {**HELLO, "message": "you?"}))
        self.assertEqual(
            heard,
            [
                {**HELLO, "timestamp": FIRST},
                {**HELLO, "message": "you?", "timestamp": FIRST.replace("0Z", "1Z")},
            ],
        )
        self.assertEqual(await self.stream("ChatWithUsers", ended()), [])
        self.assertEmpty()

    async def test_relay(self) -> None:
        """Whatever anybody says, all who are there hear, in one order."""
        chats = [self.open() for _ in range(3)]
        waiting = [self.after(stream) for _, stream in chats]
        for number, (requests, _) in enumerate(chats):
            requests.put({"userId": f"user{number}", "message": f"{number}"})
        for first, (_, stream) in zip(waiting, chats, strict=True):
            heard = [await first, *await self.take(stream, 2)]
            self.assertEqual([said["userId"] for said in heard], ["user0", "user1", "user2"])
        for requests, _ in chats:
            requests.end()
        for _, stream in chats:
            self.assertEqual([said async for said in stream], [])
        self.assertEmpty()

    async def test_welcome(self) -> None:
        """C{Chat} begins with a welcome from the system; every item has an id and a time."""
        requests, stream = self.open("Chat")
        welcome = await anext(stream)
        self.assertEqual(sorted(welcome), ["id", "message", "timestamp", "userId"])
        self.assertEqual(welcome["userId"], "system")
        self.assertTrue(welcome["message"])
        requests.put(HELLO, {**HELLO, "timestamp": "2020-01-01T00:00:00Z"})
        said = await self.take(stream, 2)
        for item in said:
            self.assertEqual(item, {**HELLO, "id": item["id"], "timestamp": item["timestamp"]})
            self.assertRegex(item["timestamp"], "^2023-11-14T22:13:20")
        self.assertEqual(len({item["id"] for item in (welcome, *said)}), 3)
        await stream.aclose()
        self.assertEmpty()

    async def test_oneRoom(self) -> None:
        """Those in one kind of chat hear those in the other, but no welcome of theirs."""
        one, plain = self.open()
        waiting = self.after(plain)
        other, greeted = self.open("Chat")
        await anext(greeted)
        self.assertNoResult(waiting)
        other.put(HELLO)
        self.assertEqual(sorted(await waiting), ["message", "timestamp", "userId"])
        self.assertEqual((await anext(greeted))["message"], "hello")
        one.end()
        other.end()
        self.assertEqual([await self.left(stream) for stream in (plain, greeted)], [[], []])

    async def left(self, stream: Any) -> list[Any]:
        """Read all that is left."""
        return [item async for item in stream]

    async def test_time(self) -> None:
        """A message that names its time keeps it."""
        for time in ("2020-01-01T00:00:00Z", "2020-02-29T23:59:59.123456789+02:00"):
            [said] = await self.stream("ChatWithUsers", ended({**HELLO, "timestamp": time}))
            self.assertEqual(said["timestamp"], time)

    async def test_invalid(self) -> None:
        """A message that is none ends the chat of its sender, and no other."""
        other, stream = self.open()
        waiting = self.after(stream)
        for change, path in (
            ({"userId": ""}, "userId"),
            ({"userId": None}, "userId"),
            ({"userId": "x" * 65}, "userId"),
            ({"userId": "a\nb"}, "userId"),
            ({"userId": "System"}, "userId"),
            ({"message": " "}, "message"),
            ({"message": 5}, "message"),
            ({"message": "x" * 4001}, "message"),
            ({"message": "\ud800"}, "message"),
            ({"timestamp": "yesterday"}, "timestamp"),
            ({"timestamp": "2020-02-30T00:00:00Z"}, "timestamp"),
            ({"timestamp": "20200101T000000Z"}, "timestamp"),
            ({"timestamp": 5}, "timestamp"),
        ):
            request = ended({**HELLO, **change})
            self.assertEqual(await self.mistakes("ChatWithUsers", request), [path], change)
        self.assertEqual(await self.mistakes("ChatWithUsers", ended("hello")), [""])
        self.assertNoResult(waiting)
        other.put({**HELLO, "message": "one\ntwo"})
        self.assertEqual((await waiting)["message"], "one\ntwo")
        await stream.aclose()
        self.assertEmpty()

    async def test_errorLast(self) -> None:
        """What was said before a mistake is heard before its error."""
        stream = self.call("ChatWithUsers", ended(HELLO, {}))
        self.assertEqual((await anext(stream))["message"], "hello")
        with self.assertRaises(ServiceError):
            await anext(stream)

    async def test_cancelled(self) -> None:
        """Who is cancelled leaves at once, and its requests are read no more."""
        for method in ("ChatWithUsers", "Chat"):
            requests, stream = self.open(method)
            waiting = self.after(stream)
            if method == "Chat":
                await waiting
                waiting = self.after(stream)
            self.assertTrue(requests.isAwaited)
            waiting.cancel()
            self.failureResultOf(waiting, CancelledError)
            self.assertFalse(requests.isAwaited)
            self.assertEmpty()

    async def test_closed(self) -> None:
        """Who is closed between two items leaves at once as well."""
        for method in ("ChatWithUsers", "Chat"):
            requests, stream = self.open(method)
            waiting = self.after(stream)
            requests.put(HELLO)
            await waiting
            await stream.aclose()
            self.assertFalse(requests.isAwaited)
            self.assertEmpty()

    async def test_closedWhileSaying(self) -> None:
        """Who is closed by hearing its own words leaves, and nothing breaks."""
        requests, stream = self.open()
        closed: list[Any] = []

        def hear(said: Any) -> None:
            closed.append(Deferred.fromCoroutine(stream.aclose()))

        waiting = self.after(stream).addCallback(hear)
        requests.put(HELLO, HELLO, HELLO)
        await waiting
        await closed[0]
        self.assertEmpty()
        self.assertEqual(requests.read, 1)

    async def test_cutRequests(self) -> None:
        """A stream of requests that breaks ends the chat with its error."""
        requests, stream = self.open()
        waiting = self.after(stream)
        requests.end(ConnectionError("cut"))
        self.failureResultOf(waiting, ConnectionError)
        self.assertEmpty()

    async def test_eager(self) -> None:
        """Who says much and reads nothing is not listened to any more, and loses nothing."""
        requests, stream = self.open()
        waiting = self.after(stream)
        requests.put(*({**HELLO, "message": f"{number}"} for number in range(5000)))
        self.assertLess(requests.read, 100)
        heard = [await waiting, *await self.take(stream, 4999)]
        self.assertEqual([said["message"] for said in heard], [f"{n}" for n in range(5000)])
        await stream.aclose()

    async def test_slow(self) -> None:
        """Who does not read while others talk is ended; the others hear everything."""
        _, slow = self.open()
        first = self.after(slow)
        requests, quick = self.open()
        waiting = self.after(quick)
        for number in range(MAX_ITEMS + 2):
            requests.put({**HELLO, "message": f"{number}"})
            self.assertEqual((await waiting)["message"], f"{number}")
            waiting = self.after(quick)
        self.assertEqual((await first)["message"], "0")
        error = self.failureResultOf(self.after(slow), ServiceError).value
        self.assertEqual((error.code, error.grpcStatus), ("RATE_LIMITED", 8))
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertEmpty()


class StreamUserUpdatesTests(StreamCase):
    """C{StreamUserUpdates}."""

    async def watch(self, user: dict[str, Any]) -> tuple[Any, Deferred[Any]]:
        """Begin to watch a user, and wait for the first change."""
        stream = self.call("StreamUserUpdates", {"userId": user["id"]})
        waiting = self.after(stream)
        # The store has been asked when it answers something that was asked for later.
        await self.store.open()
        return stream, waiting

    def watchers(self) -> int:
        """Count those who watch."""
        handler: Any = self.definition.methods["GetUser"].handler
        return len(handler.__self__._watchers)

    async def test_changes(self) -> None:
        """Each field that changes is an item, with what it was and is, until the reader leaves."""
        user = await self.create(phone="")
        stream, waiting = await self.watch(user)
        self.now += 1
        changes = {"name": "Augusta", "email": "ada@example.org", "phone": "1", "roles": ["x"]}
        updated = await self.call("UpdateUser", {"id": user["id"], **changes})
        items = [await waiting, *await self.take(stream, 2)]
        common = {"userId": user["id"], "timestamp": updated["updatedAt"]}
        self.assertEqual(
            items,
            [
                {**common, "field": "name", "oldValue": "Ada Lovelace", "newValue": "Augusta"},
                {**common, "field": "phone", "oldValue": None, "newValue": "1"},
                {**common, "field": "roles", "oldValue": ["admin", "author"], "newValue": ["x"]},
            ],
        )
        await self.call("UpdateUser", {"id": user["id"], "address": {}})
        item = await anext(stream)
        self.assertEqual((item["oldValue"], item["newValue"]), (ADA["address"], None))
        waiting = self.after(stream)
        await self.call("UpdateUser", {"id": user["id"], "name": "Augusta"})
        self.assertNoResult(waiting)
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertEqual(self.watchers(), 0)

    async def test_onlyThatUser(self) -> None:
        """Changes of others are not seen; all who watch a user see its own."""
        user, other = await self.create(), await self.create(email="other@example.org")
        streams = [await self.watch(user) for _ in range(3)]
        await self.call("UpdateUser", {"id": other["id"], "name": "Other"})
        for _, waiting in streams:
            self.assertNoResult(waiting)
        await self.call("UpdateUser", {"id": user["id"], "name": "New"})
        for stream, waiting in streams:
            self.assertEqual((await waiting)["newValue"], "New")
            await stream.aclose()
        self.assertEqual(self.watchers(), 0)

    async def test_fromTheStart(self) -> None:
        """What changes while the user is still being looked for is seen."""
        user = await self.create()
        stream = self.call("StreamUserUpdates", {"userId": user["id"].upper()})
        waiting = self.after(stream)
        await self.call("UpdateUser", {"id": user["id"], "name": "New"})
        self.assertEqual((await waiting)["newValue"], "New")
        await stream.aclose()

    async def test_unknown(self) -> None:
        """A user that is not there is NOT_FOUND, and is not watched."""
        error = await self.refused("StreamUserUpdates", {"userId": UNKNOWN})
        self.assertEqual(error.code, "NOT_FOUND")
        self.assertEqual(self.watchers(), 0)

    async def test_deleted(self) -> None:
        """When the user is deleted the stream ends."""
        user = await self.create()
        _, waiting = await self.watch(user)
        await self.call("DeleteUser", {"id": user["id"]})
        self.failureResultOf(waiting, StopAsyncIteration)
        self.assertEqual(self.watchers(), 0)

    async def test_cancelledUpdate(self) -> None:
        """A change that was made is told, although its caller has left meanwhile."""
        user = await self.create()
        stream, waiting = await self.watch(user)
        request = {"id": user["id"], "name": "New"}
        Deferred.fromCoroutine(self.call("UpdateUser", request)).cancel()
        self.assertEqual((await waiting)["newValue"], "New")
        await stream.aclose()

    async def test_slow(self) -> None:
        """A stream with too many waiting changes is ended."""
        user = await self.create()
        stream, waiting = await self.watch(user)
        requests = ({"id": user["id"], "name": f"{number}"} for number in range(MAX_ITEMS + 2))
        await gatherResults(
            [Deferred.fromCoroutine(self.call("UpdateUser", request)) for request in requests]
        )
        await waiting
        self.failureResultOf(self.after(stream), ServiceError)
        self.assertEqual(self.watchers(), 0)


class UploadUserDataTests(UserCase):
    """C{UploadUserData}."""

    async def upload(self, *chunks: Any) -> Any:
        """Upload chunks."""
        return await self.call("UploadUserData", ended(*chunks))

    async def test_counts(self) -> None:
        """Records with a valid email are processed, others are errors; nothing is stored."""
        good = [{"email": f"{number}@example.org"} for number in range(7)]
        bad: list[Any] = [{}, {"email": "no"}, None, "ada@example.org", {"email": 5}]
        result = await self.upload({"records": good + bad}, {"records": []}, {"records": good[:4]})
        self.assertEqual(
            result,
            {"totalRecords": 16, "processedRecords": 11, "errorCount": 5, "successRate": 11 / 16},
        )
        self.assertEqual(await self.stream("ListUsers", {}), [])

    async def test_none(self) -> None:
        """Where there is no record, there is no success either."""
        nothing = {"totalRecords": 0, "processedRecords": 0, "errorCount": 0, "successRate": 0.0}
        self.assertEqual(await self.upload(), nothing)
        self.assertEqual(await self.upload({"records": []}), nothing)

    async def test_all(self) -> None:
        """Where all are good the rate is 1."""
        self.assertEqual((await self.upload({"records": [ADA]}))["successRate"], 1)

    async def test_invalid(self) -> None:
        """A chunk without a list of records, or with too many, is INVALID_ARGUMENT."""
        for chunk in ({}, {"records": None}, {"records": "x"}, {"records": {"a": 1}}):
            mistakes = await self.mistakes("UploadUserData", ended({"records": [ADA]}, chunk))
            self.assertEqual(mistakes, ["records"])
        mistakes = await self.mistakes("UploadUserData", ended({"records": [{}] * 10_001}))
        self.assertEqual(mistakes, ["records"])
        self.assertEqual((await self.upload({"records": [{}] * 10_000}))["errorCount"], 10_000)
        self.assertEqual(await self.mistakes("UploadUserData", ended([])), [""])


class StreamDataTests(StreamCase):
    """C{StreamData}."""

    async def test_data(self) -> None:
        """Inputs that yield something are given back without what is empty; a summary is last."""
        inputs: list[Any] = [
            {"value": 0, "text": "x", "none": None, "empty": "", "list": [], "flag": False},
            {},
            {"none": None, "empty": {}},
            {"nested": {"none": None}},
        ]
        self.assertEqual(
            await self.stream("StreamData", ended(*inputs)),
            [
                {"type": "result", "index": 0, "data": {"value": 0, "text": "x", "flag": False}},
                {"type": "result", "index": 3, "data": {"nested": {"none": None}}},
                {"type": "summary", "total": 4, "processed": 2, "skipped": 2},
            ],
        )

    async def test_none(self) -> None:
        """Without inputs there is the summary."""
        self.assertEqual(
            await self.stream("StreamData", ended()),
            [{"type": "summary", "total": 0, "processed": 0, "skipped": 0}],
        )

    async def test_atOnce(self) -> None:
        """Each result comes before the next input; no more are read than results."""
        requests = Requests([{"n": 1}, {"n": 2}])
        stream = self.call("StreamData", requests)
        self.assertEqual((await anext(stream))["data"], {"n": 1})
        self.assertEqual(requests.read, 1)
        await stream.aclose()

    async def test_invalid(self) -> None:
        """An input that is no object is INVALID_ARGUMENT."""
        for item in (None, 5, "x", [{}]):
            self.assertEqual(await self.mistakes("StreamData", ended(item)), [""])
