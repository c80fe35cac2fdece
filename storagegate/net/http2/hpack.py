"""
HPACK, the compression of header fields (RFC 7541)::

    block         = *size-update *( indexed / literal )
    indexed       = %b1 index(7)
    literal       = form ( index / %x00-bits string ) string
    form          = %b01 index(6)           ; enters the dynamic table
                  / %b0000 index(4)         ; does not
                  / %b0001 index(4)         ; must not, at any hop
    size-update   = %b001 size(5)
    string        = huffman-flag(1) length(7) *OCTET

The decoder keeps the dynamic table of its connection. The encoder of responses uses the static
table only: it needs no memory for a connection, and its result depends on the fields alone, so that
lines of response heads are encoded once. L{HeaderEncoder} encodes requests, whose fields repeat,
with a dynamic table. Neither applies the Huffman code, which would save a quarter of the bytes for
40 ns each.
"""

from collections import deque
from itertools import chain

from storagegate.net.http.parser import lowerName
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode

# Appendix A, from index 1.
_STATIC = """:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate"""

Pair = tuple[bytes, bytes]
"""A name and a value."""


def _staticPairs() -> list[Pair]:
    pairs = []
    for line in _STATIC.encode("ascii").split(b"\n"):
        name, _, value = line.partition(b" ")
        pairs.append((name, value))
    return pairs


_STATIC_PAIRS = _staticPairs()
_FIRST_DYNAMIC = len(_STATIC_PAIRS) + 1

SECRET_NAMES = frozenset(
    [
        b"authorization",
        b"cookie",
        b"proxy-authorization",
        b"set-cookie",
        b"x-amz-security-token",
        b"x-amz-server-side-encryption-customer-key",
        b"x-amz-copy-source-server-side-encryption-customer-key",
        b"x-api-key",
        b"x-storage-secret-key",
    ]
)
"""
Fields whose values no cache keeps, and which no hop may put into a table, where another client of
the hop could guess them (section 7.1.3).
"""

ENTRY_OVERHEAD = 32
"""What a field counts beside its name and value, in a table and in a list of fields."""

# Decoded Huffman strings, encoded in at most so many bytes: names, and values that clients repeat
# on each new connection.
_MAX_STRINGS = 1024
_MAX_STRING = 64

# The blocks of a connection that are kept: a block that repeats consists of indexes, and a client
# repeats a few. The total size of their fields bounds what they and their heads take.
_MAX_BLOCK = 96
_MAX_KEPT = 8 * 1024


def _compressionFailure(text: str) -> ConnectionFailure:
    return ConnectionFailure(ErrorCode.COMPRESSION_ERROR, text)


class ReceivedFields:
    """
    The fields of a received header block.

    @ivar pairs: Names and values in order, as received; empty if they are too large.
    @ivar size: Their size as of RFC 9113 section 6.5.2: 32 bytes for each, in addition to the
        octets of its name and value.
    @ivar isTooLarge: Whether C{size} exceeds the limit of the decoder.
    @ivar isRepeated: Whether the connection received the same block before; the object is then the
        same, too.
    @ivar head: Any result of reading them that a reader keeps for the next time.
    """

    __slots__ = ("head", "isRepeated", "isTooLarge", "pairs", "size")

    def __init__(self, pairs: list[Pair], size: int = 0, isTooLarge: bool = False) -> None:
        self.pairs = pairs
        self.size = size
        self.isTooLarge = isTooLarge
        self.isRepeated = False
        self.head: object = None


