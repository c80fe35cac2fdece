"""Requests and their responses, without a socket."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.message import ChannelRequest
from tests.net.support import TestSite, head, hello, statuses, undated

GET = head()


async def echo(request: ChannelRequest) -> None:
    """Answer with the body."""
    request.respond(200, [], await request.body.read(1 << 20))


class ResponseTests(SynchronousTestCase):
    """What goes out for what the handler says."""

    def answer(self, handle: Any, wire: bytes = GET) -> bytes:
        """Return the answer to a request, without its Date."""
        answered = TestSite(handle).connect().send(wire)
        self.assertIn(b"\r\nDate: ", answered)
        return undated(answered)

    def test_whole(self) -> None:
        """A whole response goes out with its length."""
        self.assertEqual(
            self.answer(hello),
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
        )

    def test_head(self) -> None:
        """The answer to HEAD has the length and no body, whole or in parts."""

        async def parts(request: ChannelRequest) -> None:
            request.begin(200, [], 5)
            self.assertIsNone(request.send(b"hello"))
            request.finish()

        async def given(request: ChannelRequest) -> None:
            request.respond(200, [(b"Content-Length", b"5")])

        for handle in (parts, given):
            self.assertEqual(
                self.answer(handle, head(line=b"HEAD / HTTP/1.1")),
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            )

    def test_bodiless(self) -> None:
        """
        204 and 304 have no body; they have only a given length, 204 only one of 0 (RFC 9110 8.6).
        """

        async def noContent(request: ChannelRequest) -> None:
            request.respond(204, [], b"x")

        async def notModified(request: ChannelRequest) -> None:
            request.respond(304, [(b"Content-Length", b"9")], b"x")

        async def plainNotModified(request: ChannelRequest) -> None:
            request.respond(304, [])

        async def nothing(request: ChannelRequest) -> None:
            request.respond(204, [(b"Content-Length", b"0")])

        self.assertEqual(self.answer(noContent), b"HTTP/1.1 204 No Content\r\n\r\n")
        self.assertEqual(
            self.answer(nothing), b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
        )
        self.assertEqual(
            self.answer(notModified), b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"
        )
        self.assertEqual(self.answer(plainNotModified), b"HTTP/1.1 304 Not Modified\r\n\r\n")

    async def parts(self, request: ChannelRequest) -> None:
        """Answer in parts of unknown length."""
        request.begin(200, [], None)
        request.send(b"one")
        request.send(b"")
        request.send(b"x" * 20000)
        request.finish()

    def test_chunked(self) -> None:
        """A response of unknown length goes out in chunks, and an empty part ends nothing."""
        self.assertEqual(
            self.answer(self.parts),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\none\r\n4e20\r\n" + b"x" * 20000 + b"\r\n0\r\n\r\n",
        )

    def test_oldUnknownLength(self) -> None:
        """For HTTP/1.0 the end of the connection ends a response of unknown length."""
        connection = TestSite(self.parts).connect()
        wire = head(b"Connection: keep-alive", line=b"GET / HTTP/1.0")
        self.assertEqual(
            undated(connection.send(wire)),
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\none" + b"x" * 20000,
        )
        self.assertTrue(connection.closed)

    def test_wrongLength(self) -> None:
        """More than the declared length is refused before it is sent, less drops the connection."""

        async def tooMuch(request: ChannelRequest) -> None:
            request.begin(200, [], 3)
            self.assertRaises(ValueError, request.send, b"four")
            request.send(b"two")
            request.finish()

        async def tooLittle(request: ChannelRequest) -> None:
            request.begin(200, [], 3)
            self.assertRaises(ValueError, request.finish)

        self.assertTrue(self.answer(tooMuch).endswith(b"\r\n\r\ntwo"))
        connection = TestSite(tooLittle).connect()
        connection.send(GET)
        self.assertTrue(connection.aborted)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_contradictingLength(self) -> None:
        """A given length that is not the body's is refused with nothing sent."""

        async def handle(request: ChannelRequest) -> None:
            contradiction = [(b"Content-Length", b"4")]
            self.assertRaises(ValueError, request.respond, 200, contradiction, b"five!")
            self.assertRaises(ValueError, request.begin, 200, contradiction, 5)
            request.respond(200, [])

        self.assertEqual(statuses(self.answer(handle)), [200])

    def test_injection(self) -> None:
        """A header with a line end is refused with nothing sent."""

        async def handle(request: ChannelRequest) -> None:
            smuggled = [(b"X", b"a\r\nSet-Cookie: b")]
            self.assertRaises(ValueError, request.respond, 200, smuggled)
            self.assertRaises(ValueError, request.begin, 200, smuggled, 0)
            request.respond(200, [])

        self.assertNotIn(b"Cookie", self.answer(handle))

    def test_twice(self) -> None:
        """There is one response."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [])
            self.assertRaises(RuntimeError, request.respond, 200, [])
            self.assertRaises(RuntimeError, request.begin, 200, [], 0)
            self.assertRaises(RuntimeError, request.send, b"x")
            self.assertRaises(RuntimeError, request.finish)

        self.assertEqual(statuses(self.answer(handle)), [200])

    def test_handlerCloses(self) -> None:
        """A handler's own C{Connection: close} is obeyed."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [(b"connection", b"close")])

        connection = TestSite(handle).connect()
        self.assertEqual(connection.send(GET).count(b"Connection: close"), 1)
        self.assertTrue(connection.closed)


