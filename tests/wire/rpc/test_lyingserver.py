"""The client against servers that do not keep to gRPC: each call has one end."""

import os
import socket
import zlib
from collections.abc import Callable
from typing import Any

from hyperframe.frame import GoAwayFrame, RstStreamFrame
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.core.definitions import readService
from storagegate.core.errors import GrpcError
from storagegate.rpc.client import GrpcClient, createGrpcClient
from storagegate.rpc.schemaprotos import serviceFromSchemas
from tests.support.h2client import framed
from tests.support.lyingserver import Answer, Fields, Lie, LyingServer
from tests.support.memory import forgetPeak, peakMemory, residentMemory
from tests.support.selection import long
from tests.wire.rpc.clientcase import clientThreads
from tests.wire.rpc.optioncase import struct

MESSAGE = framed(struct(text="yes"))
HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0")]

PATIENCE_MS = 30_000
"""Of calls that end by themselves."""

WAITING_MS = 500
"""Of calls that end by nothing else."""

KINDS = ("one", "many", "upload")

Step = Callable[[Lie], None]

SERVICE = serviceFromSchemas(
    readService(
        {
            "name": "Probe",
            "methods": {
                "one": {"handler": lambda request: request},
                "many": {"handler": lambda request: request, "streaming": "server"},
                "upload": {"handler": lambda request: request, "streaming": "client"},
            },
        }
    )
)


def begin(*more: tuple[str, str]) -> Step:
    """Send the headers of an answer."""
    return lambda lie: lie.headers([*HEADERS, *more])


def body(data: bytes, isLast: bool = False) -> Step:
    """Send bytes."""
    return lambda lie: lie.data(data, isLast)


def end(fields: Fields) -> Step:
    """Send trailers."""
    return lambda lie: lie.headers(fields, isLast=True)


def saying(*steps: Step) -> Answer:
    """Do one thing after the other."""

    def answer(lie: Lie) -> None:
        for step in steps:
            step(lie)

    return answer


