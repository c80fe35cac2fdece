"""
The table of users in a SQLite file. Blocks: everything here runs in the store's thread::

    users( number, id, name, email, phone, address, roles, createdUs, updatedUs,
           nameKey, emailKey, phoneKey, rolesKey )

C{address} and C{roles} are JSON. The keys are L{folded<storagegate.services.usertable.fold>}: by
the
email's users are told apart, and in all of them searches look. C{number} is the order in which
users were added.

Users as values, and what keeps them.

Which text is an email address, and which addresses are the same::

    address = local "@" label 1*( "." label )
    local   = atom *( "." atom )

An atom is of RFC 5322 section 3.2.3, a label of letters, digits and hyphens, and either may have
letters outside of ASCII (RFC 6531). Quoted local parts, comments and addresses in brackets are
legal mail and never somebody's login: they are refused.

Users in a SQLite file.

One thread owns the one connection, and the writes of a batch share a transaction.
"""

import os
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import msgspec
from attrs import define, evolve, frozen
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from storagegate.core.errors import DATABASE_MESSAGE, ServiceError, codedError
from storagegate.storage.catalog.writer import UncancellableDeferred
from storagegate.storage.sqlite import Fault, FileKind, SQLiteFile, classify
from storagegate.storage.threadpool import BoundedThreadPool, JobQueue

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

EDITABLE = ("name", "email", "phone", "address", "roles")
"""What an update can change, and what its watchers are told of, in this order."""


class NoSuchUser(Exception):
    """There is no user of that id."""


class EmailTaken(Exception):
    """Another user has that email address."""


class DatabaseError(Exception):
    """
    The database cannot be used.

    Its name is what makes C{UNAVAILABLE} of it (L{storagegate.core.errors}); its text is for the
    log of whoever answers the call.
    """


class UserFileError(DatabaseError):
    """The file cannot keep users; the text says why in one line."""


@frozen
class User:
    """
    A user.

    @ivar id: 32 hexadecimal digits.
    @ivar phone: Empty for none.
    @ivar address: Its parts that are known, by their names.
    @ivar createdUs: In microseconds since 1970.
    """

    id: str
    name: str
    email: str
    phone: str
    address: Mapping[str, str]
    roles: tuple[str, ...]
    createdUs: int
    updatedUs: int

    def asDict(self) -> dict[str, Any]:
        """Write it for a caller; what it does not have is left out, but for the roles."""
        written: dict[str, Any] = {"id": self.id, "name": self.name, "email": self.email}
        if self.phone:
            written["phone"] = self.phone
        if self.address:
            written["address"] = dict(self.address)
        written["roles"] = list(self.roles)
        written["createdAt"] = isoTime(self.createdUs)
        written["updatedAt"] = isoTime(self.updatedUs)
        return written


@frozen
class Order:
    """
    How users are sorted; those that are equal by it, by id.

    @ivar by: One of L{SORTABLE}.
    """

    by: str = "createdUs"
    descending: bool = False


SORTABLE: Mapping[str, str] = {
    "id": "id",
    "name": "name",
    "email": "email",
    "createdAt": "createdUs",
    "created_at": "createdUs",
    "updatedAt": "updatedUs",
    "updated_at": "updatedUs",
}
"""The attribute for each name of an order, as a handler or the proto writes it."""

SEARCHABLE = ("name", "email", "phone", "roles")
"""Where a search can look."""


