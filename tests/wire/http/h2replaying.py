"""A client that sends frames as they are, and reads what comes back."""

from attrs import define, field
from hpack import Decoder

from tests.wire.http.h2corpus import (
    CONTINUATION,
    DATA,
    END,
    GOAWAY,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    Outcome,
    blockFrames,
    encode,
    frame,
    pairsOf,
)
from tests.wire.http.support import RawClient

HELLO = PREFACE + frame(SETTINGS, 0, 0)
"""What a client sends first."""


@define
class Received:
    """
    What came on a stream.

    @ivar heads: The fields of each head, without those of C{100 Continue}.
    @ivar ends: How often its end was sent.
    @ivar resets: The codes of RST_STREAM.
    @ivar order: The types of its frames.
    """

    heads: list[dict[str, str]] = field(factory=list)
    body: bytes = b""
    ends: int = 0
    resets: list[int] = field(factory=list)
    order: list[int] = field(factory=list)

    @property
    def isOver(self) -> bool:
        """Return whether nothing more is to come."""
        return bool(self.ends or self.resets)

    def outcome(self) -> Outcome | None:
        """Return how the stream ended; C{None} if it did not, or in more than one way."""
        if not self.heads and self.order == [RESET]:
            return Outcome("reset", self.resets[0])
        if len(self.heads) == self.ends == 1:
            return Outcome("status", int(self.heads[0][":status"]))
        return None


@define
class Reading:
    """
    All that came on a connection.

    @ivar streams: What came, by the number of the stream.
    @ivar goAways: The codes of GOAWAY.
    """

    streams: dict[int, Received] = field(factory=dict)
    goAways: list[int] = field(factory=list)

    def stream(self, number: int) -> Received:
        """Return what came on a stream, which may be nothing."""
        return self.streams.get(number, Received())


def read(wire: bytes) -> Reading:
    """Read frames of a server; one at the end may be incomplete."""
    reading, decoder, at = Reading(), Decoder(), 0
    while len(wire) - at >= 9:
        size = int.from_bytes(wire[at : at + 3], "big")
        kind, flags = wire[at + 3], wire[at + 4]
        number = int.from_bytes(wire[at + 5 : at + 9], "big")
        payload = wire[at + 9 : at + 9 + size]
        at += 9 + size
        if at > len(wire):
            break
        assert kind != CONTINUATION, "the heads of the tests fit into one frame"
        if kind == GOAWAY:
            reading.goAways.append(int.from_bytes(payload[4:8], "big"))
        if number and kind in (DATA, HEADERS, RESET):
            stream = reading.streams.setdefault(number, Received())
            if kind == RESET:
                stream.order.append(kind)
                stream.resets.append(int.from_bytes(payload, "big"))
                continue
            if kind == HEADERS:
                fields = dict(decoder.decode(payload))
                if fields[":status"] == "100":
                    continue
                stream.heads.append(fields)
            else:
                stream.body += payload
            stream.order.append(kind)
            stream.ends += flags & END
    return reading


def request(path: bytes, stream: int) -> bytes:
    """Encode a request that is right."""
    return blockFrames(encode(pairsOf(path=path)), stream, END)


async def answered(client: RawClient, *streams: int) -> Reading:
    """Wait for the end of streams, or of the connection."""

    def isEnough(received: bytearray) -> bool:
        reading = read(bytes(received))
        return all(reading.stream(number).isOver for number in streams)

    try:
        return read(await client.until(isEnough))
    except EOFError as error:
        return read(error.args[0])


def isUnended(wire: bytes) -> bool:
    """Say whether frames begin with the head of a request that has a body."""
    return wire[3] == HEADERS and not wire[4] & END
