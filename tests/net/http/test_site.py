"""Timeouts, limits and the end of a site."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from storagegate.net.forwarded import compileTrust
from storagegate.net.http.interfaces import IChannelOwner, IRequestChannel
from storagegate.net.http.message import ChannelRequest
from tests.net.support import Connection, TestSite, head, hello, statuses

GET = head()
PUT = head(b"Content-Length: 100000", line=b"PUT / HTTP/1.1")


async def read(request: ChannelRequest) -> None:
    """Answer when the body has been read."""
    await request.body.read(1 << 20)
    request.respond(200, [])


async def take(request: ChannelRequest) -> None:
    """Read a body in pieces."""
    async for _ in request.body:
        pass
    request.respond(200, [])


def never(request: ChannelRequest) -> Deferred[None]:
    """Never answer."""
    return Deferred()


class PieceSizeTests(SynchronousTestCase):
    """How much of a large body or a file is handled at once."""

    def test_shared(self) -> None:
        """Few requests have large pieces; many share a bound, down to a smallest piece."""
        site = TestSite(never)
        self.assertEqual(site.site.pieceSize(), site.site.limits.pieceSize)
        sizes = []
        for _ in range(200):
            site.connect().send(GET)
            sizes.append(site.site.pieceSize())
        self.assertEqual(sizes[:16], [site.site.limits.pieceSize] * 16)
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertEqual(sizes[31], site.site.limits.pieces // 32)
        self.assertEqual(sizes[-1], site.site.limits.bodyBuffer)

    def test_read(self) -> None:
        """A read of a large body is shorter, as one turn handles all of it."""
        connection = TestSite(never).connect()
        sizes: list[int] = []
        connection.transport.setReadSize = sizes.append  # type: ignore[attr-defined]
        connection.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        connection.send(bytes(1000))
        self.assertEqual(sizes[-1], 96 * 1024)


class TimeoutTests(SynchronousTestCase):
    """What a client, or a handler, may not take for ever."""

    def assertLasts(self, site: TestSite, connection: Connection, seconds: int) -> bytes:
        """Assert that a connection is closed after some seconds and not before."""
        site.letPass(seconds - 1)
        self.assertFalse(connection.closed)
        site.letPass(2)
        self.assertTrue(connection.closed)
        return connection.received()

    def test_silence(self) -> None:
        """A client that never says anything is closed without a word."""
        site = TestSite(hello)
        connection = site.connect()
        self.assertEqual(self.assertLasts(site, connection, 60), b"")

    def test_head(self) -> None:
        """A head must be complete 60 s after its first byte; a byte now and then buys no time."""
        site = TestSite(hello)
        connection = site.connect()
        site.letPass(30)
        for octet in GET[:5]:
            connection.send(bytes([octet]))
            site.letPass(10)
        self.assertEqual(statuses(self.assertLasts(site, connection, 10)), [408])
        self.assertEqual(site.requests, [])

    def test_keepAlive(self) -> None:
        """An idle connection is closed after the time its site allows."""
        site = TestSite(hello, keepAliveTimeout=75)
        connection = site.connect()
        connection.send(GET)
        self.assertEqual(self.assertLasts(site, connection, 75), b"")

    def test_headAfterIdling(self) -> None:
        """The time for a head begins with its first byte, not with the end of the last request."""
        site = TestSite(hello, keepAliveTimeout=75)
        connection = site.connect()
        connection.send(GET)
        site.letPass(74)
        connection.send(b"GET")
        self.assertEqual(statuses(self.assertLasts(site, connection, 60)), [408])

    def test_body(self) -> None:
        """A body that stops coming is 408 after 300 s, and the handler is told."""
        site = TestSite(read)
        connection = site.connect()
        connection.send(PUT)
        site.letPass(200)
        connection.send(b"x" * 5000)
        self.assertEqual(statuses(self.assertLasts(site, connection, 300)), [408])
        self.assertTrue(site.requests[0].disconnected)

    def test_trickle(self) -> None:
        """A body of known length that comes by the byte does not count as coming."""
        site = TestSite(read)
        connection = site.connect()
        connection.send(PUT)
        for _ in range(29):
            site.letPass(10)
            connection.send(b"x")
        self.assertEqual(statuses(self.assertLasts(site, connection, 10)), [408])

    def test_slowStream(self) -> None:
        """Nor does one of unknown length, nor its trailers; one with 4 KiB in the time does."""
        for trickle in (b"1\r\nx\r\n", b"0\r\n" + b"A: b\r\n"):
            site = TestSite(take)
            connection = site.connect()
            connection.send(head(b"Transfer-Encoding: chunked"))
            for _ in range(3):
                site.letPass(250)
                connection.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            site.letPass(150)
            connection.send(trickle)
            self.assertEqual(statuses(self.assertLasts(site, connection, 150)), [408])

    def test_whole(self) -> None:
        """A body that is read whole is 408 after 600 s, even if it makes progress."""
        for handler, isLate in ((read, True), (take, False)):
            site = TestSite(handler)
            connection = site.connect()
            connection.send(head(b"Transfer-Encoding: chunked"))
            for _ in range(5):
                site.letPass(110)
                connection.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            self.assertFalse(connection.closed)
            site.letPass(52)
            self.assertEqual(statuses(connection.received()), [408] * isLate)

    def test_handler(self) -> None:
        """A handler that never answers is 503 after 300 s, and is cancelled."""
        site = TestSite(never)
        connection = site.connect()
        connection.send(GET)
        self.assertEqual(statuses(self.assertLasts(site, connection, 300)), [503])
        self.assertTrue(site.requests[0].disconnected)

    def test_slowResponse(self) -> None:
        """A response that goes on, however slowly, is left alone; one that stops is dropped."""
        site = TestSite(never)
        connection = site.connect()
        connection.send(GET)
        site.requests[0].begin(200, [], None)
        for _ in range(5):
            site.letPass(250)
            site.requests[0].send(b"event\n")
        self.assertFalse(connection.closed)
        site.letPass(302)
        self.assertTrue(connection.aborted)

    def test_everyRequestAnew(self) -> None:
        """The time of one request is not taken from the next."""
        site = TestSite(never, keepAliveTimeout=1000)
        connection = site.connect()
        for _ in range(3):
            connection.send(GET)
            site.letPass(250)
            site.requests[-1].respond(200, [])
            site.letPass(100)
        self.assertFalse(connection.closed)

    def test_watchEnds(self) -> None:
        """With no connection left nothing is scheduled any more."""
        site = TestSite(hello)
        connection = site.connect()
        self.assertEqual(len(site.clock.getDelayedCalls()), 1)
        connection.lose()
        self.assertEqual(site.clock.getDelayedCalls(), [])


class InterfaceTests(SynchronousTestCase):
    """What the parts promise each other."""

    def test_provided(self) -> None:
        """The site and its channels provide what they are asked by."""
        site = TestSite(hello)
        verifyObject(IChannelOwner, site.site)
        connection = site.connect()
        verifyObject(IRequestChannel, connection.channel)
        verifyObject(IPushProducer, connection.channel)


class LimitTests(SynchronousTestCase):
    """Too many of a thing."""

    def test_connections(self) -> None:
        """One connection too many is told so and closed, and room that is freed is used."""
        site = TestSite(hello, maxConnections=2)
        first, second, third = site.connect(), site.connect(), site.connect()
        self.assertEqual(statuses(third.received()), [503])
        self.assertTrue(third.closed)
        third.lose()
        self.assertEqual(statuses(second.send(GET)), [200])
        first.lose()
        self.assertEqual(statuses(site.connect().send(GET)), [200])

    def test_connectionsOfAnAddress(self) -> None:
        """One address has three quarters of the connections; the rest is for others."""
        site = TestSite(hello, maxConnections=4)
        first, *_, fourth = [site.connect() for _ in range(4)]
        self.assertEqual(statuses(fourth.received()), [503])
        fourth.lose()
        self.assertEqual(statuses(site.connect("192.0.2.8").send(GET)), [200])
        first.lose()
        self.assertEqual(statuses(site.connect("192.0.2.8").send(GET)), [200])

    def test_connectionsOfASocket(self) -> None:
        """Clients of a UNIX socket, which have no address, may have all."""
        site = TestSite(hello, maxConnections=4)
        self.assertEqual([site.connect("").closed for _ in range(5)], [False] * 4 + [True])

    def test_requestsOfAnAddress(self) -> None:
        """So with requests."""
        site = TestSite(never, maxRequests=4)
        mine = [site.connect() for _ in range(5)]
        self.assertEqual([statuses(each.send(GET)) for each in mine], [[], [], [], [503], [503]])
        other = site.connect("192.0.2.8")
        self.assertEqual(statuses(other.send(GET)), [])
        self.assertEqual(statuses(site.connect("192.0.2.9").send(GET)), [503])
        mine[0].lose()
        self.assertEqual(statuses(mine[4].send(GET)), [])

    def test_requestsBehindAProxy(self) -> None:
        """One client has three quarters of the requests; another one of the same proxy the rest."""
        site = TestSite(never, maxConnections=100, maxRequests=4)
        site.site.trust = compileTrust("192.0.2.7")
        greedy, other = (head(b"X-Forwarded-For: 198.51.100.%d" % number) for number in (1, 2))
        answers = [statuses(site.connect().send(greedy)) for _ in range(5)]
        self.assertEqual(answers, [[], [], [], [503], [503]])
        self.assertEqual(statuses(site.connect().send(other)), [])
        self.assertEqual(site.site.requests, 4)

    def test_requests(self) -> None:
        """One request too many is told so, and room that is freed is used."""
        site = TestSite(never, maxRequests=1)
        first, second = site.connect(), site.connect()
        first.send(GET)
        answered = second.send(GET)
        self.assertEqual(statuses(answered), [503])
        self.assertIn(b"Retry-After: 1", answered)
        first.lose()
        second.send(GET)
        self.assertEqual(len(site.requests), 2)


TURN = 0.001


class Turns:
    """
    The turns of a reactor on a clock: what is to be called at once is called in the next one, when
    sockets have been read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = clock.seconds

    def callLater(self, seconds: float, *call: Any) -> Any:
        """Call a function, not before the next turn."""
        return self._clock.callLater(max(seconds, TURN), *call)


