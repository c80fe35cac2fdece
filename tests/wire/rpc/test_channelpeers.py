"""A client on the native engine beside servers of others; grpcio's has the cases of clients."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.core.errors import GrpcError
from storagegate.rpc.client import createGrpcClient
from storagegate.rpc.protos import loadProto
from tests.support.daemon import daemonEnvironment
from tests.support.grpcioserver import ECHO
from tests.support.memory import residentMemory
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import nodeModules
from tests.support.selection import long
from tests.wire.rpc.clientcase import openCalls, until

LONGEST = (4 << 20) - 100
"""A little less than the longest message, for the other fields of a parcel."""


class PeerCase(TestCase):
    """
    A server in a process of its own.

    @cvar command: Starts it.
    """

    timeout = 120
    command: tuple[str, ...] = ()

    def start(self) -> "subprocess.Popen[str]":
        """Start the server. Blocks."""
        return subprocess.Popen(
            self.command,
            cwd=CHECKOUT,
            env=daemonEnvironment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def setUp(self) -> None:
        """Start the server, and make a client of it."""
        process = await deferToThread(self.start)
        self.addCleanup(deferToThread, process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.port = int(await deferToThread(process.stdout.readline))
        self.client = self.connect()

    def connect(self, **options: Any) -> Any:
        """Make a client."""
        client = createGrpcClient(
            f"127.0.0.1:{self.port}",
            "insecure",
            loadProto(ECHO).Echo,
            options={"engine": "native", **options},  # type: ignore[typeddict-item]
        )
        self.addCleanup(client.close)
        return client


class PeerCases:
    """What the client does with each server."""

    client: Any

    def connect(self, **options: Any) -> Any: ...

    def assertEqual(self, first: Any, second: Any) -> None: ...

    def assertLess(self, first: Any, second: Any) -> None: ...

    async def refused(self, waiting: Any) -> GrpcError:
        """Return the error of a call."""
        try:
            await waiting
        except GrpcError as error:
            return error
        raise AssertionError("the call has not failed")

    async def test_kinds(self) -> None:
        """All kinds of calls, with thousands of messages."""
        client = self.client
        self.assertEqual(await client.send(text="ä", count=5), {"text": "ä", "count": 5})
        counts = [each.get("count", 0) async for each in client.split(count=2000)]
        self.assertEqual(counts, [*range(2000)])
        texts = [str(number) for number in range(2000)]
        joined = await client.join({"text": each} for each in texts)
        self.assertEqual((joined["count"], joined["seen"]), (2000, texts))
        back = [each["text"] async for each in client.chat({"text": each} for each in texts)]
        self.assertEqual(back, texts)
        self.assertEqual(await client.join([]), {})
        self.assertEqual([each async for each in client.split()], [])

    async def test_long(self) -> None:
        """Messages of four megabytes go both ways, also several at once."""
        body = os.urandom(LONGEST)
        self.assertEqual((await self.client.send(body=body))["body"], body)
        async for each in self.client.split(count=4, body=body):
            self.assertEqual(each["body"], body)
        calls = [self.client.send(body=body[: 1 << 20]) for _ in range(8)]
        for call in calls:
            self.assertEqual((await call)["body"], body[: 1 << 20])

    async def test_compressed(self) -> None:
        """Messages are compressed in both directions."""
        for algorithm in ("gzip", "deflate"):
            client = self.connect(compression=algorithm)
            text = "x" * 100_000
            self.assertEqual(await client.send(text=text), {"text": text})
            back = [each["text"] async for each in client.chat([{"text": text}] * 5)]
            self.assertEqual(back, [text] * 5)

    async def test_metadata(self) -> None:
        """Metadata come back at both ends."""
        given = {"x-name": "a", "x-raw-bin": b"\0\xff\x80"}
        call = self.client.send(text="x", metadata=given)
        await call
        for received in (await call.initialMetadata(), await call.trailers()):
            self.assertEqual({key: received.get(key)[0] for key in given}, given)

    async def test_errors(self) -> None:
        """Statuses and their texts arrive; so do the messages before them."""
        error = await self.refused(self.client.send(text="fail").deferred())
        self.assertEqual((error.statusName, error.message), ("NOT_FOUND", "no such thing: ä"))
        seen = []

        async def take() -> None:
            async for each in self.client.split(text="fail", count=50):
                seen.append(each.get("count", 0))

        error = await self.refused(take())
        self.assertEqual((error.message, seen), ("no more", [*range(50)]))

    async def test_ends(self) -> None:
        """Deadlines and cancellations end calls, and the connection goes on."""
        error = await self.refused(self.client.send(text="wait", deadlineMs=100).deferred())
        self.assertEqual(error.statusName, "DEADLINE_EXCEEDED")
        for _ in range(50):
            call = self.client.send(text="wait")
            call.cancel()
            error = await self.refused(call.deferred())
            self.assertEqual(error.statusName, "CANCELLED")
        self.assertEqual(await self.client.send(text="x"), {"text": "x"})

    async def test_many(self) -> None:
        """Hundreds of calls at a time share a connection, however many the server accepts."""
        calls = [self.client.send(count=number) for number in range(1, 601)]
        self.assertEqual([(await each)["count"] for each in calls], [*range(1, 601)])


@long("starts a server")
class AioTests(PeerCase, PeerCases):
    """grpc.aio, which compresses its responses."""

    command = (sys.executable, "-m", "tests.support.interop.peerservers", "aio")

    async def test_memory(self) -> None:
        """Ten thousand calls of all kinds leave no memory behind."""
        client = self.client
        requests = [{"text": "a"}, {"text": "b"}]

        async def work(rounds: int) -> None:
            for _ in range(rounds):
                await client.send(text="x", metadata={"x-a": "b"}, deadlineMs=60_000)
                self.assertEqual(len([each async for each in client.split(count=3)]), 3)
                await client.join(requests)
                self.assertEqual([each async for each in client.chat(requests)], requests)

        async def workTogether(rounds: int) -> None:
            await gatherResults([Deferred.fromCoroutine(work(rounds // 10)) for _ in range(10)])

        await workTogether(500)
        before = residentMemory(os.getpid())
        await workTogether(2500)
        self.assertLess(residentMemory(os.getpid()) - before, 2 << 20)
        await until(lambda: not openCalls(client))


@long("starts a server")
class GrpclibTests(PeerCase, PeerCases):
    """grpclib, which compresses nothing."""

    command = (sys.executable, "-m", "tests.support.interop.peerservers", "grpclib")

    async def test_compressed(self) -> None:
        """A server that knows no compression says so."""
        client = self.connect(compression="gzip")
        error = await self.refused(client.send(text="x" * 1000).deferred())
        self.assertEqual(error.statusName in ("UNIMPLEMENTED", "INTERNAL", "UNKNOWN"), True)


@long("runs grpc-js")
class GrpcJsTests(PeerCase, PeerCases):
    """@grpc/grpc-js."""

    def start(self) -> "subprocess.Popen[str]":
        """Start the server. Blocks."""
        program = Path(__file__).parents[2] / "support" / "interop" / "peerserver.js"
        return subprocess.Popen(
            ("node", str(program), str(ECHO)),
            env={**os.environ, "NODE_PATH": str(nodeModules())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
