"""
Console sessions, in C{sessions.sqlite} of the data directory, shared by all workers.

A session has two halves: the id in a cookie, which page scripts cannot read, and a token, which the
browser sends to no other service of the same host. The file holds the hashes of both. It also holds
a hash of the secret of the key, so a session ends when the secret changes.

A session of a person who signed in at an issuer has a grant instead of a key: the user, and the
role that the issuer named.
"""

import hmac
import os
from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, TypeVar

import msgspec
from attrs import evolve, frozen
from msgspec import Struct
from twisted.internet.defer import DeferredLock

from storagegate.objects.accounts import AccountKey
from storagegate.storage.errors import StoreError
from storagegate.storage.sqlite import FileKind, SQLiteFile
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")

IDLE_SECONDS = 30 * 60
"""A session ends after this time without use."""

LONGEST_SECONDS = 12 * 3600
"""A session ends at this age."""

_TOUCH_SECONDS = 60
"""The shortest interval between writes of the last use."""

_MOST = 10_000
_MOST_OF_KEY = 100
"""Session limits, in total and per key; the least recently used sessions are evicted."""

_MOST_TICKETS = 1000
_MOST_TICKET_BYTES = 4 << 20
"""Ticket limits per session; the tickets that expire first are evicted."""

_BUSY_MS = 2000


class SessionsUnusable(StoreError):
    """The file of sessions is unusable."""


_KIND = FileKind(
    keeps="console sessions",
    migrations=(
        (
            """
            CREATE TABLE consoleSessions (
                id TEXT PRIMARY KEY NOT NULL,
                token TEXT NOT NULL,
                accessKey TEXT NOT NULL,
                proof TEXT NOT NULL,
                createdMs INTEGER NOT NULL,
                usedMs INTEGER NOT NULL,
                address TEXT NOT NULL,
                agent TEXT NOT NULL
            )
            """,
        ),
        (
            """
            CREATE TABLE consoleTickets (
                id TEXT PRIMARY KEY NOT NULL,
                session TEXT NOT NULL,
                expiresMs INTEGER NOT NULL,
                document BLOB NOT NULL
            )
            """,
        ),
        (
            "ALTER TABLE consoleSessions ADD COLUMN document TEXT NOT NULL DEFAULT ''",
            """
            CREATE TABLE consoleSignIns (
                state TEXT PRIMARY KEY NOT NULL,
                expiresMs INTEGER NOT NULL
            )
            """,
        ),
    ),
    mark="consoleSessions",
    # Signing out must be durable, too.
    synchronous="FULL",
    error=SessionsUnusable,
)


class SignInGrant(Struct, frozen=True):
    """
    The grant of a session that began at an issuer.

    @ivar issuer: The name of the issuer in the configuration.
    @ivar user: The name of the user.
    @ivar role: The administration role that the issuer named.
    @ivar claimed: The groups that the issuer named, in part.
    @ivar isGrouped: Whether the issuer names groups.
    """

    issuer: str
    account: str
    user: str
    role: str
    claimed: list[str]
    isGrouped: bool


@frozen
class ConsoleSession:
    """
    A session.

    @ivar id: The hash of the id in the cookie.
    @ivar token: The hash of the token.
    @ivar accessKey: The access key that signed in, or the path and name of a user.
    @ivar proof: A keyed hash of the secret of the key and the id.
    @ivar address: The client address at sign-in.
    @ivar agent: The C{User-Agent} at sign-in.
    @ivar document: The grant as JSON; empty for a session of a key.
    """

    id: str
    token: str
    accessKey: str
    proof: str
    createdMs: int
    usedMs: int
    address: str
    agent: str
    document: str = ""

    @property
    def grant(self) -> SignInGrant | None:
        """The grant of a person; L{None} for a session of a key."""
        return msgspec.json.decode(self.document, type=SignInGrant) if self.document else None

    def endMs(self) -> int:
        """Return when the session expires unless it is used before then."""
        return min(self.usedMs + IDLE_SECONDS * 1000, self.createdMs + LONGEST_SECONDS * 1000)

    def isOf(self, key: AccountKey) -> bool:
        """
        Return whether the session was begun with the secret of a key, and the sessions of its user
        were not revoked since.
        """
        rights = key.identity.rights
        user = None if rights is None else rights.user
        if user is not None and self.createdMs < user.revokedBeforeMs:
            return False
        return hmac.compare_digest(self.proof, _proof(self.id, key))

    def hasToken(self, token: str) -> bool:
        """Return whether a token is the session's."""
        return hmac.compare_digest(self.token, _hash(token))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _proof(id: str, key: AccountKey) -> str:
    return hmac.digest(id.encode(), key.secretKey.encode(), "sha256").hex()


