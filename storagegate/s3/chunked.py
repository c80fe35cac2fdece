"""
Bodies in the C{aws-chunked} encoding::

    body    = *chunk last [trailer] CRLF
    chunk   = 1*16HEXDIG [signed] CRLF data CRLF        the size is not zero
    last    = 1*16"0" [signed] CRLF
    signed  = ";chunk-signature=" signature
    trailer = *(name ":" value [LF] CRLF) ["x-amz-trailer-signature:" signature CRLF]

A signature is 64 hexadecimal digits; any other visible text is a wrong signature. Each chunk of a
signed body carries a signature of its data and of the previous signature; the first chunk follows
the signature of the request. The LF is allowed because Amazon's own example of a signed trailer has
it, and clients imitate the example. A signature covers one of these strings::

    chunk   = "AWS4-HMAC-SHA256-PAYLOAD" LF context LF sha256("") LF sha256(data)
    trailer = "AWS4-HMAC-SHA256-TRAILER" LF context LF sha256(trailer)
    context = timestamp LF scope LF previous signature
"""

import re
from collections.abc import Collection
from enum import Enum
from hashlib import sha256

from storagegate.core.options import parseDecimal
from storagegate.objects.documents.fields import CHECKSUM_HEADERS
from storagegate.s3.auth.sigv4 import (
    STREAMING_SIGNED,
    STREAMING_UNSIGNED_TRAILER,
    SignatureParams,
    SigningKey,
    sameSignature,
    wrongSignature,
)
from storagegate.s3.errors import S3Error, invalidArgument

_EMPTY_DIGEST = sha256().hexdigest()


class ChunkSigner:
    """Checks the signatures of one body, in order."""

    def __init__(self, claim: SignatureParams, signingKey: SigningKey) -> None:
        """
        @param claim: The verified claim of the request; its signature seeds the chain.
        @param signingKey: The key that the verification returned.
        """
        self._claim = claim
        self._signingKey = signingKey
        self._context = f"{claim.timestamp}\n{claim.scope.text}"
        self._previous = claim.signature

    def check(self, kind: str, content: str, signature: str) -> None:
        """
        Check the next chunk, or the trailer.

        @param kind: C{PAYLOAD} or C{TRAILER}.
        @param content: The digests at the end of the string to sign.
        @param signature: The client's signature.
        @raise S3Error: C{SignatureDoesNotMatch}.
        """
        stringToSign = f"AWS4-HMAC-SHA256-{kind}\n{self._context}\n{self._previous}\n{content}"
        expected = self._signingKey.sign(stringToSign.encode())
        if not sameSignature(expected, signature):
            raise wrongSignature(self._claim.accessKey, signature, stringToSign)
        self._previous = expected


TRAILER_LIMIT = 8192
"""Largest trailer with its empty line, in bytes; a checksum and a signature need 200."""

_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)[ \t]*\n?"
)
_SIGNATURE = re.compile(rb"x-amz-trailer-signature:[ \t]*([\x21-\x7e]{1,128})[ \t]*", re.IGNORECASE)


def parseTrailer(
    lines: list[bytes], expected: frozenset[bytes], signer: ChunkSigner | None
) -> dict[bytes, bytes]:
    """
    Parse a trailer.

    @param lines: The lines without their CRLF.
    @param expected: Lower-case names of exactly the fields that the trailer must have.
    @param signer: Checks the signature; L{None} if the body is not signed.
    @return: Values by lower-case name, without the signature.
    @raise S3Error: C{InvalidRequest} if the trailer differs from its announcement,
        C{SignatureDoesNotMatch}.
    """
    signature = None
    # A body without announced trailers has no trailer signature either.
    if signer is not None and expected:
        match = _SIGNATURE.fullmatch(lines.pop()) if lines else None
        if match is None:
            raise _malformed("it is not signed")
        signature = match[1].decode()
    trailers: dict[bytes, bytes] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            raise _malformed("a line cannot be read")
        name = match[1].lower()
        if name in trailers:
            raise _malformed("a field comes twice")
        trailers[name] = match[2]
    if trailers.keys() != expected:
        raise _malformed("its fields are not those of x-amz-trailer")
    if signer is not None and signature is not None:
        canonical = b"".join(b"%b:%b\n" % field for field in trailers.items())
        signer.check("TRAILER", sha256(canonical).hexdigest(), signature)
    return trailers


