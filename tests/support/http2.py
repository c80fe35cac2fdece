"""Drives the core of HTTP/2 by frames, and records what its streams hear."""

from collections.abc import Callable
from typing import Any, NamedTuple

from storagegate.net.http2 import frames
from storagegate.net.http2.core import HTTP2Core
from storagegate.net.http2.hpack import HeaderDecoder, ReceivedFields, encodePairs
from storagegate.net.http2.interfaces import HTTP2Limits
from storagegate.net.http2.stream import Stream

GET = encodePairs(
    [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"a")]
)
POST = encodePairs(
    [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"a")]
)
OK = encodePairs([(b":status", b"200")])
TRAILERS = encodePairs([(b"grpc-status", b"0")])

END = frames.END_STREAM
ENDS = frames.END_STREAM | frames.END_HEADERS

FOREVER = 10**9
"""A budget that never ends."""


class Frame(NamedTuple):
    """A frame that the core has sent."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def number(self) -> int:
        """Return the last four bytes: the code of RST_STREAM, or an increment."""
        return int.from_bytes(self.payload[:4], "big")


def readFrames(wire: bytes) -> list[Frame]:
    """Cut bytes into frames."""
    found = []
    at = 0
    while at < len(wire):
        size = int.from_bytes(wire[at : at + 3], "big")
        kind, flags = wire[at + 3], wire[at + 4]
        stream = int.from_bytes(wire[at + 5 : at + 9], "big")
        assert at + 9 + size <= len(wire), "a part of a frame"
        found.append(Frame(kind, flags, stream, wire[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


def headers(number: int, block: bytes = GET, flags: int = ENDS) -> bytes:
    """Encode a HEADERS frame; a whole request without a body by default."""
    return frames.frame(frames.HEADERS, flags, number, block)


def data(number: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Encode a DATA frame."""
    return frames.frame(frames.DATA, flags, number, body)


class RecordingStream(Stream):
    """
    A stream that keeps what it hears.

    @ivar heard: Events: C{("head", pairs, isEnded)}, C{("data", bytes, isEnded)},
        C{("trailers", pairs)}, C{("lost", reason)} and C{("paused", isPaused)}.
    @ivar takes: Whether received bytes are granted again at once.
    @ivar on: Called with the stream and each event.
    """

    __slots__ = ("heard", "on", "takes")

    def __init__(self, connection: HTTP2Core, number: int) -> None:
        super().__init__(connection, number)
        self.heard: list[tuple[Any, ...]] = []
        self.takes = True
        self.on: Callable[[RecordingStream, tuple[Any, ...]], object] | None = None

    def _hear(self, *event: Any) -> None:
        self.heard.append(event)
        if self.on is not None:
            self.on(self, event)

    def headReceived(self, fields: ReceivedFields, isEnded: bool) -> None:
        """Record the event."""
        isInterim = bool(fields.pairs) and fields.pairs[0][1].startswith(b"1")
        if self.connection.isClient and not isInterim:
            self.isHeadReceived = True
        self._hear("head", fields.pairs, isEnded)

    def dataReceived(self, body: bytes, isEnded: bool) -> None:
        """Record the event."""
        if self.takes:
            self.take(len(body))
        self._hear("data", body, isEnded)

    def trailersReceived(self, fields: ReceivedFields) -> None:
        """Record the event."""
        self._hear("trailers", fields.pairs)

    def lost(self, reason: Exception) -> None:
        """Record the event."""
        self._hear("lost", reason)

    def setPaused(self, isPaused: bool) -> None:
        """Record the event."""
        self._hear("paused", isPaused)

    def names(self) -> list[str]:
        """Return the names of the events."""
        return [event[0] for event in self.heard]

    def body(self) -> bytes:
        """Return the DATA."""
        return b"".join([event[1] for event in self.heard if event[0] == "data"])


class Peer:
    """
    A core, and what it has opened and sent.

    @ivar opened: The streams by number.
    @ivar on: Given to each stream of a client.
    @ivar flushes: How often the core has asked for a flush.
    """

    def __init__(
        self,
        isClient: bool = False,
        isOver: Callable[[int], bool] = lambda handled: False,
        **limits: int,
    ) -> None:
        self.opened: dict[int, RecordingStream] = {}
        self.on: Callable[[RecordingStream, tuple[Any, ...]], object] | None = None
        self.flushes = 0
        self.decoder = HeaderDecoder()
        self.core = HTTP2Core(
            HTTP2Limits(**limits), None if isClient else self.openStream, self._wantFlush, isOver
        )
        self.core.start()

    def openStream(self, core: HTTP2Core, number: int) -> RecordingStream:
        """Open a stream that is recorded."""
        self.opened[number] = stream = RecordingStream(core, number)
        stream.on = self.on
        return stream

    def _wantFlush(self) -> None:
        self.flushes += 1

    def greet(self, settings: dict[int, int] | None = None) -> "Peer":
        """Exchange the prefaces."""
        wire = frames.settings(settings or {}) + frames.frame(frames.SETTINGS, frames.ACK, 0)
        if not self.core.isClient:
            wire = frames.PREFACE + wire
        self.core.receive(wire)
        self.core.takeOutput(FOREVER)
        return self

    def feed(self, *wire: bytes, budget: int = FOREVER) -> list[Frame]:
        """Receive frames; return the frames that were sent."""
        self.core.receive(b"".join(wire))
        return self.sent(budget)

    def sent(self, budget: int = FOREVER) -> list[Frame]:
        """Return the frames that were sent."""
        wire = self.core.takeOutput(budget)
        if wire.startswith(frames.PREFACE):
            wire = wire[len(frames.PREFACE) :]
        return readFrames(wire)

    def resets(self, *wire: bytes) -> list[tuple[int, int]]:
        """Receive frames; return the number and code of the streams that were reset."""
        return [(each.stream, each.number) for each in self.feed(*wire) if each.kind == 3]

    def failure(self, *wire: bytes) -> int | None:
        """Receive frames; return the code of the GOAWAY frame, and C{None} without one."""
        last = [each for each in self.feed(*wire) if each.kind == frames.GOAWAY]
        if not last:
            assert self.core.failure is None
            return None
        assert self.core.failure is not None
        assert not self.core.streams
        return int.from_bytes(last[-1].payload[4:8], "big")