class LyingServerTests(TestCase):
    """One server for each lie, and a client that is gone at the end, with all that it had."""

    timeout = 60

    async def lied(self, answer: Answer, *waiting: str) -> list[str]:
        """
        Make a call of each kind; give the name of each one's status.

        @param waiting: The kinds that are to end by their deadline.
        """
        server = LyingServer(answer)
        client = createGrpcClient(f"127.0.0.1:{server.port}", "insecure", SERVICE)
        try:
            return [
                await self.statusOf(client, name, WAITING_MS if name in waiting else PATIENCE_MS)
                for name in KINDS
            ]
        finally:
            await client.close()
            await deferToThread(server.stop)
            self.assertEqual(clientThreads(), [])

    async def statusOf(self, client: GrpcClient, name: str, deadlineMs: int) -> str:
        """Make a call."""
        request: Any = [{}] if name == "upload" else {}
        call = client[name](request, deadlineMs=deadlineMs)
        try:
            if name == "many":
                self.assertEqual({item["text"] async for item in call} - {"yes"}, set())
            else:
                self.assertEqual(await call, {"text": "yes"})
        except GrpcError as error:
            return error.statusName
        return "OK"

    async def assertAll(self, answer: Answer, *statuses: str) -> None:
        """Each kind of call ends with one of some statuses."""
        for status in await self.lied(answer):
            self.assertIn(status, statuses)

    async def test_honest(self) -> None:
        """What a server should say is understood, so that the lies below are what they are."""
        await self.assertAll(saying(begin(), body(MESSAGE), end(TRAILERS)), "OK")

    async def test_noStatus(self) -> None:
        """An answer that ends without a status was not OK, whatever came before."""
        for answer in (
            saying(begin(), body(MESSAGE, isLast=True)),
            saying(begin(), body(MESSAGE), end([("x-other", "1")])),
            saying(end(HEADERS)),
            saying(begin(), body(b"\0\0\0\0\x10abc", isLast=True)),
        ):
            await self.assertAll(answer, "UNKNOWN", "INTERNAL")

    async def test_badStatus(self) -> None:
        """A status that there is not is UNKNOWN or INTERNAL, not a failure of the client."""
        for status in ("99", "-1", "abc", "", "4294967296"):
            answer = saying(begin(), body(MESSAGE), end([("grpc-status", status)]))
            await self.assertAll(answer, "UNKNOWN", "INTERNAL")

    async def test_badTexts(self) -> None:
        """A message or details that cannot be read leave the status as it is."""
        for name, value in (
            ("grpc-message", "%zz%ff%00"),
            ("grpc-message", "m" * 7000),
            ("grpc-status-details-bin", "AAAA////"),
            ("grpc-status-details-bin", "GgYKBHR5cGU"),
        ):
            answer = saying(begin(), end([("grpc-status", "5"), (name, value)]))
            await self.assertAll(answer, "NOT_FOUND")

    async def test_count(self) -> None:
        """No response where one is due is an error; and so is a second one."""
        found = await self.lied(saying(begin(), end(TRAILERS)))
        self.assertEqual(found, ["UNIMPLEMENTED", "OK", "UNIMPLEMENTED"])
        twice = saying(begin(), body(MESSAGE + MESSAGE), end(TRAILERS))
        self.assertEqual(await self.lied(twice), ["INTERNAL", "OK", "INTERNAL"])

    async def test_badMessages(self) -> None:
        """Bytes that are no message, and messages that are not as they say, are INTERNAL."""
        for message in (framed(b"\xff\xff"), b"\1\0\0\0\3abc"):
            await self.assertAll(saying(begin(), body(message), end(TRAILERS)), "INTERNAL")
        answer = saying(begin(("grpc-encoding", "br")), body(b"\1\0\0\0\3abc"), end(TRAILERS))
        await self.assertAll(answer, "INTERNAL")

    async def test_tooMuch(self) -> None:
        """Lengths and trailers beyond all measure are RESOURCE_EXHAUSTED."""
        await self.assertAll(saying(begin(), body(b"\0\xff\xff\xff\xff")), "RESOURCE_EXHAUSTED")
        trailers = [*TRAILERS, *((f"x-{at}", "v" * 1000) for at in range(200))]
        answer = saying(begin(), body(MESSAGE), end(trailers))
        await self.assertAll(answer, "RESOURCE_EXHAUSTED")

    async def test_bomb(self) -> None:
        """A response that inflates to a thousand times its size takes no memory."""
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        # Less than a window, for the server does not wait for one.
        bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(50)) + packer.flush()
        forgetPeak(os.getpid())
        before = residentMemory(os.getpid())
        answer = saying(
            begin(("grpc-encoding", "gzip")), body(framed(bomb, isCompressed=True)), end(TRAILERS)
        )
        await self.assertAll(answer, "RESOURCE_EXHAUSTED")
        self.assertLess(peakMemory(os.getpid()) - before, 30 << 20)

    async def test_http(self) -> None:
        """An answer of plain HTTP has the status that gRPC gives to it."""
        for status, names in (("404", ("UNIMPLEMENTED",)), ("503", ("UNAVAILABLE",))):
            await self.assertAll(saying(end([(":status", status)])), *names)
        html = [(":status", "200"), ("content-type", "text/html")]
        answer = saying(lambda lie: lie.headers(html), body(b"<html></html>", isLast=True))
        await self.assertAll(answer, "UNKNOWN", "INTERNAL")

    async def test_brokenOff(self) -> None:
        """A call that is reset, a connection that says good-bye, is closed or is no HTTP/2."""
        for answer in (
            lambda lie: lie.send(RstStreamFrame(lie.stream, error_code=0)),
            saying(
                begin(),
                body(MESSAGE),
                lambda lie: lie.send(RstStreamFrame(lie.stream, error_code=8)),
            ),
            lambda lie: lie.send(GoAwayFrame(0, last_stream_id=0, error_code=11)),
            lambda lie: lie.connection.shutdown(socket.SHUT_RDWR),
            lambda lie: lie.connection.sendall(b"\xff" * 1000),
            lambda lie: lie.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n"),
        ):
            await self.assertAll(answer, "INTERNAL", "UNAVAILABLE", "UNKNOWN", "CANCELLED")

    @long("takes seconds")
    async def test_silence(self) -> None:
        """A server that says nothing, or does not go on, is waited for up to the deadline."""
        for answer in (saying(), saying(begin()), saying(begin(), body(b"\0\0"))):
            self.assertEqual(await self.lied(answer, *KINDS), ["DEADLINE_EXCEEDED"] * len(KINDS))