class ConsoleSessions:
    """Stores sessions. Must run in the reactor thread; the file is used in threads."""

    def __init__(self, directory: str, pool: IWorkPool, now: Callable[[], float]) -> None:
        """
        @param directory: The data directory.
        @param pool: Runs blocking calls.
        @param now: Returns seconds since the epoch.
        """
        self._file = SQLiteFile(os.path.join(directory, "sessions.sqlite"), _KIND, _BUSY_MS)
        self._pool = pool
        self._now = now
        self._lock = DeferredLock()

    async def create(
        self, key: AccountKey, address: str, agent: str, grant: SignInGrant | None = None
    ) -> tuple[ConsoleSession, str, str]:
        """
        Begin a session.

        @param grant: The grant of a person; L{None} for a session of a key.
        @return: The session, its id for the cookie, and its token.
        """
        id, token = token_urlsafe(32), token_urlsafe(32)
        nowMs = int(self._now() * 1000)
        hashed = _hash(id)
        session = ConsoleSession(
            hashed,
            _hash(token),
            key.identity.accessKey,
            _proof(hashed, key),
            nowMs,
            nowMs,
            address,
            agent[:200],
            "" if grant is None else msgspec.json.encode(grant).decode(),
        )

        def act() -> None:
            execute = self._file.execute
            execute("DELETE FROM consoleSessions WHERE " + _OVER, *self._limits(nowMs))
            execute(
                "DELETE FROM consoleSessions WHERE id IN (SELECT id FROM consoleSessions"
                " ORDER BY usedMs DESC LIMIT -1 OFFSET ?)",
                _MOST - 1,
            )
            execute(
                "DELETE FROM consoleSessions WHERE id IN (SELECT id FROM consoleSessions"
                " WHERE accessKey = ? ORDER BY usedMs DESC LIMIT -1 OFFSET ?)",
                session.accessKey,
                _MOST_OF_KEY - 1,
            )
            execute(
                "DELETE FROM consoleTickets WHERE session NOT IN (SELECT id FROM consoleSessions)"
            )
            execute(
                "INSERT INTO consoleSessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                session.id,
                session.token,
                session.accessKey,
                session.proof,
                session.createdMs,
                session.usedMs,
                session.address,
                session.agent,
                session.document,
            )

        await self._perform(act, True)
        return session, id, token

    async def find(self, id: str) -> ConsoleSession | None:
        """
        Look up a valid session, and record its use.

        @param id: The id in the cookie.
        """
        hashed = _hash(id)
        nowMs = int(self._now() * 1000)
        found = await self._perform(lambda: self._select("WHERE id = ?", hashed), False)
        if not found or found[0].endMs() <= nowMs:
            return None
        session: ConsoleSession = found[0]
        if nowMs - session.usedMs >= _TOUCH_SECONDS * 1000:
            update = "UPDATE consoleSessions SET usedMs = ? WHERE id = ?"
            await self._perform(lambda: self._file.execute(update, nowMs, hashed), True)
            session = evolve(session, usedMs=nowMs)
        return session

    async def exists(self, id: str) -> bool:
        """
        Return whether a session is valid.

        @param id: The hash of the id.
        """
        found = await self._perform(lambda: self._select("WHERE id = ?", id), False)
        return bool(found) and found[0].endMs() > int(self._now() * 1000)

    async def sessions(self, accessKey: str | None = None) -> list[ConsoleSession]:
        """
        List valid sessions, most recently used first.

        @param accessKey: Return only the sessions of this key.
        """
        nowMs = int(self._now() * 1000)
        where, values = ("", ()) if accessKey is None else ("WHERE accessKey = ?", (accessKey,))
        found = await self._perform(
            lambda: self._select(f"{where} ORDER BY usedMs DESC, id", *values), False
        )
        return [each for each in found if each.endMs() > nowMs]

    async def end(self, id: str) -> None:
        """
        End a session.

        @param id: The hash of the id.
        """
        delete = "DELETE FROM consoleSessions WHERE id = ?"
        await self._perform(lambda: self._file.execute(delete, id), True)

    async def useSignIn(self, state: str, expiresMs: int) -> bool:
        """
        Use the state of a sign-in at an issuer.

        @param expiresMs: When the state expires.
        @return: Whether this is its first use on this machine.
        """
        hashed = _hash(state)

        def act() -> bool:
            execute = self._file.execute
            nowMs = int(self._now() * 1000)
            execute("DELETE FROM consoleSignIns WHERE expiresMs <= ?", nowMs)
            (count,) = execute("SELECT COUNT(*) FROM consoleSignIns").fetchone()
            if count >= _MOST:
                return False
            insert = "INSERT OR IGNORE INTO consoleSignIns VALUES (?, ?)"
            return bool(execute(insert, hashed, expiresMs).rowcount)

        return await self._perform(act, True)

    async def addTicket(self, session: str, expiresMs: int, document: bytes) -> str:
        """
        Store a ticket of a session.

        @param session: The hash of the session's id.
        @param expiresMs: The time of expiry, in milliseconds since the epoch.
        @param document: The content of the ticket.
        @return: The id of the ticket.
        """
        id = token_urlsafe(24)

        def act() -> None:
            execute = self._file.execute
            nowMs = int(self._now() * 1000)
            execute("DELETE FROM consoleTickets WHERE expiresMs <= ?", nowMs)
            execute(
                "DELETE FROM consoleTickets WHERE id IN (SELECT id FROM consoleTickets"
                " WHERE session = ? ORDER BY expiresMs DESC LIMIT -1 OFFSET ?)",
                session,
                _MOST_TICKETS - 1,
            )
            execute(
                "DELETE FROM consoleTickets WHERE id IN (SELECT id FROM (SELECT id,"
                " SUM(LENGTH(document)) OVER (ORDER BY expiresMs DESC, id) AS bytes"
                " FROM consoleTickets WHERE session = ?) WHERE bytes > ?)",
                session,
                _MOST_TICKET_BYTES - len(document),
            )
            insert = "INSERT INTO consoleTickets VALUES (?, ?, ?, ?)"
            execute(insert, _hash(id), session, expiresMs, document)

        await self._perform(act, True)
        return id

    async def ticket(self, session: str, id: str) -> bytes | None:
        """
        Return the document of a ticket; L{None} if the ticket is unknown or expired.

        @param session: The hash of the session's id.
        """
        select = (
            "SELECT document FROM consoleTickets WHERE id = ? AND session = ? AND expiresMs > ?"
        )
        values = (_hash(id), session, int(self._now() * 1000))
        row = await self._perform(lambda: self._file.execute(select, *values).fetchone(), False)
        return None if row is None else bytes(row[0])

    async def close(self) -> None:
        """Close the file."""
        await self._lock.run(self._pool.run, self._file.close)

    def _select(self, rest: str, *values: object) -> list[ConsoleSession]:
        rows = self._file.execute(f"SELECT * FROM consoleSessions {rest}", *values).fetchall()
        return [ConsoleSession(*row) for row in rows]

    def _limits(self, nowMs: int) -> tuple[int, int]:
        return nowMs - IDLE_SECONDS * 1000, nowMs - LONGEST_SECONDS * 1000

    async def _perform(self, act: Callable[[], T], writes: bool) -> T:
        result: Any = await self._lock.run(self._pool.run, self._file.perform, act, writes)
        found: T = result
        return found


_OVER = "usedMs <= ? OR createdMs <= ?"
