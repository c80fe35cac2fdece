"""The calls of one peer, on a wire in memory."""

from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import Client, RequestContext
from storagegate.core.definitions import readService
from storagegate.core.errors import ServiceError
from storagegate.gateway.messagefields import readId
from storagegate.gateway.peercall import ITEMS_AHEAD, ITEMS_OF_A_TURN
from storagegate.gateway.peers import Listener
from storagegate.gateway.session import Session
from tests.support.gateway import TOKEN, Boom, makeHost


async def stubborn(request: Any, context: RequestContext) -> Any:
    """Answer whatever happens."""
    try:
        await Deferred()
    except CancelledError:
        return {}


@define
class FakePeer:
    """
    A peer that keeps what it is sent.

    @ivar sent: Tuples of what, the id, and the content.
    @ivar isStalled: Whether it reads nothing.
    @ivar isReading: Whether it is read.
    """

    protocol: str = "tcp"
    client: Client = field(factory=lambda: Client("1", "127.0.0.1", 5000))
    sent: list[Any] = field(factory=list)
    isStalled: bool = False
    isReading: bool = True
    waiting: list[Deferred[None]] = field(factory=list)

    def respond(self, id: Any, method: str, result: Any) -> None:
        """Take a result."""
        self.sent.append(("result", id, result))

    def sendItem(self, id: Any, method: str, item: Any) -> None:
        """Take an item."""
        self.sent.append(("item", id, item))

    def sendEnd(self, id: Any, method: str) -> None:
        """Take an end."""
        self.sent.append(("end", id))

    def sendError(self, id: Any, error: ServiceError) -> None:
        """Take an error."""
        self.sent.append(("error", id, error.code))

    def drained(self) -> Deferred[None] | None:
        """Wait while it is stalled."""
        if not self.isStalled:
            return None
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        return waiting

    def setReading(self, wanted: bool) -> None:
        """Read or not."""
        assert wanted != self.isReading, "told twice"
        self.isReading = wanted

    def readAgain(self) -> None:
        """Read what was sent."""
        self.isStalled = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


class SessionCase(SynchronousTestCase):
    """What the cases of this file share."""

    def setUp(self) -> None:
        """Make a session."""
        self.clock = Clock()
        host, self.probe = makeHost(self.clock)
        host.invoker.add(readService({"name": "Stubborn", "methods": {"stubborn": stubborn}}))
        self.listener = Listener(host.invoker, self.clock, 10)
        self.peer = FakePeer()
        self.session = Session(self.listener, self.peer, 4)
        self.addCleanup(lambda: self.session.close())

    def request(self, method: str, id: Any = "1", **more: Any) -> None:
        """Begin a call of the fixture."""
        self.session.request({"service": "Probe", "method": method, **more}, id)


