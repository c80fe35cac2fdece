"""
A strict parser of request heads and of body framing (RFC 9112)::

    head         = request-line CRLF *( field-line CRLF ) CRLF
    request-line = method SP target SP version
    chunked-body = *chunk last-chunk trailer-section CRLF
    chunk        = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
    last-chunk   = 1*"0" [ chunk-ext ] CRLF

A head is parsed when it is complete. The parser refuses names that are not tokens, control
characters, a lone CR or LF, continued lines, missing or repeated Host fields, unknown transfer
codings or versions, and excessive sizes. Lines and short blocks of fields are cached: a C parser
with a callback for each field takes 10 % longer.

Body decoders do no I/O: C{feed} takes received bytes and returns the bytes of the body. The bytes
after the body are then in C{rest}.
"""

import re
from typing import Protocol, Self

from attrs import define
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from storagegate.core.errors import untraced
from storagegate.core.heldbytes import HeldBuffer, TooMuchHeld
from storagegate.core.options import parseDecimal
from storagegate.core.streams import BoundedStream
from storagegate.net.http.interfaces import (
    BadRequest,
    BodyLost,
    BodyTooLarge,
    HTTPLimits,
    IRequestChannel,
)

METHODS = frozenset(
    b"ACL BIND CHECKOUT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL "
    b"MOVE NOTIFY OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT REBIND REPORT SEARCH SUBSCRIBE "
    b"UNBIND UNLINK UNLOCK UNSUBSCRIBE".split()
)
"""The methods that reach a resource: all registered ones except CONNECT and TRACE."""

# A length that does not fit a signed 64-bit integer is an attack.
_MAX_LENGTH = 2**63 - 1

_REQUEST_LINE = re.compile(rb"([!-~]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
# Cache of request lines without a query, which might hold a token: their parts, from the method to
# the version. It has the same bounds as the cache of field lines.
_requestLines: dict[bytes, tuple[bytes, bytes, bytes, bytes, bytes]] = {}
_ORIGIN_FORM = rb"((/[!-\"$->@-~]*)(?:\?([!-\"$-~]*))?)"
_ORIGIN = re.compile(_ORIGIN_FORM)
# The form of nearly every request line, matched in one step.
_PLAIN_LINE = re.compile(rb"([A-Z]+) " + _ORIGIN_FORM + rb" (HTTP/1\.[01])")
_ABSOLUTE = re.compile(rb"https?://([!-\"$-.0->@-~]+)([/?][!-\"$-~]*)?", re.IGNORECASE)
# A port is empty or at most 65535.
_PORT = rb"[0-5]?[0-9]{0,4}|6(?:[0-4][0-9]{3}|5(?:[0-4][0-9]{2}|5(?:[0-2][0-9]|3[0-5])))"
_HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+\]|[\w\-.~%!$&'()*+,;=]*)(?::(?:" + _PORT + rb"))?", re.ASCII
)

# Checked hosts: a server has a few, and the expression takes 0.3 microseconds.
_hosts: set[bytes] = set()
_MAX_HOSTS = 1024

# Control characters, a lone CR or LF, continued fields.
_BROKEN = re.compile(rb"[^\t\n\r -~\x80-\xff]|(?<!\r)\n|\r[^\n]|\n[ \t]")


@define(init=False, eq=False)
class RequestHead:
    """
    The head of one request.

    @ivar uri: The target in origin form, raw.
    @ivar path: C{uri} up to the question mark.
    @ivar queryString: C{uri} after the question mark.
    @ivar headers: The fields by name in lower case. Values of a repeated field are joined by a
        comma and a space, as RFC 9110 section 5.3 recommends, and of Cookie by semicolons. Of a
        field that has one value, the first occurrence counts, as in Node.js.
    @ivar headerList: The fields in order, names in lower case; do not modify.
    @ivar contentLength: C{None} if the body has no declared length, 0 if there is none.
    @ivar keepAlive: Whether the client keeps the connection open.
    @ivar expectsContinue: Whether the client waits for a C{100 Continue} with its body.
    """

    method: bytes
    uri: bytes
    path: bytes
    queryString: bytes
    version: bytes
    headers: dict[bytes, bytes]
    headerList: list[tuple[bytes, bytes]]
    contentLength: int | None
    keepAlive: bool
    expectsContinue: bool


