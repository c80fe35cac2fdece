"""
What a request over HTTP/2 may not carry behind a proxy, or through one.

Its fields are binary, so a line end in one of them is a second field, or a second request, for a
server of HTTP/1.1 to which they are forwarded. The library C{h11} is that server here.
"""

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

import h11
from twisted.internet.interfaces import IListeningPort

from storagegate.net.http.message import ChannelRequest
from tests.support.selection import rounds
from tests.wire.http.h2corpus import (
    DATA,
    END,
    MALFORMED,
    Outcome,
    Pair,
    blockFrames,
    encode,
    frame,
    pairsOf,
    status,
)
from tests.wire.http.h2replaying import HELLO, Reading, answered, request
from tests.wire.http.replaying import SMUGGLED
from tests.wire.http.support import ServedCase

BAD = (
    b"\r",
    b"\n",
    b"\0",
    b"\r\n",
    b"\n\n",
    b"\r\n\r\n" + SMUGGLED,
    b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
)
"""What ends a line, or a string, for some parser."""

_FRAMING = {b"transfer-encoding", b"connection", b"keep-alive", b"proxy-connection", b"upgrade"}


class Message(NamedTuple):
    """A request to send: its head, its body and its trailers."""

    head: list[Pair]
    body: bytes = b""
    trailers: list[Pair] = []


POSITIONS: dict[str, Callable[[bytes], Message]] = {
    "method": lambda bad: Message(pairsOf(method=b"GET" + bad + b"X")),
    "scheme": lambda bad: Message(pairsOf(scheme=b"http" + bad)),
    "path": lambda bad: Message(pairsOf(path=b"/a" + bad + b"b")),
    "query": lambda bad: Message(pairsOf(path=b"/?a" + bad)),
    "authority": lambda bad: Message(pairsOf(authority=b"x" + bad + b"y")),
    "port": lambda bad: Message(pairsOf(authority=b"x:1" + bad)),
    "host": lambda bad: Message(pairsOf((b"host", b"x" + bad), authority=None)),
    "name": lambda bad: Message(pairsOf((b"a" + bad + b"b", b"c"))),
    "start of a name": lambda bad: Message(pairsOf((bad + b"a", b"c"))),
    "end of a name": lambda bad: Message(pairsOf((b"a" + bad, b"c"))),
    "value": lambda bad: Message(pairsOf((b"a", b"b" + bad + b"c"))),
    "start of a value": lambda bad: Message(pairsOf((b"a", bad + b"c"))),
    "end of a value": lambda bad: Message(pairsOf((b"a", b"b" + bad))),
    "long value": lambda bad: Message(pairsOf((b"a", b"b" * 300 + bad))),
    "cookie": lambda bad: Message(pairsOf((b"cookie", b"a=1"), (b"cookie", b"b" + bad))),
    "secret": lambda bad: Message(pairsOf((b"authorization", b"a" + bad))),
    "length": lambda bad: Message(pairsOf((b"content-length", b"1" + bad)), b"a"),
    "expectation": lambda bad: Message(pairsOf((b"expect", b"100-continue" + bad))),
    "name of a trailer": lambda bad: Message(pairsOf(), b"a", [(b"a" + bad, b"b")]),
    "value of a trailer": lambda bad: Message(pairsOf(), b"a", [(b"a", b"b" + bad)]),
}
"""Where it may stand."""


