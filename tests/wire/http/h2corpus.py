"""
The corpus of HTTP/1.1 over HTTP/2, and what only HTTP/2 has.

After RFC 9113 sections 4 to 8 and RFC 7541. L{FORMS} decides about every case of
L{tests.wire.http.corpus}: it has forms here, or a reason why it cannot be expressed. Frames are
written by hand, and header blocks by the library C{hpack}, so that no code of the server is used.
"""

from collections.abc import Iterable
from typing import Literal

from attrs import frozen
from hpack import Encoder

from tests.wire.http.replaying import SMUGGLED

NO_ERROR, PROTOCOL, FLOW, CLOSED, SIZE, COMPRESSION, CALM = 0, 1, 3, 5, 6, 9, 11
"""Codes of RST_STREAM and GOAWAY (RFC 9113 section 7)."""

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
"""Types of frames (section 6)."""

END, ENDS, PADDED, PRIORITISED = 0x1, 0x4, 0x8, 0x20
"""The flags END_STREAM (and ACK), END_HEADERS, PADDED and PRIORITY."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_FRAME = 16_384

Pair = tuple[bytes, bytes]

PSEUDO = {b":method": b"GET", b":scheme": b"http", b":path": b"/", b":authority": b"x"}


@frozen
class Outcome:
    """
    The only right end of a case.

    @ivar kind: A response on the stream, RST_STREAM, or GOAWAY and the end of the connection.
    @ivar code: Its status or error code.
    """

    kind: Literal["status", "reset", "goaway"]
    code: int


def status(code: int) -> Outcome:
    """Return the outcome of a request that gets a response."""
    return Outcome("status", code)


MALFORMED = Outcome("reset", PROTOCOL)
"""Section 8.1.1"""


def goesAway(code: int) -> Outcome:
    """Return the outcome of an error of the connection."""
    return Outcome("goaway", code)


@frozen
class Form:
    """
    A case on the wire.

    @ivar wire: Frames, after the client's preface and SETTINGS; requests are on stream 1.
    """

    wire: bytes
    outcome: Outcome = MALFORMED


@frozen
class H2Case:
    """
    A form with a name.

    @ivar form: What is sent, and what happens.
    """

    name: str
    form: Form


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encode a frame (section 4.1)."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def encode(pairs: Iterable[Pair], huffman: bool = True) -> bytes:
    """Encode a header block, without any check."""
    block: bytes = Encoder().encode(list(pairs), huffman)
    return block


def blockFrames(block: bytes, stream: int = 1, flags: int = 0, size: int = _FRAME) -> bytes:
    """
    Encode a header block as HEADERS and as many CONTINUATION frames as it needs.

    @param flags: END_STREAM or nothing.
    @param size: Bytes of each frame.
    """
    pieces = [block[at : at + size] for at in range(0, len(block), size)] or [b""]
    wire = b""
    for index, piece in enumerate(pieces):
        last = ENDS if index == len(pieces) - 1 else 0
        kind = CONTINUATION if index else HEADERS
        wire += frame(kind, last | (0 if index else flags), stream, piece)
    return wire


def pairsOf(*fields: Pair, **pseudo: bytes | None) -> list[Pair]:
    """Return the fields of a GET request; C{None} leaves a pseudo-field out."""
    merged = PSEUDO | {b":" + name.encode(): value for name, value in pseudo.items()}
    return [(name, value) for name, value in merged.items() if value is not None] + [*fields]


def _head(*fields: Pair, outcome: Outcome = MALFORMED, **pseudo: bytes | None) -> Form:
    """Make a request without a body."""
    return Form(blockFrames(encode(pairsOf(*fields, **pseudo)), flags=END), outcome)


def _heads(*pairs: list[Pair]) -> list[Form]:
    return [Form(blockFrames(encode(each), flags=END)) for each in pairs]


def _post(*fields: Pair, body: bytes = b"hello", outcome: Outcome = MALFORMED) -> Form:
    """Make a request with a body of one frame."""
    head = blockFrames(encode(pairsOf(*fields, method=b"POST")))
    return Form(head + frame(DATA, END, 1, body), outcome)


def _trailers(*fields: Pair, outcome: Outcome = MALFORMED, flags: int = END) -> Form:
    """Make a request with a body and trailers."""
    head = blockFrames(encode(pairsOf(method=b"POST"))) + frame(DATA, 0, 1, b"hello")
    return Form(head + blockFrames(encode(fields), flags=flags), outcome)


def _authorities(host: bytes) -> list[Form]:
    return [_head(authority=host), _head((b"host", host), authority=None)]


def _lengths(*values: bytes) -> list[Form]:
    fields = [(b"content-length", value) for value in values]
    # With a body, and with one that is none.
    return [_post(*fields), _head(*fields)]


def _codings(*fields: Pair) -> list[Form]:
    """A request with a field of the framing of HTTP/1.1, with a body that looks framed by it."""
    return [_post(*fields, body=b"0\r\n\r\n" + SMUGGLED), _head(*fields)]


def _coding(value: bytes) -> list[Form]:
    return _codings((b"transfer-encoding", value))


_NO_VERSION = "a request has no version; the preface has one for the connection"
_NO_LINES = "a head ends by END_HEADERS, so it has no line ends of its own"
_NO_CHUNKS = "the length of a DATA frame is binary and always there, so there are no chunk lines"

REASONS = frozenset([_NO_VERSION, _NO_LINES, _NO_CHUNKS])
"""Why cases of HTTP/1.1 cannot be expressed."""

_UNENDED = encode(pairsOf((b"a", b"a" * 60_000)), huffman=False)

FORMS: dict[str, list[Form] | str] = {
    # Request lines
    "HTTP/0.9": _NO_VERSION,
    "no version": _NO_VERSION,
    "HTTP/2.0": [_head(version=b"HTTP/2.0")],
    "HTTP/1.2": [_head(version=b"HTTP/1.2")],
    "HTTP/0.9 by name": [_head(version=b"HTTP/0.9")],
    "version of two digits": _NO_VERSION,
    "version without a dot": _NO_VERSION,
    "lower-case version": _NO_VERSION,
    "another protocol": _NO_VERSION,
    "lower-case method": [_head(method=b"get", outcome=status(405))],
    "mixed-case method": [_head(method=b"Get", outcome=status(405))],
    "unknown method": [_head(method=b"BREW", outcome=status(405))],
    "method with a control character": [_head(method=b"GE\x01T")],
    "method with a colon": [_head(method=b"GET:")],
    "no method": [_head(method=b""), _head(method=None)],
    "CONNECT": [
        _head(method=b"CONNECT", path=None, scheme=None, authority=b"a:1", outcome=status(405))
    ],
    "CONNECT in origin form": [
        _head(method=b"CONNECT"),
        _head(method=b"CONNECT", scheme=None),
        _head(method=b"CONNECT", path=None),
        _head(method=b"CONNECT", path=None, scheme=None, authority=None),
    ],
    "TRACE": [_head(method=b"TRACE", outcome=status(405))],
    "target without a slash": [_head(path=b"!"), _head(path=b"?a")],
    "no target": [_head(path=b""), _head(path=None)],
    "asterisk of GET": [_head(path=b"*")],
    "authority as target": [_head(path=b"x:80")],
    "target of another scheme": [_head(scheme=b"ftp"), _head(path=b"ftp://x/")],
    "target with credentials": [_head(path=b"http://a@b/")],
    "target with no authority": [_head(authority=b""), _head(path=b"http:///a")],
    "target with a fragment": [_head(path=b"/#a"), _head(path=b"/?#a")],
    "target with a space": [_head(path=b"/a b")],
    "target with a control character": [_head(path=b"/\x01")],
    "target with DEL": [_head(path=b"/\x7f")],
    "target with NUL": [_head(path=b"/\0")],
    "target with a raw byte": [_head(path=b"/\xe9")],
    "two spaces": [_head(path=b" /"), _head(method=b"GET ")],
    "tabs": [_head(path=b"\t/"), _head(method=b"GET\t")],
    "space at the end": [_head(path=b"/ "), _head(path=b"/ HTTP/1.1")],
    "space at the beginning": [_head(method=b" GET")],
    "TLS hello": [Form(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", goesAway(SIZE))],
    "bare LF after the line": [
        _head(path=b"/ HTTP/1.1\nHost: y"),
        _head(method=b"GET / HTTP/1.1\nHost: y\n\nGET"),
    ],
    "bare CR after the line": [_head(path=b"/ HTTP/1.1\rHost: y")],
    "bare LF before the line": [_head(method=b"\nGET")],
    "long path": [_head(path=b"/" + b"a" * 8192, outcome=status(414))],
    # The size of all fields has one limit, and one status.
    "long target": [_head(path=b"/?" + b"a" * 16_384, outcome=status(431))],
    "target without an end": [
        Form(
            frame(HEADERS, END, 1, encode(pairsOf(path=b"/" + b"a" * 16_000), False))
            + frame(CONTINUATION, 0, 1, b"a" * _FRAME) * 2,
            goesAway(CALM),
        )
    ],
    # Header fields
    "no Host": [_head(authority=None), _head((b"host", b""), authority=None)],
    "no Host beside an absolute target": [_head(authority=None, path=b"http://x/")],
    "two Hosts": [
        _head((b"host", b"y")),
        _head((b"host", b"")),
        _head((b"host", b"x:80")),
        _head((b"host", b"x"), (b"host", b"y"), authority=None),
        *_heads([(b":authority", b"y"), *pairsOf()]),
    ],
    "two equal Hosts": [
        _head((b"host", b"x"), (b"host", b"x")),
        _head((b"host", b"x"), (b"host", b"x"), authority=None),
    ],
    "Host with a path": _authorities(b"a b/c") + _authorities(b"a/c"),
    "Host list": _authorities(b"a, b"),
    "Host with credentials": _authorities(b"a@b"),
    "Host with a word as port": _authorities(b"a:b"),
    "continued field": [_head((b"a", b"b\r\n c"))],
    "field continued by a tab": [_head((b"a", b"b\r\n\tc"))],
    "continued first field": [_head((b" host", b"x")), *_authorities(b"x\r\n y")],
    "continued Transfer-Encoding": _coding(b"\r\n chunked"),
    "Transfer-Encoding split in two": _coding(b"chu\r\n nked"),
    "space before the colon": [_head((b"a ", b"b"))],
    "tab before the colon": [_head((b"a\t", b"b"))],
    "Content-Length, space before the colon": [_post((b"content-length ", b"5"))],
    "empty name": [_head((b"", b"b"))],
    "name with a space": [_head((b"a b", b"c"))],
    "name with a raw byte": [_head((b"\xe9", b"c"))],
    "name with a control character": [_head((b"a\x01", b"c"))],
    "name with a bracket": [_head((b"a(b)", b"c"))],
    # A field is a name and a value; here the block ends in between.
    "no colon": [
        Form(blockFrames(encode(pairsOf()) + b"\x00\x03abc", flags=END), goesAway(COMPRESSION))
    ],
    "NUL in a value": [_head((b"a", b"b\0c"))],
    "control character in a value": [_head((b"a", b"\x01"))],
    "DEL in a value": [_head((b"a", b"\x7f"))],
    "vertical tab in a value": [_head((b"a", b"b\x0bc"))],
    "bare CR in a value": [_head((b"a", b"b\rc"))],
    "bare CR at the end of a value": [_head((b"a", b"b\r"), (b"c", b"d"))],
    "bare LF in a value": [_head((b"a", b"b\nc: d")), _head((b"a", b"\nb")), _head((b"a", b"b\n"))],
    "bare LF at the end of the head": _NO_LINES,
    "LF CR": _NO_LINES,
    "many fields": [_head(*[(b"a", b"b")] * 500, outcome=status(431))],
    "one field too many": [_head(*[(b"a", b"b")] * 101, outcome=status(431))],
    "long field": [
        _head((b"a", b"a" * 16_384), outcome=status(431)),
        Form(
            blockFrames(encode(pairsOf((b"a", b"a" * 20_000)), False), flags=END),
            status(431),
        ),
    ],
    "long fields without an end": [
        Form(
            blockFrames(_UNENDED, flags=END)[: -9 - len(_UNENDED) % _FRAME],
            goesAway(CALM),
        ),
        Form(blockFrames(_UNENDED, flags=END), goesAway(CALM)),
    ],
    # Expectations
    "unknown expectation": [_head((b"expect", b"banana"), outcome=status(417))],
    "two expectations": [
        _head((b"expect", b"100-continue, banana"), outcome=status(417)),
        _head((b"expect", b"100-continue"), (b"expect", b"banana"), outcome=status(417)),
    ],
    # Lengths
    "two lengths": _lengths(b"5", b"6"),
    "two equal lengths": _lengths(b"5", b"5"),
    "list of lengths": _lengths(b"5, 5"),
    "signed length": _lengths(b"+5"),
    "negative length": _lengths(b"-5"),
    "hexadecimal length": _lengths(b"0x5"),
    "length with an underscore": _lengths(b"1_0"),
    "empty length": _lengths(b""),
    "length with a space": _lengths(b"1 0"),
    "length in another script": _lengths("\u0665".encode()),
    "length with a fraction": _lengths(b"5.0"),
    "length of 2**63": _lengths(b"9223372036854775808"),
    "length of 20 digits": _lengths(b"9" * 20),
    "length of 5000 digits": _lengths(b"9" * 5000),
    # Transfer codings
    "length, then coding": _codings((b"content-length", b"5"), (b"transfer-encoding", b"chunked")),
    "coding, then length": _codings((b"transfer-encoding", b"chunked"), (b"content-length", b"5")),
    "two codings": _codings((b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")),
    "identity": _coding(b"identity"),
    "identity and length": _codings((b"transfer-encoding", b"identity"), (b"content-length", b"5")),
    "gzip, chunked": _coding(b"gzip, chunked"),
    "chunked, identity": _coding(b"chunked, identity"),
    "unknown coding": _coding(b"xchunked"),
    "empty coding": _coding(b""),
    "quoted coding": _coding(b'"chunked"'),
    "coding after a no-break space": _coding(b"\xa0chunked"),
    "coding after a vertical tab": _coding(b"\x0bchunked"),
    "coding before a vertical tab": _coding(b"chunked\x0b"),
    "coding in HTTP/1.0": _NO_VERSION,
    # Chunks
    "chunk size of a letter": _NO_CHUNKS,
    "empty chunk size": _NO_CHUNKS,
    "signed chunk size": _NO_CHUNKS,
    "negative chunk size": _NO_CHUNKS,
    "prefixed chunk size": _NO_CHUNKS,
    "chunk size with an underscore": _NO_CHUNKS,
    "chunk size after a space": _NO_CHUNKS,
    "chunk size before a space": _NO_CHUNKS,
    "chunk size of 17 digits": _NO_CHUNKS,
    # The longest that the three bytes of a length can say.
    "chunk size of 2**64 - 1": [
        Form(
            blockFrames(encode(pairsOf(method=b"POST"))) + b"\xff\xff\xff\x00\x01\0\0\0\x01hello",
            goesAway(SIZE),
        )
    ],
    "chunk size, bare LF": _NO_CHUNKS,
    "chunk size, bare CR": _NO_CHUNKS,
    "chunk extension, bare LF": _NO_CHUNKS,
    "chunk extension, bare CR": _NO_CHUNKS,
    "chunk extension, NUL": _NO_CHUNKS,
    "long chunk extension": _NO_CHUNKS,
    # Both lengths of a body are DATA's and that of Content-Length.
    "chunk longer than its size": [
        _post((b"content-length", b"4")),
        _post((b"content-length", b"0")),
        _post((b"content-length", b"5"), body=b"hello" + SMUGGLED),
    ],
    "chunk ending in bare LF": _NO_CHUNKS,
    "chunk ending in bare CR": _NO_CHUNKS,
    "request as trailer": [
        _trailers(*pairsOf(path=b"/2")),
        _trailers((b"xxget /2 http/1.1\r\nhost", b"x")),
        _trailers((b":path", b"/2")),
        _trailers((b"a", b"b"), flags=0),
    ],
    "trailer, space before the colon": [_trailers((b"a ", b"b"))],
    "continued trailer": [_trailers((b"a", b"b\r\n c"))],
    "trailer, bare LF": [_trailers((b"a", b"b\n")), _trailers((b"a", b"b\nc: d"))],
    "trailer with a control character": [_trailers((b"a", b"\x01"))],
    # Not only their stream: the list of fields has one limit for heads and trailers.
    "long trailer": [_trailers((b"a", b"b" * 17_000), outcome=Outcome("reset", CALM))],
    "many trailers": [_trailers(*[(b"a", b"b")] * 2000, outcome=Outcome("reset", CALM))],
}
"""The forms of each case of HTTP/1.1, or why it has none."""


def _raw(block: bytes, code: int = COMPRESSION) -> Form:
    """Make a header block by hand behind a whole head."""
    return Form(blockFrames(encode(pairsOf()) + block, flags=END), goesAway(code))


def _late(name: bytes) -> Form:
    """Make a head with a pseudo-field behind a field."""
    rest = [pair for pair in pairsOf() if pair[0] != name]
    return _heads([*rest, (b"a", b"b"), (name, PSEUDO[name])])[0]


def _twice(name: bytes) -> Form:
    return _heads([(name, PSEUDO[name]), *pairsOf()])[0]


def _frame(kind: int, flags: int, stream: int, payload: bytes, code: int) -> Form:
    return Form(frame(kind, flags, stream, payload), goesAway(code))


_GET = encode(pairsOf())
_OPEN = blockFrames(encode(pairsOf((b"content-length", b"9"), method=b"POST")))


def _setting(number: int, value: int, code: int = PROTOCOL) -> Form:
    payload = number.to_bytes(2, "big") + value.to_bytes(4, "big")
    return _frame(SETTINGS, 0, 0, payload, code)


_OWN: dict[str, Form] = {
    # Pseudo-fields (section 8.3)
    **{f"{name.decode()} behind a field": _late(name) for name in PSEUDO},
    **{f"{name.decode()} twice": _twice(name) for name in PSEUDO},
    ":status in a request": _head(status=b"200"),
    "unknown pseudo-field": _head(host=b"x"),
    "empty pseudo-field": _heads([(b":", b"a"), *pairsOf()])[0],
    "upper-case pseudo-field": _heads([(b":Path", b"/2"), *pairsOf()])[0],
    "pseudo-field with a space": _heads([(b":path ", b"/2"), *pairsOf()])[0],
    "pseudo-field of two colons": _heads([(b"::path", b"/2"), *pairsOf()])[0],
    "no scheme": _head(scheme=None),
    "empty scheme": _head(scheme=b""),
    "upper-case scheme": _head(scheme=b"HTTP"),
    "scheme with a URL": _head(scheme=b"http://evil/?"),
    "scheme with a line": _head(scheme=b"http\r\nHost: y"),
    ":protocol of GET": _head(protocol=b"websocket"),
    ":protocol without a host": _head(method=b"CONNECT", protocol=b"websocket", authority=None),
    "unknown :protocol": _head(method=b"CONNECT", protocol=b"a", outcome=status(501)),
    "a request line as method": _head(method=b"GET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET"),
    "a request as path": _head(path=b"/ HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED),
    "a request as authority": _head(authority=b"x\r\n\r\n" + SMUGGLED),
    "path of two slashes with a host": _head(path=b"//evil\\@x /"),
    "empty head": Form(blockFrames(b"", flags=END)),
    "only fields": _heads([(b"host", b"x"), (b"a", b"b")])[0],
    # Fields (section 8.2)
    "upper-case name": _head((b"A", b"b")),
    "upper-case Content-Length": _post((b"Content-Length", b"5")),
    "upper-case Transfer-Encoding": _post((b"Transfer-Encoding", b"chunked")),
    "upper-case Host": _head((b"HOST", b"x")),
    "name with a colon": _head((b"a:b", b"c")),
    "name with a line": _head((b"transfer-encoding: chunked\r\nx", b"1")),
    "name with NUL": _head((b"a\0", b"b")),
    "name with LF": _head((b"a\n", b"b")),
    "name with CR": _head((b"a\r", b"b")),
    "value with a coding": _head((b"a", b"b\r\ntransfer-encoding: chunked")),
    "value with a length": _post((b"a", b"b\r\ncontent-length: 0")),
    "value with a request": _head((b"a", b"b\r\n\r\n" + SMUGGLED)),
    "cookie with a line": _head((b"cookie", b"a=1"), (b"cookie", b"b=2\r\nx: y")),
    "secret with a line": _head((b"authorization", b"a\r\nb: c")),
    "space before a value": _head((b"a", b" b")),
    "space behind a value": _head((b"a", b"b ")),
    "tab before a value": _head((b"a", b"\tb")),
    "Connection": _head((b"connection", b"close")),
    "Connection that names a length": _post(
        (b"connection", b"content-length"), (b"content-length", b"5")
    ),
    "Connection: keep-alive": _head((b"connection", b"keep-alive")),
    "Keep-Alive": _head((b"keep-alive", b"timeout=5")),
    "Proxy-Connection": _head((b"proxy-connection", b"keep-alive")),
    "Upgrade to HTTP/2": _head((b"upgrade", b"h2c")),
    "Upgrade to a WebSocket": _head((b"connection", b"upgrade"), (b"upgrade", b"websocket")),
    "TE of a coding": _head((b"te", b"gzip")),
    "TE with a coding": _head((b"te", b"trailers, deflate")),
    "trailer with a length": _trailers((b"transfer-encoding", b"chunked")),
    "trailer with Connection": _trailers((b"connection", b"close")),
    "upper-case trailer": _trailers((b"A", b"b")),
    # Bodies (section 8.1.1)
    "length without a body": _head((b"content-length", b"5")),
    "body shorter than its length": _post((b"content-length", b"6")),
    "empty body of a length": _post((b"content-length", b"5"), body=b""),
    "body longer than its length": _post((b"content-length", b"1")),
    "body cut by trailers": Form(
        _OPEN + frame(DATA, 0, 1, b"hello") + blockFrames(encode([(b"a", b"b")]), flags=END)
    ),
    "padding that counts as body": Form(
        _OPEN + frame(DATA, END | PADDED, 1, b"\x03hello\0\0\0"), MALFORMED
    ),
    "body of several frames over its length": Form(
        _OPEN + frame(DATA, 0, 1, b"hello") + frame(DATA, 0, 1, b"hello")
    ),
    # Frames (sections 4, 5 and 6)
    "DATA of the connection": _frame(DATA, 0, 0, b"a", PROTOCOL),
    "DATA of an idle stream": _frame(DATA, END, 1, b"a", PROTOCOL),
    "DATA with too much padding": Form(
        _OPEN + frame(DATA, PADDED, 1, b"\x09hello"), goesAway(PROTOCOL)
    ),
    "padded DATA without a length": Form(_OPEN + frame(DATA, PADDED, 1), goesAway(SIZE)),
    "HEADERS of the connection": _frame(HEADERS, END | ENDS, 0, _GET, PROTOCOL),
    "HEADERS of an even stream": _frame(HEADERS, END | ENDS, 2, _GET, PROTOCOL),
    "HEADERS with too much padding": _frame(
        HEADERS, END | ENDS | PADDED, 1, b"\xff" + _GET, PROTOCOL
    ),
    "HEADERS with half a priority": _frame(HEADERS, END | ENDS | PRIORITISED, 1, b"abc", SIZE),
    "head cut by DATA": Form(
        frame(HEADERS, 0, 1, _GET) + frame(DATA, END, 1, SMUGGLED), goesAway(PROTOCOL)
    ),
    "head cut by PING": Form(
        frame(HEADERS, END, 1, _GET) + frame(PING, 0, 0, bytes(8)), goesAway(PROTOCOL)
    ),
    "head cut by another head": Form(
        frame(HEADERS, END, 1, _GET) + blockFrames(_GET, 3, END), goesAway(PROTOCOL)
    ),
    "head cut by an unknown frame": Form(
        frame(HEADERS, END, 1, _GET) + frame(0x7F, 0, 1), goesAway(PROTOCOL)
    ),
    "head continued on another stream": Form(
        frame(HEADERS, END, 1, _GET) + frame(CONTINUATION, ENDS, 3), goesAway(PROTOCOL)
    ),
    "CONTINUATION of no head": _frame(CONTINUATION, ENDS, 1, _GET, PROTOCOL),
    "PRIORITY of the connection": _frame(PRIORITY, 0, 0, bytes(5), PROTOCOL),
    "RST_STREAM of an idle stream": _frame(RESET, 0, 1, bytes(4), PROTOCOL),
    "RST_STREAM of the connection": _frame(RESET, 0, 0, bytes(4), PROTOCOL),
    "RST_STREAM of three bytes": _frame(RESET, 0, 1, bytes(3), SIZE),
    "PUSH_PROMISE of a client": _frame(PUSH, ENDS, 1, b"\0\0\0\x02" + _GET, PROTOCOL),
    "SETTINGS of a stream": _frame(SETTINGS, 0, 1, b"", PROTOCOL),
    "SETTINGS of five bytes": _frame(SETTINGS, 0, 0, bytes(5), SIZE),
    "acknowledgement with a setting": _frame(SETTINGS, END, 0, bytes(6), SIZE),
    "push of 2": _setting(2, 2),
    "window of 2**31": _setting(4, 2**31, FLOW),
    "frames of 16,383 bytes": _setting(5, 16_383),
    "frames of 2**24 bytes": _setting(5, 2**24),
    "extended CONNECT of 2": _setting(8, 2),
    "PING of a stream": _frame(PING, 0, 1, bytes(8), PROTOCOL),
    "PING of seven bytes": _frame(PING, 0, 0, bytes(7), SIZE),
    "GOAWAY of a stream": _frame(GOAWAY, 0, 1, bytes(8), PROTOCOL),
    "GOAWAY of seven bytes": _frame(GOAWAY, 0, 0, bytes(7), SIZE),
    "WINDOW_UPDATE of 0": _frame(WINDOW, 0, 0, bytes(4), PROTOCOL),
    "WINDOW_UPDATE of an idle stream": _frame(WINDOW, 0, 1, b"\0\0\0\x01", PROTOCOL),
    "WINDOW_UPDATE of three bytes": _frame(WINDOW, 0, 0, bytes(3), SIZE),
    "WINDOW_UPDATE over 2**31 - 1": _frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff", FLOW),
    "WINDOW_UPDATE of 0 for a stream": Form(_OPEN + frame(WINDOW, 0, 1, bytes(4))),
    "window of a stream over 2**31 - 1": Form(
        _OPEN + frame(WINDOW, 0, 1, b"\x7f\xff\xff\xff"), Outcome("reset", FLOW)
    ),
    "frame of 65,537 bytes": _frame(0x7F, 0, 0, bytes(65_537), SIZE),
    "a request of HTTP/1.1": Form(SMUGGLED, goesAway(SIZE)),
    # HPACK (RFC 7541)
    "index of 0": _raw(b"\x80"),
    "index without an entry": _raw(b"\xff\x7f"),
    "name without an entry": _raw(b"\x7f\x7f\x01a"),
    "index that never ends": _raw(b"\xff" + b"\xff" * 20),
    "index cut off": _raw(b"\xff\x80"),
    "name longer than its block": _raw(b"\x00\x7f\x20abc"),
    "value longer than its block": _raw(b"\x00\x01a\x05abc"),
    "Huffman code of EOS": _raw(b"\x00\x01a\x84\xff\xff\xff\xff"),
    "Huffman padding of zeros": _raw(b"\x00\x01a\x81\x18"),
    "Huffman padding of a byte": _raw(b"\x00\x01a\x82\x1f\xff"),
    "table size behind a field": _raw(b"\x20"),
    "table size over the limit": Form(
        blockFrames(b"\x3f\xe2\x1f" + _GET, flags=END), goesAway(COMPRESSION)
    ),
}


def _named() -> list[H2Case]:
    found = []
    for name, forms in FORMS.items():
        if not isinstance(forms, str):
            found += [H2Case(f"{name} ({at})", form) for at, form in enumerate(forms, 1)]
    return found + [H2Case(name, form) for name, form in _OWN.items()]


H2_CORPUS = _named()
"""All of them. None reaches a handler; one that fails a stream leaves the connection usable."""
