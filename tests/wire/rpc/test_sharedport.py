"""gRPC on the port of HTTP: one listener, told apart by the content type."""

import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
from hyperframe.frame import SettingsFrame
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate import server
from storagegate.net.tls import readTLS
from tests.support.certificates import Authority
from tests.support.h2client import H2Client, H2Stream
from tests.wire.rpc.optioncase import struct

PATIENCE = 30.0
OK = grpc.StatusCode.OK


class SharedPortTests(TestCase):
    """An application of HTTP with the calls of one of gRPC."""

    timeout = 60

    async def serve(self, tls: Any = None) -> int:
        """Serve both; give the port."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.waiting: list[Deferred[None]] = []
        self.begun: Callable[[], object] = lambda: None
        self.rpc = server.grpc().withOptions(grpc={"reflection": True, "compression": "gzip"})
        self.rpc.addService(
            name="Probe",
            methods={
                "echo": lambda request: request,
                "wait": self.wait,
                "all": {"handler": self.all, "streaming": "bidirectional"},
            },
        )
        self.app = server.http().useRPC(self.rpc)
        self.app.tls = readTLS(tls)
        self.app.get("/text", lambda request, response: response.send("text"))
        self.app.post("/Probe/echo", lambda request, response: response.send("no call"))
        port: Any = await self.app.listen(0, "127.0.0.1")
        self.addCleanup(self.app.close, 0)
        return int(port.getHost().port)

    async def wait(self, request: Any) -> Any:
        """Answer when the test lets it."""
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        self.begun()
        await waiting
        return request

    async def all(self, requests: Any) -> Any:
        """Send back what comes."""
        async for request in requests:
            yield request

    async def test_taken(self) -> None:
        """Nothing is left of a port that could not be opened; another one serves."""
        port = await self.serve()
        other = server.http().useRPC(self.rpc)
        before = set(self.reactor.getDelayedCalls())
        with self.assertRaises(CannotListenError):
            await other.listen(port, "127.0.0.1")
        with self.assertRaises(ValueError):
            await other.listen("nothing:1")
        self.assertEqual(set(self.reactor.getDelayedCalls()) - before, set())
        free: Any = await other.listen(0, "127.0.0.1")
        self.addCleanup(other.close, 0)

        def call() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{free.getHost().port}") as channel:
                echo = channel.unary_unary("/Probe/echo")
                return echo(struct(a="b"), timeout=PATIENCE)

        self.assertEqual(await deferToThread(call), struct(a="b"))

    async def test_both(self) -> None:
        """A browser's requests and calls come on one port, the latter also on one connection."""
        port = await self.serve()

        def text() -> bytes:
            with urlopen(f"http://127.0.0.1:{port}/text", timeout=PATIENCE) as answer:
                return bytes(answer.read())

        self.assertEqual(await deferToThread(text), b"text")

        def use() -> list[H2Stream]:
            with H2Client(port) as client:
                usual = [(":method", "GET"), (":scheme", "http"), (":authority", "a")]
                page = client.begin("", headers=[*usual, (":path", "/text")], isEnded=True)
                call = client.begin("/Probe/echo")
                client.sendMessage(call, struct(a="b"), isLast=True)
                usual[0] = (":method", "POST")
                post = client.begin("", headers=[*usual, (":path", "/Probe/echo")], isEnded=True)
                return [client.finish(each) for each in (page, call, post)]

        page, call, post = await deferToThread(use)
        self.assertEqual((page.headers[":status"], page.body), ("200", b"text"))
        self.assertEqual((call.status, call.messages), (0, [(False, struct(a="b"))]))
        self.assertEqual(post.body, b"no call")

    async def test_grpcio(self) -> None:
        """Every kind of call works, with deadlines, and with health and reflection."""
        port = await self.serve()

        def use() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                unary = channel.unary_unary("/Probe/echo")(struct(a="b"), timeout=PATIENCE)
                stream = channel.stream_stream("/Probe/all")
                many = list(stream(iter([struct(n=n) for n in range(500)]), timeout=PATIENCE))
                late = channel.unary_unary("/Probe/wait").future(b"", timeout=0.1).code()
                health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=PATIENCE)
                return unary, len(many), late, health

        found = await deferToThread(use)
        late = grpc.StatusCode.DEADLINE_EXCEEDED
        self.assertEqual(found, (struct(a="b"), 500, late, b"\x08\x01"))

    async def test_tls(self) -> None:
        """One certificate serves both."""
        authority = Authority(Path(self.mktemp()))
        cert, key = authority.issue()
        port = await self.serve({"cert": cert, "key": key})
        roots = authority.path.read_bytes()

        def use() -> Any:
            context = ssl.create_default_context(cadata=roots.decode())
            with urlopen(
                f"https://localhost:{port}/text", timeout=PATIENCE, context=context
            ) as got:
                text = got.read()
            credentials = grpc.ssl_channel_credentials(roots)
            with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
                return text, channel.unary_unary("/Probe/echo")(struct(a="b"), timeout=PATIENCE)

        self.assertEqual(await deferToThread(use), (b"text", struct(a="b")))

    async def test_withoutCalls(self) -> None:
        """An application without gRPC answers its requests as those of HTTP."""
        app = server.http()
        app.post("/Probe/echo", lambda request, response: response.send("no call"))
        port: Any = await app.listen(0, "127.0.0.1")
        self.addCleanup(app.close, 0)

        def use() -> bytes:
            with H2Client(port.getHost().port) as client:
                return client.call("/Probe/echo", b"").body

        self.assertEqual(await deferToThread(use), b"no call")

    async def test_close(self) -> None:
        """A call in flight ends in the grace, and is cancelled after it."""
        for grace, status in ((20_000, OK), (100, grpc.StatusCode.UNAVAILABLE)):
            port = await self.serve()
            channel = grpc.insecure_channel(f"127.0.0.1:{port}")
            self.addCleanup(channel.close)
            call = channel.unary_unary("/Probe/wait").future(b"", timeout=PATIENCE)
            while not self.waiting:
                await deferLater(self.reactor, 0.001)
            closing = self.app.close(grace)
            if status == OK:
                await deferLater(self.reactor, 0.05)
                self.waiting[0].callback(None)
            self.assertEqual(await deferToThread(call.code), status)
            await closing
            self.assertEqual(self.rpc.activeCalls, 0)

    async def test_limits(self) -> None:
        """The limits of calls and messages are those of the gRPC application."""
        port = await self.serve()
        self.rpc.withOptions(grpc={"maxConcurrentRpcs": 1, "maxReceiveMessageLength": 100})
        other = server.http().useRPC(self.rpc)
        opened: Any = await other.listen(0, "127.0.0.1")
        self.addCleanup(other.close, 0)

        begun = threading.Event()
        self.begun = begun.set

        def use() -> list[Any]:
            with grpc.insecure_channel(f"127.0.0.1:{opened.getHost().port}") as channel:
                echo, wait = (channel.unary_unary(f"/Probe/{n}") for n in ("echo", "wait"))
                long = echo.future(struct(a="b" * 100), timeout=PATIENCE).code()
                held = wait.future(b"", timeout=PATIENCE)
                begun.wait(PATIENCE)
                refused = echo.future(b"", timeout=PATIENCE).code()
                held.cancel()
                return [long, refused]

        self.assertEqual(await deferToThread(use), [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2)
        self.assertNotEqual(port, opened.getHost().port)

    async def test_streams(self) -> None:
        """The open streams of a connection, and so its calls, are limited by HTTP's option."""
        await self.serve()
        self.rpc.withOptions(grpc={"maxConcurrentStreams": 1})
        other = server.http().useRPC(self.rpc).withOptions(http2MaxStreams=3)
        opened: Any = await other.listen(0, "127.0.0.1")
        self.addCleanup(other.close, 0)

        def use() -> list[Any]:
            with H2Client(opened.getHost().port) as client:
                settings = client.waitFor(SettingsFrame).settings
                calls = [client.begin("/Probe/all") for _ in range(4)]
                client.finish(calls[3])
                for call in calls[:3]:
                    client.sendMessage(call, struct(a="b"), isLast=True)
                    client.finish(call)
                return [settings[3], calls[3].resetCode, *[call.status for call in calls[:3]]]

        refused = 7
        self.assertEqual(await deferToThread(use), [3, refused, 0, 0, 0])
