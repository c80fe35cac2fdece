"""Our transports, over real sockets."""

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from zope.interface import implementer

from storagegate.net.endpoints import listen
from storagegate.net.http.message import ChannelRequest
from tests.net.support import head, hello, statuses
from tests.support.selection import long
from tests.wire.http.support import TCP, RawClient, ServedCase
from tests.wire.http.tls import makeCertificate

GET = head()


@implementer(IPushProducer)
class Watcher:
    """Notices when the transport is full, and when it is not any more."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def pauseProducing(self) -> None:
        """Notice."""
        self.events.append("pause")

    def resumeProducing(self) -> None:
        """Notice."""
        self.events.append("resume")

    def stopProducing(self) -> None:
        """Do nothing."""


class WriteTests(ServedCase):
    """Writing to the transport itself."""

    async def open(self) -> tuple[Any, RawClient]:
        """Open a connection; give the server's transport and the client, which does not read."""
        opened: Deferred[Any] = Deferred()

        class Opened(Protocol):
            def connectionMade(self) -> None:
                opened.callback(self.transport)

        port = await listen(self.reactor, TCP, Factory.forProtocol(Opened))
        self.addCleanup(port.stopListening)
        client = await self.connect(port)
        client.pause()
        return await opened, client

    async def test_atOnce(self) -> None:
        """What the kernel takes leaves nothing behind in the process."""
        transport, client = await self.open()
        transport.write(b"one ")
        transport.writeSequence([b"two ", b"", b"three"])
        self.assertFalse(transport.hasUnsent())
        client.resume()
        await client.until(b"one two three")

    async def test_order(self) -> None:
        """What it does not take is queued, and everything comes in order."""
        transport, client = await self.open()
        pieces = [bytes([number]) * 1_000_000 for number in range(12)]
        transport.write(pieces[0])
        for index in range(1, 10, 3):
            transport.writeSequence(pieces[index : index + 3])
        for piece in pieces[10:]:
            transport.write(piece)
        self.assertTrue(transport.hasUnsent())
        transport.loseConnection()
        client.resume()
        self.assertEqual(await client.closed, b"".join(pieces))

    async def test_splitPiece(self) -> None:
        """A sequence that the kernel takes a part of is cut in the right place."""
        transport, client = await self.open()
        pieces = [bytes([number % 251]) * 9973 for number in range(900)]
        transport.writeSequence(pieces)
        self.assertTrue(transport.hasUnsent())
        transport.loseConnection()
        client.resume()
        self.assertEqual(await client.closed, b"".join(pieces))

    async def test_notCopied(self) -> None:
        """What is left of a large piece is sent from where it is: a copy would stop the others."""
        transport, client = await self.open()
        piece = b"x" * 20_000_000
        transport.writeSequence([b"head", piece])
        await self.turnUntil(lambda: transport.offset > 0)
        self.assertIs(transport.dataBuffer, piece)
        transport.write(b"tail")
        transport.loseConnection()
        client.resume()
        self.assertEqual(await client.closed, b"head" + piece + b"tail")

    async def test_backpressure(self) -> None:
        """A producer is paused when the queue is long, and goes on when it is empty."""
        transport, client = await self.open()
        watcher = Watcher()
        transport.registerProducer(watcher, True)
        transport.write(b"x" * 20_000_000)
        self.assertEqual(watcher.events, ["pause"])
        before = transport.sentBytes
        client.resume()
        await self.turnUntil(lambda: watcher.events[-1] == "resume")
        self.assertFalse(transport.hasUnsent())
        self.assertGreater(transport.sentBytes, before)

    async def test_lost(self) -> None:
        """Writing to a client that has gone is harmless, at once and later."""
        transport, client = await self.open()
        client.drop()
        for _ in range(3):
            transport.write(b"x" * 1000)
            transport.writeSequence([b"x", b"y"])
            await deferLater(self.reactor, 0.005)
        await self.turnUntil(lambda: not transport.connected)


