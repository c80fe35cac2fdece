"""
Writes the head of a response.

What our own code gives as a header is checked on its way out: a value with a line end in it would
let a client write a header, or a whole response, of its own.
"""

import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from storagegate.core.scalars import parseDecimal
from storagegate.net.httperrors import BadRequest

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

_STATUS_LINES = {
    code: b"HTTP/1.1 %d %b\r\n" % (code, phrase.encode("ascii"))
    for code, phrase in _PHRASES.items()
    if code >= 200
}

_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_TEXT = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])

# Names that were found good, with their lower case. A program uses a few dozen; the bound is for
# one that makes names out of data.
_names: dict[bytes, bytes] = {}
_MAX_NAMES = 1024

_MAX_LENGTH = 2**63 - 1

_dateSecond = 0
_dateLine = b""


class Fields:
    """
    The fields of a response, checked.

    @ivar block: Their lines, without those named below.
    @ivar length: The value of Content-Length, if there was one. It is not in C{block}.
    @ivar closes: Whether there was a C{Connection: close}. Connection is not in C{block}.
    """

    __slots__ = ("block", "closes", "length")

    def __init__(self, block: bytes, length: int | None, closes: bool) -> None:
        self.block = block
        self.length = length
        self.closes = closes


def encodeFields(headers: Iterable[tuple[bytes, bytes]], start: bytes = b"") -> Fields:
    """
    Write header fields, and add C{Date}.

    @param start: Fields that are written and checked already, see L{checkedFields}.
    @raise ValueError: If a name is no token, a value has a control character, or framing is named
        that is the channel's to choose.
    """
    block = b""
    lines = 0
    length: int | None = None
    closes = False
    dated = False
    for name, value in headers:
        lowered = _names.get(name) or _checkName(name)
        if lowered == b"content-length":
            length = parseDecimal(value, _MAX_LENGTH)
            continue
        if lowered == b"connection":
            closes = closes or b"close" in value.lower()
            continue
        if lowered == b"transfer-encoding":
            raise ValueError("the transfer coding is chosen by the connection")
        if lowered == b"date":
            dated = True
        block += b"%b: %b\r\n" % (name, value)
        lines += 1
    # One pass over all lines costs less than one over each value.
    if block.translate(None, _TEXT) != b"\r\n" * lines:
        raise ValueError("a header value has a control character")
    return Fields(start + block if dated else start + block + dateLine(), length, closes)


def checkedFields(block: bytes) -> Fields:
    """
    Take fields that have been written and checked already, and add C{Date}.

    @param block: Their lines. Nothing in it is about framing, and none is C{Date}.
    """
    return Fields(block + dateLine(), None, False)


def phraseOf(code: int) -> str:
    """Give the usual words for a status, none for an unusual one."""
    return _PHRASES.get(code, "")


def statusLine(code: int, phrase: bytes = b"") -> bytes:
    """
    Write a status line.

    @param phrase: In place of the usual one.
    @raise ValueError: If this is no final status, or the phrase has a control character.
    """
    if not phrase and code in _STATUS_LINES:
        return _STATUS_LINES[code]
    if not 200 <= code <= 999:
        raise ValueError(f"{code} is not the status of a response")
    if phrase.translate(None, _TEXT):
        raise ValueError("a reason phrase has a control character")
    return b"HTTP/1.1 %d %b\r\n" % (code, phrase or b"Unknown")


class ReplyHead:
    """
    How the body of a response is framed (RFC 9112 section 6).

    @ivar silent: Whether no body is sent, whatever its length is said to be.
    @ivar chunked: Whether the body goes out in chunks.
    @ivar remaining: How long the body is, C{None} if nothing says so.
    @ivar closes: Whether the connection has to close after it.
    """

    __slots__ = ("_code", "_fields", "_length", "_version", "chunked", "closes", "silent")

    def __init__(
        self, method: bytes, version: bytes, code: int, fields: Fields, length: int | None
    ) -> None:
        """
        @param length: How long the body is, C{None} if that is not known.
        @raise ValueError: If the fields say another length.
        """
        if fields.length is not None:
            if method != b"HEAD" and code != 304 and length not in (None, fields.length):
                raise ValueError("the body and its Content-Length differ")
            length = fields.length
        elif code == 304:
            # What the length would be is not known; 0 would be a lie.
            length = None
        self._version = version
        self._code = code
        self._fields = fields
        self._length = length
        self.silent = method == b"HEAD" or code in (204, 304)
        unframed = length is None and not self.silent
        self.chunked = unframed and version == b"HTTP/1.1"
        self.closes = fields.closes or (unframed and not self.chunked)

    @property
    def remaining(self) -> int | None:
        """Say how many bytes have to follow."""
        return None if self.silent else self._length

    def encode(self, closes: bool, phrase: bytes) -> bytes:
        """
        Write the head.

        @param closes: Whether the connection closes after it.
        @param phrase: In place of the usual reason phrase, if not empty.
        """
        framing = b""
        if self.chunked:
            framing = b"Transfer-Encoding: chunked\r\n"
        elif self._length is not None and (self._code != 204 or self._fields.length == 0):
            # RFC 9110 section 8.6 wants none with 204, but some browsers wait for the 0 in answer
            # to a CORS preflight: one that is given is sent.
            framing = b"Content-Length: %d\r\n" % self._length
        if closes:
            framing += b"Connection: close\r\n"
        elif self._version == b"HTTP/1.0":
            framing += b"Connection: keep-alive\r\n"
        return b"%b%b%b\r\n" % (statusLine(self._code, phrase), self._fields.block, framing)


def dateLine() -> bytes:
    """Write the Date field. Made once a second: it costs more than the rest of a small head."""
    global _dateSecond, _dateLine
    second = int(time.time())
    if second != _dateSecond:
        _dateSecond = second
        _dateLine = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
    return _dateLine


def plainText(error: BadRequest) -> tuple[bytes, bytes]:
    """Give the content type and the body of a rejection where nobody wants another shape."""
    return b"text/plain; charset=utf-8", error.text.encode("ascii") + b"\n"


def rejection(error: BadRequest, contentType: bytes, body: bytes) -> bytes:
    """Write the whole response to a request that was no request. The connection closes after."""
    return b"".join(
        [
            statusLine(error.code),
            dateLine(),
            b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
            if error.code == 405
            else b"",
            b"Content-Type: %b\r\nContent-Length: %d\r\n" % (contentType, len(body)),
            b"Connection: close\r\n\r\n",
            body,
        ]
    )


def _checkName(name: bytes) -> bytes:
    if not name or not _TOKEN.issuperset(name):
        raise ValueError("a header name is no token")
    if len(_names) >= _MAX_NAMES:
        _names.clear()
    lowered = _names[name] = name.lower()
    return lowered
