"""Clients of other libraries on the native engine: long messages, metadata, ends in mid-call."""

import asyncio
import json
import os
import random
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import grpc.aio
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.protos import loadProto
from tests.support.h2client import H2Client
from tests.support.interop.cases import PROTO
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import CONNECT, nodeModules
from tests.support.rpcroutes import textService
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

PATIENCE = 30.0
LONGEST = (4 << 20) - 5

OK = grpc.StatusCode.OK


class EchoService:
    """
    Handlers that give back what comes.

    @ivar waiting: The number of handlers that have begun to wait.
    @ivar cancelled: The number of those that were cancelled.
    """

    def __init__(self) -> None:
        self.waiting = self.cancelled = 0

    def unary(self, call: Any) -> str:
        """Give the request and its metadata back."""
        entries = [(k, v) for k, v in call.metadata if k.startswith("x-")]
        call.sendMetadata(_grouped(entries))
        call.setTrailers(_grouped(entries))
        return str(call.request)

    async def chat(self, call: Any) -> AsyncIterator[str]:
        """Give each message back, and one more at the end."""
        async for request in call:
            yield request
        yield "end"

    async def upload(self, call: Any) -> str:
        """Count the characters."""
        return str(sum([len(request) async for request in call]))

    async def waits(self, call: Any) -> str:
        """Wait until it is cancelled."""
        self.waiting += 1
        try:
            await Deferred()
        finally:
            self.cancelled += 1
        return ""


