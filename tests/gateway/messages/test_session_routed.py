"""Calls that a hook has to understand first, on a wire that cannot let its peer wait."""

from typing import Any

from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate.gateway.messages.interfaces import ListenerState
from storagegate.gateway.messages.session import MESSAGES_AHEAD, RoutedSession
from tests.support.gateway import makeHost
from tests.support.sessions import FakePeer


class RoutedSessionTests(SynchronousTestCase):
    """A hook that takes a second for each message."""

    def setUp(self) -> None:
        """Make a session."""
        self.clock = Clock()
        host, self.probe = makeHost(self.clock)
        self.seen: list[Any] = []
        self.peer = FakePeer()
        listener = ListenerState(host.invoker, self.clock)
        self.session = RoutedSession(self.route, listener, self.peer, {})

    async def route(self, message: Any) -> Any:
        """Understand C{(method, id, request)}."""
        self.seen.append(message)
        await deferLater(self.clock, 1)
        method, id, request = message
        return {"service": "Probe", "method": method, "messageId": id, "request": request}

    def test_order(self) -> None:
        """What comes meanwhile waits: items for their call, and other calls for this one."""
        self.session.request(("collect", 1, {"text": "a"}), None)
        self.session.item(1, {"text": "b"})
        self.session.itemsEnd(1)
        self.session.request(("slow", 2, {}), None)
        self.session.cancel(2)
        self.session.request(("echo", 3, "c"), None)
        self.assertFalse(self.peer.isReading)
        self.assertEqual(len(self.seen), 1)
        for _ in range(3):
            self.clock.advance(1)
        self.assertEqual(self.peer.sent, [("result", 1, {"texts": ["a", "b"]}), ("result", 3, "c")])
        self.assertEqual(self.probe.cancelled, ["slow"])
        self.assertTrue(self.peer.isReading)

    def test_bound(self) -> None:
        """So many messages wait; calls beyond are told so, and items are lost."""
        for number in range(MESSAGES_AHEAD + 11):
            self.session.request(("echo", number, number), number)
        self.session.item(5, {})
        codes = [("error", MESSAGES_AHEAD + n, "UNAVAILABLE") for n in range(1, 11)]
        self.assertEqual(self.peer.sent, codes)
        for _ in range(MESSAGES_AHEAD + 20):
            self.clock.advance(1)
        self.assertEqual(len(self.peer.sent), 10 + MESSAGES_AHEAD + 1)

    def test_close(self) -> None:
        """What waits when the peer goes is not even looked at."""
        for number in range(5):
            self.session.request(("echo", number, number), None)
        self.session.close()
        self.clock.advance(10)
        self.assertEqual((len(self.seen), self.probe.begun), (1, []))
        self.assertEqual(self.clock.getDelayedCalls(), [])
