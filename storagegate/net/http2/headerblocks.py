"""The frames around DATA and header blocks (RFC 9113 sections 6.1, 6.2 and 6.10)."""

from storagegate.net.http2.frames import END_HEADERS, END_STREAM, HAS_PRIORITY, PADDED
from storagegate.net.http2.interfaces import ConnectionFailure, ErrorCode


class HeaderBlockAssembler:
    """
    Joins the HEADERS frame and the CONTINUATION frames of a header block.

    @ivar stream: The stream whose block is incomplete; 0 for none. No other frame may come before
        the rest of it.
    @ivar endsStream: Whether the block that was begun last ends its stream.
    """

    __slots__ = ("_limit", "_pieces", "_size", "endsStream", "stream")

    def __init__(self, limit: int) -> None:
        """
        @param limit: The size of a block.
        """
        self.stream = 0
        self.endsStream = False
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def begin(self, number: int, flags: int, payload: bytes) -> bytes | None:
        """
        Take the payload of HEADERS.

        @return: The block, if it is complete.
        @raise ConnectionFailure: If the frame is malformed, or the block is too long.
        """
        if flags & PADDED:
            payload = removePadding(payload, 5 if flags & HAS_PRIORITY else 0)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
            # The priorities of RFC 7540 are deprecated (section 5.3.2).
            payload = payload[5:]
        self.endsStream = bool(flags & END_STREAM)
        if flags & END_HEADERS and len(payload) <= self._limit:
            return payload
        self.stream = number
        return self.add(flags, payload)

    def add(self, flags: int, payload: bytes) -> bytes | None:
        """
        Take the payload of CONTINUATION.

        @return: The block, if it is complete.
        @raise ConnectionFailure: If the block is too long.
        """
        self._pieces.append(payload)
        self._size += len(payload)
        if self._size > self._limit:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if not flags & END_HEADERS:
            return None
        block = b"".join(self._pieces)
        self.clear()
        return block

    def clear(self) -> None:
        """Forget an incomplete block."""
        self.stream = self._size = 0
        self._pieces.clear()


def removePadding(payload: bytes, least: int = 0) -> bytes:
    """
    Remove the padding of a payload.

    @param least: The bytes before the data, which padding cannot replace.
    @raise ConnectionFailure: If there is more padding than payload.
    """
    return payload[1 : sizeWithoutPadding(payload, len(payload), least) + 1]


def sizeWithoutPadding(payload: bytes, size: int, least: int = 0) -> int:
    """
    Return the number of bytes between the length of the padding and the padding.

    @param payload: The payload or its beginning.
    @param size: The length of the whole payload.
    @param least: As in L{removePadding}.
    @raise ConnectionFailure: If there is more padding than payload.
    """
    if not size:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame of the wrong size")
    rest = size - 1 - payload[0]
    if rest < least:
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return rest
