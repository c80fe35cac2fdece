"""Bodies that are read whole, and the budget of bytes that they may hold."""

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes, TooMuchHeld
from storagegate.net.http.message import ChannelRequest
from tests.net.support import Connection, TestSite, head, statuses


class HeldBytesTests(SynchronousTestCase):
    """A site with a budget of 1,000 bytes, whose handler reads the whole body."""

    def setUp(self) -> None:
        """Make the site."""
        self.site = TestSite(self.handle)
        self.budget = self.site.site.budget = HeldBytes(1000, self.site.clock.seconds)
        self.isHeld = False
        self.parsed: Deferred[None] = Deferred()
        self.totals: list[int] = []

    async def handle(self, request: ChannelRequest) -> None:
        """Respond with the length of the body."""
        try:
            body = await request.body.read(1 << 20, self.isHeld)
        except TooMuchHeld as error:
            request.respond(429, [], error.code.encode())
            return
        self.totals.append(self.budget.total)
        if self.isHeld:
            await self.parsed
        request.respond(200, [], b"%d" % len(body))

    def post(self, *pieces: bytes, length: int = 600) -> Connection:
        """Begin a request on a connection of its own."""
        connection = self.site.connect()
        line = b"POST / HTTP/1.1"
        connection.channel.dataReceived(head(b"Content-Length: %d" % length, line=line))
        for piece in pieces:
            connection.channel.dataReceived(piece)
        return connection

    def test_complete(self) -> None:
        """A body that is complete in one read is never entered, behind its head or with it."""
        self.assertEqual(statuses(self.post(b"x" * 600).received()), [200])
        whole = head(b"Content-Length: 600", line=b"POST / HTTP/1.1") + b"x" * 600
        self.assertEqual(statuses(self.site.connect().send(whole)), [200])
        self.assertEqual(self.totals, [0, 0])

    def test_counted(self) -> None:
        """Bytes count as they come, until the body is complete."""
        connection = self.post(b"x" * 200, b"x" * 100)
        self.assertEqual(self.budget.total, 300)
        self.assertEqual(statuses(connection.send(b"x" * 300)), [200])
        self.assertEqual((self.totals, self.budget.total), ([0], 0))

    def test_parsed(self) -> None:
        """Where the reader says so they count further, until it has parsed them."""
        self.isHeld = True
        connection = self.post(b"x" * 200)
        connection.send(b"x" * 400)
        self.assertEqual(self.budget.total, 600)
        self.parsed.callback(None)
        self.assertEqual(self.budget.total, 0)

    def test_refused(self) -> None:
        """Over the limit the largest is refused, and its connection closed; the others go on."""
        first, second = self.post(b"x" * 500), self.post(b"x" * 400)
        third = self.post(b"x" * 101, length=200_000)
        self.assertEqual(statuses(first.received()), [429])
        self.assertEqual((self.budget.total, self.budget.refused), (501, 1))
        self.assertEqual(statuses(second.send(b"x" * 200)), [200])
        self.assertEqual((statuses(third.send(b"x" * 901)), third.closed), ([429], True))
        self.assertEqual(self.budget.total, 0)

    def test_parsing(self) -> None:
        """What is being parsed is not refused any more: another one is."""
        self.isHeld = True
        first = self.post(b"x" * 200)
        first.send(b"x" * 400)
        second = self.post(b"x" * 401)
        self.assertEqual((statuses(first.received()), statuses(second.received())), ([], [429]))
        self.parsed.callback(None)
        self.assertEqual(statuses(first.received()), [200])

    def test_lost(self) -> None:
        """A client that goes away leaves nothing, and neither does a request that has ended."""
        self.post(b"x" * 200).lose()
        self.assertEqual(self.budget.total, 0)
        self.isHeld = True
        connection = self.post(b"x" * 200)
        connection.send(b"x" * 400)
        connection.lose()
        self.assertEqual(self.budget.total, 0)

    def test_unread(self) -> None:
        """A body that is read in pieces, or not at all, does not count: it waits."""

        async def ignore(request: ChannelRequest) -> None:
            await Deferred()

        self.site = TestSite(ignore)
        self.budget = self.site.site.budget = HeldBytes(1000, self.site.clock.seconds)
        connection = self.post(b"x" * 70_000, length=200_000)
        self.assertEqual((self.budget.total, connection.reading), (0, False))
