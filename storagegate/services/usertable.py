"""
Users in a SQLite file: one thread owns the one connection, and the writes of a batch share a
transaction::

    users( number, id, name, email, phone, address, roles, createdUs, updatedUs,
           nameKey, emailKey, phoneKey, rolesKey )

C{address} and C{roles} are JSON. The keys are L{folded<storagegate.services.usertable.fold>}:
C{emailKey} is unique, and searches compare all of them. C{number} is the order of creation.

An email address is::

    address = local "@" label 1*( "." label )
    local   = atom *( "." atom )

An atom is defined in RFC 5322 section 3.2.3; a label consists of letters, digits and hyphens; both
may contain letters outside ASCII (RFC 6531). Quoted local parts, comments and addresses in brackets
are legal in mail but unusual as logins, so they are rejected.
"""

import os
import re
import sqlite3
import unicodedata
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any, TypeVar

import msgspec
from attrs import define
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from storagegate.core.errors import DATABASE_MESSAGE, ServiceError, codedError
from storagegate.storage.mutations import UncancellableDeferred
from storagegate.storage.sqlite import Fault, FileKind, SQLiteFile, classify
from storagegate.storage.threadpool import BoundedThreadPool, JobQueue

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ADDRESS = ("street", "city", "state", "zipCode", "country")
"""The parts of an address."""

LINE = 200
"""Characters of a name or a part of an address: more than any passport holds."""

PHONE = 40
"""Characters of a phone number: 15 digits (ITU-T E.164) and their separators."""

ROLES = 32
ROLE = 64
"""Roles of a user, and characters of one: a user is part of many messages."""

MESSAGE = 4_000
"""Characters of one chat message."""

LARGEST = (1 << 31) - 1
"""Numbers are C{int32} in the proto."""

CHUNK_RECORDS = 10_000
"""Records of a chunk of C{UploadUserData}: checked in one reactor iteration, in about 20 ms."""

EDITABLE = ("name", "email", "phone", "address", "roles")
"""The attributes that an update can change, in the order in which watchers receive them."""


NOT_FOUND = ("NOT_FOUND", "There is no such user")
EMAIL_TAKEN = ("ALREADY_EXISTS", "A user with the same email exists")


class DatabaseError(Exception):
    """
    The database is unusable.

    The name of this class maps it to C{UNAVAILABLE} (L{storagegate.core.errors}); its text goes
    to the log only.
    """


class UserFileError(DatabaseError):
    """The file cannot hold users; the text is the reason in one line."""


class User(Struct, frozen=True):
    """
    A user.

    @ivar id: 32 hexadecimal digits.
    @ivar phone: Empty for none.
    @ivar address: The known parts by name.
    @ivar createdUs: Microseconds since 1970.
    @ivar updatedUs: Microseconds since 1970 of the last change.
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
        """Return the fields for a response; empty fields other than the roles are omitted."""
        written: dict[str, Any] = {"id": self.id, "name": self.name, "email": self.email}
        if self.phone:
            written["phone"] = self.phone
        if self.address:
            written["address"] = dict(self.address)
        written["roles"] = list(self.roles)
        written["createdAt"] = isoTime(self.createdUs)
        written["updatedAt"] = isoTime(self.updatedUs)
        return written


class Order(Struct, frozen=True):
    """
    The order of users; ties are broken by id.

    @ivar by: An attribute, one of the values of L{SORTABLE}.
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
"""The attribute for each sort name in requests, as handlers and the proto spell it."""

SEARCHABLE = ("name", "email", "phone", "roles")
"""The fields that can be searched."""


class MonotonicTimestamps:
    """Strictly increasing timestamps, so that users are listed in the order of their creation."""

    def __init__(self, now: Callable[[], float]) -> None:
        """
        @param now: Returns seconds since 1970.
        """
        self._now = now
        self._last = 0

    def __call__(self) -> int:
        """Return microseconds since 1970."""
        self._last = max(int(self._now() * 1_000_000), self._last + 1)
        return self._last


def isoTime(us: int) -> str:
    """
    Format microseconds since 1970 by RFC 3339.

    @param us: Microseconds since 1970, UTC.
    """
    written = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds")
    return written.removesuffix("+00:00") + "Z"


