"""
Lines of JSON on TCP: one message a line.

::

    line        = *OCTET LF             a CR before the LF is white space of JSON

Twisted's C{LineReceiver} searches and copies all that it holds for each piece that comes, so that
one of 15 MiB that comes byte by byte takes 25 ms a byte. This goes on where it stopped.
"""

from storagegate.gateway.frames import Decoder, FrameError


class LineDecoder(Decoder):
    """Finds the lines in a stream of bytes."""

    def __init__(self, maxLength: int) -> None:
        """
        @param maxLength: How long a line may be, without its end.
        """
        self._maxLength = maxLength
        # How many of the bytes held are known to have no end of a line.
        self._searched = 0

    def next(self) -> bytes | None:
        """
        Give the next line without its end; C{None} if it is not complete.

        @raise FrameError: If it is too long.
        """
        start = self._position
        end = self._data.find(b"\n", start + self._searched)
        if (self.held if end < 0 else end - start) > self._maxLength:
            limit = self._maxLength
            raise FrameError("PAYLOAD_TOO_LARGE", f"A line has {limit} bytes at most")
        if end < 0:
            self._searched = self.held
            return None
        self._searched = 0
        return self._cut(start, end, end + 1)