class HeaderDecoder:
    """
    The decoder of one connection, with its dynamic table.

    @ivar maxTableSize: The limit of the table, in bytes (C{SETTINGS_HEADER_TABLE_SIZE}).
    @ivar maxListSize: The limit of C{ReceivedFields.size}.
    @ivar tableSize: The size of the entries of the table, in bytes (section 4.1).
    """

    __slots__ = (
        "_blocks",
        "_capacity",
        "_keptSize",
        "_table",
        "maxListSize",
        "maxTableSize",
        "tableSize",
    )

    def __init__(self, maxTableSize: int = 4096, maxListSize: int = 16 * 1024) -> None:
        """
        @param maxTableSize: At least 4096, the initial size: a smaller table takes effect only when
            the peer has read our settings.
        """
        if maxTableSize < 4096:
            raise ValueError("a header table has at least 4096 bytes")
        self.maxTableSize = maxTableSize
        self.maxListSize = maxListSize
        self.tableSize = 0
        self._capacity = 4096
        # The newest first.
        self._table: deque[Pair] = deque()
        # Blocks decoded since the table changed, which would decode to the same fields.
        self._blocks: dict[bytes, ReceivedFields] = {}
        self._keptSize = 0

    def decode(self, block: bytes) -> ReceivedFields:
        """
        Decode a block.

        @param block: A whole block, from HEADERS and all its CONTINUATION frames.
        @return: The same object for a block that comes again while the table is unchanged.
        @raise ConnectionFailure: If it is malformed.
        """
        known = self._blocks.get(block)
        if known is not None:
            known.isRepeated = True
            return known
        table = self._table
        pairs: list[Pair] = []
        isKept = len(block) <= _MAX_BLOCK
        position = 0
        end = len(block)
        try:
            while position < end:
                octet = block[position]
                position += 1
                if octet >= 0x80:
                    index = octet & 0x7F
                    if index == 0x7F:
                        index, position = _readInteger(block, position, index)
                    if index >= _FIRST_DYNAMIC:
                        pairs.append(table[index - _FIRST_DYNAMIC])
                    elif index:
                        pairs.append(_STATIC_PAIRS[index - 1])
                    else:
                        raise _compressionFailure("The index of a header field is 0")
                    continue
                if octet >= 0x40:
                    index = octet & 0x3F
                    full = 0x3F
                elif octet < 0x20:
                    index = octet & 0x0F
                    full = 0x0F
                else:
                    if pairs:
                        raise _compressionFailure("A table size follows a header field")
                    size = octet & 0x1F
                    if size == 0x1F:
                        size, position = _readInteger(block, position, size)
                    self._resize(size)
                    isKept = False
                    continue
                if index == full:
                    index, position = _readInteger(block, position, full)
                if not index:
                    name, position = _readString(block, position, True)
                elif index >= _FIRST_DYNAMIC:
                    name = table[index - _FIRST_DYNAMIC][0]
                else:
                    name = _STATIC_PAIRS[index - 1][0]
                isPublic = name not in SECRET_NAMES and not 0x10 <= octet < 0x20
                isPath = name == b":path"
                value, position = _readString(block, position, isPublic and not isPath)
                pair = name, value
                pairs.append(pair)
                if octet >= 0x40:
                    self._add(pair)
                    isKept = False
                elif not isPublic or (isPath and b"?" in value):
                    # The query of a presigned URL is a secret, too.
                    isKept = False
        except IndexError:
            raise _compressionFailure("A header block ends early, or an index is wrong") from None
        size = sum(map(len, chain.from_iterable(pairs))) + ENTRY_OVERHEAD * len(pairs)
        if size > self.maxListSize:
            return ReceivedFields([], size, True)
        received = ReceivedFields(pairs, size)
        if isKept and size <= _MAX_KEPT:
            self._keptSize += size
            if self._keptSize > _MAX_KEPT:
                self._blocks.clear()
                self._keptSize = size
            self._blocks[block] = received
        return received

    def _resize(self, size: int) -> None:
        if size > self.maxTableSize:
            raise _compressionFailure("The header table is larger than its limit")
        self._capacity = size
        self._evict(size)

    def _add(self, pair: Pair) -> None:
        """Insert an entry; one that is larger than the table empties it (section 4.4)."""
        size = len(pair[0]) + len(pair[1]) + ENTRY_OVERHEAD
        self._evict(self._capacity - size)
        if size <= self._capacity:
            self._table.appendleft(pair)
            self.tableSize += size

    def _evict(self, size: int) -> None:
        """Remove the oldest entries until the others have at most C{size} bytes."""
        if self._blocks:
            self._blocks.clear()
            self._keptSize = 0
        table = self._table
        while self.tableSize > size and table:
            name, value = table.pop()
            self.tableSize -= len(name) + len(value) + ENTRY_OVERHEAD


