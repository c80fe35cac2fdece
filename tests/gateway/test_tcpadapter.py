"""The TCP listener and its connections in memory: flow, patience, limits, the end."""

from typing import Any

from twisted.internet.address import UNIXAddress
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.options import TCPOptions
from storagegate.gateway.peercall import ITEMS_AHEAD
from storagegate.gateway.session import CALLS_OF_A_CONNECTION
from storagegate.gateway.tcpadapter import TCPAdapter
from storagegate.gateway.tcpconnection import TCPLimits
from tests.support.gateway import makeHost
from tests.support.tcp import TCPClient, TCPTransport, connect, frame, seconds


class TCPCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a listener."""
        self.clock = Clock()
        self.host, self.probe = makeHost(self.clock)
        self.adapter = self.makeAdapter()

    def makeAdapter(self, limits: TCPLimits | None = None, **options: Any) -> TCPAdapter:
        """Make a listener with options."""
        return TCPAdapter(self.host, TCPOptions(**options), None, limits)

    def connect(self, transport: TCPTransport | None = None) -> TCPClient:
        """Connect to the listener."""
        client = connect(self.adapter, transport)
        self.addCleanup(self.lose, client)
        return client

    def lose(self, client: TCPClient) -> None:
        """Lose a connection, unless it is lost."""
        if client.connection in self.adapter._connections:
            client.lose()


class FlowTests(TCPCase):
    """Who is to wait."""

    def test_manyCalls(self) -> None:
        """With as many calls as a connection may have it is not read; what came meanwhile waits."""
        client = self.connect()
        wire = b"".join(
            frame(1, {"id": n, "service": "Probe", "method": "slow", "data": {"seconds": 1}})
            for n in range(CALLS_OF_A_CONNECTION + 50)
        )
        client.connection.dataReceived(wire)
        self.assertEqual(client.transport.producerState, "paused")
        self.assertEqual(len(self.probe.begun), CALLS_OF_A_CONNECTION)
        self.clock.advance(1)
        self.assertEqual(client.transport.producerState, "producing")
        self.clock.advance(1)
        found = [payload["id"] for _, payload in client.received()]
        self.assertEqual(sorted(found), list(range(CALLS_OF_A_CONNECTION + 50)))

    def test_slowReader(self) -> None:
        """Requests of a client that does not read its answers wait, and are answered then."""
        client = self.connect()
        client.transport.isStuck = True
        text = "x" * 1000
        wire = b"".join(
            frame(1, {"id": n, "service": "Probe", "method": "echo", "data": {"text": text}})
            for n in range(1000)
        )
        client.connection.dataReceived(wire)
        self.assertLess(len(client.transport.value()), 200_000)
        self.assertEqual(client.transport.producerState, "paused")
        client.transport.readAgain()
        self.assertEqual([payload["id"] for _, payload in client.received()], list(range(1000)))
        self.assertEqual(client.transport.producerState, "producing")

    def test_slowReaderOfStream(self) -> None:
        """A stalled reader stops its own producer, and no one else's."""
        stuck, other = self.connect(), self.connect()
        stuck.transport.isStuck = True
        stuck.call("countAnything", 1, data={"to": 10**9})
        for _ in range(200):
            self.clock.advance(0)
        size = len(stuck.transport.value())
        self.assertLess(size, 150_000)
        self.assertEqual(self.clock.getDelayedCalls(), [self.adapter._watch.call])
        other.call("count", data={"to": 100})
        self.clock.advance(0)
        self.assertEqual(len(other.received()), 101)
        self.assertEqual(len(stuck.transport.value()), size)

    def test_streamsGoOn(self) -> None:
        """Streams that waited for a reader all go on, to their ends."""
        client = self.connect()
        client.transport.isStuck = True
        for id in range(3):
            client.call("countAnything", id, data={"to": 3000})
        self.clock.advance(0)
        client.transport.readAgain()
        self.clock.advance(0)
        ends = [payload["id"] for type, payload in client.received() if type == 5]
        self.assertEqual(sorted(ends), [0, 1, 2])

    def test_cancelledWhileStalled(self) -> None:
        """A call that waits for the reader can end; nothing of it is left."""
        client = self.connect()
        client.transport.isStuck = True
        client.call("countAnything", 1, data={"to": 10**9, "hang": True}, deadlineMs=5000)
        seconds(self.clock, 5)
        self.assertEqual(self.adapter.listener.calls, 0)
        self.assertEqual(self.probe.cancelled, ["count"])
        client.transport.readAgain()
        self.assertEqual(client.received()[-1][1]["error"], "DEADLINE_EXCEEDED")

    def test_fullStream(self) -> None:
        """Items that nobody takes make the client wait."""
        client = self.connect()
        client.transport.isStuck = True
        client.call("countAnything", 1, data={"to": 10**9})
        seconds(self.clock, 1)
        client.call("chat", 2)
        self.assertEqual(client.transport.producerState, "paused")

    def test_heldBytes(self) -> None:
        """Who brings more incomplete frames than the listener holds is refused."""
        self.adapter = self.makeAdapter(TCPLimits(heldBytes=1000))
        first, second = self.connect(), self.connect()
        part = frame(6, b"x" * 5000)[:600]
        first.connection.dataReceived(part)
        self.assertEqual(self.adapter.heldBytes, 600)
        second.connection.dataReceived(part)
        self.assertEqual(second.received()[0][1]["error"], "UNAVAILABLE")
        self.assertFalse(second.isOpen)
        self.assertEqual(self.adapter.heldBytes, 600)
        first.lose()
        self.assertEqual(self.adapter.heldBytes, 0)

    def test_fullClientStream(self) -> None:
        """A handler that takes no items makes the client wait, and goes on where it stopped."""
        client = self.connect()
        client.call("slow", data={"seconds": 1})
        client.call("collect")
        for number in range(ITEMS_AHEAD + 5):
            client.send(10, {"data": {"text": str(number)}})
        client.send(11, {})
        self.assertEqual(client.transport.producerState, "paused")
        self.clock.advance(1)
        texts = client.received()[1][1]["texts"]
        self.assertEqual(texts, [str(number) for number in range(ITEMS_AHEAD + 5)])


