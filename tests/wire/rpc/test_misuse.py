"""Clients and handlers that misuse a server, and their effect on others."""

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from grpclib.reflection.v1 import reflection_pb2 as v1
from hyperframe.frame import RstStreamFrame
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.core.errors import GrpcError
from tests.support.h2client import H2Client
from tests.support.rpcroutes import textService
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase
from tests.wire.rpc.test_reflection import V1

STREAMS = 1000
QUESTIONS = 10_000
PATIENCE = 50.0

OK, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED = 0, 4, 8
CANCEL = 8


class OddService:
    """
    Handlers that do what they should not.

    @ivar cancelled: How many were cancelled.
    @ivar mayGoOn: Set when those that block may end. In another thread.
    """

    def __init__(self) -> None:
        self.cancelled = 0
        self.mayGoOn = threading.Event()

    def unary(self, call: Any) -> str:
        """Answer."""
        return str(call.request)

    async def waits(self, call: Any) -> str:
        """Wait for ever."""
        try:
            await Deferred()
        except CancelledError:
            self.cancelled += 1
            raise
        return ""

    def blocks(self, call: Any) -> str:
        """Hold everything up."""
        self.mayGoOn.wait(PATIENCE)
        return "late"

    async def stubborn(self, call: Any) -> AsyncIterator[str]:
        """Yield on and on after a cancel."""
        yield "first"
        try:
            await Deferred()
        except CancelledError:
            self.cancelled += 1
        while True:
            yield "more"

    async def badTrailers(self, call: Any) -> AsyncIterator[str]:
        """Put into the trailers what setTrailers refuses."""
        yield "first"
        call.trailers = [("x", object())]

    def longMetadata(self, call: Any) -> str:
        """Send metadata that no client takes."""
        call.sendMetadata({"x-long": "v" * int(call.request)})
        return ""

    def longTrailers(self, call: Any) -> str:
        """Send trailers that no client takes."""
        call.setTrailers({"x-long-bin": b"v" * int(call.request)})
        return ""

    def longMessage(self, call: Any) -> str:
        """Fail at length."""
        raise GrpcError("NOT_FOUND", "\u20ac" * int(call.request))


