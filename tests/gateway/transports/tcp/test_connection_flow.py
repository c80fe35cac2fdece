"""Connections of the TCP listener in memory: flow and patience."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve

from storagegate.core.heldbytes import HeldBytes
from storagegate.gateway.messages.session import CALLS_OF_A_CONNECTION, ITEMS_AHEAD
from storagegate.gateway.transports.tcp import connection
from tests.support.pools import HeldPool
from tests.support.tcp import TCPClient, frame, seconds
from tests.support.tcpcases import TCPCase

LARGE = {f"key {number}": number for number in range(8000)}


def call(id: int, data: Any = None) -> dict[str, Any]:
    """Make a call of the echo."""
    return {"id": id, "service": "Probe", "method": "echo", "data": data or {}}


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

    def test_others(self) -> None:
        """While a connection waits for its turn, another one is served a message at a time."""
        wire = b"".join(frame(1, call(number)) for number in range(100))
        clients = [self.connect() for _ in range(3)]
        for client in clients:
            client.connection.dataReceived(wire)
        self.assertEqual([len(client.received()) for client in clients], [64, 1, 1])
        self.clock.advance(0)
        self.assertEqual([len(client.received()) for client in clients], [36, 99, 99])

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

    def test_unread(self) -> None:
        """Results that a client does not read pile up to a bound; then the client is dropped."""
        self.patch(connection, "MAX_UNSENT", 500_000)
        client = self.connect()
        client.transport.isStuck = True
        data = {"seconds": 1, "text": "x" * 100_000}
        for id in range(20):
            client.call("slow", id, data=data)
        self.clock.advance(1)
        self.assertTrue(client.transport.disconnecting)
        self.assertLess(len(client.transport.value()), 700_000)
        client.connection.connectionLost()
        self.assertEqual((self.adapter.listener.calls, self.adapter.connections), (0, 0))

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


class LargeTests(TCPCase):
    """Large JSON, which is decoded in a thread."""

    def setUp(self) -> None:
        """Have a thread that begins when a test says so."""
        super().setUp()
        self.pool = HeldPool()
        self.budget = HeldBytes(1_000_000)
        self.host = evolve(self.host, run=self.pool.run, budget=self.budget)
        self.adapter = self.makeAdapter()

    def both(self) -> Iterator[tuple[TCPClient, Callable[[Any], bytes], Callable[[], list[Any]]]]:
        """Yield a client of each kind, how it writes calls, and what it has been answered."""
        client = self.connect()
        yield client, lambda call: frame(1, call), lambda: [each[1] for each in client.received()]
        other = self.connect()
        yield other, lambda call: json.dumps(call).encode() + b"\n", other.lines

    def test_order(self) -> None:
        """What follows such a message waits for it."""
        for client, write, received in self.both():
            calls = [call(1), call(2, LARGE), call(3), call(4, LARGE), call(5)]
            client.connection.dataReceived(b"".join(map(write, calls)))
            self.assertEqual([each["id"] for each in received()], [1])
            self.assertEqual(client.transport.producerState, "paused")
            self.assertGreater(self.budget.total, len(write(call(4, LARGE))))
            self.pool.go()
            self.assertEqual([each["id"] for each in received()], [2, 3])
            self.pool.goAll()
            second = received()
            self.assertEqual([each["id"] for each in second], [4, 5])
            self.assertEqual(second[0]["data"], LARGE)
            self.assertEqual(client.transport.producerState, "producing")
            self.assertEqual(self.budget.total, 0)

    def test_malformed(self) -> None:
        """One that is malformed is answered with an error, and the next is taken."""
        for client, write, received in self.both():
            wire = write(call(1, LARGE)).replace(b'7": 7', b'7"; 7') + write(call(2))
            client.connection.dataReceived(wire)
            self.pool.goAll()
            error, echo = received()
            self.assertIn("is unreadable: JSON is malformed", json.dumps(error))
            self.assertEqual(echo["id"], 2)

    def test_small(self) -> None:
        """A long text has no thread."""
        for client, write, received in self.both():
            client.connection.dataReceived(write(call(1, {"text": "a" * 500_000})))
            self.assertEqual([each["id"] for each in received()], [1])
            self.assertEqual(self.pool.waiting, [])

    def test_lost(self) -> None:
        """Of a client that goes meanwhile nothing is called, and nothing counted."""
        for client, write, _ in self.both():
            client.connection.dataReceived(write(call(1, LARGE)))
            client.lose()
            self.assertEqual(self.budget.total, 0)
            self.pool.goAll()
        self.assertEqual(self.probe.begun, [])

    def test_draining(self) -> None:
        """A listener that closes waits for it."""
        for client, write, received in self.both():
            client.connection.dataReceived(write(call(1, LARGE)))
            client.connection.closeWhenIdle()
            self.assertTrue(client.isOpen)
            self.pool.goAll()
            self.assertEqual(received()[0]["id"], 1)
            self.assertFalse(client.isOpen)

    def test_refused(self) -> None:
        """Over the budget its bytes are dropped, and it is refused."""
        for client, write, received in self.both():
            self.budget.limit = 1_000_000
            client.connection.dataReceived(write(call(1, LARGE)))
            self.budget.limit = 1000
            other = self.connect()
            other.connection.dataReceived(frame(6, b"x" * 500)[:400])
            self.assertEqual(self.budget.total, 400)
            self.pool.goAll()
            self.assertIn("RESOURCE_EXHAUSTED", json.dumps(received()))
            other.lose()


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
