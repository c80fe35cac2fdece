"""WebSocket over real sockets, with clients that others wrote."""

import json
import os
import ssl
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

import tests.support
from storagegate.gateway.host import TransportContext
from storagegate.gateway.transports.websocket import WebSocketOptions
from storagegate.gateway.transports.websocket.listener import WebSocketTransport
from storagegate.http.application import Application
from tests.support.gateway import TOKEN, makeHost
from tests.support.nodepackages import INSTALL_SECONDS, nodeModules
from tests.support.selection import long
from tests.support.wsclient import BINARY, FIELDS, TEXT, frame, readFrames
from tests.wire.http.support import RawClient, ServedCase, get
from tests.wire.http.tls import makeCertificate

NODE_SECONDS = 60

PATIENCE = 45
"""How long a client waits for anything, in seconds."""

# What a kernel holds of a connection that nobody reads, both ends together, and more.
KERNEL_BYTES = 16 * 1024 * 1024


class LiveCase(ServedCase):
    """Tests with an application that has WebSockets."""

    timeout = 60

    def setUp(self) -> None:
        """Find the reactor."""
        super().setUp()
        self.adapters: list[WebSocketTransport] = []

    async def open(
        self, services: Any = (), description: str = "tcp:0:interface=127.0.0.1", **options: Any
    ) -> str:
        """Serve; give where."""
        made, self.probe = makeHost(self.reactor, services)
        self.host = TransportContext(made.invoker, self.reactor, deferToThread)
        app = Application()
        given = WebSocketOptions(**options)
        adapter = WebSocketTransport(self.host, given)
        app.all(given.path or "/", adapter.answer)
        self.adapters.append(adapter)
        self.port = await app.listen(description, reactor=self.reactor)
        self.addCleanup(lambda: maybeDeferred(app.close, 0))
        self.addCleanup(adapter.close, 0)
        return f"127.0.0.1:{self.port.getHost().port}"

    async def talk(self, function: Callable[..., Any], place: str, **options: Any) -> Any:
        """Run one side of a conversation in a thread."""

        def run() -> Any:
            with patient(f"ws://{place}/ws", **options) as socket:
                return function(socket)

        return await deferToThread(run)

    async def raw(self, *more: bytes) -> RawClient:
        """
        Connect a client that says what it likes.

        @param more: Further fields of its handshake.
        """
        client = await self.connect(self.port)
        fields = [name + b": " + value for name, value in FIELDS.items() if name != b"host"]
        client.write(get(b"/ws", *fields, *more))
        await client.until(b"\r\n\r\n")
        client.received = b""
        return client


def patient(url: str, **options: Any) -> ClientConnection:
    """Connect; nobody is given up for standing still a while."""
    return connect(
        url, open_timeout=PATIENCE, close_timeout=PATIENCE, ping_interval=None, **options
    )


def call(method: str, data: Any = None, id: Any = 1, **more: Any) -> dict[str, Any]:
    """Make the message of a call."""
    given = {} if data is None else {"data": data}
    return {"id": id, "service": "Probe", "method": method, **given, **more}


def text(message: Any) -> bytes:
    """Write a message as a frame of text."""
    return frame(TEXT, json.dumps(message).encode())


