"""The timeouts of streams, and what one client may hold."""

import gc
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes, TooMuchHeld
from storagegate.net.http.interfaces import BodyLost
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http2.httpstream import HTTPStream
from storagegate.net.http2.interfaces import ErrorCode
from tests.net.http2.support import Peer
from tests.net.http2.test_connection import echo
from tests.net.support import TestSite, hello


class StreamTimeoutTests(SynchronousTestCase):
    """Streams without progress."""

    def test_response(self) -> None:
        """A handler that does not respond in time gets its request ended with 503."""
        lost: list[bool] = []

        async def handle(request: ChannelRequest) -> None:
            request.onDisconnect(lambda: lost.append(True))
            await Deferred()

        peer = Peer(TestSite(handle, requestTimeout=10.0))
        number = peer.begin()
        peer.site.letPass(8)
        peer.pump()
        self.assertEqual(peer.answers[number].status, 0)
        peer.site.letPass(5)
        peer.pump()
        self.assertEqual((peer.answers[number].status, lost), (503, [True]))
        self.assertEqual(peer.site.site.requests, 0)

    def test_body(self) -> None:
        """A body that stops gets 408; one that goes on does not."""
        site = TestSite(echo, requestTimeout=10.0, bodyTimeout=1000.0)
        peer = Peer(site)
        number, other = peer.begin("PUT", end=False), peer.begin("PUT", end=False)
        for _ in range(15):
            site.letPass(1)
            peer.send(other, bytes(4096))
        peer.pump()
        self.assertEqual(peer.answers[number].status, 408)
        self.assertEqual(peer.answers[other].status, 0)
        peer.send(other, b"", end=True)
        self.assertEqual(peer.answers[other].status, 200)

    def test_trickle(self) -> None:
        """A byte now and then is no progress."""
        site = TestSite(echo, requestTimeout=10.0)
        peer = Peer(site)
        number = peer.begin("PUT", end=False)
        for _ in range(13):
            site.letPass(1)
            if peer.answers[number].status == 0:
                peer.send(number, b"x")
        self.assertEqual(peer.answers[number].status, 408)

    def test_whole(self) -> None:
        """A body whose reader waits for all of it has a deadline."""
        site = TestSite(echo, bodyTimeout=10.0)
        peer = Peer(site)
        number = peer.begin("PUT", end=False)
        for _ in range(13):
            site.letPass(1)
            if peer.answers[number].status == 0:
                peer.send(number, bytes(5000))
        self.assertEqual(peer.answers[number].status, 408)

    def test_stalled(self) -> None:
        """A client that gives no window loses the stream, and only that."""

        async def stream(request: ChannelRequest) -> None:
            if request.path == b"/hello":
                await hello(request)
                return
            request.begin(200, [], None)
            while True:
                waiting = request.send(bytes(1000))
                if waiting is not None:
                    await waiting

        site = TestSite(stream, requestTimeout=10.0)
        peer = Peer(site)
        peer.isReading = False
        number = peer.begin()
        peer.wire.increment_flow_control_window(1_000_000)
        peer.pump()
        site.letPass(5)
        peer.wire.increment_flow_control_window(1000, number)
        peer.pump()
        site.letPass(7)
        peer.pump()
        self.assertIsNone(peer.answers[number].resetCode)
        site.letPass(6)
        peer.pump()
        self.assertEqual(peer.answers[number].resetCode, ErrorCode.CANCEL)
        self.assertTrue(site.requests[0].disconnected)
        self.assertEqual(peer.ask("GET", "/hello").body, b"hello")

    def test_trickledWindow(self) -> None:
        """A window of a byte now and then is no progress; one of some size is."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], bytes(500_000))

        site = TestSite(handle, requestTimeout=10.0)
        peer = Peer(site)
        peer.isReading = False
        # The window of the connection suffices, and not those of the streams.
        peer.wire.increment_flow_control_window(1_000_000)
        numbers = [peer.begin(), peer.begin()]
        for _ in range(13):
            site.letPass(1)
            for number, size in zip(numbers, (1, 1000), strict=True):
                if peer.answers[number].resetCode is None:
                    peer.wire.increment_flow_control_window(size, number)
            peer.pump()
        codes = [peer.answers[number].resetCode for number in numbers]
        self.assertEqual(codes, [ErrorCode.CANCEL, None])

    def test_trickledConnection(self) -> None:
        """Nor is one of the connection, while other frames come and go."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], bytes(500_000))

        site = TestSite(handle, requestTimeout=10.0)
        peer = Peer(site)
        peer.isReading = False
        number = peer.begin()
        peer.wire.increment_flow_control_window(1_000_000, number)
        peer.pump()
        transport: Any = peer.transport
        transport.sentBytes = 0
        for _ in range(13):
            site.letPass(1)
            peer.wire.ping(bytes(8))
            peer.wire.increment_flow_control_window(1)
            peer.pump()
            transport.sentBytes += 17
        self.assertEqual(peer.answers[number].resetCode, ErrorCode.CANCEL)

    def test_turns(self) -> None:
        """A stream that waits for its turn on a busy connection is not given up."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], bytes(500_000))

        site = TestSite(handle, requestTimeout=10.0)
        peer = Peer(site)
        peer.isReading = False
        first, second = peer.begin("GET", "/", ("priority", "u=0")), peer.begin()
        for number in (first, second):
            peer.wire.increment_flow_control_window(1_000_000, number)
        for _ in range(20):
            site.letPass(1)
            peer.wire.increment_flow_control_window(1000)
            peer.pump()
        self.assertEqual(len(peer.answers[second].body), 0)
        self.assertIsNone(peer.answers[second].resetCode)

    def test_stalledWhole(self) -> None:
        """So does one whose response is complete on our side."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], bytes(100_000))

        site = TestSite(handle, requestTimeout=10.0)
        peer = Peer(site)
        peer.isReading = False
        number = peer.begin()
        self.assertEqual(len(peer.answers[number].body), 65_535)
        site.letPass(13)
        peer.pump()
        self.assertEqual(peer.answers[number].resetCode, ErrorCode.CANCEL)

    def test_rest(self) -> None:
        """A stream whose client does not end its side, though it was answered, is given up."""
        site = TestSite(hello, keepAliveTimeout=5.0)
        peer = Peer(site)
        number = peer.begin("PUT", "/", ("content-length", "1000"), end=False)
        self.assertEqual(peer.answers[number].body, b"hello")
        self.assertEqual(len(peer.server.streams), 1)
        site.letPass(7)
        peer.pump()
        self.assertEqual(peer.answers[number].resetCode, ErrorCode.NO_ERROR)
        self.assertEqual(len(peer.server.streams), 0)

    def test_unread(self) -> None:
        """A connection closed by us, whose client reads nothing, is dropped in the end."""
        site = TestSite(hello, headersTimeout=5.0, lingerTimeout=2.0)
        peer = Peer(site)
        site.letPass(8)
        self.assertTrue(peer.transport.disconnecting)
        peer.transport.disconnecting = False
        site.letPass(4)
        # Closed without waiting for the client.
        self.assertTrue(peer.transport.disconnecting)