def _malformed(detail: str) -> S3Error:
    return S3Error("InvalidRequest", f"The trailer of the request is not valid: {detail}")


LINE_LIMIT = 4096
"""Longest chunk line, in bytes; S3's own signatures need at most 97."""

SIZE_LIMIT = 1 << 63
"""The bound of a declared length, so that it stays a number for every store."""

_UNSIGNED_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})")
_SIGNED_LINE = re.compile(rb"([0-9A-Fa-f]{1,16});chunk-signature=([\x21-:<-~]{1,128})")


def parseDecodedLength(value: bytes | None) -> int:
    """Parse the required header C{x-amz-decoded-content-length}."""
    if value is None:
        raise S3Error("MissingContentLength")
    try:
        return parseDecimal(value, SIZE_LIMIT - 1)
    except ValueError:
        text = "The decoded content length is not a number"
        raise invalidArgument(
            "x-amz-decoded-content-length", value.decode("latin-1"), text
        ) from None


_NO_LINE = ("IncompleteBody", "The body has no end of line where one must be")
_LONG_TRAILER = ("InvalidRequest", "The trailer of the body is too long")


MAX_CHUNKS = 64
"""Maximum number of chunks that a call decodes, in half a millisecond: a read of 96 KiB may have
16,000, during which no other client would be served."""


class _ChunkState(Enum):
    LINE = "line"
    DATA = "data"
    DATA_END = "data end"
    TRAILER = "trailer"
    END = "end"
    FAILED = "failed"


