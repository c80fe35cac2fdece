"""Files over real sockets."""

import os
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.trial.unittest import SkipTest

from storagegate.net.http.message import ChannelRequest
from storagegate.net.sendfile import TruncatedFile, isWarm
from storagegate.net.transport import FastServer
from tests.wire.http.support import TCP, RawClient, ServedCase
from tests.wire.http.tls import makeCertificate

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
END = b"\r\n\r\n"
SIZE = 5_000_000


class BufferTests(ServedCase):
    """A buffer that a handler sends several times, with other bytes each time."""

    PIECES = 24
    PIECE = 1 << 18

    async def handle(self, request: ChannelRequest) -> None:
        """Send the buffer, and write to it after each call."""
        request.begin(200, [], self.PIECES * self.PIECE)
        buffer = bytearray(self.PIECE)
        for number in range(self.PIECES):
            buffer[:] = self.piece(number)
            wait = request.sendBuffer(memoryview(buffer))
            buffer[:] = bytes(self.PIECE)
            if wait is not None:
                self.waits += 1
                await wait
        request.finish()

    def piece(self, number: int) -> bytes:
        """Return the bytes of a piece."""
        return b"%016x" % (number + 1) * (self.PIECE // 16)

    async def assertServes(self, port: IListeningPort, description: str = "") -> None:
        """Assert that a slow client gets all bytes, although it makes the sender wait."""
        self.waits = 0
        client = await self.connect(port, description)
        client.transport.pauseProducing()
        client.write(GET)
        await deferLater(self.reactor, 0.2)
        client.transport.resumeProducing()
        size = self.PIECES * self.PIECE
        got = await client.until(lambda received: len(received.partition(END)[2]) >= size)
        body = got.partition(END)[2]
        self.assertTrue(body == b"".join(map(self.piece, range(self.PIECES))))
        self.assertGreater(self.waits, 0)

    async def test_tcp(self) -> None:
        """Bytes that the kernel does not accept are copied."""
        await self.assertServes(await self.serve(self.handle))

    async def test_tls(self) -> None:
        """TLS keeps what it encrypts later, so it gets a copy."""
        certificate = makeCertificate(self.mktemp())
        port = await self.serve(
            self.handle, f"ssl:0:interface=127.0.0.1:privateKey={certificate}:certKey={certificate}"
        )
        await self.assertServes(port, f"ssl:127.0.0.1:{port.getHost().port}")


class FileTests(ServedCase):
    """A file that a handler sends."""

    def setUp(self) -> None:
        """Make a file with no two pages alike."""
        super().setUp()
        self.content = b"".join(b"%016x" % number for number in range(SIZE // 16))
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(self.content)
            file.flush()
            os.fsync(file.fileno())
        self.fd = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, self.fd)
        self.readings = 0
        self.outcomes: list[Deferred[None]] = []

    def run_(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Call in a thread, and count."""
        self.readings += 1
        return deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function, *arguments)

    async def handle(self, request: ChannelRequest) -> None:
        """Send the file, and keep what came of it."""
        request.begin(200, [], len(self.content))
        outcome = Deferred.fromCoroutine(request.sendFile(self.fd, 0, len(self.content), self.run_))
        self.outcomes.append(outcome)
        noticed: Deferred[Any] = Deferred()
        outcome.addBoth(lambda result: (noticed.callback(None), result)[1])
        await noticed
        request.finish()

    def body(self, client: RawClient, size: int) -> Deferred[bytes]:
        """Wait for one response with a body of a size."""

        def isThere(received: bytes) -> bool:
            return len(received.partition(b"\r\n\r\n")[2]) >= size

        return client.until(isThere).addCallback(lambda got: got.partition(b"\r\n\r\n")[2])

    async def assertServes(self, port: IListeningPort, description: str = "") -> None:
        """Assert that the file comes whole, and the connection goes on."""
        client = await self.connect(port, description)
        for _ in range(2):
            client.write(GET)
            self.assertEqual(await self.body(client, SIZE), self.content)
            client.received = b""

    async def test_tcp(self) -> None:
        """A file comes as it is."""
        await self.assertServes(await self.serve(self.handle))

    async def test_unix(self) -> None:
        """Over a UNIX socket too."""
        path = self.mktemp()[-80:]
        port = await self.serve(self.handle, f"unix:{path}")
        await self.assertServes(port, f"unix:{path}")

    async def test_tls(self) -> None:
        """Over TLS too, encrypted, read in a thread."""
        certificate = makeCertificate(self.mktemp())
        port = await self.serve(self.handle, f"ssl:{TCP[4:]}:privateKey={certificate}")
        address: Any = port.getHost()
        await self.assertServes(port, f"ssl:127.0.0.1:{address.port}")
        self.assertGreaterEqual(self.readings, SIZE // (256 * 1024))

    async def test_part(self) -> None:
        """A part of a file comes from its offset on, in order with other parts of the body."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], 8 + 1_000_000 + 3)
            request.send(b"<before>")
            await request.sendFile(self.fd, 1_000_001, 1_000_000, self.run_)
            request.send(b"end")
            request.finish()

        client = await self.connect(await self.serve(handle))
        client.write(GET)
        self.assertEqual(
            await self.body(client, 1_000_011),
            b"<before>" + self.content[1_000_001:2_000_001] + b"end",
        )

    async def test_chunked(self) -> None:
        """A file in a response of unknown length is one chunk."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)
            await request.sendFile(self.fd, 16, 32, self.run_)
            request.finish()

        client = await self.connect(await self.serve(handle))
        client.write(GET)
        body = (await client.until(b"\r\n0\r\n\r\n")).partition(b"\r\n\r\n")[2]
        self.assertEqual(body, b"20\r\n" + self.content[16:48] + b"\r\n0\r\n\r\n")

    async def test_head(self) -> None:
        """HEAD sends nothing of it."""
        client = await self.connect(await self.serve(self.handle))
        client.write(GET.replace(b"GET", b"HEAD") + b"broken\r\n\r\n")
        received = await client.closed
        self.assertIn(b"Content-Length: %d\r\n" % SIZE, received)
        self.assertNotIn(b"0000", received.partition(b"\r\n\r\n")[2])

    async def test_slowReader(self) -> None:
        """A client that reads in its own time gets every byte, behind what was buffered before."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], SIZE * 2)
            request.send(self.content)
            await request.sendFile(self.fd, 0, SIZE, self.run_)
            request.finish()

        client = await self.connect(await self.serve(handle))
        for _ in range(2):
            client.received = b""
            client.write(GET)
            for _ in range(5):
                client.pause()
                await deferLater(self.reactor, 0.02)
                client.resume()
                await deferLater(self.reactor, 0.002)
            self.assertEqual(await self.body(client, SIZE * 2), self.content * 2)

    async def test_disconnect(self) -> None:
        """A client that goes away in the middle fails the sending, and leaves nothing behind."""
        client = await self.connect(await self.serve(self.handle))
        client.write(GET)
        await client.until(lambda received: len(received) > 100_000)
        client.pause()
        client.drop()
        await self.turnUntil(lambda: bool(self.outcomes and self.outcomes[0].called))
        await self.assertFailure(self.outcomes[0], ConnectionLost)

    async def test_shortFile(self) -> None:
        """A file that is shorter than promised drops the connection: nobody takes it as whole."""
        self.content += b"more"
        client = await self.connect(await self.serve(self.handle))
        client.write(GET)
        received = await client.closed
        self.assertTrue(client.reset)
        self.assertLess(len(received.partition(b"\r\n\r\n")[2]), len(self.content))
        await self.assertFailure(self.outcomes[0], TruncatedFile)

    async def test_cold(self) -> None:
        """What is not in memory is read in a thread first, and comes as it is."""
        # Only pages that are on the disk can leave the memory.
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if isWarm(self.fd, 0, SIZE):
            raise SkipTest("this file system keeps every page in memory")
        await self.assertServes(await self.serve(self.handle))
        self.assertGreater(self.readings, 0)
        self.assertTrue(isWarm(self.fd, 0, SIZE))

    async def test_warm(self) -> None:
        """What is in memory needs no thread."""
        os.pread(self.fd, SIZE, 0)
        if not isWarm(self.fd, 0, SIZE):
            raise SkipTest("this file system cannot say what is in memory")
        await self.assertServes(await self.serve(self.handle))
        self.assertEqual(self.readings, 0)

    async def test_unreadable(self) -> None:
        """A disk that fails while reading ahead drops the connection and fails the sending."""
        # Only pages that are on the disk can leave the memory.
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if isWarm(self.fd, 0, SIZE):
            raise SkipTest("this file system keeps every page in memory")
        self.run_ = lambda function, *arguments: fail(OSError(5, "broken"))  # type: ignore[method-assign]
        client = await self.connect(await self.serve(self.handle))
        client.write(GET)
        await client.closed
        await self.assertFailure(self.outcomes[0], OSError)

    async def test_descriptorStaysOpen(self) -> None:
        """While a thread reads ahead the sending does not end, though the client is gone."""
        # Only pages that are on the disk can leave the memory.
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if isWarm(self.fd, 0, SIZE):
            raise SkipTest("this file system keeps every page in memory")
        thread: Deferred[None] = Deferred()
        self.run_ = lambda function, *arguments: thread  # type: ignore[method-assign]
        gone: Deferred[None] = Deferred()
        senders: list[FastServer] = []

        async def handle(request: ChannelRequest) -> None:
            request.onDisconnect(lambda: gone.callback(None))
            senders.append(request.channel.connection.fileSender)
            request.begin(200, [], SIZE)
            self.outcomes.append(senders[0].sendFile(self.fd, 0, SIZE, self.run_))
            await gone

        client = await self.connect(await self.serve(handle))
        client.write(GET)
        await client.until(b"\r\n\r\n")
        client.drop()
        await gone
        await deferLater(self.reactor, 0)
        self.assertNoResult(self.outcomes[0])
        thread.callback(None)
        self.failureResultOf(self.outcomes[0], ConnectionLost)

    async def test_cancelled(self) -> None:
        """A sending that is cancelled drops the connection, for half of it is out."""
        cancelled: list[Deferred[None]] = []

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], SIZE)
            sending = request.channel.connection.fileSender.sendFile(self.fd, 0, SIZE, self.run_)
            cancelled.append(sending)
            sending.cancel()
            sending.addErrback(lambda reason: None)
            await sending

        client = await self.connect(await self.serve(handle))
        client.pause()
        client.write(GET)
        await self.turnUntil(lambda: bool(cancelled))
        client.resume()
        await client.closed
        self.assertTrue(client.reset)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    async def test_noOvertaking(self) -> None:
        """Bytes that would overtake the file are a bug that is reported."""
        raised: list[Exception] = []

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], SIZE)
            sender: FastServer = request.channel.connection.fileSender
            sending = sender.sendFile(self.fd, 0, SIZE, self.run_)
            for attempt in (
                lambda: sender.write(b"x"),
                lambda: sender.writeSequence([b"x"]),
                lambda: sender.sendFile(self.fd, 0, 1, self.run_),
            ):
                raised.append(self.assertRaises(RuntimeError, attempt))
            await sending
            request._remaining = 0
            request.finish()

        client = await self.connect(await self.serve(handle))
        client.write(GET)
        self.assertEqual(await self.body(client, SIZE), self.content)
        self.assertEqual(len(raised), 3)
