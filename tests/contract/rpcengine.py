"""What every server's engine of gRPC promises, whatever it is written on."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from twisted.internet.defer import Deferred, DeferredQueue
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from zope.interface.verify import verifyObject

from storagegate.rpc.interfaces import IServerCall, IServerEngine, NullByteCounter
from storagegate.rpc.options import GRPCServerOptions
from tests.contract.rpcenginecase import CHUNK, OWN, PATIENCE, STALLED, EngineCase, read
from tests.support.selection import long


class ServerEngineContract(EngineCase):
    """
    Cases of a server's engine, whose clients are grpcio's.

    @ivar holdsResponses: Whether responses wait while the server settles.
    @ivar calls: The calls that were accepted.
    @ivar traffic: Counts the bytes of messages.
    """

    holdsResponses = True

    def makeServer(self, options: GRPCServerOptions, traffic: Any) -> Any:
        """Make the engine."""
        raise NotImplementedError

    def make(self, **options: Any) -> Any:
        """Make an engine."""
        return self.makeServer(GRPCServerOptions(**options), self.traffic)

    def setUp(self) -> None:
        """Count nothing yet."""
        super().setUp()
        self.calls: DeferredQueue[Any] = DeferredQueue()
        self.traffic = NullByteCounter()
        # The calls of these tests wait in threads.
        self.pool = ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown, wait=False)

    async def serve(self, credentials: Any = None, **options: Any) -> grpc.Channel:
        """Start the engine; give a connection to it."""
        self.engine = engine = self.make(**options)
        self.port = engine.bind("127.0.0.1:0", None if credentials is None else credentials[0])
        engine.start(self.calls.put)
        self.addCleanup(engine.stop, 0)
        place = f"127.0.0.1:{self.port}"
        if credentials is None:
            channel = grpc.insecure_channel(place, OWN)
        else:
            own = credentials[1]
            secure = grpc.ssl_channel_credentials(own.roots, own.key, own.chain)
            channel = grpc.secure_channel(place, secure, OWN)
        self.addCleanup(deferToThread, channel.close)
        return channel

    def status(self, call: Any) -> Deferred[tuple[int, str]]:
        """Wait for the end of a client's call, and give its status and message."""
        return deferToThread(lambda: (call.code().value[0], call.details()))

    async def test_interfaces(self) -> None:
        """The engine and its calls have what their interfaces name."""
        channel = await self.serve()
        verifyObject(IServerEngine, self.engine)
        answered = channel.unary_unary("/a.B/C").future(b"x", timeout=PATIENCE)
        call = await self.calls.get()
        verifyObject(IServerCall, call)
        call.reply(b"")
        self.assertEqual(await self.status(answered), (0, ""))

    async def test_unary(self) -> None:
        """One message comes, one goes, with metadata, deadline, peer and trailers."""
        channel = await self.serve()
        sent = (("x-name", "a"), ("x-raw-bin", b"\0\xff"), ("x-name", "b"))
        before = time.time()
        answered = channel.unary_unary("/a.B/C").future(b"request", PATIENCE, metadata=sent)
        call = await self.calls.get()
        self.assertEqual(call.path, "/a.B/C")
        own = [entry for entry in call.metadata if entry[0].startswith("x-")]
        self.assertEqual(sorted(own), sorted(sent))
        # On the wire it is rounded up.
        self.assertTrue(before < call.deadline <= time.time() + PATIENCE + 1)
        self.assertRegex(call.peer(), r"^ipv4:127\.0\.0\.1:\d+$")
        self.assertEqual(call.authContext().get("x509_common_name", []), [])
        self.assertEqual(await read(call), b"request")
        self.assertFalse(call.isOver)
        call.prepareMetadata([("x-first", "1"), ("x-first-bin", b"\0")])
        call.reply(b"answer", [("x-last", "2"), ("x-last-bin", b"\xff")])
        self.assertTrue(call.isOver)
        call.finish(2, "once is enough")
        self.assertEqual(await deferToThread(answered.result), b"answer")
        first, last = dict(answered.initial_metadata()), dict(answered.trailing_metadata())
        self.assertEqual((first["x-first"], first["x-first-bin"]), ("1", b"\0"))
        self.assertEqual((last["x-last"], last["x-last-bin"]), ("2", b"\xff"))
        self.assertEqual((self.traffic.bytesIn, self.traffic.bytesOut), (7, 6))

    async def test_status(self) -> None:
        """A call that goes wrong has a status, a message and trailers; deadlines are optional."""
        channel = await self.serve()
        answered = channel.unary_unary("/a.B/C").future(b"")
        call = await self.calls.get()
        self.assertIsNone(call.deadline)
        call.finish(5, "no such thing: ä", [("x-why-bin", b"\0")])
        self.assertEqual(await self.status(answered), (5, "no such thing: ä"))
        self.assertEqual(dict(answered.trailing_metadata())["x-why-bin"], b"\0")

    async def test_streams(self) -> None:
        """Messages go both ways in their order, and end; metadata may go before them."""
        channel = await self.serve()
        requests = [b"%d" % number for number in range(100)]
        stream = channel.stream_stream("/a.B/C")(iter(requests), timeout=PATIENCE)
        call = await self.calls.get()
        call.watch(lambda: self.fail("it was not cancelled"))
        call.sendMetadata([("x-early", "yes")])
        early = await deferToThread(lambda: dict(stream.initial_metadata()))
        self.assertEqual(early["x-early"], "yes")
        taken = []
        while (message := await read(call, 8)) is not None:
            taken.append(message)
            if not call.send(message):
                await call.drained()
        self.assertEqual(taken, requests)
        # The end stays.
        self.assertIsNone(await read(call))
        call.finish(0)
        self.assertEqual(await deferToThread(list, stream), requests)
        self.assertEqual(await self.status(stream), (0, ""))

    async def test_readEnd(self) -> None:
        """After the only message comes the end of the client's messages, or another message."""
        channel = await self.serve()
        for requests, isEnd in (([b"a"], True), ([b"a", b"b"], False)):
            stream = channel.stream_stream("/a.B/C")(iter(requests), timeout=PATIENCE)
            call = await self.calls.get()
            self.assertEqual(await read(call), b"a")
            found: Deferred[bool] = Deferred()
            call.readEnd(found.callback)
            self.assertEqual(await found, isEnd)
            call.finish(0)
            self.assertEqual(await self.status(stream), (0, ""))

    async def test_readAhead(self) -> None:
        """Nothing is read that was not asked for: the client has to wait."""
        channel = await self.serve()
        taken = 0

        def requests() -> Iterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield CHUNK

        stream = channel.stream_unary("/a.B/C").future(requests(), timeout=PATIENCE)
        call = await self.calls.get()
        call.watch(lambda: None)
        self.assertEqual(await read(call, 8), CHUNK)
        await deferLater(self.reactor, 0.3, lambda: None)
        self.assertLess(taken, STALLED)
        for _ in range(STALLED):
            await read(call, 8)
        self.assertGreater(taken, STALLED)
        stream.cancel()

    async def test_backPressure(self) -> None:
        """A call whose client takes nothing has room for a few messages, and more when it takes."""
        channel = await self.serve()
        stream = channel.unary_stream("/a.B/C")(b"", timeout=PATIENCE)
        call = await self.calls.get()
        call.watch(lambda: None)
        sent = 0

        async def fill() -> None:
            nonlocal sent
            while sent < 2 * STALLED:
                sent += 1
                if not call.send(CHUNK):
                    await call.drained()
            call.finish(0)

        filling = Deferred.fromCoroutine(fill())
        await deferLater(self.reactor, 0.3, lambda: None)
        self.assertLess(sent, STALLED)
        received = await deferToThread(lambda: sum(len(each) for each in stream))
        await filling
        self.assertEqual(received, 2 * STALLED * len(CHUNK))

    @long("fills the buffers of a connection, which takes seconds")
    async def test_cancelled(self) -> None:
        """A call that the client gives up says so once; who waits for room goes on."""
        channel = await self.serve()
        stream = channel.unary_stream("/a.B/C")(b"", timeout=PATIENCE)
        call = await self.calls.get()
        events: list[str] = []
        call.watch(lambda: events.append("cancelled"))
        isFull = False
        while not isFull:
            while call.send(CHUNK):
                pass
            room = call.drained()
            await deferLater(self.reactor, 0.1, lambda: None)
            isFull = not room.called
        room.addCallback(lambda result: events.append("drained"))
        stream.cancel()
        await self.turn(lambda: len(events) == 2)
        self.assertEqual(events, ["cancelled", "drained"])
        self.assertTrue(call.isOver)
        self.assertFalse(call.send(b""))
        await call.drained()
        call.finish(0)
        self.assertEqual(len(events), 2)

    async def test_deadline(self) -> None:
        """A call whose deadline has come is given up."""
        channel = await self.serve()
        # Without a connection the deadline may pass before the server knows of the call.
        await deferToThread(grpc.channel_ready_future(channel).result, PATIENCE)
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=1.0)
        call = await self.calls.get()
        gone: Deferred[None] = Deferred()
        call.watch(lambda: gone.callback(None))
        await gone
        self.assertEqual((await self.status(answered))[0], 4)

    async def test_cut(self) -> None:
        """A client that leaves cancels the call, and then ends the read that waits."""
        channel = await self.serve()
        more = threading.Event()
        self.addCleanup(more.set)

        def requests() -> Iterator[bytes]:
            yield b"first"
            more.wait(PATIENCE)

        stream = channel.stream_unary("/a.B/C").future(requests(), timeout=PATIENCE)
        call = await self.calls.get()
        events: list[Any] = []
        call.watch(lambda: events.append("cancelled"))
        self.assertEqual(await read(call), b"first")
        call.read(events.append)
        stream.cancel()
        await self.turn(lambda: events)
        await deferLater(self.reactor, 0.05, lambda: None)
        self.assertEqual(events, ["cancelled", None])

    async def test_watchedLate(self) -> None:
        """A call that is watched only after its client has left is cancelled as well."""
        channel = await self.serve()
        more = threading.Event()
        self.addCleanup(more.set)

        def requests() -> Iterator[bytes]:
            yield b"first"
            more.wait(PATIENCE)

        stream = channel.stream_unary("/a.B/C").future(requests(), timeout=PATIENCE)
        call = await self.calls.get()
        self.assertEqual(await read(call), b"first")
        ended: Deferred[bool] = Deferred()
        call.readEnd(ended.callback)
        stream.cancel()
        await ended
        cancelled: Deferred[None] = Deferred()
        call.watch(lambda: cancelled.callback(None))
        await cancelled

    async def test_whenClosed(self) -> None:
        """A call that is not watched tells at its end whether its client was still there."""
        channel = await self.serve()
        stream = channel.stream_unary("/a.B/C").future(iter([]), timeout=PATIENCE)
        call = await self.calls.get()
        self.assertIsNone(await read(call))
        closed: Deferred[bool] = Deferred()
        call.whenClosed(closed.callback)
        call.finish(12, "none")
        self.assertFalse(await closed)
        self.assertEqual(await self.status(stream), (12, "none"))

    async def test_leavesUnwatched(self) -> None:
        """A call that is not watched, and whose client has left, has no more messages."""
        channel = await self.serve()
        more = threading.Event()
        self.addCleanup(more.set)

        def requests() -> Iterator[bytes]:
            more.wait(PATIENCE)
            yield from ()

        stream = channel.stream_unary("/a.B/C").future(requests(), timeout=PATIENCE)
        call = await self.calls.get()
        message = read(call)
        stream.cancel()
        self.assertIsNone(await message)
        closed: Deferred[bool] = Deferred()
        call.whenClosed(closed.callback)
        call.finish(12, "none")
        self.assertTrue(await closed)

    async def test_tooLong(self) -> None:
        """A request over the limit ends its call with C{RESOURCE_EXHAUSTED}."""
        channel = await self.serve(maxReceiveMessageLength=100)
        answered = channel.unary_unary("/a.B/C").future(bytes(101), timeout=PATIENCE)
        call = await self.calls.get()
        self.assertIsNone(await read(call))
        call.finish(8, "too long")
        self.assertEqual((await self.status(answered))[0], 8)

    async def test_mutualTLS(self) -> None:
        """Both ends show a certificate; the call knows whose."""
        channel = await self.serve(credentials=self.credentials())
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
        call = await self.calls.get()
        self.assertEqual(call.authContext()["x509_common_name"], [b"alice"])
        call.reply(b"")
        self.assertEqual(await self.status(answered), (0, ""))

    async def test_taken(self) -> None:
        """A port that is taken can't be had; an engine that never started is discarded."""
        await self.serve()
        other = self.make()
        self.assertRaises(CannotListenError, other.bind, f"127.0.0.1:{self.port}")
        other.discard()
        third = self.make()
        port = third.bind("127.0.0.1:0")
        third.discard()
        again = self.make()
        self.assertEqual(again.bind(f"127.0.0.1:{port}"), port)
        again.discard()

    async def test_unixSocket(self) -> None:
        """An engine listens at a UNIX socket as well."""
        self.engine = self.make()
        place = f"unix:{Path(self.mktemp()).name}.socket"
        self.engine.bind(place)
        self.engine.start(self.calls.put)
        self.addCleanup(self.engine.stop, 0)
        channel = grpc.insecure_channel(place, OWN)
        self.addCleanup(deferToThread, channel.close)
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
        call = await self.calls.get()
        self.assertTrue(call.peer().startswith("unix:"))
        call.reply(b"")
        self.assertEqual(await self.status(answered), (0, ""))

    async def test_connections(self) -> None:
        """A connection with an open call is counted."""
        channel = await self.serve()
        self.assertEqual(self.engine.connections(), 0)
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
        call = await self.calls.get()
        self.assertEqual(self.engine.connections(), 1)
        call.reply(b"")
        await self.status(answered)
        await self.engine.stop(0)
        self.assertEqual(self.engine.connections(), 0)

    async def test_grace(self) -> None:
        """A server that stops lets calls end, and takes no more."""
        channel = await self.serve()
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
        call = await self.calls.get()
        stopped = self.engine.stop(PATIENCE)
        await deferLater(self.reactor, 0.05, lambda: None)
        self.assertFalse(stopped.called)
        with grpc.insecure_channel(f"127.0.0.1:{self.port}", OWN) as other:
            refused = other.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
            self.assertEqual((await self.status(refused))[0], 14)
        call.reply(b"last")
        self.assertEqual(await deferToThread(answered.result), b"last")
        await stopped

    async def test_afterGrace(self) -> None:
        """Calls that have not ended after the grace are cancelled; to stop again may shorten it."""
        channel = await self.serve()
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
        call = await self.calls.get()
        gone: list[bool] = []
        call.watch(lambda: gone.append(True))
        first = self.engine.stop(PATIENCE)
        second = self.engine.stop(0.1)
        await second
        await first
        self.assertEqual(gone, [True])
        self.assertNotEqual((await self.status(answered))[0], 0)
        # What has stopped, has.
        await self.engine.stop(PATIENCE)

    async def test_settling(self) -> None:
        """While a server settles calls are accepted, and answered, perhaps when clients know."""
        channel = await self.serve()
        stopped = self.engine.stop(PATIENCE, 0.2 if self.holdsResponses else PATIENCE)
        before = time.monotonic()
        answered = channel.unary_unary("/a.B/C").future(b"", timeout=PATIENCE)
        call = await self.calls.get()
        call.reply(b"held")
        self.assertEqual(await deferToThread(answered.result), b"held")
        if self.holdsResponses:
            self.assertGreater(time.monotonic() - before, 0.3)
        else:
            self.assertNoResult(stopped)
            # It settles no longer.
            await self.engine.stop(PATIENCE)
        await stopped

    async def test_many(self) -> None:
        """Hundreds of calls are under way beside one another, and none is mixed up."""
        channel = await self.serve(maxConcurrentStreams=300)
        method = channel.unary_unary("/a.B/C")
        answered = [method.future(b"%d" % each, timeout=PATIENCE) for each in range(300)]
        accepted = [await self.calls.get() for _ in answered]
        for call in reversed(accepted):
            call.read(call.reply)
        results = await deferToThread(lambda: [each.result() for each in answered])
        self.assertEqual(results, [b"%d" % each for each in range(300)])
