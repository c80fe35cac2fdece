"""The same notes over gRPC."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from storagegate import server
from storagegate.rpc import Depends
from storagegate.rpc.application import GRPCServer

from .accounts import User, tokenUser
from .feed import LiveFeed
from .models import NewNote, Note
from .store import Notes

Caller = Annotated[User, Depends(tokenUser)]


@dataclass
class Search:
    """Selects notes."""

    text: str = ""
    after: int = 0


@dataclass
class Nothing:
    """An empty request."""


async def add(request: NewNote, user: Caller, store: Notes, feed: LiveFeed) -> Note:
    """Add a note."""
    note = store.add(user.name, request)
    feed.publish(note)
    return note


async def find(request: Search, user: Caller, store: Notes) -> AsyncIterator[Note]:
    """Return the notes with a text."""
    for note in store.find(request.text, request.after, limit=100):
        yield note


async def follow(request: Nothing, user: Caller, feed: LiveFeed) -> AsyncIterator[Note]:
    """Return new notes."""
    async for note in feed.subscribe():
        yield note


NOTES = {"name": "Notes", "methods": {"add": add, "find": find, "follow": follow}}


def makeServer() -> GRPCServer:
    """Make the gRPC application."""
    return server.grpc().withOptions(grpc={"reflection": True}).addService(NOTES)