_OCTETS = 254
"""The longest path of SMTP is 256 with its brackets (RFC 5321 section 4.5.3.1.3)."""

_LOCAL_OCTETS = 64
_LABEL_OCTETS = 63

# Excluded ASCII characters: a set of all other characters takes 64 KiB. No nested repetition, so
# matching takes linear time.
_ATOM = re.compile(r'[^\x00-\x20"(),.:;<>@\[\\\]\x7f]+')
_LABEL = re.compile(r"(?!-)[^\x00-,./:-@\[-`{-\x7f]+(?<!-)")


def isEmail(text: object) -> bool:
    """
    Return whether a value is an email address.

    @param text: A value from a request, of any type.
    """
    # A character has at least one octet, so longer text need not be encoded.
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
        and all(_LABEL.fullmatch(each) and len(each.encode()) <= _LABEL_OCTETS for each in labels)
        # An IPv4 address is not a domain.
        and not labels[-1].isdigit()
    )


def fold(text: str) -> str:
    """
    Return a key that is equal for texts that differ only in case or composition of accents.

    @param text: A name, an email address, or the query of a search.
    """
    # Composed at the end: an accent is part of its letter, so "e" is not found in "é".
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


_SCANNED = 5_000
"""Rows that one step of a search reads: some milliseconds, during which other calls wait."""

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
    # An acknowledged user must survive a power failure.
    synchronous="FULL",
    error=UserFileError,
    makesDirectory=True,
)

_COLUMNS = "id, name, email, phone, address, roles, createdUs, updatedUs"