class WatchedSocket:
    """A socket that notes how many bytes each C{send} gave it, but for none."""

    def __init__(self, socket: Any, sent: list[int]) -> None:
        self._socket = socket
        self._sent = sent

    def send(self, data: bytes) -> int:
        """Send, and note it."""
        if data:
            self._sent.append(len(data))
        size: int = self._socket.send(data)
        return size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class TurnTests(ServedCase):
    """What is written in answer to what was read is sent at the end of the turn."""

    async def answer(self, write: Callable[[Any], object]) -> tuple[bytes, list[int]]:
        """
        Let a server write when it has read a byte, and then lose the connection.

        @return: What the client received, and how many bytes each call of the kernel sent.
        """
        sent: list[int] = []

        class Answering(Protocol):
            def dataReceived(self, data: bytes) -> None:
                transport: Any = self.transport
                transport.socket = WatchedSocket(transport.socket, sent)
                write(transport)

        port = await listen(self.reactor, TCP, Factory.forProtocol(Answering))
        self.addCleanup(port.stopListening)
        client = await self.connect(port)
        client.write(b"x")
        return await client.closed, sent

    async def test_together(self) -> None:
        """Small writes are one call of the kernel; until then they count as unsent."""
        unsent: list[bool] = []

        def write(transport: Any) -> None:
            transport.write(b"one ")
            transport.write(b"two ")
            unsent.append(transport.hasUnsent())
            self.reactor.callLater(0, end, transport)

        def end(transport: Any) -> None:
            unsent.append(transport.hasUnsent())
            transport.write(b"three")
            transport.loseConnection()

        received, sent = await self.answer(write)
        self.assertEqual((received, sent), (b"one two three", [8, 5]))
        self.assertEqual(unsent, [True, False])

    async def test_large(self) -> None:
        """A large write is sent at once, after what was held back; none waits for a count."""
        large = b"l" * 20_000

        def write(transport: Any) -> None:
            transport.write(b"small")
            transport.write(large)
            for _ in range(40):
                transport.write(b"m")
            transport.writeSequence([b"s", b"t"])
            transport.loseConnection()

        received, sent = await self.answer(write)
        self.assertEqual(received, b"small" + large + b"m" * 40 + b"st")
        self.assertEqual(sent, [20_005, 32, 8])

    async def test_ends(self) -> None:
        """Nothing is lost by what ends a connection in the same turn."""
        for end in ("loseConnection", "loseWriteConnection", "abortConnection"):

            def write(transport: Any, end: str = end) -> None:
                transport.write(b"last words")
                getattr(transport, end)()

            received, sent = await self.answer(write)
            self.assertEqual(sent, [10], end)
            if end != "abortConnection":
                self.assertEqual(received, b"last words", end)

    async def test_failingRead(self) -> None:
        """A protocol that raises loses its connection, and what it wrote before is sent."""

        def write(transport: Any) -> None:
            transport.write(b"before")
            raise RuntimeError("a protocol that fails")

        _, sent = await self.answer(write)
        self.assertEqual(sent, [6])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class ClosingTests(ServedCase):
    """How connections end."""

    async def connectTLS(self, handle: Any, **limits: Any) -> RawClient:
        """Connect a client over TLS."""
        certificate = makeCertificate(self.mktemp())
        port = await self.serve(
            handle, f"ssl:0:interface=127.0.0.1:privateKey={certificate}", **limits
        )
        address: Any = port.getHost()
        return await self.connect(port, f"ssl:127.0.0.1:{address.port}")

    async def test_tls(self) -> None:
        """A connection over TLS ends after its last answer, and a broken request too."""
        for request, code in [(head(b"Connection: close"), 200), (b"broken\r\n\r\n", 400)]:
            client = await self.connectTLS(hello)
            client.write(request)
            self.assertEqual(statuses(await client.closed), [code])

    async def test_slowTLS(self) -> None:
        """A client that reads in its own time gets all of a large answer over TLS."""

        async def large(request: ChannelRequest) -> None:
            request.begin(200, [(b"Connection", b"close")], None)
            for number in range(100):
                waiting = request.send(b"%06d" % number * 10_000)
                if waiting is not None:
                    waits.append(number)
                    await waiting
            request.finish()

        waits: list[int] = []
        client = await self.connectTLS(large)
        client.write(GET)
        await client.until(b"\r\n\r\n")
        client.pause()
        await self.turnUntil(lambda: bool(waits))
        client.resume()
        received = await client.closed
        self.assertIn(b"000099" * 10_000, received)
        self.assertTrue(received.endswith(b"\r\n0\r\n\r\n"))

    async def test_refusedTLS(self) -> None:
        """One connection too many does not get to hold us by its handshake."""
        client = await self.connectTLS(hello, maxConnections=0)
        self.assertEqual(await client.closed, b"")

    @long("takes a second or more")
    async def test_silentTLS(self) -> None:
        """A client that never begins its handshake is closed like any other that is silent."""
        certificate = makeCertificate(self.mktemp())
        port = await self.serve(
            hello, f"ssl:0:interface=127.0.0.1:privateKey={certificate}", headersTimeout=0.5
        )
        client = await self.connect(port)
        self.assertEqual(await client.closed, b"")

    @long("takes a second or more")
    async def test_stubborn(self) -> None:
        """A client that does not go away when we have closed is left behind, also over TLS."""
        plain = await self.connect(await self.serve(hello, lingerTimeout=0.1))
        secure = await self.connectTLS(hello, lingerTimeout=0.1)
        for client in (plain, secure):
            client.write(GET)
            await client.until(b"hello")
            client.write(b"broken\r\n\r\n")
            # A client that does not look does not see that we have closed.
            client.pause()
        await self.turnUntil(lambda: not any(site._channels for site in self.sites))

    async def test_drain(self) -> None:
        """A site that drains answers what is in flight, closes all, and is done."""
        turn: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            await turn
            request.respond(200, [], b"done")

        port = await self.serve(handle)
        idle, busy = await self.connect(port), await self.connect(port)
        busy.write(GET)
        await self.turnUntil(lambda: self.sites[0].requests == 1)
        drained = self.sites[0].drain(self.timeout)
        self.assertEqual(await idle.closed, b"")
        self.assertNoResult(drained)
        turn.callback(None)
        self.assertIn(b"done", await busy.closed)
        await drained

    @long("takes seconds")
    async def test_slowCloser(self) -> None:
        """A client that reads a large last answer slowly gets it all, though we have closed."""

        async def large(request: ChannelRequest) -> None:
            request.respond(200, [(b"Connection", b"close")], b"x" * 20_000_000)

        client = await self.connect(await self.serve(large, lingerTimeout=0.01))
        client.pause()
        client.write(GET)
        # Two looks at the clock, both long after the time to linger.
        await deferLater(self.reactor, 2.2)
        client.resume()
        self.assertEqual(len((await client.closed).partition(b"\r\n\r\n")[2]), 20_000_000)


