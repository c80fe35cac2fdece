"""WebSocket routes of the framework over real sockets, with the client of websockets."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from storagegate.http import HTTPError, Router, session
from storagegate.http.websocket import HELD_BYTES, WebSocket, WebSocketClosed
from tests.support.selection import long
from tests.support.wsclient import FIELDS, TEXT, frame
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get

PATIENCE = 30
"""How long a client waits for anything, in seconds."""


async def echo(socket: WebSocket) -> None:
    """Send all messages back."""
    async for message in socket:
        await socket.send(message)


class RouteCase(AppServedCase):
    """Tests with an application on a real port."""

    timeout = 60

    async def talk(
        self, function: Callable[[ClientConnection], Any], path: str, **options: Any
    ) -> Any:
        """Connect a client, and run its side of the conversation in a thread."""
        if not hasattr(self, "port"):
            self.port = await self.listen()
        url = f"ws://127.0.0.1:{self.port.getHost().port}{path}"

        patience = {"open_timeout": PATIENCE, "close_timeout": PATIENCE}

        def run() -> Any:
            with connect(url, **{**patience, **options}) as socket:
                return function(socket)

        return await deferToThread(run)

    async def refused(self, path: str, **options: Any) -> Any:
        """Return the response to a client that becomes no WebSocket."""
        with self.assertRaises(InvalidStatus) as caught:
            await self.talk(lambda socket: None, path, **options)
        return caught.exception.response


def closed(socket: ClientConnection) -> tuple[int | None, str]:
    """Wait for the close of the server; return its code and its reason."""
    try:
        while True:
            socket.recv(PATIENCE)
    except ConnectionClosed as error:
        assert error.rcvd is not None, "the connection was dropped"
        return error.rcvd.code, error.rcvd.reason


class MessageTests(RouteCase):
    """Messages both ways."""

    async def test_echo(self) -> None:
        """Text comes as text and bytes as bytes, and goes back as it came."""
        self.app.ws("/echo", echo)

        def converse(socket: ClientConnection) -> list[Any]:
            for message in ("hello", b"\x00\xff", "\N{SNOWMAN}", "", b"", "x" * 300_000):
                socket.send(message)
            return [socket.recv(PATIENCE) for _ in range(6)]

        self.assertEqual(
            await self.talk(converse, "/echo"),
            ["hello", b"\x00\xff", "\N{SNOWMAN}", "", b"", "x" * 300_000],
        )

    async def test_request(self) -> None:
        """The request of the handshake has the parameters, the query, fields and cookies."""

        async def handle(socket: WebSocket) -> None:
            request = socket.request
            await socket.sendJSON(
                [request.params, request.query, request.get("x-team"), request.cookies]
            )

        self.app.ws("/chat/:room", handle)
        text = await self.talk(
            lambda socket: socket.recv(PATIENCE),
            "/chat/red?as=ada",
            additional_headers={"X-Team": "blue", "Cookie": "a=b"},
        )
        self.assertEqual(text, '[{"room":"red"},{"as":"ada"},"blue",{"a":"b"}]')

    async def test_end(self) -> None:
        """A handler that returns closes with 1000."""

        async def handle(socket: WebSocket) -> None:
            await socket.send("bye")

        self.app.ws("/", handle)
        self.assertEqual(await self.talk(closed, "/"), (1000, ""))

    async def test_close(self) -> None:
        """A handler closes with its own code and reason."""

        async def handle(socket: WebSocket) -> None:
            await socket.close(4001, "no such room")

        self.app.ws("/", handle)
        self.assertEqual(await self.talk(closed, "/"), (4001, "no such room"))

    async def test_clientCloses(self) -> None:
        """The iteration ends when the client closes; the code and the reason are known then."""
        ends: Deferred[Any] = Deferred()

        async def handle(socket: WebSocket) -> None:
            async for _message in socket:
                pass
            ends.callback((socket.closeCode, socket.closeReason))
            with self.assertRaises(WebSocketClosed):
                await socket.send("too late")

        self.app.ws("/", handle)

        def converse(socket: ClientConnection) -> tuple[int | None, str]:
            socket.close(4002, "enough")
            return closed(socket)

        # The server's close has the code of the client's.
        self.assertEqual(await self.talk(converse, "/"), (4002, "enough"))
        self.assertEqual(await ends, (4002, "enough"))

    async def test_dropped(self) -> None:
        """A client that is lost without a close ends the iteration, with 1006."""
        ends: Deferred[Any] = Deferred()

        async def handle(socket: WebSocket) -> None:
            async for _message in socket:
                pass
            ends.callback(socket.closeCode)

        self.app.ws("/", handle)
        await self.talk(lambda socket: socket.socket.shutdown(2), "/")
        self.assertEqual(await ends, 1006)

    async def test_error(self) -> None:
        """A handler that raises is logged, and its client gets 1011."""

        async def handle(socket: WebSocket) -> None:
            await socket.receive()
            raise ZeroDivisionError

        self.app.ws("/", handle)

        def converse(socket: ClientConnection) -> Any:
            socket.send("go")
            return closed(socket)

        self.assertEqual(await self.talk(converse, "/"), (1011, ""))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_tooLarge(self) -> None:
        """A message over the limit closes with 1009."""
        self.app.withOptions(ws={"maxMessageSize": "1kb"})
        self.app.ws("/", echo)

        def converse(socket: ClientConnection) -> Any:
            socket.send("x" * 1025)
            return closed(socket)[0]

        self.assertEqual(await self.talk(converse, "/"), 1009)

    async def test_subprotocol(self) -> None:
        """The first of the client's subprotocols that the route knows is spoken."""

        async def handle(socket: WebSocket) -> None:
            await socket.send(str(socket.subprotocol))

        self.app.ws("/", handle, subprotocols=["chat.v1", "chat.v2"])

        def converse(socket: ClientConnection) -> Any:
            return socket.subprotocol, socket.recv(PATIENCE)

        self.assertEqual(
            await self.talk(converse, "/", subprotocols=[Subprotocol("x"), Subprotocol("chat.v2")]),
            ("chat.v2", "chat.v2"),
        )
        self.assertEqual(await self.talk(converse, "/"), (None, "None"))

    async def test_compression(self) -> None:
        """Messages are compressed where the application wants that."""
        self.app.withOptions(ws={"enableCompression": True})
        self.app.ws("/", echo)

        def converse(socket: ClientConnection) -> Any:
            socket.send("a" * 10_000)
            return socket.recv(PATIENCE), [
                type(each).__name__ for each in socket.protocol.extensions
            ]

        self.assertEqual(await self.talk(converse, "/"), ("a" * 10_000, ["PerMessageDeflate"]))
        # A declined offer does not end the handshake.
        offer = ClientPerMessageDeflateFactory(server_max_window_bits=8)
        plain = await self.talk(converse, "/", compression=None, extensions=[offer])
        self.assertEqual(plain, ("a" * 10_000, []))