_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

FIELD_TEXT = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])
"""The octets allowed in a line of a head, without its CRLF."""

# Checked names, with their lower case; there are a few dozen. The bounds guard against clients and
# programs that derive names from data.
_names: dict[bytes, bytes] = {}
_MAX_NAMES = 1024
_MAX_NAME = 64


def isToken(value: bytes) -> bool:
    """Return whether a value is a token (RFC 9110 section 5.6.2)."""
    return bool(value) and _TOKEN.issuperset(value)


def lowerName(name: bytes) -> bytes:
    """
    Return the lower case of a field's name.

    @raise ValueError: If it is not a token (RFC 9110 section 5.6.2).
    """
    lowered = _names.get(name)
    if lowered is None:
        if not isToken(name):
            raise ValueError("a header name is no token")
        lowered = name.lower()
        if len(name) <= _MAX_NAME:
            if len(_names) >= _MAX_NAMES:
                _names.clear()
            _names[name] = lowered
    return lowered


# Cache of parsed fields by line with its CR: most are the same in all requests of a client. Long
# lines are excluded, so that no token stays in memory, except for S3's: it is of no use without a
# secret key.
_lines: dict[bytes, tuple[bytes, bytes]] = {}
_MAX_LINES = 1024
_MAX_LINE = 96
_SESSION_TOKEN = b"x-amz-security-token"
_MAX_TOKEN_LINE = 1024


def _parseField(line: bytes) -> tuple[bytes, bytes]:
    """
    Parse a field line.

    @param line: The line with its CR, but without its LF.
    @raise BadRequest: If it is malformed.
    """
    name, colon, value = line.partition(b":")
    try:
        lowered = lowerName(name)
    except ValueError:
        colon = b""
    if not colon or value[-1:] != b"\r" or value[:-1].translate(None, FIELD_TEXT):
        raise BadRequest(400, "The request is malformed")
    field = (lowered, value[:-1].strip(b" \t"))
    if len(line) <= (_MAX_TOKEN_LINE if lowered == _SESSION_TOKEN else _MAX_LINE):
        if len(_lines) >= _MAX_LINES:
            _lines.clear()
        _lines[line] = field
    return field


# Cache of HTTP/1.1 header blocks, with their line ends: a client repeats them with each request. A
# cached block halves the time to parse a head. Every line of a block is in the cache of lines;
# blocks from browsers, or with a signature, are longer.
_blocks: dict[bytes, "_Fields"] = {}
_MAX_BLOCKS = 1024
_MAX_BLOCK = 256

_Fields = tuple[list[tuple[bytes, bytes]], dict[bytes, bytes], int | None, bool, bool]
"""The attributes C{headerList}, C{headers}, C{contentLength}, C{keepAlive} and C{expectsContinue}
of a L{RequestHead}."""


