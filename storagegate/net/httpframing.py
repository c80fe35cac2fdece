"""
Finds the end of a request's body.

Both decoders are values: C{feed} takes bytes as they came and returns those of the body; what
follows the body is then in C{rest}.

RFC 9112 section 7.1::

    chunked-body = *chunk last-chunk trailer-section CRLF
    chunk        = chunk-size [ chunk-ext ] CRLF chunk-data CRLF
    last-chunk   = 1*"0" [ chunk-ext ] CRLF
"""

import re

from storagegate.net.httperrors import BadRequest
from storagegate.net.httplimits import HTTPLimits

# Sixteen hexadecimal digits fill 64 bits. Extensions mean nothing to anybody; a short one is
# passed over.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*)?")
_CHUNK_LINE_BEGINNING = re.compile(rb"(?:[0-9A-Fa-f]{1,16}(?:;[\t -~\x80-\xff]*)?\r?)?")
_MAX_CHUNK_LINE = 256
_MAX_CHUNK = 2**63 - 1

_TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t -~\x80-\xff]*)")


class SizedDecoder:
    """
    A body of known length.

    @ivar remaining: How many bytes are still to come.
    @ivar complete: Whether the end has come.
    @ivar rest: What came after the end.
    """

    __slots__ = ("complete", "remaining", "rest")

    trailers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.complete = length == 0
        self.rest = b""

    def feed(self, wire: bytes) -> bytes:
        """Take bytes and return those that belong to the body."""
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

    @ivar remaining: C{None}: nobody knows how many bytes are to come.
    @ivar complete: Whether the end has come.
    @ivar rest: What came after the end.
    @ivar trailers: The fields after the last chunk, names in lower case.
    """

    __slots__ = (
        "_chunk",
        "_limits",
        "_state",
        "_trailerSize",
        "_wire",
        "complete",
        "rest",
        "trailers",
    )

    remaining: int | None = None

    def __init__(self, limits: HTTPLimits) -> None:
        self._limits = limits
        self._wire = b""
        self._state = self._readSize
        self._chunk = 0
        self._trailerSize = 0
        self.complete = False
        self.rest = b""
        self.trailers: tuple[tuple[bytes, bytes], ...] = ()

    def feed(self, wire: bytes) -> bytes:
        """
        Take bytes and return those that belong to the body.

        @raise BadRequest: If they break the framing. What came before in the same call is lost.
        """
        self._wire = self._wire + wire if self._wire else wire
        payload: list[bytes] = []
        position = 0
        while not self.complete:
            after = self._state(position, payload)
            if after is None:
                break
            position = after
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
        if self._chunk > _MAX_CHUNK:
            raise BadRequest(400, "A chunk size is too large")
        self._state = self._readData if self._chunk else self._readTrailer
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
            self._state = self._readDataEnd
        return position + taken

    def _readDataEnd(self, position: int, payload: list[bytes]) -> int | None:
        ending = self._wire[position : position + 2]
        if not b"\r\n".startswith(ending):
            raise BadRequest(400, "A chunk is longer than its size")
        if len(ending) < 2:
            return None
        self._state = self._readSize
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
