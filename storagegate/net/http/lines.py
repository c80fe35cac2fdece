"""
Streams in the bodies of HTTP.

A stream is lines of JSON (U{https://github.com/ndjson/ndjson-spec}): requests bare, responses
C{{"data": item}}, and as the last line perhaps an error. To clients that accept
C{text/event-stream}, browsers' C{EventSource} above all, responses go as events (HTML standard,
section 9.2): C{data: item}, and perhaps C{event: error} in the end.
"""

from collections.abc import Callable
from typing import Any

from attrs import frozen

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"


class LineTooLong(Exception):
    """A line is longer than lines may be."""


class NDJSONDecoder:
    """
    Splits a body into lines, whose ends are C{\\n} or C{\\r\\n}. Blank lines are passed over.

    A line that has not ended yet is held in pieces, so that many small ones cost no more than one.
    """

    def __init__(self, maxLength: int) -> None:
        """
        @param maxLength: Bytes of a line.
        """
        self._maxLength = maxLength
        self._pieces: list[bytes] = []
        self.held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """
        Take a part of the body.

        @param data: Bytes as they came, with any number of line ends.
        @return: The lines that end in it.
        @raise LineTooLong: If one is longer than lines may be.
        """
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = self._whole(ended[0])
        self.held += len(rest)
        if rest:
            self._pieces.append(rest)
        if self.held > self._maxLength + 1 or any(map(self._isTooLong, ended)):
            raise LineTooLong
        return [line for line in map(_stripped, ended) if line]

    def end(self) -> list[bytes]:
        """
        Take the end of the body.

        @return: The last line, if it has not ended.
        @raise LineTooLong: If it is longer than lines may be.
        """
        return self.feed(b"\n")

    def _whole(self, last: bytes) -> bytes:
        pieces, self._pieces = self._pieces, []
        self.held = 0
        return b"".join([*pieces, last]) if pieces else last

    def _isTooLong(self, line: bytes) -> bool:
        return len(line) > self._maxLength and len(_stripped(line)) > self._maxLength


def _stripped(line: bytes) -> bytes:
    return line.strip(b" \t\r")


@frozen
class StreamFormat:
    """
    How responses go out.

    @ivar fields: The header fields, by their names in lower case.
    @ivar shape: Gives what JSON carries of an item.
    @ivar item: Writes an item that is JSON.
    @ivar error: Writes an error.
    """

    fields: dict[str, tuple[str, str]]
    shape: Callable[[Any], Any]
    item: Callable[[bytes], bytes]
    error: Callable[[bytes], bytes]


def _fields(contentType: str) -> dict[str, tuple[str, str]]:
    return {
        "content-type": ("Content-Type", contentType),
        "cache-control": ("Cache-Control", "no-cache"),
        # nginx would hold items back until it has some pages of them.
        "x-accel-buffering": ("X-Accel-Buffering", "no"),
    }


def lineFormat(shape: Callable[[Any], Any]) -> StreamFormat:
    """
    Make the format of lines of JSON.

    @param shape: Returns what a line carries of an item.
    """
    return StreamFormat(_fields(NDJSON), shape, b"%b\n".__mod__, b"%b\n".__mod__)


EVENT_STREAM = StreamFormat(
    _fields(EVENTS),
    lambda item: item,
    b"data: %b\n\n".__mod__,
    b"event: error\ndata: %b\n\n".__mod__,
)