def _readInteger(block: bytes, position: int, prefix: int) -> tuple[int, int]:
    """
    Read the octets that continue an integer (section 5.1).

    @param position: The offset after the prefix.
    @param prefix: The value of the prefix, with all its bits set.
    @return: The integer, and the offset after it.
    """
    # Four octets hold 28 bits, more than any length or table has, and bound padding with zeros.
    for shift in (0, 7, 14, 21):
        octet = block[position]
        position += 1
        prefix += (octet & 0x7F) << shift
        if octet < 0x80:
            return prefix, position
    raise _compressionFailure("An integer of a header block is too large")


def _readString(block: bytes, position: int, isPublic: bool) -> tuple[bytes, int]:
    """
    Read a string (section 5.2).

    @param isPublic: Whether it may stay in memory.
    @return: The string, and the offset after it.
    """
    octet = block[position]
    position += 1
    length = octet & 0x7F
    if length == 0x7F:
        length, position = _readInteger(block, position, length)
    after = position + length
    if after > len(block):
        raise _compressionFailure("A header block ends early, or an index is wrong")
    wire = block[position:after]
    if octet < 0x80:
        return wire, after
    text = _strings.get(wire)
    if text is None:
        text = _decodeHuffman(wire)
        if isPublic and length <= _MAX_STRING:
            if len(_strings) >= _MAX_STRINGS:
                _strings.clear()
            _strings[wire] = text
    return text, after


_strings: dict[bytes, bytes] = {}

