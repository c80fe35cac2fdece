"""Services over UDP, with datagrams in memory and a clock of the test."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from storagegate.gateway.messages.frames import (
    ACK,
    CANCEL,
    END,
    ERROR,
    GOING_AWAY,
    ITEM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    encodeFrame,
)
from storagegate.gateway.transports.udp import listener
from storagegate.gateway.transports.udp.replycache import ReplyCache, ReplyCacheUnavailable
from tests.gateway.udpcase import KNOWN, SOURCE, UDPCase
from tests.support.gateway import Boom


class CallTests(UDPCase):
    """Calls with one request and one response."""

    def test_result(self) -> None:
        """With an id the answer has it, without one it is the bare result."""
        self.call("echo", data={"a": 1})
        self.call("echo", None, data={"a": 2})
        self.assertEqual(
            self.answers, [(RESPONSE, {"id": "1", "data": {"a": 1}}), (RESPONSE, {"a": 2})]
        )

    def test_errors(self) -> None:
        """Errors are frames of their own."""
        self.call("fail", data={"code": "CLOSED"})
        self.call("nothing", 2)
        self.call("fail", 3)
        codes = [(type, payload["id"], payload["error"]) for type, payload in self.answers]
        self.assertEqual(
            codes, [(ERROR, "1", "CLOSED"), (ERROR, 2, "NOT_FOUND"), (ERROR, 3, "INTERNAL_ERROR")]
        )
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_noFrame(self) -> None:
        """What is no frame is dropped and counted; nobody is answered."""
        good = encodeFrame(REQUEST, b"{}")
        for datagram in (b"", b"x", good[:5], good + b"x", b"\x02" + good[1:], good[:-1]):
            self.adapter.datagramReceived(datagram, SOURCE)
        self.assertEqual(self.adapter.dropped["frame"], 6)
        self.assertEqual(self.transport.sent, [])

    def test_badPayload(self) -> None:
        """A frame with a payload that is none gets an error, if it is large enough for one."""
        for payload in (b"{" + b" " * 100, b"[1]" + b" " * 100, b"\xff" * 100):
            self.adapter.datagramReceived(encodeFrame(REQUEST, payload), SOURCE)
        self.assertEqual([type for type, _ in self.answers], [ERROR] * 3)
        self.adapter.datagramReceived(encodeFrame(REQUEST, b"{"), SOURCE)
        self.assertEqual(self.transport.sent, [])

    def test_silentPorts(self) -> None:
        """Ports of services that answer anything are never answered."""
        for port in (0, 7, 19, 53, 123):
            self.send(PING, {}, ("127.0.0.1", port))
        self.assertEqual((self.transport.sent, self.adapter.dropped["port"]), ([], 5))

    def test_serverFrames(self) -> None:
        """
        Frames that only servers send are dropped: two gateways would answer each other forever.
        """
        for type in (RESPONSE, ERROR, ITEM, END, ACK, GOING_AWAY):
            for payload in (b"{}" + b" " * 300, b"x" * 300):
                self.adapter.datagramReceived(encodeFrame(type, payload), SOURCE)
        self.assertEqual((self.transport.sent, self.adapter.dropped["type"]), ([], 12))

    def test_ping(self) -> None:
        """A ping is answered with what it had."""
        self.send(PING, {"a": 1})
        self.assertEqual(self.answers, [(PONG, {"a": 1})])

    def test_socketErrors(self) -> None:
        """What the system refuses to send is counted."""
        self.transport.error = OSError(90, "Message too long")
        self.call("echo")
        self.assertEqual(self.adapter.dropped["send 90"], 1)

    def test_flood(self) -> None:
        """An address that floods is not listened to for the rest of the second."""
        datagram = encodeFrame(PING, b"")
        for _ in range(20_010):
            self.adapter.datagramReceived(datagram, SOURCE)
        self.assertEqual(self.adapter.dropped["rate"], 10)
        self.adapter.datagramReceived(datagram, ("127.0.0.2", 1))
        self.assertEqual(len(self.transport.sent), 20_001)

    def test_callsOfAnAddress(self) -> None:
        """An address has so many calls in flight, whatever its ports; others are answered."""
        self.make(maxCallsPerAddress=2)
        for port in (5001, 5002, 5003):
            self.sendCall("slow", ("192.0.2.1", port))
        ((type, error),) = self.answers
        self.assertEqual((type, error["error"]), (ERROR, "UNAVAILABLE"))
        self.sendCall("echo", ("192.0.2.2", 5001))
        self.assertEqual([type for type, _ in self.answers], [RESPONSE])

    def sendCall(self, method: str, source: tuple[str, int]) -> None:
        """Begin a call of the fixture from an address."""
        request = {"id": "1", "service": "Probe", "method": method, "padding": "x" * 200}
        self.send(REQUEST, request, source)

    def test_cancel(self) -> None:
        """A cancelled call is not answered."""
        self.call("slow")
        self.send(CANCEL, {"id": "1"})
        self.assertEqual((self.probe.cancelled, self.transport.sent), (["slow"], []))

    def test_deadline(self) -> None:
        """deadlineMs ends a call."""
        self.call("slow", deadlineMs=100)
        self.clock.advance(0.1)
        self.assertEqual(self.answers[0][1]["error"], "DEADLINE_EXCEEDED")

    def test_acknowledged(self) -> None:
        """A call that takes over a second is acknowledged once, and answered then."""
        self.call("slow", data={"seconds": 3})
        self.clock.advance(0.9)
        self.assertEqual(self.answers, [])
        self.clock.advance(0.2)
        self.assertEqual(self.answers, [(ACK, {"id": "1"})])
        self.clock.advance(3)
        self.assertEqual([type for type, _ in self.answers], [RESPONSE])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class AgainTests(UDPCase):
    """Datagrams that come twice."""

    def test_answered(self) -> None:
        """An id that comes again gets the same answer, and the method does not run."""
        self.call("echo", data={"a": 1})
        first = self.transport.sent[0]
        self.call("echo", data={"a": 2})
        self.assertEqual(self.transport.sent[1], first)
        self.assertEqual(self.probe.begun, ["echo"])

    def test_underWay(self) -> None:
        """A duplicate of a call under way is answered once, when it is done."""
        self.call("slow", data={"seconds": 0.5})
        self.call("slow", data={"seconds": 0.5})
        self.clock.advance(1)
        self.assertEqual(len(self.answers), 1)
        self.assertEqual(self.probe.begun, ["slow"])

    def test_others(self) -> None:
        """Another address, another id, and the same id much later are other calls."""
        self.call("echo")
        request = {"id": "1", "service": "Probe", "method": "echo"}
        self.send(REQUEST, request, ("127.0.0.1", 40_001))
        self.call("echo", "2")
        self.clock.advance(248)
        self.call("echo")
        self.assertEqual(self.probe.begun, ["echo"] * 4)

    def test_bounded(self) -> None:
        """The cache forgets the oldest where it is full."""
        cache = ReplyCache(self.clock.seconds, maxAnswers=2)
        for key in ("a", "b", "c"):
            self.assertIsNone(cache.begin(key))
            cache.end(key, key.encode())
        self.assertEqual(len(cache), 2)
        self.assertIsNone(cache.begin("a"))
        kept = cache.begin("c")
        assert kept is not None
        self.assertEqual(kept.reply, b"c")


class Remote(ReplyCache):
    """
    A cache whose answers come when the test says so.

    @ivar waiting: Answers that are to come.
    """

    def __init__(self, now: Any) -> None:
        super().__init__(now)
        self.waiting: list[Deferred[None]] = []

    def begin(self, key: Any, size: int = 0) -> Any:
        """Take note of a request."""
        return self._later(super().begin(key, size))

    def end(self, key: Any, answer: bytes, isKnown: bool = False) -> Any:
        """Keep an answer."""
        return self._later(super().end(key, answer, isKnown))

    def _later(self, result: Any) -> Any:
        self.waiting.append(Deferred())
        return self.waiting[-1].addCallback(lambda ignored: result)


class LaterTests(UDPCase):
    """A cache that answers later."""

    def setUp(self) -> None:
        """Make an adapter with one."""
        self.cache = Remote(lambda: 0.0)
        self.make(answers=self.cache)

    def test_begins(self) -> None:
        """A call begins when it is known to be new; a repetition gets the answer."""
        self.call("echo")
        self.call("echo")
        self.assertEqual(self.probe.begun, [])
        self.cache.waiting[0].callback(None)
        self.assertEqual(len(self.answers), 1)
        self.cache.waiting[1].callback(None)
        self.assertEqual((self.probe.begun, len(self.answers)), (["echo"], 1))

    def test_fails(self) -> None:
        """A request whose cache fails is dropped; an answer that is not kept was still sent."""
        self.call("echo")
        self.cache.waiting[0].errback(Boom())
        self.assertEqual((self.probe.begun, self.answers), ([], []))
        self.call("echo", "2")
        self.cache.waiting[1].callback(None)
        self.cache.waiting[2].errback(Boom())
        self.assertEqual(len(self.answers), 1)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 2)

    def test_unavailable(self) -> None:
        """A request of which it cannot be known whether it is new is dropped and counted."""
        self.call("echo")
        self.cache.waiting[0].errback(ReplyCacheUnavailable())
        self.assertEqual((self.probe.begun, self.answers), ([], []))
        self.assertEqual(self.adapter.dropped["cache"], 1)
        self.call("echo", "2")
        self.cache.waiting[1].callback(None)
        self.assertEqual(self.probe.begun, ["echo"])

    def test_closed(self) -> None:
        """What is known only after the listener was closed begins nothing, and sends nothing."""
        self.call("echo")
        self.successResultOf(self.adapter.close(0))
        self.cache.waiting[0].callback(None)
        self.assertEqual((self.probe.begun, self.answers), ([], []))
        self.assertEqual(self.clock.getDelayedCalls(), [])


class SizeTests(UDPCase):
    """How large an answer may be."""

    def test_packet(self) -> None:
        """An answer over maxPacketSize is an error."""
        self.call("echo", data={"text": "x" * 1200}, auth=KNOWN)
        type, payload = self.answers[0]
        self.assertEqual((type, payload["error"]), (ERROR, "RESPONSE_TOO_LARGE"))

    def test_unknown(self) -> None:
        """Whoever is unknown gets at most three times what he sent: an error, or silence."""
        request = {"service": "Probe", "method": "countAnything", "id": 1, "data": {"to": 0}}
        short = {"service": "Probe", "method": "whoami", "id": 1}
        for payload in (short, {**short, "id": 2, "x": "y" * 60}, {**request, "id": 3}):
            datagram = self.send(REQUEST, payload)
            sent = sum(len(each) for each, _ in self.transport.sent)
            self.assertLessEqual(sent, 3 * len(datagram))
            self.transport.sent.clear()

    def test_stream(self) -> None:
        """Each item of a stream may be three times the request: more ends it."""
        small = {"service": "Probe", "method": "count", "id": 1, "data": {"to": 40}}
        datagram = self.send(REQUEST, small)
        self.clock.pump([0.001] * 5)
        self.assertEqual(len(self.transport.sent), 41)
        total = sum(len(each) for each, _ in self.transport.sent)
        self.assertGreater(total, 3 * len(datagram))
        self.assertLess(max(len(each) for each, _ in self.transport.sent), 3 * len(datagram))


class HookTests(UDPCase):
    """What configureUDP changes."""

    def test_parse(self) -> None:
        """parseMessage and formatResponse replace the frame, routeMessage says what is called."""
        self.make(
            parseMessage=lambda datagram: datagram.decode().split(" ", 1),
            routeMessage=lambda message: {
                "service": "Probe",
                "method": message[0],
                "request": {"text": message[1]},
                "messageId": "7",
            },
            formatResponse=lambda result, type: f"{type} {json.dumps(result)}".encode(),
        )
        self.adapter.datagramReceived(b"echo hello and more words", SOURCE)
        self.assertEqual(self.transport.sent[0][0], b'response {"text": "hello and more words"}')

    def test_later(self) -> None:
        """They may be asynchronous."""

        async def parse(datagram: bytes) -> Any:
            return {"service": "Probe", "method": "echo", "data": datagram.decode()}

        async def form(result: Any, type: str) -> bytes:
            return result.encode()  # type: ignore[no-any-return]

        self.make(parseMessage=parse, formatResponse=form)
        self.adapter.datagramReceived(b"hello", SOURCE)
        self.assertEqual(self.transport.sent[0][0], b"hello")

    def test_failing(self) -> None:
        """A hook that fails costs its own datagram."""

        def parse(datagram: bytes) -> Any:
            raise Boom

        self.make(parseMessage=parse)
        self.adapter.datagramReceived(b"hello", SOURCE)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)


class LifeTests(UDPCase):
    """Peers come and go."""

    def test_idle(self) -> None:
        """Addresses that are silent are forgotten, those with calls are not."""
        self.adapter._watch.start(30, now=False)
        self.call("echo")
        self.send(REQUEST, {"id": 1, "service": "Probe", "method": "slow"}, ("127.0.0.2", 9999))
        self.clock.pump([31] * 3)
        self.assertEqual(list(self.adapter._peers), [("127.0.0.2", 9999)])
        self.adapter._watch.stop()

    def test_manyAddresses(self) -> None:
        """For a new address an idle one is forgotten, though the first has a call in flight."""
        self.patch(listener, "MAX_PEERS", 3)
        first = ("127.0.0.2", 9999)
        self.send(REQUEST, {"id": 1, "service": "Probe", "method": "slow"}, first)
        for port in range(5):
            self.send(PING, {}, ("127.0.0.3", 5000 + port))
        self.assertEqual(self.adapter.dropped["peers"], 0)
        self.assertEqual(len(self.answers), 5)
        self.assertEqual(len(self.adapter._peers), 3)
        self.assertIn(first, self.adapter._peers)

    def test_manyCalls(self) -> None:
        """While all addresses have calls in flight, datagrams of others are dropped."""
        self.patch(listener, "MAX_PEERS", 2)
        for port in (5000, 5001):
            self.send(REQUEST, {"id": 1, "service": "Probe", "method": "slow"}, ("127.0.0.3", port))
        self.send(PING, {}, SOURCE)
        self.assertEqual((self.transport.sent, self.adapter.dropped["peers"]), ([], 1))

    def test_close(self) -> None:
        """Calls under way end within the grace; no further ones are taken."""
        self.call("slow", data={"seconds": 0.5})
        self.call("slow", "2")
        closing = self.adapter.close(5)
        self.call("echo", "3")
        self.clock.advance(0.5)
        self.assertEqual(
            [payload.get("error", "ok") for _, payload in self.answers], ["UNAVAILABLE", "ok"]
        )
        self.assertNoResult(closing)
        self.clock.advance(5)
        self.successResultOf(closing)
        self.assertEqual(self.probe.cancelled, ["slow"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @given(st.binary(max_size=80))
    def test_garbage(self, datagram: bytes) -> None:
        """Whatever comes, nothing is raised or logged."""
        self.adapter.datagramReceived(datagram, SOURCE)
        self.adapter.datagramReceived(encodeFrame(REQUEST, datagram), SOURCE)
        self.assertEqual(self.flushLoggedErrors(), [])
