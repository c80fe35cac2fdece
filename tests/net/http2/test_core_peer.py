"""The core of HTTP/2 against h2, an independent implementation, in both roles."""

from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from h2.windows import WindowManager
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.core import HTTP2Core
from tests.support.http2 import FOREVER, OK, POST, TRAILERS, Peer, RecordingStream, readFrames
from tests.support.selection import rounds

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]
WINDOW = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE

# An action, the stream that it is applied to, and a size.
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "open",
                "open",
                "sendTheirs",
                "sendTheirs",
                "sendOurs",
                "sendOurs",
                "move",
                "move",
                "ack",
                "take",
                "endTheirs",
                "endOurs",
                "trailersTheirs",
                "trailersOurs",
                "resetTheirs",
                "resetOurs",
                "window",
                "grant",
                "ping",
            ]
        ),
        st.integers(0, 5),
        st.sampled_from([0, 1, 99, 5000, 16_384, 40_000]),
    ),
    max_size=60,
)


class Exchange:
    """
    A connection between the core and h2; bytes are on their way until L{move}.

    h2 raises an error if the core breaks a window, or sends a frame in a wrong state.

    @ivar sentOurs: The DATA of each stream that was queued in the core.
    @ivar gotTheirs: The part that has reached h2.
    @ivar sentTheirs: The DATA of each stream that h2 has sent.
    """

    def __init__(self, isClient: bool, window: int, split: int, budget: int) -> None:
        self.isClient = isClient
        self.split = split
        self.budget = budget
        self.ours = Peer(isClient)
        self.theirs: Any = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=not isClient)
        )
        self.theirs.initiate_connection()
        self.theirs.update_settings({WINDOW: window})
        self.numbers: list[int] = []
        self.sentOurs: dict[int, bytes] = {}
        self.gotTheirs: dict[int, bytes] = {}
        self.sentTheirs: dict[int, bytes] = {}
        self.unacked: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.endedTheirs: set[int] = set()
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.pings = self.pongs = 0
        self.move()

    def move(self) -> None:
        """Deliver what is on its way, in pieces; then what was sent in reaction."""
        wire = self.ours.core.takeOutput(self.budget)
        for at in range(0, len(wire), self.split):
            for event in self.theirs.receive_data(wire[at : at + self.split]):
                self.handle(event)
        wire = self.theirs.data_to_send()
        for at in range(0, len(wire), self.split):
            self.ours.core.receive(wire[at : at + self.split])
        assert self.ours.core.failure is None, self.ours.core.failure

    def handle(self, event: Any) -> None:
        """Note what h2 has received."""
        if isinstance(event, h2.events.DataReceived):
            number = event.stream_id
            self.gotTheirs[number] = self.gotTheirs.get(number, b"") + event.data
            size = event.flow_controlled_length
            self.unacked[number] = self.unacked.get(number, 0) + size
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.reset.add(event.stream_id)
        elif isinstance(event, h2.events.RequestReceived):
            self.theirs.send_headers(event.stream_id, [(":status", "200")])
        elif isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1
        else:
            assert not isinstance(event, h2.events.ConnectionTerminated), event

    def open(self) -> None:
        """Open a stream, in both directions."""
        if self.isClient:
            stream = self.ours.core.open(self.ours.openStream)
            stream.sendHead(POST)
            number = stream.id
            self.move()
        else:
            number = self.theirs.get_next_available_stream_id()
            self.theirs.send_headers(number, REQUEST)
            self.move()
            self.ours.opened[number].sendHead(OK)
        self.ours.opened[number].takes = False
        self.numbers.append(number)
        self.move()

    def act(self, action: str, which: int, size: int) -> None:
        """Do one thing, if it is allowed in the state of h2."""
        if action == "open":
            if len(self.ours.core.streams) < 50:
                self.open()
        elif action == "move":
            self.move()
        elif action == "window":
            self.theirs.update_settings({WINDOW: size})
        elif action == "ping":
            self.ours.core.ping(self.pong)
            self.theirs.ping(bytes(8))
            self.pings += 1
        elif self.numbers:
            number = self.numbers[which % len(self.numbers)]
            if action.endswith("Theirs") and number in self.endedTheirs | self.reset:
                # h2 would take its stream for closed.
                return
            try:
                self.actOn(action, number, self.ours.opened[number], size)
            except (h2.exceptions.ProtocolError, KeyError):
                # h2 refuses to send, as its stream is over or has no window.
                pass

    def pong(self) -> None:
        """Count a PING of ours that came back."""
        self.pongs += 1

    def actOn(self, action: str, number: int, stream: RecordingStream, size: int) -> None:
        """Do something on a stream."""
        if action == "sendOurs":
            if not (stream.isLocalClosed or stream.isEnding):
                body = bytes([size % 251]) * size
                stream.sendData(body)
                self.sentOurs[number] = self.sentOurs.get(number, b"") + body
        elif action == "sendTheirs":
            window = self.theirs.local_flow_control_window(number)
            body = bytes([size % 241]) * min(size, window, 16_000)
            isPadded = size % 2 and len(body) + 20 <= window
            self.theirs.send_data(number, body, pad_length=19 if isPadded else None)
            self.sentTheirs[number] = self.sentTheirs.get(number, b"") + body
        elif action == "ack":
            self.theirs.acknowledge_received_data(self.unacked.pop(number, 0), number)
        elif action == "grant":
            self.theirs.increment_flow_control_window(size + 1, number)
            self.theirs.increment_flow_control_window(size + 1)
        elif action == "take":
            received = len(stream.body())
            stream.take(received - self.taken.get(number, 0))
            self.taken[number] = received
        elif action == "endOurs":
            stream.sendData(b"", True)
        elif action == "trailersOurs":
            stream.sendTrailers(TRAILERS)
        elif action == "endTheirs":
            self.theirs.end_stream(number)
            self.endedTheirs.add(number)
        elif action == "trailersTheirs":
            self.theirs.send_headers(number, [("a", "b")], end_stream=True)
            self.endedTheirs.add(number)
        elif action == "resetTheirs":
            self.theirs.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
            self.reset.add(number)
        elif action == "resetOurs":
            stream.reset()

    def finish(self) -> None:
        """End everything, and check that all of it has arrived, and nothing is left."""
        core: HTTP2Core = self.ours.core
        self.budget = 10**9
        for number in self.numbers:
            self.act("endTheirs", self.numbers.index(number), 0)
            self.act("endOurs", self.numbers.index(number), 0)
        # Room for everything: h2 does not grant what it owed before its window became smaller.
        self.theirs.update_settings({WINDOW: 2**24})
        for _ in range(200):
            self.move()
            for at, number in enumerate(self.numbers):
                self.act("take", at, 0)
                if self.unacked.get(number):
                    self.act("ack", at, 0)
            if not (core.streams or core.hasOutput):
                break
        for _ in range(3):
            self.move()
        for number in self.numbers:
            stream = self.ours.opened[number]
            got, sent = self.gotTheirs.get(number, b""), self.sentOurs.get(number, b"")
            received, theirs = stream.body(), self.sentTheirs.get(number, b"")
            names = stream.names()
            assert sent.startswith(got)
            assert theirs.startswith(received)
            assert names.count("lost") <= 1
            if number not in self.reset and number in self.ended:
                assert got == sent
                assert "lost" not in names or self.isClient
            ends = [event for event in stream.heard if event[0] == "trailers" or event[-1] is True]
            if [event for event in ends if event[0] != "paused"]:
                assert received == theirs
            assert not stream.queued and not stream.queue
        assert not core.streams
        assert self.pongs == 2 * self.pings
        assert core.takeOutput(10**9) == b""
        manager = self.theirs._inbound_flow_control_window_manager
        assert core.sendWindow == manager.current_window_size
        window = core.limits.connectionWindow
        assert window / 2 < self.theirs.outbound_flow_control_window <= window


