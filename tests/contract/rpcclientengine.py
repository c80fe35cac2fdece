"""What every client's engine of gRPC promises, whatever it is written on."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from zope.interface.verify import verifyObject

from storagegate.rpc.credentials import GRPCCertificates
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    ClientClosedError,
    IClientCall,
    IClientEngine,
    UnaryResult,
)
from tests.contract.rpcenginecase import CHUNK, OWN, STALLED, EngineCase, read
from tests.support.ports import heldPort


class Servicer(grpc.GenericRpcHandler):
    """
    grpcio's own server, whose methods are called by what they do.

    @ivar taken: How many messages of streams were taken.
    @ivar release: Set to let calls go on that wait.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.release = threading.Event()

    def service(self, details: Any) -> Any:
        """Find a method by the end of its path."""
        method = getattr(self, details.method.rpartition("/")[2])
        return grpc.stream_stream_rpc_method_handler(method)

    def echo(self, requests: Any, context: Any) -> Any:
        """Give requests back, with the metadata at both ends."""
        own = tuple(each for each in context.invocation_metadata() if each[0].startswith("x-"))
        context.send_initial_metadata(own)
        context.set_trailing_metadata(own)
        yield from requests

    def fail(self, requests: Any, context: Any) -> Any:
        """Give the first request back, and fail."""
        context.set_trailing_metadata((("x-why-bin", b"\0"),))
        yield next(requests)
        context.abort(grpc.StatusCode.OUT_OF_RANGE, "enough: ä")

    def wait(self, requests: Any, context: Any) -> Any:
        """Begin, take nothing until the test lets it, then everything."""
        context.send_initial_metadata((("x-begun", "yes"),))
        while not self.release.wait(0.01):
            if not context.is_active():
                return
        for _ in requests:
            self.taken += 1
        yield b"done"

    def silent(self, requests: Any, context: Any) -> Any:
        """End well without a response."""
        return iter(())