class AwsChunkedDecoder:
    """
    Decodes a body.

    Data is returned as it arrives, before the signature of its chunk is checked, so that memory
    does not depend on the chunk size: no data may become visible before L{finish} returns. The rest
    of the declared length bounds the chunk size. After an error, a decoder accepts no more data.

    @ivar trailers: Values by lower-case name, after the body has ended.
    @ivar isBehind: Whether the last L{feed} has left bytes: it decodes L{MAX_CHUNKS}.
    """

    def __init__(
        self,
        decodedLength: int,
        signer: ChunkSigner | None = None,
        trailerNames: Collection[bytes] = (),
    ) -> None:
        """
        @param decodedLength: The value of C{x-amz-decoded-content-length}.
        @param signer: Checks the chunks; L{None} for an unsigned body.
        @param trailerNames: Lower-case names of the trailers that C{x-amz-trailer} announces.
        """
        self.trailers: dict[bytes, bytes] = {}
        self._signer = signer
        self._trailerNames = frozenset(trailerNames)
        self._trailerLeft = TRAILER_LIMIT - 2
        self._lines: list[bytes] = []
        self._linePattern = _UNSIGNED_LINE if signer is None else _SIGNED_LINE
        self._state = _ChunkState.LINE
        self._pending = b""
        self._rest = b""
        self.isBehind = False
        self._outstanding = decodedLength
        self._chunkLeft = 0
        self._signature = ""
        self._digest = sha256()

    @property
    def isSigned(self) -> bool:
        """Whether the chunks are signed."""
        return self._signer is not None

    def trailingChecksum(self, algorithm: str) -> bytes:
        """Return the checksum in the trailer, in Base64; empty if there was none."""
        return self.trailers.get(CHECKSUM_HEADERS[algorithm], b"")

    def feed(self, data: bytes) -> list[bytes]:
        """
        Decode the next bytes of the body.

        @param data: Received bytes; none to continue while L{isBehind}.
        @return: Decoded data, in order.
        @raise S3Error: C{IncompleteBody} for a body that violates the grammar or the declared
            length, C{SignatureDoesNotMatch}, C{InvalidRequest} for a wrong trailer.
        """
        pieces: list[bytes] = []
        state, self._state = self._state, _ChunkState.FAILED
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        while position < end and len(pieces) < MAX_CHUNKS:
            if state is _ChunkState.DATA:
                stop = min(end, position + self._chunkLeft)
                piece = data[position:stop]
                if self._signer is not None:
                    self._digest.update(piece)
                self._chunkLeft -= stop - position
                position = stop
                pieces.append(piece)
                if self._chunkLeft == 0:
                    state = _ChunkState.DATA_END
            elif state is _ChunkState.DATA_END:
                line, position = self._takeLine(data, position, 0)
                if line is not None:
                    self._checkChunk()
                    state = _ChunkState.LINE
            elif state is _ChunkState.LINE:
                line, position = self._takeLine(data, position, LINE_LIMIT)
                if line is not None:
                    state = self._beginChunk(line)
            elif state is _ChunkState.TRAILER:
                line, position = self._takeLine(data, position, self._trailerLeft, _LONG_TRAILER)
                if line:
                    self._trailerLeft -= len(line) + 2
                    self._lines.append(line)
                elif line is not None:
                    self.trailers = parseTrailer(self._lines, self._trailerNames, self._signer)
                    state = _ChunkState.END
            else:
                raise S3Error("IncompleteBody", "There are bytes after the end of the body")
        self._state = state
        self._rest = data[position:]
        self.isBehind = bool(self._rest)
        return pieces

    def finish(self) -> None:
        """Raise C{IncompleteBody} if the body ended before its last chunk and trailer."""
        assert not self.isBehind, "all of it is decoded"
        if self._state is not _ChunkState.END:
            raise S3Error("IncompleteBody", "The request body terminated unexpectedly")

    def _takeLine(
        self, data: bytes, position: int, limit: int, problem: tuple[str, str] = _NO_LINE
    ) -> tuple[bytes | None, int]:
        """
        Take bytes up to and including a CRLF.

        @param limit: The largest length of the line.
        @param problem: Code and message of the error for a longer line.
        @return: The line, or L{None} if it is incomplete; and the position after it.
        """
        # There are few pending bytes, and at most one line is added.
        window = self._pending + data[position : position + limit + 2 - len(self._pending)]
        found = window.find(b"\r\n")
        if found < 0:
            if len(window) == limit + 2:
                raise S3Error(*problem)
            position += len(window) - len(self._pending)
            self._pending = window
            return None, position
        position += found + 2 - len(self._pending)
        self._pending = b""
        return window[:found], position

    def _beginChunk(self, line: bytes) -> _ChunkState:
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
            return _ChunkState.DATA
        if self._outstanding:
            raise S3Error("IncompleteBody")
        self._checkChunk()
        return _ChunkState.TRAILER

    def _checkChunk(self) -> None:
        if self._signer is not None:
            content = f"{_EMPTY_DIGEST}\n{self._digest.hexdigest()}"
            self._signer.check("PAYLOAD", content, self._signature)
            self._digest = sha256()


def makeDecoder(
    claim: SignatureParams,
    signingKey: SigningKey,
    decodedLength: int,
    trailerNames: Collection[bytes],
) -> AwsChunkedDecoder:
    """
    Make the decoder for a verified request whose payload is one of C{STREAMING}.

    @param claim: The verified claim of the request.
    @param signingKey: The result of verifying the claim.
    @param decodedLength: Length of the decoded body, in bytes.
    @param trailerNames: Lower-case names of the announced trailers.
    @raise S3Error: C{InvalidRequest} if a trailer is announced but the payload type has none.
    """
    if claim.payloadHash == STREAMING_SIGNED and trailerNames:
        raise S3Error("InvalidRequest", f"A payload of {STREAMING_SIGNED} has no trailer")
    signed = claim.payloadHash != STREAMING_UNSIGNED_TRAILER
    signer = ChunkSigner(claim, signingKey) if signed else None
    return AwsChunkedDecoder(decodedLength, signer, trailerNames)