class PeerTests(SynchronousTestCase):
    """Random exchanges, in all interleavings, cut anywhere."""

    def setUp(self) -> None:
        """Let h2 accept an empty frame when its window is negative (RFC 9113 section 6.9.1)."""
        consumed = WindowManager.window_consumed

        def consume(manager: WindowManager, size: int) -> None:
            if size:
                consumed(manager, size)

        self.patch(WindowManager, "window_consumed", consume)

    def check(self, isClient: bool, window: int, split: int, budget: int, actions: Any) -> None:
        exchange = Exchange(isClient, window, split, budget)
        for action in actions:
            exchange.act(*action)
        exchange.finish()

    @settings(max_examples=rounds(40, 400), deadline=None)
    @given(
        st.sampled_from([0, 1, 100, 65_535, 2**20]),
        st.sampled_from([1, 8, 9, 1000, 2**20]),
        st.sampled_from([100, 16_384, 10**9]),
        ACTIONS,
    )
    def test_server(self, window: int, split: int, budget: int, actions: Any) -> None:
        """A client sends and gets what it should, and nothing is left."""
        self.check(False, window, split, budget, actions)

    @settings(max_examples=rounds(40, 400), deadline=None)
    @given(
        st.sampled_from([0, 1, 100, 65_535, 2**20]),
        st.sampled_from([1, 8, 9, 1000, 2**20]),
        st.sampled_from([100, 16_384, 10**9]),
        ACTIONS,
    )
    def test_client(self, window: int, split: int, budget: int, actions: Any) -> None:
        """A server sends and gets what it should, and nothing is left."""
        self.check(True, window, split, budget, actions)