class GarbageTests(SynchronousTestCase):
    """Streams that have ended leave nothing to the garbage collector."""

    def test_cycles(self) -> None:
        """Neither with a body that was read, nor with one that was not, nor after a reset."""

        async def handle(request: ChannelRequest) -> None:
            await (echo if request.method == b"POST" else hello)(request)

        site = TestSite(handle)
        peer = Peer(site)

        def use() -> None:
            peer.ask("POST", body=b"x" * 100)
            for fields in ((), (("content-length", "100"),), (("expect", "100-continue"),)):
                number = peer.begin("PUT", "/", *fields, end=False)
                if peer.answers[number].resetCode is None:
                    peer.wire.reset_stream(number)
                peer.pump()
            number = peer.begin("POST", end=False)
            peer.wire.reset_stream(number)
            peer.pump()
            site.requests.clear()

        self.assertNoGarbage(use)

    def test_lost(self) -> None:
        """Nor if the connection is lost before the client is asked to send no more."""
        site = TestSite(hello)

        def use() -> None:
            peer = Peer(site)
            peer.begin("PUT", end=False)
            peer.server.connectionLost()
            site.requests.clear()

        self.assertNoGarbage(use)

    def assertNoGarbage(self, use: Callable[[], None]) -> None:
        """See that streams are not left to the garbage collector."""
        use()
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        gc.set_debug(gc.DEBUG_SAVEALL)
        self.addCleanup(gc.garbage.clear)
        self.addCleanup(gc.set_debug, 0)
        for _ in range(5):
            use()
        gc.collect()
        self.assertEqual([each for each in gc.garbage if isinstance(each, HTTPStream)], [])


class HeldBytesTests(SynchronousTestCase):
    """The budget of bytes held for requests is that of HTTP/1.1."""

    def setUp(self) -> None:
        """Make a site with a budget of 1,000 bytes."""
        self.site = TestSite(self.handle)
        self.budget = self.site.site.budget = HeldBytes(1000, self.site.clock.seconds)

    async def handle(self, request: ChannelRequest) -> None:
        """Respond with the length of the body."""
        try:
            body = await request.body.read(1 << 20)
        except TooMuchHeld as error:
            request.respond(429, [], error.code.encode())
            return
        request.respond(200, [], b"%d" % len(body))

    def test_counted(self) -> None:
        """Bytes of all streams count, until a body is complete or its stream is lost."""
        peer = Peer(self.site)
        first, second = peer.begin("PUT", end=False), peer.begin("PUT", end=False)
        peer.send(first, bytes(300))
        peer.send(second, bytes(400))
        self.assertEqual(self.budget.total, 700)
        peer.send(first, bytes(100), end=True)
        self.assertEqual((peer.answers[first].body, self.budget.total), (b"400", 400))
        peer.wire.reset_stream(second)
        peer.pump()
        self.assertEqual(self.budget.total, 0)

    def test_refused(self) -> None:
        """Over the budget, the oldest that holds most is refused, on its stream."""
        peer = Peer(self.site)
        numbers = [peer.begin("PUT", end=False) for _ in range(3)]
        for number in numbers:
            if not peer.answers[number].isEnded:
                peer.send(number, bytes(600))
        self.site.letPass(1)
        statuses = sorted(peer.answers[number].status for number in numbers)
        self.assertIn(429, statuses)
        self.assertLessEqual(self.budget.total, 1000)


class SlowReaderTests(SynchronousTestCase):
    """Uploads whose reader fails, or stops."""

    def test_failed(self) -> None:
        """A body that breaks its declared length fails its reader."""
        seen: list[Any] = []

        async def handle(request: ChannelRequest) -> None:
            try:
                async for _chunk in request.body:
                    pass
            except BodyLost as error:
                seen.append(type(error).__name__)
                raise

        peer = Peer(TestSite(handle))
        number = peer.begin("PUT", "/", ("content-length", "10"), end=False)
        peer.wire.streams[number]._expected_content_length = None
        peer.send(number, bytes(11))
        self.assertEqual(seen, ["IncompleteBody"])
        self.assertEqual(peer.answers[number].resetCode, ErrorCode.PROTOCOL_ERROR)
        self.assertTrue(peer.site.requests[0].disconnected)
