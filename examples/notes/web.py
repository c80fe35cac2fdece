"""The application over HTTP and WebSocket."""

from secrets import token_hex
from typing import Annotated

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate import ServiceError, server
from storagegate.http import (
    Application,
    Depends,
    HTTPRequest,
    HTTPResponse,
    Next,
    Query,
    RouteHandler,
    UploadedFile,
    WebSocket,
    openapi,
    sameOrigin,
)

from .accounts import Notes, accounts, browserUser
from .feed import Feed, makeFeed
from .models import Attachment, NewNote, Note, User

CurrentUser = Annotated[User, Depends(browserUser)]
LiveFeed = Annotated[Feed, Depends(makeFeed, scope="application")]

PAGE = """<!DOCTYPE html><title>Notes</title><h1>Notes</h1><ul id="notes"></ul>
<script>
new WebSocket(location.href.replace("http", "ws") + "feed").onmessage = (event) => {
  const item = document.createElement("li");
  item.textContent = JSON.parse(event.data).text;
  notes.prepend(item);
};
</script>"""


def showPage(req: HTTPRequest, res: HTTPResponse) -> None:
    """Show the page."""
    res.html(PAGE)


def countRequest(req: HTTPRequest, res: HTTPResponse, next: Next) -> object:
    """Name the version of the application: middleware as in Express."""
    res.header("X-Notes", "1")
    return next()


async def ownNote(id: int, user: CurrentUser, store: Notes) -> Note:
    """Return the note of the path, which has to be the user's own."""
    note = store.note(id)
    if note.author != user.name:
        raise ServiceError("PERMISSION_DENIED", "This is not your note", 403)
    return note


OwnNote = Annotated[Note, Depends(ownNote)]


def makeApplication() -> Application:
    """Make the application."""
    app = server.http().withOptions(maxRequestBodySize="10mb")
    page: RouteHandler = showPage
    app.use(countRequest).use(sameOrigin()).use(openapi(title="Notes")).use(accounts)
    app.get("/", page)

    @app.get("/notes")
    def listNotes(
        user: CurrentUser,
        store: Notes,
        search: str = "",
        after: int = 0,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> list[Note]:
        """List the notes, in the order of their ids."""
        return store.notes(search, after, limit)

    @app.post("/notes")
    def addNote(
        body: NewNote, res: HTTPResponse, user: CurrentUser, store: Notes, feed: LiveFeed
    ) -> Note:
        """Add a note."""
        note = store.addNote(user, body)
        feed.publish(note)
        res.status(201).location(f"/notes/{note.id}")
        return note

    @app.get("/notes/:id")
    def showNote(id: int, user: CurrentUser, store: Notes) -> Note:
        """Show a note."""
        return store.note(id)

    @app.delete("/notes/:id")
    def removeNote(note: OwnNote, store: Notes) -> None:
        """Remove a note of your own."""
        store.removeNote(note)

    @app.post("/notes/:id/attachments")
    async def attach(
        note: OwnNote, file: UploadedFile, res: HTTPResponse, store: Notes
    ) -> Attachment:
        """Attach a file to a note of your own."""
        path = store.uploads / token_hex(16)
        await deferToThread(path.write_bytes, file.buffer)
        res.status(201)
        return store.attach(note, file.originalname, file.size, str(path))

    @app.get("/attachments/:id")
    def download(id: int, user: CurrentUser, res: HTTPResponse, store: Notes) -> Deferred[None]:
        """Download an attachment."""
        attachment, path = store.attachment(id)
        return res.download(path, attachment.name)

    @app.ws("/feed", cancelOnDisconnect=True)
    async def follow(socket: WebSocket, user: CurrentUser, feed: LiveFeed) -> None:
        """Send new notes as they are made."""
        async for note in feed.subscribe():
            await socket.sendJSON({"author": note.author, "text": note.text})

    return app