class UnaryTests(SessionCase):
    """Calls with one request and one response."""

    def test_result(self) -> None:
        """A call is answered with its id."""
        self.request("echo", data={"a": 1})
        self.assertEqual(self.peer.sent, [("result", "1", {"a": 1})])
        self.assertEqual((self.session.active, self.listener.calls), (0, 0))

    def test_noData(self) -> None:
        """A call without data has an empty request."""
        self.request("echo")
        self.assertEqual(self.peer.sent, [("result", "1", {})])

    def test_asReady(self) -> None:
        """Calls with ids are answered as they are ready."""
        self.request("slow", 1, data={"seconds": 2})
        self.request("slow", 2, data={"seconds": 1})
        self.clock.pump([1, 1])
        self.assertEqual([sent[1] for sent in self.peer.sent], [2, 1])

    def test_inOrder(self) -> None:
        """Calls without ids are answered in order, each begun after the one before."""
        self.request("slow", None, data={"seconds": 1})
        for number in range(3):
            self.request("echo", None, data={"n": number})
        self.assertEqual(self.probe.begun, ["slow"])
        self.clock.advance(1)
        self.assertEqual([sent[2].get("n") for sent in self.peer.sent], [None, 0, 1, 2])
        self.assertEqual(self.listener.calls, 0)

    def test_manyInOrder(self) -> None:
        """However many wait, none is begun inside another."""
        self.session = Session(self.listener, self.peer, 5000)
        self.listener.maxCalls = 5000
        self.request("slow", None, data={"seconds": 1})
        for number in range(2000):
            self.request("echo", None, data={"n": number})
        self.clock.advance(1)
        self.assertEqual(len(self.peer.sent), 2001)

    def test_errors(self) -> None:
        """Errors come with the id, the unforeseen ones without their text."""
        self.request("fail", data={"code": "ORDER_CLOSED"})
        self.request("fail")
        self.request("nothing")
        self.session.request({"service": "No", "method": "no"}, 5)
        self.session.request({"service": 5, "method": "no"}, 6)
        self.request("echo", deadlineMs="soon")
        self.assertEqual(
            self.peer.sent,
            [
                ("error", "1", "ORDER_CLOSED"),
                ("error", "1", "INTERNAL_ERROR"),
                ("error", "1", "NOT_FOUND"),
                ("error", 5, "NOT_FOUND"),
                ("error", 6, "INVALID_ARGUMENT"),
                ("error", "1", "INVALID_ARGUMENT"),
            ],
        )
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
        self.assertEqual(self.listener.calls, 0)

    def test_sameId(self) -> None:
        """An id that is in use is refused; the call that has it goes on."""
        self.request("slow", data={"seconds": 1})
        self.request("echo")
        self.assertEqual(self.peer.sent, [("error", "1", "INVALID_ARGUMENT")])
        self.clock.advance(1)
        self.assertEqual(self.peer.sent[1][:2], ("result", "1"))

    def test_token(self) -> None:
        """auth.token of a message says who calls."""
        self.request("private", auth={"token": TOKEN})
        self.assertEqual(self.peer.sent[0][2]["user"], {"sub": "ann"})
        for auth in ({"token": "x"}, {"token": 5}, "x", None, {}):
            self.request("private", auth=auth)
        self.assertEqual({sent[2] for sent in self.peer.sent[1:]}, {"UNAUTHENTICATED"})

    def test_deadline(self) -> None:
        """deadlineMs ends a call."""
        self.request("slow", deadlineMs=50)
        self.clock.advance(0.05)
        self.assertEqual(self.peer.sent, [("error", "1", "DEADLINE_EXCEEDED")])
        self.assertEqual(self.probe.cancelled, ["slow"])

    def test_answerAfterDeadline(self) -> None:
        """A handler that goes on after its deadline or its cancelling is not answered again."""
        for end in ("deadline", "cancel"):
            with self.subTest(end):
                self.peer.sent.clear()
                self.session.request(
                    {"service": "Stubborn", "method": "stubborn", "deadlineMs": 50}, "1"
                )
                if end == "cancel":
                    self.session.cancel("1")
                self.clock.advance(0.05)
                expected = [] if end == "cancel" else [("error", "1", "DEADLINE_EXCEEDED")]
                self.assertEqual(self.peer.sent, expected)
                self.assertEqual(self.listener.calls, 0)

    def test_trace(self) -> None:
        """traceparent names the trace; without one there is a new one."""
        trace = "0af7651916cd43dd8448eb211c80319c"
        self.request("whoami", traceparent=f"00-{trace}-b7ad6b7169203331-01")
        self.request("whoami", traceparent=5)
        self.assertEqual(self.peer.sent[0][2]["traceId"], trace)
        self.assertRegex(self.peer.sent[1][2]["traceId"], "^[0-9a-f]{32}$")


