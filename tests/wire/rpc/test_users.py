"""The daemon's UserService, called by grpcio's own client."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from twisted.internet.threads import deferToThread

from storagegate.rpc.protos import loadProto, protoPath
from tests.support.services import openRoom
from tests.wire.rpc.support import RPCCase

ADA = {
    "name": "Ada Lovelace",
    "email": "ada@example.org",
    "phone": "1",
    "address": {"city": "London", "zipCode": "SW1Y"},
    "roles": ["admin"],
}

KINDS = {
    "none": "unary_unary",
    "server": "unary_stream",
    "client": "stream_unary",
    "bidirectional": "stream_stream",
}


class UsersCase(RPCCase):
    """The service in the daemon's form, and a client that talks in dictionaries."""

    async def setUp(self) -> None:
        """Start both."""
        super().setUp()
        room = openRoom(self, "grpc")
        self.service = loadProto(protoPath() / "user.proto").UserService
        self.channel = grpc.insecure_channel(f"127.0.0.1:{room.port('grpc')}")
        self.addCleanup(deferToThread, self.channel.close)

    def begin(self, name: str, request: Any) -> Any:
        """Begin a call; in a thread."""
        method = self.service.methods[name]
        given, taken = method.request.messageClass, method.response.messageClass

        def write(value: Any) -> bytes:
            return bytes(ParseDict(value, given()).SerializeToString())

        def read(wire: bytes) -> Any:
            return MessageToDict(taken.FromString(wire))

        make: Callable[..., Any] = getattr(self.channel, KINDS[method.streaming])
        return make(method.path, write, read)(request, timeout=30)

    async def call(self, name: str, request: Any) -> Any:
        """Call a method; give its response, or the list of them."""

        def run() -> Any:
            result = self.begin(name, request)
            return result if isinstance(result, dict) else list(result)

        return await deferToThread(run)

    async def refused(self, name: str, request: Any) -> Any:
        """Give the error of a call."""
        try:
            await self.call(name, request)
        except grpc.RpcError as error:
            return error
        raise self.failureException(f"{name} took {request!r}")


class UsersTests(UsersCase):
    """Every method, as a stub sees it."""

    async def test_unary(self) -> None:
        """Users are created, read, changed and deleted; messages have the fields they should."""
        created = await self.call("CreateUser", ADA)
        self.assertEqual({name: created[name] for name in ADA}, ADA)
        self.assertRegex(created["createdAt"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")
        id = {"id": created["id"]}
        self.assertEqual(await self.call("GetUser", id), created)
        updated = await self.call("UpdateUser", {**id, "name": "Augusta", "phone": ""})
        self.assertEqual((updated["name"], updated["email"]), ("Augusta", ADA["email"]))
        self.assertNotIn("phone", updated)
        self.assertEqual(updated["roles"], ADA["roles"])
        self.assertEqual(await self.call("DeleteUser", id), {"success": True})

    async def test_errors(self) -> None:
        """Errors have their statuses, and a mistake its place in the details."""
        await self.call("CreateUser", ADA)
        for name, request, status in (
            ("GetUser", {}, "INVALID_ARGUMENT"),
            ("GetUser", {"id": "0" * 32}, "NOT_FOUND"),
            ("DeleteUser", {"id": "0" * 32}, "NOT_FOUND"),
            ("CreateUser", ADA, "ALREADY_EXISTS"),
            ("ListUsers", {"limit": -1}, "INVALID_ARGUMENT"),
            ("ListUsers", {"sortBy": "phone"}, "INVALID_ARGUMENT"),
            ("SearchUsers", {}, "INVALID_ARGUMENT"),
            ("StreamUserUpdates", {"userId": "0" * 32}, "NOT_FOUND"),
            ("ChatWithUsers", iter([{"userId": "ada"}]), "INVALID_ARGUMENT"),
        ):
            error = await self.refused(name, request)
            self.assertEqual(error.code().name, status, name)
        error = await self.refused("CreateUser", {"name": "Ada", "email": "x"})
        [details] = [value for key, value in error.trailing_metadata() if key.endswith("-bin")]
        self.assertIn(b"email", details)
        self.assertIn(b"google.rpc.BadRequest", details)

    async def test_lists(self) -> None:
        """Streams of users begin where they should and go to the end."""
        requests = [{**ADA, "name": f"{n:02}", "email": f"{n}@example.org"} for n in range(25)]
        created = await self.call("CreateMultipleUsers", iter([*requests, requests[0], {}]))
        self.assertEqual(sorted(created), ["count", "users"])
        self.assertEqual(created["count"], 25)
        self.assertEqual(await self.call("ListUsers", {}), created["users"])
        listed = await self.call("ListUsers", {"page": 2, "limit": 7, "sortOrder": "desc"})
        self.assertEqual(listed, created["users"][17::-1])
        found = await self.call("SearchUsers", {"query": "EXAMPLE", "fields": ["email"]})
        self.assertEqual(found, created["users"][:10])

    async def test_data(self) -> None:
        """The methods without messages of their own travel as structs."""
        records: list[Any] = [{"email": "ada@example.org"}, {"email": "x"}]
        self.assertEqual(
            await self.call("UploadUserData", iter([{"records": records}])),
            {"totalRecords": 2, "processedRecords": 1, "errorCount": 1, "successRate": 0.5},
        )
        data = await self.call("StreamData", iter([{"value": 5}, {}]))
        self.assertEqual(data[0], {"type": "result", "index": 0, "data": {"value": 5}})
        self.assertEqual([item["type"] for item in data], ["result", "summary"])

    async def test_chats(self) -> None:
        """All who are in the room hear what is said there; a cancelled call leaves it."""

        def talk() -> list[Any]:
            words: SimpleQueue[Any] = SimpleQueue()
            plain = self.begin("ChatWithUsers", _taking(words))
            words.put({"userId": "ada", "message": "first"})
            heard = [next(plain)]
            greeted = self.begin("Chat", iter([{"userId": "alan", "message": "second"}]))
            heard += [next(greeted), *greeted, next(plain)]
            plain.cancel()
            words.put(None)
            return heard

        heard = await deferToThread(talk)
        said = [(item["userId"], item["message"]) for item in heard if item["userId"] != "system"]
        self.assertEqual(said, [("ada", "first"), ("alan", "second"), ("alan", "second")])
        self.assertEqual(heard[1]["userId"], "system")
        self.assertEqual(sorted(heard[2]), ["id", "message", "timestamp", "userId"])
        self.assertEqual(sorted(heard[3]), ["message", "timestamp", "userId"])

    async def test_updates(self) -> None:
        """Changes are seen as they happen."""
        created = await self.call("CreateUser", ADA)

        def watch() -> Any:
            stream = self.begin("StreamUserUpdates", {"userId": created["id"]})
            changes: SimpleQueue[Any] = SimpleQueue()
            reader = Thread(target=lambda: changes.put(next(stream)))
            reader.start()
            # The watcher says nothing until it has something to say: changes go on until it does.
            number = 0
            while changes.empty():
                self.begin("UpdateUser", {"id": created["id"], "name": f"Ada {number}"})
                number += 1
            reader.join()
            stream.cancel()
            return changes.get()

        change = await deferToThread(watch)
        self.assertEqual((change["userId"], change["field"]), (created["id"], "name"))


def _taking(words: "SimpleQueue[Any]") -> Iterator[Any]:
    return iter(words.get, None)
