"""The calls of one peer, on a wire in memory."""

from itertools import product

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.gateway.messages.session import PeerSession, readId
from tests.support.gateway import TOKEN, Boom
from tests.support.sessions import SessionCase


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
        self.listener.maxCalls = self.listener.callsPerAddress = 5000
        self.session = PeerSession(self.listener, self.peer, 5000)
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
        for end, method in product(("deadline", "cancel"), ("stubborn", "stubbornStream")):
            with self.subTest(f"{end} {method}"):
                self.peer.sent.clear()
                self.session.request(
                    {"service": "Stubborn", "method": method, "deadlineMs": 50}, "1"
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


class IdTests(SynchronousTestCase):
    """What may be an id."""

    def test_kinds(self) -> None:
        """Text and whole numbers keep their kind."""
        for id in ("1", 1, 0, -1, "", None, 10**127, -(10**127)):
            self.assertEqual((readId(id), type(readId(id))), (id, type(id)))

    def test_refused(self) -> None:
        """Everything else is refused."""
        for id in (1.5, True, [], {}, "x" * 129, 10**128, -(10**128)):
            error = self.assertRaises(ServiceError, readId, id)
            self.assertEqual(error.code, "INVALID_ARGUMENT")
