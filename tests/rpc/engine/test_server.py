"""A call on grpcio's server, with a library that notes what it is told to start."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from grpc._cython import cygrpc
from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.engine.server import ServerCall
from storagegate.rpc.interfaces import NullByteCounter

METADATA = cygrpc.OperationType.send_initial_metadata
MESSAGE = cygrpc.OperationType.send_message
STATUS = cygrpc.OperationType.send_status_from_server
CLOSE = cygrpc.OperationType.receive_close_on_server

AHEAD = 4
"""So many messages are fetched before they are asked for."""

FULL = 16
"""So many small messages fill a call, beside the one that is on its way."""


class Library:
    """
    What a call asks of grpcio and of its engine.

    @ivar batches: The kinds of operations, of each batch that was started.
    @ivar isAtWork: Whether events are at work, so that something can be put off.
    @ivar isOpen: Whether operations are started at once.
    @ivar held: What was not.
    @ivar unsettled: The calls that something was put off for.
    """

    def __init__(self) -> None:
        self.isOpen = True
        self.held: list[tuple[Any, Any, Any]] = []
        self.traffic = NullByteCounter()
        self.batches: list[list[int]] = []
        self.isAtWork = False
        self.unsettled: list[ServerCall] = []
        self._tags: list[Callable[[Any], object]] = []

    def start_server_batch(self, operations: Any, tag: Callable[[Any], object]) -> None:
        """Start a batch."""
        self.batches.append([operation.type() for operation in operations])
        self._tags.append(tag)

    def hold(self, start: Any, operations: Any, tag: Callable[[Any], object]) -> None:
        """Keep what is not to be started now."""
        self.held.append((start, operations, tag))

    def putOff(self, call: ServerCall) -> bool:
        """Take note of a call, if events are at work."""
        if self.isAtWork:
            self.unsettled.append(call)
        return self.isAtWork

    def settle(self) -> None:
        """Have what was put off done."""
        self.isAtWork = False
        while self.unsettled:
            self.unsettled.pop().sendOn()

    def complete(self, success: bool = True, *operations: Any) -> None:
        """Complete the oldest batch."""
        self._tags.pop(0)(SimpleNamespace(success=success, batch_operations=operations))

    def arrive(self, message: bytes | None, success: bool = True) -> None:
        """Complete the oldest batch, which asked for a message."""
        self.complete(success, SimpleNamespace(message=lambda: message))


class ServerCallCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Accept a call."""
        self.library = Library()
        details = SimpleNamespace(method=b"/a.B/C", deadline=float("inf"))
        event = SimpleNamespace(call=self.library, call_details=details, invocation_metadata=())
        engine: Any = self.library
        self.call = ServerCall(engine, event)