class PythonClientTests(LiveCase):
    """The client C{websockets}, which shares nothing with Autobahn."""

    async def test_json(self) -> None:
        """Every kind of call works, and compressed as that client offers it."""

        def converse(socket: ClientConnection) -> list[Any]:
            def ask(*messages: Any) -> Any:
                for message in messages:
                    socket.send(json.dumps(message))
                return json.loads(socket.recv())

            heard = [ask(call("echo", {"text": "x" * 5000 + str(i)}))["data"] for i in range(20)]
            self.assertEqual([each["text"][5000:] for each in heard], [str(i) for i in range(20)])
            socket.send(json.dumps(call("count", {"to": 2})))
            self.assertEqual(
                [json.loads(socket.recv())["type"] for _ in range(3)],
                ["stream", "stream", "stream_end"],
            )
            item = {"id": 1, "type": "stream", "data": {"text": "a"}}
            collected = ask(call("collect"), item, item, {"id": 1, "type": "stream_end"})
            self.assertEqual(collected["data"], {"texts": ["a", "a"]})
            self.assertEqual(ask(call("chat"), item)["data"], {"text": "A"})
            answer = ask(call("private", id=2, auth={"token": TOKEN}))
            self.assertEqual(answer["data"]["address"], "127.0.0.1")
            self.assertEqual(ask({"id": [3]})["error"]["code"], "INVALID_ARGUMENT")
            self.assertTrue(socket.ping().wait(PATIENCE))
            return [socket.subprotocol, [each.name for each in socket.protocol.extensions]]

        place = await self.open(enableCompression=True)
        agreed = await self.talk(converse, place)
        self.assertEqual(agreed, [None, ["permessage-deflate"]])
        await self.turnUntil(lambda: not self.adapters[0].connections)

    async def test_msgpack(self) -> None:
        """MessagePack by another implementation is understood, and understands."""

        def converse(socket: ClientConnection) -> Any:
            socket.send(msgpack.packb(call("echo", {"chunk": b"\0\xff"})))
            return socket.subprotocol, msgpack.unpackb(socket.recv())["data"]

        place = await self.open()
        heard = await self.talk(converse, place, subprotocols=[Subprotocol("msgpack")])
        self.assertEqual(heard, ("msgpack", {"chunk": b"\0\xff"}))

    async def test_binary(self) -> None:
        """Frames of TCP go in messages of bytes."""

        def converse(socket: ClientConnection) -> Any:
            payload = json.dumps(call("echo", [1])).encode()
            socket.send(b"\x01\x01" + len(payload).to_bytes(4, "big") + payload)
            return socket.recv()

        place = await self.open()
        heard = await self.talk(converse, place, subprotocols=[Subprotocol("binary")])
        self.assertEqual((heard[:2], json.loads(heard[6:])), (b"\x01\x02", {"id": 1, "data": [1]}))

    @long("takes seconds")
    async def test_tooLarge(self) -> None:
        """A message of 2 MiB, and one that inflates to 200 MiB, are closed on with 1009."""

        def tooLarge(socket: ClientConnection) -> int | None:
            with self.assertRaises(ConnectionClosed) as caught:
                socket.send("*" * (2 << 20))
                socket.recv()
            received = caught.exception.rcvd
            return received.code if received else None

        def bomb(socket: ClientConnection) -> int | None:
            with self.assertRaises(ConnectionClosed) as caught:
                socket.send(bytes(200 << 20), text=False)
                socket.recv()
            received = caught.exception.rcvd
            return received.code if received else None

        place = await self.open(enableCompression=True)
        self.assertEqual(await self.talk(tooLarge, place, compression=None), 1009)
        self.assertEqual(await self.talk(bomb, place), 1009)

    async def test_refused(self) -> None:
        """Foreign pages get 403, other paths 404, whoever asks for no upgrade 426."""

        def status(url: str, **options: Any) -> int:
            with self.assertRaises(InvalidStatus) as caught, patient(url, **options):
                pass
            return caught.exception.response.status_code

        place = await self.open(allowedOrigins=["https://app.example.com"])
        url = f"ws://{place}/ws"
        for origin in ("https://evil.example.com", "null", f"http://{place}"):
            self.assertEqual(await deferToThread(status, url, origin=origin), 403)
        self.assertEqual(await deferToThread(status, f"ws://{place}/other"), 404)
        await self.talk(lambda socket: None, place, origin="https://app.example.com:443")
        client = await self.connect(self.port)
        client.write(get(b"/ws"))
        answer = await client.until(b"}")
        self.assertIn(b"HTTP/1.1 426 ", answer)
        self.assertIn(b"Upgrade: websocket\r\n", answer)
        # The connection is HTTP's still.
        client.received = b""
        client.write(get(b"/ws", method=b"POST"))
        self.assertIn(b"HTTP/1.1 405 ", await client.until(b"}"))

    async def test_tokenOfTheURL(self) -> None:
        """A token in the URL, which ends up in logs, lets nobody in."""

        def ask() -> Any:
            with patient(f"ws://{place}/ws?token={TOKEN}&auth.token={TOKEN}") as socket:
                socket.send(json.dumps(call("private")))
                return json.loads(socket.recv())

        place = await self.open()
        self.assertEqual((await deferToThread(ask))["error"]["code"], "UNAUTHENTICATED")

    async def test_tls(self) -> None:
        """It works over TLS, where only pages that came over it are the host's own."""
        certificate = makeCertificate(self.mktemp())
        place = await self.open(description=f"ssl:0:interface=127.0.0.1:privateKey={certificate}")
        context = ssl.create_default_context(cafile=certificate)
        url = f"wss://localhost:{place.partition(':')[2]}/ws"

        def ask(**options: Any) -> Any:
            with patient(url, ssl=context, **options) as socket:
                socket.send(json.dumps(call("echo", "x" * 300_000)))
                return json.loads(socket.recv())

        self.assertEqual(len((await deferToThread(ask))["data"]), 300_000)
        own = f"https://localhost:{place.partition(':')[2]}"
        self.assertEqual((await deferToThread(ask, origin=own))["id"], 1)
        with self.assertRaises(InvalidStatus):
            await deferToThread(ask, origin=own.replace("https", "http"))

    async def test_stop(self) -> None:
        """At the end a call in flight is answered, then the close says that the server goes."""
        begun: Deferred[None] = Deferred()

        async def begin(request: Any, context: Any) -> Any:
            begun.callback(None)
            await deferLater(self.reactor, 0.3)
            return "done"

        def converse(socket: ClientConnection) -> Any:
            socket.send(json.dumps({"id": 1, "service": "Long", "method": "begin"}))
            answer = json.loads(socket.recv())
            with self.assertRaises(ConnectionClosed) as caught:
                socket.recv()
            received = caught.exception.rcvd
            return answer["data"], received.code if received else None

        place = await self.open([{"name": "Long", "methods": {"begin": begin}}])
        talking = self.talk(converse, place)
        task = Deferred.fromCoroutine(talking)
        await begun
        await self.adapters[0].close(10)
        self.assertEqual(await task, ("done", 1001))


