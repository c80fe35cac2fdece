"""The client's end of HTTP/1.1."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.client import (
    HEAD_BYTES,
    UNREAD_BYTES,
    ClientRequest,
    ConnectionLostError,
    HTTPClientConnection,
)

HEAD = b"POST / HTTP/1.1\r\n\r\n"

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: a\r\nContent-Length: 5\r\n\r\nhello"


class _Transport(StringTransport):
    """A transport of TCP."""

    aborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Take note of nothing."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Take note of nothing."""

    def abortConnection(self) -> None:
        """Take note of the end."""
        self.aborted = True


class WireCase(SynchronousTestCase):
    """A connection."""

    def setUp(self) -> None:
        """Connect."""
        self.connection = HTTPClientConnection()
        self.transport = _Transport()
        self.connection.makeConnection(self.transport)
        self.freed: list[HTTPClientConnection] = []
        self.connection.whenFree = self.freed.append

    def take(self, data: bytes, size: int | None = None) -> None:
        """Have bytes come, perhaps in pieces of some size."""
        for at in range(0, len(data), size or len(data)):
            self.connection.dataReceived(data[at : at + (size or len(data))])

    def now(self, coroutine: Any) -> Any:
        """Give what a coroutine gives at once."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def lost(self, coroutine: Any) -> str:
        """Give the reason that a coroutine gives for the end of its exchange."""
        failure = self.failureResultOf(Deferred.fromCoroutine(coroutine), ConnectionLostError)
        return str(failure.value)

    def body(self, exchange: ClientRequest) -> bytes:
        """Read a body that is here."""
        pieces = []
        while piece := self.now(exchange.read()):
            pieces.append(piece)
        return b"".join(pieces)


class ResponseTests(WireCase):
    """What comes."""

    def test_pieces(self) -> None:
        """An answer is the same however it comes."""
        chunked = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
        )
        for answer in (ANSWER, chunked):
            for size in (1, 2, 7, None):
                exchange = self.connection.begin(HEAD, b"")
                self.take(answer, size)
                self.assertEqual(self.now(exchange.head()).status, 200)
                self.assertEqual(self.body(exchange), b"hello")
                exchange.close()
        self.assertEqual(len(self.freed), 8)

    def test_interim(self) -> None:
        """What comes before the response is no response."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\n" + ANSWER)
        head = self.now(exchange.head())
        self.assertEqual((head.status, head.fields.get(b"link")), (200, None))
        self.assertEqual(self.body(exchange), b"hello")

    def test_noBody(self) -> None:
        """Some have no body, and need no length."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(b"HTTP/1.1 204 No Content\r\n\r\n")
        self.assertEqual((self.now(exchange.head()).status, self.body(exchange)), (204, b""))

    def test_nonsense(self) -> None:
        """What is no response ends the exchange and the connection."""
        for data, reason in (
            (b"<html>", "it does not speak HTTP: Expected HTTP/, RTSP/ or ICE/"),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", "its body has no length"),
            (b"HTTP/1.1 200 OK\r\nA: " + b"x" * HEAD_BYTES, "its head is too long"),
            (b"HTTP/1.1 101 S\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n", "it does not speak"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
                "it does not speak HTTP",
            ),
        ):
            self.setUp()
            exchange = self.connection.begin(HEAD, b"")
            self.take(data)
            self.assertIn(reason, self.lost(exchange.head()))
            exchange.close()
            self.assertTrue(self.transport.aborted, data)
            self.assertEqual(self.freed, [])

    def test_badChunk(self) -> None:
        """What came before is there, and then the reason why no more comes."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\nx\r\n")
        self.assertEqual(self.now(exchange.read()), b"he")
        self.assertIn("does not speak HTTP", self.lost(exchange.read()))

    def test_barren(self) -> None:
        """Trailers, and what may stand behind the size of a chunk, end some time."""
        for begun in (b"0\r\nA: ", b"2;a="):
            self.setUp()
            exchange = self.connection.begin(HEAD, b"")
            self.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n" + begun)
            self.assertEqual(self.now(exchange.read()), b"he")
            for _ in range(16):
                self.assertFalse(self.transport.aborted)
                self.take(b"x" * (HEAD_BYTES // 16))
            self.take(b"x")
            self.assertIn("too long", self.lost(exchange.read()))
            self.assertTrue(self.transport.aborted)

    def test_cut(self) -> None:
        """A body that breaks off has no end."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(ANSWER[:-2])
        self.assertEqual(self.now(exchange.read()), b"hel")
        reading = Deferred.fromCoroutine(exchange.read())
        self.assertNoResult(reading)
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(reading, ConnectionLostError)

    def test_unasked(self) -> None:
        """Bytes that nobody asked for are nobody's answer."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(ANSWER + ANSWER)
        self.assertEqual(self.body(exchange), b"hello")
        exchange.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))

    def test_unaskedLater(self) -> None:
        """Nor are those that come when nothing goes on."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(ANSWER)
        exchange.close()
        self.take(ANSWER)
        self.assertTrue(self.transport.aborted)

    def test_close(self) -> None:
        """A connection that the instance closes is not used again."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual(self.body(exchange), b"hello")
        exchange.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))

    def test_backPressure(self) -> None:
        """An instance waits while nobody reads what it has sent."""
        exchange = self.connection.begin(HEAD, b"")
        size = 2 * UNREAD_BYTES
        self.take(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size))
        for producing, data in (("producing", b"x"), ("paused", b"y" * size)):
            self.take(data)
            self.assertEqual(self.transport.producerState, producing)
        self.now(exchange.read())
        self.assertEqual(self.transport.producerState, "paused")
        self.now(exchange.read())
        self.assertEqual(self.transport.producerState, "producing")

    def test_givenUp(self) -> None:
        """Who does not want the rest closes the connection."""
        exchange = self.connection.begin(HEAD, b"")
        self.take(ANSWER[:-1])
        exchange.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))


