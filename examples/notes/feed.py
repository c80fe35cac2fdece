"""The live feed: new notes for clients that are connected to this process."""

from collections.abc import AsyncIterator

from twisted.internet.defer import DeferredQueue

from .models import Note

_MAX_WAITING = 100
"""The notes that wait for a slow client, before its feed ends with an error."""


class Feed:
    """
    Passes new notes to subscribers.

    @ivar subscribers: The notes that each of them has not taken yet.
    """

    def __init__(self) -> None:
        self.subscribers: set[DeferredQueue[Note]] = set()

    def publish(self, note: Note) -> None:
        """Pass on a note."""
        for each in list(self.subscribers):
            each.put(note)

    async def subscribe(self) -> AsyncIterator[Note]:
        """Yield notes from now on."""
        waiting: DeferredQueue[Note] = DeferredQueue(size=_MAX_WAITING)
        self.subscribers.add(waiting)
        try:
            while True:
                yield await waiting.get()
        finally:
            self.subscribers.discard(waiting)


def makeFeed() -> Feed:
    """Make the feed of an application."""
    return Feed()
