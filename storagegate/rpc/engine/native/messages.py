"""
Messages in the body of a stream: a flag, the length in four bytes, and the bytes.

A message may be cut into any number of DATA frames, and a frame may have several messages.
"""

import zlib
from struct import Struct

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.core.heldbytes import HeldBuffer
from storagegate.core.inflate import InflatedTooLarge, MalformedCoding, inflate

ENCODINGS = ("gzip", "deflate")
"""The compressed values of C{grpc-encoding}."""

PREFIX = 5
"""The bytes before each message."""

packPrefix = Struct(">BI").pack
"""Returns the prefix of a message from its flag and length."""

_readPrefix = Struct(">BI").unpack_from
_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]
_INTERNAL = GRPC_STATUSES["INTERNAL"]

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""The frame of the compressed data for zlib; C{deflate} is zlib's own frame, RFC 1950."""


class CompressedMessage(bytes):
    """A message with the flag 1, as it arrived."""

    __slots__ = ()


def tooLong(size: int, limit: int) -> GrpcError:
    """Return the error of a message over the limit."""
    return GrpcError(_EXHAUSTED, f"Received message larger than max ({size} vs. {limit})")


def tooLongToSend(size: int, limit: int) -> GrpcError:
    """Return the error of a message of our own over the limit."""
    return GrpcError(_EXHAUSTED, f"Sent message larger than max ({size} vs. {limit})")


def inflateMessage(encoding: str, wire: bytes, limit: int) -> bytes:
    """
    Inflate a message. Stops at the limit.

    @param encoding: One of L{ENCODINGS}.
    @param limit: The maximum length of the message in bytes.
    @raise GrpcError: If the message is longer, or damaged.
    """
    try:
        return inflate(encoding, wire, limit)
    except InflatedTooLarge:
        raise GrpcError(_EXHAUSTED, f"Received message larger than max ({limit})") from None
    except MalformedCoding:
        raise GrpcError(_INTERNAL, f"a message is not valid {encoding}") from None


def deflateMessage(encoding: str, message: bytes, level: int) -> bytes:
    """
    Compress a message. May run in a thread.

    @param encoding: One of L{ENCODINGS}.
    @param level: From 1 to 9; -1 for zlib's default.
    """
    stream = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[encoding])
    return stream.compress(message) + stream.flush()


class MessageDecoder:
    """
    Splits the body of a stream into messages.

    @ivar held: The bytes of the incomplete message, with its prefix.
    """

    __slots__ = ("_flag", "_isCompressed", "_limit", "_missing", "_partial", "_tail", "held")

    def __init__(self, limit: int, isCompressed: bool) -> None:
        """
        @param limit: The maximum length of a message on the wire in bytes.
        @param isCompressed: Whether the stream has a C{grpc-encoding}, so that messages may have
            the flag 1.
        """
        self.held = 0
        self._limit = limit
        self._isCompressed = isCompressed
        self._flag = self._missing = 0
        # The incomplete prefix, or the bytes of a message whose prefix was read.
        self._tail = b""
        self._partial: HeldBuffer | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """
        Add bytes of the body.

        @return: The messages that are now complete; compressed ones as L{CompressedMessage}.
        @raise GrpcError: If a message is too long, which its prefix says, or has a wrong flag.
        """
        messages: list[bytes] = []
        at, end = 0, len(data)
        if self.held:
            if self._partial is None:
                data = self._tail + data
                self._tail = b""
                end = len(data)
            else:
                at = self._continue(data, messages)
                if self._partial is not None:
                    return messages
        limit = self._limit
        while end - at >= PREFIX:
            flag, size = _readPrefix(data, at)
            if flag or size > limit:
                self._check(flag, size)
            begin = at + PREFIX
            at = begin + size
            if at > end:
                self._flag, self._missing = flag, at - end
                self._partial = HeldBuffer()
                self._partial.append(data[begin:])
                self.held = end - begin + PREFIX
                return messages
            message = data[begin:at]
            messages.append(CompressedMessage(message) if flag else message)
        self._tail = data[at:]
        self.held = end - at
        return messages

    def _continue(self, data: bytes, messages: list[bytes]) -> int:
        """Add bytes to the incomplete message; return how many belong to it."""
        partial = self._partial
        assert partial is not None
        if len(data) < self._missing:
            partial.append(data)
            self._missing -= len(data)
            self.held += len(data)
            return len(data)
        count = self._missing
        partial.append(data if len(data) == count else data[:count])
        message = partial.take()
        messages.append(CompressedMessage(message) if self._flag else message)
        self.clear()
        return count

    def _check(self, flag: int, size: int) -> None:
        if flag > 1:
            raise GrpcError(_INTERNAL, f"a message has the flag {flag}")
        if flag and not self._isCompressed:
            raise GrpcError(_INTERNAL, "a message is compressed, but the call has no grpc-encoding")
        if size > self._limit:
            raise tooLong(size, self._limit)

    def clear(self) -> None:
        """Forget the incomplete message."""
        if self._partial is not None:
            self._partial.clear()
            self._partial = None
        self._tail = b""
        self.held = self._missing = 0
