"""The TCP listener in memory: clients that go, how many there may be, and its end."""

from typing import Any

from twisted.internet.address import UNIXAddress

from tests.support.tcp import TCPClient, TCPStringTransport, connect, frame
from tests.support.tcpcases import TCPCase


class EndTests(TCPCase):
    """Clients that go, and half of them."""

    def test_lost(self) -> None:
        """A lost connection cancels its calls, and no others."""
        client, other = self.connect(), self.connect()
        client.call("slow", 1)
        client.call("collect", 2, data={"text": "a"})
        other.call("slow", 1, data={"seconds": 1})
        client.lose()
        self.assertEqual(self.probe.cancelled, ["slow", "collect"])
        self.clock.advance(1)
        self.assertEqual(len(other.received()), 1)
        self.assertEqual(self.adapter.connections, 1)

    def test_halfClosed(self) -> None:
        """Who shuts the writing side still gets the answers; then the connection closes."""
        client = self.connect()
        client.call("slow", 1, data={"seconds": 0.5})
        client.call("count", 2, data={"to": 1})
        client.connection.readConnectionLost()
        self.assertTrue(client.isOpen)
        self.clock.advance(0.5)
        self.assertEqual([type for type, _ in client.received()], [4, 5, 2])
        self.assertFalse(client.isOpen)
        self.assertFalse(client.transport.disconnected)

    def test_halfClosedIdle(self) -> None:
        """Who shuts it with nothing in flight, or before a word, is closed at once."""
        for words in (b"", frame(6, b""), b"\x01"):
            client = self.connect()
            client.connection.dataReceived(words) if words else None
            client.connection.readConnectionLost()
            self.assertFalse(client.isOpen)

    def test_brokenStream(self) -> None:
        """A stream that was not ended before is an error, not an end."""
        client = self.connect()
        client.call("collect", 1, data={"text": "a"})
        client.connection.readConnectionLost()
        ((type, error),) = client.received()
        self.assertEqual((type, error["error"], error["id"]), (3, "INVALID_ARGUMENT", 1))
        self.assertFalse(client.isOpen)

    def test_goneAfterRefusal(self) -> None:
        """Who reads why and closes is gone at once."""
        client = self.connect()
        client.connection.dataReceived(b"\x02")
        client.connection.readConnectionLost()
        client.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class ConnectionLimitTests(TCPCase):
    """How many connections there may be."""

    def assertTurnedAway(self, client: TCPClient) -> None:
        """Check that a client was told to go."""
        ((type, error),) = client.received()
        self.assertEqual((type, error["error"]), (3, "UNAVAILABLE"))
        self.assertFalse(client.isOpen)
        client.lose()

    def test_address(self) -> None:
        """An address has so many connections; others come in, and it again when one is gone."""
        self.adapter = self.makeAdapter(maxConnectionsPerAddress=2)
        first, _ = self.connect(), self.connect()
        self.assertTurnedAway(connect(self.adapter))
        self.assertTrue(self.connect(TCPStringTransport("192.0.2.2")).isOpen)
        first.lose()
        self.assertTrue(self.connect().isOpen)
        self.assertTurnedAway(connect(self.adapter))

    def test_network(self) -> None:
        """The addresses of one IPv6 network are one client."""
        self.adapter = self.makeAdapter(maxConnectionsPerAddress=1)
        self.connect(TCPStringTransport("2001:db8::1"))
        self.assertTurnedAway(connect(self.adapter, TCPStringTransport("2001:db8::2")))

    def test_share(self) -> None:
        """Without the option an address has three quarters: the rest is for others."""
        self.adapter = self.makeAdapter(maxConnections=4)
        clients = [self.connect() for _ in range(3)]
        self.assertTurnedAway(connect(self.adapter))
        self.assertTrue(self.connect(TCPStringTransport("192.0.2.2")).isOpen)
        self.assertTrue(all(client.isOpen for client in clients))

    def test_calls(self) -> None:
        """An address has so many calls in flight, over however many connections."""
        self.adapter = self.makeAdapter(maxCallsPerAddress=2)
        clients = [self.connect() for _ in range(3)]
        for client in clients:
            client.call("slow", 1, data={"seconds": 1})
        ((type, error),) = clients[2].received()
        self.assertEqual((type, error["error"]), (3, "UNAVAILABLE"))
        other = self.connect(TCPStringTransport("192.0.2.2"))
        other.call("echo")
        self.assertEqual(len(other.received()), 1)
        clients[0].lose()
        clients[2].call("echo")
        self.assertEqual([type for type, _ in clients[2].received()], [2])

    def test_listener(self) -> None:
        """A listener has so many connections."""
        self.adapter = self.makeAdapter(maxConnections=1)
        self.connect()
        self.assertTurnedAway(connect(self.adapter, TCPStringTransport("192.0.2.2")))
        self.assertEqual(self.adapter.connections, 1)

    def test_unix(self) -> None:
        """Clients of a UNIX socket are not one client."""
        self.adapter = self.makeAdapter(maxConnectionsPerAddress=1)
        for _ in range(3):
            transport = TCPStringTransport()
            transport.peerAddr = UNIXAddress(None)
            transport.hostAddr = UNIXAddress(b"/run/x")
            client = self.connect(transport)
            self.assertTrue(client.isOpen)
            client.call("whoami")
            ((_, result),) = client.received()
            self.assertEqual(result["address"], "/run/x")

    def test_options(self) -> None:
        """keepAlive and noDelay are the socket's."""
        self.assertEqual(self.connect().transport.options, {"keepAlive": True, "noDelay": True})
        self.adapter = self.makeAdapter(keepAlive=False, noDelay=False)
        self.assertEqual(self.connect().transport.options, {"keepAlive": False, "noDelay": False})

    def test_clientIds(self) -> None:
        """Each connection has a name of its own."""
        self.assertNotEqual(
            self.connect().connection.client.id, self.connect().connection.client.id
        )