# Appendix B: the symbols by the length of their codes. The code is canonical: codes of one length
# are consecutive, and continue from those of the length before. The symbol 256 is EOS.
_SYMBOLS: dict[int, list[int]] = {
    5: [*b"012aceiost"],
    6: [*b" %-./3456789=A_bdfghlmnpru"],
    7: [*b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"],
    8: [*b"&*,;XZ"],
    10: [*b'!"()?'],
    11: [*b"'+|"],
    12: [*b"#>"],
    13: [*b"\x00$@[]~"],
    14: [*b"^}"],
    15: [*b"<`{"],
    19: [*b"\\\xc3\xd0"],
    20: [*b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"],
    21: [*b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"],
    22: [
        *b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4"
        b"\xc6\xe4\xe8\xe9"
    ],
    23: [
        *b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4"
        b"\xb6\xb7\xbc\xbf\xc5\xe7\xef"
    ],
    24: [*b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"],
    25: [*b"\xc7\xcf\xea\xeb"],
    26: [*b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"],
    27: [*b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe"],
    28: [
        *b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b"
        b"\x1c\x1d\x1e\x1f\x7f\xdc\xf9"
    ],
    30: [*b"\n\r\x16", 256],
}

_EOS = 256


class _State:
    """
    A node of the code's tree, as the state of a decoder between two octets.

    @ivar children: The next nodes, by bit; a symbol in place of a leaf.
    @ivar steps: The symbols completed by the next octet, and the state after it, by octet. They are
        found when first needed, as texts use a few hundred of the 65,536.
    @ivar isEnd: Whether a string may end here: the bits since the last symbol are at most seven,
        all of them set.
    """

    __slots__ = ("children", "isEnd", "steps")

    def __init__(self) -> None:
        self.children: list[_State | int | None] = [None, None]
        self.steps: dict[int, tuple[bytes, _State]] = {}
        self.isEnd = False


# Its one element is the root, once a string was decoded.
_root: list[_State] = []


def _makeTree() -> _State:
    root = _State()
    code = 0
    before = 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - before
        before = length
        for symbol in symbols:
            node = root
            for shift in range(length - 1, 0, -1):
                bit = code >> shift & 1
                child = node.children[bit]
                if not isinstance(child, _State):
                    child = node.children[bit] = _State()
                node = child
            node.children[code & 1] = symbol
            code += 1
    node = root
    for _ in range(8):
        node.isEnd = True
        child = node.children[1]
        assert isinstance(child, _State)
        node = child
    return root


def _decodeHuffman(wire: bytes) -> bytes:
    """
    Decode a string (section 5.2).

    @raise ConnectionFailure: If it contains EOS, or its padding is too long or not of ones.
    """
    if not _root:
        _root.append(_makeTree())
    state = _root[0]
    pieces = []
    for octet in wire:
        try:
            piece, state = state.steps[octet]
        except KeyError:
            state.steps[octet] = step = _findStep(state, octet)
            piece, state = step
        pieces.append(piece)
    if not state.isEnd:
        raise _compressionFailure("The padding of a Huffman string is wrong")
    return b"".join(pieces)


def _findStep(state: _State, octet: int) -> tuple[bytes, _State]:
    symbols = bytearray()
    for shift in range(7, -1, -1):
        child = state.children[octet >> shift & 1]
        if isinstance(child, _State):
            state = child
        elif child is None or child == _EOS:
            raise _compressionFailure("A Huffman string contains EOS")
        else:
            symbols.append(child)
            state = _root[0]
    return bytes(symbols), state


# Encoding

_STATIC_INDEXES = {pair: number for number, pair in enumerate(_STATIC_PAIRS, 1)}
_STATIC_NAMES = {name: number for number, (name, _) in reversed(list(enumerate(_STATIC_PAIRS, 1)))}

# Encoded fields, by field: most are the same in all heads.
_fields: dict[Pair, bytes] = {}
_MAX_FIELDS = 1024
_MAX_FIELD = 96


def encodePairs(pairs: list[Pair]) -> bytes:
    """
    Encode fields.

    @param pairs: Names in lower case and values, checked; pseudo-fields first.
    """
    known = _fields
    return b"".join([known.get(pair) or _encodeField(pair) for pair in pairs])


def _encodeField(pair: Pair) -> bytes:
    name, value = pair
    index = _STATIC_INDEXES.get(pair)
    if index is not None:
        return bytes([0x80 | index])
    isSecret = name in SECRET_NAMES
    encoded = _encodeName(name) + encodeInteger(len(value), 7) + value
    if not isSecret and len(encoded) <= _MAX_FIELD:
        if len(_fields) >= _MAX_FIELDS:
            _fields.clear()
        _fields[pair] = encoded
    return encoded


def _encodeName(name: bytes) -> bytes:
    """Encode the name of a literal field, with the form of the literal."""
    form = 0x10 if name in SECRET_NAMES else 0
    index = _STATIC_NAMES.get(name)
    if index is None:
        return bytes([form]) + encodeInteger(len(name), 7) + name
    return encodeInteger(index, 4, form)


def encodeInteger(value: int, bits: int, form: int = 0) -> bytes:
    """
    Encode an integer (section 5.1).

    @param bits: The size of its prefix.
    @param form: The other bits of the first octet.
    """
    full = (1 << bits) - 1
    if value < full:
        return bytes([form | value])
    octets = bytearray([form | full])
    value -= full
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


class HeaderEncoder:
    """
    The encoder of one connection, with a dynamic table.

    Entries are inserted until the table is full, and never evicted, so that an entry is found by
    the number of later ones.

    @ivar version: Changes with the table: a block that was encoded without a change is valid until
        the next one.
    """

    __slots__ = ("_entries", "_names", "_room", "version")

    def __init__(self) -> None:
        self.version = 0
        # The positions of entries, the oldest first, and of an entry with a name.
        self._entries: dict[Pair, int] = {}
        self._names: dict[bytes, int] = {}
        self._room = _ENCODER_TABLE

    def resize(self, size: int) -> bytes:
        """
        Empty the table, for a new limit of the peer's decoder.

        @return: The start of the next block.
        """
        self.version += 1
        self._entries.clear()
        self._names.clear()
        self._room = min(size, _ENCODER_TABLE)
        return tableSizeUpdate(0) + (tableSizeUpdate(self._room) if self._room else b"")

    def encode(self, pairs: list[Pair]) -> bytes:
        """
        Encode fields, which enter the table as far as they fit.

        @param pairs: Names in lower case and values, checked; pseudo-fields first.
        """
        return b"".join(map(self._encode, pairs))

    def _encode(self, pair: Pair) -> bytes:
        index = _STATIC_INDEXES.get(pair)
        if index is not None:
            return bytes([0x80 | index])
        position = self._entries.get(pair)
        if position is not None:
            return encodeInteger(self._indexOf(position), 7, 0x80)
        name, value = pair
        size = len(name) + len(value) + ENTRY_OVERHEAD
        if name in SECRET_NAMES or size > self._room:
            return _encodeField(pair)
        index = _STATIC_NAMES.get(name)
        if index is None and name in self._names:
            index = self._indexOf(self._names[name])
        start = (
            b"\x40" + encodeInteger(len(name), 7) + name
            if index is None
            else encodeInteger(index, 6, 0x40)
        )
        self.version += 1
        self._room -= size
        self._names[name] = self._entries[pair] = len(self._entries)
        return start + encodeInteger(len(value), 7) + value

    def _indexOf(self, position: int) -> int:
        return _FIRST_DYNAMIC + len(self._entries) - 1 - position


# The table of an encoder: the first limit of a decoder.
_ENCODER_TABLE = 4096


def tableSizeUpdate(size: int) -> bytes:
    """
    Encode a change of the size of the dynamic table, to begin a block.

    A peer that lowers C{SETTINGS_HEADER_TABLE_SIZE} may expect one, although the encoder has no
    entries (section 4.2).
    """
    return encodeInteger(size, 5, 0x20)


CONNECTION_FIELDS = frozenset(
    [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"transfer-encoding",
        b"upgrade",
    ]
)
"""Fields of HTTP/1.1 that have no place in HTTP/2 (RFC 9113 section 8.2.2)."""

# Encoded lines, by line without its end.
_lines: dict[bytes, bytes] = {}
_MAX_LINES = 1024

# Encoded lines that are the same for a second, or for a popular object. They would push out the
# lines that are always the same.
_recentLines: dict[bytes, bytes] = {}
_MAX_RECENT = 64
_RECENT = frozenset(
    [
        b"age",
        b"content-length",
        b"content-range",
        b"date",
        b"etag",
        b"last-modified",
        b"location",
        b"x-amz-version-id",
    ]
)

# Fields that are secret, or different in each response.
_UNKEPT = SECRET_NAMES | frozenset(
    [b"traceparent", b"x-amz-id-2", b"x-amz-request-id", b"x-request-id"]
)

# Encoded names by name as it stands in lines, with the cache of the lines; None for a dropped one.
_lineNames: dict[bytes, tuple[bytes, dict[bytes, bytes] | None] | None] = {}


def encodeHead(lines: bytes) -> bytes:
    """
    Encode a response head of HTTP/1.1.

    The fields of the connection are left out.

    @param lines: The status line and the header fields, checked, each with its CRLF, without the
        empty line at the end.
    """
    known = _lines
    recent = _recentLines
    return b"".join(
        [known.get(line) or recent.get(line) or _encodeLine(line) for line in lines.split(b"\r\n")]
    )


def _encodeLine(line: bytes) -> bytes:
    if not line:
        return b""
    name, _, value = line.partition(b":")
    cache: dict[bytes, bytes] | None
    if line[:5] == b"HTTP/":
        cache = _lines
        encoded = _encodeField((b":status", line[9:12]))
    else:
        try:
            form = _lineNames[name]
        except KeyError:
            form = _readLineName(name)
        if form is None:
            return b""
        start, cache = form
        value = value.strip(b" \t")
        length = len(value)
        size = _LENGTHS[length] if length < 0x7F else encodeInteger(length, 7)
        encoded = start + size + value
    if cache is not None and len(line) <= _MAX_FIELD:
        if len(cache) >= (_MAX_RECENT if cache is _recentLines else _MAX_LINES):
            cache.clear()
        cache[line] = encoded
    return encoded


# The lengths of strings that take one octet.
_LENGTHS = [bytes([length]) for length in range(0x7F)]


def _readLineName(name: bytes) -> tuple[bytes, dict[bytes, bytes] | None] | None:
    lowered = lowerName(name)
    form = None
    if lowered not in CONNECTION_FIELDS:
        cache = _recentLines if lowered in _RECENT else _lines
        form = _encodeName(lowered), None if lowered in _UNKEPT else cache
    if len(name) <= _MAX_FIELD:
        if len(_lineNames) >= _MAX_LINES:
            _lineNames.clear()
        _lineNames[name] = form
    return form