class Shout(Protocol):
    """Another protocol: says everything again, louder."""

    def dataReceived(self, data: bytes) -> None:
        """Say it again."""
        transport: Any = self.transport
        transport.write(data.upper())


class UpgradeTests(ServedCase):
    """Connections that go over to another protocol."""

    async def upgrade(self, request: ChannelRequest) -> None:
        """Go over to shouting."""
        request.upgrade(Shout())

    UPGRADE = head(b"Connection: Upgrade", b"Upgrade: shout")

    async def test_tcp(self) -> None:
        """The protocol gets what came with the request and what comes later."""
        client = await self.connect(await self.serve(self.upgrade))
        client.write(self.UPGRADE + b"one")
        await client.until(b"ONE")
        client.write(b"two")
        await client.until(b"ONETWO")
        self.assertEqual(self.sites[0]._channels, set())

    async def test_unix(self) -> None:
        """So it does over a UNIX socket."""
        path = os.path.relpath(self.mktemp())
        port = await self.serve(self.upgrade, f"unix:{path}")
        client = await self.connect(port, f"unix:{path}")
        client.write(self.UPGRADE + b"one")
        await client.until(b"ONE")

    async def test_tls(self) -> None:
        """And over TLS."""
        certificate = makeCertificate(self.mktemp())
        port = await self.serve(self.upgrade, f"ssl:0:interface=127.0.0.1:privateKey={certificate}")
        address: Any = port.getHost()
        client = await self.connect(port, f"ssl:127.0.0.1:{address.port}")
        client.write(self.UPGRADE + b"one")
        await client.until(b"ONE")
        client.write(b"two")
        await client.until(b"ONETWO")