class RefusalTests(RouteCase):
    """Requests that become no WebSocket."""

    async def test_middleware(self) -> None:
        """Middleware before the handler may refuse, with an ordinary response."""

        def refuse(req: Any, res: Any, next: Any) -> None:
            if req.query.get("token") != "secret":
                raise HTTPError(401, "Who are you?")
            next()

        self.app.ws("/", refuse, echo)
        response = await self.refused("/")
        self.assertEqual((response.status_code, response.body), (401, b'{"error":"Who are you?"}'))
        self.assertIsNone(await self.talk(lambda socket: None, "/?token=secret"))

    async def test_noRoute(self) -> None:
        """Without a route it is 404."""
        self.app.ws("/chat", echo)
        self.assertEqual((await self.refused("/other")).status_code, 404)

    async def test_origin(self) -> None:
        """Pages of other hosts may not connect, unless they are allowed."""
        self.app.withOptions(ws={"allowedOrigins": ["https://app.example"]})
        self.app.ws("/", echo)
        response = await self.refused("/", origin="https://evil.example")
        self.assertEqual(response.status_code, 403)
        self.assertIsNone(await self.talk(lambda socket: None, "/", origin="https://app.example"))

    async def test_count(self) -> None:
        """There are so many at a time."""
        self.app.withOptions(ws={"maxConnections": 1})
        self.app.ws("/", echo)
        port = self.port = await self.listen()
        first = await deferToThread(connect, f"ws://127.0.0.1:{port.getHost().port}/")
        self.assertEqual((await self.refused("/")).status_code, 503)
        await deferToThread(first.close)
        self.assertIsNone(await self.talk(lambda socket: None, "/"))


class RouterTests(RouteCase):
    """Where routes are."""

    async def test_mounted(self) -> None:
        """A router has WebSocket routes, too, below the path that it is mounted at."""

        async def handle(socket: WebSocket) -> None:
            await socket.sendJSON([socket.request.baseUrl, socket.request.params])

        router = Router(mergeParams=True)
        router.ws(["/chat/:room", "/talk/:room"], handle)
        self.app.use("/teams/:team", router)
        text = await self.talk(lambda socket: socket.recv(PATIENCE), "/teams/7/talk/red")
        self.assertEqual(text, '["/teams/7",{"team":"7","room":"red"}]')

    async def test_sameAsGet(self) -> None:
        """A page and a WebSocket have the same path, whichever is registered first."""
        self.app.get("/one", self.answer)
        self.app.ws("/one", echo)
        self.app.ws("/two", echo)
        self.app.get("/two", self.answer)
        self.port = await self.listen()
        for path in ("/one", "/two"):
            self.assertIsNone(await self.talk(lambda socket: None, path))
            client = await self.connect(self.port)
            client.write(get(path.encode(), b"Connection: close"))
            self.assertTrue((await client.closed).endswith(b"served"))

    async def test_session(self) -> None:
        """The session is that of the cookie; a new one comes with the handshake."""
        self.app.use(session(secret="s", saveUninitialized=False))

        async def count(socket: WebSocket) -> None:
            session = socket.request.session
            await socket.send(str(session.get("visits")))
            session["visits"] = session.get("visits", 0) + 1
            await session.save()

        def visit(req: Any, res: Any, next: Any) -> None:
            req.session["here"] = True
            next()

        self.app.ws("/", visit, count)

        def converse(socket: ClientConnection) -> Any:
            first = socket.recv(PATIENCE)
            closed(socket)
            assert socket.response is not None
            return first, socket.response.headers.get("Set-Cookie")

        first, cookie = await self.talk(converse, "/")
        self.assertEqual(first, "None")
        again = {"Cookie": cookie.partition(";")[0]}
        self.assertEqual((await self.talk(converse, "/", additional_headers=again))[0], "1")