def _grouped(entries: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, value in entries:
        found.setdefault(name, []).append(value)
    return found


class ClientCase(RPCCase):
    """A server on the native engine."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        self.service = EchoService()
        definition = textService(Unary="none", Waits="none", Upload="client", Chat="bidirectional")
        options = {"health": False, "engine": "native", "maxMetadataSize": "64kb"}
        options["compression"] = "gzip"
        self.app = server.grpc().withOptions(grpc={**options, **self.options()})
        self.app.addService(definition=definition, implementation=self.service)
        self.port = await self.listen(self.app)

    def options(self) -> dict[str, Any]:
        """Give more options."""
        return {}


class GrpcAioTests(ClientCase):
    """C{grpc.aio}, whose loop runs in a thread."""

    async def use(self, ask: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        """Use a connection."""
        large = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        large.append(("grpc.max_metadata_size", 1 << 20))

        async def run() -> Any:
            address = f"127.0.0.1:{self.port}"
            async with grpc.aio.insecure_channel(address, large, **options) as channel:
                return await ask(channel)

        return await deferToThread(asyncio.run, run())

    async def test_long(self) -> None:
        """A message of 4 MiB goes both ways, plain and compressed; a longer one is refused."""
        text = random.Random(1).randbytes(LONGEST // 2).hex().encode()[:LONGEST]

        async def ask(channel: Any) -> Any:
            unary = channel.unary_unary("/test.Service/Unary")
            whole = await unary(text, timeout=PATIENCE)
            call = unary(text + b"x" * 10, timeout=PATIENCE)
            return whole == text, await call.code()

        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            found = await self.use(ask, compression=compression)
            self.assertEqual(found, (True, grpc.StatusCode.RESOURCE_EXHAUSTED))

    async def test_longStream(self) -> None:
        """Long messages of a stream come whole, with others between them."""
        texts = [b"x" * size for size in (0, 1, LONGEST, 3, 1 << 20, 100_000, 0)]

        async def ask(channel: Any) -> Any:
            call = channel.stream_stream("/test.Service/Chat")(timeout=PATIENCE)
            found = []
            for text in texts:
                await call.write(text)
                found.append(await call.read())
            await call.done_writing()
            return found, await call.read(), await call.code()

        self.assertEqual(await self.use(ask), (texts, b"end", OK))

    async def test_metadata(self) -> None:
        """Metadata of many kilobytes comes and goes, bytes among it."""
        metadata = [
            ("x-long", "v" * 20_000),
            ("x-raw-bin", bytes(range(256)) * 40),
            ("x-many", "1"),
            ("x-many", "2"),
            ("x-empty", ""),
        ]

        async def ask(channel: Any) -> Any:
            call = channel.unary_unary("/test.Service/Unary")(b"", metadata=metadata)
            return [
                sorted((k, v) for k, v in each if k.startswith("x-"))
                for each in (await call.initial_metadata(), await call.trailing_metadata())
            ]

        self.assertEqual(await self.use(ask), [sorted(metadata)] * 2)

    async def test_cancel(self) -> None:
        """A call that its client cancels, or whose deadline passes, ends its handler."""

        async def ask(channel: Any) -> Any:
            waits = channel.unary_unary("/test.Service/Waits")
            seconds = 0.2
            while not self.service.waiting:
                # On a busy machine a deadline may pass before the handler has begun.
                late = await waits(b"", timeout=seconds).code()
                seconds *= 4
            before = self.service.waiting
            call = waits(b"")
            while self.service.waiting == before:
                await asyncio.sleep(0.001)
            call.cancel()
            return late, await call.code()

        expected = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED
        self.assertEqual(await self.use(ask), expected)
        while self.app.activeCalls:
            await deferLater(self.reactor, 0.001)
        self.assertGreaterEqual(self.service.cancelled, 2)
        self.assertEqual(self.service.cancelled, self.service.waiting)

    async def test_many(self) -> None:
        """A thousand calls at a time, of all kinds, have their own answers."""

        async def ask(channel: Any) -> Any:
            unary = channel.unary_unary("/test.Service/Unary")
            upload = channel.stream_unary("/test.Service/Upload")

            async def call(number: int) -> bool:
                text = str(number).encode()
                if number % 2:
                    return bool(await unary(text, timeout=PATIENCE) == text)
                return bool(
                    await upload(iter([text] * 3), timeout=PATIENCE) == b"%d" % (3 * len(text))
                )

            return await asyncio.gather(*map(call, range(1000)))

        self.assertEqual(await self.use(ask), [True] * 1000)


class GoAwayTests(ClientCase):
    """A connection whose age ends while a client works on it."""

    def options(self) -> dict[str, Any]:
        """End connections early."""
        return {"maxConnectionAge": 50, "maxConnectionAgeGrace": 20_000}

    async def test_calls(self) -> None:
        """Calls are made one after the other while connections end, and none is lost."""

        def use() -> set[Any]:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                unary = channel.unary_unary("/test.Service/Unary")
                return {unary.future(b"", timeout=PATIENCE).code() for _ in range(500)}

        self.assertEqual(await deferToThread(use), {OK})

    async def test_stream(self) -> None:
        """A stream that is open meanwhile goes on to its end."""

        def use() -> Any:
            with H2Client(self.port) as client:
                stream = client.begin("/test.Service/Chat")
                goodbye = client.goAway()
                assert goodbye is not None
                client.sendMessage(stream, b"late")
                # Half-closed: the server still sends.
                client.sendData(stream, b"", isLast=True)
                client.finish(stream)
                client.readToEnd()
                return stream.status, stream.messages

        expected = (0, [(False, b"late"), (False, b"end")])
        self.assertEqual(await deferToThread(use), expected)


@long("runs Node and npm")
class ConnectTests(RPCCase):
    """C{@connectrpc/connect-node} over gRPC."""

    async def test_calls(self) -> None:
        """Calls of all its kinds, metadata, statuses, deadlines and cancels are right."""
        port = await self.serveInterop(engine="native")
        definition = loadProto(str(PROTO)).TestService
        descriptor = b64encode(definition.file.serialized_pb).decode()

        def run() -> Any:
            done = subprocess.run(
                ["node", str(CHECKOUT / "tests/support/connectclient.js"), str(port), descriptor],
                env={**os.environ, "NODE_PATH": str(nodeModules(*CONNECT))},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            return json.loads(done.stdout or json.dumps(done.stderr))

        self.assertEqual(
            await deferToThread(run),
            {
                "large": 314159,
                "sum": 27182 + 8 + 1828 + 45904,
                "sizes": [31415, 9, 2653, 58979],
                "initial": "first",
                "trailing": "q6ur",
                "status": "Unknown: test status ä",
                "late": "DeadlineExceeded",
                "cancelled": "Canceled",
            },
        )