class FlowTests(SynchronousTestCase):
    """Responses to clients that are slow, or gone."""

    def test_send(self) -> None:
        """A writer is told to wait while the client is behind, and when to go on."""
        site = TestSite(lambda request: Deferred())
        connection = site.connect()
        connection.send(GET)
        request = site.requests[0]
        request.begin(200, [], None)
        self.assertIsNone(request.send(b"a"))
        connection.channel.pauseProducing()
        waiting = request.send(b"b")
        assert waiting is not None
        self.assertNoResult(waiting)
        connection.channel.resumeProducing()
        self.successResultOf(waiting)
        self.assertIsNone(request.send(b"c"))

    def test_lostWhileWaiting(self) -> None:
        """A writer that waits for a client that goes away gets to know, and can send no more."""
        site = TestSite(lambda request: Deferred())
        connection = site.connect()
        connection.send(GET)
        request = site.requests[0]
        request.begin(200, [], None)
        connection.channel.pauseProducing()
        waiting = request.send(b"b")
        assert waiting is not None
        connection.lose()
        self.successResultOf(waiting)
        self.assertRaises(ClientLost, request.send, b"c")
        request.finish()

    def test_onDisconnect(self) -> None:
        """Whoever asked is called when the client goes away, once, also when asking later."""
        site = TestSite(lambda request: Deferred())
        connection = site.connect()
        connection.send(GET)
        calls: list[int] = []
        site.requests[0].onDisconnect(lambda: calls.append(1))
        connection.lose()
        self.assertEqual(calls, [1])
        site.requests[0].onDisconnect(lambda: calls.append(2))
        self.assertEqual(calls, [1, 2])
        self.assertTrue(site.requests[0].disconnected)
        site.requests[0].respond(200, [])
        self.assertEqual(connection.received(), b"")

    def test_noDisconnect(self) -> None:
        """A connection that goes away after the response concerns nobody."""
        site = TestSite(hello)
        connection = site.connect()
        connection.send(GET)
        calls: list[int] = []
        site.requests[0].onDisconnect(lambda: calls.append(1))
        connection.lose()
        self.assertEqual(calls, [])


class RequestTests(SynchronousTestCase):
    """What a request knows."""

    def test_client(self) -> None:
        """A request knows where it came from."""
        site = TestSite(hello)
        site.connect().send(GET)
        self.assertEqual(site.requests[0].clientHost, "192.0.2.7")
        self.assertFalse(site.requests[0].secure)

    def test_takeTransport(self) -> None:
        """Whoever takes the transport gets what came after the request."""
        taken: list[Any] = []

        async def handle(request: ChannelRequest) -> None:
            taken.append(request.takeTransport())

        site = TestSite(handle)
        connection = site.connect()
        answered = connection.send(head(b"Connection: Upgrade", b"Upgrade: x") + b"\x01\x02")
        self.assertEqual(taken, [(connection.transport, b"\x01\x02")])
        self.assertEqual(answered, b"")
        self.assertIsNone(connection.transport.producer)
        self.successResultOf(site.site.drain(1))

    def test_upgradeIgnored(self) -> None:
        """An upgrade that nobody takes up is an ordinary request, with its body."""
        wire = head(
            b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3", line=b"PUT / HTTP/1.1"
        )
        answered = TestSite(echo).connect().send(wire + b"abc" + GET)
        self.assertEqual(statuses(answered), [200, 200])
