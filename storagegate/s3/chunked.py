"""
Bodies in the C{aws-chunked} encoding::

    body    = *chunk last [trailer] CRLF
    chunk   = 1*16HEXDIG [signed] CRLF data CRLF        the size is not zero
    last    = 1*16"0" [signed] CRLF
    signed  = ";chunk-signature=" 64HEXDIG
    trailer = *(name ":" value [LF] CRLF) ["x-amz-trailer-signature:" 64HEXDIG CRLF]

Each chunk of a signed body carries the signature of its data and of the signature before it, the
first of them that of the request. The LF is there because Amazon's own example of a signed trailer
has it, and clients were written after that.
"""

import re
from collections.abc import Collection
from enum import Enum
from hashlib import sha256

from storagegate.core.scalars import parseDecimal
from storagegate.s3.chunksigner import ChunkSigner
from storagegate.s3.errors import S3Error, invalidArgument
from storagegate.s3.sigv4claims import STREAMING_SIGNED, STREAMING_UNSIGNED_TRAILER, Claim
from storagegate.s3.trailers import TRAILER_LIMIT, parseTrailer

LINE_LIMIT = 4096
"""Bytes of a chunk's line; 97 are the most that S3's own signatures need."""

SIZE_LIMIT = 1 << 63
"""A declared length has to be below this, so that it stays a number for every store."""

_UNSIGNED_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})")
_SIGNED_LINE = re.compile(rb"([0-9A-Fa-f]{1,16});chunk-signature=([0-9a-f]{64})")


def parseDecodedLength(value: bytes | None) -> int:
    """
    Read C{x-amz-decoded-content-length}.

    @raise S3Error: C{MissingContentLength} if it is not there, C{InvalidArgument} if it is no
        number.
    """
    if value is None:
        raise S3Error("MissingContentLength")
    try:
        return parseDecimal(value, SIZE_LIMIT - 1)
    except ValueError:
        text = "The decoded content length is not a number"
        raise invalidArgument(
            "x-amz-decoded-content-length", value.decode("latin-1"), text
        ) from None


class _State(Enum):
    LINE = "line"
    DATA = "data"
    DATA_END = "data end"
    TRAILER = "trailer"
    END = "end"
    FAILED = "failed"


