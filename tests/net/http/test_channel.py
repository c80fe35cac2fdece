"""One connection, without a socket."""

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.interfaces import BodyLost, BodyTooLarge, IncompleteBody
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.parser import MAX_CHUNKS
from tests.net.support import TestSite, head, hello, statuses

GET = head()


async def echo(request: ChannelRequest) -> None:
    """Answer with the body."""
    request.respond(200, [], await request.body.read(1 << 20))


class PersistenceTests(SynchronousTestCase):
    """Which connections go on."""

    def test_requestAfterRequest(self) -> None:
        """A connection serves one request after the other."""
        connection = TestSite(hello).connect()
        for _ in range(3):
            self.assertEqual(statuses(connection.send(GET)), [200])
        self.assertFalse(connection.closed)

    def test_close(self) -> None:
        """A client that says so gets no more than its answer."""
        site = TestSite(hello)
        connection = site.connect()
        answered = connection.send(head(b"Connection: close") + GET)
        self.assertIn(b"Connection: close\r\n", answered)
        self.assertTrue(connection.closed)
        self.assertEqual(len(site.requests), 1)

    def test_old(self) -> None:
        """HTTP/1.0 closes, unless the client asks to go on; then it is told that it may."""
        connection = TestSite(hello).connect()
        wire = head(b"Connection: keep-alive", line=b"GET / HTTP/1.0")
        self.assertIn(b"Connection: keep-alive\r\n", connection.send(wire))
        self.assertFalse(connection.closed)
        self.assertIn(b"Connection: close\r\n", connection.send(b"GET / HTTP/1.0\r\n\r\n"))
        self.assertTrue(connection.closed)

    def test_emptyLines(self) -> None:
        """Empty lines before a request are passed over (RFC 9112 2.2)."""
        connection = TestSite(hello).connect()
        self.assertEqual(
            statuses(connection.send(b"\r\n" + GET + b"\r\n\r", b"\n" + GET)), [200] * 2
        )

    def test_manyEmptyLines(self) -> None:
        """A read full of empty lines takes a millisecond, and not a copy for each line."""
        connection = TestSite(hello).connect()
        began = time.process_time()
        connection.send(b"\r\n" * 32 * 1024)
        self.assertLess(time.process_time() - began, 0.02)
        self.assertEqual(statuses(connection.send(b"\r\n\r", b"\n" + GET)), [200])
        self.assertEqual(statuses(connection.send(b"\r\n\r\r\n" + GET)), [400])


CHUNKED = head(b"Transfer-Encoding: chunked")
SMALL = b"1\r\nx\r\n" * 10 * MAX_CHUNKS


