"""Streams through compression: when their pieces arrive, who waits for whom, what is left over."""

import base64
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from storagegate import server
from storagegate.http.encoding import BodyEncoder
from storagegate.http.middleware.compression import compression
from storagegate.net.endpoints import processReactor
from storagegate.net.http.interfaces import ClientLost
from tests.http.decoding import decode, decodeSoFar
from tests.support.selection import long

CODINGS = ("br", "zstd", "gzip", "deflate")

PIECE = 16 * 1024

# More than all buffers between two ends of a connection hold.
STREAM = 32 << 20

# What those buffers do hold, at most: Linux lets each socket's grow to 6 MB.
BUFFERED = 20 << 20


class Reader(Protocol):
    """A client that reads a response, and lets others wait for parts of it."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ended: Deferred[None] = Deferred()
        self._waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def dataReceived(self, data: bytes) -> None:
        """Keep what comes."""
        self.received += data
        for each in list(self._waiting):
            condition, waiter = each
            if condition():
                self._waiting.remove(each)
                waiter.callback(None)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Tell that nothing more comes."""
        self.ended.callback(None)

    def until(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Wait until something is true of what has come."""
        waiter: Deferred[None] = Deferred()
        if condition():
            waiter.callback(None)
        else:
            self._waiting.append((condition, waiter))
        return waiter

    @property
    def head(self) -> bytes:
        """Give the head in lower case."""
        return bytes(self.received).partition(b"\r\n\r\n")[0].lower()

    @property
    def wire(self) -> bytes:
        """Give the body so far, as it came."""
        return bytes(self.received).partition(b"\r\n\r\n")[2]


class StreamTests(TestCase):
    """Responses given in parts."""

    # Where a piece does not arrive there is nothing to assert but that this is over.
    timeout = 180.0

    async def open(
        self, handler: Callable[..., Any], coding: str, version: bytes = b"1.0"
    ) -> Reader:
        """
        Serve a handler and ask it.

        @param version: Bodies for HTTP/1.0 come without chunks, up to the end of the connection.
        """
        app = server.http()
        app.use(self.keepEncoder)
        app.use(compression())
        app.get("/", handler)
        port = await app.listen(0)
        self.addCleanup(app.close, 0)
        place = TCP4ClientEndpoint(processReactor(), "127.0.0.1", port.getHost().port)
        reader: Reader = await connectProtocol(place, Reader())
        assert reader.transport is not None
        reader.transport.write(
            b"GET / HTTP/%b\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: %b\r\n\r\n"
            % (version, coding.encode())
        )
        return reader

    def keepEncoder(self, req: Any, res: Any, next: Any) -> Any:
        """Remember the encoder of a response, without keeping it alive."""
        encodeBody = res.encodeBody

        def remember(choose: Callable[[int | None], BodyEncoder | None]) -> None:
            def chosen(length: int | None) -> BodyEncoder | None:
                encoder = choose(length)
                if encoder is not None:
                    self.encoder = weakref.ref(encoder)
                return encoder

            encodeBody(chosen)

        res.encodeBody = remember
        return next()

    async def test_unknownLength(self) -> None:
        """A body of unknown length is compressed however short it is, in chunks."""

        def handler(req: Any, res: Any) -> None:
            res.type("txt").write("a")
            res.end("b")

        for coding in CODINGS:
            reader = await self.open(handler, coding, b"1.1")
            await reader.ended
            self.assertIn(b"\r\ntransfer-encoding: chunked", reader.head)
            self.assertIn(b"\r\ncontent-encoding: " + coding.encode(), reader.head)
            self.assertNotIn(b"content-length", reader.head)
            reader = await self.open(handler, coding)
            await reader.ended
            self.assertEqual(decode(coding, reader.wire), b"ab")

    async def test_knownLength(self) -> None:
        """A stream whose length is known, such as a file, is judged by it and loses it."""
        for length, coding in ((1024, "gzip"), (1023, None)):
            body = b"k" * length
            sentAsItIs: list[bool] = []

            def handler(req: Any, res: Any, body: bytes = body, told: Any = sentAsItIs) -> None:
                told.append(res.type("txt").startBody(len(body)))
                res.write(body)
                res.end()

            reader = await self.open(handler, "gzip")
            await reader.ended
            self.assertEqual(decode(coding, reader.wire), body)
            self.assertEqual(b"\r\ncontent-length: " in reader.head, coding is None)
            self.assertEqual(sentAsItIs, [coding is None])

    async def test_order(self) -> None:
        """Small pieces and those that are encoded in a thread arrive in their order."""
        rng = random.Random(3)
        pieces = [
            base64.b64encode(rng.randbytes(rng.choice([10, 1_000, 100_000]))) for _ in range(30)
        ]

        def handler(req: Any, res: Any) -> None:
            res.type("txt")
            for piece in pieces:
                res.write(piece)
            res.end("the end")

        for coding in CODINGS:
            reader = await self.open(handler, coding)
            await reader.ended
            self.assertEqual(decode(coding, reader.wire), b"".join(pieces) + b"the end")

    async def test_events(self) -> None:
        """Each event arrives when it is written, not when there are enough of them."""
        for coding in CODINGS:
            seen: list[Deferred[None]] = [Deferred(), Deferred()]

            async def handler(req: Any, res: Any, seen: Any = seen) -> None:
                res.header("Content-Type", "text/event-stream")
                for number, arrived in enumerate(seen):
                    await res.write(f"data: {number}\n\n")
                    await arrived
                res.end()

            reader = await self.open(handler, coding)
            expected = b""
            for number, arrived in enumerate(seen):
                expected += b"data: %d\n\n" % number
                await self.untilDecoded(reader, coding, expected)
                arrived.callback(None)
            await reader.ended
            self.assertEqual(decode(coding, reader.wire), expected)

    async def test_flush(self) -> None:
        """C{res.flush()} sends what the encoder would keep for later."""
        for coding in CODINGS:
            arrived: Deferred[None] = Deferred()

            async def handler(req: Any, res: Any, arrived: Any = arrived) -> None:
                await res.type("txt").write("so far")
                await res.flush()
                await arrived
                res.end(" so good")

            reader = await self.open(handler, coding)
            await self.untilDecoded(reader, coding, b"so far")
            arrived.callback(None)
            await reader.ended
            self.assertEqual(decode(coding, reader.wire), b"so far so good")

    def untilDecoded(self, reader: Reader, coding: str, body: bytes) -> Deferred[None]:
        """Wait until a client can decode this much."""
        return reader.until(lambda: decodeSoFar(coding, reader.wire) == body)

    @long("takes seconds")
    async def test_backPressure(self) -> None:
        """A handler waits for a client that does not read, and goes on when it does."""
        rng = random.Random(4)
        written = 0
        waits: Deferred[None] = Deferred()

        async def handler(req: Any, res: Any) -> None:
            nonlocal written
            res.type("txt")
            while written < STREAM:
                noise = base64.b64encode(rng.randbytes(PIECE))
                room = res.write(noise)
                written += len(noise)
                if isinstance(room, Deferred) and not room.called and not waits.called:
                    waits.callback(None)
                await room
            res.end()

        reader = await self.open(handler, "gzip")
        reader.transport.pauseProducing()  # type: ignore[union-attr]
        await waits
        self.assertLess(written, BUFFERED)
        reader.transport.resumeProducing()  # type: ignore[union-attr]
        await reader.ended
        self.assertEqual(len(decode("gzip", reader.wire)), written)

    async def test_clientLost(self) -> None:
        """A handler hears of a client that has gone, and the encoder is let go."""
        rng = random.Random(5)
        await self.loseClient(lambda: base64.b64encode(rng.randbytes(PIECE)))

    async def test_neverFull(self) -> None:
        """A handler whose text shrinks to nothing never fills the wire, and still hears of it."""
        await self.loseClient(lambda: b"a" * PIECE)

    async def loseClient(self, makePiece: Callable[[], bytes]) -> None:
        """Write without end until the client has gone, and look for the encoder afterwards."""
        for coding in CODINGS:
            failed: Deferred[None] = Deferred()

            async def handler(req: Any, res: Any, failed: Any = failed) -> None:
                res.type("txt")
                try:
                    while True:
                        await res.write(makePiece())
                except ClientLost:
                    failed.callback(None)

            reader = await self.open(handler, coding)
            await reader.until(lambda reader=reader: len(reader.wire) > 0)
            reader.transport.abortConnection()  # type: ignore[union-attr]
            await failed
            await reader.ended
            # The handler has just told us: let it end, and the thread that did its work.
            while self.encoder() is not None:
                await deferLater(processReactor(), 0)
                gc.collect()

    async def test_lostWhileEncoding(self) -> None:
        """Nobody who waits for a thread is forgotten, and the next piece tells what happened."""
        rng = random.Random(6)
        pieces = [base64.b64encode(rng.randbytes(1 << 20)) for _ in range(16)]
        released: Deferred[None] = Deferred()
        failed: Deferred[None] = Deferred()

        async def handler(req: Any, res: Any) -> None:
            res.type("txt")
            await gatherResults([res.write(piece) for piece in pieces])
            released.callback(None)
            try:
                await res.write("x")
            except ClientLost:
                failed.callback(None)

        reader = await self.open(handler, "gzip")
        await reader.until(lambda: len(reader.wire) > 0)
        reader.transport.abortConnection()  # type: ignore[union-attr]
        await released
        await failed
        await reader.ended
