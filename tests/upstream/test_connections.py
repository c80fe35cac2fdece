"""The connections to one instance."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.clientconnection import (
    IDLE_SECONDS,
    MAX_IDLE,
    ConnectionPool,
    HTTPClientConnection,
)
from storagegate.upstream.connections import connector
from tests.support.balancing import instances


class _Transport(StringTransport):
    """A transport of TCP that tells its protocol of its end at once."""

    def __init__(self, connection: HTTPClientConnection) -> None:
        super().__init__()
        self.connection = connection
        self.isOpen = True

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Take note of nothing."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Take note of nothing."""

    def getHandle(self) -> "_Transport":
        """Give what stands for the socket."""
        return self

    def recv(self, size: int, flags: int) -> bytes:
        """Have nothing, or the end."""
        if self.isOpen:
            raise BlockingIOError
        return b""

    def abortConnection(self) -> None:
        """End."""
        self.connection.connectionLost(Failure(ConnectionDone()))


class ConnectionsTests(SynchronousTestCase):
    """Connections that are kept."""

    def setUp(self) -> None:
        """Have an instance."""
        self.clock = Clock()
        self.made: list[HTTPClientConnection] = []
        self.connections = ConnectionPool(self.connect, self.clock)

    def connect(self) -> Deferred[HTTPClientConnection]:
        """Connect at once."""
        connection = HTTPClientConnection()
        connection.makeConnection(_Transport(connection))
        self.made.append(connection)
        connected: Deferred[HTTPClientConnection] = Deferred()
        connected.callback(connection)
        return connected

    def take(self) -> HTTPClientConnection:
        """Get a connection."""
        connection: HTTPClientConnection = self.successResultOf(self.connections.acquire())
        return connection

    def use(self, *used: HTTPClientConnection) -> None:
        """Let an exchange come to its end on each."""
        for connection in used:
            exchange = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"")
            connection.dataReceived(b"HTTP/1.1 204 No Content\r\n\r\n")
            exchange.close()

    def test_again(self) -> None:
        """One that is free is used again, the last one first."""
        first, second = self.take(), self.take()
        self.use(first, second)
        self.assertEqual([self.take(), self.take()], [second, first])
        self.assertEqual(len(self.made), 2)

    def test_idle(self) -> None:
        """A connection that was not used for a while is closed."""
        connection = self.take()
        self.use(connection)
        self.clock.advance(IDLE_SECONDS - 0.1)
        self.use(self.take())
        self.clock.advance(IDLE_SECONDS - 0.1)
        self.assertFalse(connection.isLost)
        self.clock.advance(0.2)
        self.assertTrue(connection.isLost)
        self.assertEqual((self.connections.count, self.clock.getDelayedCalls()), (0, []))

    def test_ended(self) -> None:
        """One that the instance has closed meanwhile is not given."""
        first = self.take()
        self.use(first)
        transport: Any = first.transport
        transport.isOpen = False
        self.assertIsNot(self.take(), first)
        self.assertTrue(first.isLost)

    def test_unsolicited(self) -> None:
        """
        A second response, such as the 408 of a server that closes an idle connection, changes
        nothing of the first one, even if both are read together; nor does a trailer.
        """
        head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nContent-Type: c/d\r\n\r\n"
        late = b"HTTP/1.1 408 Request Timeout\r\nContent-Type: c/d\r\nContent-Length: 0\r\n\r\n"
        for wire, isKept in (
            (head + b"Content-Length: 2\r\n\r\nok" + late, False),
            (head + b"Content-Length: 2\r\n\r\nok" + late[:20], False),
            (head + chunked, True),
        ):
            connection = self.take()
            exchange = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"")
            connection.dataReceived(wire)
            received = self.successResultOf(Deferred.fromCoroutine(exchange.head()))
            self.assertEqual((received.status, received.fields[b"content-type"]), (200, b"a/b"))
            body = self.successResultOf(Deferred.fromCoroutine(exchange.body(100)))
            self.assertEqual(body, b"ok")
            exchange.close()
            self.assertIs(connection.isLost, not isKept)

    def test_many(self) -> None:
        """No more than some are kept."""
        taken = [self.take() for _ in range(MAX_IDLE + 3)]
        self.use(*taken)
        self.assertEqual(self.connections.count, MAX_IDLE)
        self.successResultOf(self.connections.close())

    def test_close(self) -> None:
        """Those that are free are closed at once, the others when they are."""
        free, busy = self.take(), self.take()
        self.use(free)
        closing = self.connections.close()
        self.assertTrue(free.isLost)
        self.assertNoResult(closing)
        self.use(busy)
        self.successResultOf(closing)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_abort(self) -> None:
        """If need be, all of them are."""
        self.take()
        self.successResultOf(self.connections.abort())
        self.assertEqual(self.connections.count, 0)


class ConnectorTests(SynchronousTestCase):
    """What connects."""

    def test_cancel(self) -> None:
        """An attempt to connect that is cancelled ends with CancelledError."""
        [instance] = instances("127.0.0.1")
        connecting = connector(MemoryReactorClock(), 1.0)(instance)
        self.assertNoResult(connecting)
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)

    def test_refused(self) -> None:
        """A request without a response fails."""
        [instance] = instances("127.0.0.1")
        reactor = MemoryReactorClock()
        connecting = connector(reactor, 1.0)(instance)
        host, port, factory, timeout, _ = reactor.tcpClients[0]
        self.assertEqual((host, port, timeout), ("127.0.0.1", 8000, 1.0))
        factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))
        reactor.advance(1)
        self.failureResultOf(connecting, ConnectionRefusedError)
