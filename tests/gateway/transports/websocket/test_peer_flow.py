"""WebSockets under load: floods, slow readers, and peers that are not there any more."""

import gc
import json
from typing import Any

from attrs import evolve
from twisted.internet.task import deferLater

from storagegate.core.definitions import readService
from storagegate.core.errors import ServiceError
from storagegate.core.heldbytes import HeldBytes
from storagegate.gateway.messages.json import MAX_ANSWER
from storagegate.gateway.messages.session import CALLS_OF_A_CONNECTION
from storagegate.gateway.transports.websocket import WebSocketOptions
from storagegate.gateway.transports.websocket.listener import WebSocketTransport
from storagegate.net.websocket import connection
from storagegate.net.websocket.connection import (
    CLOSE_SECONDS,
    GOING_AWAY,
    MAX_UNSENT,
    POLICY,
    TRY_LATER,
)
from tests.gateway.wscase import Talker, WebSocketCase
from tests.support.pools import HeldPool
from tests.support.wsclient import CONTINUATION, PING, PONG, TEXT, ServerFrame, frame

PING_SECONDS = 30

LARGE = {f"key {number}": number for number in range(8000)}


class FloodTests(WebSocketCase):
    """A client that says more than it is answered."""

    def flood(self, client: Talker, count: int) -> list[Any]:
        """Make many slow calls in one go."""
        call = {"service": "Probe", "method": "slow", "data": {"seconds": 5}}
        answers = client.say(*({"id": number, **call} for number in range(count)))
        self.clock.advance(0)
        return [*answers, *client.messages()]

    def test_paused(self) -> None:
        """Beyond so many calls a client is not read, not even what is here already."""
        client = self.connect()
        self.assertEqual(self.flood(client, 1000), [])
        self.assertEqual(len(self.probe.begun), CALLS_OF_A_CONNECTION)
        self.assertEqual(client.transport.producerState, "paused")

    def test_readAgain(self) -> None:
        """As calls end, the rest is read, in its order, and every call is answered."""
        client = self.connect()
        self.flood(client, 300)
        answered = []
        for _ in range(3):
            self.clock.advance(5)
            answered += [each["id"] for each in client.messages()]
        self.assertEqual(answered, list(range(300)))
        self.assertEqual(client.transport.producerState, "producing")

    def test_atOnce(self) -> None:
        """Calls that are answered at once are no flood, however many come together."""
        client = self.connect()
        calls = [{"id": n, "service": "Probe", "method": "echo"} for n in range(10_000)]
        answers = client.say(*calls)
        self.clock.advance(0)
        answers += client.messages()
        self.assertEqual([each["id"] for each in answers], list(range(10_000)))

    def test_fullStream(self) -> None:
        """A client's stream that nobody takes items from lets its client wait."""
        taken: list[Any] = []

        async def slowly(requests: Any, context: Any) -> Any:
            async for request in requests:
                taken.append(request)
                await deferLater(self.clock, 1)
            return len(taken)

        self.configure(
            [{"name": "S", "methods": {"m": {"handler": slowly, "streaming": "client"}}}]
        )
        client = self.connect()
        items = [{"id": 1, "type": "stream", "data": n} for n in range(50)]
        client.say(
            {"id": 1, "service": "S", "method": "m"}, *items, {"id": 1, "type": "stream_end"}
        )
        self.assertEqual(client.transport.producerState, "paused")
        self.assertLess(len(taken), 5)
        for _ in range(60):
            self.clock.advance(1)
        self.assertEqual(taken, list(range(50)))
        self.assertEqual(client.messages()[0]["data"], 50)

    def test_others(self) -> None:
        """Another client is read while one has to wait."""
        self.flood(self.connect(), 1000)
        self.assertEqual(len(self.connect().call("echo")), 1)