class SendingTests(ServerCallCase):
    """How messages and the status go to grpcio."""

    def test_atOnce(self) -> None:
        """A message goes at once where no event is at work, such as when a timer makes it."""
        self.call.send(b"1")
        self.assertEqual(self.library.batches, [[METADATA, MESSAGE]])

    def test_oneByOne(self) -> None:
        """grpcio has one message of a call at a time."""
        for _ in range(3):
            self.call.send(b"1")
        self.assertEqual(len(self.library.batches), 1)
        self.library.complete()
        self.library.complete()
        self.assertEqual(self.library.batches, [[METADATA, MESSAGE], [MESSAGE], [MESSAGE]])

    def test_putOff(self) -> None:
        """A message that an event makes waits until the others had their turn, and once only."""
        self.library.isAtWork = True
        self.call.send(b"1")
        self.call.send(b"2")
        self.assertEqual((self.library.batches, len(self.library.unsettled)), ([], 1))
        self.library.settle()
        self.assertEqual(self.library.batches, [[METADATA, MESSAGE]])
        self.library.complete()
        self.assertEqual(self.library.batches[1:], [[MESSAGE]])

    def test_endWithLast(self) -> None:
        """The status goes with the last message, if that has not gone yet."""
        self.library.isAtWork = True
        self.call.send(b"1")
        self.call.finish(0)
        self.library.settle()
        self.assertEqual(self.library.batches, [[METADATA, MESSAGE, STATUS, CLOSE]])

    def test_reply(self) -> None:
        """A reply is one batch, with all that it needs; after it nothing is started."""
        self.call.reply(b"1")
        self.call.reply(b"2")
        self.call.finish(13)
        self.call.send(b"3")
        self.assertEqual(self.library.batches, [[METADATA, MESSAGE, STATUS, CLOSE]])

    def test_held(self) -> None:
        """Where the engine is not open, it gets what was to be started."""
        self.library.isOpen = False
        self.call.reply(b"1")
        self.assertEqual(self.library.batches, [])
        [(start, operations, _)] = self.library.held
        self.assertEqual(start, self.library.start_server_batch)
        self.assertEqual([each.type() for each in operations], [METADATA, MESSAGE, STATUS, CLOSE])

    def test_metadataOnce(self) -> None:
        """Initial metadata that was sent before is not sent again."""
        self.call.sendMetadata([("a", "b")])
        self.call.reply(b"1")
        self.assertEqual(self.library.batches, [[METADATA], [MESSAGE, STATUS, CLOSE]])

    def test_gone(self) -> None:
        """Nothing is sent to a client that has gone since it was put off."""
        self.library.isAtWork = True
        self.call.watch(lambda: None)
        self.call.send(b"1")
        closed = SimpleNamespace(batch_operations=[SimpleNamespace(cancelled=lambda: True)])
        self.library._tags.pop()(closed)
        self.library.settle()
        self.assertEqual(self.library.batches, [[CLOSE]])

    def test_room(self) -> None:
        """A producer that has filled the call goes on when half of that has gone."""
        sent = 0
        while self.call.send(b"x"):
            sent += 1
        self.assertEqual(sent, FULL)
        drained = self.call.drained()
        for _ in range(FULL // 2):
            self.assertNoResult(drained)
            self.library.complete()
        self.library.complete()
        self.successResultOf(drained)
        # There is room for the other half at once.
        self.successResultOf(self.call.drained())

    def test_largeMessages(self) -> None:
        """One message of a MiB is enough; the next is made while it is on its way."""
        self.assertTrue(self.call.send(b"first"))
        self.assertFalse(self.call.send(bytes(1 << 20)))
        drained = self.call.drained()
        self.assertNoResult(drained)
        self.library.complete()
        self.successResultOf(drained)

    def test_roomWhilePutOff(self) -> None:
        """The first message is as good as on its way, put off or not: its handler goes on."""
        self.library.isAtWork = True
        self.assertTrue(self.call.send(bytes(1 << 20)))
        self.assertFalse(self.call.send(bytes(1 << 20)))

    def test_bytes(self) -> None:
        """Half of what fills a call is half of its bytes, where messages are not small."""
        self.call.send(b"first")
        while self.call.send(bytes(20_000)):
            pass
        drained = self.call.drained()
        for _ in range(3):
            self.assertNoResult(drained)
            self.library.complete()
        self.successResultOf(drained)


class ReadingTests(ServerCallCase):
    """How messages that have come reach their reader."""

    def setUp(self) -> None:
        """Read a stream, one message after the other."""
        super().setUp()
        self.got: list[bytes | None] = []

    def readOn(self, message: bytes | None) -> None:
        """Take a message and ask for the next, as a handler does that has nothing to wait for."""
        self.got.append(message)
        self.call.read(self.readOn, AHEAD)

    def test_atOnce(self) -> None:
        """A message goes to its reader at once where no event is at work."""
        self.call.read(self.readOn, AHEAD)
        self.library.arrive(b"1")
        self.assertEqual(self.got, [b"1"])

    def test_together(self) -> None:
        """What comes with other events waits for them, and the reader wakes once for all of it."""
        self.library.isAtWork = True
        self.call.read(self.readOn, AHEAD)
        for message in (b"1", b"2", b"3"):
            self.library.arrive(message)
        self.assertEqual((self.got, self.library.unsettled), ([], [self.call]))
        self.library.settle()
        self.assertEqual(self.got, [b"1", b"2", b"3"])

    def test_ahead(self) -> None:
        """No more is fetched than may be, while the reader waits for the others' turn, too."""
        self.library.isAtWork = True
        self.call.read(self.readOn, AHEAD)
        for _ in range(AHEAD):
            self.library.arrive(b"1")
        self.assertEqual(len(self.library.batches), AHEAD)
        self.library.settle()
        self.assertEqual(len(self.library.batches), AHEAD + 1)

    def test_end(self) -> None:
        """The end of the stream comes after the messages before it."""
        self.library.isAtWork = True
        self.call.read(self.got.append, AHEAD)
        self.library.arrive(b"1")
        self.library.arrive(None)
        self.library.arrive(None)
        self.assertEqual(self.got, [])
        self.library.settle()
        self.call.read(self.got.append, AHEAD)
        self.assertEqual(self.got, [b"1", None])

    def test_answered(self) -> None:
        """What a reader sends goes when it has had all that is there."""
        self.library.isAtWork = True

        def echo(message: bytes | None) -> None:
            self.call.send(message or b"")
            self.call.read(echo, AHEAD)

        self.call.read(echo, AHEAD)
        self.library.arrive(b"1")
        self.library.arrive(b"2")
        del self.library.batches[:]
        self.library.settle()
        self.assertEqual(self.library.batches, [[METADATA, MESSAGE]])
        sent = self.library._tags.pop()
        sent(SimpleNamespace(success=True))
        self.assertEqual(self.library.batches[1:], [[MESSAGE]])

    def test_gone(self) -> None:
        """A reader of a client that has left meanwhile gets the end, and no message."""
        self.library.isAtWork = True
        self.call.watch(lambda: None)
        self.call.read(self.readOn, AHEAD)
        self.library._tags.pop(1)(
            SimpleNamespace(success=True, batch_operations=[SimpleNamespace(message=lambda: b"1")])
        )
        closed = SimpleNamespace(batch_operations=[SimpleNamespace(cancelled=lambda: True)])
        self.library._tags.pop(0)(closed)
        self.library.settle()
        self.assertEqual(self.got, [None])


class ObservedTests(ServerCallCase):
    """What is known of a call beside its messages."""

    def test_traffic(self) -> None:
        """Bytes are counted of requests that came, and of responses when they go."""
        self.call.read(lambda message: None)
        self.library.arrive(b"four")
        self.call.send(b"12")
        self.call.send(b"345")
        traffic = self.library.traffic
        self.assertEqual((traffic.bytesIn, traffic.bytesOut), (4, 2))
        self.library.complete()
        self.assertEqual((traffic.bytesIn, traffic.bytesOut), (4, 5))

    def test_replyTraffic(self) -> None:
        """An only response is counted, and no second one that is not sent."""
        self.call.reply(b"123")
        self.call.reply(b"4567")
        self.assertEqual(self.library.traffic.bytesOut, 3)

    def test_refused(self) -> None:
        """A request that grpcio has not taken is known from one that never came."""
        for success in (True, False):
            self.setUp()
            got: list[bytes | None] = []
            self.call.read(got.append)
            self.library.arrive(None, success)
            self.library.arrive(None)
            self.assertEqual(got, [None])
            self.assertEqual(self.call.isRefused, not success)

    def test_whenClosed(self) -> None:
        """Who asks is told when a finished call is gone, and whether its client had left."""
        for isCancelled in (True, False):
            self.setUp()
            told: list[bool] = []
            self.call.whenClosed(told.append)
            self.call.finish(12, "no")
            self.assertEqual(told, [])
            close = SimpleNamespace(cancelled=lambda value=isCancelled: value)
            self.library.complete(True, None, None, close)
            self.assertEqual(told, [isCancelled])