def continued(wire: bytes) -> bytes:
    """Cut each header block in two, after its first byte."""
    found = b""
    for kind, flags, number, payload in readFrames(wire):
        if kind == frames.HEADERS and not flags & frames.PADDED:
            first = 6 if flags & 0x20 else 1
            found += frames.frame(kind, flags & ~frames.END_HEADERS, number, payload[:first])
            kind, flags, payload = frames.CONTINUATION, frames.END_HEADERS, payload[first:]
        found += frames.frame(kind, flags, number, payload)
    return found


class SplitTests(SynchronousTestCase):
    """One exchange with h2, cut at every byte."""

    def clientWire(self) -> bytes:
        """Return what a client sends: requests of all kinds, frame by frame."""
        client: Any = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        client.ping(b"12345678")
        client.send_headers(1, REQUEST, end_stream=True)
        client.send_headers(3, REQUEST, priority_weight=200)
        client.send_data(3, b"body", pad_length=7)
        client.send_data(3, b"")
        client.send_headers(3, [("x-trailer", "a" * 40)], end_stream=True)
        client.send_headers(5, REQUEST)
        client.update_settings({WINDOW: 1})
        client.increment_flow_control_window(1000)
        client.increment_flow_control_window(1, 5)
        client.send_data(5, b"c" * 50, end_stream=True)
        client.send_headers(7, REQUEST)
        client.reset_stream(7, h2.errors.ErrorCodes.CANCEL)
        client.close_connection(last_stream_id=0)
        wire = bytes(client.data_to_send())
        return wire[:24] + continued(wire[24:])

    def serverWire(self) -> bytes:
        """Return what a server sends in answer to two requests."""
        ours = Peer(True)
        for _ in range(2):
            ours.core.open(ours.openStream).sendHead(POST)
        server: Any = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        server.initiate_connection()
        server.receive_data(ours.core.takeOutput(FOREVER))
        server.send_headers(1, [(":status", "103"), ("link", "</a>")])
        server.send_headers(1, [(":status", "200"), ("x-field", "b" * 20)])
        server.send_data(1, b"body", pad_length=3)
        server.send_headers(1, [("grpc-status", "0")], end_stream=True)
        server.ping(bytes(8))
        server.send_headers(3, [(":status", "200")])
        server.reset_stream(3, h2.errors.ErrorCodes.INTERNAL_ERROR)
        server.close_connection(last_stream_id=3)
        return continued(bytes(server.data_to_send()))

    def outcome(self, isClient: bool, *pieces: bytes) -> Any:
        """Receive pieces; return what the streams have heard, and what was sent."""
        peer = Peer(isClient)
        if isClient:
            for _ in range(2):
                peer.core.open(peer.openStream).sendHead(POST)
        for piece in pieces:
            peer.core.receive(piece)
        heard = {
            number: [event if event[0] != "lost" else str(event[1]) for event in stream.heard]
            for number, stream in peer.opened.items()
        }
        return peer.core.failure, heard, sorted(peer.sent())

    def check(self, isClient: bool, wire: bytes) -> None:
        """Cut an exchange in two at each byte, and into bytes."""
        whole = self.outcome(isClient, wire)
        self.assertIsNone(whole[0])
        for cut in range(1, len(wire)):
            self.assertEqual(self.outcome(isClient, wire[:cut], wire[cut:]), whole, cut)
        octets = [wire[index : index + 1] for index in range(len(wire))]
        self.assertEqual(self.outcome(isClient, *octets), whole)

    def test_server(self) -> None:
        """The requests of a client arrive as they do in one piece."""
        self.check(False, self.clientWire())

    def test_client(self) -> None:
        """So do the responses of a server."""
        self.check(True, self.serverWire())