class SlowReaderTests(WebSocketCase):
    """A client that does not read."""

    def stall(self, client: Talker) -> None:
        """Let a client read nothing: its connection is full after the next message."""
        write = client.transport.write

        def fill(data: bytes) -> None:
            write(data)
            client.transport.write = write
            client.wire.pauseProducing()

        client.transport.write = fill

    def test_producerWaits(self) -> None:
        """A stream waits for its reader, and for nobody else's."""
        slow, quick = self.connect(), self.connect()
        self.stall(slow)
        ones: list[int] = []

        async def numbers(request: Any, context: Any) -> Any:
            for number in range(1000):
                ones.append(number)
                yield number
                await deferLater(self.clock, 1)

        self.host.invoker.add(readService({"name": "Numbers", "methods": {"give": numbers}}))
        slow.say({"id": 1, "service": "Numbers", "method": "give"})
        for _ in range(20):
            self.clock.advance(1)
            self.assertEqual(len(quick.call("count", {"to": 10})), 11)
        # What fills the connection, and the one that waits behind it.
        self.assertEqual((ones, self.data(slow.messages())), ([0, 1], [1]))
        slow.wire.resumeProducing()
        self.clock.advance(1)
        self.assertEqual((ones, self.data(slow.messages())), ([0, 1, 2], [2]))

    def test_cancelledWhileWaiting(self) -> None:
        """A client that goes without reading leaves nothing behind."""
        client = self.connect()
        self.stall(client)
        client.call("count", {"to": 100})
        self.assertEqual(self.probe.cancelled, [])
        client.transport.abortConnection()
        self.clock.advance(0)
        self.assertEqual(self.probe.cancelled, ["count"])

    def test_notRead(self) -> None:
        """Who does not read is not read: calls and pings wait."""
        client = self.connect()
        client.wire.pauseProducing()
        self.assertEqual(client.transport.producerState, "paused")
        self.assertEqual(client.call("echo"), [])
        client.send(frame(PING, b"1"))
        self.assertEqual(client.heard(), [])
        client.wire.resumeProducing()
        self.assertEqual(client.transport.producerState, "producing")
        (answer,) = client.messages()
        self.assertEqual((answer["id"], client.others), (1, [ServerFrame(PONG, b"1")]))

    def test_tooMuch(self) -> None:
        """Results pile up to a bound; then the client is told to come later, and dropped."""
        result = "*" * (MAX_ANSWER // 2)

        async def large(request: Any, context: Any) -> Any:
            await deferLater(self.clock, 1)
            return result

        self.configure([{"name": "L", "methods": {"get": large}}])
        client = self.connect()
        count = MAX_UNSENT // len(result) + 5
        client.say(*({"id": n, "service": "L", "method": "get"} for n in range(count)))
        client.wire.pauseProducing()
        self.clock.advance(1)
        self.assertLess(len(client.transport.value()), MAX_UNSENT + 1000)
        self.assertEqual(len(client.messages()), MAX_UNSENT // len(result) - 1)
        self.assertEqual(client.closeCode, 1013)
        self.clock.advance(5)
        self.clock.advance(0)
        self.assertEqual(self.adapter.connections, 0)

    def test_unreadWrites(self) -> None:
        """The bound holds for all writes together, though the transport pauses with each."""
        self.patch(connection, "MAX_UNSENT", 10_000)
        client = self.connect()
        write = client.transport.write

        def pausing(data: bytes) -> None:
            write(data)
            client.wire.pauseProducing()

        client.transport.write = pausing  # type: ignore[method-assign]
        data = {"seconds": 1, "text": "x" * 1000}
        for id in range(20):
            client.call("slow", data, id)
        client.wire.pauseProducing()
        self.clock.advance(1)
        self.assertLess(len(client.transport.value()), 11_000)
        self.assertEqual(client.closeCode, 1013)

    def test_unreadError(self) -> None:
        """It may be an error that exceeds the bound: its call ends once."""
        self.patch(connection, "MAX_UNSENT", 1000)

        async def failing(request: Any, context: Any) -> Any:
            await deferLater(self.clock, 1)
            raise ServiceError("LONG", "*" * 600)

        self.configure([{"name": "L", "methods": {"get": failing}}])
        client = self.connect()
        client.say(*({"id": n, "service": "L", "method": "get"} for n in range(3)))
        client.wire.pauseProducing()
        self.clock.advance(1)
        gc.collect()
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.adapter.listener.calls, 0)
        self.assertEqual(client.closeCode, 1013)


class WatchTests(WebSocketCase):
    """Clients that say nothing."""

    def pings(self, client: Talker) -> int:
        """Count the pings that have come since the last time."""
        return sum(each.opcode == PING for each in client.heard())

    def test_asked(self) -> None:
        """A silent client is asked, and stays as long as it answers."""
        client = self.connect()
        self.clock.advance(PING_SECONDS)
        self.assertEqual(self.pings(client), 0)
        for _ in range(5):
            self.clock.advance(PING_SECONDS)
            self.assertEqual(self.pings(client), 1)
            client.send(frame(PONG))
            self.clock.advance(PING_SECONDS)
        self.assertFalse(client.transport.isOver)

    def test_dropped(self) -> None:
        """One that does not answer is dropped, and so are its calls."""
        client = self.connect()
        client.call("slow")
        for _ in range(3):
            self.clock.advance(PING_SECONDS)
        self.clock.advance(0)
        self.assertTrue(client.transport.isAborted)
        self.assertEqual(self.probe.cancelled, ["slow"])
        self.assertEqual(self.adapter.connections, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_pingSeconds(self) -> None:
        """How often is an option."""
        self.configure(pingSeconds=5)
        client = self.connect()
        self.clock.advance(5)
        self.clock.advance(5)
        self.assertEqual(self.pings(client), 1)

    def test_busyClient(self) -> None:
        """Whoever says something is not asked."""
        client = self.connect()
        for _ in range(5):
            client.call("echo")
            self.clock.advance(PING_SECONDS)
        self.assertEqual(self.pings(client), 0)

    def test_unfinishedMessage(self) -> None:
        """A message has ten minutes, in one frame or in fragments, whatever comes meanwhile."""
        for beginning, rest in (
            (frame(TEXT, b"x" * 1000)[:20], b"x"),
            (frame(TEXT, b"x" * 5000)[:3], b""),
            (frame(TEXT, b"{", fin=False), frame(CONTINUATION, b" ", fin=False)),
            (frame(TEXT, b"{", fin=False), frame(PING, b"")),
        ):
            client, other = self.connect(), self.connect()
            client.send(beginning)
            for _ in range(20):
                other.call("echo")
                self.clock.advance(PING_SECONDS)
                client.send(rest or frame(PING)[:0])
                client.wire.hasReceived = True
            self.assertIsNone(client.closeCode)
            self.clock.advance(PING_SECONDS)
            self.assertEqual(client.closeCode, POLICY)
            self.assertIsNone(other.closeCode)

    def test_manyMessages(self) -> None:
        """Each message has its own ten minutes: one that always has a part of the next may stay."""
        client = self.connect()
        whole = frame(TEXT, b"x" * 300)
        client.send(whole[:100])
        for _ in range(50):
            self.clock.advance(PING_SECONDS)
            client.send(whole[100:] + whole[:100])
        self.assertIsNone(client.closeCode)

    def test_waitingForCalls(self) -> None:
        """One that is not read because its calls take long cannot answer, and is not dropped."""
        client = self.connect()
        call = {"service": "Probe", "method": "slow"}
        client.say(*({"id": number, **call} for number in range(CALLS_OF_A_CONNECTION)))
        for _ in range(5):
            self.clock.advance(PING_SECONDS)
        self.assertFalse(client.transport.isOver)

    def test_stuckReader(self) -> None:
        """One that takes nothing of what waits for it is dropped; one that is slow is not."""
        slow, stuck = self.connect(), self.connect()
        for client in (slow, stuck):
            client.wire.pauseProducing()
        for sent in range(5):
            slow.transport.sentBytes = sent
            self.clock.advance(PING_SECONDS)
        self.assertFalse(slow.transport.isOver)
        self.assertTrue(stuck.transport.isAborted)

    def test_unfinishedEnd(self) -> None:
        """A connection that was closed and never goes is dropped."""
        client = self.connect()
        # The transport waits for a producer as it would for bytes that nobody reads.
        client.send(frame(TEXT, b"{"))
        client.wire.unregisterProducer = lambda: None
        client.send(frame(8))
        self.assertFalse(client.transport.isOver)
        for _ in range(3):
            self.clock.advance(PING_SECONDS)
        self.assertTrue(client.transport.isAborted)


class HeldBytesTests(WebSocketCase):
    """Incomplete messages, of which the budget of all transports has 1,000 bytes."""

    def configure(self, *services: Any, **options: Any) -> Any:
        """Make the adapter."""
        super().configure(*services, **options)
        self.host = evolve(self.host, budget=HeldBytes(1000))
        self.adapter._server.budget = self.host.budget
        return self.adapter

    def test_counted(self) -> None:
        """Bytes count as they come, and no more when the message is complete."""
        client, other = self.connect(), self.connect()
        budget = self.host.budget
        whole = frame(TEXT, b"[" + b" " * 598 + b"]")
        client.send(whole)
        self.assertEqual(budget.total, 0)
        client.send(whole[:500])
        held = budget.total
        self.assertTrue(480 < held < 500, held)
        client.send(whole[500:])
        self.assertEqual(budget.total, 0)
        other.send(frame(TEXT, b"[" * 100, fin=False), frame(PING, b"12"))
        self.assertEqual(budget.total, 100)
        other.send(frame(CONTINUATION, b"]" * 100, fin=False))
        self.assertEqual(budget.total, 200)
        other.send(frame(CONTINUATION, b"]"))
        self.assertEqual(budget.total, 0)

    def test_refused(self) -> None:
        """Over the limit the largest is closed with 1013, and the others are served."""
        first, second, third = self.connect(), self.connect(), self.connect()
        first.send(frame(TEXT, b"[" * 400, fin=False))
        second.send(frame(TEXT, b"[" * 500, fin=False))
        self.assertEqual(self.host.budget.total, 900)
        third.send(frame(TEXT, b"[" * 101, fin=False))
        self.assertEqual((first.closeCode, second.closeCode), (None, TRY_LATER))
        self.assertEqual((self.host.budget.total, self.host.budget.refused), (501, 1))
        self.assertEqual(self.data(self.connect().call("echo", {"text": "a"})), [{"text": "a"}])

    def test_lost(self) -> None:
        """A client that goes in the middle of its message leaves nothing."""
        client = self.connect()
        client.send(frame(TEXT, b"[" * 400, fin=False))
        client.transport.abortConnection()
        self.clock.advance(0)
        self.assertEqual(self.host.budget.total, 0)


class LargeTests(WebSocketCase):
    """Large JSON, which is decoded in a thread."""

    def configure(self, *services: Any, **options: Any) -> Any:
        """Make the adapter, with a thread that begins when a test says so."""
        super().configure(*services, **options)
        self.pool = HeldPool()
        self.budget = HeldBytes(1_000_000)
        self.host = evolve(self.host, run=self.pool.run, budget=self.budget)
        self.adapter = WebSocketTransport(self.host, WebSocketOptions())
        self._adapters.append(self.adapter)
        return self.adapter

    def send(self, client: Talker, *calls: tuple[int, Any]) -> None:
        """Send calls in one go."""
        client.send(*(frame(TEXT, self.message(id, data)) for id, data in calls))
        self.clock.advance(0)

    def message(self, id: int, data: Any) -> bytes:
        """Write a call of the echo."""
        call = {"id": id, "service": "Probe", "method": "echo", "data": data}
        return json.dumps(call).encode()

    def test_order(self) -> None:
        """What follows such a message waits for it."""
        client = self.connect()
        self.send(client, (1, {}), (2, LARGE), (3, {}), (4, LARGE), (5, {}))
        self.assertEqual([each["id"] for each in client.messages()], [1])
        self.assertEqual(client.transport.producerState, "paused")
        self.assertEqual(self.budget.total, len(self.message(2, LARGE)))
        self.pool.go()
        self.clock.pump([0] * 100)
        self.assertEqual([each["id"] for each in client.messages()], [2, 3])
        self.pool.goAll()
        self.clock.pump([0] * 100)
        fourth, fifth = client.messages()
        self.assertEqual((fourth["id"], fourth["data"], fifth["id"]), (4, LARGE, 5))
        self.assertEqual(client.transport.producerState, "producing")
        self.assertEqual(self.budget.total, 0)

    def test_malformed(self) -> None:
        """One that is malformed is answered with an error, and the next is taken."""
        client = self.connect()
        wrong = self.message(1, LARGE).replace(b'7": 7', b'7"; 7')
        client.send(frame(TEXT, wrong), frame(TEXT, self.message(2, {})))
        self.pool.goAll()
        self.clock.pump([0] * 100)
        error, echo = client.messages()
        self.assertEqual((error["error"]["code"], echo["id"]), ("INVALID_ARGUMENT", 2))

    def test_lost(self) -> None:
        """Of a client that goes meanwhile nothing is called, and nothing counted."""
        client = self.connect()
        self.send(client, (1, LARGE))
        client.transport.abortConnection()
        self.clock.advance(0)
        self.assertEqual(self.budget.total, 0)
        self.pool.goAll()
        self.assertEqual(self.probe.begun, [])

    def test_leaving(self) -> None:
        """A listener that closes waits for it."""
        client = self.connect()
        self.send(client, (1, LARGE))
        closing = self.adapter.close(5)
        self.clock.advance(0)
        self.assertEqual(client.closeCode, None)
        self.pool.goAll()
        self.clock.pump([0] * 10)
        self.assertEqual(client.closeCode, GOING_AWAY)
        self.clock.pump([CLOSE_SECONDS, 0, 0])
        self.successResultOf(closing)
