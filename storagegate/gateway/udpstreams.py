"""Streams that come in datagrams: in any order, some twice, some never."""

from typing import Any

WINDOW = 64
"""How far ahead of the next item one may be: what a network mixes up is much less."""


class Reorder:
    """
    Puts the items of a client's stream in order.

    The frames of a stream say by C{seq} which item they have, from 0 on; the end's C{seq} is how
    many there were.
    """

    def __init__(self) -> None:
        self._next = 0
        self._held: dict[int, Any] = {}
        self._count: int | None = None

    def put(self, seq: int, item: Any) -> bool:
        """
        Take an item.

        @return: Whether it is a new one, and within the window.
        """
        if not self._next <= seq < self._next + WINDOW or seq in self._held:
            return False
        if self._count is not None and seq >= self._count:
            return False
        self._held[seq] = item
        return True

    def end(self, count: int | None) -> None:
        """
        Take the end.

        @param count: How many items there are; C{None} for those that have come.
        """
        if self._count is None:
            self._count = max(self._held, default=self._next - 1) + 1 if count is None else count

    def isKnown(self, seq: int) -> bool:
        """Tell whether an item has come before."""
        return 0 <= seq < self._next or seq in self._held

    @property
    def missing(self) -> int:
        """Count the items that have not come, though later ones or the end have."""
        last = max(self._held, default=self._next - 1)
        # Whoever names a far end has not lost what nobody would have taken.
        count = min(max(last + 1, self._count or 0), self._next + WINDOW)
        return count - self._next - len(self._held)

    @property
    def hasNext(self) -> bool:
        """Tell whether the next item is here."""
        return self._next in self._held

    def take(self) -> Any:
        """Give the next item."""
        item = self._held.pop(self._next)
        self._next += 1
        return item

    @property
    def isAtEnd(self) -> bool:
        """Tell whether all items have been taken."""
        return self._count is not None and self._next >= self._count