_WRITTEN = f"({_COLUMNS}, nameKey, emailKey, phoneKey, rolesKey)"
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class UserTable:
    """
    The table of users in its file. Methods block; only one thread may use it at a time.

    L{SQLiteUserStore.read} and L{SQLiteUserStore.write} call the methods that read or change users,
    within L{perform}.
    """

    def __init__(self, path: str, busyMs: int, nap: Callable[[float], object] = sleep) -> None:
        """
        @param path: The file, or L{MEMORY<storagegate.storage.sqlite.MEMORY>}.
        @param busyMs: The longest wait for a lock of another process, in milliseconds.
        @param nap: Sleeps for a number of seconds.
        """
        self._file = SQLiteFile(path, _KIND, busyMs, nap)
        self._execute = self._file.execute
        self.close = self._file.close

    def perform(self, acts: Sequence[Callable[["UserTable"], Any]], writes: bool) -> list[Any]:
        """
        Call functions with this table; if they write, in one transaction.

        @param writes: Whether any of them changes users.
        @return: The result of each function, or the C{ServiceError} that it raised before any
            change.
        @raise UserFileError: The file cannot be used.
        @raise sqlite3.Error: Nothing was done.
        """

        def outcome(act: Callable[["UserTable"], Any]) -> Any:
            try:
                return act(self)
            except ServiceError as error:
                return error

        return self._file.perform(lambda: [outcome(act) for act in acts], writes)

    def get(self, id: str) -> User | None:
        """Return the user with an id; L{None} if there is none."""
        users = self._users("WHERE id = ?", id)
        return users[0] if users else None

    def add(self, users: Sequence[User]) -> list[bool]:
        """
        Add users; return for each whether its email address was free.

        @param users: Users with unused ids; of two users with the same address, only the first is
            added.
        """
        added = []
        for user in users:
            added.append(self._holder(user.email) is None)
            if added[-1]:
                self._execute(f"INSERT INTO users {_WRITTEN} VALUES {_VALUES}", *_row(user))
        return added

    def update(self, id: str, changes: Mapping[str, Any], nowUs: int) -> tuple[User, User]:
        """
        Change a user if any value differs; return the user before and after.

        @param changes: New values by the names of L{EDITABLE}.
        @param nowUs: The new C{updatedUs}, in microseconds since 1970.
        @raise ServiceError: C{NOT_FOUND} or C{ALREADY_EXISTS}.
        """
        before = self.get(id)
        if before is None:
            raise codedError(*NOT_FOUND)
        after = replace(before, **changes)
        if after == before:
            return before, before
        if self._holder(after.email) not in (None, id):
            raise codedError(*EMAIL_TAKEN)
        after = replace(after, updatedUs=nowUs)
        self._execute(f"UPDATE users SET {_WRITTEN} = {_VALUES} WHERE id = ?", *_row(after), id)
        return before, after

    def remove(self, id: str) -> bool:
        """Remove a user; return whether it existed."""
        return self._execute("DELETE FROM users WHERE id = ?", id).rowcount > 0

    def page(self, order: Order, limit: int, offset: int) -> list[User]:
        """
        List users from an offset; ties are broken by id.

        @param limit: Largest number of users to return.
        @param offset: Number of users to skip.
        """
        direction = "DESC" if order.descending else "ASC"
        return self._users(f"ORDER BY {order.by} {direction}, id LIMIT ? OFFSET ?", limit, offset)

    def pageAfter(self, order: Order, limit: int, last: User) -> list[User]:
        """
        List the users after another user.

        @param order: The order in which C{last} was listed.
        @param limit: Largest number of users to return.
        @param last: The last user of the previous page, which may have been deleted since.
        """
        by = order.by
        beyond, direction = ("<", "DESC") if order.descending else (">", "ASC")
        return self._users(
            f"WHERE {by} {beyond}= ?1 AND ({by} {beyond} ?1 OR id > ?2)"
            f" ORDER BY {by} {direction}, id LIMIT ?3",
            getattr(last, by),
            last.id,
            limit,
        )

    def search(
        self, fields: Sequence[str], query: str, after: int, limit: int
    ) -> tuple[list[User], int | None]:
        """
        Search L{_SCANNED} rows in the order of creation.

        @param fields: Some of L{SEARCHABLE}; one match is enough.
        @param query: The text to find in a field, ignoring case, without wildcards.
        @param after: The number of the last row read; 0 to begin.
        @param limit: Largest number of users to return.
        @return: The users found, and the next C{after}: C{None} at the end.
        """
        first, last = self._execute(
            "SELECT (SELECT min(number) FROM users WHERE number > ?), max(number) FROM users", after
        ).fetchone()
        if first is None:
            return [], None
        # instr(), not LIKE: a query has no wildcards, and the keys are already case-folded.
        found = " OR ".join(f"instr({field}Key, ?1)" for field in fields)
        end = first + _SCANNED
        rows = self._execute(
            f"SELECT {_COLUMNS}, number FROM users WHERE number >= ?2 AND number < ?3"
            f" AND ({found}) ORDER BY number LIMIT ?4",
            fold(query),
            first,
            end,
            limit,
        ).fetchall()
        read = rows[-1][-1] if len(rows) == limit else end - 1
        return [_user(row[:-1]) for row in rows], read if read < last else None

    def _holder(self, email: str) -> str | None:
        """Return the id of the user with an email address."""
        row = self._execute("SELECT id FROM users WHERE emailKey = ?", fold(email)).fetchone()
        return None if row is None else str(row[0])

    def _users(self, clause: str, *values: Any) -> list[User]:
        return [
            _user(row) for row in self._execute(f"SELECT {_COLUMNS} FROM users {clause}", *values)
        ]


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
        # Neither a role nor a query contains a line break, so no query spans two roles.
        "\n".join(fold(role) for role in user.roles),
    )


def _user(row: Sequence[Any]) -> User:
    id, name, email, phone, address, roles, *times = row
    return User(id, name, email, phone, _decode(address), tuple(_decode(roles)), *times)


BUSY_MS = 10_000
"""
Another process holds the lock for some 10 ms, and each of thirty busy processes gets it in turn; a
longer wait would delay every call that needs a user.
"""

_WAITING = 2048
"""Two for each of the 1024 calls that a listener admits."""

_BATCH = 1_000
"""Users that one transaction adds or changes: some 10 ms."""

_BATCH_READS = 32
"""Read functions per job of the thread: some milliseconds, during which writes wait."""


@define(eq=False)
class _UserJob:
    """
    A function to call in the thread, and the Deferred of its result.

    @ivar weight: The number of users that it writes; 0 if it only reads.
    @ivar client: The client that waits for the result.
    """

    act: Callable[[UserTable], Any]
    weight: int
    client: str
    done: Deferred[Any]