class MisuseTests(RPCCase):
    """One server."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        self.service = OddService()
        unary = ("Unary", "Waits", "Blocks", "LongMetadata", "LongTrailers", "LongMessage")
        definition = textService(
            **dict.fromkeys(unary, "none"), Stubborn="server", BadTrailers="server"
        )
        options = {
            "health": False,
            "maxConcurrentStreams": None,
            "maxCallsPerAddress": STREAMS,
        }
        self.app = server.grpc().withOptions(grpc=options)
        self.app.addService(definition=definition, implementation=self.service)
        self.port = await self.listen(self.app)

    def connect(self) -> H2Client:
        """Connect a client whose frames the test sees."""
        client = H2Client(self.port)
        self.addCleanup(client.close)
        return client

    def path(self, method: str) -> str:
        """Give the path of a method."""
        return f"/test.Service/{method}"

    async def assertServes(self) -> None:
        """A new client is answered."""
        stream = await deferToThread(self.connect().call, self.path("Unary"), b"hello")
        self.assertEqual((stream.status, stream.messages), (OK, [(False, b"hello")]))

    async def active(self, count: int) -> None:
        """Wait until so many handlers are at work."""
        while self.app.activeCalls != count:
            await deferLater(self.reactor, 0.001)

    async def test_resets(self) -> None:
        """A client that resets 1,000 calls at once has all of their handlers cancelled."""
        client = self.connect()

        def begin() -> bytes:
            streams = [client.begin(self.path("Waits")) for _ in range(STREAMS)]
            for stream in streams:
                client.sendMessage(stream, b"", isLast=True)
            return b"".join(
                RstStreamFrame(stream.number, error_code=CANCEL).serialize() for stream in streams
            )

        resets = await deferToThread(begin)
        await self.active(STREAMS)
        await deferToThread(client.sendBytes, resets)
        await self.active(0)
        self.assertEqual(self.service.cancelled, STREAMS)
        await self.assertServes()

    async def test_blocks(self) -> None:
        """A handler that blocks makes others wait, and nothing worse; deadlines go on meanwhile."""
        client = self.connect()

        def run() -> list[int | None]:
            blocking = client.begin(self.path("Blocks"))
            client.sendMessage(blocking, b"", isLast=True)
            waiting = client.begin(self.path("Unary"))
            client.sendMessage(waiting, b"", isLast=True)
            late = client.begin(self.path("Blocks"), [("grpc-timeout", "100m")])
            client.sendMessage(late, b"", isLast=True)
            statuses = [client.finish(late).status]
            self.service.mayGoOn.set()
            return statuses + [client.finish(each).status for each in (blocking, waiting)]

        self.assertEqual(await deferToThread(run), [DEADLINE_EXCEEDED, OK, OK])
        await self.assertServes()
        await self.active(0)

    async def test_stubborn(self) -> None:
        """A generator that yields after its cancel is closed, and what it yields goes nowhere."""
        client = self.connect()

        def run() -> None:
            stream = client.begin(self.path("Stubborn"))
            client.sendMessage(stream, b"", isLast=True)
            client.readUntil(lambda: bool(stream.messages))
            client.reset(stream)

        await deferToThread(run)
        await self.active(0)
        self.assertEqual(self.service.cancelled, 1)
        await self.assertServes()

    async def test_badTrailers(self) -> None:
        """Trailers that the library refuses spoil the end of their call, and of no other."""
        client = self.connect()

        def run(milliseconds: int) -> int | None:
            timeout = ("grpc-timeout", f"{milliseconds}m")
            spoiled = client.begin(self.path("BadTrailers"), [timeout])
            client.sendMessage(spoiled, b"", isLast=True)
            return client.finish(spoiled).status

        # On a busy machine a short deadline may pass before the handler has begun.
        for milliseconds in (300, 3000, 15_000):
            self.assertEqual(await deferToThread(run, milliseconds), DEADLINE_EXCEEDED)
            if self.flushLoggedErrors(TypeError, AttributeError):
                break
        else:
            self.fail("nothing was wrong with the trailers")
        await self.assertServes()
        await self.active(0)

    async def test_giants(self) -> None:
        """Metadata and messages of a megabyte end the call that has them, and no other."""

        def call(channel: Any, method: str, length: int) -> int:
            future = channel.unary_unary(self.path(method)).future(b"%d" % length)
            future.exception(PATIENCE)
            return int(future.code().value[0])

        def run() -> list[int]:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                beside = channel.unary_unary(self.path("Waits")).future(b"")
                found = [
                    call(channel, method, length)
                    for method in ("LongMetadata", "LongTrailers", "LongMessage")
                    for length in (1000, 1_000_000)
                ]
                beside.cancel()
                return found

        found = await deferToThread(run)
        self.assertEqual(found, [OK, RESOURCE_EXHAUSTED, OK, RESOURCE_EXHAUSTED, 5, 5])
        await self.assertServes()

    @long("takes seconds")
    async def test_silent(self) -> None:
        """Idle connections and calls delay no others, and end with the server."""
        for _ in range(100):
            client = self.connect()
            client.begin(self.path("Unary"))
        await self.active(100)
        await self.assertServes()
        await self.app.stop(0)
        self.assertEqual(self.app.activeCalls, 0)

    @long("takes seconds")
    async def test_reflection(self) -> None:
        """10,000 questions on one stream, odd ones among them, have 10,000 answers."""
        app = server.grpc().withOptions(grpc={"reflection": True})
        app.addService("shop.Probe", {"echo": lambda request: request})
        port = await self.listen(app)
        odd = ["shop.Probe", "", ".", "a..b", "\0", "é", "x" * 10_000, "shop.Probe.", "Value"]

        def questions() -> Iterator[Any]:
            for at in range(QUESTIONS):
                name = odd[at % len(odd)]
                yield (
                    v1.ServerReflectionRequest(file_containing_symbol=name, host=str(at))
                    if at % 2
                    else v1.ServerReflectionRequest(file_by_filename=name, host=str(at))
                )

        def run() -> list[str]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                call = channel.stream_stream(
                    V1,
                    request_serializer=v1.ServerReflectionRequest.SerializeToString,
                    response_deserializer=v1.ServerReflectionResponse.FromString,
                )
                return [answer.valid_host for answer in call(questions(), timeout=PATIENCE)]

        self.assertEqual(await deferToThread(run), [str(at) for at in range(QUESTIONS)])