class StopTests(TCPCase):
    """The end of a listener."""

    def stop(self, graceSeconds: float) -> Any:
        """Begin to stop."""
        stopped = self.adapter.close(graceSeconds)
        self.clock.advance(0)
        self.clock.advance(0)
        return stopped

    def test_nobody(self) -> None:
        """Without connections it stops at once."""
        self.assertIsNone(self.successResultOf(self.stop(30)))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_idle(self) -> None:
        """Who has no call in flight is told and closed; who has not spoken is closed."""
        client, silent = self.connect(), self.connect()
        client.send(6, b"")
        client.received()
        stopped = self.stop(30)
        self.assertEqual(client.received(), [(12, {})])
        self.assertFalse(client.isOpen or silent.isOpen)
        self.assertEqual(silent.transport.value(), b"")
        self.assertNoResult(stopped)
        client.lose()
        silent.lose()
        self.successResultOf(stopped)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_busy(self) -> None:
        """Calls in flight end; no further ones are taken."""
        client = self.connect()
        client.call("slow", 1, data={"seconds": 5})
        stopped = self.stop(30)
        client.call("echo", 2)
        self.clock.advance(5)
        going, refused, answer = client.received()
        self.assertEqual((going, answer[0]), ((12, {}), 2))
        self.assertEqual((refused[1]["error"], refused[1]["id"]), ("UNAVAILABLE", 2))
        self.assertFalse(client.isOpen)
        client.lose()
        self.successResultOf(stopped)

    def test_grace(self) -> None:
        """What has not ended after the grace is cut, endless streams too."""
        client, stuck = self.connect(), self.connect()
        client.call("countAnything", 1, data={"to": 1, "hang": True})
        stuck.transport.isStuck = True
        stuck.call("countAnything", 1, data={"to": 10**9})
        stopped = self.stop(30)
        self.clock.advance(29)
        self.assertTrue(client.isOpen and stuck.isOpen)
        self.clock.advance(1)
        self.assertEqual(self.probe.cancelled, ["count"])
        self.assertFalse(client.isOpen)
        self.assertTrue(stuck.transport.disconnected)
        client.lose()
        stuck.lose()
        self.successResultOf(stopped)
        self.assertEqual(self.probe.cancelled, ["count", "count"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_late(self) -> None:
        """Who comes in the last moment is turned away."""
        client = self.connect()
        client.call("slow", 1)
        self.stop(30)
        late = self.connect()
        self.assertEqual(late.received()[0][1]["error"], "UNAVAILABLE")
        self.assertFalse(late.isOpen)


class LeavingTests(TCPCase):
    """The end of a listener where another process serves the same place."""

    def leave(self) -> Any:
        """Begin to close, with two seconds of patience."""
        return self.adapter.close(30, 2)

    def turns(self) -> None:
        """Let what has come be read."""
        self.clock.advance(0)
        self.clock.advance(0)

    def test_crossing(self) -> None:
        """Calls that cross with the word that this end goes are answered."""
        client = self.connect()
        client.call("echo", 1)
        client.received()
        self.leave()
        client.call("echo", 2)
        client.call("echo", 3)
        going, *answers = client.received()
        self.assertEqual((going, [type for type, _ in answers]), ((12, {}), [2, 2]))
        self.assertTrue(client.isOpen)

    def test_obedient(self) -> None:
        """When the last client has gone, nobody is waited for."""
        clients = [self.connect(), self.connect()]
        left = self.leave()
        for client in clients:
            self.assertNoResult(left)
            client.lose()
        self.turns()
        self.successResultOf(left)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_late(self) -> None:
        """Who stays is closed when the patience is over, after the answers that it waits for."""
        idle, busy = self.connect(), self.connect()
        idle.call("echo", 1)
        busy.call("slow", 1, data={"seconds": 3})
        left = self.leave()
        self.clock.advance(2)
        self.turns()
        self.assertEqual((idle.isOpen, busy.isOpen), (False, True))
        busy.call("echo", 2)
        self.clock.advance(1)
        self.assertEqual([type for type, _ in busy.received()], [12, 3, 2])
        self.assertFalse(busy.isOpen)
        self.assertNoResult(left)
        idle.lose()
        busy.lose()
        self.successResultOf(left)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent(self) -> None:
        """Who has connected and not spoken yet is told with the first words, and answered."""
        client, silent = self.connect(), self.connect()
        self.leave()
        self.assertEqual(client.received(), [])
        client.call("echo", 1)
        self.assertEqual([type for type, _ in client.received()], [12, 2])
        self.clock.advance(2)
        self.turns()
        self.assertEqual((silent.transport.value(), silent.isOpen), (b"", False))

    def test_lines(self) -> None:
        """Who speaks lines is told by a line, once."""
        client = self.connect()
        self.leave()
        call = b'{"id": 1, "service": "Probe", "method": "echo"}\n'
        client.connection.dataReceived(call)
        client.connection.dataReceived(call)
        self.clock.advance(2)
        self.turns()
        going, *answers = client.lines()
        self.assertEqual(going, {"type": "going_away"})
        self.assertEqual([answer["id"] for answer in answers], [1, 1])
