"""
Streams of items in HTTP bodies.

A stream is newline-delimited JSON (U{https://github.com/ndjson/ndjson-spec}): bare items in
requests, C{{"data": item}} in responses, and optionally an error as the last line. Clients that
accept C{text/event-stream}, above all browsers' C{EventSource}, receive events (HTML standard,
section 9.2): C{data: item}, and optionally C{event: error} at the end.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"


class LineTooLong(Exception):
    """A line exceeds the limit."""


class NDJSONDecoder:
    """
    Splits a body into lines that end in C{\\n} or C{\\r\\n}. Blank lines are skipped.

    An incomplete line is kept in pieces, so that many small ones cost no more than one.
    """

    def __init__(self, maxLength: int) -> None:
        """@param maxLength: Maximum number of bytes of a line."""
        self._maxLength = maxLength
        self._pieces: list[bytes] = []
        self.held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """
        Process a part of the body.

        @param data: Received bytes, with any number of line ends.
        @return: The lines that end in it.
        @raise LineTooLong: If a line exceeds the limit.
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
        Process the end of the body.

        @return: The last line, if it had no line end.
        @raise LineTooLong: If it exceeds the limit.
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


class StreamFormat(Struct, frozen=True):
    """
    The format of streamed responses.

    @ivar fields: The header fields by name in lower case.
    @ivar shape: Returns the JSON form of an item.
    @ivar item: Frames an encoded item.
    @ivar error: Frames an encoded error.
    """

    fields: dict[str, tuple[str, str]]
    shape: Callable[[Any], Any]
    item: Callable[[bytes], bytes]
    error: Callable[[bytes], bytes]


def _fields(contentType: str) -> dict[str, tuple[str, str]]:
    return {
        "content-type": ("Content-Type", contentType),
        "cache-control": ("Cache-Control", "no-cache"),
        # nginx would buffer items until it has several pages.
        "x-accel-buffering": ("X-Accel-Buffering", "no"),
    }


def lineFormat(shape: Callable[[Any], Any]) -> StreamFormat:
    """
    Make the newline-delimited JSON format.

    @param shape: Returns the JSON form of an item.
    """
    return StreamFormat(_fields(NDJSON), shape, b"%b\n".__mod__, b"%b\n".__mod__)


EVENT_STREAM = StreamFormat(
    _fields(EVENTS),
    lambda item: item,
    b"data: %b\n\n".__mod__,
    b"event: error\ndata: %b\n\n".__mod__,
)
