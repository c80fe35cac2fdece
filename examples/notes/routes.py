"""The notes over HTTP."""

from typing import Annotated

from storagegate import ServiceError
from storagegate.http import Depends, HTTPResponse, Query, Router

from .accounts import CurrentUser
from .feed import LiveFeed
from .models import NewNote, Note
from .store import Notes

routes = Router()


@routes.get("/notes")
def listNotes(
    user: CurrentUser,
    store: Notes,
    search: str = "",
    after: int = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> list[Note]:
    """List notes, in the order of their ids."""
    return store.find(search, after, limit)


@routes.post("/notes")
def addNote(
    body: NewNote, res: HTTPResponse, user: CurrentUser, store: Notes, feed: LiveFeed
) -> Note:
    """Add a note."""
    note = store.add(user.name, body)
    feed.publish(note)
    res.status(201).location(f"/notes/{note.id}")
    return note


@routes.get("/notes/:id")
def showNote(id: int, user: CurrentUser, store: Notes) -> Note:
    """Show a note."""
    return store.get(id)


def ownNote(id: int, user: CurrentUser, store: Notes) -> Note:
    """Return the note of the path, which must belong to the user."""
    note = store.get(id)
    if note.author != user.name:
        raise ServiceError("PERMISSION_DENIED", "This is not your note", 403)
    return note


OwnNote = Annotated[Note, Depends(ownNote)]


@routes.delete("/notes/:id")
def removeNote(note: OwnNote, store: Notes) -> None:
    """Remove a note of your own, with its attachments."""
    for row in store.rows("DELETE FROM attachments WHERE note = ? RETURNING file", note.id):
        (store.uploads / row["file"]).unlink()
    store.rows("DELETE FROM notes WHERE id = ?", note.id)
