"""
The output of a connection of HTTP/2: frames, and the streams whose DATA waits.

DATA is cut into frames when it is taken, by both windows (RFC 9113 section 5.2); so the messages of
a turn share frames. Streams are served in the order of RFC 9218 section 10: those of the lowest
urgency that can send; among these first, one after the other, the streams that are not incremental,
then the others by turns.
"""

from collections import deque

from storagegate.net.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    frame,
    packHeader,
)
from storagegate.net.http2.settings import DEFAULT_FRAME, INITIAL_WINDOW
from storagegate.net.http2.stream import LEVELS, Stream

# Our frames are never longer than the least maximum of a peer, so that streams take turns.
_SIZE = DEFAULT_FRAME


class OutputQueue:
    """
    The output of one connection.

    @ivar frames: Frames to send next, as bytes in any pieces.
    @ivar prefix: The start of the next header block.
    @ivar sendWindow: The number of bytes of DATA that the peer accepts on all streams.
    @ivar sentFrames: The number of DATA frames that were taken.
    @ivar sentBytes: The number of bytes that they had.
    """

    __slots__ = (
        "_levels",
        "_ready",
        "_room",
        "frames",
        "prefix",
        "sendWindow",
        "sentBytes",
        "sentFrames",
    )

    def __init__(self) -> None:
        self.frames: list[bytes | memoryview] = []
        self.prefix = b""
        self.sendWindow = INITIAL_WINDOW
        self.sentFrames = self.sentBytes = 0
        # By level, the streams that have DATA queued and a window for it.
        self._ready: list[dict[Stream, None]] = [{} for _ in range(LEVELS)]
        # A bit for each level that has a stream.
        self._levels = 0
        # Bytes of whole bodies that may be written before the next output is taken.
        self._room = 0

    def add(self, stream: Stream) -> None:
        """Add a stream, if it has DATA and a window."""
        if stream.queued and stream.sendWindow > 0:
            level = stream.level
            self._ready[level][stream] = None
            self._levels |= 1 << level

    def remove(self, stream: Stream) -> None:
        """Remove a stream, if it is present."""
        if self._levels:
            level = stream.level
            streams = self._ready[level]
            streams.pop(stream, None)
            if not streams:
                self._levels &= ~(1 << level)

    @property
    def canSend(self) -> bool:
        """Return whether L{take} would return something, given a budget."""
        return bool(self.frames or (self._levels and self.sendWindow > 0))

    def writeBlock(self, number: int, block: bytes, isEnd: bool) -> None:
        """
        Write a header block (RFC 9113 section 4.3).

        @param isEnd: Whether it ends the stream.
        """
        if self.prefix:
            block = self.prefix + block
            self.prefix = b""
        size = len(block)
        flags = END_STREAM if isEnd else 0
        if size <= _SIZE:
            self.frames.append(packHeader(size << 8 | HEADERS, flags | END_HEADERS, number) + block)
            return
        self.frames.append(frame(HEADERS, flags, number, block[:_SIZE]))
        for at in range(_SIZE, size, _SIZE):
            ends = END_HEADERS if at + _SIZE >= size else 0
            self.frames.append(frame(CONTINUATION, ends, number, block[at : at + _SIZE]))

    def writeBody(self, stream: Stream, body: bytes, isEnd: bool) -> bool:
        """
        Write a whole body, if nothing has to wait.

        This spares a small response the queue: 1 us of 5. The budget of the last L{take} limits how
        many bytes are written so, as the transport may be full.

        @param body: Not empty.
        @param isEnd: Whether it ends the stream.
        @return: Whether it was written.
        """
        size = len(body)
        if (
            size > _SIZE
            or size > self._room
            or size > stream.sendWindow
            or size > self.sendWindow
            or stream.queued
            or self._levels
        ):
            return False
        self._room -= size
        stream.sendWindow -= size
        self.sendWindow -= size
        stream.sent += size
        self.sentFrames += 1
        self.sentBytes += size
        flags = END_STREAM if isEnd else 0
        self.frames.append(packHeader(size << 8 | DATA, flags, stream.id) + body)
        return True

    def writeEnd(self, number: int) -> None:
        """Write the end of a stream without queued DATA."""
        self.frames.append(packHeader(DATA, END_STREAM, number))

    def take(self, budget: int, served: list[Stream]) -> bytes:
        """
        Return the next bytes to send.

        @param budget: About how many bytes of DATA to add.
        @param served: Paused or counted streams that have sent DATA are added to it.
        """
        self._room = budget
        while budget > 0 and self._levels and self.sendWindow > 0:
            level = (self._levels & -self._levels).bit_length() - 1
            streams = self._ready[level]
            if len(streams) == 1:
                budget -= self._send(next(iter(streams)), budget, served)
            elif level % 2:
                for stream in list(streams):
                    budget -= self._send(stream, min(budget, _SIZE), served)
                    if budget <= 0 or self.sendWindow <= 0:
                        break
            else:
                budget -= self._send(min(streams, key=_number), budget, served)
            if not streams:
                self._levels &= ~(1 << level)
        output, self.frames = self.frames, []
        return output[0] if len(output) == 1 and type(output[0]) is bytes else b"".join(output)

    def _send(self, stream: Stream, most: int, served: list[Stream]) -> int:
        """Send up to C{most} bytes of a stream, and put it at the end of the order."""
        streams = self._ready[stream.level]
        del streams[stream]
        count = min(stream.queued, stream.sendWindow, self.sendWindow, most)
        if count <= 0:
            # Its window was made smaller; an update will add it again.
            return 0
        stream.sendWindow -= count
        self.sendWindow -= count
        stream.queued -= count
        stream.connection.waiting -= count
        stream.sent += count
        isEnd = stream.isEnding and not stream.queued
        self._writeData(stream, count, isEnd and stream.trailers is None)
        if stream.isPaused or stream.counted is not None:
            served.append(stream)
        if isEnd:
            if stream.trailers is not None:
                self.writeBlock(stream.id, stream.trailers, True)
            stream.connection.localEnded(stream)
        elif stream.queued and stream.sendWindow > 0:
            streams[stream] = None
        return count

    def _writeData(self, stream: Stream, count: int, isEnd: bool) -> None:
        """Write queued bytes as DATA frames."""
        output, queue, number = self.frames, stream.queue, stream.id
        self.sentFrames += (count + _SIZE - 1) // _SIZE
        self.sentBytes += count
        while count > _SIZE:
            output.append(packHeader(_SIZE << 8 | DATA, 0, number))
            _move(queue, _SIZE, output)
            count -= _SIZE
        output.append(packHeader(count << 8 | DATA, END_STREAM if isEnd else 0, number))
        if stream.queued:
            _move(queue, count, output)
        else:
            output.extend(queue)
            queue.clear()


def _number(stream: Stream) -> int:
    return stream.id


def _move(queue: deque[bytes | memoryview], count: int, output: list[bytes | memoryview]) -> None:
    """Move bytes from a queue to the output without copying them."""
    while count:
        piece = queue.popleft()
        size = len(piece)
        if size > count:
            view = memoryview(piece)
            output.append(view[:count])
            queue.appendleft(view[count:])
            return
        output.append(piece)
        count -= size
