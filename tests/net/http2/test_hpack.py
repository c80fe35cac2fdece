"""The compression of header fields."""

import hpack
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2 import hpack as ours
from storagegate.net.http2.hpack import (
    HeaderDecoder,
    HeaderEncoder,
    Pair,
    encodeHead,
    encodeInteger,
    encodePairs,
    tableSizeUpdate,
)
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode

NAMES = st.sampled_from([b":status", b"date", b"etag", b"x-a", b"x-b", b"cookie", b"n" * 130])
PAIRS = st.lists(st.tuples(NAMES, st.binary(max_size=140)), max_size=12)
RESPONSES = [
    [
        (b":status", b"302"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ],
    [
        (b":status", b"307"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
        (b"location", b"https://www.example.com"),
    ],
    [
        (b":status", b"200"),
        (b"cache-control", b"private"),
        (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT"),
        (b"location", b"https://www.example.com"),
        (b"content-encoding", b"gzip"),
        (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]
REQUESTS = [
    [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
    ],
    [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
        (b"cache-control", b"no-cache"),
    ],
    [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    ],
]


def literal(name: bytes, value: bytes, form: int = 0x40) -> bytes:
    """Encode a field with a new name, by default into the dynamic table."""
    strings = [encodeInteger(len(text), 7) + text for text in (name, value)]
    return bytes([form]) + b"".join(strings)


class VectorTests(SynchronousTestCase):
    """The examples of RFC 7541, appendix C."""

    def check(
        self, blocks: list[str], heads: list[list[Pair]], sizes: list[int], limit: int
    ) -> None:
        """Decode blocks one after the other, with a table of a size."""
        decoder = HeaderDecoder()
        decoder.decode(tableSizeUpdate(limit))
        for block, head, size in zip(blocks, heads, sizes, strict=True):
            received = decoder.decode(bytes.fromhex(block))
            self.assertEqual(received.pairs, head)
            self.assertEqual(received.size, sum(len(a) + len(b) + 32 for a, b in head))
            self.assertFalse(received.isTooLarge)
            self.assertEqual(decoder.tableSize, size)

    def test_integers(self) -> None:
        """C.1."""
        self.assertEqual(encodeInteger(10, 5), b"\x0a")
        self.assertEqual(encodeInteger(1337, 5), b"\x1f\x9a\x0a")
        self.assertEqual(encodeInteger(42, 8), b"\x2a")

    def test_fields(self) -> None:
        """C.2: the forms of a field."""
        for block, head, size in [
            (
                "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
                (b"custom-key", b"custom-header"),
                55,
            ),
            ("040c2f73616d706c652f70617468", (b":path", b"/sample/path"), 0),
            ("100870617373776f726406736563726574", (b"password", b"secret"), 0),
            ("82", (b":method", b"GET"), 0),
        ]:
            self.check([block], [[head]], [size], 4096)

    def test_requests(self) -> None:
        """C.3: requests without the Huffman code."""
        blocks = [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ]
        self.check(blocks, REQUESTS, [57, 110, 164], 4096)

    def test_requestsInHuffmanCode(self) -> None:
        """C.4."""
        blocks = [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ]
        self.check(blocks, REQUESTS, [57, 110, 164], 4096)

    def test_responses(self) -> None:
        """C.5: responses that evict entries from a table of 256 bytes."""
        blocks = [
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120"
            "474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738"
            "666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d33"
            "3630303b2076657273696f6e3d31",
        ]
        self.check(blocks, RESPONSES, [222, 222, 215], 256)

    def test_responsesInHuffmanCode(self) -> None:
        """C.6."""
        blocks = [
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad1718"
            "63c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7"
            "b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ]
        self.check(blocks, RESPONSES, [222, 222, 215], 256)


class PeerTests(SynchronousTestCase):
    """The codec of another project."""

    @given(st.lists(st.tuples(PAIRS, st.booleans(), st.sampled_from([None, 0, 60, 500, 4096]))))
    def test_decoding(self, heads: list[tuple[list[Pair], bool, int | None]]) -> None:
        """Heads that it encodes are the same here, whatever its table does."""
        encoder = hpack.Encoder()
        decoder = HeaderDecoder()
        for pairs, isHuffman, size in heads:
            if size is not None:
                encoder.header_table_size = size
            fields = [hpack.HeaderTuple(*pair) for pair in pairs]
            block = encoder.encode(fields, huffman=isHuffman)
            self.assertEqual(decoder.decode(block).pairs, pairs)
            self.assertEqual(decoder.tableSize, encoder.header_table._current_size)

    @given(st.lists(PAIRS))
    def test_encoding(self, heads: list[list[Pair]]) -> None:
        """It decodes the heads that are encoded here, and its table stays empty."""
        decoder = hpack.Decoder()
        for pairs in heads:
            for _ in range(2):
                found = decoder.decode(encodePairs(pairs), raw=True)
                self.assertEqual([tuple(field) for field in found], pairs)
        self.assertEqual(decoder.header_table._current_size, 0)

    @given(st.binary(max_size=100))
    def test_garbage(self, garbage: bytes) -> None:
        """Both decode a block of any octets to the same fields, or both refuse it."""
        peer = hpack.Decoder()
        try:
            expected = [tuple(field) for field in peer.decode(garbage, raw=True)]
        except (hpack.HPACKError, IndexError, OverflowError):
            expected = None
        decoder = HeaderDecoder(maxListSize=2**20)
        try:
            found = decoder.decode(garbage).pairs
        except ConnectionFailure as error:
            self.assertEqual(error.code, ErrorCode.COMPRESSION_ERROR)
            self.assertIsNone(expected)
        else:
            self.assertEqual(found, expected)

    def test_huffmanCode(self) -> None:
        """Each symbol, alone and beside each other one, decodes to itself."""
        encoder = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
        for first in range(256):
            text = b"".join(bytes([first, second]) for second in range(256))
            self.assertEqual(ours._decodeHuffman(encoder.encode(text)), text)
            self.assertEqual(ours._decodeHuffman(encoder.encode(text[:1])), text[:1])


class HostileTests(SynchronousTestCase):
    """Blocks that break the rules, or try to use up the server."""

    def assertRefused(self, *blocks: bytes, decoder: HeaderDecoder | None = None) -> None:
        """Assert that the last of some blocks is refused."""
        decoder = decoder or HeaderDecoder()
        for block in blocks[:-1]:
            decoder.decode(block)
        error = self.assertRaises(ConnectionFailure, decoder.decode, blocks[-1])
        self.assertEqual(error.code, ErrorCode.COMPRESSION_ERROR)

    def test_indexes(self) -> None:
        """Index 0, and indexes beyond the table, as a field and as a name."""
        entry = literal(b"a", b"b")
        self.assertEqual(HeaderDecoder().decode(entry + b"\xbe").pairs, [(b"a", b"b")] * 2)
        for block in [
            b"\x80",
            b"\xbe",
            b"\xff\x80\x7f",
            b"\x7e\x01a",
            b"\x0f\x2f\x01a",
            b"\x1f\xff\xff\xff\x7f\x01a",
        ]:
            self.assertRefused(block)
            if block not in (b"\xbe", b"\x7e\x01a", b"\x0f\x2f\x01a"):
                self.assertRefused(entry, b"\x82" + block)
        self.assertRefused(entry, b"\xbf")

    def test_truncated(self) -> None:
        """A block that ends early, at each octet of each form."""
        for block in [
            literal(b"name", b"value"),
            literal(b"n" * 200, b"v" * 200),
            b"\x00\x84\x25\xa8\x49\xe9\x05value",
            b"\x0f\x2d\x01a",
        ]:
            self.assertEqual(len(HeaderDecoder().decode(block).pairs), 1)
            for end in range(1, len(block)):
                self.assertRefused(block[:end])

    def test_integers(self) -> None:
        """Integers that are huge, or padded with zeros without end."""
        for wire in (
            b"\xff\xff\xff\xff\xff\x0f",
            b"\xff" * 1000,
            b"\xff" + b"\x80" * 4 + b"\x01",
            b"\xff" + b"\x80" * 10_000,
        ):
            self.assertRefused(wire)
            self.assertRefused(b"\x3f" + wire[1:])
            self.assertRefused(b"\x00\x7f" + wire[1:])
        self.assertEqual(HeaderDecoder().decode(b"\x0f\x80\x00\x00").pairs[0][1], b"")

    def test_huffman(self) -> None:
        """EOS, padding of zeros, and padding of a whole octet."""
        for text in (
            b"\xff\xff\xff\xff",
            b"\x1f\xff\xff\xff\xff",
            b"\x00",
            b"\x18",
            b"\x1f\xff",
            b"\xff",
        ):
            self.assertRefused(b"\x00\x01a" + bytes([0x80 | len(text)]) + text)
        self.assertEqual(HeaderDecoder().decode(b"\x00\x01a\x81\x1f").pairs, [(b"a", b"a")])
        self.assertEqual(HeaderDecoder().decode(b"\x00\x01a\x80").pairs, [(b"a", b"")])

    def test_tableSizes(self) -> None:
        """A table over the limit of our settings, and a change of its size within a block."""
        self.assertRefused(tableSizeUpdate(4097))
        self.assertRefused(b"\x82" + tableSizeUpdate(0))
        large = HeaderDecoder(65_536)
        large.decode(tableSizeUpdate(0) + tableSizeUpdate(65_536) + b"\x82")
        self.assertRefused(tableSizeUpdate(65_537), decoder=large)
        self.assertRaises(ValueError, HeaderDecoder, 4095)

    def test_largerThanTable(self) -> None:
        """An entry larger than the table empties it, and its own name may come from it."""
        decoder = HeaderDecoder()
        decoder.decode(literal(b"a", b"b"))
        block = b"\x7e" + encodeInteger(5000, 7) + b"x" * 5000
        self.assertEqual(decoder.decode(block).pairs, [(b"a", b"x" * 5000)])
        self.assertEqual(decoder.tableSize, 0)
        self.assertRefused(b"\xbe", decoder=decoder)

    def test_evicted(self) -> None:
        """Entries leave the table when it shrinks, for good."""
        decoder = HeaderDecoder()
        decoder.decode(literal(b"a", b"b") + literal(b"c", b"d"))
        decoder.decode(tableSizeUpdate(40))
        self.assertEqual(decoder.decode(b"\xbe").pairs, [(b"c", b"d")])
        self.assertRefused(tableSizeUpdate(4096) + b"\xbf", decoder=decoder)

    def test_churn(self) -> None:
        """A table whose entries are replaced without end keeps to its size."""
        decoder = HeaderDecoder()
        for number in range(300):
            decoder.decode(literal(b"%d" % number, b"x" * (number % 50)) * 10)
            self.assertLessEqual(decoder.tableSize, 4096)
            self.assertLessEqual(len(decoder._table), 4096 // 32)
            size = sum(len(name) + len(value) + 32 for name, value in decoder._table)
            self.assertEqual(size, decoder.tableSize)

    def test_bomb(self) -> None:
        """A list over the limit is dropped, but its entries stay in step with the client's."""
        decoder = HeaderDecoder(maxListSize=16 * 1024)
        received = decoder.decode(literal(b"a", b"x" * 4000) + b"\xbe" * 16_000)
        self.assertTrue(received.isTooLarge)
        self.assertEqual(received.pairs, [])
        self.assertEqual(received.size, 16_001 * 4033)
        after = decoder.decode(b"\xbe")
        self.assertFalse(after.isTooLarge)
        self.assertEqual(after.pairs, [(b"a", b"x" * 4000)])
        again = decoder.decode(b"\xbe" * 10)
        self.assertTrue(again.isTooLarge)

    def test_limit(self) -> None:
        """A list of exactly the limit passes."""
        for limit, expected in ((33 + 4, False), (33 + 3, True)):
            received = HeaderDecoder(maxListSize=limit).decode(literal(b"ab", b"cde", 0))
            self.assertEqual(received.isTooLarge, expected)


class CacheTests(SynchronousTestCase):
    """Blocks that come again."""

    def test_repeated(self) -> None:
        """The same block is the same object, until an entry or a size changes the table."""
        decoder = HeaderDecoder()
        decoder.decode(literal(b"a", b"1"))
        values = [b"1", b"2", b"2"]
        for change in (literal(b"a", b"2"), tableSizeUpdate(4096), tableSizeUpdate(0)):
            received = decoder.decode(b"\x82\xbe")
            self.assertFalse(received.isRepeated)
            self.assertEqual(received.pairs[1], (b"a", values.pop(0)))
            self.assertIs(decoder.decode(b"\x82\xbe"), received)
            self.assertTrue(received.isRepeated)
            decoder.decode(change)
        self.assertRaises(ConnectionFailure, decoder.decode, b"\x82\xbe")

    def test_changed(self) -> None:
        """A block that inserts an entry is decoded each time."""
        decoder = HeaderDecoder()
        block = literal(b"a", b"b")
        self.assertIsNot(decoder.decode(block), decoder.decode(block))
        self.assertEqual(decoder.tableSize, 2 * 34)

    def test_secrets(self) -> None:
        """No cache keeps a literal that is secret, or long, or a query."""
        decoder = HeaderDecoder()
        for block in [
            literal(b"authorization", b"s3cr3t", 0),
            literal(b"cookie", b"s3cr3t", 0),
            literal(b"x-other", b"s3cr3t", 0x10),
            literal(b":path", b"/?X-Amz-Signature=s3cr3t", 0),
            literal(b"x-other", b"s3cr3t" * 20, 0),
            hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(b"authorization", b"s3cr3t")]),
            hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(b":path", b"/?s3cr3t")]),
        ]:
            for _ in range(2):
                decoder.decode(block)
        encodePairs([(b"authorization", b"s3cr3t"), (b"x", b"s3cr3t" * 20)])
        encodeHead(b"HTTP/1.1 200 OK\r\nSet-Cookie: s3cr3t\r\nX: %b\r\n" % (b"s3cr3t" * 20))
        self.assertEqual(decoder._blocks, {})
        for kept in (ours._strings, ours._fields, ours._lines, ours._recentLines):
            self.assertNotIn(b"s3cr3t", repr(kept).encode())

    def test_bounds(self) -> None:
        """The caches stay within their bounds."""
        decoder = HeaderDecoder()
        encoder = hpack.Encoder()
        for number in range(3000):
            pair = b"x-%d" % number, b"%d" % number
            decoder.decode(literal(*pair, 0) + b"\x82" * 20)
            decoder.decode(encoder.encode([hpack.NeverIndexedHeaderTuple(b"a", b"%d" % number)]))
            decoder.decode(b"\x00" + encoder.encode([pair])[1:])
            encodePairs([pair])
            encodeHead(b"X-%d: %d\r\n" % (number, number))
            kept = sum(received.size for received in decoder._blocks.values())
            self.assertLessEqual(kept, 8 * 1024)
        for cache in (ours._strings, ours._fields, ours._lines, ours._lineNames):
            self.assertLessEqual(len(cache), 1024)


class EncoderTests(SynchronousTestCase):
    """L{HeaderEncoder}, whose table has entries."""

    @given(st.lists(st.tuples(PAIRS, st.sampled_from([None, 0, 100, 500, 4096, 10_000]))))
    def test_peer(self, steps: list[tuple[list[Pair], int | None]]) -> None:
        """The blocks of a connection are read by another decoder, whatever its limits are."""
        encoder, decoder = HeaderEncoder(), hpack.Decoder()
        decoder.max_header_list_size = 1 << 30
        for pairs, size in steps:
            start = b""
            if size is not None:
                decoder.max_allowed_table_size = size
                start = encoder.resize(size)
            found = decoder.decode(start + encoder.encode(pairs), raw=True)
            self.assertEqual([tuple(each) for each in found], pairs)
            version, again = encoder.version, encoder.encode(pairs)
            if encoder.version == version:
                found = decoder.decode(again, raw=True)
                self.assertEqual([tuple(each) for each in found], pairs)
            else:
                decoder.decode(again)

    def test_bounded(self) -> None:
        """The table is full at some time; fields that do not fit are literals."""
        encoder = HeaderEncoder()
        for number in range(1000):
            encoder.encode([(b"x-a", b"%d" % number)])
        version = encoder.version
        self.assertLess(version, 4096 // 36 + 1)
        block = encoder.encode([(b"x-a", b"new"), (b"x-a", b"0")])
        self.assertEqual(encoder.version, version)
        self.assertIn(b"new", block)

    def test_secrets(self) -> None:
        """Secrets enter no table, at any hop."""
        encoder = HeaderEncoder()
        blocks = {encoder.encode([(b"authorization", b"Bearer x")]) for _ in range(3)}
        [block] = blocks
        self.assertEqual((block[0] & 0xF0, encoder.version), (0x10, 0))


class EncodingTests(SynchronousTestCase):
    """Heads that are sent."""

    def decode(self, block: bytes) -> list[Pair]:
        """Decode a block as another project does."""
        return [tuple(field) for field in hpack.Decoder().decode(block, raw=True)]

    def test_static(self) -> None:
        """Fields of the static table are one octet."""
        for code in (200, 204, 206, 304, 400, 404, 500):
            self.assertEqual(len(encodePairs([(b":status", b"%d" % code)])), 1)
        self.assertEqual(encodePairs([(b":method", b"GET"), (b":path", b"/")]), b"\x82\x84")

    def test_neverIndexed(self) -> None:
        """Secrets carry the form that keeps them out of all tables on their way."""
        # The gateway's default field for an API key, in the request of a client.
        for name in sorted({*ours.SECRET_NAMES, b"x-api-key"}):
            for block in (encodePairs([(name, b"x")]), encodeHead(name.title() + b": x\r\n")):
                [field] = hpack.Decoder().decode(block, raw=True)
                self.assertIsInstance(field, hpack.NeverIndexedHeaderTuple)
                self.assertEqual(tuple(field), (name, b"x"))

    def test_head(self) -> None:
        """A head of HTTP/1.1 loses the fields of the connection, and its names their capitals."""
        head = (
            b"HTTP/1.1 404 Not: Found\r\nDate: Sun, 29 Nov 2026 11:12:21 GMT\r\nX-Empty:\r\n"
            b"Connection: close\r\nKeep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n"
            b"Upgrade: h2c\r\nProxy-Connection: close\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n"
            b"X-Spaced: \t a: b \r\nX-Long: %b\r\nContent-Length: 5\r\n" % (b"x" * 300)
        )
        for _ in range(3):
            self.assertEqual(
                self.decode(encodeHead(head)),
                [
                    (b":status", b"404"),
                    (b"date", b"Sun, 29 Nov 2026 11:12:21 GMT"),
                    (b"x-empty", b""),
                    (b"set-cookie", b"a=b"),
                    (b"set-cookie", b"c=d"),
                    (b"x-spaced", b"a: b"),
                    (b"x-long", b"x" * 300),
                    (b"content-length", b"5"),
                ],
            )

    def test_interim(self) -> None:
        """Interim heads have their status."""
        block = encodeHead(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n")
        self.assertEqual(self.decode(block), [(b":status", b"103"), (b"link", b"</a>")])

    def test_volatileLines(self) -> None:
        """Lines that change often do not push out the others."""
        encodeHead(b"X-Same: 1\r\n")
        for number in range(2000):
            encodeHead(b'Date: %d\r\nContent-Length: %d\r\nETag: "%d"\r\n' % ((number,) * 3))
            encodeHead(b"X-Amz-Request-Id: %d\r\n" % number)
            self.assertLessEqual(len(ours._recentLines), 64)
        self.assertIn(b"X-Same: 1", ours._lines)
        volatile = (b"Date", b"Content-Length", b"ETag", b"X-Amz")
        self.assertFalse([line for line in ours._lines if line.startswith(volatile)])
        self.assertFalse([line for line in ours._recentLines if line.startswith(b"X-Amz")])

    def test_tableSizeUpdate(self) -> None:
        """A change of the table's size satisfies a peer that has lowered its limit."""
        decoder = hpack.Decoder()
        decoder.max_allowed_table_size = 100
        self.assertRaises(hpack.InvalidTableSizeError, decoder.decode, b"\x82")
        decoder.decode(tableSizeUpdate(100) + b"\x82")
        self.assertEqual(decoder.header_table_size, 100)
