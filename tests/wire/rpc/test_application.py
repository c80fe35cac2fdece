"""The programmatic interface in the words of its documentation, called by grpcio's own client."""

import time
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct
from grpc_status import rpc_status
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.threads import deferToThread

from storagegate import GrpcError, ServiceError, loadProto, server
from tests.support.protofiles import writeFiles
from tests.wire.rpc.support import RPCCase

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

PATIENCE = 30.0


class ValidationError(Exception):
    """An error that is known by its name."""


class DatabaseError(Exception):
    """Another one."""


def write(value: Any) -> bytes:
    """Write a message of a service without a proto."""
    wire: bytes = ParseDict(value, Struct()).SerializeToString()
    return wire


def read(wire: bytes) -> Any:
    """Read one."""
    return MessageToDict(Struct.FromString(wire))


class ApplicationCase(RPCCase):
    """An application, and a client in a thread."""

    def setUp(self) -> None:
        """Make an application."""
        super().setUp()
        self.app = server.grpc()

    async def ask(self, use: Callable[[grpc.Channel], Any]) -> Any:
        """Listen, if nobody has, and do something with a connection; in a thread."""
        if not hasattr(self, "port"):
            self.port = await self.listen(self.app)

        def run() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                return use(channel)

        return await deferToThread(run)

    async def unary(self, path: str, request: Any = None, **options: Any) -> Any:
        """Make a call with one request and one response."""
        options = {"timeout": PATIENCE, **options}
        return await self.ask(
            lambda channel: channel.unary_unary(path, write, read)(request or {}, **options)
        )

    async def refused(self, path: str, **options: Any) -> tuple[str, str]:
        """Give how a call fails."""
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.unary(path, **options)), grpc.RpcError
        )
        return error.code().name, error.details()


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
        """A call in flight ends in the grace; a new one finds nobody."""
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
        self.assertEqual((await self.refused("/Probe/wait"))[0], "UNAVAILABLE")
        goOn.callback(None)
        self.assertEqual(await answer, {"done": True})
        await stopped

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


class CallTests(ApplicationCase):
    """The call, as middleware and handlers see it."""

    async def test_facts(self) -> None:
        """Request, method, metadata, peer and deadline are there, and the user that one has found."""

        async def known(call: Any, next: Any) -> Any:
            call.user = {"id": call.metadata.get("x-user")[0]}
            return await next()

        async def tell(request: Any, call: Any) -> Any:
            seconds = None if call.deadline is None else call.deadline - time.time()
            return {
                "request": call.request,
                "method": call.method,
                "all": call.metadata.get("x-user"),
                "none": call.metadata.get("x-other"),
                "first": call.metadata.getMap()["x-user"],
                "bytes": call.metadata.get("x-bin")[0].hex(),
                "user": call.user,
                "peer": call.getPeer(),
                "seconds": seconds,
                "cancelled": call.cancelled,
            }

        self.app.use(known).addService(name="Probe", methods={"tell": {"handler": tell}})
        metadata = (("x-user", "ada"), ("x-user", "alan"), ("x-bin", b"\0\xff"))
        told = await self.unary("/Probe/tell", {"n": 1}, metadata=metadata, timeout=20)
        self.assertRegex(told.pop("peer"), r"\A127\.0\.0\.1:\d+\Z")
        seconds = told.pop("seconds")
        self.assertTrue(10 < seconds <= 20, seconds)
        expected = {
            "request": {"n": 1},
            "method": "tell",
            "all": ["ada", "alan"],
            "none": [],
            "first": "ada",
            "bytes": "00ff",
            "user": {"id": "ada"},
            "cancelled": False,
        }
        self.assertEqual(told, expected)
        told = await self.unary("/Probe/tell", metadata=metadata, timeout=None)
        self.assertIsNone(told["seconds"])

    async def test_metadata(self) -> None:
        """Metadata go out before the response, trailers with the status, of an error as well."""

        async def tell(request: Any, call: Any) -> Any:
            call.sendMetadata({"x-first": "1"})
            call.setTrailers({"x-last": ["2", "3"], "x-bin": b"\0\xff"})
            if request:
                raise GrpcError("ABORTED", "asked for")
            return {}

        self.app.addService(name="Probe", methods={"tell": {"handler": tell}})

        def use(channel: grpc.Channel) -> Any:
            method = channel.unary_unary("/Probe/tell", write, read)
            _, call = method.with_call({}, timeout=PATIENCE)
            try:
                method({"fail": True}, timeout=PATIENCE)
            except grpc.RpcError as error:
                return call, error
            raise self.failureException("the call did not fail")

        for call in await self.ask(use):
            self.assertEqual(list(call.initial_metadata()), [("x-first", "1")])
            trailers = [("x-last", "2"), ("x-last", "3"), ("x-bin", b"\0\xff")]
            self.assertEqual(list(call.trailing_metadata()), trailers)