class FlowTests(RouteCase):
    """Clients and handlers that are slow, and the end of the server."""

    async def test_slowHandler(self) -> None:
        """A client whose messages are not read is not read either, beyond a bound."""
        went: Deferred[None] = Deferred()
        sockets: list[WebSocket] = []

        async def handle(socket: WebSocket) -> None:
            sockets.append(socket)
            await went
            async for message in socket:
                if message == "last":
                    await socket.send("all")

        self.app.ws("/", handle)
        self.port = await self.listen()

        def flood(socket: ClientConnection) -> Any:
            for _ in range(2000):
                socket.send("x" * 10_000)
            socket.send("last")
            return socket.recv(PATIENCE)

        answer = deferToThread(
            lambda: connect(f"ws://127.0.0.1:{self.port.getHost().port}/").__enter__()
        )
        client = await answer
        talking = deferToThread(flood, client)
        before = -1
        while not sockets or before != sockets[0]._messages.held or not before:
            before = sockets[0]._messages.held if sockets else -1
            await deferLater(self.reactor, 0.2)
        self.assertLess(before, HELD_BYTES + 20_000)
        went.callback(None)
        self.assertEqual(await talking, "all")
        await deferToThread(client.close)

    @long("takes seconds")
    async def test_slowClient(self) -> None:
        """The sender waits for a client that does not read, which is dropped after two pings."""
        sent = 0
        gone: Deferred[None] = Deferred()

        async def handle(socket: WebSocket) -> None:
            nonlocal sent
            try:
                while True:
                    await socket.send(b"x" * 100_000)
                    sent += 1
            finally:
                gone.callback(None)

        self.app.withOptions(ws={"pingSeconds": 1})
        self.app.ws("/", handle)
        port = await self.listen()
        client = await self.connect(port)
        client.pause()
        client.write(
            get(b"/", *(b"%b: %b" % field for field in FIELDS.items() if field[0] != b"host"))
        )
        await gone
        self.assertLess(sent, 500)

    @long("takes seconds")
    async def test_fast(self) -> None:
        """A handler that only sends lets others have their turn."""

        async def handle(socket: WebSocket) -> None:
            while True:
                await socket.send("x")

        self.app.ws("/", handle)
        self.app.get("/page", self.answer)
        self.port = await self.listen()

        def drain(socket: ClientConnection) -> int:
            return sum(len(socket.recv(PATIENCE)) for _ in range(500))

        # The client does not read the rest, so it never sees the end of its close.
        talking = self.talk(drain, "/", close_timeout=0.1)
        client = await self.connect(self.port)
        client.write(get(b"/page", b"Connection: close"))
        self.assertTrue((await client.closed).endswith(b"served"))
        self.assertEqual(await talking, 500)

    async def test_shutdown(self) -> None:
        """The end of the application closes with 1001, and waits for the clients."""
        self.app.ws("/", echo)
        self.port = await self.listen()
        talking = Deferred.fromCoroutine(self.talk(closed, "/"))
        while not self.app.webSockets.connections:
            await deferLater(self.reactor, 0.01)
        await self.app.close(5000)
        self.assertEqual(await talking, (1001, ""))
        self.assertEqual(self.app.webSockets.connections, 0)

    async def test_cancelled(self) -> None:
        """A handler that waits for something else is cancelled with its client where it says so."""
        ends: Deferred[str] = Deferred()

        async def handle(socket: WebSocket) -> None:
            try:
                await Deferred()
            finally:
                ends.callback("cancelled")

        self.app.ws("/", handle, cancelOnDisconnect=True)
        await self.talk(lambda socket: None, "/")
        self.assertEqual(await ends, "cancelled")

    async def test_behindHandshake(self) -> None:
        """Messages that come in one piece with the handshake are read."""
        self.app.ws("/", echo)
        client = await self.connect(await self.listen())
        fields = (b"%b: %b" % field for field in FIELDS.items() if field[0] != b"host")
        client.write(get(b"/", *fields) + frame(TEXT, b"hello"))
        await client.until(lambda received: received.endswith(b"\x81\x05hello"))
        client.drop()
