"""
The table of users in a SQLite file. Blocks: everything here runs in the store's thread::

    users( number, id, name, email, phone, address, roles, createdUs, updatedUs,
           nameKey, emailKey, phoneKey, rolesKey )

C{address} and C{roles} are JSON. The keys are L{folded<storagegate.services.emails.fold>}: by the
email's users are told apart, and in all of them searches look. C{number} is the order in which
users were added.
"""

from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any

import msgspec
from attrs import evolve

from storagegate.services.emails import fold
from storagegate.services.userrecords import EmailTaken, NoSuchUser, Order, User, UserFileError
from storagegate.storage.sqlitefile import FileKind, SQLiteFile

_SCANNED = 5_000
"""Rows that a search reads in one go: some milliseconds, during which others wait."""

_FIRST = (
    """
    CREATE TABLE users (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        email TEXT NOT NULL,
        phone TEXT NOT NULL,
        address TEXT NOT NULL,
        roles TEXT NOT NULL,
        createdUs INTEGER NOT NULL,
        updatedUs INTEGER NOT NULL,
        nameKey TEXT NOT NULL,
        emailKey TEXT NOT NULL UNIQUE,
        phoneKey TEXT NOT NULL,
        rolesKey TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX usersByName ON users (name, id)",
    "CREATE INDEX usersByEmail ON users (email, id)",
    "CREATE INDEX usersByCreation ON users (createdUs, id)",
    "CREATE INDEX usersByUpdate ON users (updatedUs, id)",
)

_KIND = FileKind(
    keeps="users",
    migrations=(_FIRST,),
    mark="usersByCreation",
    # Who was told of a new user finds it after a loss of power, too.
    synchronous="FULL",
    error=UserFileError,
    makesDirectory=True,
)

_COLUMNS = "id, name, email, phone, address, roles, createdUs, updatedUs"

_INSERT = (
    f"INSERT INTO users ({_COLUMNS}, nameKey, emailKey, phoneKey, rolesKey)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_UPDATE = (
    f"UPDATE users SET ({_COLUMNS}, nameKey, emailKey, phoneKey, rolesKey)"
    " = (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class UserTable:
    """The table in its file. One thread at a time."""

    def __init__(self, path: str, busyMs: int, nap: Callable[[float], object] = sleep) -> None:
        """
        @param path: The file, or L{MEMORY<storagegate.storage.sqlitefile.MEMORY>}.
        @param busyMs: How long to wait for a lock that another process holds.
        @param nap: Waits for some seconds.
        """
        self._file = SQLiteFile(path, _KIND, busyMs, nap)
        self._execute = self._file.execute

    def perform(self, acts: Sequence[Callable[["UserTable"], Any]], writes: bool) -> list[Any]:
        """
        Do several things; if they write, in one transaction.

        @return: What each of them returned, or the L{NoSuchUser} or L{EmailTaken} that it raised
            before it changed anything.
        @raise UserFileError: The file cannot be used.
        @raise sqlite3.Error: Nothing was done.
        """
        return self._file.perform(lambda: [self._outcome(act) for act in acts], writes)

    def close(self) -> None:
        """Close the file, if it is open."""
        self._file.close()

    # What may be done in perform()

    def get(self, id: str) -> User | None:
        """Give the user of an id."""
        row = self._execute(f"SELECT {_COLUMNS} FROM users WHERE id = ?", id).fetchone()
        return None if row is None else _user(row)

    def add(self, users: Sequence[User]) -> list[bool]:
        """Add users; say for each whether its email address was free."""
        return [self._add(user) for user in users]

    def update(self, id: str, changes: Mapping[str, Any], nowUs: int) -> tuple[User, User]:
        """Change a user; give it as it was and as it is."""
        before = self.get(id)
        if before is None:
            raise NoSuchUser
        after = evolve(before, **changes)
        if after == before:
            return before, before
        if self._holder(after.email) not in (None, id):
            raise EmailTaken
        after = evolve(after, updatedUs=nowUs)
        self._execute(_UPDATE, *_row(after), id)
        return before, after

    def remove(self, id: str) -> bool:
        """Remove a user; say whether there was one."""
        return self._execute("DELETE FROM users WHERE id = ?", id).rowcount > 0

    def page(self, order: Order, limit: int, offset: int) -> list[User]:
        """List users from an offset."""
        direction = "DESC" if order.descending else "ASC"
        return self._users(
            f"SELECT {_COLUMNS} FROM users ORDER BY {order.by} {direction}, id LIMIT ? OFFSET ?",
            *(limit, offset),
        )

    def pageAfter(self, order: Order, limit: int, last: User) -> list[User]:
        """List the users that come after one."""
        by = order.by
        beyond, direction = ("<", "DESC") if order.descending else (">", "ASC")
        return self._users(
            f"SELECT {_COLUMNS} FROM users"
            f" WHERE {by} {beyond}= ?1 AND ({by} {beyond} ?1 OR id > ?2)"
            f" ORDER BY {by} {direction}, id LIMIT ?3",
            *(getattr(last, by), last.id, limit),
        )

    def search(
        self, fields: Sequence[str], query: str, after: int, limit: int
    ) -> tuple[list[User], int | None]:
        """Look for users in some thousand rows; say where to go on."""
        first, last = self._execute(
            "SELECT (SELECT min(number) FROM users WHERE number > ?), max(number) FROM users", after
        ).fetchone()
        if first is None:
            return [], None
        # instr() and no LIKE: there are no wildcards, and the keys have no case.
        found = " OR ".join(f"instr({field}Key, ?1)" for field in fields)
        end = first + _SCANNED
        rows = self._execute(
            f"SELECT {_COLUMNS}, number FROM users WHERE number >= ?2 AND number < ?3"
            f" AND ({found}) ORDER BY number LIMIT ?4",
            *(fold(query), first, end, limit),
        ).fetchall()
        read = rows[-1][-1] if len(rows) == limit else end - 1
        return [_user(row[:-1]) for row in rows], read if read < last else None

    # The rows

    def _outcome(self, act: Callable[["UserTable"], Any]) -> Any:
        try:
            return act(self)
        except (NoSuchUser, EmailTaken) as refusal:
            return refusal

    def _add(self, user: User) -> bool:
        if self._holder(user.email) is not None:
            return False
        self._execute(_INSERT, *_row(user))
        return True

    def _holder(self, email: str) -> str | None:
        """Give the id of the user who has an email address."""
        row = self._execute("SELECT id FROM users WHERE emailKey = ?", fold(email)).fetchone()
        return None if row is None else str(row[0])

    def _users(self, statement: str, *values: Any) -> list[User]:
        return [_user(row) for row in self._execute(statement, *values)]


def _row(user: User) -> tuple[Any, ...]:
    return (
        user.id,
        user.name,
        user.email,
        user.phone,
        _encode(user.address).decode(),
        _encode(user.roles).decode(),
        user.createdUs,
        user.updatedUs,
        fold(user.name),
        fold(user.email),
        fold(user.phone),
        # Neither a role nor a query has a line break: no query matches two roles together.
        "\n".join(fold(role) for role in user.roles),
    )


def _user(row: Sequence[Any]) -> User:
    id, name, email, phone, address, roles, createdUs, updatedUs = row
    return User(
        id, name, email, phone, _decode(address), tuple(_decode(roles)), createdUs, updatedUs
    )
