"""The client of Valkey: addresses, pipelined commands, time-outs, bounds, and new connections."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.tls import ClientTLSOptions
from storagegate.net.valkey import (
    MAX_BYTES,
    MAX_WAITING,
    STEADY_SECONDS,
    Script,
    ValkeyClient,
    ValkeyConnection,
    ValkeyOptions,
    ValkeyRefused,
    ValkeyUnavailable,
    readValkeyURL,
)

SCRIPT = Script(b"return 1")


class URLTests(SynchronousTestCase):
    """Addresses."""

    def test_parts(self) -> None:
        """All parts of an address are read; the names of Redis are accepted."""
        self.assertEqual(readValkeyURL("valkey://h"), ValkeyOptions(host="h"))
        self.assertEqual(
            readValkeyURL("redis://u%40:p%2F@h:7/3"),
            ValkeyOptions(host="h", port=7, user="u@", password="p/", database=3),
        )
        self.assertEqual(
            readValkeyURL("redis://:p@[::1]/"), ValkeyOptions(host="::1", password="p")
        )
        for scheme in ("valkeys", "rediss"):
            found = readValkeyURL(f"{scheme}://h?ca=/x.pem")
            self.assertEqual(found.tls, ClientTLSOptions(caFile="/x.pem"))
        self.assertEqual(
            readValkeyURL("unix:/run/s?db=2"), ValkeyOptions(path="/run/s", database=2)
        )

    def test_refused(self) -> None:
        """What is no address is refused, and its text, which may have a password, is not shown."""
        for url in (
            "",
            "SECRET",
            "http://:SECRET@h",
            "valkey://:SECRET@",
            "valkey://:SECRET@h/x",
            "valkey://:SECRET@h/-1",
            "valkey://:SECRET@h/1?x=SECRET",
            "valkey://:SECRET@h:99999",
            "valkey://:SECRET@h?ca=SECRET",
            "valkey://:SECRET@[h",
            "unix:?db=SECRET",
        ):
            error = self.assertRaises(ValueError, readValkeyURL, url)
            self.assertNotIn("SECRET", str(error))
        self.assertNotIn("SECRET", repr(readValkeyURL("valkey://:SECRET@h")))


class ConnectionTests(SynchronousTestCase):
    """One connection, bytes in and out."""

    def setUp(self) -> None:
        """Connect."""
        self.clock = MemoryReactorClock()
        self.lost: list[str] = []
        self.connection = self.connect()
        self.connection.dataReceived(b"+PONG\r\n")
        self.successResultOf(self.connection.ready)
        self.transport.clear()

    def connect(self, **options: Any) -> ValkeyConnection:
        """Make a connection on a transport of memory."""
        connection = ValkeyConnection(
            self.clock,
            ValkeyOptions(**options),
            None,
            lambda connection, reason: self.lost.append(reason),
            1.0,
        )
        self.transport = StringTransport()
        connection.makeConnection(self.transport)
        return connection

    def test_greeting(self) -> None:
        """Password and database come first; the connection is open when the server says PONG."""
        connection = self.connect(user="u", password="p", database=3)
        self.assertEqual(
            self.transport.value(),
            b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n"
            b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n",
        )
        connection.dataReceived(b"+OK\r\n+OK\r\n")
        self.assertNoResult(connection.ready)
        self.assertFalse(connection.isOpen)
        connection.dataReceived(b"+PONG\r\n")
        self.successResultOf(connection.ready)
        self.assertTrue(connection.isOpen)

    def test_refusedGreeting(self) -> None:
        """A server that refuses the password, or still loads, is not used."""
        for reply in (b"-WRONGPASS no\r\n-NOAUTH no\r\n", b"+OK\r\n-LOADING yes\r\n"):
            connection = self.connect(password="p")
            connection.dataReceived(reply)
            self.failureResultOf(connection.ready, ValkeyUnavailable)
            self.assertTrue(self.transport.disconnected)
        self.assertEqual(self.lost, [])

    def test_pipelined(self) -> None:
        """Replies come in the order of the commands, in any pieces."""
        results = [self.connection.run(b"GET", b"%d" % number) for number in range(4)]
        for byte in b"$1\r\na\r\n$-1\r\n:7\r\n*2\r\n+x\r\n$0\r\n\r\n":
            self.connection.dataReceived(bytes([byte]))
        self.assertEqual(
            [self.successResultOf(each) for each in results], [b"a", None, 7, [b"x", b""]]
        )

    def test_refused(self) -> None:
        """An error fails its command alone, and has its code."""
        first, second = self.connection.run(b"A"), self.connection.run(b"B")
        self.connection.dataReceived(b"-OOM command not allowed\r\n:1\r\n")
        self.assertEqual(self.failureResultOf(first, ValkeyRefused).value.code, "OOM")
        self.assertEqual(self.successResultOf(second), 1)

    def test_notTheServer(self) -> None:
        """A server that became a replica is left; what was under way may have been done."""
        first, second = self.connection.run(b"A"), self.connection.run(b"B")
        self.connection.dataReceived(b"-READONLY replica\r\n")
        self.failureResultOf(first, ValkeyRefused)
        self.assertTrue(self.failureResultOf(second, ValkeyUnavailable).value.isUnknown)
        self.assertEqual(self.lost, ["READONLY replica"])

    def test_lost(self) -> None:
        """Commands under way when the connection is lost may have been done; later ones not."""
        first = self.connection.run(b"A")
        self.connection.connectionLost()
        self.assertTrue(self.failureResultOf(first, ValkeyUnavailable).value.isUnknown)
        later = self.failureResultOf(self.connection.run(b"B"), ValkeyUnavailable)
        self.assertFalse(later.value.isUnknown)
        self.assertEqual(len(self.lost), 1)

    def test_slow(self) -> None:
        """A server is gone when the oldest command has waited for its time; others do not count."""
        self.connection.run(b"A")
        self.clock.advance(0.9)
        second = self.connection.run(b"B")
        self.connection.dataReceived(b":1\r\n")
        self.clock.advance(0.9)
        self.assertNoResult(second)
        self.clock.advance(0.1)
        self.failureResultOf(second, ValkeyUnavailable)
        self.assertEqual(self.lost, ["no reply for 1.0 s"])
        self.assertTrue(self.transport.disconnected)

    def test_idle(self) -> None:
        """A connection without commands stays, and nothing is scheduled."""
        self.clock.advance(1000)
        self.assertTrue(self.connection.isOpen)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_boundedCommands(self) -> None:
        """So many commands are under way at most."""
        results = [self.connection.run(b"A") for _ in range(MAX_WAITING)]
        refused = self.failureResultOf(self.connection.run(b"A"), ValkeyUnavailable)
        self.assertFalse(refused.value.isUnknown)
        self.connection.dataReceived(b":1\r\n")
        self.successResultOf(results[0])
        self.assertNoResult(self.connection.run(b"A"))
        for each in results[1:]:
            each.addErrback(lambda failure: None)

    def test_boundedBytes(self) -> None:
        """So many bytes are under way at most."""
        large = b"x" * (MAX_BYTES // 2)
        first = self.connection.run(b"A", large)
        self.failureResultOf(self.connection.run(b"A", large), ValkeyUnavailable)
        self.connection.dataReceived(b":1\r\n")
        self.successResultOf(first)
        self.assertNoResult(self.connection.run(b"A", large))

    def test_cancelled(self) -> None:
        """The reply to a cancelled command goes to no other one."""
        first, second = self.connection.run(b"A"), self.connection.run(b"B")
        first.addErrback(lambda failure: None)
        first.cancel()
        self.connection.dataReceived(b":1\r\n:2\r\n")
        self.assertEqual(self.successResultOf(second), 2)

    def test_nonsense(self) -> None:
        """A server that does not speak the protocol, or replies to nothing, is left."""
        waiting = self.connection.run(b"A")
        self.connection.dataReceived(b"HTTP/1.1 400 Bad Request\r\n")
        self.failureResultOf(waiting, ValkeyUnavailable)
        other = self.connect()
        other.dataReceived(b"+PONG\r\n")
        other.dataReceived(b":1\r\n")
        self.assertFalse(other.isOpen)


class ClientTests(SynchronousTestCase):
    """A connection that is opened again."""

    def setUp(self) -> None:
        """Make a client, and begin to connect."""
        self.clock = MemoryReactorClock()
        self.client = ValkeyClient(
            self.clock, ValkeyOptions(path="/run/s"), random=lambda least, most: most
        )
        self.client.open()

    def run_(self, *words: bytes) -> Deferred[Any]:
        """Run a command."""
        return Deferred.fromCoroutine(self.client.run(*words))

    def accept(self) -> ValkeyConnection:
        """Accept the last connection."""
        factory = self.clock.unixClients[-1][1]
        self.transport = StringTransport()
        wrapped: Any = factory.buildProtocol(None)
        wrapped.makeConnection(self.transport)
        connection: ValkeyConnection = wrapped._wrappedProtocol
        connection.dataReceived(b"+PONG\r\n")
        self.transport.clear()
        return connection

    @property
    def attempts(self) -> int:
        """Return how often it began to connect."""
        return len(self.clock.unixClients)

    def test_first(self) -> None:
        """Commands wait for the first connection."""
        result = self.run_(b"A")
        self.assertNoResult(result)
        self.accept().dataReceived(b":1\r\n")
        self.assertEqual(self.successResultOf(result), 1)
        self.assertIsNone(self.client.failure)

    def test_firstFails(self) -> None:
        """When the first attempt has failed nothing waits; others follow, later and later."""
        result = self.run_(b"A")
        self.clock.advance(1.99)
        self.assertNoResult(result)
        self.clock.advance(0.01)
        self.failureResultOf(result, ValkeyUnavailable)
        self.failureResultOf(self.run_(b"A"), ValkeyUnavailable)
        self.assertEqual(self.client.failure, "/run/s: it does not respond")
        self.clock.advance(0.1)
        for seconds in (0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
            self.clock.advance(2)
            attempts = self.attempts
            self.clock.advance(seconds - 0.02)
            self.assertEqual(self.attempts, attempts)
            self.clock.advance(0.03)
            self.assertEqual(self.attempts, attempts + 1)
        self.accept()
        self.assertIsNone(self.client.failure)
        self.client.close()

    def test_lost(self) -> None:
        """A connection that has lasted is opened again at once, one that has not a little later."""
        connection = self.accept()
        self.clock.advance(STEADY_SECONDS)
        connection.connectionLost()
        self.failureResultOf(self.run_(b"A"), ValkeyUnavailable)
        self.assertEqual(self.attempts, 2)
        self.accept().connectionLost()
        self.assertEqual(self.attempts, 2)
        self.clock.advance(0.1)
        self.assertEqual(self.attempts, 3)
        self.accept()
        self.assertNoResult(self.run_(b"A"))

    def test_script(self) -> None:
        """A script goes by its digest, and as a whole to a server that does not have it."""
        connection = self.accept()
        result = Deferred.fromCoroutine(self.client.evaluate(SCRIPT, b"k", b"x"))
        self.assertIn(b"EVALSHA\r\n$40\r\n" + SCRIPT.digest, self.transport.value())
        self.transport.clear()
        connection.dataReceived(b"-NOSCRIPT No matching script.\r\n")
        self.assertEqual(
            self.transport.value(),
            b"*5\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\nx\r\n",
        )
        connection.dataReceived(b":1\r\n")
        self.assertEqual(self.successResultOf(result), 1)

    def test_refusedScript(self) -> None:
        """Any other error is that of the script."""
        connection = self.accept()
        result = Deferred.fromCoroutine(self.client.evaluate(SCRIPT, b"k"))
        connection.dataReceived(b"-OOM no\r\n")
        self.failureResultOf(result, ValkeyRefused)

    def test_close(self) -> None:
        """A closed client fails what waits, and leaves nothing behind."""
        waiting = self.run_(b"A")
        self.client.close()
        self.failureResultOf(waiting, ValkeyUnavailable)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_closeOpen(self) -> None:
        """A closed client connects no more."""
        connection = self.accept()
        waiting = self.run_(b"A")
        self.client.close()
        self.failureResultOf(waiting, ValkeyUnavailable)
        connection.connectionLost()
        self.assertEqual(self.attempts, 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.failureResultOf(self.run_(b"A"), ValkeyUnavailable)