class MiddlewareTests(ApplicationCase):
    """C{use(async (call, next))}."""

    async def test_chain(self) -> None:
        """The first is outermost; each goes on by next, around every kind of call."""
        seen: list[str] = []

        def around(name: str) -> Any:
            async def middleware(call: Any, next: Any) -> Any:
                seen.append(f"{name} {call.method}")
                response = await next()
                seen.append(f"{name} after")
                return response

            return middleware

        async def stream(request: Any) -> Any:
            yield {"n": 1}
            seen.append("item")

        def single(request: Any) -> Any:
            seen.append("handler")
            return {}

        self.app.use(around("a")).use(around("b"))
        self.app.addService(name="Probe", methods={"single": single, "stream": stream})
        await self.unary("/Probe/single")
        inner = ["a single", "b single", "handler", "b after", "a after"]
        self.assertEqual(seen, inner)
        seen.clear()
        await self.ask(lambda channel: list(channel.unary_stream("/Probe/stream")(b"")))
        self.assertEqual(seen, ["a stream", "b stream", "item", "b after", "a after"])

    async def test_throws(self) -> None:
        """What it throws is the call's status, by the same rules as a handler's."""

        async def guard(call: Any, next: Any) -> Any:
            if not call.metadata.get("authorization"):
                raise GrpcError("UNAUTHENTICATED", "Missing authorization")
            raise RuntimeError("a secret")

        self.app.use(guard).addService(name="Probe", methods={"echo": lambda request: request})
        self.assertEqual(
            await self.refused("/Probe/echo"), ("UNAUTHENTICATED", "Missing authorization")
        )
        self.assertEqual(
            await self.refused("/Probe/echo", metadata=(("authorization", "x"),)),
            ("INTERNAL", "Internal error"),
        )
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class ErrorTests(ApplicationCase):
    """Statuses."""

    async def test_rules(self) -> None:
        """A status is given by name or number; known names are known; the rest says nothing."""
        raised: list[Any] = []

        def fail(request: Any) -> Any:
            raise raised[-1]

        self.app.addService(name="Probe", methods={"fail": {"handler": fail}})
        for error, code, message in (
            (GrpcError("INVALID_ARGUMENT", "no id"), "INVALID_ARGUMENT", "no id"),
            (GrpcError(5, "nobody"), "NOT_FOUND", "nobody"),
            (GrpcError(grpc.StatusCode.ALREADY_EXISTS, "twice"), "ALREADY_EXISTS", "twice"),
            (GrpcError("PERMISSION_DENIED"), "PERMISSION_DENIED", ""),
            (GrpcError(8, "slower"), "RESOURCE_EXHAUSTED", "slower"),
            (GrpcError("INTERNAL", "told on purpose"), "INTERNAL", "told on purpose"),
            (GrpcError("unavailable", "later"), "UNAVAILABLE", "later"),
            (GrpcError(16, "who?"), "UNAUTHENTICATED", "who?"),
            (ServiceError("GONE", "it is", 404), "NOT_FOUND", "it is"),
            (ServiceError("BROKEN", "it is"), "INTERNAL", "it is"),
            (ServiceError("BUSY", "it is", grpcCode="ABORTED"), "ABORTED", "it is"),
            (ValidationError("email"), "INVALID_ARGUMENT", "email"),
            (DatabaseError("a secret"), "UNAVAILABLE", "Database temporarily unavailable"),
            (KeyError("a secret"), "INTERNAL", "Internal error"),
        ):
            raised.append(error)
            self.assertEqual(await self.refused("/Probe/fail"), (code, message))
        for kind in (DatabaseError, KeyError):
            self.assertEqual(len(self.flushLoggedErrors(kind)), 1)

    async def test_details(self) -> None:
        """Details are those of C{google.rpc.Status}, as grpcio's own package reads it."""

        def fail(request: Any) -> Any:
            raise GrpcError("NOT_FOUND", "nobody", {"id": "7"})

        self.app.addService(name="Probe", methods={"fail": {"handler": fail}})
        error = await self.assertFailure(
            Deferred.fromCoroutine(self.unary("/Probe/fail")), grpc.RpcError
        )
        status = rpc_status.from_call(error)
        assert status is not None
        struct = Struct()
        self.assertTrue(status.details[0].Unpack(struct))
        self.assertEqual((status.code, status.message), (5, "nobody"))
        self.assertEqual(MessageToDict(struct), {"id": "7"})
