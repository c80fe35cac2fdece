"""WebSockets over HTTP/2 (RFC 8441)."""

import tracemalloc
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import WebSocket
from storagegate.http.options import Runtime
from storagegate.http.resource import describeRejection
from storagegate.net.http.site import Site
from storagegate.net.http2.interfaces import ErrorCode
from tests.net.http2.support import Peer
from tests.net.support import Connection
from tests.support.wsclient import CLOSE, TEXT, ServerFrame, closeFrame, frame, readFrames

HANDSHAKE = ((":protocol", "websocket"), ("sec-websocket-version", "13"))


class AppSite:
    """
    An application's site on a clock.

    @ivar site: The site.
    """

    def __init__(self, app: Any) -> None:
        self.clock = Clock()
        app.runtime = Runtime(self.clock, None)  # type: ignore[arg-type]
        self.site = Site(app.resource, app.settings.limits(), self.clock, describeRejection)
        self.site.servesWebSockets = True

    def connect(self, host: str = "192.0.2.7") -> Connection:
        """Open a connection from an address."""
        return Connection(self.site, host)


async def echo(socket: WebSocket) -> None:
    """Send each message back."""
    async for message in socket:
        await socket.send(message)


class WebSocketCase(SynchronousTestCase):
    """A test with an application, and a client of HTTP/2."""

    def setUp(self) -> None:
        """Make the application."""
        self.app = server.http()
        self.app.ws("/echo", echo)

    def connect(self) -> Peer:
        """Connect a client."""
        self.site = AppSite(self.app)
        self.peer = Peer(self.site)  # type: ignore[arg-type]
        return self.peer

    def open(self, path: str = "/echo", *fields: tuple[str, str]) -> int:
        """Ask for a WebSocket; return the number of the stream."""
        return self.peer.begin("CONNECT", path, *HANDSHAKE, *fields, end=False)

    def frames(self, number: int) -> list[ServerFrame]:
        """Return the frames received on a stream since the last call."""
        self.site.clock.advance(0)
        self.peer.pump()
        answer = self.peer.answers[number]
        found, answer.body = readFrames(answer.body)
        return found


class MessageTests(WebSocketCase):
    """Messages both ways."""

    def test_echo(self) -> None:
        """A WebSocket is a stream, beside others."""
        peer = self.connect()
        first, second = self.open(), self.open()
        for number in (first, second):
            answer = peer.answers[number]
            self.assertEqual((answer.status, answer.isEnded), (200, False))
            for name in ("upgrade", "connection", "sec-websocket-accept", "content-length"):
                self.assertNotIn(name, answer.headers)
        peer.send(first, frame(TEXT, b"one") + frame(TEXT, b"two")[:3])
        peer.send(second, frame(TEXT, b"second"))
        peer.send(first, frame(TEXT, b"two")[3:])
        self.assertEqual([each.payload for each in self.frames(first)], [b"one", b"two"])
        self.assertEqual([each.payload for each in self.frames(second)], [b"second"])
        self.assertEqual(self.app.webSockets.connections, 2)
        self.assertEqual(self.site.site.requests, 0)
        self.assertEqual(peer.ask("GET", "/none").status, 404)

    def test_announced(self) -> None:
        """The server's SETTINGS announce it, where a listener has it."""
        peer = self.connect()
        self.assertEqual(peer.wire.remote_settings.enable_connect_protocol, 1)

    def test_early(self) -> None:
        """Messages that arrive before the handshake is answered are kept."""
        turn: Deferred[None] = Deferred()

        async def wait(req: Any, res: Any, next: Any) -> None:
            await turn
            await next()

        self.app.ws("/late", wait, echo)
        peer = self.connect()
        number = self.open("/late")
        peer.send(number, frame(TEXT, b"early"))
        self.assertEqual(peer.answers[number].status, 0)
        turn.callback(None)
        self.assertEqual([each.payload for each in self.frames(number)], [b"early"])

    def test_fields(self) -> None:
        """The handshake has the request's fields, the subprotocol, and those of the response."""

        async def handle(socket: WebSocket) -> None:
            await socket.sendJSON([socket.request.query, socket.request.get("x-team")])

        def fields(req: Any, res: Any, next: Any) -> Any:
            res.set("X-Served", "yes")
            return next()

        self.app.ws("/chat", fields, handle, subprotocols=["chat"])
        peer = self.connect()
        number = self.open("/chat?a=b", ("x-team", "blue"), ("sec-websocket-protocol", "a, chat"))
        headers = peer.answers[number].headers
        self.assertEqual(headers["sec-websocket-protocol"], "chat")
        self.assertEqual(headers["x-served"], "yes")
        self.assertEqual(self.frames(number)[0].payload, b'[{"a":"b"},"blue"]')


