"""What a supervisor and its workers tell each other, without processes."""

import socket
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net import ipc
from storagegate.net.ipc import (
    MAX_FRAME,
    MAX_WAITING,
    ControlProtocol,
    WorkerIPC,
    WorkerSetup,
    encode,
    readBlocking,
    readSetup,
    setupMessage,
)
from tests.support.log import LogCase

SETUP = WorkerSetup(1, 2, {"s3": "inherited:4"}, {"rates": 5}, {"values": {"workers": 2}})


class ControlCase(LogCase):
    """A side whose other side is a test."""

    def setUp(self) -> None:
        """Connect it."""
        super().setUp()
        self.received: list[Any] = []
        self.lost = 0
        self.transport = StringTransport()
        self.protocol = ControlProtocol(self.received.append, self.losing)
        self.protocol.makeConnection(self.transport)

    def losing(self) -> None:
        """Count."""
        self.lost += 1


class FrameTests(ControlCase):
    """Frames."""

    @given(st.lists(st.dictionaries(st.text(), st.integers() | st.text())), st.integers(1, 9))
    def test_pieces(self, messages: list[dict[str, Any]], size: int) -> None:
        """Messages are what they were, however they are cut."""
        self.received.clear()
        wire = b"".join(map(encode, messages))
        for start in range(0, len(wire), size):
            self.protocol.dataReceived(wire[start : start + size])
        self.assertEqual(self.received, messages)

    def test_nonsense(self) -> None:
        """What is no JSON, or too long, ends the connection and nothing else."""
        self.protocol.dataReceived(struct.pack("!I", 3) + b"{]}")
        self.assertTrue(self.transport.disconnecting)
        self.assertEqual(self.received, [])
        self.setUp()
        self.protocol.dataReceived(struct.pack("!I", ipc.MAX_FRAME + 1))
        self.assertTrue(self.transport.disconnecting)

    def test_setup(self) -> None:
        """A worker reads its setup as it was written, before there is a reactor."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(encode(setupMessage(SETUP)) + encode({"kind": "ping"}))
            first = readBlocking(theirs)
            assert first is not None
            self.assertEqual(readSetup(first), SETUP)
            self.assertEqual(readBlocking(theirs), {"kind": "ping"})
            self.assertRaises(ValueError, readSetup, {"kind": "ping"})
            ours.close()
            self.assertIsNone(readBlocking(theirs))


class WaitingTests(ControlCase):
    """The other side does not read."""

    def test_order(self) -> None:
        """What is said meanwhile comes later, in order."""
        self.protocol.send({"kind": "a"})
        self.protocol.pauseProducing()
        self.protocol.send({"kind": "b"})
        self.protocol.send({"kind": "c"})
        self.assertEqual(self.transport.value(), encode({"kind": "a"}))
        self.protocol.resumeProducing()
        wire = b"".join(encode({"kind": kind}) for kind in "abc")
        self.assertEqual(self.transport.value(), wire)

    def test_bound(self) -> None:
        """No more waits than there is room for; that something is lost is said once."""
        self.protocol.pauseProducing()
        piece = "x" * (1 << 20)
        for _ in range(2 * MAX_WAITING // len(piece)):
            self.protocol.send({"piece": piece})
        self.protocol.resumeProducing()
        self.assertLessEqual(len(self.transport.value()), MAX_WAITING)
        self.assertGreater(len(self.transport.value()), MAX_WAITING - 2 * len(piece))
        lost = [line for line in self.logged() if "does not read" in line]
        self.assertEqual(len(lost), 1)

    def test_long(self) -> None:
        """A message that would end the connection is refused, and the next one is sent."""
        limited = ControlProtocol(self.received.append, self.losing, 100)
        transport = StringTransport()
        limited.makeConnection(transport)
        self.assertRaises(ValueError, limited.send, {"kind": "x" * 100})
        self.assertEqual(transport.value(), b"")
        limited.send({"kind": "a"})
        self.assertEqual(transport.value(), encode({"kind": "a"}))

    def test_gone(self) -> None:
        """What is said to a side that is gone is nobody's."""
        ControlProtocol(self.received.append, self.losing).send({"kind": "a"})
        self.protocol.connectionLost()
        self.assertEqual(self.lost, 1)


class LinkTests(SynchronousTestCase):
    """What a worker makes of it."""

    def setUp(self) -> None:
        """Make a link."""
        self.link = WorkerIPC(SETUP)
        self.transport = StringTransport()
        self.link.control.makeConnection(self.transport)
        self.said: list[Any] = []
        self.link.subscribe("news", self.said.append)

    def tell(self, **message: Any) -> None:
        """Tell the worker something."""
        self.link.control.dataReceived(encode(message))

    def test_failing(self) -> None:
        """A subscriber that fails is logged, and the others hear it all the same."""

        def fail(payload: Any) -> None:
            raise ValueError(payload)

        self.link.subscribe("news", fail)
        self.link.subscribe("news", self.said.append)
        self.tell(kind="say", topic="news", payload=1)
        self.assertEqual(self.said, [1, 1])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_silent(self) -> None:
        """A question that nobody answers here gets no answer; one that fails neither."""
        self.tell(kind="ask", id=1, topic="other", payload=None)
        self.link.answer("broken", lambda payload: 1 // 0)
        self.tell(kind="ask", id=2, topic="broken", payload=None)
        self.assertEqual(self.transport.value(), b"")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_long(self) -> None:
        """Payloads that do not fit into a message are refused, and the worker goes on."""
        text = "x" * MAX_FRAME
        for say in (self.link.broadcast, self.link.ask, self.link.askSupervisor):
            self.assertRaises(ValueError, say, "news", text)
        self.link.answer("long", lambda payload: text)
        self.tell(kind="ask", id=1, topic="long", payload=None)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        self.assertEqual(self.transport.value(), b"")
        self.link.broadcast("news", text[:-2048])
        self.assertEqual(len(self.transport.value()) // MAX_FRAME, 0)
        self.assertIn(b'"topic":"news"', self.transport.value()[:100])

    def test_lost(self) -> None:
        """When the supervisor is gone, questions are answered by nobody, and the worker stops."""
        stops: list[bool] = []
        self.link.stopped = lambda: stops.append(True)
        asked = self.link.ask("name")
        self.link.control.connectionLost()
        self.assertEqual(self.successResultOf(asked), [])
        self.assertEqual(stops, [True])

    def test_late(self) -> None:
        """Answers to a question that was given up are passed over."""
        self.tell(kind="replies", id=99, values=[])
        asked = self.link.ask("name")
        asked.cancel()
        self.failureResultOf(asked)
        self.tell(kind="replies", id=0, values=[1])
