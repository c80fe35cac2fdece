"""The client's end of HTTP/1.1."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.client import MAX_MESSAGE_BYTES, HTTPClient, HTTPStatusError
from storagegate.net.http.clientconnection import (
    HEAD_BYTES,
    UNREAD_BYTES,
    ClientRequest,
    ConnectionLostError,
    HTTPClientConnection,
    HTTPClientError,
)
from storagegate.net.tls import ClientTLSOptions

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
        self.connection.onFree = self.freed.append

    def take(self, data: bytes, size: int | None = None) -> None:
        """Have bytes come, perhaps in pieces of some size."""
        for at in range(0, len(data), size or len(data)):
            self.connection.dataReceived(data[at : at + (size or len(data))])

    def now(self, coroutine: Any) -> Any:
        """Give what a coroutine gives at once."""
        return self.successResultOf(Deferred.fromCoroutine(coroutine))

    def lost(self, coroutine: Any) -> str:
        """Give the reason that a coroutine gives for the end of its request."""
        failure = self.failureResultOf(Deferred.fromCoroutine(coroutine), ConnectionLostError)
        return str(failure.value)

    def body(self, request: ClientRequest) -> bytes:
        """Read a body that is here."""
        pieces = []
        while piece := self.now(request.read()):
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
                request = self.connection.begin(HEAD, b"")
                self.take(answer, size)
                self.assertEqual(self.now(request.head()).status, 200)
                self.assertEqual(self.body(request), b"hello")
                request.close()
        self.assertEqual(len(self.freed), 8)

    def test_interim(self) -> None:
        """What comes before the response is no response."""
        request = self.connection.begin(HEAD, b"")
        self.take(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\n" + ANSWER)
        head = self.now(request.head())
        self.assertEqual((head.status, head.fields.get(b"link")), (200, None))
        self.assertEqual(self.body(request), b"hello")

    def test_noBody(self) -> None:
        """Some have no body, and need no length."""
        request = self.connection.begin(HEAD, b"")
        self.take(b"HTTP/1.1 204 No Content\r\n\r\n")
        self.assertEqual((self.now(request.head()).status, self.body(request)), (204, b""))

    def test_nonsense(self) -> None:
        """What is no response ends the request and the connection."""
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
            request = self.connection.begin(HEAD, b"")
            self.take(data)
            self.assertIn(reason, self.lost(request.head()))
            request.close()
            self.assertTrue(self.transport.aborted, data)
            self.assertEqual(self.freed, [])

    def test_badChunk(self) -> None:
        """What came before is there, and then the reason why no more comes."""
        request = self.connection.begin(HEAD, b"")
        self.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\nx\r\n")
        self.assertEqual(self.now(request.read()), b"he")
        self.assertIn("does not speak HTTP", self.lost(request.read()))

    def test_barren(self) -> None:
        """Trailers, and what may stand behind the size of a chunk, end some time."""
        for begun in (b"0\r\nA: ", b"2;a="):
            self.setUp()
            request = self.connection.begin(HEAD, b"")
            self.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n" + begun)
            self.assertEqual(self.now(request.read()), b"he")
            for _ in range(16):
                self.assertFalse(self.transport.aborted)
                self.take(b"x" * (HEAD_BYTES // 16))
            self.take(b"x")
            self.assertIn("too long", self.lost(request.read()))
            self.assertTrue(self.transport.aborted)

    def test_cut(self) -> None:
        """A body that breaks off has no end."""
        request = self.connection.begin(HEAD, b"")
        self.take(ANSWER[:-2])
        self.assertEqual(self.now(request.read()), b"hel")
        reading = Deferred.fromCoroutine(request.read())
        self.assertNoResult(reading)
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(reading, ConnectionLostError)

    def test_unasked(self) -> None:
        """Bytes without a request are no response."""
        request = self.connection.begin(HEAD, b"")
        self.take(ANSWER + ANSWER)
        self.assertEqual(self.body(request), b"hello")
        request.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))

    def test_unaskedLater(self) -> None:
        """Nor are those that come when nothing goes on."""
        request = self.connection.begin(HEAD, b"")
        self.take(ANSWER)
        request.close()
        self.take(ANSWER)
        self.assertTrue(self.transport.aborted)

    def test_close(self) -> None:
        """A connection that the instance closes is not used again."""
        request = self.connection.begin(HEAD, b"")
        self.take(ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        self.assertEqual(self.body(request), b"hello")
        request.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))

    def test_backPressure(self) -> None:
        """An instance waits while what it has sent is not read."""
        request = self.connection.begin(HEAD, b"")
        size = 2 * UNREAD_BYTES
        self.take(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size))
        for producing, data in (("producing", b"x"), ("paused", b"y" * size)):
            self.take(data)
            self.assertEqual(self.transport.producerState, producing)
        self.now(request.read())
        self.assertEqual(self.transport.producerState, "paused")
        self.now(request.read())
        self.assertEqual(self.transport.producerState, "producing")

    def test_givenUp(self) -> None:
        """Who does not want the rest closes the connection."""
        request = self.connection.begin(HEAD, b"")
        self.take(ANSWER[:-1])
        request.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))


class RequestTests(WireCase):
    """What goes out."""

    def test_whole(self) -> None:
        """Head and body go out at once."""
        self.connection.begin(HEAD, b"body")
        self.assertEqual(self.transport.value(), HEAD + b"body")

    def test_chunks(self) -> None:
        """A stream goes out piece by piece, and has an end."""
        request = self.connection.begin(HEAD)
        self.now(request.write(b"one\n"))
        self.now(request.write(b"x" * 17))
        request.finish()
        request.finish()
        sent = self.transport.value().removeprefix(HEAD)
        self.assertEqual(sent, b"4\r\none\n\r\n11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n")

    def test_backPressure(self) -> None:
        """A writer waits while the instance does not read."""
        request = self.connection.begin(HEAD)
        self.connection.pauseProducing()
        writing = Deferred.fromCoroutine(request.write(b"one"))
        self.assertNoResult(writing)
        self.connection.resumeProducing()
        self.successResultOf(writing)

    def test_bothWays(self) -> None:
        """The response is read while the request is written."""
        request = self.connection.begin(HEAD)
        self.take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        self.assertEqual(self.now(request.head()).status, 200)
        self.assertEqual(self.now(request.read()), b"hi")
        self.now(request.write(b"one"))
        request.finish()
        self.take(b"0\r\n\r\n")
        self.assertEqual(self.now(request.read()), b"")
        request.close()
        self.assertEqual(self.freed, [self.connection])

    def test_unfinished(self) -> None:
        """A connection whose request has no end is not used again."""
        request = self.connection.begin(HEAD)
        self.take(ANSWER)
        self.assertEqual(self.body(request), b"hello")
        request.close()
        self.assertEqual((self.freed, self.transport.aborted), ([], True))

    def test_lost(self) -> None:
        """A writer that waits fails when the connection is lost."""
        request = self.connection.begin(HEAD)
        self.connection.pauseProducing()
        writing = Deferred.fromCoroutine(request.write(b"one"))
        self.connection.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(writing)
        self.assertIn("the connection was lost", self.lost(request.write(b"two")))


class ClientCase(SynchronousTestCase):
    """Whole requests, to a server that the test plays."""

    def setUp(self) -> None:
        """Have a client of an address."""
        self.reactor = MemoryReactorClock()
        self.client = HTTPClient(self.reactor, "http://127.0.0.1:8500/base", ClientTLSOptions())

    def connect(self, coroutine: Any) -> Deferred[Any]:
        """Begin a request, and accept its connection."""
        result = Deferred.fromCoroutine(coroutine)
        host, port, factory, _timeout, _address = self.reactor.tcpClients[-1]
        self.assertEqual((host, port), ("127.0.0.1", 8500))
        self.connection = factory.buildProtocol(None)
        self.transport = _Transport()
        self.connection.makeConnection(self.transport)
        return result

    def answer(self, data: bytes) -> None:
        """Send bytes of a response."""
        self.connection.dataReceived(data)

    def lose(self, reason: Any) -> None:
        """End the connection."""
        self.connection.connectionLost(Failure(reason))

    def error(self, result: Deferred[Any], kind: type[Exception] = HTTPClientError) -> Any:
        """Return the error of a request whose connection was closed, with no timer left."""
        error = self.failureResultOf(result, kind).value
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        return error


class WholeTests(ClientCase):
    """HTTPClient.request."""

    def test_request(self) -> None:
        """A request has the fields of HTTP and its own; then its connection is closed."""
        asked = self.client.request("POST", "/a?b=c", {"X-Token": "t"}, b"body")
        result = self.connect(asked)
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.assertEqual(lines[0], "POST /base/a?b=c HTTP/1.1")
        for line in (
            "Host: 127.0.0.1:8500",
            "Connection: close",
            "User-Agent: storagegate",
            "Accept: application/json",
            "X-Token: t",
            "Content-Length: 4",
        ):
            self.assertIn(line, lines)
        self.assertEqual(body, b"body")
        self.answer(ANSWER)
        response = self.successResultOf(result)
        self.assertEqual((response.status, response.body), (200, b"hello"))
        self.assertEqual((response.field("Content-Type"), response.field("Link")), ("a", ""))
        self.assertTrue(self.transport.aborted)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_endsByClosing(self) -> None:
        """A body without a length ends with its connection, if that ends in order."""
        for reason in (ConnectionDone(), ConnectionLost()):
            result = self.connect(self.client.request("GET"))
            self.answer(b"HTTP/1.0 200 OK\r\n\r\nhel")
            self.answer(b"lo")
            self.assertNoResult(result)
            self.lose(reason)
            if isinstance(reason, ConnectionDone):
                self.assertEqual(self.successResultOf(result).body, b"hello")
            else:
                self.assertIn("http://127.0.0.1:8500/base: ", str(self.error(result)))

    def test_cut(self) -> None:
        """A response that is cut is none."""
        for sent in (b"", ANSWER[:10], ANSWER[:-1]):
            result = self.connect(self.client.request("GET"))
            if sent:
                self.answer(sent)
            self.lose(ConnectionDone())
            self.assertIn("the connection was lost", str(self.error(result)))

    def test_slow(self) -> None:
        """A response that does not come in time is none, and the connection is closed."""
        result = self.connect(self.client.request("GET", seconds=2.0))
        self.answer(ANSWER[:-1])
        self.reactor.advance(1.9)
        self.assertNoResult(result)
        self.reactor.advance(0.2)
        self.assertIn("/base does not answer in 2 s", str(self.error(result)))
        self.assertTrue(self.transport.aborted)

    def test_cancelled(self) -> None:
        """A request that is cancelled closes its connection."""
        for sent in (b"", ANSWER[:-1]):
            result = self.connect(self.client.request("GET"))
            if sent:
                self.answer(sent)
            result.cancel()
            self.error(result, CancelledError)
            self.assertTrue(self.transport.aborted)

    def test_large(self) -> None:
        """A longer body than the client takes is refused while it is received."""
        result = self.connect(self.client.request("GET"))
        size = MAX_MESSAGE_BYTES + 1
        self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size))
        self.answer(b"x" * size)
        self.assertIn("more than 1048576 bytes", str(self.error(result)))
        self.assertTrue(self.transport.aborted)

    def test_longHead(self) -> None:
        """A head that does not end is refused while it is received."""
        result = self.connect(self.client.request("GET"))
        self.answer(b"HTTP/1.1 200 OK\r\n")
        for number in range(20):
            if not self.transport.aborted:
                self.answer(b"A%d: %s\r\n" % (number, b"x" * 10_000))
        self.assertTrue(self.transport.aborted)
        self.lose(ConnectionDone())
        self.assertIn("its head is too long", str(self.error(result)))

    def test_nonsense(self) -> None:
        """A server of another protocol is named as one."""
        result = self.connect(self.client.request("GET"))
        self.answer(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.lose(ConnectionDone())
        self.assertIn("it does not speak HTTP", str(self.error(result)))

    def test_coding(self) -> None:
        """No content coding is asked for, and a body that has one is refused."""
        result = self.connect(self.client.request("GET"))
        self.assertNotIn(b"accept-encoding", self.transport.value().lower())
        self.answer(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n")
        self.assertIn("has a content coding", str(self.error(result)))
        self.assertTrue(self.transport.aborted)

    def test_redirection(self) -> None:
        """A redirection is not followed, and a cookie is not sent back."""
        head = b"HTTP/1.1 302 Found\r\nLocation: /b\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
        for _ in range(2):
            result = self.connect(self.client.request("GET"))
            self.assertNotIn(b"cookie", self.transport.value().lower())
            self.answer(head)
            self.assertEqual(self.successResultOf(result).status, 302)

    def test_addresses(self) -> None:
        """A URL says where to connect to, and what is in the field Host."""
        for url, place, host in (
            ("http://127.0.0.1", ("127.0.0.1", 80), "127.0.0.1"),
            ("http://127.0.0.1:80", ("127.0.0.1", 80), "127.0.0.1"),
            ("http://127.0.0.1:8500/", ("127.0.0.1", 8500), "127.0.0.1:8500"),
        ):
            client = HTTPClient(self.reactor, url, ClientTLSOptions())
            result = Deferred.fromCoroutine(client.request("GET"))
            address, port, factory, _timeout, _bind = self.reactor.tcpClients[-1]
            self.assertEqual((address, port), place)
            connection, transport = factory.buildProtocol(None), _Transport()
            connection.makeConnection(transport)
            lines = transport.value().decode().split("\r\n")
            self.assertEqual(lines[0], "GET / HTTP/1.1")
            self.assertIn(f"Host: {host}", lines)
            result.cancel()
            self.failureResultOf(result, CancelledError)

    def test_noURL(self) -> None:
        """A URL that is none fails with the request, and not before."""
        for url in ("", "ftp://a", "http://", "http://a b:c", "http://[::1"):
            client = HTTPClient(self.reactor, url, ClientTLSOptions())
            result = Deferred.fromCoroutine(client.request("GET"))
            self.assertIn("it is no URL of HTTP", str(self.error(result)))

    def test_control(self) -> None:
        """A value that would end its field is not sent."""
        result = Deferred.fromCoroutine(self.client.request("GET", fields={"A": "b\r\nC: d"}))
        self.assertIn("control character", str(self.error(result)))
        self.assertEqual(self.reactor.tcpClients, [])


class StreamTests(ClientCase):
    """HTTPClient.stream."""

    def setUp(self) -> None:
        """Keep the lines."""
        super().setUp()
        self.lines: list[bytes] = []

    def stream(self, onLine: Any = None, head: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Deferred[Any]:
        """Begin a stream."""
        stream = self.client.stream("GET", "/a?b", {}, onLine or self.lines.append)
        result = self.connect(stream)
        if head:
            self.answer(head)
        return result

    @given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
    def test_pieces(self, pieces: list[bytes], size: int) -> None:
        """Lines are the same however they are cut, and blank ones are passed over."""
        self.setUp()
        wire = b"\n".join(pieces)
        result = self.stream()
        for at in range(0, len(wire), size):
            self.answer(wire[at : at + size])
        self.lose(ConnectionDone())
        self.successResultOf(result)
        stripped = [each.strip(b" \t\r") for each in wire.split(b"\n")]
        self.assertEqual(self.lines, [each for each in stripped if each])

    def test_long(self) -> None:
        """A line that is too long ends the stream; the ones before it were received."""
        result = self.stream()
        self.answer(b"a\n")
        self.answer(b"b" * (MAX_MESSAGE_BYTES + 2))
        self.assertIn("a line of more than 1048576 bytes", str(self.error(result)))
        self.assertEqual((self.lines, self.transport.aborted), ([b"a"], True))

    def test_refused(self) -> None:
        """What the receiver of lines raises ends the stream with that error."""

        def refuse(line: bytes) -> None:
            raise ZeroDivisionError

        result = self.stream(refuse)
        self.answer(b"a\nb\n")
        self.error(result, ZeroDivisionError)
        self.assertTrue(self.transport.aborted)

    def test_expired(self) -> None:
        """A stream ends in order after its time."""
        result = self.stream()
        self.answer(b"a\n")
        self.reactor.advance(59)
        self.assertNoResult(result)
        self.reactor.advance(2)
        self.successResultOf(result)
        self.assertEqual((self.lines, self.transport.aborted), ([b"a"], True))

    def test_cut(self) -> None:
        """A stream that is cut is an error."""
        result = self.stream(head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.answer(b"2\r\na\n\r\n")
        self.lose(ConnectionDone())
        self.assertIn("breaks off", str(self.error(result)))
        self.assertEqual(self.lines, [b"a"])

    def test_status(self) -> None:
        """Another status than 200 is an error, whose text has no query."""
        result = self.stream(head=b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
        error = self.error(result, HTTPStatusError)
        self.assertEqual(error.status, 410)
        self.assertEqual(str(error), "http://127.0.0.1:8500/base/a answers with 410")

    def test_slow(self) -> None:
        """A stream that does not begin in time is an error."""
        result = self.stream(head=b"")
        self.reactor.advance(11)
        self.assertIn("does not answer in 10 s", str(self.error(result)))
        self.assertTrue(self.transport.aborted)