class NodeTests(LiveCase):
    """Node's C{ws}, for which a package may have to be fetched."""

    timeout = INSTALL_SECONDS + NODE_SECONDS + 20

    @long("takes seconds")
    async def test_conversation(self) -> None:
        """Every kind of call works with that client, compressed."""
        modules = await deferToThread(nodeModules)
        place = await self.open(enableCompression=True)
        script = Path(tests.support.__file__).with_name("wsnodeclient.js")

        def run() -> Any:
            return subprocess.run(
                ["node", str(script), f"ws://{place}/ws"],
                env={**os.environ, "NODE_PATH": str(modules)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=NODE_SECONDS,
                check=False,
            )

        done = await deferToThread(run)
        self.assertEqual(done.stderr, b"")
        said = json.loads(done.stdout)
        self.assertEqual((said["protocol"], said["extensions"]), ("json", "permessage-deflate"))
        self.assertEqual(said["code"], 1000)
        heard: dict[str, list[Any]] = {}
        for message in said["heard"]:
            heard.setdefault(message.get("id"), []).append(message)
        self.assertEqual(len(heard["echo"][0]["data"]["text"]), 5000)
        self.assertEqual(len(heard["count"]), 4)
        self.assertEqual(heard["collect"][0]["data"], {"texts": ["a", "b"]})
        chat = [each["data"] for each in heard["chat"] if "data" in each]
        self.assertEqual(chat, [{"text": "A"}, {"text": "goodbye"}])
        self.assertNotIn("slow", heard)
        self.assertEqual(heard[None][0]["error"]["code"], "INVALID_ARGUMENT")


class PressureTests(LiveCase):
    """Clients that say too much, or read too little."""

    async def test_pipelined(self) -> None:
        """Thousands of calls in one go are all answered, in pieces as they are read."""
        await self.open()
        client = await self.raw()
        count = 5000
        client.write(b"".join(text(call("echo", id=number)) for number in range(count)))

        def all(received: bytes) -> bool:
            return received.count(b'"response"') == count

        frames, rest = readFrames(await client.until(all))
        self.assertEqual([json.loads(each.payload)["id"] for each in frames], list(range(count)))
        self.assertEqual(rest, b"")

    @long("takes seconds")
    async def test_slowReader(self) -> None:
        """A stream goes no further than its reader, others are served, and nothing is lost."""
        # A quarter more than a kernel holds; the client copies all that has come for each read.
        size, count, given = 50_000, 400, [0]

        async def large(request: Any, context: Any) -> Any:
            for number in range(count):
                given[0] = number
                yield {"number": number, "pad": "*" * size}

        place = await self.open([{"name": "Large", "methods": {"give": large}}])
        client = await self.raw()
        client.pause()
        client.write(text({"id": 1, "service": "Large", "method": "give"}))
        before = -1
        # Until nothing has moved for a while.
        while before != given[0]:
            before = given[0]
            await deferLater(self.reactor, 0.3)
        self.assertLess(given[0] * size, KERNEL_BYTES)

        def others(socket: ClientConnection) -> list[str]:
            said = []
            for _ in range(20):
                socket.send(json.dumps(call("echo")))
                said.append(json.loads(socket.recv())["type"])
            return said

        self.assertEqual(await self.talk(others, place), ["response"] * 20)
        self.assertLess(given[0] * size, KERNEL_BYTES)
        client.resume()
        received = await client.until(lambda received: b"stream_end" in received[-100:])
        frames, _ = readFrames(received)
        numbers = [json.loads(each.payload)["data"]["number"] for each in frames[:-1]]
        self.assertEqual(numbers, list(range(count)))

    async def test_gone(self) -> None:
        """A client that drops its connection ends its calls."""
        await self.open()
        client = await self.raw()
        client.write(text(call("slow", {})) + text(call("count", {"hang": True}, id=2)))
        await self.turnUntil(lambda: "slow" in self.probe.begun)
        await client.until(b'"number":2')
        client.drop()
        await self.turnUntil(lambda: len(self.probe.cancelled) == 2)
        self.assertEqual(self.adapters[0].connections, 0)

    async def test_failedSender(self) -> None:
        """A client that goes on sending what is refused reads the reason, and is not reset."""
        await self.open()
        client = await self.raw()
        client.write(frame(3) + bytes(100_000))
        frames, _ = readFrames(await client.until(lambda received: len(received) > 4))
        self.assertEqual(frames[0].code, 1002)
        for _ in range(20):
            client.write(bytes(50_000))
            await deferLater(self.reactor, 0.01)
        client.transport.loseConnection()
        await client.closed
        self.assertFalse(client.reset)
        await self.turnUntil(lambda: not self.adapters[0].connections)

    @long("takes a second or more")
    async def test_bombByHand(self) -> None:
        """204 kB that inflate to 200 MiB are cut off at the limit of a message."""
        compressor = zlib.compressobj(wbits=-15)
        bomb = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(200))
        bomb += compressor.flush(zlib.Z_SYNC_FLUSH)[:-4]
        await self.open(enableCompression=True)
        client = await self.raw(b"Sec-WebSocket-Extensions: permessage-deflate")
        client.write(frame(BINARY, bomb, rsv=4))
        frames, _ = readFrames(await client.until(lambda received: len(received) > 4))
        self.assertEqual(frames[0].code, 1009)
