"""What the daemon serves over gRPC, to clients that we did not write."""

import os
import threading
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThread

from storagegate import GrpcError, createGrpcClient
from storagegate.daemon.config import load
from storagegate.daemon.gatewayservice import USERS_FILE, DaemonGatewayService
from storagegate.objects.issuedkeys import KeyPair
from tests.support.services import OpenRoom
from tests.wire.rpc.support import RPCCase

SERVING = health_pb2.HealthCheckResponse.SERVING

ADA = {"name": "Ada", "email": "ada@example.org"}


class RoomCase(RPCCase):
    """A case with a room on a free port."""

    def setUp(self) -> None:
        """Name a data directory."""
        super().setUp()
        self.directory = self.mktemp()

    def room(self) -> tuple[OpenRoom, str]:
        """Open a room; give its address, too."""
        room = OpenRoom(self.directory, self.reactor, ("grpc",))
        return room, f"127.0.0.1:{room.port('grpc')}"

    def served(self) -> str:
        """Open one until the test ends; give its address."""
        room, place = self.room()
        self.addCleanup(lambda: Deferred.fromCoroutine(room.close()))
        return place


class RoomTests(RoomCase):
    """The room."""

    async def test_health(self) -> None:
        """Health knows the service by its names on gRPC and on all wires, and the whole."""
        place = self.served()

        def ask() -> list[Any]:
            with grpc.insecure_channel(place) as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                found: list[Any] = []
                for name in (
                    "",
                    "UserService",
                    "user.UserService",
                    "Storage",
                    "storagegate.Storage",
                ):
                    request = health_pb2.HealthCheckRequest(service=name)
                    found += [
                        stub.Check(request, timeout=30).status,
                        next(stub.Watch(request, timeout=30)).status,
                    ]
                return found

        self.assertEqual(await deferToThread(ask), [SERVING] * 10)

    async def test_reflection(self) -> None:
        """Reflection is on, and lists what there is."""
        place = self.served()

        def ask() -> list[str]:
            with grpc.insecure_channel(place) as channel:
                stub = reflection_pb2_grpc.ServerReflectionStub(channel)
                request = reflection_pb2.ServerReflectionRequest(list_services="")
                [answer] = stub.ServerReflectionInfo(iter([request]), timeout=30)
                return [each.name for each in answer.list_services_response.service]

        self.assertEqual(
            await deferToThread(ask),
            [
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
                "storagegate.Storage",
                "user.UserService",
            ],
        )

    async def test_generated(self) -> None:
        """A client that knows nothing but the address has all methods in camelCase."""
        client = createGrpcClient(address=self.served(), credentials="insecure")
        self.addCleanup(client.close)
        created = await client.createUser(ADA)
        self.assertEqual(await client.getUser({"id": created["id"]}), created)
        self.assertEqual([user async for user in client.listUsers({})], [created])

        async def requests() -> Any:
            yield {"name": "Alan", "email": "alan@example.org"}
            yield ADA

        several = await client.createMultipleUsers(requests())
        self.assertEqual(sorted(several), ["count", "users"])
        self.assertEqual((several["count"], several["users"][0]["name"]), (1, "Alan"))

        async def words() -> Any:
            yield {"userId": "ada", "message": "hello"}

        [heard] = [message async for message in client.chatWithUsers(words())]
        self.assertEqual((heard["userId"], heard["message"]), ("ada", "hello"))
        self.assertRegex(heard["timestamp"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")

    async def test_kept(self) -> None:
        """Users are in the data directory, where the next room finds them."""
        room, place = self.room()
        client = createGrpcClient(place, "insecure")
        created = await client.createUser(ADA)
        await client.close()
        await room.close()
        self.assertTrue(os.path.isfile(os.path.join(self.directory, USERS_FILE)))
        client = createGrpcClient(self.served(), "insecure")
        self.addCleanup(client.close)
        self.assertEqual(await client.getUser(id=created["id"]), created)

    async def test_taken(self) -> None:
        """A place that cannot be had is an error, and nothing is left of the room."""
        place = self.served()
        given = {"data": self.mktemp(), "http": "off", "tcp": "off", "udp": "off"}
        second = DaemonGatewayService(load(given, {}), self.reactor)
        self.assertRaises(CannotListenError, second.open, "grpc", place)
        await second.close(0)

    async def test_setRootCredentials(self) -> None:
        """Another root key pair is known at once, and the one before is nobody's."""
        room, place = self.room()
        self.addCleanup(lambda: Deferred.fromCoroutine(room.close()))
        client = createGrpcClient(place, "insecure", "storagegate.Storage")
        self.addCleanup(client.close)
        old, new = ({"x-api-key": f"{key}:the-root-secret"} for key in ("AKROOT", "AKNEXT"))
        self.assertEqual(await client.listBuckets({}, metadata=old), {})
        room.room.setRootCredentials(KeyPair("AKNEXT", "the-root-secret"))
        self.assertEqual(await client.listBuckets({}, metadata=new), {})
        error = await self.assertFailure(client.listBuckets({}, metadata=old).deferred(), GrpcError)
        self.assertEqual(error.statusName, "UNAUTHENTICATED")

    async def test_close(self) -> None:
        """A room that closes lets calls end in the grace, takes no more, and leaves no thread."""
        room, place = self.room()
        client = createGrpcClient(place, "insecure")
        self.addCleanup(client.close)
        await client.createUser(ADA)
        self.assertGreaterEqual(len(self.threads()), 2)
        chat = client.chatWithUsers(self.talk(lambda: Deferred.fromCoroutine(room.close(30))))
        self.assertEqual([item["message"] async for item in chat], ["before", "after"])

        def ask() -> Any:
            with grpc.insecure_channel(place) as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                return stub.Check(health_pb2.HealthCheckRequest(), timeout=30)

        error = await self.assertFailure(deferToThread(ask), grpc.RpcError)
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        await self.closed
        self.assertEqual(self.threads(), [])

    def threads(self) -> list[str]:
        """Name the threads of rooms."""
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name.startswith("storagegate")]

    async def talk(self, close: Any) -> Any:
        """Say something, have the room closed, and say more."""
        yield {"userId": "ada", "message": "before"}
        self.closed = close()
        yield {"userId": "ada", "message": "after"}