def parseHead(wire: bytes, limits: HTTPLimits, head: RequestHead) -> int:
    """
    Parse a head.

    @param wire: Bytes that begin with a head and end with an empty line, which may be that of a
        later head.
    @param limits: The limits; those on sizes apply.
    @param head: The object to fill in.
    @return: The length of the head in bytes, including the empty line that ends it.
    @raise BadRequest: If it is invalid or exceeds a limit.
    """
    line, _, block = wire.partition(b"\r\n")
    parts = _requestLines.get(line)
    if parts is not None and len(line) <= limits.pathSize:
        head.method, head.uri, head.path, head.queryString, head.version = parts
    else:
        _readRequestLine(head, line, limits)
    # The authority of an absolute target replaces Host, and HTTP/1.0 has other framing rules.
    isKept = len(block) <= _MAX_BLOCK and head.path[:1] == b"/" and head.version == b"HTTP/1.1"
    parsed = _blocks.get(block) if isKept else None
    if parsed is not None and len(parsed[0]) <= limits.headFields and len(wire) <= limits.headSize:
        head.headerList, headers, head.contentLength, head.keepAlive, head.expectsContinue = parsed
        head.headers = headers.copy()
        return len(wire)
    # A search for two bytes takes three times as long as one for LF: a microsecond in a head with a
    # token. So the lines keep their CR, in the cache too.
    lines = block.split(b"\n", limits.headFields + 1)
    rest, size = lines.pop(), len(wire)
    try:
        count = lines.index(b"\r")
    except ValueError:
        if len(lines) > limits.headFields:
            raise BadRequest(431, "There are too many header fields") from None
        raise BadRequest(400, "The request is malformed") from None
    if rest or count < len(lines) - 1:
        isKept = False
        size = len(line) + 4 + sum(map(len, lines[:count])) + count
    if size > limits.headSize:
        raise BadRequest(431, "The header fields are too large")
    del lines[count:]
    known = _lines
    before = len(known)
    fields = [known.get(line) or _parseField(line) for line in lines]
    head.headerList = fields
    head.headers = headers = dict(fields)
    if len(headers) != len(fields):
        joinRepeated(head)
    _checkHost(head)
    _readFraming(head)
    if isKept and len(known) == before and all(line in known for line in lines):
        # All its lines were cached before, so none changes with each request.
        if len(_blocks) >= _MAX_BLOCKS:
            _blocks.clear()
        framing = head.contentLength, head.keepAlive, head.expectsContinue
        _blocks[block] = head.headerList, head.headers.copy(), *framing
    return size


def checkPartialHead(wire: bytes, seen: int, limits: HTTPLimits) -> None:
    """
    Refuse an incomplete head that cannot become a valid request.

    @param wire: The beginning, from the first byte of the request line.
    @param seen: The number of bytes already checked.
    @raise BadRequest: If it is invalid or exceeds a limit.
    """
    lineEnd = wire.find(b"\r\n")
    if lineEnd < 0:
        if len(wire) > limits.headSize:
            raise BadRequest(414, "The request target is too long")
    elif lineEnd + 2 > seen:
        _readRequestLine(RequestHead(), wire[:lineEnd], limits)
    if len(wire) > limits.headSize:
        raise BadRequest(431, "The header fields are too large")
    if _BROKEN.search(wire, max(0, seen - 1)):
        raise BadRequest(400, "The request is malformed")


def _readRequestLine(head: RequestHead, line: bytes, limits: HTTPLimits) -> None:
    plain = _PLAIN_LINE.fullmatch(line)
    if plain is not None:
        head.method, head.uri, head.path, query, head.version = plain.groups()
        if head.method in METHODS and len(head.path) <= limits.pathSize >= len(head.uri):
            head.queryString = query or b""
            if query is None and len(line) <= _MAX_LINE:
                if len(_requestLines) >= _MAX_LINES:
                    _requestLines.clear()
                _requestLines[line] = head.method, head.uri, head.path, b"", head.version
            return
    if len(line) > limits.headSize:
        raise BadRequest(414, "The request target is too long")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "The request line is malformed")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in b"01":
        raise BadRequest(505, "The version is not HTTP/1.0 or HTTP/1.1")
    head.version = b"HTTP/1." + minor
    readTarget(head, method, target, limits)


def readTarget(head: RequestHead, method: bytes, target: bytes, limits: HTTPLimits) -> None:
    """
    Fill in the method and the target of a request.

    @param method: A token.
    @param target: The target in origin form, absolute form or C{*}.
    @raise BadRequest: If it is invalid or exceeds a limit, or the method is not allowed.
    """
    if method not in METHODS:
        raise BadRequest(405, "The method is not allowed")
    head.method = method
    head.uri = target
    head.path, _, head.queryString = target.partition(b"?")
    if len(head.path) > limits.pathSize:
        raise BadRequest(414, "The path is too long")
    if not (
        _ORIGIN.fullmatch(target)
        or _ABSOLUTE.fullmatch(target)
        or (target == b"*" and method == b"OPTIONS")
    ):
        raise BadRequest(400, "The request target is malformed")


