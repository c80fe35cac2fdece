"""How the client's calls end before their time: deadlines, cancellation, servers that go."""

import gc
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any
from weakref import ref

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.threads import deferToThread

from storagegate.core.errors import GrpcError
from tests.support.modules import CHECKOUT
from tests.support.selection import long, rounds
from tests.wire.rpc.clientcase import ClientCase, clientThreads, openCalls, spawn, until


class DeadlineTests(ClientCase):
    """Deadlines."""

    async def test_passes(self) -> None:
        """A deadline ends a call of any kind, and reaches the server."""
        # On a busy machine a short deadline may pass before the handler has begun.
        for deadline in (50, 1000, 10_000):
            call = self.client.send(text="wait", deadlineMs=deadline)
            await self.assertEnds(call, "DEADLINE_EXCEEDED")
            cancelled = await deferToThread(self.server.echo.ended.wait, 5)
            if cancelled:
                break
        self.assertTrue(cancelled)

        async def take() -> None:
            async for _ in self.client.split(text="wait", count=2, deadlineMs=50):
                pass

        error: Any = await self.assertFailure(spawn(take()), GrpcError)
        self.assertEqual(error.statusName, "DEADLINE_EXCEEDED")

    async def test_endsRequests(self) -> None:
        """It ends waiting for a request, too, and lets the stream of requests clean up."""
        begun, cleaned = [], []

        async def never() -> AsyncIterator[Any]:
            begun.append(True)
            try:
                yield {"text": "a"}
                await Deferred()
            finally:
                cleaned.append(True)

        # On a busy machine a short deadline may pass before the stream has begun.
        for deadline in (50, 1000, 10_000):
            call = self.client.join(never(), deadlineMs=deadline)
            await self.assertEnds(call, "DEADLINE_EXCEEDED")
            if begun:
                break
        self.assertEqual(cleaned, [True])

    async def test_kept(self) -> None:
        """A call that ends before its deadline has nothing of it."""
        self.assertEqual(await self.client.send(text="x", deadlineMs=20_000), {"text": "x"})

    async def test_none(self) -> None:
        """What is no number of milliseconds is refused."""
        for deadline in (0, -1, float("nan"), float("inf"), "5", True):
            self.assertRaises(ValueError, self.client.send, deadlineMs=deadline)


class CancelTests(ClientCase):
    """Calls that their makers give up."""

    async def test_call(self) -> None:
        """A cancelled call ends with CANCELLED, and its handler learns of it."""
        call = self.client.send(text="wait")
        call.cancel()
        call.cancel()
        await self.assertEnds(call, "CANCELLED")
        await self.assertEnds(call, "CANCELLED")

    async def test_reaches(self) -> None:
        """The server learns of it."""
        call = self.client.split(text="wait")
        await call.initialMetadata()
        call.cancel()
        self.assertTrue(await deferToThread(self.server.echo.ended.wait, 20))

    async def test_awaiting(self) -> None:
        """Cancelling the wait for a call cancels the call."""

        async def wait() -> None:
            await self.client.send(text="wait")

        call = self.client.send(text="wait")
        direct, coroutine = call.deferred(), spawn(wait())
        for each in (direct, coroutine):
            each.cancel()
            await self.assertFailure(each, CancelledError)
        await self.assertEnds(call, "CANCELLED")
        await until(lambda: not openCalls(self.client))

    async def test_break(self) -> None:
        """To leave the loop over a stream cancels its call."""
        call = self.client.split(text="wait", count=5)
        async for _ in call:
            break
        await call.trailers()
        self.assertTrue(await deferToThread(self.server.echo.ended.wait, 20))

    async def test_loopRaises(self) -> None:
        """So does an exception in the loop, and what cancels the coroutine around it."""
        calls = [self.client.split(text="wait", count=1) for _ in range(2)]

        async def fail() -> None:
            async for _ in calls[0]:
                raise ZeroDivisionError

        async def wait() -> None:
            async for _ in calls[1]:
                pass

        await self.assertFailure(spawn(fail()), ZeroDivisionError)
        waiting = spawn(wait())
        await calls[1].initialMetadata()
        waiting.cancel()
        await self.assertFailure(waiting, CancelledError)
        for call in calls:
            await call.trailers()

    async def test_close(self) -> None:
        """So does to close the iterator, which then has nothing more."""
        responses = aiter(self.client.split(text="wait", count=5))
        await anext(responses)
        await responses.aclose()
        error: Any = await self.assertFailure(spawn(_next(responses)), GrpcError)
        self.assertEqual(error.statusName, "CANCELLED")

    async def test_afterEnd(self) -> None:
        """A call that has ended is not changed by being cancelled."""
        call = self.client.send(text="x")
        await call
        call.cancel()
        self.assertEqual(await call, {"text": "x"})

    async def test_enough(self) -> None:
        """A server that ends the call early stops the requests, which may clean up."""
        taken = 0
        cleaned = []

        async def endless() -> AsyncIterator[Any]:
            nonlocal taken
            try:
                while True:
                    taken += 1
                    yield {"text": "enough", "body": bytes(10_000)}
            finally:
                cleaned.append(True)

        requests = endless()
        await self.assertEnds(self.client.join(requests), "OUT_OF_RANGE")
        self.assertLess(taken, 10_000)
        await until(lambda: cleaned)
        lines = (line for line in [{"text": "enough"}] * 100_000)
        await self.assertEnds(self.client.join(lines), "OUT_OF_RANGE")
        await until(lambda: lines.gi_frame is None)
        received = [each async for each in self.client.chat([{"text": "leave"}])]
        self.assertEqual(received, [])