def _integer(value: int, bits: int) -> bytes:
    """Encode an integer (RFC 7541 section 5.1), without the bits before it."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value -= most
    encoded = bytes([most])
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _literals(first: int) -> Callable[[Iterable[Pair]], bytes]:
    """Return an encoder that writes names and values as they are."""

    def encoder(pairs: Iterable[Pair]) -> bytes:
        return b"".join(
            bytes([first]) + b"".join([_integer(len(each), 7) + each for each in pair])
            for pair in pairs
        )

    return encoder


# Their blocks are the same each time they come; the first ones also fill the server's table, and
# the library's refer to its entries.
ENCODERS: dict[str, Callable[[Iterable[Pair]], bytes]] = {
    "library": encode,
    "library without Huffman": lambda pairs: encode(pairs, huffman=False),
    "indexed": _literals(0x40),
    "not indexed": _literals(0x00),
    "never indexed": _literals(0x10),
}
"""Ways to write a header block."""


def wireOf(
    message: Message, stream: int, encoder: Callable[[Iterable[Pair]], bytes], size: int = 16_384
) -> bytes:
    """
    Encode a request.

    @param size: Bytes of a frame of the header blocks.
    """
    head, body, trailers = message
    isBare = not (body or trailers)
    wire = blockFrames(encoder(head), stream, END if isBare else 0, size)
    if not isBare:
        wire += frame(DATA, 0 if trailers else END, stream, body)
    if trailers:
        wire += blockFrames(encoder(trailers), stream, END, size)
    return wire


class Served(NamedTuple):
    """What a handler gets."""

    method: bytes
    uri: bytes
    headers: dict[bytes, bytes]
    headerList: list[Pair]
    body: bytes
    trailers: tuple[Pair, ...]


class SmugglingCase(ServedCase):
    """A listener that records all that reaches its handler."""

    def setUp(self) -> None:
        """Have no requests yet."""
        super().setUp()
        self.served: list[Served] = []

    async def handle(self, request: ChannelRequest) -> None:
        """Record a request."""
        body = await request.body.read(1 << 20)
        self.served.append(
            Served(
                request.method,
                request.uri,
                dict(request.headers),
                list(request.headerList),
                body,
                request.body.trailers,
            )
        )
        request.respond(200, [], b"served")

    async def ask(self, port: IListeningPort, *requests: bytes) -> list[Outcome | None]:
        """
        Send requests on one connection, and a good one at last.

        @param requests: Each with its number of a stream, in order.
        @return: How each ended.
        """
        streams = [1 + 2 * index for index in range(len(requests) + 1)]
        client = await self.connect(port)
        client.write(HELLO + b"".join(requests) + request(b"/good", streams[-1]))
        reading: Reading = await answered(client, *streams)
        self.assertEqual(reading.goAways, [])
        client.drop()
        await client.closed
        outcomes = [reading.stream(number).outcome() for number in streams]
        self.assertEqual(outcomes.pop(), status(200))
        self.assertEqual(self.served.pop().uri, b"/good")
        return outcomes


class LineTests(SmugglingCase):
    """Line ends and NUL at every place of a request."""

    async def replay(self, encoder: Callable[[Iterable[Pair]], bytes], size: int = 16_384) -> None:
        """Send everything bad at every place, three times, as the server keeps what comes again."""
        port = await self.serve(self.handle)
        for position, make in POSITIONS.items():
            messages = [make(bad) for bad in BAD for _ in range(3)]
            wires = [
                wireOf(message, 1 + 2 * index, encoder, size)
                for index, message in enumerate(messages)
            ]
            outcomes = await self.ask(port, *wires)
            self.assertEqual(set(outcomes), {MALFORMED}, position)
        self.assertEqual(self.served, [])

    async def test_library(self) -> None:
        """With Huffman codes and the table of the library."""
        await self.replay(ENCODERS["library"])

    async def test_plain(self) -> None:
        """As plain octets, with the table of the library."""
        await self.replay(ENCODERS["library without Huffman"])

    async def test_literals(self) -> None:
        """As literals of the three kinds."""
        for name in ("indexed", "not indexed", "never indexed"):
            await self.replay(ENCODERS[name])

    async def test_continued(self) -> None:
        """In frames of a few bytes, which cut the line ends."""
        await self.replay(ENCODERS["not indexed"], 20)

    async def test_byIndex(self) -> None:
        """By an entry of the table, which a request that was refused has made."""
        port = await self.serve(self.handle)
        for bad in BAD:
            first = _literals(0x40)([*pairsOf(), (b"a", b"b" + bad)])
            again = encode(pairsOf()[:3]) + _literals(0x00)(pairsOf()[3:]) + b"\xbe"
            name = encode(pairsOf()[:3]) + _literals(0x00)(pairsOf()[3:]) + b"\x0f\x2f\x01c"
            wires = [blockFrames(block, 1 + 2 * at, END) for at, block in enumerate([first, again])]
            # The entry's name is right, and may be used with a value that is.
            wires += [blockFrames(again, 5, END), blockFrames(name, 7, END)]
            outcomes = await self.ask(port, *wires)
            self.assertEqual(outcomes, [MALFORMED] * 3 + [status(200)])
            self.assertEqual(self.served.pop().headers, {b"host": b"x", b"a": b"c"})
        self.assertEqual(self.served, [])


# Values that parsers read in different ways; each group holds some that are right.
_METHODS = (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"get", b"GET /2", b"G\n")
_PATHS = (b"/", b"/a?b", b"//y/a", b"/%0d%0a", b"/\xe5\x98\x8a", b"/a\r\nb", b"http://y/", b"*")
_HOSTS = (b"x", b"x", b"X", b"x:80", b"y", b"x@y", b"[::1]", b"x,y", b"x\0", None)
_NAMES = (
    b"host content-length transfer-encoding connection te trailer cookie expect upgrade a b-c "
    b"content_length a.b A x-forwarded-host range user-agent transfer-encoding\0 b:c a\x7f"
).split(b" ")
_NAMES += [b"a ", b"b\n"]
_ATOMS = b"a 5 0 x chunked trailers 100-continue a=1 bytes=0- : , ; \0 \x80\xff".split(b" ")
_ATOMS += [b"\r\n", b"\n", b"\t", b" ", b"\xe5\x98\x8a"]


def randomMessage(chance: random.Random, number: int) -> Message:
    """Make a request of odd parts, most of which are right."""
    fields = [(b"x-number", b"%d" % number)]
    body = chance.choice((b"", b"", b"hello", b"0\r\n\r\n" + SMUGGLED, b"5\r\nhello\r\n0\r\n\r\n"))
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        value = b"".join(chance.choices(_ATOMS, k=chance.choice((0, 1, 1, 1, 2))))
        fields.append((chance.choice(_NAMES), value))
    if chance.random() < 0.4:
        length = len(body) + chance.choice((0, 0, 0, 1, -1))
        fields.append((b"content-length", b"%d" % length))
    pseudo = {
        "method": chance.choice(_METHODS) if chance.random() < 0.5 else b"GET",
        "path": chance.choice(_PATHS) if chance.random() < 0.5 else b"/",
        "authority": chance.choice(_HOSTS) if chance.random() < 0.5 else b"x",
    }
    trailers = []
    if body and chance.random() < 0.2:
        trailers = [(chance.choice(_NAMES), chance.choice(_ATOMS))]
    return Message(pairsOf(*fields, **pseudo), body, trailers)


class ForwardingTests(SmugglingCase):
    """Requests that reach a handler, written over HTTP/1.1 as a proxy does."""

    async def test_random(self) -> None:
        """Each is one request there: its method, target, host, fields and length are the same."""
        chance = random.Random(33)
        port = await self.serve(self.handle)
        sent: dict[bytes, Message] = {}
        refused = 0
        for _ in range(rounds(20, 200)):
            messages = [randomMessage(chance, len(sent) + index) for index in range(50)]
            sent.update((b"%d" % number, each) for number, each in enumerate(messages, len(sent)))
            outcomes = await self.ask(
                port, *[wireOf(each, 1 + 2 * at, encode) for at, each in enumerate(messages)]
            )
            self.assertNotIn(None, outcomes)
            codes = {outcome for outcome in outcomes if outcome is not None}
            self.assertLessEqual(codes, {MALFORMED, status(200), status(405), status(417)})
            refused += sum(outcome != status(200) for outcome in outcomes)
        self.assertEqual(len(self.served) + refused, len(sent))
        self.assertGreater(min(len(self.served), refused), len(sent) // 10)
        for each in self.served:
            self.check(sent[each.headers[b"x-number"]], each)

    def check(self, message: Message, served: Served) -> None:
        """Compare a request as it was sent, as a handler got it, and as it is forwarded."""
        pseudo = {name: value for name, value in message.head if name[:1] == b":"}
        fields = [pair for pair in message.head if pair[0][:1] != b":"]
        texts = [served.method, served.uri, *served.headers, *served.headers.values()]
        for pair in (*served.headerList, *served.trailers):
            texts += pair
        self.assertFalse(set(b"\r\n\0").intersection(b"".join(texts)), served)
        self.assertEqual((served.method, served.uri), (pseudo[b":method"], pseudo[b":path"]))
        host = pseudo.get(b":authority") or dict(fields)[b"host"]
        self.assertEqual(served.headers[b"host"].lower(), host.lower())
        self.assertEqual([pair for pair in served.headerList if pair[0] == b"host"][1:], [])
        self.assertFalse(_FRAMING.intersection(served.headers), served)
        self.assertFalse(_FRAMING.intersection(dict(served.trailers)), served)
        self.assertEqual(served.body, message.body)
        self.assertEqual(served.trailers, tuple(message.trailers))
        length = served.headers.get(b"content-length")
        if length is not None:
            self.assertEqual(length, b"%d" % len(message.body))
        self.assertForwarded(served)

    def assertForwarded(self, served: Served) -> None:
        """Parse the request as a server of HTTP/1.1 does."""
        fields = served.headerList
        wire = b"%b %b HTTP/1.1\r\n" % (served.method, served.uri)
        wire += b"".join([b"%b: %b\r\n" % pair for pair in fields])
        if b"content-length" in served.headers or not served.body:
            wire += b"\r\n" + served.body
        else:
            wire += b"Transfer-Encoding: chunked\r\n\r\n"
            wire += b"%x\r\n%b\r\n0\r\n\r\n" % (len(served.body), served.body)
        server = h11.Connection(h11.SERVER)
        server.receive_data(wire)
        head = server.next_event()
        assert isinstance(head, h11.Request), head
        self.assertEqual((head.method, head.target), (served.method, served.uri))
        names = [pair for pair in head.headers if pair[0] != b"transfer-encoding"]
        self.assertEqual(names, fields)
        body = b""
        while isinstance(event := server.next_event(), h11.Data):
            body += event.data
        self.assertIsInstance(event, h11.EndOfMessage)
        self.assertEqual(body, served.body)
        self.assertEqual(server.trailing_data[0], b"")
