"""Streams of calls, and clients that leave before the end, on a wire in memory."""

import gc
from collections.abc import AsyncIterator, Iterator

from twisted.internet.defer import CancelledError, Deferred

from storagegate.core.codecs import INLINE_SIZE
from storagegate.core.errors import GrpcError
from storagegate.rpc.call import Call
from storagegate.rpc.dispatch import CallDispatch, CallRouter
from tests.support.pools import HeldPool
from tests.support.rpccallcase import Boom, CallCase
from tests.support.rpcwire import ROOM, FakeServerCall

LARGE = b" " * (INLINE_SIZE + 1)

INVALID_ARGUMENT, NOT_FOUND, INTERNAL = 3, 5, 13


class StreamTests(CallCase):
    """Streams of requests, of responses, and of both."""

    def test_server(self) -> None:
        """Each item of a generator is a message."""

        async def answer(call: Call) -> AsyncIterator[str]:
            for letter in call.request:
                yield letter

        wire = self.begin(answer, b"abc", streaming="server")
        self.assertEqual(wire.messages, [b"a", b"b", b"c"])
        self.assertStatus(0)

    def test_otherIterables(self) -> None:
        """A list, a generator, and something to wait for that gives one are streams as well."""

        def generate(call: Call) -> Iterator[str]:
            yield from call.request

        async def later(call: Call) -> list[str]:
            return list(call.request)

        for answer in (generate, later, lambda call: list(call.request)):
            wire = self.begin(answer, b"ab", streaming="server")
            self.assertEqual(wire.messages, [b"a", b"b"])
            self.assertStatus(0)

    def test_noStream(self) -> None:
        """A handler that gives a single thing where a stream is due is told so in the log."""
        for result in (5, "text", {"a": 1}, None):
            self.begin(lambda call, result=result: result, b"", streaming="server")
            self.assertStatus(INTERNAL, "Internal error")
            self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_client(self) -> None:
        """A handler reads the client's stream and answers once."""

        async def answer(call: Call) -> str:
            return "".join([message async for message in call])

        wire = self.begin(answer, b"a", streaming="client")
        wire.arrive(b"b", None)
        self.assertEqual(wire.messages, [b"ab"])
        self.assertStatus(0)

    def test_bidirectional(self) -> None:
        """Answers go out while requests come in."""

        async def answer(call: Call) -> AsyncIterator[str]:
            async for message in call:
                yield message.upper()

        wire = self.begin(answer, b"a", streaming="bidirectional")
        self.assertEqual(wire.messages, [b"A"])
        wire.arrive(b"b")
        self.assertEqual(wire.messages, [b"A", b"B"])
        wire.arrive(None)
        self.assertStatus(0)

    def test_badItem(self) -> None:
        """A message of a client's stream that is none ends the call as the client's fault."""

        async def answer(call: Call) -> str:
            return "".join([message async for message in call])

        self.begin(answer, b"a", b"\xff", streaming="client")
        self.assertStatus(INVALID_ARGUMENT, "name: is no text")

    def test_failsLate(self) -> None:
        """What was sent before an error stays sent."""

        async def answer(call: Call) -> AsyncIterator[str]:
            yield "a"
            raise GrpcError(NOT_FOUND, "no more")

        wire = self.begin(answer, b"", streaming="server")
        self.assertEqual(wire.messages, [b"a"])
        self.assertStatus(NOT_FOUND, "no more")

    def test_stalled(self) -> None:
        """A client that takes nothing stops the generator after a bounded number of messages."""
        made: list[int] = []

        async def answer(call: Call) -> AsyncIterator[str]:
            for number in range(3 * ROOM):
                made.append(number)
                yield str(number)

        self.wire = FakeServerCall()
        self.wire.isStalled = True
        self.wire.arrive(b"")
        self.router = CallRouter()
        self.route(answer, "server")
        self.assertEqual(len(made), ROOM)
        self.wire.take()
        self.assertEqual(len(self.wire.messages), 3 * ROOM)


