"""The live feed: new notes, for connected clients."""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from twisted.internet.defer import DeferredQueue

from storagegate import server
from storagegate.http import Depends, Router, WebSocket

from .accounts import CurrentUser
from .models import Note

_MAX_WAITING = 100
"""The notes that wait for a slow client. A client that is slower misses the next ones."""


class Feed:
    """Passes new notes to the clients of all workers."""

    def __init__(self) -> None:
        self._clients: set[DeferredQueue[Note]] = set()
        server.subscribe("notes", lambda sent: self._deliver(msgspec.convert(sent, Note)))

    def publish(self, note: Note) -> None:
        """Pass on a note."""
        self._deliver(note)
        server.broadcast("notes", msgspec.to_builtins(note))

    def _deliver(self, note: Note) -> None:
        for waiting in list(self._clients):
            if len(waiting.pending) < _MAX_WAITING:
                waiting.put(note)

    async def subscribe(self) -> AsyncIterator[Note]:
        """Yield new notes from now on."""
        waiting: DeferredQueue[Note] = DeferredQueue()
        self._clients.add(waiting)
        try:
            while True:
                yield await waiting.get()
        finally:
            self._clients.discard(waiting)


def makeFeed() -> Feed:
    """Make the feed of an application."""
    return Feed()


LiveFeed = Annotated[Feed, Depends(makeFeed, scope="application")]

live = Router()


@live.ws("/feed", cancelOnDisconnect=True)
async def follow(socket: WebSocket, user: CurrentUser, feed: LiveFeed) -> None:
    """Send new notes."""
    async for note in feed.subscribe():
        await socket.sendJSON({"author": note.author, "text": note.text})