class LimitTests(SessionCase):
    """How much may be in flight."""

    def test_connection(self) -> None:
        """With as many calls as a connection may have it is not read, and then is again."""
        for number in range(4):
            self.assertTrue(self.peer.isReading)
            self.request("slow", number, data={"seconds": 1})
        self.assertFalse(self.peer.isReading)
        self.clock.advance(1)
        self.assertTrue(self.peer.isReading)

    def test_listener(self) -> None:
        """A call over the limit of all connections is refused."""
        self.listener.calls = 10
        self.request("echo")
        self.assertEqual(self.peer.sent, [("error", "1", "UNAVAILABLE")])
        self.assertEqual(self.listener.calls, 10)

    def test_draining(self) -> None:
        """A listener that stops takes no further call; those in flight go on."""
        self.request("slow", data={"seconds": 1})
        self.listener.isDraining = True
        self.request("echo", 2)
        self.assertEqual(self.peer.sent, [("error", 2, "UNAVAILABLE")])
        self.clock.advance(1)
        self.assertEqual(self.peer.sent[1][:2], ("result", "1"))

    def test_close(self) -> None:
        """A peer that is gone leaves no call behind, waiting ones included."""
        idle = self.session.whenIdle()
        self.successResultOf(idle)
        self.request("slow", 1)
        self.request("slow", None)
        self.request("slow", None)
        idle = self.session.whenIdle()
        self.session.close()
        self.assertEqual(self.probe.cancelled, ["slow", "slow"])
        self.assertEqual((self.session.active, self.listener.calls), (0, 0))
        self.successResultOf(idle)
        self.request("echo")
        self.assertEqual(self.peer.sent, [])


