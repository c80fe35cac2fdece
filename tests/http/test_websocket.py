"""WebSocket routes in memory: registration, messages, ends, and what they leave."""

import gc
import json
from collections.abc import Callable
from typing import Any
from weakref import ref

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.http import HTTPError, Router, requestLog
from storagegate.http.application import Application
from storagegate.http.testing import Client, StillWaiting, WebSocketRefused
from storagegate.http.websocket import HELD_BYTES, WebSocket, WebSocketClosed
from storagegate.net.websocket.connection import CLOSE_SECONDS
from storagegate.net.websocket.testing import NoMessage


async def echo(socket: WebSocket) -> None:
    """Send all messages back."""
    async for message in socket:
        await socket.send(message)


class Case(SynchronousTestCase):
    """Tests with an application and a client."""

    def setUp(self) -> None:
        """Make both."""
        self.app = Application()
        self.client = Client(self.app)

    def refusal(self, path: str, **options: Any) -> Any:
        """Return the response to a handshake that is refused."""
        with self.assertRaises(WebSocketRefused) as caught:
            self.client.webSocket(path, **options)
        return caught.exception.response


class RegistrationTests(Case):
    """What C{ws} takes."""

    def test_decorator(self) -> None:
        """Without a handler it is a decorator."""

        @self.app.ws("/echo")
        async def handle(socket: WebSocket) -> None:
            await socket.send("hello")

        self.assertEqual(self.client.webSocket("/echo").receive(), "hello")

    def test_wrongHandlers(self) -> None:
        """What cannot be a handler is an error that names it."""

        async def withRequest(socket: Any, request: Any) -> None:
            pass

        async def generator(socket: Any) -> Any:
            yield socket

        for handler, message in (
            (withRequest, r"withRequest does not take \(socket\); the request is socket.request"),
            (generator, "generator is a generator"),
            ("echo", "a handler is a function, not 'echo'"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                self.app.ws("/", handler)  # type: ignore[call-overload]
        with self.assertRaisesRegex(TypeError, "subprotocols are a list"):
            self.app.ws("/", echo, subprotocols="chat")
        with self.assertRaisesRegex(TypeError, "takes neither"):
            self.app.ws("/", lambda socket: None, echo)

    def test_options(self) -> None:
        """Misspelt limits are errors."""
        with self.assertRaisesRegex(OptionError, "ws.maxMessages"):
            self.app.withOptions(ws={"maxMessages": 1})  # type: ignore[typeddict-unknown-key]
        with self.assertRaisesRegex(OptionError, "ws.allowedOrigins"):
            self.app.withOptions(ws={"allowedOrigins": ["example.com"]})

    def test_listed(self) -> None:
        """Lists of routes have them, with C{WS} for the method."""
        self.app.ws("/chat/:room", echo)
        (route,) = self.app.getRoutes("ws")
        self.assertEqual((route.method, route.path, route.params), ("WS", "/chat/:room", ["room"]))
        self.assertTrue(self.app.hasRoute("WS", "/chat/red"))


class RequestTests(Case):
    """Requests for the path of a WebSocket route that become none."""

    def test_plain(self) -> None:
        """A GET without an upgrade is 426."""
        self.app.ws("/echo", echo)
        response = self.client.get("/echo")
        self.assertEqual((response.status, response.headers["upgrade"]), (426, "websocket"))
        self.assertEqual(self.client.head("/echo").status, 426)

    def test_otherMethods(self) -> None:
        """Other methods are 405, and OPTIONS says GET."""
        self.app.ws("/echo", echo).put("/echo", lambda req, res: "put")
        response = self.client.post("/echo")
        self.assertEqual((response.status, response.headers["allow"]), (405, "GET, PUT"))
        self.assertEqual(self.client.options("/echo").text, "GET, PUT")
        self.assertEqual(self.client.put("/echo").text, "put")

    def test_withPage(self) -> None:
        """A page at the same path is served to GET, before the route or behind it."""
        page = Router().get("/b", lambda req, res: "page")
        self.app.get("/a", lambda req, res: "page").ws("/a", echo)
        self.app.ws("/b", echo).use(page)
        for path in ("/a", "/b"):
            self.assertEqual(self.client.get(path).text, "page")
            self.assertTrue(self.client.webSocket(path).isOpen)

    def test_withoutRoute(self) -> None:
        """Where there is no WebSocket, GET is answered as if there were no upgrade, or 404."""
        self.app.get("/page", lambda req, res: "page")
        self.assertEqual(self.refusal("/page").text, "page")
        self.assertEqual(self.refusal("/other").status, 404)

    def test_refused(self) -> None:
        """Middleware refuses with what it likes, also later."""

        async def refuse(req: Any, res: Any, next: Any) -> None:
            await waiting
            raise HTTPError(401, "No token")

        self.app.ws("/", [refuse], echo)
        waiting: Deferred[None] = Deferred()
        with self.assertRaises(StillWaiting):
            self.client.webSocket("/")
        waiting.callback(None)
        self.assertEqual(self.refusal("/").json(), {"error": "No token"})

    def test_fields(self) -> None:
        """What middleware sets is in the response to the handshake; what has no place is not."""

        def middleware(req: Any, res: Any, next: Any) -> Any:
            res.cookie("a", "1").cookie("b", "2").header("X-Team", "red").type("html")
            return next()

        self.app.use(middleware).ws("/", echo)
        head = self.client.webSocket("/").response.partition(b"\r\n\r\n")[0]
        self.assertIn(b"Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; Path=/\r\n", head)
        self.assertIn(b"X-Team: red", head)
        self.assertNotIn(b"ontent-", head)
        self.assertEqual(list(self.client.cookies), ["a", "b"])

    def test_log(self) -> None:
        """The log of requests has a line with status 101."""
        lines: list[str] = []

        class Stream:
            def write(self, text: str) -> None:
                lines.append(text)

        self.app.use(requestLog(":method :url :status", stream=Stream())).ws("/:room", echo)
        self.client.webSocket("/red")
        self.assertEqual(lines, ["GET /red 101\n"])

    def test_proxy(self) -> None:
        """Own pages are those of the host that a trusted proxy names."""
        self.app.withOptions(trustProxy=True).ws("/", echo)
        fields = {"X-Forwarded-Host": "app.example", "X-Forwarded-Proto": "https"}
        self.assertEqual(self.refusal("/", headers={"Origin": "https://app.example"}).status, 403)
        socket = self.client.webSocket("/", headers={"Origin": "https://app.example", **fields})
        self.assertTrue(socket.isOpen)


class MessageTests(Case):
    """Messages, their bounds and their ends."""

    def test_json(self) -> None:
        """JSON goes both ways."""

        async def double(socket: WebSocket) -> None:
            while True:
                await socket.sendJSON({"twice": 2 * await socket.receiveJSON()})

        self.app.ws("/", double)
        socket = self.client.webSocket("/")
        socket.sendJSON(21)
        self.assertEqual(socket.receiveJSON(), {"twice": 42})
        socket.close()
        self.assertEqual(socket.closeCode, 1000)

    def test_malformed(self) -> None:
        """What is no JSON closes the WebSocket with 1007, and is no failure of the handler."""

        async def double(socket: WebSocket) -> None:
            while True:
                await socket.sendJSON(await socket.receiveJSON())

        async def forgive(socket: WebSocket) -> None:
            try:
                await socket.receiveJSON()
            except ValueError:
                await socket.send("again")

        self.app.ws("/", double).ws("/forgiving", forgive)
        for message in ("{", "", b"\xff", "[" * 5000, "1e999"):
            socket = self.client.webSocket("/")
            socket.send(message)
            self.assertEqual((socket.messages, socket.closeCode), ([], 1007), message)
            socket = self.client.webSocket("/forgiving")
            socket.send(message)
            self.assertEqual(socket.receive(), "again")
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_wrong(self) -> None:
        """What is no message, and no code of a close, is an error."""
        errors: list[str] = []

        async def handle(socket: WebSocket) -> None:
            for sending in (
                lambda: socket.send({"a": 1}),  # type: ignore[arg-type]
                lambda: socket.close(1005),
                lambda: socket.close(1000, "x" * 124),
                lambda: socket.sendJSON(object()),
            ):
                try:
                    await sending()
                except (TypeError, ValueError) as error:
                    errors.append(str(error))

        self.app.ws("/", handle)
        self.assertEqual(self.client.webSocket("/").closeCode, 1000)
        self.assertEqual(len(errors), 4)
        self.assertIn("sendJSON", errors[0])

    def test_broadcast(self) -> None:
        """A handler may send to the WebSockets of others."""
        room: set[WebSocket] = set()

        async def chat(socket: WebSocket) -> None:
            room.add(socket)
            try:
                async for message in socket:
                    for each in room:
                        await each.send(message)
            finally:
                room.discard(socket)

        self.app.ws("/", chat)
        one, two = self.client.webSocket("/"), self.client.webSocket("/")
        one.send("hello")
        self.assertEqual((one.receive(), two.receive()), ("hello", "hello"))
        two.close()
        self.assertEqual(len(room), 1)
        with self.assertRaisesRegex(NoMessage, "no message has come"):
            one.receive()

    def test_unread(self) -> None:
        """A client whose messages are not read has to wait, and is read again later."""
        sockets: list[WebSocket] = []
        waiting: Deferred[None] = Deferred()

        async def handle(socket: WebSocket) -> None:
            sockets.append(socket)
            await waiting
            await echo(socket)

        self.app.ws("/", handle)
        socket = self.client.webSocket("/")
        for _ in range(100):
            socket.send("x" * 5000)
        self.assertLess(sockets[0]._messages.held, HELD_BYTES + 6000)
        waiting.callback(None)
        self.assertEqual(len(socket.messages), 100)

    def test_closeUnread(self) -> None:
        """A close is complete although messages of the client were never read."""

        async def handle(socket: WebSocket) -> None:
            await waiting
            await socket.close(4000)
            closed.append(self.client.clock.seconds())

        closed: list[float] = []
        waiting: Deferred[None] = Deferred()
        self.app.ws("/", handle)
        socket = self.client.webSocket("/")
        for _ in range(100):
            socket.send("x" * 5000)
        waiting.callback(None)
        self.client.flush()
        self.assertEqual((socket.closeCode, closed), (4000, [0.0]))

    def test_slowClient(self) -> None:
        """The handler waits for a client that does not read."""
        sent: list[int] = []

        async def handle(socket: WebSocket) -> None:
            for number in range(100):
                await socket.send(b"x" * 10_000)
                sent.append(number)

        self.app.ws("/", handle)
        waiting: Deferred[None] = Deferred()
        socket = self.client.webSocket("/")
        self.assertEqual(len(socket.messages), 100)
        del sent[:], waiting
        socket = self.client.webSocket("/", reading=False)
        self.assertLess(len(sent), 20)
        socket.setReading(True)
        self.assertEqual((len(socket.messages), socket.closeCode), (100, 1000))

    def test_silentClient(self) -> None:
        """A client that answers no ping is dropped."""
        self.app.withOptions(ws={"pingSeconds": 10})
        self.app.ws("/", echo)
        socket = self.client.webSocket("/", reading=False)
        self.client.advance(31)
        self.assertTrue(socket.isGone)
        answering = self.client.webSocket("/")
        self.client.advance(100)
        self.assertTrue(answering.isOpen)

    def test_stubbornClient(self) -> None:
        """A client that sends no close of its own is dropped."""
        self.app.ws("/", lambda socket: socket.receive())
        socket = self.client.webSocket("/", reading=False)
        socket.send("end")
        self.assertFalse(socket.isGone)
        self.client.advance(CLOSE_SECONDS + 1)
        self.assertTrue(socket.isGone)

    def test_counts(self) -> None:
        """The application counts connections, messages and bytes."""
        self.app.ws("/", echo)
        socket = self.client.webSocket("/")
        socket.send("hello")
        counts = self.app.webSockets.counts
        self.assertEqual(
            (counts.accepted, counts.messagesIn, counts.messagesOut, counts.bytesIn > 5),
            (1, 1, 1, True),
        )
        self.assertEqual(self.app.webSockets.connections, 1)
        socket.close()
        self.assertEqual(self.app.webSockets.connections, 0)


class EndTests(Case):
    """What is left of a WebSocket: nothing."""

    def assertFreed(
        self, handler: Any, converse: Callable[[Any], Any], failures: int = 0, **options: Any
    ) -> None:
        """Check that socket and request are freed without the garbage collector."""
        references: list[ref[Any]] = []

        async def handle(socket: WebSocket) -> None:
            references.extend((ref(socket), ref(socket.request), ref(socket._messages)))
            await handler(socket)

        self.app.ws("/", handle, **options)
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        converse(self.client.webSocket("/"))
        self.client.advance(CLOSE_SECONDS + 1)
        # The log of the test holds the frames of an error.
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), failures)
        self.assertEqual([each() for each in references], [None, None, None])

    def sendFrame(self, socket: Any, opcode: int, payload: bytes) -> None:
        """Send one frame, valid or not."""
        socket._client.sendFrame(opcode=opcode, payload=payload)
        self.client.flush()

    def test_closed(self) -> None:
        """After a close of the client."""
        self.assertFreed(echo, lambda socket: (socket.send("a"), socket.close()))

    def test_dropped(self) -> None:
        """After a loss of the client."""
        self.assertFreed(echo, lambda socket: (socket.send("a"), socket.drop()))

    def test_returned(self) -> None:
        """After a handler that has returned."""
        self.assertFreed(lambda socket: socket.send("x"), lambda socket: socket.receive())

    def test_raised(self) -> None:
        """After a handler that has raised."""

        async def handle(socket: WebSocket) -> None:
            await socket.receive()
            raise KeyError

        self.assertFreed(handle, lambda socket: socket.send("x"), failures=1)

    def test_cancelled(self) -> None:
        """After a handler that was cancelled."""

        async def handle(socket: WebSocket) -> None:
            await Deferred()

        self.assertFreed(handle, lambda socket: socket.close(), cancelOnDisconnect=True)

    def test_closedByServer(self) -> None:
        """A handler that is cancelled because the server closes logs no error."""
        cancelled: list[str] = []

        async def handle(socket: WebSocket) -> None:
            try:
                await Deferred()
            finally:
                cancelled.append("now")

        self.app.ws("/", handle, cancelOnDisconnect=True)
        self.client.webSocket("/")
        self.app.webSockets.close(0)
        self.client.advance(CLOSE_SECONDS + 1)
        self.assertEqual(cancelled, ["now"])

    def test_tooLarge(self) -> None:
        """After a message that was too long."""
        self.app.withOptions(ws={"maxMessageSize": 10})
        self.assertFreed(echo, lambda socket: socket.send("x" * 11))

    def test_late(self) -> None:
        """Who reads or sends behind the end learns how it was."""
        found: list[Any] = []

        async def handle(socket: WebSocket) -> None:
            async for _ in socket:
                pass
            for attempt in (socket.receive, lambda: socket.send("x")):
                try:
                    await attempt()
                except WebSocketClosed as error:
                    found.append((error.code, error.reason))

        self.app.ws("/", handle)
        self.client.webSocket("/").close(4005, "bye")
        self.assertEqual(found, [(4005, "bye")] * 2)

    def test_echoedCode(self) -> None:
        """The close of a client is answered with its own code; a close without one, without one."""
        self.app.ws("/", echo)
        for code, reason in ((1000, ""), (3999, "\u00e9"), (4000, "bye")):
            socket = self.client.webSocket("/")
            socket.close(code, reason)
            self.assertEqual((socket.closeCode, socket.closeReason), (code, reason))
        socket = self.client.webSocket("/")
        self.sendFrame(socket, 0x8, b"")
        self.assertEqual((socket.closeCode, socket.isGone), (None, True))

    def test_violations(self) -> None:
        """A close that answers an invalid frame has the server's code, and its reason is text."""
        ends: list[Any] = []

        async def handle(socket: WebSocket) -> None:
            try:
                await socket.receive()
            except WebSocketClosed as error:
                ends.append((error.code, socket.closeCode, error.reason == socket.closeReason))
                self.assertIsInstance(socket.closeReason, str)
                self.assertNotIn("b'", str(error))

        self.app.withOptions(ws={"maxMessageSize": 10})
        self.app.ws("/", handle)
        for opcode, payload, code in (
            (0x1, b"\xff", 1007),
            (0x1, b"x" * 11, 1009),
            (0x3, b"", 1002),
            # A close with a code that no endpoint may send, and one whose reason is no UTF-8.
            (0x8, b"\x03\xed", 1002),
            (0x8, b"\x03\xe8\xff", 1007),
        ):
            socket = self.client.webSocket("/")
            self.sendFrame(socket, opcode, payload)
            self.assertEqual(ends.pop(), (code, code, True))
            self.assertEqual(socket.closeCode, code)

    def test_declinedOffer(self) -> None:
        """An offer of compression that cannot be met does not end the handshake."""
        self.app.withOptions(ws={"enableCompression": True})
        self.app.ws("/", echo)
        offer = {"Sec-WebSocket-Extensions": "permessage-deflate; server_max_window_bits=8"}
        socket = self.client.webSocket("/", headers=offer)
        socket.send("a" * 1000)
        self.assertEqual(socket.receive(), "a" * 1000)
        self.assertNotIn(b"permessage-deflate", socket.response.lower())

    def test_application(self) -> None:
        """The end of the application closes with 1001; the clients are waited for."""
        self.app.ws("/", echo)
        socket = self.client.webSocket("/")
        closing = self.app.close(10_000)
        self.assertNoResult(closing)
        self.client.flush()
        self.successResultOf(closing)
        self.assertEqual((socket.closeCode, json.dumps(socket.messages)), (1001, "[]"))
