"""Requests over HTTP/2, without a socket, with an independent client."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IConsumer, IProtocol, IPushProducer, ITransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from storagegate.net.forwarded import compileTrust
from storagegate.net.http.interfaces import BodyLost, ClientLost, IRequestChannel
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http2.interfaces import ErrorCode
from tests.net.http2.support import Peer
from tests.net.support import Boom, TestSite, hello


async def echo(request: ChannelRequest) -> None:
    """Answer with the body."""
    request.respond(200, [], await request.body.read(1 << 24))


class PriorityUpdateFrame:
    """A frame of RFC 9218, which the library does not know."""

    def __init__(self, number: int, value: bytes) -> None:
        self._payload = number.to_bytes(4, "big") + value

    def serialize(self) -> bytes:
        """Encode it."""
        size = len(self._payload).to_bytes(3, "big")
        return size + b"\x10\0\0\0\0\0" + self._payload


class ResponseTests(SynchronousTestCase):
    """The responses of HTTP/1.1 in the form of HTTP/2."""

    def ask(self, handle: Any, *arguments: Any, **named: Any) -> Any:
        """Make one request to a site."""
        self.site = TestSite(handle)
        self.peer = Peer(self.site)
        return self.peer.ask(*arguments, **named)

    def test_whole(self) -> None:
        """A whole response has its status, its fields and its length."""
        answer = self.ask(hello)
        self.assertEqual((answer.status, answer.body, answer.isEnded), (200, b"hello", True))
        self.assertEqual(answer.headers["content-type"], "text/plain")
        self.assertEqual(answer.headers["content-length"], "5")
        self.assertIn("date", answer.headers)
        self.assertNotIn("connection", answer.headers)

    def test_request(self) -> None:
        """The request is that of HTTP/1.1, with another version."""
        self.ask(hello, "GET", "/a?b=c", ("x-one", "1"), ("cookie", "a=1"), ("cookie", "b=2"))
        [request] = self.site.requests
        self.assertEqual((request.method, request.uri), (b"GET", b"/a?b=c"))
        self.assertEqual((request.path, request.queryString), (b"/a", b"b=c"))
        self.assertEqual(request.version, b"HTTP/2")
        self.assertEqual(request.headers[b"host"], b"example.com")
        self.assertEqual(request.headers[b"cookie"], b"a=1; b=2")
        self.assertEqual((request.clientHost, request.clientPort), ("192.0.2.7", 4711))
        self.assertFalse(request.secure)
        self.assertIsNone(request.tlsVersion)
        self.assertEqual((request.body.length, request.body.complete), (0, True))

    def test_interfaces(self) -> None:
        """A stream is a channel, and its connection a protocol."""
        turn: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            await turn
            request.respond(204, [])

        self.ask(handle)
        [stream] = self.peer.server.streams.values()
        verifyObject(IRequestChannel, stream)
        verifyObject(IProtocol, self.peer.server)
        verifyObject(IPushProducer, self.peer.server)
        for interface in (ITransport, IConsumer, IPushProducer):
            verifyObject(interface, stream.transport)
        self.assertEqual(self.site.requests[0].serverHost, "10.0.0.1")
        turn.callback(None)

    def test_respondWith(self) -> None:
        """The fast way gives the same."""

        async def handle(request: ChannelRequest) -> None:
            request.respondWith(200, b"X-A: b\r\n", b"hello")

        answer = self.ask(handle)
        self.assertEqual((answer.status, answer.body), (200, b"hello"))
        self.assertEqual((answer.headers["x-a"], answer.headers["content-length"]), ("b", "5"))

    def test_parts(self) -> None:
        """A response of unknown length has neither a length nor a transfer coding."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)
            request.send(b"he")
            request.send(b"llo")
            request.finish()

        answer = self.ask(handle)
        self.assertEqual((answer.status, answer.body, answer.isEnded), (200, b"hello", True))
        self.assertEqual(set(answer.headers), {"date"})

    def test_silent(self) -> None:
        """HEAD, 204 and 304 have no body."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(int(request.path[1:]), [], b"hello")

        peer = Peer(TestSite(handle))
        head = peer.ask("HEAD", "/200")
        self.assertEqual((head.status, head.body, head.isEnded), (200, b"", True))
        self.assertEqual(head.headers["content-length"], "5")
        for code in (204, 304):
            answer = peer.ask("GET", f"/{code}")
            self.assertEqual((answer.status, answer.body, answer.isEnded), (code, b"", True))

    def test_large(self) -> None:
        """A response that is larger than all windows arrives whole."""
        body = bytes(range(256)) * 8192

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], body)

        answer = self.ask(handle)
        # The connection lets others have their turn in between.
        self.site.clock.advance(0)
        self.peer.pump()
        self.assertEqual(len(answer.body), len(body))
        self.assertEqual(answer.body, body)
        self.assertTrue(answer.isEnded)

    def test_priority(self) -> None:
        """The field Priority orders responses, and PRIORITY_UPDATE overrides it."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], bytes(150_000))

        site = TestSite(handle)
        peer = Peer(site)
        peer.isReading = False
        first = peer.begin("GET", "/", ("priority", "u=5"))
        number = peer.wire.get_next_available_stream_id() + 2
        update = PriorityUpdateFrame(number, b"u=0")
        peer.server.dataReceived(update.serialize())
        second = peer.begin("GET", "/", ("priority", "u=2"))
        third = peer.begin("GET", "/", ("priority", "u=7"))
        numbers = [first, second, third]
        for each in numbers:
            peer.wire.increment_flow_control_window(200_000, each)
        # Up to here, the window of the connection was the first one's.
        peer.wire.increment_flow_control_window(100_000)
        peer.pump()
        sizes = [len(peer.answers[each].body) for each in numbers]
        self.assertEqual(sizes, [65_535, 0, 100_000])
        peer.wire.increment_flow_control_window(100_000)
        peer.pump()
        sizes = [len(peer.answers[each].body) for each in numbers]
        self.assertEqual(sizes, [65_535, 50_000, 150_000])

    def test_hints(self) -> None:
        """Early hints precede the response."""

        async def handle(request: ChannelRequest) -> None:
            request.sendInterim(103, [(b"Link", b"</a.css>; rel=preload")])
            await hello(request)

        answer = self.ask(handle)
        self.assertEqual((answer.interim, answer.status, answer.body), ([103], 200, b"hello"))

    def test_failure(self) -> None:
        """A handler that fails has its error described."""

        async def handle(request: ChannelRequest) -> None:
            raise Boom

        answer = self.ask(handle)
        self.assertEqual((answer.status, answer.headers["x-error"]), (500, "Boom"))
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_partial(self) -> None:
        """A response that ends in the middle resets its stream, and no other."""

        async def handle(request: ChannelRequest) -> None:
            if request.path == b"/":
                request.respond(200, [], b"whole")
                return
            request.begin(200, [], 10)
            request.send(b"part")
            raise Boom

        peer = Peer(TestSite(handle))
        answer = peer.ask("GET", "/part")
        self.assertEqual(answer.resetCode, ErrorCode.INTERNAL_ERROR)
        self.assertFalse(answer.isEnded)
        peer.site.clock.advance(0)
        self.assertTrue(peer.site.requests[0].disconnected)
        self.assertEqual(peer.ask().body, b"whole")
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_refused(self) -> None:
        """A request that is refused before it has a handler has the response of HTTP/1.1."""
        peer = Peer(TestSite(hello, headFields=3, pathSize=20))
        many = [(f"x-{number}", "1") for number in range(4)]
        self.assertEqual(peer.ask("GET", "/", *many).status, 431)
        self.assertEqual(peer.ask("GET", "/" + 30 * "x").status, 414)
        answer = peer.ask("TRACE", "/")
        self.assertEqual(answer.status, 405)
        self.assertIn("GET", answer.headers["allow"])
        self.assertEqual(peer.ask().status, 200)
        self.assertEqual(len(peer.site.requests), 1)
        self.assertEqual(peer.site.site.requests, 0)

    def test_shares(self) -> None:
        """Streams of a trusted proxy count for the clients that it names."""
        turns: list[Deferred[None]] = []

        async def handle(request: ChannelRequest) -> None:
            turns.append(Deferred())
            await turns[-1]
            request.respond(200, [])

        site = TestSite(handle)
        site.site.trust = compileTrust("192.0.2.7")
        peer = Peer(site)
        for client in ("203.0.113.1", "203.0.113.1", "203.0.113.2"):
            peer.begin("GET", "/", ("x-forwarded-for", client))
        peer.begin()
        shares = [site.site.shares.of(f"203.0.113.{number}") for number in (1, 2)]
        shares.append(peer.server.share)
        self.assertEqual([share.calls for share in shares], [2, 1, 1])
        self.assertEqual(site.site.requests, 4)
        for turn in turns:
            turn.callback(None)
        self.assertEqual([share.calls for share in shares], [0, 0, 0])
        self.assertEqual((site.site.requests, site.site.connections), (0, 1))

    def test_tooMany(self) -> None:
        """Streams count as requests, and too many of them get 503."""
        turns: list[Deferred[None]] = []

        async def handle(request: ChannelRequest) -> None:
            turns.append(Deferred())
            await turns[-1]
            request.respond(200, [])

        peer = Peer(TestSite(handle, maxRequests=4))
        numbers = [peer.begin() for _ in range(4)]
        self.assertEqual([peer.answers[each].status for each in numbers], [0, 0, 0, 503])
        self.assertEqual(peer.answers[numbers[3]].headers["retry-after"], "1")
        for turn in turns:
            turn.callback(None)
        peer.pump()
        self.assertEqual([peer.answers[each].status for each in numbers], [200, 200, 200, 503])
        self.assertEqual(peer.site.site.requests, 0)


