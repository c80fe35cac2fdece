"""The tables of the application, in SQLite."""

import json
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from storagegate import ServiceError
from storagegate.http import Depends

from .models import NewNote, Note

_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes
    (id INTEGER PRIMARY KEY, author TEXT, text TEXT, tags TEXT, created REAL);
CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, password TEXT);
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, user INTEGER);
CREATE TABLE IF NOT EXISTS attachments
    (id INTEGER PRIMARY KEY, note INTEGER, name TEXT, size INTEGER, file TEXT);
"""


class Store:
    """
    The tables. A statement takes far less than a millisecond, so it needs no thread.

    @ivar uploads: The directory of attachments.
    """

    def __init__(self, folder: Path) -> None:
        self.uploads = folder / "uploads"
        self.uploads.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(folder / "notes.db", isolation_level=None)
        self._database.row_factory = sqlite3.Row
        self._database.executescript(_SCHEMA)
        self.close = self._database.close

    def rows(self, statement: str, *values: object) -> list[sqlite3.Row]:
        """Run a statement and return its rows."""
        return self._database.execute(statement, values).fetchall()

    def insert(self, statement: str, *values: object) -> int:
        """Run a statement and return the id of the new row."""
        return self._database.execute(statement, values).lastrowid or 0

    def add(self, author: str, new: NewNote) -> Note:
        """Add a note."""
        created, tags = datetime.now(UTC), json.dumps(new.tags)
        statement = "INSERT INTO notes (author, text, tags, created) VALUES (?, ?, ?, ?)"
        id = self.insert(statement, author, new.text, tags, created.timestamp())
        return Note(id, author, new.text, new.tags, created)

    def find(self, search: str = "", after: int = 0, limit: int = 20) -> list[Note]:
        """Return the notes with a text, in the order of their ids."""
        statement = "SELECT * FROM notes WHERE id > ? AND instr(text, ?) ORDER BY id LIMIT ?"
        return [_note(row) for row in self.rows(statement, after, search, limit)]

    def get(self, id: int) -> Note:
        """Return a note."""
        for row in self.rows("SELECT * FROM notes WHERE id = ?", id):
            return _note(row)
        raise ServiceError("NOT_FOUND", "There is no such note", 404)


def _note(row: sqlite3.Row) -> Note:
    tags: list[str] = json.loads(row["tags"])
    created = datetime.fromtimestamp(row["created"], UTC)
    return Note(row["id"], row["author"], row["text"], tags, created)


def openStore() -> Iterator[Store]:
    """Open the store of an application, in the directory that C{NOTES_DATA} names."""
    store = Store(Path(os.environ.get("NOTES_DATA", "notes-data")).absolute())
    yield store
    store.close()


Notes = Annotated[Store, Depends(openStore, scope="application")]
"""The store, as a parameter of handlers and dependencies."""
