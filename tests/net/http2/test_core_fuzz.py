"""The core of HTTP/2 with any frames, in any order and any pieces."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import frames
from storagegate.net.http2.frames import frame
from tests.support.http2 import FOREVER, GET, OK, POST, TRAILERS, Peer, readFrames
from tests.support.selection import rounds

NUMBERS = st.sampled_from([0, 1, 1, 1, 2, 3, 3, 5, 7, 2**31 - 1])
PAYLOADS = st.one_of(
    st.sampled_from(
        [
            b"",
            GET,
            POST,
            TRAILERS,
            POST + b"\x40\x01a\x01b",
            bytes(4),
            bytes(8),
            b"\x00\x00\x00\x01",
            b"\x7f\xff\xff\xff",
            b"\x00\x04\x00\x00\x00\x00",
            b"\x00\x04\x7f\xff\xff\xff",
            b"\x00\x04\x00\x00\x00\x05\x00\x04\x00\x01\x00\x00",
            b"\x00\x01\x00\x00\x00\x00",
            b"\x00\x00\x00\x05u=1, i",
            b"\x02ab",
            b"\x03" + GET + b"abc",
        ]
    ),
    st.binary(max_size=20),
)
ANY_FRAME = st.builds(
    frame,
    st.sampled_from([*range(10), 0, 0, 1, 1, 1, 8, 16, 99]),
    st.sampled_from([0, 1, 4, 5, 5, 5, 8, 0x0D, 0x20, 0x25, 255]),
    NUMBERS,
    PAYLOADS,
)
# What the streams do, by the number of their events: nothing, or one of these.
REACTIONS: list[Any] = [
    lambda stream: stream.sendWhole(OK, b"body"),
    lambda stream: stream.sendHead(OK),
    lambda stream: stream.sendData(b"x" * 70_000),
    lambda stream: stream.sendTrailers(TRAILERS),
    lambda stream: stream.reset(),
    lambda stream: stream.connection.goAway(),
    lambda stream: stream.connection.ping(lambda: None),
    lambda stream: stream.setWindow(100_000),
    lambda stream: setattr(stream, "expected", 3),
]


class FuzzTests(SynchronousTestCase):
    """No input raises an error, and its pieces make no difference."""

    def exchange(self, wires: list[bytes], reactions: list[int], isClient: bool) -> Any:
        peer = Peer(isClient)
        count = 0

        def on(stream: Any, event: Any) -> None:
            nonlocal count
            count += 1
            choice = reactions[count % len(reactions)]
            if event[0] in ("head", "data", "trailers") and choice < len(REACTIONS):
                REACTIONS[choice](stream)

        peer.on = on
        if isClient:
            for _ in range(3):
                stream = peer.core.open(peer.openStream)
                stream.sendHead(GET, stream.id != 3)
        for wire in wires:
            peer.core.receive(wire)
        sent = b""
        for _ in range(1000):
            more = peer.core.takeOutput(FOREVER)
            sent += more
            if not more:
                break
        # Its frames are whole.
        readFrames(sent.removeprefix(frames.PREFACE))
        failure = peer.core.failure
        peer.core.lose(Exception("the transport is lost"))
        self.assertEqual(peer.core.streams, {})
        self.assertFalse(any(peer.core._output._ready))
        heard = {}
        for number, stream in peer.opened.items():
            names = stream.names()
            self.assertLessEqual(names.count("lost"), 1)
            if "lost" in names:
                self.assertEqual(names[-1], "lost")
            ends = [event for event in stream.heard if event[0] == "trailers" or event[-1] is True]
            ends = [event for event in ends if event[0] != "paused"]
            self.assertLessEqual(len(ends), 1)
            heard[number] = [event for event in stream.heard if event[0] != "paused"]
            self.assertTrue(stream.isLocalClosed and stream.isRemoteClosed)
            self.assertFalse(stream.queue)
        return str(failure), sent, repr(heard)

    @settings(max_examples=rounds(150, 3000), deadline=None)
    @given(
        st.lists(ANY_FRAME, max_size=25),
        st.lists(st.integers(0, 14), min_size=1, max_size=8),
        st.booleans(),
        st.integers(1, 30),
    )
    def test_frames(
        self, wires: list[bytes], reactions: list[int], isClient: bool, size: int
    ) -> None:
        """Frames one by one, and cut into pieces."""
        start = frames.settings({}) if isClient else frames.PREFACE + frames.settings({})
        wire = start + b"".join(wires)
        whole = self.exchange([wire], reactions, isClient)
        pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
        self.assertEqual(self.exchange(pieces, reactions, isClient), whole)

    @settings(max_examples=rounds(100, 1000), deadline=None)
    @given(st.binary(max_size=200), st.booleans(), st.booleans())
    def test_bytes(self, wire: bytes, isClient: bool, isGreeted: bool) -> None:
        """Any bytes."""
        start = frames.settings({}) if isClient else frames.PREFACE + frames.settings({})
        self.exchange([start + wire if isGreeted else wire], [99], isClient)
