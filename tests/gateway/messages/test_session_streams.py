"""The streams of one peer's calls, on a wire in memory."""

from storagegate.gateway.messages.session import ITEMS_AHEAD, ITEMS_OF_A_TURN
from tests.support.sessions import SessionCase


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
