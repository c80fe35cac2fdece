"""A request body whose reader has fallen behind."""

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.parser import ArrivingBody, RequestHead


class _Channel:
    """A channel that pauses nothing."""

    connection: Any

    def __init__(self) -> None:
        self.connection = self

    def setReading(self, isReading: bool) -> None:
        """Do nothing."""

    def resumeBody(self) -> None:
        """Do nothing."""


def arriving(size: int) -> ArrivingBody:
    """Return a body of a declared size."""
    head = RequestHead()
    head.contentLength = size
    head.expectsContinue = False
    return ArrivingBody(head, _Channel(), HTTPLimits())  # type: ignore[arg-type]


class SmallPieceTests(SynchronousTestCase):
    """Pieces that arrive before they are read."""

    def test_memory(self) -> None:
        """64 KB in pieces of two bytes occupy little more than 64 KB."""
        body = arriving(65_534)
        pieces = [bytes([number % 251, 1]) for number in range(32_767)]
        tracemalloc.start()
        try:
            for piece in pieces:
                # Each read of the transport is its own object.
                body.feed(bytes(bytearray(piece)))
            used = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        self.assertLess(used, 80_000)
        self.assertEqual(body.readAvailable(), b"".join(pieces))

    @given(st.lists(st.sampled_from([1, 2, 1000, 1024, 3000, 5000]), max_size=30))
    def test_order(self, sizes: list[int]) -> None:
        """The bytes and their count are those that arrived."""
        body = arriving(sum(sizes) + 1)
        content = b""
        for number, size in enumerate(sizes):
            piece = bytes([number]) * size
            body.feed(piece)
            content += piece
            self.assertEqual(body.held, len(content))
        body.feed(b"!")
        self.assertEqual(body.readAvailable(), content + b"!")