class AwsChunkedDecoder:
    """
    Decode a body.

    Data is given out as it comes and before its chunk's signature was checked, so that memory does
    not depend on the size of a chunk: nothing may be made visible before L{finish} returned. The
    size of a chunk is bounded by what the declared length leaves. A decoder that raised takes
    nothing more.

    @ivar trailers: Values by lower-case name, once the body has ended.
    """

    def __init__(
        self,
        decodedLength: int,
        signer: ChunkSigner | None = None,
        trailerNames: Collection[bytes] = (),
    ) -> None:
        """
        @param decodedLength: What C{x-amz-decoded-content-length} declares.
        @param signer: Checks the chunks; L{None} for an unsigned body.
        @param trailerNames: Lower-case names of the trailers that C{x-amz-trailer} announces.
        """
        self.trailers: dict[bytes, bytes] = {}
        self._signer = signer
        self._trailerNames = frozenset(trailerNames)
        self._linePattern = _UNSIGNED_LINE if signer is None else _SIGNED_LINE
        self._state = _State.LINE
        self._pending = b""
        self._outstanding = decodedLength
        self._chunkLeft = 0
        self._signature = ""
        self._digest = sha256()

    def feed(self, data: bytes) -> list[bytes]:
        """
        Take the next bytes of the body.

        @return: Decoded data, in order.
        @raise S3Error: C{IncompleteBody} for what is not in the grammar or not of the declared
            length, C{SignatureDoesNotMatch}, C{InvalidRequest} for a trailer that is wrong.
        """
        pieces: list[bytes] = []
        state, self._state = self._state, _State.FAILED
        position, end = 0, len(data)
        while position < end:
            if state is _State.DATA:
                stop = min(end, position + self._chunkLeft)
                piece = data[position:stop]
                if self._signer is not None:
                    self._digest.update(piece)
                self._chunkLeft -= stop - position
                position = stop
                pieces.append(piece)
                if self._chunkLeft == 0:
                    state = _State.DATA_END
            elif state is _State.DATA_END:
                line, position = self._takeLine(data, position, 0)
                if line is not None:
                    self._checkChunk()
                    state = _State.LINE
            elif state is _State.LINE:
                line, position = self._takeLine(data, position, LINE_LIMIT)
                if line is not None:
                    state = self._beginChunk(line)
            elif state is _State.TRAILER:
                ended, position = self._takeTrailer(data, position)
                if ended:
                    state = _State.END
            else:
                raise S3Error("IncompleteBody", "There are bytes after the end of the body")
        self._state = state
        return pieces

    def finish(self) -> None:
        """
        Say that the body is over.

        @raise S3Error: C{IncompleteBody} if it ended before its last chunk and trailer.
        """
        if self._state is not _State.END:
            raise S3Error("IncompleteBody", "The request body terminated unexpectedly")

    def _takeLine(self, data: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
        """
        Take bytes up to and with a CRLF.

        @param limit: The largest length of the line.
        @return: The line, or L{None} while its end has not come; and the position behind.
        """
        # What is pending is short, and no more than a line is copied to it.
        window = self._pending + data[position : position + limit + 2 - len(self._pending)]
        found = window.find(b"\r\n")
        if found < 0:
            if len(window) == limit + 2:
                raise S3Error("IncompleteBody", "The body has no end of line where one must be")
            position += len(window) - len(self._pending)
            self._pending = window
            return None, position
        position += found + 2 - len(self._pending)
        self._pending = b""
        return window[:found], position

    def _beginChunk(self, line: bytes) -> _State:
        match = self._linePattern.fullmatch(line)
        if match is None:
            raise S3Error("IncompleteBody", "The line of a chunk is malformed")
        size = int(match[1], 16)
        if size > self._outstanding:
            raise S3Error("IncompleteBody", "The body is longer than its declared length")
        self._outstanding -= size
        self._chunkLeft = size
        if self._signer is not None:
            self._signature = match[2].decode()
        if size:
            return _State.DATA
        if self._outstanding:
            raise S3Error("IncompleteBody")
        self._checkChunk()
        return _State.TRAILER

    def _checkChunk(self) -> None:
        if self._signer is not None:
            self._signer.checkChunk(self._digest.hexdigest(), self._signature)
            self._digest = sha256()

    def _takeTrailer(self, data: bytes, position: int) -> tuple[bool, int]:
        """Take bytes up to and with the empty line; tell whether it has come."""
        window = self._pending + data[position : position + TRAILER_LIMIT - len(self._pending)]
        end = _trailerEnd(window)
        if not end:
            if len(window) == TRAILER_LIMIT:
                raise S3Error("InvalidRequest", "The trailer of the body is too long")
            position += len(window) - len(self._pending)
            self._pending = window
            return False, position
        position += end - len(self._pending)
        self._pending = b""
        self.trailers = parseTrailer(window[: end - 2], self._trailerNames, self._signer)
        return True, position


def _trailerEnd(window: bytes) -> int:
    """Find where the trailer ends; zero while its empty line has not come."""
    if window.startswith(b"\r\n"):
        return 2
    found = window.find(b"\r\n\r\n")
    return 0 if found < 0 else found + 4


def makeDecoder(
    claim: Claim, signingKey: bytes, decodedLength: int, trailerNames: Collection[bytes]
) -> AwsChunkedDecoder:
    """
    Make the decoder for a verified request whose payload is one of C{STREAMING}.

    @param signingKey: What verifying the claim returned.
    @raise S3Error: C{InvalidRequest} if a trailer is announced where the payload has none.
    """
    if claim.payloadHash == STREAMING_SIGNED and trailerNames:
        raise S3Error("InvalidRequest", f"A payload of {STREAMING_SIGNED} has no trailer")
    signed = claim.payloadHash != STREAMING_UNSIGNED_TRAILER
    signer = ChunkSigner(claim, signingKey) if signed else None
    return AwsChunkedDecoder(decodedLength, signer, trailerNames)
