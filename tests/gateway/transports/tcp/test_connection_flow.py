"""Connections of the TCP listener in memory: flow and patience."""

from attrs import evolve

from storagegate.core.heldbytes import HeldBytes
from storagegate.gateway.messages.session import CALLS_OF_A_CONNECTION, ITEMS_AHEAD
from tests.support.tcp import frame, seconds
from tests.support.tcpcases import TCPCase


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
        self.clock.advance(0)
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
        self.clock.advance(0)
        self.assertLess(len(client.transport.value()), 200_000)
        self.assertEqual(client.transport.producerState, "paused")
        client.transport.readAgain()
        self.clock.advance(0)
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
        self.assertEqual(len(client.connection._drains), 0)
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
        """Of incomplete frames that are more than the budget, the largest is refused."""
        self.host = evolve(self.host, budget=HeldBytes(1000))
        self.adapter = self.makeAdapter()
        first, second = self.connect(), self.connect()
        part = frame(6, b"x" * 5000)
        first.connection.dataReceived(part[:400])
        second.connection.dataReceived(part[:600])
        self.assertEqual((self.adapter.heldBytes, self.host.budget.total), (1000, 1000))
        first.connection.dataReceived(part[400:450])
        self.assertEqual(second.received()[0][1]["error"], "RESOURCE_EXHAUSTED")
        self.assertFalse(second.isOpen)
        self.assertEqual((self.adapter.heldBytes, self.host.budget.total), (450, 450))
        first.lose()
        self.assertEqual((self.adapter.heldBytes, self.host.budget.total), (0, 0))

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

    def test_deadline(self) -> None:
        """A message that makes progress has ten minutes all the same."""
        client = self.connect()
        client.connection.dataReceived(frame(6, b"x" * 2_000_000)[:20_000])
        for _ in range(23):
            seconds(self.clock, 25)
            client.connection.dataReceived(b"x" * 20_000)
        seconds(self.clock, 23)
        self.assertTrue(client.isOpen)
        seconds(self.clock, 3)
        self.assertFalse(client.isOpen)
        self.assertIn(b"DEADLINE_EXCEEDED", client.transport.value())

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
        broken.connection.checkTimeouts = lambda now: 1 / 0
        slow.connection.dataReceived(b"\x01")
        seconds(self.clock, 32)
        self.assertFalse(slow.isOpen)
        self.assertFalse(broken.isOpen)
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
