"""
The notes in SQLite.

A statement takes far less than a millisecond, so it runs in the reactor thread.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from storagegate import ServiceError

from .models import Attachment, NewNote, Note, User

_SCHEMA = """
CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, password TEXT);
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, user INTEGER);
CREATE TABLE IF NOT EXISTS notes
    (id INTEGER PRIMARY KEY, user INTEGER, text TEXT, tags TEXT, created REAL);
CREATE TABLE IF NOT EXISTS attachments
    (id INTEGER PRIMARY KEY, note INTEGER, name TEXT, size INTEGER, path TEXT);
"""

_NOTES = "SELECT n.*, u.name FROM notes n JOIN users u ON u.id = n.user"


class Store:
    """
    The tables.

    @ivar uploads: The directory of attachments.
    """

    def __init__(self, folder: Path) -> None:
        self.uploads = folder / "uploads"
        self.uploads.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(folder / "notes.db", isolation_level=None)
        self._database.row_factory = sqlite3.Row
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _insert(self, statement: str, *values: object) -> int:
        return self._database.execute(statement, values).lastrowid or 0

    def _rows(self, statement: str, *values: object) -> list[sqlite3.Row]:
        return self._database.execute(statement, values).fetchall()

    # Accounts

    def addUser(self, name: str, password: str) -> User:
        """Add a user with the hash of a password."""
        try:
            added = self._insert("INSERT INTO users (name, password) VALUES (?, ?)", name, password)
        except sqlite3.IntegrityError:
            raise ServiceError("ALREADY_EXISTS", "This name is taken", 409) from None
        return User(added, name)

    def findUser(self, name: str) -> tuple[User, str] | None:
        """Return a user and the hash of the password."""
        for row in self._rows("SELECT * FROM users WHERE name = ?", name):
            return User(row["id"], row["name"]), row["password"]
        return None

    def addToken(self, token: str, user: User) -> None:
        """Add a token of a user."""
        self._insert("INSERT INTO tokens VALUES (?, ?)", token, user.id)

    def userOf(self, token: str) -> User | None:
        """Return the user of a token."""
        statement = "SELECT u.* FROM tokens t JOIN users u ON u.id = t.user WHERE t.token = ?"
        for row in self._rows(statement, token):
            return User(row["id"], row["name"])
        return None

    # Notes

    def addNote(self, user: User, note: NewNote) -> Note:
        """Add a note."""
        created = datetime.now(UTC)
        added = self._insert(
            "INSERT INTO notes (user, text, tags, created) VALUES (?, ?, ?, ?)",
            user.id,
            note.text,
            json.dumps(note.tags),
            created.timestamp(),
        )
        return Note(added, user.name, note.text, note.tags, created)

    def notes(self, search: str = "", after: int = 0, limit: int = 20) -> list[Note]:
        """Return notes in the order of their ids."""
        statement = f"{_NOTES} WHERE n.id > ? AND instr(n.text, ?) ORDER BY n.id LIMIT ?"
        return [self._note(row) for row in self._rows(statement, after, search, limit)]

    def note(self, id: int) -> Note:
        """Return a note."""
        for row in self._rows(f"{_NOTES} WHERE n.id = ?", id):
            return self._note(row)
        raise ServiceError("NOT_FOUND", "There is no such note", 404)

    def removeNote(self, note: Note) -> None:
        """Remove a note with its attachments."""
        for row in self._rows("SELECT path FROM attachments WHERE note = ?", note.id):
            os.unlink(row["path"])
        self._insert("DELETE FROM attachments WHERE note = ?", note.id)
        self._insert("DELETE FROM notes WHERE id = ?", note.id)

    def attach(self, note: Note, name: str, size: int, path: str) -> Attachment:
        """Add a stored file to a note."""
        statement = "INSERT INTO attachments (note, name, size, path) VALUES (?, ?, ?, ?)"
        return Attachment(self._insert(statement, note.id, name, size, path), name, size)

    def attachment(self, id: int) -> tuple[Attachment, str]:
        """Return an attachment and its path."""
        for row in self._rows("SELECT * FROM attachments WHERE id = ?", id):
            return _attachment(row), row["path"]
        raise ServiceError("NOT_FOUND", "There is no such attachment", 404)

    def _note(self, row: sqlite3.Row) -> Note:
        tags: list[str] = json.loads(row["tags"])
        created = datetime.fromtimestamp(row["created"], UTC)
        files = self._rows("SELECT * FROM attachments WHERE note = ?", row["id"])
        attachments = [_attachment(each) for each in files]
        return Note(row["id"], row["name"], row["text"], tags, created, attachments)


def _attachment(row: sqlite3.Row) -> Attachment:
    return Attachment(row["id"], row["name"], row["size"])


def openStore() -> Iterator[Store]:
    """Open the store of the application, in the directory that C{NOTES_DATA} names."""
    store = Store(Path(os.environ.get("NOTES_DATA", "notes-data")).absolute())
    yield store
    store.close()
