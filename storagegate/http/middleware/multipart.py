"""
Multipart forms as they come in (RFC 2046 section 5.1.1, RFC 7578)::

    body      = [preamble CRLF] "--" boundary 1*part "--" [epilogue]
    part      = CRLF head CRLF CRLF content CRLF "--" boundary
    delimiter = CRLF "--" boundary

Bytes in, events out: a L{PartHead}, the part's content as C{bytes} in pieces, L{PART_END}. However
the bytes are cut, the events are the same. The parser of the package C{multipart} is not used: what
it takes before the first boundary, after the last one and around a lone LF in a head depends on how
the bytes were cut, and it does not know C{filename*}.
"""

import enum
from collections.abc import Iterator

from storagegate.http.middleware.parthead import (
    BadMultipart,
    PartHead,
    parseParameters,
    parsePartHead,
)

BOUNDARY_SIZE = 70
"""RFC 2046 section 5.1.1."""

HEAD_SIZE = 16 * 1024
"""As much as a whole request may have; a long file name, percent-encoded, takes one."""

PADDING_SIZE = 16 * 1024
"""Before the first boundary and after the last nobody sends more than a line's end: a body whose
boundary is never found is given up early."""


class PartEnd(enum.Enum):
    """The end of a part."""

    PART_END = "end"


PART_END = PartEnd.PART_END

Event = PartHead | bytes | PartEnd


class _State(enum.Enum):
    PREAMBLE = enum.auto()
    HEAD = enum.auto()
    CONTENT = enum.auto()
    EPILOGUE = enum.auto()


def boundaryOf(contentType: str) -> str:
    """
    Give the boundary that a C{Content-Type} names.

    @raise BadMultipart: If it names none, or one that cannot be.
    """
    kind, parameters = parseParameters(contentType)
    if kind != "multipart/form-data":
        raise BadMultipart(f"{kind[:80]} is no form")
    boundary = parameters.get("boundary", "")
    if not boundary:
        raise BadMultipart("the form names no boundary")
    if len(boundary) > BOUNDARY_SIZE:
        raise BadMultipart(f"the form's boundary is longer than {BOUNDARY_SIZE} characters")
    # More than RFC 2046 allows: clients do not keep to its list. The end of a line must not be in.
    if not (boundary.isascii() and boundary.isprintable()) or boundary.endswith(" "):
        raise BadMultipart("the form's boundary has characters that it must not have")
    return boundary


class MultipartDecoder:
    """
    Splits one body.

    @ivar isComplete: Whether the last boundary has come.
    """

    __slots__ = ("_delimiter", "_padding", "_rest", "_state", "isComplete")

    def __init__(self, boundary: str) -> None:
        self.isComplete = False
        self._delimiter = b"\r\n--" + boundary.encode("ascii")
        self._state = _State.PREAMBLE
        # As if a line had ended before the body: then the first delimiter is like the others.
        self._rest = b"\r\n"
        self._padding = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """
        Take some bytes; give what they complete. To be read to its end before the next call.

        @raise BadMultipart: Where the form is malformed, after the events before that. No more is
            to be fed then.
        """
        buffer = self._rest + data
        position = 0
        while True:
            state = self._state
            if state is _State.CONTENT or state is _State.PREAMBLE:
                found = buffer.find(self._delimiter, position)
                end = found if found >= 0 else self._certain(buffer, position)
                if state is _State.PREAMBLE:
                    self._pad(end - position)
                elif end > position:
                    yield buffer[position:end]
                position = end
                if found < 0:
                    break
                if len(buffer) < found + len(self._delimiter) + 2:
                    break
                position += len(self._delimiter)
                self._delimited(buffer[position : position + 2])
                if state is _State.CONTENT:
                    yield PART_END
            elif state is _State.HEAD:
                # The line's end behind the boundary is still there: a head may have no line.
                end = buffer.find(b"\r\n\r\n", position)
                size = (end if end >= 0 else len(buffer) - 3) - position - 2
                if size > HEAD_SIZE:
                    raise BadMultipart(f"the head of a part is over {HEAD_SIZE} bytes", True)
                if end < 0:
                    break
                yield parsePartHead(buffer[position + 2 : end])
                position = end + 4
                self._state = _State.CONTENT
            else:
                self._pad(len(buffer) - position)
                position = len(buffer)
                break
        self._rest = buffer[position:]

    def close(self) -> None:
        """
        Hear that the body has ended.

        @raise BadMultipart: If the form has not.
        """
        if not self.isComplete:
            raise BadMultipart("the form ends before its last boundary")

    def _certain(self, buffer: bytes, position: int) -> int:
        """Tell where a delimiter may begin whose end has not come."""
        # A boundary has no CR, so that only the last one can begin the delimiter.
        start = max(position, len(buffer) - len(self._delimiter) + 1)
        candidate = buffer.rfind(b"\r", start)
        if candidate >= 0 and self._delimiter.startswith(buffer[candidate:]):
            return candidate
        return len(buffer)

    def _delimited(self, mark: bytes) -> None:
        if mark == b"\r\n":
            self._state = _State.HEAD
        elif mark == b"--":
            self._state = _State.EPILOGUE
            self._padding = 0
            self.isComplete = True
        else:
            raise BadMultipart("a boundary is followed by something else than its line's end")

    def _pad(self, count: int) -> None:
        self._padding += count
        if self._padding > PADDING_SIZE:
            where = "after its last" if self.isComplete else "before its first"
            raise BadMultipart(f"the form has over {PADDING_SIZE} bytes {where} boundary")
