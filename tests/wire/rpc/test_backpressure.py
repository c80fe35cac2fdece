"""A stalled end stops its sender, both ways, after a bounded number of messages."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
from hyperframe.frame import WindowUpdateFrame
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from tests.support.h2client import WINDOW, H2Client
from tests.support.interop.grpcioclient import RequestPipe
from tests.support.rpcroutes import textService
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

KIB = 1024
MESSAGE = "m" * KIB

TOTAL = 20_000
"""Messages in all: twenty megabytes, far beyond what may be on its way."""

STILL = 10
"""A count that is the same over so many looks, 20 ms apart, has stopped."""

AHEAD = 128
"""
What may be on its way to a client besides its window, in messages of a KiB: 64 wait for the wire,
and the library holds some more in its frames.
"""

GRPCIO_AHEAD = 10_000
"""What may be on its way where grpcio is the client."""


class StreamingService:
    """
    Handlers that count.

    @ivar sent: How many messages were yielded.
    @ivar got: How many messages were read.
    @ivar isClosed: Whether the generator has ended.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.got = 0
        self.isClosed = False
        self.stall: Deferred[None] = Deferred()

    async def download(self, call: Any) -> AsyncIterator[str]:
        """Send as fast as the client reads."""
        try:
            while self.sent < TOTAL:
                self.sent += 1
                yield MESSAGE
        finally:
            self.isClosed = True

    async def upload(self, call: Any) -> str:
        """Read one message, wait, and read the others."""
        async for _ in call:
            self.got += 1
            if self.got == 1:
                await self.stall
        return str(self.got)

    async def chat(self, call: Any) -> AsyncIterator[str]:
        """Send something large for everything that comes."""
        async for _ in call:
            self.got += 1
            for _ in range(64):
                self.sent += 1
                yield MESSAGE

    def unary(self, call: Any) -> str:
        """Answer at once."""
        return str(call.request)


class Counted:
    """Requests that count how many were taken. Its items are asked for by a thread of grpcio's."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for self.taken in range(1, TOTAL + 1):
            yield MESSAGE.encode()


class BackPressureTests(RPCCase):
    """One server, and clients that stall."""

    timeout = 90

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        self.service = StreamingService()
        definition = textService(
            Download="server", Upload="client", Chat="bidirectional", Unary="none"
        )
        self.app = server.grpc().withOptions(grpc={"health": False})
        self.app.addService(definition=definition, implementation=self.service)
        self.port = await self.listen(self.app)

    async def stopped(self, count: Callable[[], int], above: int = 0) -> int:
        """Wait until a count is above something, and then until it grows no more; give it."""
        while count() <= above:
            await deferLater(self.reactor, 0.001)
        last, same = -1, 0
        while same < STILL:
            await deferLater(self.reactor, 0.02)
            now = count()
            same = same + 1 if now == last else 0
            last = now
        return last

    def channel(self) -> Any:
        """Connect grpcio, which else opens its windows as far as the speed of loopback asks for."""
        channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}", options=[("grpc.http2.bdp_probe", 0)]
        )
        self.addCleanup(channel.close)
        return channel

    def connect(self) -> H2Client:
        """Connect a client that opens no window by itself."""
        client = H2Client(self.port)
        client.isSilent = True
        self.addCleanup(client.close)
        return client

    async def test_stalledReader(self) -> None:
        """A generator waits once the client's window is full, and goes on when it opens."""
        client = self.connect()
        stream = client.begin("/test.Service/Download")
        client.sendMessage(stream, b"", isLast=True)
        first = await self.stopped(lambda: self.service.sent, WINDOW // KIB - 1)
        self.assertLess(first, WINDOW // KIB + AHEAD)
        for number in (0, stream.number):
            client.send(WindowUpdateFrame(number, window_increment=WINDOW))
        second = await self.stopped(lambda: self.service.sent, first)
        self.assertLess(second, 2 * WINDOW // KIB + AHEAD)

    async def test_stalledReaderLeaves(self) -> None:
        """A generator that waits for its client's window is closed when the client goes."""
        client = self.connect()
        stream = client.begin("/test.Service/Download")
        client.sendMessage(stream, b"", isLast=True)
        await self.stopped(lambda: self.service.sent)
        self.assertFalse(self.service.isClosed)
        client.reset(stream)
        while self.app.activeCalls:
            await deferLater(self.reactor, 0.001)
        self.assertTrue(self.service.isClosed)

    async def test_oneOfMany(self) -> None:
        """A stalled reader on a connection stops no other call of that connection."""
        client = self.connect()
        stream = client.begin("/test.Service/Download")
        client.sendMessage(stream, b"", isLast=True)
        await self.stopped(lambda: self.service.sent)
        # The connection's window is full, too: only that is opened.
        client.send(WindowUpdateFrame(0, window_increment=WINDOW))
        other = await deferToThread(client.call, "/test.Service/Unary", b"other")
        self.assertEqual(other.messages, [(False, b"other")])

    @long("takes seconds")
    async def test_grpcioReads(self) -> None:
        """A generator waits for a reader who uses grpcio, too, and every message arrives."""
        responses = self.channel().unary_stream("/test.Service/Download")(b"")
        await deferToThread(next, responses)
        stalled = await self.stopped(lambda: self.service.sent)
        self.assertLess(stalled, GRPCIO_AHEAD)
        rest = await deferToThread(lambda: sum(1 for _ in responses))
        self.assertEqual(rest, TOTAL - 1)
        self.assertTrue(self.service.isClosed)

    @long("takes seconds")
    async def test_stalledHandler(self) -> None:
        """A client waits for a handler that reads nothing, and every message arrives."""
        requests = Counted()
        call = self.channel().stream_unary("/test.Service/Upload").future(iter(requests))
        await self.stopped(lambda: self.service.got)
        stalled = await self.stopped(lambda: requests.taken)
        self.assertLess(stalled, GRPCIO_AHEAD)
        self.assertEqual(self.service.got, 1)
        self.service.stall.callback(None)
        self.assertEqual(await deferToThread(call.result), b"%d" % TOTAL)

    async def test_stalledBothWays(self) -> None:
        """A client that reads nothing is not read from any more."""
        pipe = RequestPipe()
        taken = threading.Event()
        requests = Counted()

        def feed() -> Iterator[bytes]:
            taken.set()
            yield from requests
            yield from pipe

        call = self.channel().stream_stream("/test.Service/Chat")(feed())
        await deferToThread(taken.wait)
        stalled = await self.stopped(lambda: self.service.got)
        self.assertLess(stalled * 64, GRPCIO_AHEAD)
        self.assertLess(await self.stopped(lambda: requests.taken), GRPCIO_AHEAD)
        call.cancel()
        pipe.close()
        while self.app.activeCalls:
            await deferLater(self.reactor, 0.001)
