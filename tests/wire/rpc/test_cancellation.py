"""A call that its client gives up is given up by its handler."""

import queue
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThread

from storagegate import server
from tests.support.h2client import H2Client
from tests.support.interop.grpcioclient import RequestPipe
from tests.support.rpcroutes import textService
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

TIMES = 20

DEADLINES = 5
"""As many calls run into one."""

UPLOADS = 300

PATIENCE = 30.0
"""How long a step may take that is to happen: far above what any needs, so that a hang ends."""

DEADLINE_EXCEEDED = 4


class WaitingService:
    """
    Handlers that wait for something that never comes.

    @ivar began: A name for each handler that has begun to wait.
    @ivar ended: How each one ended, and when. Both are read in another thread.
    """

    def __init__(self) -> None:
        self.began: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[tuple[str, float, Any]] = queue.SimpleQueue()

    async def _wait(self, call: Any, waiting: Callable[[], Any]) -> None:
        self.began.put(call.method)
        how = "returned"
        try:
            await waiting()
        except CancelledError:
            how = "CancelledError"
            raise
        finally:
            self.ended.put((f"{call.method}: {how}", time.time(), call))

    async def unary(self, call: Any) -> str:
        """Wait for a Deferred."""
        await self._wait(call, Deferred)
        return ""

    async def download(self, call: Any) -> AsyncIterator[str]:
        """Wait between two responses."""
        yield "first"
        await self._wait(call, Deferred)

    async def upload(self, call: Any) -> str:
        """Wait for a request."""
        await self._wait(call, lambda: _next(call))
        return ""

    async def chat(self, call: Any) -> AsyncIterator[str]:
        """Wait for a request, in a generator."""
        yield "first"
        await self._wait(call, lambda: _next(call))

    async def collect(self, call: Any) -> str:
        """Read requests to their end."""
        await self._wait(call, lambda: _drain(call))
        return ""

    async def endless(self, call: Any) -> AsyncIterator[str]:
        """Send as long as the client reads."""
        self.began.put(call.method)
        try:
            while True:
                yield "x" * 1000
        finally:
            self.ended.put((f"{call.method}: closed", time.time(), call))


async def _next(call: Any) -> Any:
    return await anext(aiter(call))


async def _drain(call: Any) -> None:
    async for _ in call:
        pass


class CancellationCase(RPCCase):
    """A server whose handlers wait."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        self.service = WaitingService()
        definition = textService(
            Unary="none",
            Download="server",
            Upload="client",
            Collect="client",
            Chat="bidirectional",
            Endless="server",
        )
        app = server.grpc().withOptions(grpc={"health": False, "maxConcurrentStreams": None})
        app.addService(definition=definition, implementation=self.service)
        self.app = app
        self.port = await self.listen(app)

    def path(self, method: str) -> str:
        """Give the path of a method."""
        return f"/test.Service/{method}"

    def end(self) -> tuple[str, float, Any]:
        """Wait until a handler has ended. Blocks."""
        return self.service.ended.get(timeout=PATIENCE)


class CancelTests(CancellationCase):
    """The client cancels, with grpcio's stubs."""

    def cancelled(self, start: Callable[[grpc.Channel, RequestPipe], Any]) -> None:
        """Let calls be cancelled while their handlers wait, and see how those end. Blocks."""
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            for _ in range(TIMES):
                pipe = RequestPipe()
                call = start(channel, pipe)
                name = self.service.began.get(timeout=PATIENCE)
                call.cancel()
                how, _, seen = self.end()
                pipe.close()
                self.assertEqual(how, f"{name}: CancelledError")
                self.assertTrue(seen.cancelled)

    async def assertCancelled(self, start: Callable[[grpc.Channel, RequestPipe], Any]) -> None:
        """A handler learns of its client's cancel, and nothing is left of its calls."""
        await deferToThread(self.cancelled, start)
        self.assertEqual(self.app.activeCalls, 0)

    async def test_unary(self) -> None:
        """What a coroutine waits for is cancelled."""
        await self.assertCancelled(
            lambda channel, pipe: channel.unary_unary(self.path("Unary")).future(b"")
        )

    async def test_serverStreaming(self) -> None:
        """What a generator waits for is cancelled."""
        await self.assertCancelled(
            lambda channel, pipe: channel.unary_stream(self.path("Download"))(b"")
        )

    async def test_clientStreaming(self) -> None:
        """A handler that waits for a request is cancelled."""
        await self.assertCancelled(
            lambda channel, pipe: channel.stream_unary(self.path("Upload")).future(iter(pipe))
        )

    async def test_bidirectional(self) -> None:
        """A generator that waits for a request is cancelled."""
        await self.assertCancelled(
            lambda channel, pipe: channel.stream_stream(self.path("Chat"))(iter(pipe))
        )