class ClientEngineContract(EngineCase):
    """Cases of a client's engine, whose server is grpcio's."""

    def makeClient(self, target: str, tls: Any) -> Any:
        """Make the engine."""
        raise NotImplementedError

    async def serve(self, place: str = "127.0.0.1:0", credentials: Any = None) -> int:
        """Start the server."""
        self.servicer = Servicer()
        self.addCleanup(self.servicer.release.set)
        server = grpc.server(ThreadPoolExecutor(16), (self.servicer,), options=OWN)
        if credentials is None:
            port = server.add_insecure_port(place)
        else:
            port = server.add_secure_port(place, credentials)
        server.start()
        self.addCleanup(deferToThread, lambda: server.stop(None).wait())
        return int(port)

    def connect(self, port: int, credentials: Any = None) -> Any:
        """Make a client."""
        engine = self.makeClient(f"dns:///127.0.0.1:{port}", credentials)
        self.addCleanup(engine.close)
        return engine

    def exchange(self, engine: Any, method: str, request: bytes, **given: Any) -> Any:
        """Make a unary call."""
        outcome: Deferred[UnaryResult] = Deferred()
        options = self.options(given)
        self.giveUp = engine.exchange(f"/a.B/{method}", options, request, outcome.callback)
        return outcome

    def options(self, given: dict[str, Any]) -> CallOptions:
        """Make the options of a call."""
        return CallOptions(
            given.get("metadata", ()), given.get("deadline"), given.get("wait", False)
        )

    def call(self, engine: Any, method: str, request: bytes | None = None, **given: Any) -> Any:
        """Begin a call."""
        return engine.call(f"/a.B/{method}", self.options(given), request)

    async def test_interfaces(self) -> None:
        """The engine and its calls have what their interfaces name."""
        engine = self.connect(await self.serve())
        verifyObject(IClientEngine, engine)
        call = self.call(engine, "silent", b"")
        verifyObject(IClientCall, call)
        self.assertEqual((await call.ended())[0], 0)

    async def test_exchange(self) -> None:
        """A unary call has one outcome, with metadata at both ends."""
        engine = self.connect(await self.serve())
        sent = [("x-name", "a"), ("x-name", "b"), ("x-raw-bin", b"\0\xff")]
        outcome = await self.exchange(engine, "echo", b"request", metadata=sent)
        self.assertEqual((outcome.status, outcome.response), (0, b"request"))
        for received in (outcome.metadata, outcome.trailers):
            own = [tuple(each) for each in received if each[0].startswith("x-")]
            self.assertEqual(own, sent)

    async def test_exchangeFails(self) -> None:
        """One that fails has status, message and trailers; one without a response none."""
        engine = self.connect(await self.serve())
        outcome = await self.exchange(engine, "fail", b"")
        self.assertEqual((outcome.status, outcome.message), (11, "enough: ä"))
        self.assertEqual(dict(outcome.trailers)["x-why-bin"], b"\0")
        outcome = await self.exchange(engine, "silent", b"")
        self.assertIsNone(outcome.response)

    async def test_givenUp(self) -> None:
        """A unary call is given up, from any thread."""
        engine = self.connect(await self.serve())
        outcome = self.exchange(engine, "wait", b"")
        await deferToThread(self.giveUp)
        ended = await outcome
        self.assertEqual(ended.status, 1)
        self.assertIn(CANCELLED_MESSAGE, ended.message)

    async def test_streams(self) -> None:
        """Messages go both ways in their order; the metadata is there before them."""
        engine = self.connect(await self.serve())
        call = self.call(engine, "echo", metadata=[("x-name", "a")])
        self.assertEqual(dict(await call.begun())["x-name"], "a")
        for number in range(100):
            if not call.send(b"%d" % number):
                await call.drained()
            self.assertEqual(await read(call), b"%d" % number)
        call.sendEnd()
        self.assertIsNone(await read(call))
        status, _, trailers = await call.ended()
        self.assertEqual((status, dict(trailers)["x-name"]), (0, "a"))
        self.assertFalse(call.send(b"late"))
        await call.drained()

    async def test_oneRequest(self) -> None:
        """A call with one request sends it, and its end, by itself."""
        engine = self.connect(await self.serve())
        call = self.call(engine, "echo", b"request")
        self.assertEqual([await read(call), await read(call)], [b"request", None])

    async def test_statusLast(self) -> None:
        """A status comes after the messages before it have been read."""
        engine = self.connect(await self.serve())
        call = self.call(engine, "fail", b"request")
        ended = call.ended()
        await call.begun()
        await deferLater(self.reactor, 0.2, lambda: None)
        self.assertNoResult(ended)
        self.assertEqual(await read(call), b"request")
        self.assertEqual((await ended)[:2], (11, "enough: ä"))

    async def test_statusWhileSending(self) -> None:
        """The status of a server that has enough is told, whatever is being sent."""
        engine = self.connect(await self.serve())
        for _ in range(20):
            call = self.call(engine, "fail")
            while call.send(CHUNK):
                pass
            await call.drained()
            call.send(CHUNK)
            while await read(call) is not None:
                pass
            status, message, trailers = await call.ended()
            self.assertEqual((status, message), (11, "enough: ä"))
            self.assertEqual(dict(trailers)["x-why-bin"], b"\0")

    async def test_backPressure(self) -> None:
        """A server that takes nothing leaves room for a few messages, and for more when it does."""
        engine = self.connect(await self.serve())
        call = self.call(engine, "wait")
        sent = 0

        async def fill() -> None:
            nonlocal sent
            while sent < 2 * STALLED:
                sent += 1
                if not call.send(CHUNK):
                    await call.drained()
            call.sendEnd()

        filling = Deferred.fromCoroutine(fill())
        await deferLater(self.reactor, 0.3, lambda: None)
        self.assertLess(sent, STALLED)
        self.servicer.release.set()
        self.assertEqual(await read(call), b"done")
        await filling
        self.assertEqual(self.servicer.taken, 2 * STALLED)

    async def test_cancel(self) -> None:
        """A call that is given up ends so, for all that wait for it; more changes nothing."""
        engine = self.connect(await self.serve())
        call = self.call(engine, "wait")
        await call.begun()
        message, ended = read(call), call.ended()
        while call.send(CHUNK):
            pass
        room = call.drained()
        call.cancel()
        status, text, _ = await ended
        self.assertEqual(status, 1)
        self.assertIn(CANCELLED_MESSAGE, text)
        self.assertIsNone(await message)
        await room
        call.cancel()
        self.assertIsNone(await read(call))

    async def test_deadline(self) -> None:
        """A call ends at its deadline, even one that is over already."""
        engine = self.connect(await self.serve())
        for seconds in (0.1, -1):
            outcome = await self.exchange(engine, "wait", b"", deadline=time.time() + seconds)
            self.assertEqual(outcome.status, 4)

    async def test_absent(self) -> None:
        """Without a server a call fails, or waits for one if it may."""
        port = heldPort(self)
        engine = self.connect(port)
        self.assertEqual((await self.exchange(engine, "echo", b"")).status, 14)
        outcome = self.exchange(engine, "echo", b"later", wait=True)
        await self.serve(f"127.0.0.1:{port}")
        self.assertEqual((await outcome).response, b"later")

    async def test_mutualTLS(self) -> None:
        """Both ends show a certificate."""
        tls, client = self.credentials()
        server = GRPCCertificates(tls).credentials()
        engine = self.connect(await self.serve(credentials=server), client)
        self.assertEqual((await self.exchange(engine, "echo", b"x")).response, b"x")

    async def test_close(self) -> None:
        """An engine that is closed cancels its calls, makes no more and leaves no thread."""
        engine = self.connect(await self.serve())
        await self.exchange(engine, "echo", b"")
        call, outcome = self.call(engine, "wait"), self.exchange(engine, "wait", b"")
        closed = engine.close()
        self.assertTrue(engine.isClosed)
        self.assertRaises(ClientClosedError, self.call, engine, "echo")
        self.assertRaises(ClientClosedError, self.exchange, engine, "echo", b"")
        self.assertEqual(((await call.ended())[0], (await outcome).status), (1, 1))
        await closed
        await engine.close()

    async def test_closeUnused(self) -> None:
        """An engine that was never used is closed at once."""
        engine = self.connect(1)
        self.successResultOf(engine.close())
