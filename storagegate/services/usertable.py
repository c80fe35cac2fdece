"""
The table of users in a SQLite file. Blocks: everything here runs in the store's thread::

    users( number, id, name, email, phone, address, roles, createdUs, updatedUs,
           nameKey, emailKey, phoneKey, rolesKey )

C{address} and C{roles} are JSON. The keys are L{folded<storagegate.services.emails.fold>}: by the
email's users are told apart, and in all of them searches look. C{number} is the order in which
users were added. C{PRAGMA user_version} counts the migrations that a file has seen.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import Any, TypeVar

import msgspec
from attrs import evolve

from storagegate.services.emails import fold
from storagegate.services.userrecords import EmailTaken, NoSuchUser, Order, User, UserFileError
from storagegate.storage.catalog.faults import Fault, classify

T = TypeVar("T")

MEMORY = ":memory:"
"""The path of users that live as long as the store."""

_SCANNED = 5_000
"""Rows that a search reads in one go: some milliseconds, during which others wait."""

_NAP_SECONDS = 0.001
"""
Between two tries for a lock: about as long as a busy writer pauses between two transactions.
SQLite's own naps grow to a tenth of a second, and one of three busy writers waited for seconds.
"""

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

_MIGRATIONS = (_FIRST,)

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
    """One connection to the file. One thread at a time."""

    def __init__(self, path: str, busyMs: int, nap: Callable[[float], object] = sleep) -> None:
        """
        @param path: The file, or L{MEMORY}.
        @param busyMs: How long to wait for a lock that another process holds.
        @param nap: Waits for some seconds.
        """
        self._path = path
        self._nap = nap
        self._busyMs = busyMs
        self._connection: sqlite3.Connection | None = None

    def perform(self, acts: Sequence[Callable[["UserTable"], Any]], writes: bool) -> list[Any]:
        """
        Do several things; if they write, in one transaction.

        @return: What each of them returned, or the L{NoSuchUser} or L{EmailTaken} that it raised
            before it changed anything.
        @raise UserFileError: The file cannot be used.
        @raise sqlite3.Error: Nothing was done.
        """
        connection = self._patiently(self._open)

        def perform() -> list[Any]:
            return [self._outcome(act) for act in acts]

        if not writes:
            return self._patiently(perform)
        return self._patiently(lambda: _transact(connection, perform))

    def close(self) -> None:
        """Close the file, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

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

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        assert self._connection is not None
        return self._connection.execute(statement, values)

    # The file

    def _patiently(self, act: Callable[[], T]) -> T:
        """
        Do something, again and again while another process holds a lock: nothing was done then.

        SQLite does not wait for all of them: not while it makes a new file one with a log.
        """
        until = monotonic() + self._busyMs / 1000
        while True:
            try:
                return act()
            except sqlite3.OperationalError as error:
                if classify(error) is not Fault.BUSY or monotonic() >= until:
                    raise
            self._nap(_NAP_SECONDS)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._path != MEMORY:
                _create(self._path)
            connection = sqlite3.connect(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise UserFileError(f"{self._path} is no database") from error
            raise
        if mode != "wal" and self._path != MEMORY:
            raise UserFileError(f"{self._path} is on a file system that processes cannot share")
        # Who was told of a new user finds it after a loss of power, too.
        connection.execute("PRAGMA synchronous = FULL")
        _transact(connection, lambda: self._migrate(connection))

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        if version > len(_MIGRATIONS):
            raise UserFileError(f"{self._path} was written by a newer storagegate")
        if bool(version) != bool(names) or (names and "usersByCreation" not in names):
            raise UserFileError(f"{self._path} is a database of something else")
        for migration in _MIGRATIONS[version:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


def _transact(connection: sqlite3.Connection, act: Callable[[], T]) -> T:
    # At once for writing: a reader that turns writer while others write is refused.
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = act()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


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


def _create(path: str) -> None:
    """Make the file if there is none, for its owner alone: SQLite's own files follow it."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        # Not opened if it is there: closing it again would drop the locks that SQLite has on it.
        if not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise UserFileError(f"{path} cannot keep users: {error.strerror}") from error
