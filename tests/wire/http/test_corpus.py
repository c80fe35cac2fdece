"""The corpus against a real listener."""

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from storagegate.net.http.message import ChannelRequest
from tests.net.support import statuses
from tests.support.selection import long
from tests.wire.http.corpus import CORPUS, Case
from tests.wire.http.replaying import SMUGGLED, Cut, ThreeWays
from tests.wire.http.support import ServedCase


class CorpusTests(ThreeWays, ServedCase):
    """Requests that are none."""

    async def replay(self, cut: Cut) -> None:
        """Refuse each, with one short answer, and serve nothing."""
        served: list[bytes] = []

        async def handle(request: ChannelRequest) -> None:
            await request.body.read(1 << 20)
            served.append(request.uri)
            request.respond(200, [], b"served")

        port = await self.serve(handle)
        wrong: list[str] = []
        for case in CORPUS:
            received = await self.exchange(port, *cut(case.wire))
            if not self._isRefusal(case, received):
                wrong.append(f"{case.name}: {received!r}")
        self.assertEqual(wrong, [])
        self.assertEqual(served, [])
        # And nothing in the log: trial fails a test that has logged an error.

    def _isRefusal(self, case: Case, received: bytes) -> bool:
        """Say whether this is exactly one refusal, whole and with a short text."""
        head, _, body = received.partition(b"\r\n\r\n")
        return (
            len(statuses(received)) == 1
            and statuses(received)[0] in case.codes
            and b"\r\nConnection: close" in head
            and b"\r\nContent-Length: %d" % len(body) in head
            and 0 < len(body) < 100
            and (b"\r\nAllow: " in head) == (statuses(received) == [405])
        )

    async def test_afterAGoodOne(self) -> None:
        """A good request before a bad one is answered, and the bad one refused."""
        port = await self.serve(self._ok)
        for case in CORPUS[::10]:
            received = await self.exchange(port, SMUGGLED + case.wire)
            self.assertEqual(statuses(received)[0], 200, case.name)
            self.assertIn(statuses(received)[1], case.codes, case.name)

    async def _ok(self, request: ChannelRequest) -> None:
        await request.body.read(1 << 20)
        request.respond(200, [], b"")


class RefusalTests(ServedCase):
    """Answers that are given while the client still sends."""

    async def test_hugeBody(self) -> None:
        """A client that insists on sending gigabytes sees the refusal, and is soon rid of."""

        async def refuse(request: ChannelRequest) -> None:
            request.respond(403, [], b"no")

        port = await self.serve(refuse, lingerTimeout=0.1)
        client = await self.connect(port)
        client.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000000\r\n\r\n")
        sent = 0
        while not client.closed.called and sent < 1 << 30:
            client.write(b"x" * (1 << 20))
            sent += 1 << 20
            await deferLater(self.reactor, 0.01)
        self.assertEqual(statuses(await client.closed), [403])
        self.assertLess(sent, 1 << 30)

    async def test_keepsSending(self) -> None:
        """A client that sends on before it looks still finds the answer."""

        async def refuse(request: ChannelRequest) -> None:
            request.respond(403, [], b"no")

        port = await self.serve(refuse, lingerTimeout=self.timeout)
        client = await self.connect(port)
        client.pause()
        head = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000000\r\n\r\n"
        for piece in (head + b"x" * 300_000, b"x" * 1000, b"x" * 1000):
            client.write(piece)
            # Long enough for the server to answer, and to close if it did.
            await deferLater(self.reactor, 0.05)
        client.resume()
        self.assertEqual(statuses(await client.closed), [403])
        self.assertFalse(client.reset)

    async def test_lost(self) -> None:
        """A client that goes away in the middle of its body is nobody's error."""
        begun: Deferred[None] = Deferred()
        gone: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            request.onDisconnect(lambda: gone.callback(None))
            begun.callback(None)
            await request.body.read(100)

        port = await self.serve(handle)
        client = await self.connect(port)
        client.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc")
        await begun
        client.drop()
        await gone

    @long("takes a second or more")
    async def test_slowHead(self) -> None:
        """A head that takes too long is a 408 on the wire too."""
        port = await self.serve(self._unreached, headersTimeout=0.5)
        client = await self.connect(port)
        client.write(b"GET / HT")
        self.assertEqual(statuses(await client.closed), [408])

    async def _unreached(self, request: ChannelRequest) -> None:
        raise AssertionError("a half request reached the handler")