class StreamTests(SessionCase):
    """Streams both ways."""

    def test_server(self) -> None:
        """Items come one by one, and the end after them."""
        self.request("count", data={"to": 2})
        self.assertEqual(
            self.peer.sent,
            [("item", "1", {"number": 0}), ("item", "1", {"number": 1}), ("end", "1")],
        )

    def test_failure(self) -> None:
        """An error in the middle ends a stream in place of its end."""
        self.request("countAnything", data={"to": 1, "fail": True})
        self.assertEqual(self.peer.sent[1:], [("error", "1", "NOT_FOUND")])

    def test_stalled(self) -> None:
        """A peer that does not read stops the producer of its stream."""
        self.peer.isStalled = True
        self.request("count", data={"to": 1000})
        self.assertEqual(len(self.peer.sent), 1)
        self.peer.readAgain()
        self.clock.advance(0)
        self.assertEqual(len(self.peer.sent), 1001)

    def test_turns(self) -> None:
        """A handler that never waits lets others have their turns."""
        self.request("count", data={"to": 3 * ITEMS_OF_A_TURN})
        self.assertEqual(len(self.peer.sent), ITEMS_OF_A_TURN)
        self.request("echo", 2)
        self.assertEqual(self.peer.sent[-1], ("result", 2, {}))
        self.clock.advance(0)
        self.assertEqual(self.peer.sent[-1], ("end", "1"))

    def test_cancelBetweenTurns(self) -> None:
        """A stream that waits for its turn can be cancelled."""
        self.request("count", data={"to": 1000})
        self.session.cancel("1")
        self.clock.advance(0)
        self.assertEqual(len(self.peer.sent), ITEMS_OF_A_TURN)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.listener.calls, 0)

    def test_cancel(self) -> None:
        """After a cancel nothing more comes for an id, and its handler is closed."""
        self.request("countAnything", data={"to": 1, "hang": True})
        self.session.cancel("1")
        self.session.cancel("2")
        self.assertEqual(self.peer.sent, [("item", "1", {"number": 0})])
        self.assertEqual(self.probe.cancelled, ["count"])
        self.assertEqual(self.listener.calls, 0)

    def test_client(self) -> None:
        """A client's stream is read to its end; data of the first message is its first item."""
        self.request("collect", data={"text": "a"})
        self.session.item("1", {"text": "b"})
        self.assertEqual(self.peer.sent, [])
        self.session.itemsEnd("1")
        self.assertEqual(self.peer.sent, [("result", "1", {"texts": ["a", "b"]})])

    def test_clientWithoutId(self) -> None:
        """A stream without an id belongs to the last call without one."""
        self.request("slow", None, data={"seconds": 1})
        self.request("collect", None)
        self.session.item(None, {"text": "a"})
        self.session.itemsEnd(None)
        self.clock.advance(1)
        self.assertEqual(self.peer.sent[1], ("result", None, {"texts": ["a"]}))

    def test_chat(self) -> None:
        """Answers go out while requests come in."""
        self.request("chat")
        self.session.item("1", {"text": "a"})
        self.assertEqual(self.peer.sent, [("item", "1", {"text": "A"})])
        self.session.itemsEnd("1")
        self.assertEqual(self.peer.sent[1:], [("item", "1", {"text": "goodbye"}), ("end", "1")])

    def test_bounded(self) -> None:
        """Items that nobody takes stop the reading, and it goes on when they are taken."""
        self.peer.isStalled = True
        self.request("chat")
        for number in range(ITEMS_AHEAD + 1):
            self.assertTrue(self.peer.isReading)
            self.session.item("1", {"text": str(number)})
        self.assertFalse(self.peer.isReading)
        self.peer.readAgain()
        self.assertTrue(self.peer.isReading)
        self.assertEqual(len(self.peer.sent), ITEMS_AHEAD + 1)

    def test_boundedWaiting(self) -> None:
        """So do those of a call that waits for the one before it."""
        self.request("slow", None, data={"seconds": 1})
        self.request("collect", None)
        for number in range(ITEMS_AHEAD):
            self.assertTrue(self.peer.isReading)
            self.session.item(None, {"text": str(number)})
        self.assertFalse(self.peer.isReading)
        self.clock.advance(1)
        self.assertTrue(self.peer.isReading)

    def test_fullAtEnd(self) -> None:
        """A call that ends with items that nobody took stops no reading."""
        self.peer.isStalled = True
        self.request("chat")
        for number in range(ITEMS_AHEAD + 1):
            self.session.item("1", {"text": str(number)})
        self.assertFalse(self.peer.isReading)
        self.session.cancel("1")
        self.assertTrue(self.peer.isReading)

    def test_badItem(self) -> None:
        """An item that does not fit ends the call."""
        self.request("chat")
        self.session.item("1", {"text": 5})
        self.session.item("1", {"text": "a"})
        self.assertEqual(self.peer.sent, [("error", "1", "VALIDATION_ERROR")])

    def test_stray(self) -> None:
        """Items of no call, or of one that streams none, are nobody's."""
        self.request("slow")
        self.session.item("1", {"text": "a"})
        self.session.item("9", {"text": "a"})
        self.session.itemsEnd("9")
        self.session.item(None, {})
        self.assertEqual(self.peer.sent, [])

    def test_brokenOff(self) -> None:
        """A stream that breaks off is an error for its handler, never an end; others go on."""
        self.request("collect", 1, data={"text": "a"})
        self.request("collect", 2, data={"text": "b"})
        self.session.itemsEnd(2)
        self.request("slow", None, data={"seconds": 1})
        self.request("collect", None, data={"text": "c"})
        self.session.inputLost()
        self.clock.advance(1)
        self.assertEqual(
            self.peer.sent,
            [
                ("result", 2, {"texts": ["b"]}),
                ("error", 1, "INVALID_ARGUMENT"),
                ("result", None, {"seconds": 1}),
                ("error", None, "INVALID_ARGUMENT"),
            ],
        )
        self.assertEqual(self.probe.cancelled, ["collect", "collect"])

    def test_cancelledStream(self) -> None:
        """A peer that goes away is no end of its stream."""
        self.request("collect", data={"text": "a"})
        self.session.close()
        self.assertEqual(self.probe.cancelled, ["collect"])
        self.assertEqual(self.peer.sent, [])


class IdTests(SynchronousTestCase):
    """What may be an id."""

    def test_kinds(self) -> None:
        """Text and whole numbers keep their kind."""
        for id in ("1", 1, 0, -1, "", None):
            self.assertEqual((readId(id), type(readId(id))), (id, type(id)))

    def test_refused(self) -> None:
        """Everything else is refused."""
        for id in (1.5, True, [], {}, "x" * 129):
            error = self.assertRaises(ServiceError, readId, id)
            self.assertEqual(error.code, "INVALID_ARGUMENT")
