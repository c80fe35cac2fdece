"""The programmatic interface in the words of its documentation, called by grpcio's own client."""

from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import grpc
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.error import CannotListenError

from storagegate import loadProto
from tests.support.protofiles import writeFiles
from tests.wire.rpc.applicationcase import ApplicationCase, read, write

EVERY_OPTION = {
    "maxReceiveMessageLength": 4 * 1024 * 1024,
    "maxSendMessageLength": 4 * 1024 * 1024,
    "keepaliveTimeMs": 30_000,
    "keepaliveTimeoutMs": 5_000,
    "keepalivePermitWithoutCalls": True,
    "http2MaxPingsWithoutData": 0,
    "http2MinTimeBetweenPingsMs": 10_000,
    "http2MaxPingStrikes": 2,
    "maxConnectionIdle": 300_000,
    "maxConnectionAge": 3_600_000,
    "maxConnectionAgeGrace": 5_000,
    "compression": "gzip",
    "compressionOptions": {"level": 6, "threshold": 1024},
}

PROTO = """
syntax = "proto3";
package shop;
message Order { string id = 1; int64 cents = 2; }
service Orders {
  rpc GetOrder (Order) returns (Order);
  rpc Follow (Order) returns (stream Order);
  rpc PlaceAll (stream Order) returns (Order);
  rpc Haggle (stream Order) returns (stream Order);
  rpc Never (Order) returns (Order);
}
"""


class ListenTests(ApplicationCase):
    """C{withOptions} and C{listen}."""

    async def test_everyOption(self) -> None:
        """All options may be given together; listen without an argument takes the port of them."""
        app = self.app.withOptions(port=0, grpc=EVERY_OPTION)
        app.addService(name="Probe", methods={"echo": {"handler": lambda request: request}})
        self.assertIs(app, self.app)
        port = await app.listen()
        self.addCleanup(app.stop, 0)
        self.port = port.getHost().port
        self.assertGreater(self.port, 0)
        text = "x" * 5000
        self.assertEqual(await self.unary("/Probe/echo", {"text": text}), {"text": text})

    async def test_stop(self) -> None:
        """A call in flight ends in the grace; a new one finds no server."""
        began: Deferred[None] = Deferred()
        goOn: Deferred[None] = Deferred()

        async def wait(request: Any) -> Any:
            began.callback(None)
            await goOn
            return {"done": True}

        self.app.addService(name="Probe", methods={"wait": {"handler": wait}})
        self.port = await self.listen(self.app)
        answer = Deferred.fromCoroutine(self.unary("/Probe/wait"))
        await began
        stopped = self.app.stop(graceMs=20_000)
        status = "CANCELLED"
        while status == "CANCELLED":
            # It had gone out before the client knew that the server stops.
            status, _details = await self.refused("/Probe/wait")
        self.assertEqual(status, "UNAVAILABLE")
        goOn.callback(None)
        self.assertEqual(await answer, {"done": True})
        await stopped

    async def test_noSocket(self) -> None:
        """A socket without a directory is an error, and the application can listen elsewhere."""
        self.app.addService(name="Probe", methods={"echo": lambda request: request})
        place = f"unix:{self.mktemp()}/nowhere/socket"
        await self.assertFailure(self.app.listen(place), CannotListenError)
        self.assertEqual(await self.unary("/Probe/echo", {"n": 1}), {"n": 1})

    async def test_standard(self) -> None:
        """Health is there without being asked for; reflection is not."""
        self.app.addService(name="Probe", methods={"echo": lambda request: request})
        self.assertEqual(await self.unary("/grpc.health.v1.Health/Check"), {})
        for version in ("v1", "v1alpha"):
            path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
            self.assertEqual((await self.refused(path))[0], "UNIMPLEMENTED")