class LargeTests(CallCase):
    """Large messages, which are decoded in a thread."""

    def setUp(self) -> None:
        """Have a thread that begins when a test says so."""
        self.pool = HeldPool()
        self.begun: list[str] = []

    async def answer(self, call: Call) -> str:
        """Answer with the last letters."""
        self.begun.append(call.request[-3:])
        return self.begun[-1]

    def test_unary(self) -> None:
        """The handler is called when it is decoded."""
        wire = self.begin(self.answer, LARGE + b"end", run=self.pool.run)
        self.assertEqual((self.begun, wire.status), ([], None))
        self.pool.go()
        self.assertEqual(wire.messages, [b"end"])
        self.assertStatus(0)

    def test_small(self) -> None:
        """A small one has no thread."""
        self.begin(self.answer, b"end", run=self.pool.run)
        self.assertEqual((self.pool.waiting, self.begun), ([], ["end"]))

    def test_malformed(self) -> None:
        """One that is malformed is refused."""
        self.begin(self.answer, LARGE + b"\xff", run=self.pool.run)
        self.pool.go()
        self.assertEqual((self.begun, len(self.refused)), ([], 1))
        self.assertStatus(INVALID_ARGUMENT, self.refused[0].message)  # type: ignore[attr-defined]

    def test_left(self) -> None:
        """Of a client that leaves meanwhile the handler is not called."""
        wire = self.begin(self.answer, LARGE, run=self.pool.run)
        wire.leave()
        self.assertEqual((self.begun, self.ended), ([], 1))

    def test_stream(self) -> None:
        """A stream stays in order, and what is malformed ends it."""
        seen: list[str] = []

        async def answer(call: Call) -> str:
            async for request in call.requests:
                seen.append(request[-1])
            return ""

        messages = (b"1", LARGE + b"2", b"3", LARGE + b"\xff", b"5")
        self.begin(answer, *messages, streaming="client", run=self.pool.run)
        self.assertEqual(seen, ["1"])
        self.pool.go()
        self.assertEqual(seen, ["1", "2", "3"])
        self.pool.go()
        self.assertEqual(seen, ["1", "2", "3"])
        self.assertStatus(INVALID_ARGUMENT, "name: is no text")


class LeavingTests(CallCase):
    """Clients that leave before the end."""

    def test_coroutine(self) -> None:
        """A coroutine is cancelled where it waits."""
        seen: list[BaseException] = []

        async def answer(call: Call) -> str:
            try:
                await Deferred()
            except CancelledError as error:
                seen.append(error)
                raise
            return ""

        wire = self.begin(answer, b"")
        wire.leave()
        self.assertEqual(len(seen), 1)
        self.assertEqual(self.ended, 1)
        self.assertIsNone(wire.status)

    def test_generator(self) -> None:
        """A generator is cancelled where it waits, and its end is run."""
        seen: list[str] = []

        async def answer(call: Call) -> AsyncIterator[str]:
            try:
                yield "a"
                await Deferred()
            except CancelledError:
                seen.append("cancelled")
                raise
            finally:
                seen.append("closed")

        self.begin(answer, b"", streaming="server").leave()
        self.assertEqual(seen, ["cancelled", "closed"])
        self.assertEqual(self.ended, 1)

    def test_stalledGenerator(self) -> None:
        """A generator that waits for room is closed."""
        seen: list[str] = []

        async def answer(call: Call) -> AsyncIterator[str]:
            try:
                while True:
                    yield "a"
            finally:
                seen.append("closed")

        self.wire = FakeServerCall()
        self.wire.isStalled = True
        self.wire.arrive(b"")
        self.router = CallRouter()
        self.route(answer, "server")
        self.wire.leave()
        self.assertEqual(seen, ["closed"])

    def test_stubborn(self) -> None:
        """A generator that goes on after it was cancelled is not listened to."""
        made: list[str] = []

        async def answer(call: Call) -> AsyncIterator[str]:
            try:
                await Deferred()
            except CancelledError:
                pass
            while True:
                made.append("a")
                yield "a"

        wire = self.begin(answer, b"", streaming="server")
        wire.leave()
        self.assertEqual(made, ["a"])
        self.assertEqual(wire.messages, [])
        self.assertEqual(self.ended, 1)

    def test_reader(self) -> None:
        """A handler that waits for a client's message is cancelled."""

        async def answer(call: Call) -> str:
            return "".join([message async for message in call])

        self.begin(answer, b"a", streaming="client").leave()
        self.assertEqual(self.ended, 1)

    def test_errorAfter(self) -> None:
        """An error of a handler whose client has left is logged, not sent."""

        async def answer(call: Call) -> str:
            try:
                await Deferred()
            finally:
                raise Boom

        wire = self.begin(answer, b"")
        wire.leave()
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
        self.assertIsNone(wire.status)
        self.assertEqual(self.ended, 1)

    def test_ownCancel(self) -> None:
        """A handler that is cancelled by something else ends its call as cancelled."""

        async def answer(call: Call) -> str:
            raise CancelledError

        wire = self.begin(answer, b"")
        assert wire.status is not None
        self.assertEqual(wire.status[0], 1)


class GarbageTests(CallCase):
    """What a call leaves behind."""

    def test_noCycles(self) -> None:
        """A call that has ended is freed at once, without the collector."""

        async def answer(call: Call) -> AsyncIterator[str]:
            async for message in call:
                yield message

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        self.begin(answer, b"a", None, streaming="bidirectional")
        del self.wire
        self.assertEqual([each for each in gc.get_objects() if isinstance(each, CallDispatch)], [])