class BodyTests(SynchronousTestCase):
    """Bodies of requests."""

    def test_echo(self) -> None:
        """A body of any length arrives, declared or not."""
        peer = Peer(TestSite(echo))
        for size in (1, 16_384, 60_000, 1_000_000):
            body = bytes(range(256)) * (size // 256 + 1)
            body = body[:size]
            for fields in ((), (("content-length", str(size)),)):
                answer = peer.ask("PUT", "/", *fields, body=body)
                while not answer.isEnded:
                    peer.site.clock.advance(0)
                    peer.pump()
                self.assertEqual((answer.status, answer.body == body), (200, True), size)

    def test_pieces(self) -> None:
        """The bytes of a stream that arrive in one read are one piece for its reader."""
        pieces: list[int] = []

        async def handle(request: ChannelRequest) -> None:
            async for chunk in request.body:
                pieces.append(len(chunk))
            request.respond(200, [])

        peer = Peer(TestSite(handle))
        numbers = [peer.begin("PUT", "/", end=False) for _ in range(2)]
        for size in (5, 1000, 10_000):
            for number in numbers:
                peer.wire.send_data(number, bytes(size))
        peer.pump()
        self.assertEqual(pieces, [11_005, 11_005])
        for number in numbers:
            peer.wire.send_data(number, bytes(7))
            peer.wire.send_data(number, b"", end_stream=True)
        peer.pump()
        self.assertEqual(pieces, [11_005, 11_005, 7, 7])
        self.assertEqual([peer.answers[each].status for each in numbers], [200, 200])

    def test_readSize(self) -> None:
        """Reads are longer while large bodies arrive, and a client may send further ahead."""

        async def handle(request: ChannelRequest) -> None:
            async for _ in request.body:
                pass
            request.respond(200, [])

        peer = Peer(TestSite(handle))
        sizes: list[int] = []
        peer.transport.setReadSize = sizes.append  # type: ignore[attr-defined]
        first, second = (
            peer.begin("PUT", "/", ("content-length", "1000000"), end=False) for _ in range(2)
        )
        self.assertEqual(sizes, [256 * 1024, 512 * 1024])
        self.assertEqual(peer.wire.local_flow_control_window(first), 1024 * 1024)
        peer.wire.reset_stream(first)
        peer.pump()
        self.assertEqual(sizes[2:], [256 * 1024])
        for at in range(0, 1_000_000, 50_000):
            peer.send(second, bytes(50_000), at == 950_000)
        self.assertEqual(peer.answers[second].status, 200)
        self.assertEqual(sizes[3:], [64 * 1024])

    def test_window(self) -> None:
        """The windows of large bodies have a total."""
        turn: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            async for _ in request.body:
                await turn
            request.respond(200, [])

        peer = Peer(TestSite(handle, bodyWindows=400_000))
        numbers = [
            peer.begin("PUT", "/", ("content-length", "10000000"), end=False) for _ in range(8)
        ]
        windows = [peer.wire.local_flow_control_window(each) for each in numbers]
        self.assertEqual(windows[:3], [400_000, 200_000, 133_333])
        self.assertEqual(windows[6:], [65_535, 65_535])

    def test_trailers(self) -> None:
        """Trailers are those of the body."""
        seen: list[Any] = []

        async def handle(request: ChannelRequest) -> None:
            content = await request.body.read(100)
            seen.append((content, request.body.length, request.body.trailers))
            request.respond(200, [])

        peer = Peer(TestSite(handle))
        number = peer.begin("PUT", "/", end=False)
        peer.send(number, b"abc")
        peer.wire.send_headers(number, [("x-checksum", "1")], end_stream=True)
        peer.pump()
        self.assertEqual(peer.answers[number].status, 200)
        self.assertEqual(seen, [(b"abc", None, ((b"x-checksum", b"1"),))])

    def test_lengths(self) -> None:
        """More or fewer bytes than declared are an error of the stream."""
        peer = Peer(TestSite(echo))
        for body in (b"ab", b"abcd"):
            number = peer.begin("PUT", "/", ("content-length", "3"), end=False)
            stream = peer.wire.streams[number]
            stream._expected_content_length = None
            peer.send(number, body, end=True)
            self.assertEqual(peer.answers[number].resetCode, ErrorCode.PROTOCOL_ERROR)
        self.assertEqual(peer.site.site.requests, 0)
        self.assertEqual(peer.site.site.http2Errors, {"PROTOCOL_ERROR": 2})
        self.assertEqual(peer.ask("PUT", body=b"x").status, 200)

    def test_zeroLength(self) -> None:
        """A declared length of 0 is a length: DATA beyond it is an error of the stream."""
        peer = Peer(TestSite(echo))
        zero = ("content-length", "0")
        number = peer.begin("PUT", "/", zero, end=False)
        self.assertEqual(peer.answers[number].status, 0)
        peer.wire.streams[number]._expected_content_length = None
        peer.send(number, b"a")
        answer = peer.answers[number]
        self.assertEqual((answer.status, answer.resetCode), (0, ErrorCode.PROTOCOL_ERROR))
        number = peer.begin("PUT", "/", zero, end=False)
        peer.send(number, b"", end=True)
        answer = peer.answers[number]
        self.assertEqual((answer.status, answer.body, answer.isEnded), (200, b"", True))

    def test_zeroLengthUnread(self) -> None:
        """The response may precede the DATA, if its handler reads none; the stream is reset."""

        async def refuse(request: ChannelRequest) -> None:
            request.respond(403, [], b"no")

        peer = Peer(TestSite(refuse))
        number = peer.begin("PUT", "/", ("content-length", "0"), end=False)
        peer.wire.streams[number]._expected_content_length = None
        peer.send(number, b"a")
        answer = peer.answers[number]
        self.assertEqual((answer.status, answer.resetCode), (403, ErrorCode.PROTOCOL_ERROR))
        self.assertEqual(peer.site.site.requests, 0)

    def test_backPressure(self) -> None:
        """A reader that is late gets no more than its window and its buffer."""
        turn: Deferred[None] = Deferred()
        contents: list[int] = []

        async def handle(request: ChannelRequest) -> None:
            await turn
            async for chunk in request.body:
                contents.append(len(chunk))
            request.respond(200, [])

        peer = Peer(TestSite(handle))
        number = peer.begin("PUT", end=False)
        sent = 0
        while sent < 1_000_000:
            size = min(peer.wire.local_flow_control_window(number), 16_384)
            if not size:
                break
            peer.send(number, bytes(size))
            sent += size
        self.assertLess(sent, 140_000)
        other = peer.ask("PUT", "/", body=b"x")
        self.assertEqual(other.status, 0)
        turn.callback(None)
        peer.pump()
        self.assertEqual(other.status, 200)
        while sent < 1_000_000:
            size = min(peer.wire.local_flow_control_window(number), 16_384)
            self.assertGreater(size, 0)
            peer.send(number, bytes(size))
            sent += size
        peer.send(number, b"", end=True)
        self.assertEqual(peer.answers[number].status, 200)
        self.assertEqual(sum(contents), sent + 1)

    def test_continue(self) -> None:
        """A client that waits with its body gets 100 once the body is read."""
        turn: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            await turn
            await echo(request)

        peer = Peer(TestSite(handle))
        number = peer.begin("PUT", "/", ("expect", "100-continue"), end=False)
        answer = peer.answers[number]
        self.assertEqual(answer.interim, [])
        turn.callback(None)
        peer.pump()
        self.assertEqual(answer.interim, [100])
        peer.send(number, b"abc", end=True)
        self.assertEqual((answer.status, answer.body, answer.interim), (200, b"abc", [100]))

    def test_unread(self) -> None:
        """A response before the end of the body asks the client to stop, but not in one read."""
        for fields in ((("content-length", "1000000"),), ()):
            peer = Peer(TestSite(hello))
            number = peer.begin("PUT", "/", *fields, end=False)
            answer = peer.answers[number]
            self.assertEqual((answer.status, answer.body, answer.isEnded), (200, b"hello", True))
            for _ in range(3):
                peer.send(number, bytes(1000))
            self.assertIsNone(answer.resetCode)
            self.assertEqual(len(peer.site.clock.getDelayedCalls()), 2)
            peer.site.clock.advance(0.3)
            peer.pump()
            self.assertEqual(answer.resetCode, ErrorCode.NO_ERROR)
            self.assertEqual(peer.ask().status, 200)

    def test_unreadSmall(self) -> None:
        """A client that sends the rest before that is not reset."""
        peer = Peer(TestSite(hello))
        number = peer.begin("PUT", "/", end=False)
        peer.send(number, bytes(1000), end=True)
        peer.site.clock.advance(0.3)
        peer.pump()
        self.assertIsNone(peer.answers[number].resetCode)
        self.assertEqual(len(peer.server.streams), 0)

    def test_unwanted(self) -> None:
        """A response in place of 100 leaves no stream open whose body never comes."""
        site = TestSite(hello)
        peer = Peer(site)
        fields = ("expect", "100-continue"), ("content-length", "10")
        answer = peer.answers[peer.begin("PUT", "/", *fields, end=False)]
        self.assertEqual((answer.status, answer.isEnded, answer.interim), (200, True, []))
        # Without the expectation, the body is on its way.
        sent = peer.answers[peer.begin("PUT", "/", fields[1], end=False)]
        self.assertEqual((sent.status, sent.resetCode), (200, None))
        self.assertIsNone(answer.resetCode)
        site.letPass(2)
        peer.pump()
        self.assertEqual((answer.resetCode, sent.resetCode), (ErrorCode.NO_ERROR, None))

    def test_lost(self) -> None:
        """A stream that is reset is a client that has left."""
        seen: list[BaseException] = []

        async def handle(request: ChannelRequest) -> None:
            try:
                await request.body.read(100)
            except BodyLost as error:
                seen.append(error)
                raise

        peer = Peer(TestSite(handle))
        number = peer.begin("PUT", end=False)
        peer.wire.reset_stream(number)
        peer.pump()
        self.assertEqual(len(seen), 1)
        [request] = peer.site.requests
        self.assertTrue(request.disconnected)
        self.assertEqual(peer.site.site.requests, 0)


class BackPressureTests(SynchronousTestCase):
    """Responses to clients that read slowly."""

    def test_sentAtOnce(self) -> None:
        """A piece that a fast client has taken at once does not pause its writer."""
        turn: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)
            await turn
            for _ in range(3):
                waiting = request.send(bytes(200_000))
                if waiting is not None:
                    await waiting
            request.finish()

        peer = Peer(TestSite(handle))
        number = peer.begin()
        peer.wire.increment_flow_control_window(1_000_000, number)
        peer.wire.increment_flow_control_window(1_000_000)
        peer.pump()
        turn.callback(None)
        peer.site.clock.advance(0)
        peer.pump()
        self.assertEqual(
            (len(peer.answers[number].body), peer.answers[number].isEnded), (600_000, True)
        )

    def setUp(self) -> None:
        """Let a handler send without end."""
        self.sent = 0
        self.ended: list[BaseException] = []
        self.site = TestSite(self.stream)

    async def stream(self, request: ChannelRequest) -> None:
        """Send until the client has left."""
        request.begin(200, [], None)
        try:
            while True:
                self.sent += 1000
                waiting = request.send(bytes(1000))
                if waiting is not None:
                    await waiting
        except ClientLost as error:
            self.ended.append(error)
            raise

    def test_window(self) -> None:
        """A writer waits for a client that gives no window."""
        peer = Peer(self.site)
        peer.isReading = False
        number = peer.begin()
        self.assertEqual(len(peer.answers[number].body), 65_535)
        self.assertLess(self.sent, 65_535 + 70_000)
        peer.wire.increment_flow_control_window(50_000, number)
        peer.wire.increment_flow_control_window(50_000)
        peer.pump()
        self.assertEqual(len(peer.answers[number].body), 115_535)
        peer.wire.reset_stream(number)
        peer.pump()
        self.assertEqual(len(self.ended), 1)

    def test_transport(self) -> None:
        """A writer waits for a transport that is full."""
        peer = Peer(self.site)
        peer.server.pauseProducing()
        number = peer.begin()
        self.assertEqual(peer.answers[number].body, b"")
        self.assertLess(self.sent, 70_000)
        peer.isReading = False
        peer.server.resumeProducing()
        peer.pump()
        self.assertEqual(len(peer.answers[number].body), 65_535)

    def test_control(self) -> None:
        """Answers to frames do not pile up for a client that does not read."""
        peer = Peer(TestSite(hello))
        peer.server.pauseProducing()
        for _ in range(900):
            peer.wire.ping(bytes(8))
        wire = peer.wire.data_to_send()
        states = []
        for _ in range(6):
            peer.server.dataReceived(wire)
            # Its turns, and the time in which that many frames are forgiven.
            peer.site.clock.pump([0.0] * 20 + [1.0] * 5)
            states.append(peer.transport.producerState)
        self.assertEqual((states[0], states[-1]), ("producing", "paused"))
        self.assertLess(len(peer.transport.value()), 120_000)
        peer.server.resumeProducing()
        peer.site.clock.pump([0.0] * 100)
        self.assertEqual(peer.transport.producerState, "producing")