class MethodTests(ApplicationCase):
    """C{addService(name=..., methods=...)}."""

    async def test_unary(self) -> None:
        """A unary handler takes the request and gives the response, now or later."""

        def plain(request: Any) -> Any:
            return {"was": request}

        async def coroutine(request: Any) -> Any:
            return {"was": request}

        def later(request: Any) -> Any:
            deferred: Deferred[Any] = Deferred()
            self.reactor.callLater(0, deferred.callback, {"was": request})
            return deferred

        @inlineCallbacks
        def generated(request: Any) -> Any:
            return (yield later(request))

        async def called(request: Any, call: Any) -> Any:
            return {"was": call.request}

        handlers = (plain, coroutine, later, generated, called)
        self.app.addService(
            {
                "name": "Probe",
                "methods": {handler.__name__: {"handler": handler} for handler in handlers},
            }
        )
        for handler in handlers:
            answer = await self.unary(f"/Probe/{handler.__name__}", {"n": 1})
            self.assertEqual(answer, {"was": {"n": 1}}, handler.__name__)

    async def test_streams(self) -> None:
        """Generators yield items, and a client's stream is an asynchronous iterable."""

        async def count(request: Any) -> Any:
            for number in range(int(request["to"])):
                yield {"n": number}

        async def total(requests: AsyncIterable[Any], call: Any) -> Any:
            return {"sum": sum([request["n"] async for request in requests])}

        async def double(requests: Any) -> Any:
            async for request in requests:
                yield {"n": 2 * request["n"]}

        self.app.addService(
            "Probe",
            {
                "methods": {
                    "count": {"handler": count},
                    "total": {"handler": total},
                    "double": {"handler": double, "streaming": "bidirectional"},
                }
            },
        )

        def use(channel: grpc.Channel) -> Any:
            numbers = [{"n": 1}, {"n": 2}]
            return (
                list(channel.unary_stream("/Probe/count", write, read)({"to": 2})),
                channel.stream_unary("/Probe/total", write, read)(iter(numbers)),
                list(channel.stream_stream("/Probe/double", write, read)(iter(numbers))),
            )

        self.assertEqual(
            await self.ask(use), ([{"n": 0}, {"n": 1}], {"sum": 3}, [{"n": 2}, {"n": 4}])
        )

    async def test_definition(self) -> None:
        """With a definition, handlers of all kinds take the call; what has none says so."""
        folder = writeFiles(Path(self.mktemp()), {"orders.proto": PROTO})
        loaded = loadProto(folder / "orders.proto")

        async def getOrder(call: Any) -> Any:
            return {"id": call.request["id"], "cents": 2**53 + 1}

        async def follow(call: Any) -> Any:
            yield call.request
            yield {"id": call.method}

        async def placeAll(call: Any) -> Any:
            self.assertIsNone(call.request)
            return {"id": "+".join([order["id"] async for order in call])}

        async def haggle(call: Any) -> Any:
            async for order in call:
                yield {"id": order["id"], "cents": order["cents"] - 1}

        self.app.addService(
            definition=loaded.Orders,
            implementation={
                "GetOrder": getOrder,
                "Follow": follow,
                "placeAll": placeAll,
                "haggle": haggle,
            },
        )
        order = loaded.Order
        packing = (order.SerializeToString, order.FromString)

        def use(channel: grpc.Channel) -> Any:
            two = [order(id="a", cents=5), order(id="b", cents=6)]
            followed = channel.unary_stream("/shop.Orders/Follow", *packing)(two[0])
            haggled = channel.stream_stream("/shop.Orders/Haggle", *packing)(iter(two))
            return (
                channel.unary_unary("/shop.Orders/GetOrder", *packing)(two[0]).cents,
                [each.id for each in followed],
                channel.stream_unary("/shop.Orders/PlaceAll", *packing)(iter(two)).id,
                [each.cents for each in haggled],
            )

        self.assertEqual(await self.ask(use), (2**53 + 1, ["a", "Follow"], "a+b", [4, 5]))
        self.assertEqual((await self.refused("/shop.Orders/Never"))[0], "UNIMPLEMENTED")
