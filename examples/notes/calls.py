"""The same notes over gRPC: the messages follow from the types."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated

from storagegate import server
from storagegate.rpc import Depends
from storagegate.rpc.application import GRPCServer

from .accounts import Notes, currentUser
from .feed import Feed
from .models import NewNote, Note, User
from .web import LiveFeed

CurrentUser = Annotated[User, Depends(currentUser)]


@dataclass
class Search:
    """The notes that are wanted."""

    text: str = ""
    after: int = 0


@dataclass
class Nothing:
    """An empty request."""


@dataclass
class NoteMessage:
    """A note."""

    id: int
    author: str
    text: str
    tags: list[str] = field(default_factory=list)


def messageOf(note: Note) -> NoteMessage:
    """Return the message of a note."""
    return NoteMessage(note.id, note.author, note.text, note.tags)


async def add(request: NewNote, user: CurrentUser, store: Notes, feed: LiveFeed) -> NoteMessage:
    """Add a note."""
    note = store.addNote(user, request)
    feed.publish(note)
    return messageOf(note)


async def find(request: Search, user: CurrentUser, store: Notes) -> AsyncIterator[NoteMessage]:
    """Return the notes that contain a text."""
    for note in store.notes(request.text, request.after, limit=100):
        yield messageOf(note)


async def follow(request: Nothing, user: CurrentUser, feed: LiveFeed) -> AsyncIterator[NoteMessage]:
    """Return new notes as they are made."""
    subscribed: Feed = feed
    async for note in subscribed.subscribe():
        yield messageOf(note)


def makeServer() -> GRPCServer:
    """Make the gRPC application."""
    rpc = server.grpc().withOptions(grpc={"reflection": True})
    return rpc.addService("Notes", {"methods": {"add": add, "find": find, "follow": follow}})