class IUserStore(Interface):
    """
    Keeps users. Every Deferred may fail with L{DatabaseError}, or with C{UNAVAILABLE} if somebody
    else holds the database, too many calls wait for it, or the store was closed.

    A change that was asked for is made or refused whether or not its Deferred is cancelled.
    """

    def get(id: str) -> Deferred[User | None]:
        """Give the user of an id."""

    def add(users: Sequence[User]) -> Deferred[list[bool]]:
        """
        Add users in one step, all but those whose email address is taken.

        @return: For each whether it was added.
        """

    def update(id: str, changes: Mapping[str, Any], nowUs: int) -> Deferred[tuple[User, User]]:
        """
        Change attributes of a user; if none of them differs, nothing happens.

        @return: The user before and after.
        @raise NoSuchUser: As a failure.
        @raise EmailTaken: As a failure.
        """

    def remove(id: str) -> Deferred[bool]:
        """Remove a user; say whether there was one."""

    def page(order: Order, limit: int, offset: int) -> Deferred[list[User]]:
        """List users from an offset."""

    def pageAfter(order: Order, limit: int, last: User) -> Deferred[list[User]]:
        """List the users that come after one, which need not be there any more."""

    def search(
        fields: Sequence[str], query: str, after: int, limit: int
    ) -> Deferred[tuple[list[User], int | None]]:
        """
        Look for users with a text in one of some fields, without regard to case, in the order in
        which they were added.

        @param fields: Some of L{SEARCHABLE}.
        @param after: Where to go on, 0 to begin.
        @return: Some of them, or none yet, and where to go on: C{None} at the end.
        """

    def close() -> Deferred[None]:
        """Let go of everything when what was asked for is done."""