class SQLiteUserStore(JobQueue[_UserJob]):
    """
    Stores users in a file. Must be used in the reactor thread.

    The jobs of one client run in order; clients take turns, so a client waits for one batch of
    jobs, not for all jobs of another client.

    Every Deferred may fail with L{DatabaseError}, or with C{UNAVAILABLE} if another process holds
    the database, too many calls wait for it, or the store was closed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        reactor: IReactorFromThreads,
        busyMs: int = BUSY_MS,
    ) -> None:
        """
        @param path: The file; it is created with mode 0600 if it is absent. C{":memory:"} keeps
            users while the store is open.
        @param reactor: Delivers the results of the single thread that uses the file.
        @param busyMs: The longest wait for a lock of another process, in milliseconds; several
            processes may have the file open.
        """
        super().__init__()
        self._table = UserTable(os.fspath(path), busyMs)
        self._pool = BoundedThreadPool(reactor, 1, name="storagegate-users")
        # The jobs of each client, in the order of the clients' turns.
        self._clients: dict[str, deque[_UserJob]] = {}
        self._waiting = 0

    def open(self) -> Deferred[None]:
        """
        Open the file; otherwise the first call opens it.

        @raise UserFileError: The file cannot hold users. As a failure.
        """
        return self.read(lambda table: None)

    def read(self, act: Callable[[UserTable], T], client: str = "") -> Deferred[T]:
        """
        Call a read-only function.

        @param act: Called in the thread, unless the Deferred is cancelled first.
        @param client: The identifier of the calling connection.
        """
        return self._enqueue(_UserJob(act, 0, client, Deferred()))

    def write(
        self, act: Callable[[UserTable], T], client: str = "", weight: int = 1
    ) -> Deferred[T]:
        """
        Call a function in a transaction, which it may share with other functions.

        @param act: Called in the thread, even if the Deferred is cancelled.
        @param client: The identifier of the calling connection.
        @param weight: The number of users that it writes.
        """
        return self._enqueue(_UserJob(act, weight, client, UncancellableDeferred()))

    def _enqueue(self, job: _UserJob) -> Deferred[Any]:
        if self._closing is not None or self._waiting >= _WAITING:
            return fail(_unavailable())
        self._put(job)
        return job.done

    def _push(self, job: _UserJob) -> None:
        self._clients.setdefault(job.client, deque()).append(job)
        self._waiting += 1

    def _take(self) -> list[_UserJob]:
        """Remove jobs in turn, one of each client, either all reads or all writes."""
        jobs: list[_UserJob] = []
        others: dict[str, deque[_UserJob]] = {}
        weight, limit = 0, _BATCH
        while self._clients and weight < limit:
            client = next(iter(self._clients))
            waiting = self._clients.pop(client)
            # A cancelled read needs no result.
            if not waiting[0].done.called:
                if jobs and bool(jobs[0].weight) != bool(waiting[0].weight):
                    others[client] = waiting
                    continue
                jobs.append(waiting[0])
                weight += max(waiting[0].weight, 1)
                limit = _BATCH if jobs[0].weight else _BATCH_READS
            waiting.popleft()
            self._waiting -= 1
            if waiting:
                self._clients[client] = waiting
        self._clients = {**others, **self._clients}
        return jobs

    def _run(self, jobs: list[_UserJob]) -> Deferred[Any]:
        acts = [job.act for job in jobs]
        return self._pool.run(self._table.perform, acts, any(job.weight for job in jobs))

    def _finish(self) -> Deferred[None]:
        return self._pool.run(self._table.close).addBoth(lambda _: self._pool.stop())

    def _deliver(self, outcomes: Any, jobs: list[_UserJob]) -> None:
        if isinstance(outcomes, Failure):
            error: Any = outcomes.value
            if isinstance(error, sqlite3.Error):
                isBusy = classify(error) is Fault.BUSY
                error = _unavailable() if isBusy else DatabaseError(str(error))
            outcomes = [error] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, Exception):
                job.done.errback(Failure(outcome))
            else:
                job.done.callback(outcome)


def _unavailable() -> ServiceError:
    """Return a retryable error, which is not logged."""
    return codedError("UNAVAILABLE", DATABASE_MESSAGE)