class RefusalTests(WebSocketCase):
    """Requests that become no WebSocket."""

    def test_refused(self) -> None:
        """Middleware and the rules of the handshake refuse as they do with HTTP/1.1."""

        def forbid(req: Any, res: Any, next: Any) -> None:
            res.status(403).send("no")

        self.app.ws("/forbidden", forbid, echo)
        peer = self.connect()
        statuses = [
            peer.answers[number].status
            for number in (
                self.open("/forbidden"),
                self.open("/none"),
                self.open("/echo", ("origin", "https://elsewhere.example")),
                peer.begin("CONNECT", "/echo", HANDSHAKE[0], end=False),
                peer.begin("CONNECT", "/echo", (":protocol", "other"), end=False),
            )
        ]
        self.assertEqual(statuses, [403, 404, 403, 426, 501])
        self.assertEqual(self.app.webSockets.connections, 0)
        self.assertEqual(self.site.site.requests, 0)

    def test_noTunnel(self) -> None:
        """A handler that answers as if to GET does not open a tunnel."""
        self.app.get("/page", lambda req, res: res.send("page"))

        async def stream(req: Any, res: Any) -> None:
            await res.write("a")
            await res.write("b")
            res.end()

        self.app.get("/stream", stream)
        peer = self.connect()
        for path in ("/page", "/stream"):
            answer = peer.answers[self.open(path)]
            self.assertEqual((answer.status, answer.body, answer.isEnded), (501, b"", True))
        self.assertEqual(peer.ask("GET", "/page").body, b"page")

    def test_noTunnelStream(self) -> None:
        """A handler that would go on for ever hears that its stream is closed."""
        written: list[int] = []

        async def stream(req: Any, res: Any) -> None:
            while len(written) < 1000:
                written.append(1)
                await res.write("a")

        self.app.get("/stream", stream)
        peer = self.connect()
        number = self.open("/stream")
        self.site.clock.advance(0)
        peer.pump()
        self.assertEqual(peer.answers[number].status, 501)
        self.assertLess(len(written), 10)
        self.assertEqual(self.site.site.requests, 0)

    def test_noTunnelEvents(self) -> None:
        """So does one that waits for an event."""
        ends: list[str] = []

        async def events(req: Any, res: Any) -> None:
            req.on("close", lambda: ends.append("ended"))
            await res.write("a")
            await Deferred()

        self.app.get("/events", events)
        peer = self.connect()
        self.open("/events")
        self.site.clock.advance(0)
        peer.server.connectionLost()
        self.site.clock.advance(0)
        self.assertEqual(ends, ["ended"])
        self.assertEqual(self.site.site.requests, 0)

    def test_otherListener(self) -> None:
        """A listener without WebSockets neither announces nor accepts them."""
        peer = self.connect()
        self.site.site.servesWebSockets = False
        peer = self.peer = Peer(self.site)  # type: ignore[arg-type]
        self.assertEqual(peer.wire.remote_settings.enable_connect_protocol, 0)
        self.assertEqual(peer.answers[self.open()].status, 501)

    def test_takeOver(self) -> None:
        """A request without CONNECT has no connection to take over."""
        failures: list[BaseException] = []

        def handle(req: Any, res: Any) -> None:
            try:
                req.raw.takeTransport()
            except RuntimeError as error:
                failures.append(error)
            res.send("refused")

        self.app.get("/", handle)
        self.assertEqual(self.connect().ask().body, b"refused")
        self.assertEqual(len(failures), 1)