class MonotonicTimestamps:
    """
    The time, never twice the same: so that users that were made one after the other are listed one
    after the other.

    @param now: Gives seconds since 1970.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last = 0

    def __call__(self) -> int:
        """Give microseconds since 1970."""
        self._last = max(int(self._now() * 1_000_000), self._last + 1)
        return self._last


def isoTime(us: int) -> str:
    """Write microseconds since 1970 as RFC 3339 does."""
    written = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    return written.removesuffix("+00:00") + "Z"


_OCTETS = 254
"""The longest path of SMTP is 256 with its brackets (RFC 5321 section 4.5.3.1.3)."""

_LOCAL_OCTETS = 64
_LABEL_OCTETS = 63

# No repetition of a repetition: the time is that of reading the text once.
_ATOM = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+")
_LABEL = re.compile(r"[A-Za-z0-9\x80-\U0010ffff-]+")


def isEmail(text: object) -> bool:
    """Tell whether a value is an email address."""
    # A character has an octet at least; encoding is for what may still fit.
    if not isinstance(text, str) or len(text) > _OCTETS or not text.isprintable():
        return False
    local, at, domain = text.rpartition("@")
    labels = domain.split(".")
    return (
        bool(at)
        and len(text.encode()) <= _OCTETS
        and len(local.encode()) <= _LOCAL_OCTETS
        and all(_ATOM.fullmatch(atom) for atom in local.split("."))
        and len(labels) > 1
        and all(_isLabel(label) for label in labels)
        # An address of IPv4 is no domain.
        and not labels[-1].isdigit()
    )


def fold(text: str) -> str:
    """Give what is the same for texts that differ in case only, or in how accents are written."""
    # Composed in the end: an accent is a part of its letter, and "e" is not found in "é".
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def _isLabel(label: str) -> bool:
    return (
        _LABEL.fullmatch(label) is not None
        and label[0] != "-"
        and label[-1] != "-"
        and len(label.encode()) <= _LABEL_OCTETS
    )


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
        @param path: The file, or L{MEMORY<storagegate.storage.sqlite.MEMORY>}.
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


BUSY_MS = 10_000
"""Another process holds the lock for some hundredths of a second at most, and each of thirty busy
ones gets it in turn; whoever holds it longer would be waited for by everybody who wants a user."""

_WAITING = 2048
"""Two for each of the 1024 calls that a listener lets in."""

_BATCH = 1_000
"""Users that one transaction adds or changes: some hundredths of a second."""

Act = Callable[[UserTable], Any]


@define(eq=False)
class _Job:
    """
    Something to do in the thread, and who waits for it.

    @ivar weight: How many users it writes; 0 if it only reads.
    """

    act: Act
    weight: int
    done: Deferred[Any]


@implementer(IUserStore)
class SQLiteUserStore(JobQueue[_Job]):
    """Keeps users in a file. All methods: reactor thread."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        reactor: IReactorFromThreads,
        busyMs: int = BUSY_MS,
    ) -> None:
        """
        @param path: The file; it is made, for its owner alone, if there is none. C{":memory:"}
            keeps users as long as the store is open.
        @param busyMs: How long to wait for a lock that another process holds; several processes
            may have the file open.
        """
        super().__init__()
        self._table = UserTable(os.fspath(path), busyMs)
        self._pool = BoundedThreadPool(reactor, 1, name="storagegate-users")

    def open(self) -> Deferred[None]:
        """
        Open the file before anybody asks for a user; without this the first one does.

        @raise UserFileError: It cannot keep users. As a failure.
        """
        return self._read(lambda table: None)

    def get(self, id: str) -> Deferred[User | None]:
        """See L{IUserStore.get}."""
        return self._read(lambda table: table.get(id))

    def add(self, users: Sequence[User]) -> Deferred[list[bool]]:
        """See L{IUserStore.add}."""
        return self._write(lambda table: table.add(users), len(users))

    def update(
        self, id: str, changes: Mapping[str, Any], nowUs: int
    ) -> Deferred[tuple[User, User]]:
        """See L{IUserStore.update}."""
        return self._write(lambda table: table.update(id, changes, nowUs))

    def remove(self, id: str) -> Deferred[bool]:
        """See L{IUserStore.remove}."""
        return self._write(lambda table: table.remove(id))

    def page(self, order: Order, limit: int, offset: int) -> Deferred[list[User]]:
        """See L{IUserStore.page}."""
        return self._read(lambda table: table.page(order, limit, offset))

    def pageAfter(self, order: Order, limit: int, last: User) -> Deferred[list[User]]:
        """See L{IUserStore.pageAfter}."""
        return self._read(lambda table: table.pageAfter(order, limit, last))

    def search(
        self, fields: Sequence[str], query: str, after: int, limit: int
    ) -> Deferred[tuple[list[User], int | None]]:
        """See L{IUserStore.search}."""
        return self._read(lambda table: table.search(fields, query, after, limit))

    def _read(self, act: Act) -> Deferred[Any]:
        return self._do(_Job(act, 0, Deferred()))

    def _write(self, act: Act, weight: int = 1) -> Deferred[Any]:
        return self._do(_Job(act, weight, UncancellableDeferred()))

    def _do(self, job: _Job) -> Deferred[Any]:
        if self._closing is not None or len(self._jobs) >= _WAITING:
            return fail(_unavailable())
        self._put(job)
        return job.done

    def _take(self) -> list[_Job]:
        """Take jobs from the front, either such as read or such as write."""
        jobs: list[_Job] = []
        weight = 0
        while self._jobs and weight < _BATCH:
            # Who was cancelled needs no answer any more; that happens to readers only.
            if not self._jobs[0].done.called:
                if jobs and bool(jobs[0].weight) != bool(self._jobs[0].weight):
                    break
                jobs.append(self._jobs[0])
                weight += max(self._jobs[0].weight, 1)
            self._jobs.popleft()
        return jobs

    def _run(self, jobs: list[_Job]) -> Deferred[Any]:
        acts = [job.act for job in jobs]
        return self._pool.run(self._table.perform, acts, any(job.weight for job in jobs))

    def _finish(self) -> Deferred[None]:
        return self._pool.run(self._table.close).addBoth(lambda _: self._pool.stop())

    def _deliver(self, outcomes: Any, jobs: list[_Job]) -> None:
        if isinstance(outcomes, Failure):
            error = _explain(outcomes)
            outcomes = [error] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, Exception):
                job.done.errback(Failure(outcome))
            else:
                job.done.callback(outcome)


def _explain(failure: Failure) -> Exception:
    """Say in the store's words what went wrong."""
    error = failure.value
    if isinstance(error, sqlite3.Error):
        return _unavailable() if classify(error) is Fault.BUSY else DatabaseError(str(error))
    assert isinstance(error, Exception)
    return error


def _unavailable() -> ServiceError:
    """Make the error of what will do if it is tried again: nothing that a log has to tell of."""
    return codedError("UNAVAILABLE", DATABASE_MESSAGE)