class DeadlineTests(CancellationCase):
    """The client names a deadline, and leaves it to the server to keep it."""

    def expired(self, method: str) -> list[float]:
        """Let calls run into their deadline; give how far from it each handler ended. Blocks."""
        late = []
        deadlineMs = 200
        with H2Client(self.port) as client:
            while len(late) < DEADLINES:
                stream = client.begin(self.path(method), [("grpc-timeout", f"{deadlineMs}m")])
                if method != "Upload":
                    client.sendMessage(stream, b"", isLast=True)
                self.assertEqual(client.finish(stream).status, DEADLINE_EXCEEDED)
                if self.service.began.empty():
                    # On a busy machine a deadline may pass before the handler has begun.
                    deadlineMs *= 4
                    continue
                self.service.began.get()
                how, when, call = self.end()
                self.assertIn("CancelledError", how)
                late.append(when - call.deadline)
        return late

    async def assertKept(self, method: str) -> None:
        """Handlers are cancelled at the deadline, not before, and the client hears of it."""
        late = await deferToThread(self.expired, method)
        # grpc core counts in whole milliseconds.
        self.assertGreater(min(late), -0.01)

    @long("takes a second or more")
    async def test_unary(self) -> None:
        """A coroutine is cancelled at the call's deadline."""
        await self.assertKept("Unary")

    @long("takes a second or more")
    async def test_serverStreaming(self) -> None:
        """A generator is cancelled at the call's deadline."""
        await self.assertKept("Download")

    @long("takes a second or more")
    async def test_clientStreaming(self) -> None:
        """A handler that waits for requests is cancelled at the call's deadline."""
        await self.assertKept("Upload")


class GoneTests(CancellationCase):
    """The client goes without a word."""

    def dropped(self, method: str) -> str:
        """Close a connection while a handler is at work; tell how that ended. Blocks."""
        client = H2Client(self.port)
        try:
            stream = client.begin(self.path(method))
            client.sendMessage(stream, b"", isLast=True)
            self.service.began.get(timeout=PATIENCE)
        finally:
            client.close()
        return self.end()[0]

    async def test_waiting(self) -> None:
        """A handler that waits is cancelled when the connection breaks."""
        self.assertEqual(await deferToThread(self.dropped, "Unary"), "Unary: CancelledError")

    def cut(self, isReset: bool) -> set[str]:
        """Begin uploads and give them up; tell how their handlers ended. Blocks."""
        with H2Client(self.port) as client:
            streams = [client.begin(self.path("Collect")) for _ in range(UPLOADS)]
            for stream in streams:
                client.sendMessage(stream, b"part")
                self.service.began.get(timeout=PATIENCE)
            for stream in streams if isReset else ():
                client.reset(stream)
            if not isReset:
                client.close()
            return {self.end()[0] for _ in streams}

    async def test_uploadReset(self) -> None:
        """An upload that is cancelled never looks like one that has come to its end."""
        self.assertEqual(await deferToThread(self.cut, True), {"Collect: CancelledError"})

    async def test_uploadBroken(self) -> None:
        """Nor does one whose connection breaks."""
        self.assertEqual(await deferToThread(self.cut, False), {"Collect: CancelledError"})

    async def test_uploadEnds(self) -> None:
        """One that has come to its end looks like that."""

        def upload() -> int | None:
            with H2Client(self.port) as client:
                return client.call(self.path("Collect"), b"part", b"part").status

        self.assertEqual(await deferToThread(upload), 0)
        self.assertEqual(self.end()[0], "Collect: returned")

    async def test_sending(self) -> None:
        """A generator that never stops yielding is closed when the connection breaks."""
        self.assertEqual(await deferToThread(self.dropped, "Endless"), "Endless: closed")
        self.assertEqual(self.app.activeCalls, 0)

    async def test_serverStops(self) -> None:
        """When the grace is over, the server cancels what is still at work."""

        def call() -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
                future = channel.unary_unary(self.path("Unary")).future(b"")
                code = future.code()
                return code, self.end()[0]

        result = deferToThread(call)
        await deferToThread(self.service.began.get, timeout=PATIENCE)
        await self.app.stop(100)
        code, how = await result
        self.assertIn(code, (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED))
        self.assertEqual(how, "Unary: CancelledError")