class DrainTests(SynchronousTestCase):
    """A site that ends."""

    def test_idle(self) -> None:
        """A site without connections is drained at once, others close theirs."""
        site = TestSite(hello)
        self.successResultOf(site.site.drain(30))
        site = TestSite(hello)
        connection = site.connect()
        connection.send(GET)
        draining = site.site.drain(30)
        site.clock.pump([0, 0])
        self.assertTrue(connection.closed)
        self.assertNoResult(draining)
        connection.lose()
        self.successResultOf(draining)
        self.assertEqual(site.clock.getDelayedCalls(), [])

    def test_stillReading(self) -> None:
        """A request that has come, or is coming, when a site begins to drain is answered."""
        site = TestSite(hello)
        whole, half = site.connect(), site.connect()
        half.send(GET[:10])
        draining = site.site.drain(30)
        self.assertIn(b"Connection: close", whole.send(GET))
        site.clock.pump([0, 0])
        self.assertTrue(whole.closed)
        self.assertFalse(half.closed)
        self.assertIn(b"Connection: close", half.send(GET[10:]))
        self.assertTrue(half.closed)
        whole.lose()
        half.lose()
        self.successResultOf(draining)

    def test_stillReadingLater(self) -> None:
        """
        So is one that came within the patience, and that a process had no turn to read before that
        was over: in the turn after it.
        """
        site = TestSite(hello)
        self.patch(site.site, "reactor", Turns(site.clock))
        asking, idle = site.connect(), site.connect()
        draining = site.site.drain(30, 2)
        site.clock.advance(TURN)
        site.clock.advance(15)
        self.assertIn(b"Connection: close", asking.send(GET))
        self.assertFalse(idle.closed)
        site.clock.advance(TURN)
        self.assertTrue(asking.closed and idle.closed)
        asking.lose()
        idle.lose()
        self.successResultOf(draining)

    def test_busy(self) -> None:
        """A request in flight is answered, with the news that the connection closes."""
        site = TestSite(never)
        connection = site.connect()
        connection.send(GET)
        draining = site.site.drain(30)
        site.letPass(10)
        self.assertFalse(connection.closed)
        site.requests[0].respond(200, [])
        self.assertIn(b"Connection: close", connection.received())
        self.assertTrue(connection.closed)
        connection.lose()
        self.successResultOf(draining)

    def test_begun(self) -> None:
        """A response that has begun without that news closes all the same."""
        site = TestSite(never)
        connection = site.connect()
        connection.send(GET)
        site.requests[0].begin(200, [], 1)
        site.site.drain(30)
        site.requests[0].send(b"x")
        site.requests[0].finish()
        self.assertTrue(connection.closed)

    def test_grace(self) -> None:
        """What is not answered when the grace is over is dropped."""
        site = TestSite(never)
        connection = site.connect()
        connection.send(GET)
        draining = site.site.drain(30)
        site.letPass(31)
        self.assertTrue(connection.aborted)
        connection.lose()
        self.successResultOf(draining)

    def test_newcomers(self) -> None:
        """Nobody is let in any more."""
        site = TestSite(never)
        site.connect()
        site.site.drain(30)
        newcomer = site.connect()
        self.assertEqual(statuses(newcomer.received()), [503])
        self.assertTrue(newcomer.closed)