async def _next(responses: Any) -> Any:
    return await anext(responses)


class GoneTests(ClientCase):
    """Servers that are not there, or no more."""

    async def test_absent(self) -> None:
        """A server that is not there is UNAVAILABLE at once."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            client = self.connect(port=taken.getsockname()[1])
            await self.assertEnds(client.send(), "UNAVAILABLE")
            learning = self.connect(None, port=taken.getsockname()[1])
            await self.assertEnds(learning.send(), "UNAVAILABLE")
            ready = await self.assertFailure(learning.ready(), GrpcError)
            self.assertEqual(ready.statusName, "UNAVAILABLE")

    async def test_waits(self) -> None:
        """A call that is to wait for it does, until its deadline."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            client = self.connect(port=taken.getsockname()[1])
            call = client.send(waitForReady=True, deadlineMs=100)
            await self.assertEnds(call, "DEADLINE_EXCEEDED")
            learning = self.connect(None, port=taken.getsockname()[1])
            call = learning.send(waitForReady=True, deadlineMs=100)
            await self.assertEnds(call, "DEADLINE_EXCEEDED")

    async def test_killed(self) -> None:
        """A server that is killed in the middle of a stream is UNAVAILABLE."""
        process = _ServerProcess()
        clock: Any = reactor
        command = [sys.executable, "-m", "tests.support.grpcioserver"]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        transport = clock.spawnProcess(process, command[0], command, environment, str(CHECKOUT))
        client = self.connect(port=await process.port)
        call = client.split(count=3, text="wait")
        seen = []

        async def take() -> None:
            async for parcel in call:
                seen.append(parcel.get("count", 0))
                if len(seen) == 3:
                    transport.signalProcess(signal.SIGKILL)

        error: Any = await self.assertFailure(spawn(take()), GrpcError)
        self.assertEqual((error.statusName, seen), ("UNAVAILABLE", [0, 1, 2]))
        await process.ended


class _ServerProcess(ProcessProtocol):
    """The server as a process of its own."""

    def __init__(self) -> None:
        self.port: Deferred[int] = Deferred()
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        """Take the port."""
        self.port.callback(int(data))

    def processEnded(self, reason: Any) -> None:
        """See it gone."""
        if not self.port.called:
            self.port.errback(reason)
        self.ended.callback(None)


class ManyTests(ClientCase):
    """
    Very many calls.

    @cvar threads: How many threads a client has.
    """

    timeout = 100
    threads = 1

    def begin(self, kind: int, count: int, requests: Any) -> Any:
        """Make a call of a kind."""
        if kind == 0:
            return self.client.send(text="x")
        if kind == 1:
            return self.client.split(count=count)
        return self.client.join(requests) if kind == 2 else self.client.chat(requests)

    @long("takes seconds")
    async def test_nothingLeft(self) -> None:
        """Thousands of calls of all kinds, many cancelled at random, leave nothing behind."""
        chance = random.Random(4)
        left = rounds(2_000, 2_000, soak=10_000)
        made: list[Any] = []

        async def one() -> None:
            kind = chance.randrange(4)
            requests = [{"text": str(number)} for number in range(chance.randrange(4))]
            call = self.begin(kind, chance.randrange(12), requests)
            made.append(ref(call))
            limit = chance.randrange(8)
            if chance.random() < 0.3:
                clock.callLater(chance.random() / 100, call.cancel)
            if kind in (0, 2):
                await call
            else:
                async for _ in call:
                    limit -= 1
                    if limit == 0:
                        break

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                try:
                    await one()
                except GrpcError as error:
                    self.assertEqual(error.statusName, "CANCELLED")

        clock: Any = reactor
        results = await DeferredList([spawn(work()) for _ in range(20)], fireOnOneErrback=True)
        self.assertEqual(len(results), 20)
        await until(lambda: not openCalls(self.client))
        gc.collect()
        # Those that were to be cancelled later are held by the reactor for 10 ms.
        await until(lambda: not any(each() for each in made))
        self.assertEqual(len(clientThreads()), self.threads)