class EndTests(WebSocketCase):
    """The end of a WebSocket, and of its stream."""

    def test_closed(self) -> None:
        """After the closing handshake, the stream ends, and the connection goes on."""
        peer = self.connect()
        number = self.open()
        peer.send(number, closeFrame(4001, b"bye"))
        [found] = self.frames(number)
        self.assertEqual((found.opcode, found.code), (CLOSE, 4001))
        self.assertTrue(peer.answers[number].isEnded)
        self.assertEqual(self.app.webSockets.connections, 0)
        self.assertEqual(peer.ask("GET", "/none").status, 404)

    def test_reset(self) -> None:
        """A stream that is reset is a connection that is lost."""
        ends: list[Any] = []

        async def handle(socket: WebSocket) -> None:
            async for _message in socket:
                pass
            ends.append(socket.closeCode)

        self.app.ws("/", handle)
        peer = self.connect()
        number = self.open("/")
        peer.wire.reset_stream(number)
        peer.pump()
        self.assertEqual(ends, [1006])
        self.assertEqual(self.app.webSockets.connections, 0)

    def test_ended(self) -> None:
        """A client that ends its side without a close has left."""
        peer = self.connect()
        number = self.open()
        peer.send(number, b"", end=True)
        self.frames(number)
        self.assertTrue(peer.answers[number].isEnded)
        self.assertEqual(self.app.webSockets.connections, 0)

    def test_endedAtOnce(self) -> None:
        """So has one that ends it with the request."""
        peer = self.connect()
        number = peer.begin("CONNECT", "/echo", *HANDSHAKE)
        self.frames(number)
        self.assertTrue(peer.answers[number].isEnded)
        self.assertEqual(self.app.webSockets.connections, 0)
        self.assertEqual(len(peer.server.streams), 0)

    def test_gone(self) -> None:
        """A client that left before the handshake was answered is no error."""
        turns: list[Deferred[None]] = []

        async def wait(req: Any, res: Any, next: Any) -> None:
            turns.append(Deferred())
            await turns[-1]
            await next()

        self.app.ws("/late", wait, echo)
        peer = self.connect()
        peer.wire.reset_stream(self.open("/late"))
        self.open("/late")
        peer.pump()
        turns[0].callback(None)
        peer.server.connectionLost()
        turns[1].callback(None)
        self.site.clock.advance(0)
        self.assertEqual(self.app.webSockets.connections, 0)
        self.assertEqual(self.site.site.requests, 0)

    def test_lost(self) -> None:
        """The loss of the connection ends all its WebSockets."""
        peer = self.connect()
        self.open()
        self.open()
        peer.server.connectionLost()
        self.assertEqual(self.app.webSockets.connections, 0)

    def test_failed(self) -> None:
        """A client that breaks the protocol is told, and its stream ends."""
        peer = self.connect()
        number = self.open()
        peer.send(number, frame(TEXT, b"unmasked", mask=None))
        [found] = self.frames(number)
        self.assertEqual((found.opcode, found.code), (CLOSE, 1002))
        self.site.clock.advance(0)
        peer.pump()
        self.assertEqual(self.app.webSockets.connections, 0)

    def test_drained(self) -> None:
        """A server that stops closes WebSockets, then the connection."""
        peer = self.connect()
        number = self.open()
        drained = self.site.site.drain(30.0)
        closed = self.app.webSockets.close(30.0)
        self.site.clock.pump([0, 0, 0])
        peer.pump()
        self.assertEqual([each.code for each in self.frames(number)], [1001])
        self.assertNoResult(drained)
        peer.send(number, closeFrame(1001))
        self.site.clock.pump([0, 0, 1, 1])
        peer.pump()
        self.successResultOf(closed)
        self.assertTrue(peer.transport.disconnecting)
        peer.server.connectionLost()
        self.successResultOf(drained)


class BackPressureTests(WebSocketCase):
    """Clients and handlers that are slow."""

    def test_handler(self) -> None:
        """A handler that does not receive gets no more than its window and its buffer."""
        turn: Deferred[None] = Deferred()
        received: list[int] = []

        async def handle(socket: WebSocket) -> None:
            await turn
            async for message in socket:
                received.append(len(message))

        self.app.ws("/", handle)
        peer = self.connect()
        number = self.open("/")
        sent = 0
        wire = frame(TEXT, b"x" * 10_000)
        while peer.wire.local_flow_control_window(number) >= len(wire) and sent < 100:
            peer.send(number, wire)
            sent += 1
        self.assertLess(sent, 20)
        turn.callback(None)
        while sent < 50:
            self.site.clock.advance(0)
            peer.pump()
            self.assertGreaterEqual(peer.wire.local_flow_control_window(number), len(wire))
            peer.send(number, wire)
            sent += 1
        self.site.clock.advance(0)
        self.assertEqual(sum(received), sent * 10_000)

    def test_smallFrames(self) -> None:
        """Input that waits in tiny frames takes the room of its bytes, and comes at once."""
        turn: Deferred[None] = Deferred()

        async def wait(req: Any, res: Any, next: Any) -> None:
            await turn
            await next()

        self.app.ws("/late", wait, echo)
        peer = self.connect()
        number = self.open("/late")
        wire = frame(TEXT, b"x" * 60_000)
        stream = peer.server.streams[number]
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for at in range(len(wire)):
            stream.dataReceived(wire[at : at + 1], False)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.assertLess(held, 100_000)
        turn.callback(None)
        self.assertEqual([len(each.payload) for each in self.frames(number)], [60_000])

    def test_client(self) -> None:
        """A handler waits for a client that gives no window."""
        sent: list[int] = []

        async def handle(socket: WebSocket) -> None:
            while True:
                sent.append(1)
                await socket.send(b"x" * 1000)

        self.app.ws("/", handle)
        peer = self.connect()
        peer.isReading = False
        number = self.open("/")
        self.site.clock.pump([0.0] * 100)
        peer.pump()
        self.assertLess(len(sent), 250)
        before = len(sent)
        peer.wire.increment_flow_control_window(100_000, number)
        peer.wire.increment_flow_control_window(100_000)
        peer.pump()
        self.site.clock.pump([0.0] * 100)
        self.assertGreater(len(sent), before + 50)
        peer.wire.reset_stream(number, ErrorCode.CANCEL)
        peer.pump()
        self.assertEqual(self.app.webSockets.connections, 0)