class RequestTests(WireCase):
    """What goes out."""

    def test_whole(self) -> None:
        """Head and body go out at once."""
        self.connection.begin(HEAD, b"body")
        self.assertEqual(self.transport.value(), HEAD + b"body")

    def test_chunks(self) -> None:
        """A stream goes out piece by piece, and has an end."""
        exchange = self.connection.begin(HEAD)
        self.now(exchange.write(b"one\n"))
        self.now(exchange.write(b"x" * 17))
        exchange.finish()
        exchange.finish()
        sent = self.transport.value().removeprefix(HEAD)
        self.assertEqual(sent, b"4\r\none\n\r\n11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n")

    def test_backPressure(self) -> None:
        """Whoever writes waits while the instance does not read."""
        exchange = self.connection.begin(HEAD)
        self.connection.pauseProducing()
        writing = Deferred.fromCoroutine(exchange.write(b"one"))
        self.assertNoResult(writing)
        self.connection.resumeProducing()
        self.successResultOf(writing)

    def test_bothWays(self) -> None:
        """The response is read while the request is written."""
        exchange = self.connection.begin(HEAD)
        self.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        self.assertEqual(self.now(exchange.head()).status, 200)
        self.assertEqual(self.now(exchange.read()), b"hi")
        self.now(exchange.write(b"one"))
        exchange.finish()
        self.take(b"0\r\n\r\n")
        self.assertEqual(self.now(exchange.read()), b"")
        exchange.close()
        self.assertEqual(self.freed, [self.connection])

    def test_unfinished(self) -> None:
        """A connection whose request has no end is not used again."""
        exchange = self.connection.begin(HEAD)
        self.take(ANSWER)
        self.assertEqual(self.body(exchange), b"hello")
        exchange.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))

    def test_lost(self) -> None:
        """Whoever waits for room is told when there is nobody any more."""
        exchange = self.connection.begin(HEAD)
        self.connection.pauseProducing()
        writing = Deferred.fromCoroutine(exchange.write(b"one"))
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(writing)
        self.assertIn("the connection was lost", self.lost(exchange.write(b"two")))