class PatienceTests(TCPCase):
    """How long things may take."""

    def test_slowFrame(self) -> None:
        """A frame that is not complete after 30 seconds ends the connection."""
        for wire in (b"\x01", b"\x01\x01\x00\x00\x00\x05{", b"{"):
            client = self.connect()
            client.call("echo") if wire != b"{" else None
            client.transport.clear()
            client.connection.dataReceived(wire)
            seconds(self.clock, 29)
            self.assertTrue(client.isOpen)
            seconds(self.clock, 3)
            self.assertFalse(client.isOpen)
            self.assertIn(b"DEADLINE_EXCEEDED", client.transport.value())

    def test_slowloris(self) -> None:
        """A byte every five seconds is no progress."""
        client = self.connect()
        wire = frame(6, b"x" * 1000)
        for number in range(6):
            self.assertTrue(client.isOpen)
            client.connection.dataReceived(wire[number : number + 1])
            seconds(self.clock, 5)
        seconds(self.clock, 2)
        self.assertFalse(client.isOpen)

    def test_progress(self) -> None:
        """A long frame takes its time, as long as it comes; so do many short ones."""
        client = self.connect()
        wire = frame(6, b"x" * 200_000)
        for start in range(0, len(wire), 20_000):
            client.connection.dataReceived(wire[start : start + 20_000])
            seconds(self.clock, 20)
        self.assertEqual(client.received(), [(7, b"x" * 200_000)])
        ping = frame(6, b"x")
        client.connection.dataReceived(ping[:3])
        for _ in range(10):
            seconds(self.clock, 20)
            client.connection.dataReceived(ping[3:] + ping[:3])
        self.assertTrue(client.isOpen)

    def test_ourFault(self) -> None:
        """A frame that waits because we do not read does not count."""
        client = self.connect()
        calls = b"".join(
            frame(1, {"id": n, "service": "Probe", "method": "slow", "data": {"seconds": 100}})
            for n in range(CALLS_OF_A_CONNECTION)
        )
        client.connection.dataReceived(calls + b"\x01\x06")
        seconds(self.clock, 99)
        self.assertTrue(client.isOpen)
        seconds(self.clock, 32)
        self.assertFalse(client.isOpen)

    def test_idle(self) -> None:
        """A silent connection stays, whether calls are in flight or not."""
        client, busy = self.connect(), self.connect()
        busy.call("slow", data={"seconds": 5000})
        seconds(self.clock, 4000)
        self.assertTrue(client.isOpen and busy.isOpen)

    def test_stalled(self) -> None:
        """Who reads nothing for 300 seconds is dropped, who reads a little is not."""
        client, slow = self.connect(), self.connect()
        client.transport.isStuck = slow.transport.isStuck = True
        for _ in range(301):
            seconds(self.clock, 1)
            slow.transport.sentBytes += 1
        self.assertTrue(client.transport.disconnected)
        self.assertTrue(slow.isOpen)

    def test_linger(self) -> None:
        """Who was refused and does not go is dropped soon."""
        client = self.connect()
        client.connection.dataReceived(b"\x02")
        self.assertFalse(client.transport.disconnected)
        seconds(self.clock, 3)
        self.assertTrue(client.transport.disconnected)

    def test_watchEnds(self) -> None:
        """Without connections nothing is watched."""
        self.connect().lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_watchGoesOn(self) -> None:
        """What goes wrong with one connection is logged, and the others are still watched."""
        broken, slow = self.connect(), self.connect()
        broken.connection.tick = lambda now: 1 / 0
        slow.connection.dataReceived(b"\x01")
        seconds(self.clock, 32)
        self.assertFalse(slow.isOpen)
        self.assertFalse(broken.isOpen)
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))


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
        self.assertTrue(self.connect(TCPTransport("192.0.2.2")).isOpen)
        first.lose()
        self.assertTrue(self.connect().isOpen)
        self.assertTurnedAway(connect(self.adapter))

    def test_network(self) -> None:
        """The addresses of one IPv6 network are one client."""
        self.adapter = self.makeAdapter(maxConnectionsPerAddress=1)
        self.connect(TCPTransport("2001:db8::1"))
        self.assertTurnedAway(connect(self.adapter, TCPTransport("2001:db8::2")))

    def test_listener(self) -> None:
        """A listener has so many connections."""
        self.adapter = self.makeAdapter(maxConnections=1)
        self.connect()
        self.assertTurnedAway(connect(self.adapter, TCPTransport("192.0.2.2")))
        self.assertEqual(self.adapter.connections, 1)

    def test_unix(self) -> None:
        """Clients of a UNIX socket are not one client."""
        self.adapter = self.makeAdapter(maxConnectionsPerAddress=1)
        for _ in range(3):
            transport = TCPTransport()
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