def joinRepeated(head: RequestHead) -> None:
    """
    Set C{head.headers} from C{head.headerList}, in which a name stands more than once.

    @raise BadRequest: If one of them may stand only once.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in head.headerList:
        if name not in headers:
            headers[name] = value
        elif name in _UNREPEATABLE:
            raise BadRequest(400, "A header field stands twice that may stand only once")
        elif name not in _SINGLE:
            headers[name] += (b"; " if name == b"cookie" else b", ") + value
    head.headers = headers


# With two of these, two parsers of a message may disagree, so even equal ones are refused.
_UNREPEATABLE = frozenset([b"host", b"content-length", b"transfer-encoding"])

# Fields that are no lists: their joined values would be another value. As in Node.js.
_SINGLE = frozenset(
    [
        b"age",
        b"authorization",
        b"content-type",
        b"etag",
        b"expires",
        b"from",
        b"if-modified-since",
        b"if-unmodified-since",
        b"last-modified",
        b"location",
        b"max-forwards",
        b"proxy-authorization",
        b"referer",
        b"retry-after",
        b"server",
        b"user-agent",
    ]
)


def _checkHost(head: RequestHead) -> None:
    """RFC 9112 section 3.2: one Host, and the authority of an absolute target replaces it."""
    host = head.headers.get(b"host")
    if host is None:
        if head.version == b"HTTP/1.1":
            raise BadRequest(400, "The Host field is missing")
    elif host not in _hosts:
        checkHost(host)
    if head.path[:1] == b"/" or head.uri == b"*":
        return
    match = _ABSOLUTE.fullmatch(head.uri)
    assert match is not None
    authority, rest = match.group(1), match.group(2) or b"/"
    if not _HOST.fullmatch(authority):
        raise BadRequest(400, "The request target is malformed")
    head.uri = rest if rest[:1] == b"/" else b"/" + rest
    head.path, _, head.queryString = head.uri.partition(b"?")
    head.headers[b"host"] = authority
    head.headerList = [(b"host", authority)] + [
        field for field in head.headerList if field[0] != b"host"
    ]


def isHost(value: bytes) -> bool:
    """Return whether a value is valid in C{Host}, with or without a port."""
    return _HOST.fullmatch(value) is not None


def checkHost(host: bytes) -> None:
    """
    Refuse a host that is no authority, with or without a port.

    @raise BadRequest: If it is malformed.
    """
    if host in _hosts:
        return
    if not isHost(host):
        raise BadRequest(400, "The Host field is malformed")
    if len(_hosts) >= _MAX_HOSTS:
        _hosts.clear()
    _hosts.add(host)


def _readFraming(head: RequestHead) -> None:
    """Find the length of the body and the persistence of the connection (sections 6, 9.3)."""
    headers = head.headers
    coding = headers.get(b"transfer-encoding")
    length = headers.get(b"content-length")
    if coding is not None:
        _checkCoding(coding, length, head.version)
        head.contentLength = None
    elif length is not None:
        head.contentLength = readLength(length)
    else:
        head.contentLength = 0
    connection = headers.get(b"connection")
    if connection is None:
        head.keepAlive = head.version == b"HTTP/1.1"
    else:
        tokens = [token.strip(b" \t") for token in connection.lower().split(b",")]
        head.keepAlive = b"close" not in tokens and (
            head.version == b"HTTP/1.1" or b"keep-alive" in tokens
        )
    expectation = headers.get(b"expect")
    # RFC 9110 section 10.1.1: it has no meaning in HTTP/1.0.
    head.expectsContinue = (
        expectation is not None and head.version == b"HTTP/1.1" and expectsContinue(expectation)
    )


def expectsContinue(expectation: bytes) -> bool:
    """
    Return whether the value of C{Expect} asks for C{100 Continue}.

    @raise BadRequest: If it asks for anything else.
    """
    if not expectation:
        return False
    if expectation.lower() != b"100-continue":
        raise BadRequest(417, "The expectation is not 100-continue")
    return True


def readLength(length: bytes) -> int:
    """
    Read the value of C{Content-Length}.

    @raise BadRequest: If it is not a decimal number, or exceeds 63 bits.
    """
    if length.isdigit() and len(length) < 16:
        # Nearly all lengths, in a quarter of the time: for bytes, isdigit() accepts only 0 to 9.
        return int(length)
    try:
        return parseDecimal(length, _MAX_LENGTH)
    except ValueError:
        raise BadRequest(400, "The Content-Length is malformed") from None


def _checkCoding(coding: bytes, length: bytes | None, version: bytes) -> None:
    if length is not None:
        raise BadRequest(400, "Content-Length and Transfer-Encoding exclude each other")
    if version == b"HTTP/1.0":
        raise BadRequest(400, "HTTP/1.0 has no Transfer-Encoding")
    codings = [each.strip(b" \t") for each in coding.lower().split(b",")]
    if codings[-1] != b"chunked":
        # RFC 9112 section 6.3: the length of the body cannot be determined.
        raise BadRequest(400, "The last Transfer-Encoding is not chunked")
    if len(codings) > 1:
        raise BadRequest(501, "The only Transfer-Encoding is chunked")


# Sixteen hexadecimal digits fill 64 bits. A short extension is ignored.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*)?")
_CHUNK_LINE_BEGINNING = re.compile(rb"(?:[0-9A-Fa-f]{1,16}(?:;[\t -~\x80-\xff]*)?\r?)?")
_MAX_CHUNK_LINE = 256

MAX_CHUNKS = 128
"""Maximum number of chunks that a call decodes, in half a millisecond: a read of 96 KiB may have
16,000, during which no other connection would be served."""

_TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t -~\x80-\xff]*)")


class MessageBodyDecoder(Protocol):
    """
    Removes the framing of a body.

    @ivar complete: Whether the body is complete.
    @ivar rest: The bytes received after the end.
    @ivar isBehind: Whether received bytes are left to decode, by a call of C{feed} without bytes.
    @ivar trailers: The fields after the body, once it is complete; names in lower case.
    """

    complete: bool
    rest: bytes
    isBehind: bool
    trailers: tuple[tuple[bytes, bytes], ...]

    @property
    def remaining(self) -> int | None:
        """Return the number of bytes still to come; C{None} if unknown."""

    def feed(self, wire: bytes) -> bytes:
        """
        Take bytes and return the part that belongs to the body.

        @raise BadRequest: If they break the framing.
        """


class SizedDecoder:
    """
    A body of known length.

    @ivar remaining: The number of bytes still to come.
    @ivar complete: Whether the body is complete.
    @ivar rest: The bytes received after the end.
    """

    __slots__ = ("complete", "remaining", "rest")

    isBehind = False
    trailers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.complete = length == 0
        self.rest = b""

    def feed(self, wire: bytes) -> bytes:
        """Take bytes and return the part that belongs to the body."""
        size = len(wire)
        if size < self.remaining:
            self.remaining -= size
            return wire
        payload = wire
        if size > self.remaining:
            payload = wire[: self.remaining]
            self.rest = wire[self.remaining :]
        self.remaining = 0
        self.complete = True
        return payload


class ChunkedDecoder:
    """
    A body in chunks.

    @ivar remaining: C{None}: the number of bytes to come is unknown.
    @ivar complete: Whether the body is complete.
    @ivar rest: The bytes received after the end.
    @ivar isBehind: Whether the last call has left bytes: it decodes L{MAX_CHUNKS}.
    @ivar trailers: The fields after the last chunk, names in lower case.
    """

    __slots__ = (
        "_chunk",
        "_limits",
        "_state",
        "_trailerSize",
        "_wire",
        "complete",
        "isBehind",
        "rest",
        "trailers",
    )

    remaining: int | None = None

    def __init__(self, limits: HTTPLimits) -> None:
        self._limits = limits
        self._wire = b""
        # A plain function, as a bound method would make a reference cycle.
        self._state = ChunkedDecoder._readSize
        self._chunk = 0
        self._trailerSize = 0
        self.complete = self.isBehind = False
        self.rest = b""
        self.trailers: tuple[tuple[bytes, bytes], ...] = ()

    def feed(self, wire: bytes) -> bytes:
        """
        Take bytes and return the part that belongs to the body.

        @param wire: Received bytes, in pieces of any size; none to continue while L{isBehind}.
        @raise BadRequest: If they break the framing. Body bytes decoded in the same call are lost.
        """
        self._wire = self._wire + wire if self._wire else wire
        payload: list[bytes] = []
        position = 0
        self.isBehind = False
        while not self.complete:
            after = self._state(self, position, payload)
            if after is None:
                break
            position = after
            if len(payload) >= MAX_CHUNKS and position < len(self._wire):
                self.isBehind = True
                break
        if self.complete:
            self.rest = self._wire[position:]
            self._wire = b""
        else:
            self._wire = self._wire[position:]
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _readSize(self, position: int, payload: list[bytes]) -> int | None:
        end = self._lineEnd(position, _MAX_CHUNK_LINE)
        if end is None:
            if not _CHUNK_LINE_BEGINNING.fullmatch(self._wire, position):
                raise BadRequest(400, "A chunk size is malformed")
            return None
        match = _CHUNK_LINE.fullmatch(self._wire, position, end)
        if match is None:
            raise BadRequest(400, "A chunk size is malformed")
        self._chunk = int(match.group(1), 16)
        if self._chunk > _MAX_LENGTH:
            raise BadRequest(400, "A chunk size is too large")
        state = ChunkedDecoder._readData if self._chunk else ChunkedDecoder._readTrailer
        self._state = state
        return end + 2

    def _readData(self, position: int, payload: list[bytes]) -> int | None:
        available = len(self._wire) - position
        if not available:
            return None
        taken = min(self._chunk, available)
        whole = taken == len(self._wire)
        payload.append(self._wire if whole else self._wire[position : position + taken])
        self._chunk -= taken
        if not self._chunk:
            self._state = ChunkedDecoder._readDataEnd
        return position + taken

    def _readDataEnd(self, position: int, payload: list[bytes]) -> int | None:
        ending = self._wire[position : position + 2]
        if not b"\r\n".startswith(ending):
            raise BadRequest(400, "A chunk is longer than its size")
        if len(ending) < 2:
            return None
        self._state = ChunkedDecoder._readSize
        return position + 2

    def _readTrailer(self, position: int, payload: list[bytes]) -> int | None:
        end = self._lineEnd(position, self._limits.trailerSize - self._trailerSize)
        if end is None:
            return None
        self._trailerSize += end + 2 - position
        if end == position:
            self.complete = True
        else:
            match = _TRAILER.fullmatch(self._wire, position, end)
            if match is None:
                raise BadRequest(400, "A trailer field is malformed")
            self.trailers += ((match.group(1).lower(), match.group(2).rstrip(b" \t")),)
        return end + 2

    def _lineEnd(self, position: int, limit: int) -> int | None:
        """Find the end of a line, or refuse one that is too long or ends in a bare CR or LF."""
        end = self._wire.find(b"\n", position, position + limit)
        if end < 0:
            if len(self._wire) - position >= limit:
                raise BadRequest(400, "A line of the chunked coding is too long")
            return None
        if end == position or self._wire[end - 1] != 0x0D:
            raise BadRequest(400, "A line does not end in CRLF")
        return end - 1


class RequestBody:
    """
    The body of a request: complete, or still arriving.

    C{async for chunk in body} reads it in pieces, C{await body.read(limit)} whole. If the client
    disconnects, the read raises L{BodyLost<storagegate.net.http.interfaces.BodyLost>}.

    @ivar length: The declared length in bytes, or C{None} for a chunked body.
    @ivar complete: Whether the body has arrived completely, or was lost.
    @ivar taken: The number of bytes read.
    @ivar trailers: The fields after a chunked body, once it is complete; names in lower case.
    """

    __slots__ = ()

    length: int | None
    complete: bool
    taken: int
    trailers: tuple[tuple[bytes, bytes], ...]

    def readAvailable(self) -> bytes | None:
        """
        Return the unread bytes if the body is complete, so that a small body needs no waiting.

        @return: C{None} if the body is incomplete or lost.
        """
        raise NotImplementedError

    async def read(self, limit: int, isHeld: bool = False) -> bytes:
        """
        Read the whole body.

        @param limit: The maximum length in bytes.
        @param isHeld: Whether its bytes continue to count as held until L{hold} is called, because
            the request is not dispatched yet.
        @raise BodyTooLarge: If it is longer; before any byte is read if the length is declared.
        @raise BodyLost: If the client disconnects.
        @raise TooMuchHeld: If all requests together hold too many bytes.
        """
        if self.length is not None and self.length > limit:
            raise BodyTooLarge(limit)
        content = HeldBuffer()
        try:
            async for chunk in self:
                if content.size + len(chunk) > limit:
                    raise BodyTooLarge(limit)
                content.append(chunk)
                self.hold(content.size)
        except BaseException:
            isHeld = False
            content.clear()
            raise
        finally:
            if not isHeld:
                self.hold(0)
        return content.take()

    def hold(self, size: int) -> None:
        """
        Account for bytes that the reader keeps until the request is dispatched; see L{HeldBytes}.

        The end of the request resets the account. A body that arrives complete in one read never
        counts.

        @param size: The total number of such bytes.
        """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Drop unread bytes; further reads raise C{error}. Does nothing to a complete body."""
        raise NotImplementedError