class SmallChunkTests(SynchronousTestCase):
    """A read with many small chunks, which take long to decode."""

    def test_turns(self) -> None:
        """They are decoded in turns, so that other connections are served in between."""
        site = TestSite(echo)
        busy, other = site.connect(), site.connect()
        self.assertEqual(busy.send(CHUNKED + SMALL + b"0\r\n\r\n" + GET), b"")
        self.assertFalse(busy.reading)
        self.assertEqual(statuses(other.send(GET)), [200])
        for _ in range(12):
            site.clock.advance(0)
        self.assertEqual(statuses(busy.received()), [200, 200])
        self.assertTrue(busy.reading)
        self.assertEqual(statuses(busy.send(GET)), [200])

    def test_meanwhile(self) -> None:
        """What arrives in between is not lost, nor are trailers; a broken chunk is refused."""
        site = TestSite(echo)
        for end, codes in ((b"0\r\nX: y\r\n\r\n", [200]), (b"broken", [400])):
            connection = site.connect()
            self.assertEqual(connection.send(CHUNKED + SMALL, SMALL, end), b"")
            for _ in range(30):
                site.clock.advance(0)
            answered = connection.received()
            self.assertEqual(statuses(answered), codes)
            if codes == [200]:
                self.assertTrue(answered.endswith(b"x" * 20 * MAX_CHUNKS))

    def test_endMeanwhile(self) -> None:
        """If the end arrives before its turn, the client is read on, as its loss ends the call."""
        site = TestSite(lambda request: Deferred())
        connection = site.connect()
        connection.send(CHUNKED + b"1\r\nx\r\n" * (MAX_CHUNKS + 1), b"0\r\n\r\n" + GET)
        self.assertFalse(connection.reading)
        site.clock.advance(0)
        self.assertTrue(connection.reading)
        self.assertEqual(len(site.requests), 1)

    def test_fullStream(self) -> None:
        """A handler that does not read still pauses the client; a lost client ends the turns."""
        site = TestSite(lambda request: Deferred(), bodyBuffer=MAX_CHUNKS // 2)
        connection = site.connect()
        connection.send(CHUNKED + SMALL)
        for _ in range(12):
            site.clock.advance(0)
        self.assertFalse(connection.reading)
        connection.send(SMALL)
        connection.lose()
        for _ in range(12):
            site.clock.advance(0)

    def test_answered(self) -> None:
        """A response to a body that is being decoded closes, as to one that is still to come."""
        site = TestSite(hello)
        connection = site.connect()
        answered = connection.send(CHUNKED + SMALL + b"0\r\n\r\n")
        self.assertEqual(statuses(answered), [200])
        self.assertIn(b"Connection: close\r\n", answered)
        for _ in range(12):
            site.clock.advance(0)
        self.assertTrue(connection.closed)


class PipelineTests(SynchronousTestCase):
    """Requests that come before the answer to the last."""

    def setUp(self) -> None:
        """Answer each request when its turn has come."""
        self.turns: list[Deferred[None]] = []
        self.site = TestSite(self.wait)
        self.connection = self.site.connect()

    async def wait(self, request: ChannelRequest) -> None:
        """Answer with the path, but not yet."""
        turn: Deferred[None] = Deferred()
        self.turns.append(turn)
        await turn
        request.respond(200, [], request.path)

    def test_order(self) -> None:
        """The second request is not begun before the first is answered."""
        first, second = head(line=b"GET /1 HTTP/1.1"), head(line=b"GET /2 HTTP/1.1")
        self.connection.send(first + second)
        self.assertEqual([request.path for request in self.site.requests], [b"/1"])
        self.turns[0].callback(None)
        self.assertTrue(self.connection.received().endswith(b"/1"))
        self.assertEqual([request.path for request in self.site.requests], [b"/1", b"/2"])
        self.turns[1].callback(None)
        self.assertTrue(self.connection.received().endswith(b"/2"))

    def test_bounded(self) -> None:
        """With sixteen requests waiting, reading pauses until there is room."""
        self.connection.send(GET * 16)
        self.assertTrue(self.connection.reading)
        self.connection.send(GET)
        self.assertFalse(self.connection.reading)
        self.turns[0].callback(None)
        self.assertTrue(self.connection.reading)

    def test_boundedBytes(self) -> None:
        """A request behind another with a large body does not fill the memory either."""
        self.connection.send(GET + head(b"Content-Length: 99999", line=b"PUT / HTTP/1.1"))
        self.connection.send(b"x" * 10000)
        self.assertTrue(self.connection.reading)
        self.connection.send(b"x" * 10000)
        self.assertFalse(self.connection.reading)

    def test_fair(self) -> None:
        """After 64 requests in one read, others get their turn first."""
        site = TestSite(hello)
        connection = site.connect()
        self.assertEqual(len(statuses(connection.send(GET * 100))), 64)
        self.assertFalse(connection.reading)
        site.clock.advance(0)
        self.assertEqual(len(statuses(connection.received())), 36)
        self.assertTrue(connection.reading)

    def test_fairWhileOthersWait(self) -> None:
        """While a connection waits for its turn, another one is served a request at a time."""
        site = TestSite(hello)
        first, second = site.connect(), site.connect()
        self.assertEqual(len(statuses(first.send(GET * 100))), 64)
        self.assertEqual(len(statuses(second.send(GET * 100))), 1)
        site.clock.advance(0)
        self.assertEqual(len(statuses(first.received())), 36)
        self.assertEqual(len(statuses(second.received())), 99)

    def test_rejectionWaits(self) -> None:
        """A broken request is answered in its turn."""
        self.connection.send(GET + b"broken\r\n\r\n")
        self.assertEqual(self.connection.received(), b"")
        self.turns[0].callback(None)
        self.assertEqual(statuses(self.connection.received()), [200, 400])
        self.assertTrue(self.connection.closed)

    def test_slowReader(self) -> None:
        """While the client does not read its answers, no more requests are begun."""
        self.connection.send(GET)
        self.connection.channel.pauseProducing()
        self.turns[0].callback(None)
        self.connection.send(GET)
        self.assertEqual(len(self.site.requests), 1)
        self.connection.channel.resumeProducing()
        self.assertEqual(len(self.site.requests), 2)


class BodyTests(SynchronousTestCase):
    """Bodies of requests."""

    PUT = head(b"Content-Length: 6", line=b"PUT / HTTP/1.1")

    def test_ready(self) -> None:
        """A body that came with its head is there at once."""
        ready: list[bytes | None] = []

        async def handle(request: ChannelRequest) -> None:
            ready.append(request.body.readAvailable())
            request.respond(200, [])

        connection = TestSite(handle).connect()
        connection.send(self.PUT + b"abcdef", GET, self.PUT + b"abc", b"def")
        self.assertEqual(ready, [b"abcdef", b"", None])

    def test_pieces(self) -> None:
        """A body that comes later is read in the pieces it comes in."""
        pieces: list[bytes] = []

        async def handle(request: ChannelRequest) -> None:
            async for piece in request.body:
                pieces.append(piece)
            request.respond(200, [])

        connection = TestSite(handle).connect()
        connection.send(self.PUT, b"ab", b"cde")
        self.assertEqual(pieces, [b"ab", b"cde"])
        self.assertEqual(statuses(connection.send(b"f" + GET)), [200, 200])

    def test_trailers(self) -> None:
        """The trailers of a chunked body are there when it has been read."""
        site = TestSite(echo)
        wire = head(b"Transfer-Encoding: chunked", line=b"PUT / HTTP/1.1")
        answered = site.connect().send(wire, b"3\r\nabc\r\n", b"0\r\nX-Sum: 1\r\n\r\n")
        self.assertTrue(answered.endswith(b"abc"))
        self.assertEqual(site.requests[0].body.trailers, ((b"x-sum", b"1"),))
        self.assertIsNone(site.requests[0].contentLength)

    def test_backpressure(self) -> None:
        """A body that nobody reads is held up to the limit, then the client has to wait."""
        site = TestSite(lambda request: Deferred(), bodyBuffer=1000)
        connection = site.connect()
        connection.send(head(b"Content-Length: 5000", line=b"PUT / HTTP/1.1"), b"x" * 999)
        self.assertTrue(connection.reading)
        connection.send(b"x")
        self.assertFalse(connection.reading)
        reading = Deferred.fromCoroutine(site.requests[0].body.read(5000))
        self.assertTrue(connection.reading)
        connection.send(b"y" * 4000)
        self.assertEqual(self.successResultOf(reading), b"x" * 1000 + b"y" * 4000)

    def test_tooLarge(self) -> None:
        """A reader's limit is kept: a declared length is refused before a byte is read."""
        for wire, expected in [
            (head(b"Content-Length: 9999999", b"Expect: 100-continue"), b"HTTP/1.1 500"),
            (
                head(b"Transfer-Encoding: chunked") + b"300000\r\n" + b"x" * 0x200000,
                b"HTTP/1.1 500",
            ),
        ]:
            connection = TestSite(echo).connect()
            self.assertTrue(connection.send(wire).startswith(expected))
            self.assertTrue(connection.closed)
        self.assertEqual(len(self.flushLoggedErrors(BodyTooLarge)), 2)

    def test_lost(self) -> None:
        """A client that goes away in the middle is a L{BodyLost} in the reader."""
        lost: list[Exception] = []

        async def handle(request: ChannelRequest) -> None:
            try:
                await request.body.read(100)
            except BodyLost as error:
                lost.append(error)
                raise

        connection = TestSite(handle).connect()
        connection.send(self.PUT, b"abc")
        connection.lose()
        self.assertEqual([type(error) for error in lost], [BodyLost])

    def test_broken(self) -> None:
        """Broken chunks are an L{IncompleteBody} in the reader, and the client gets one 400."""
        lost: list[Exception] = []

        async def handle(request: ChannelRequest) -> None:
            try:
                await request.body.read(100)
            except BodyLost as error:
                lost.append(error)
                request.respond(499, [])

        connection = TestSite(handle).connect()
        wire = head(b"Transfer-Encoding: chunked", line=b"PUT / HTTP/1.1")
        answered = connection.send(wire, b"3\r\nabc\r\n", b"xyz\r\n")
        self.assertEqual([type(error) for error in lost], [IncompleteBody])
        self.assertEqual(statuses(answered), [400])
        self.assertTrue(connection.closed)

    def test_brokenAfterStart(self) -> None:
        """If the response has begun, broken chunks drop the connection instead."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)
            await request.body.read(100)

        connection = TestSite(handle).connect()
        connection.send(head(b"Transfer-Encoding: chunked"), b"xyz\r\n")
        self.assertTrue(connection.aborted)
        connection.lose()

    def test_oneReader(self) -> None:
        """Two readers at one time are a bug that is reported, not a mixed-up body."""
        site = TestSite(lambda request: Deferred())
        site.connect().send(self.PUT)
        body = site.requests[0].body
        first = Deferred.fromCoroutine(body.read(9))
        self.failureResultOf(Deferred.fromCoroutine(body.read(9)), RuntimeError)
        first.addErrback(lambda reason: None)
        first.cancel()

    @given(st.lists(st.integers(0), max_size=12))
    def test_anyCut(self, places: list[int]) -> None:
        """However a stream of requests is cut, they are the same requests."""
        wire = (
            self.PUT
            + b"abcdef"
            + head(b"Transfer-Encoding: chunked", line=b"POST /c HTTP/1.1")
            + b"2\r\nhi\r\n1;x\r\n!\r\n0\r\n\r\n"
            + b"\r\n"
            + head(line=b"GET /last?q HTTP/1.1")
        )
        marks = [0, *sorted(place % len(wire) for place in places), len(wire)]
        site = TestSite(echo)
        connection = site.connect()
        answered = connection.send(*(wire[a:b] for a, b in pairwise(marks) if a < b))
        self.assertEqual(statuses(answered), [200, 200, 200])
        self.assertEqual([r.uri for r in site.requests], [b"/", b"/c", b"/last?q"])
        bodies = [part[-6:] for part in answered.split(b"HTTP/1.1 200 OK")[1:]]
        self.assertEqual(bodies, [b"abcdef", b"\n\r\nhi!"[-6:], b": 0\r\n\r\n"[-6:]])


class EarlyAnswerTests(SynchronousTestCase):
    """Answers that are given before the body has come."""

    def test_continue(self) -> None:
        """A client that waits is asked for its body when somebody reads, and only once."""
        wire = head(b"Content-Length: 6", b"Expect: 100-continue", line=b"PUT / HTTP/1.1")
        site = TestSite(echo)
        connection = site.connect()
        self.assertEqual(connection.send(wire), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(connection.send(b"abc"), b"")
        self.assertTrue(connection.send(b"def").endswith(b"abcdef"))
        self.assertFalse(connection.closed)

    def test_noContinue(self) -> None:
        """If nobody reads it is never asked, and the connection closes: who knows what follows."""
        wire = head(b"Content-Length: 6", b"Expect: 100-continue", line=b"PUT / HTTP/1.1")
        connection = TestSite(hello).connect()
        answered = connection.send(wire)
        self.assertEqual(statuses(answered), [200])
        self.assertIn(b"Connection: close", answered)
        self.assertTrue(connection.closed)

    def test_continueForNothing(self) -> None:
        """An empty body is asked for just before a good answer; a refusal closes instead."""
        wire = head(b"Content-Length: 0", b"Expect: 100-continue", line=b"PUT / HTTP/1.1")
        connection = TestSite(hello).connect()
        for _ in range(2):
            self.assertEqual(statuses(connection.send(wire)), [100, 200])
        self.assertEqual(statuses(connection.send(GET)), [200])

        async def refuse(request: ChannelRequest) -> None:
            request.respond(403, ())

        refused = TestSite(refuse).connect()
        answered = refused.send(wire)
        self.assertEqual(statuses(answered), [403])
        self.assertIn(b"Connection: close", answered)
        self.assertTrue(refused.closed)

    def test_notAwaited(self) -> None:
        """A client that sends its body without being asked is not asked any more."""
        wire = head(b"Content-Length: 6", b"Expect: 100-continue", line=b"PUT / HTTP/1.1")
        answered = TestSite(echo).connect().send(wire + b"abc", b"def")
        self.assertEqual(statuses(answered), [200])

    def test_smallRest(self) -> None:
        """The small rest of an unwanted body is passed over, and the connection goes on."""
        connection = TestSite(hello).connect()
        wire = head(b"Content-Length: 65536", line=b"PUT / HTTP/1.1")
        self.assertEqual(statuses(connection.send(wire)), [200])
        self.assertEqual(statuses(connection.send(b"x" * 65536 + GET)), [200])
        self.assertFalse(connection.closed)

    def test_largeRest(self) -> None:
        """A large one closes the connection, and is not read beyond 64 KiB."""
        connection = TestSite(hello).connect()
        wire = head(b"Content-Length: 5368709120", line=b"PUT / HTTP/1.1")
        self.assertIn(b"Connection: close", connection.send(wire))
        self.assertTrue(connection.closed)
        connection.send(b"x" * 65536)
        self.assertTrue(connection.reading)
        connection.send(b"x")
        self.assertFalse(connection.reading)

    def test_chunkedRest(self) -> None:
        """So does one whose length nobody knows."""
        connection = TestSite(hello).connect()
        wire = head(b"Transfer-Encoding: chunked", line=b"PUT / HTTP/1.1")
        self.assertIn(b"Connection: close", connection.send(wire))
        self.assertTrue(connection.closed)

    def test_brokenRest(self) -> None:
        """What is wrong with a body that nobody wants is not answered a second time."""
        connection = TestSite(hello).connect()
        wire = head(b"Transfer-Encoding: chunked", line=b"PUT / HTTP/1.1")
        self.assertEqual(statuses(connection.send(wire, b"broken\r\n")), [200])
