"""The files of notes."""

from dataclasses import dataclass
from secrets import token_hex

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from storagegate import ServiceError
from storagegate.http import HTTPResponse, Router, UploadedFile

from .accounts import CurrentUser
from .routes import OwnNote
from .store import Notes

attachments = Router()


@dataclass
class Attachment:
    """A file of a note."""

    id: int
    name: str
    size: int


@attachments.post("/notes/:id/attachments")
async def attach(note: OwnNote, file: UploadedFile, res: HTTPResponse, store: Notes) -> Attachment:
    """Attach a file to a note of your own."""
    stored = token_hex(16)
    await deferToThread((store.uploads / stored).write_bytes, file.buffer)
    statement = "INSERT INTO attachments (note, name, size, file) VALUES (?, ?, ?, ?)"
    id = store.insert(statement, note.id, file.originalname, file.size, stored)
    res.status(201)
    return Attachment(id, file.originalname, file.size)


@attachments.get("/attachments/:id")
def download(id: int, user: CurrentUser, res: HTTPResponse, store: Notes) -> Deferred[None]:
    """Download an attachment."""
    for row in store.rows("SELECT * FROM attachments WHERE id = ?", id):
        return res.download(str(store.uploads / row["file"]), row["name"])
    raise ServiceError("NOT_FOUND", "There is no such attachment", 404)