class CompleteBody(RequestBody):
    """A body that arrived together with its head."""

    __slots__ = ("_content", "length", "taken")

    complete = True
    trailers = ()

    def __init__(self, content: bytes) -> None:
        self.length = len(content)
        self.taken = 0
        self._content = content

    def readAvailable(self) -> bytes:
        """Return the unread bytes."""
        content, self._content = self._content, b""
        self.taken += len(content)
        return content

    async def __anext__(self) -> bytes:
        if not self._content:
            raise StopAsyncIteration
        return self.readAvailable()

    def fail(self, error: BaseException) -> None:
        """Do nothing: all of it has arrived."""


NO_BODY = CompleteBody(b"")
"""The body of a request without one; it is immutable, so all such requests share it."""


# A reader that has fallen behind gets small pieces joined: a client that sends two bytes at a time
# would otherwise occupy twenty times their memory.
_SMALL_PIECE = 1024
_JOINED_PIECE = 4096


@implementer(IPushProducer)
class ArrivingBody(BoundedStream[bytes], RequestBody):
    """
    A body that is decoded as it arrives: a stream that is its own producer.

    @ivar isWanted: Whether it may still be read; see L{discard}.
    @ivar isWhole: Whether its reader waits for all of it.
    @ivar kept: Bytes that count as held, see L{hold}.
    @ivar owesContinue: Whether the client waits for C{100 Continue}.
    """

    __slots__ = (
        "_channel",
        "_decoder",
        "_limits",
        "_received",
        "isWanted",
        "isWhole",
        "kept",
        "length",
        "owesContinue",
        "taken",
        "trailers",
    )

    def __init__(
        self,
        head: RequestHead,
        channel: IRequestChannel,
        limits: HTTPLimits,
        decoder: MessageBodyDecoder | None = None,
    ) -> None:
        """
        @param decoder: Decodes the framing of the body; by default, that of HTTP/1.1.
        """
        BoundedStream.__init__(self, limits.bodyBuffer, self, sizeOf=len)
        self.length = length = head.contentLength
        self.taken = 0
        self.trailers = ()
        self.isWanted = True
        self.isWhole = False
        self.kept = 0
        self.owesContinue = head.expectsContinue
        self._channel = channel
        self._limits = limits
        self._received = 0
        self._decoder: MessageBodyDecoder
        if decoder is not None:
            self._decoder = decoder
        else:
            self._decoder = ChunkedDecoder(limits) if length is None else SizedDecoder(length)

    # For readers

    @property
    def complete(self) -> bool:  # type: ignore[override]
        """Return whether the body has arrived completely, or was lost."""
        return self.isEnded

    def readAvailable(self) -> bytes | None:
        """Return the unread bytes, or C{None} if the body is incomplete."""
        if not self.isEnded or self.error is not None:
            return None
        content = b"".join(self.takeAll())
        self.taken += len(content)
        return content

    async def __anext__(self) -> bytes:
        # As getAll(), but without a coroutine and a list for each read.
        while not self.held:
            if self.error is not None:
                raise untraced(self.error)
            if self.isEnded:
                raise StopAsyncIteration
            await self.readable()
        items = self._items
        chunk = items[0] if len(items) == 1 else b"".join(items)
        items.clear()
        self.held = 0
        if self._isPaused:
            self._released()
        self.taken += len(chunk)
        return chunk

    async def read(self, limit: int, isHeld: bool = False) -> bytes:
        """Read the whole body; see L{RequestBody.read}. The channel enforces a deadline."""
        self.isWhole = True
        return await super().read(limit, isHeld)

    def hold(self, size: int) -> None:
        """Account for bytes that the reader keeps."""
        if size != self.kept and (self.kept or not self.isEnded):
            self.kept = size
            self._channel.holdBody(self, size)

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """Fail unless the body is complete; see L{IByteHolder}."""
        if not self.isEnded:
            self.fail(error)
            self.hold(0)

    # For the channel

    @property
    def isReceived(self) -> bool:
        """Return whether the end of the body was received, even if discarded."""
        return self._decoder.complete

    def feed(self, data: bytes) -> bytes:
        """
        Decode a part of the body.

        @param data: Received bytes, possibly beyond the end of the body.
        @return: The bytes after the body.
        @raise BadRequest: If its framing is broken.
        """
        if data:
            # RFC 9110 section 10.1.1: a client that has begun to send no longer needs a 100.
            self.owesContinue = False
        self._received += len(data)
        decoder = self._decoder
        payload = decoder.feed(data)
        if self.isWanted:
            if decoder.complete:
                self.trailers = decoder.trailers
                if payload:
                    self.put(payload, last=True)
                else:
                    self.end()
            elif payload:
                if len(payload) < _SMALL_PIECE and self._items:
                    payload = self._joined(payload)
                self.put(payload)
        return decoder.rest

    def _joined(self, piece: bytes) -> bytes:
        """Join a small piece with the last one that waits, if it is not long."""
        last = self._items[-1]
        if len(last) >= _JOINED_PIECE:
            return piece
        del self._items[-1]
        self.held -= len(last)
        return last + piece

    def discard(self) -> None:
        """
        Drop unread bytes, and the rest as it arrives, because the request has ended.

        A waiting reader gets L{BodyLost}, as nothing else would resume it.
        """
        self.isWanted = False
        self.fail(BodyLost("the request ended before its body was read"))

    @property
    def isBehind(self) -> bool:
        """Return whether received bytes are left to decode; L{feed} without bytes continues."""
        return self._decoder.isBehind

    @property
    def isFull(self) -> bool:
        """Return whether its reader has fallen behind."""
        return self._isPaused and not self.isEnded

    def isLarge(self) -> bool:
        """Return whether more bytes are to come than a few small reads deliver."""
        remaining = self._decoder.remaining
        return remaining is None or remaining > self._limits.drainedBody

    def blocksNext(self) -> bool:
        """
        Return whether the connection has to close if the response is sent now.

        It has to close if too much of the body is to come. It also has to if the client waits for
        C{100 Continue}: the client may send its body next, or another request, and the two are
        indistinguishable.
        """
        return not self._decoder.complete and (self.owesContinue or self.isLarge())

    def progress(self) -> int:
        """Return the received bytes in units of progress."""
        return self._received // self._limits.progressSize

    # For the stream

    def resumeProducing(self) -> None:
        """Resume reading."""
        self._channel.resumeBody()

    def pauseProducing(self) -> None:
        """Pause reading."""
        self._channel.pauseBody()

    def stopProducing(self) -> None:
        """Never called: a stream does not stop its producer."""
