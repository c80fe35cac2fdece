"""The gRPC health service of the daemon's room, asked by a client that we did not write."""

from collections.abc import Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate.daemon.health import Readiness
from tests.support.services import OpenRoom
from tests.wire.rpc.support import RPCCase

NAMES = ("", "UserService", "user.UserService", "Storage", "storagegate.Storage")


class HealthTests(RPCCase):
    """What the room is told of the daemon, clients are told."""

    async def ask(self) -> Mapping[str, bool]:
        """Ask for each name whether it is served."""

        def check() -> Mapping[str, bool]:
            with grpc.insecure_channel(self.place) as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                requests = {name: health_pb2.HealthCheckRequest(service=name) for name in NAMES}
                serving = health_pb2.HealthCheckResponse.SERVING
                return {
                    name: stub.Check(request, timeout=30).status == serving
                    for name, request in requests.items()
                }

        return await deferToThread(check)

    async def test_told(self) -> None:
        """A store that fails takes Storage and the whole away; a stop takes everything."""
        room = OpenRoom(self.mktemp(), self.reactor, ("grpc",))
        self.addCleanup(lambda: Deferred.fromCoroutine(room.close()))
        self.place = f"127.0.0.1:{room.port('grpc')}"
        well = dict.fromkeys(NAMES, True)
        room.room.onReadinessChange(Readiness("ok", None, {"catalog": None}))
        self.assertEqual(await self.ask(), well)
        room.room.onReadinessChange(Readiness("unavailable", "catalog: gone", {"catalog": "gone"}))
        self.assertEqual(
            await self.ask(),
            {**well, "": False, "Storage": False, "storagegate.Storage": False},
        )
        room.room.onReadinessChange(Readiness("unavailable", "s3: ...", {}, {}, {"s3": "..."}))
        self.assertEqual(await self.ask(), {**well, "": False})
        room.room.onReadinessChange(
            Readiness("draining", "the daemon is stopping", {"catalog": None})
        )
        self.assertEqual(await self.ask(), dict.fromkeys(NAMES, False))
        room.room.onReadinessChange(Readiness("ok", None, {"catalog": None}))
        self.assertEqual(await self.ask(), well)
