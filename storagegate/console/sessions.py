"""
The sessions of the console, in C{sessions.sqlite} of the data directory, for all workers.

A session has two halves: the id in a cookie, which page scripts cannot read, and a token, which the
browser sends to no other service of the same host. The file has the hashes of both. A session ends
with the secret of its key: a hash of that is kept, too.
"""

import hmac
import os
from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, TypeVar

from attrs import evolve, frozen
from twisted.internet.defer import DeferredLock

from storagegate.s3.accounts import AccountKey
from storagegate.storage.errors import StoreError
from storagegate.storage.sqlite import FileKind, SQLiteFile
from storagegate.storage.threadpool import IWorkPool

T = TypeVar("T")

IDLE_SECONDS = 30 * 60
"""A session that was not used for so long is over."""

LONGEST_SECONDS = 12 * 3600
"""A session that is so old is over."""

_TOUCH_SECONDS = 60
"""Uses are written so often at most."""

_MOST = 10_000
_MOST_OF_KEY = 100
"""Past them those sessions are over, of all or of a key, that were not used for the longest."""

_MOST_TICKETS = 1000
_MOST_TICKET_BYTES = 4 << 20
"""Of a session; past them those are over that were made first."""

_BUSY_MS = 2000


class SessionsUnusable(StoreError):
    """The file of the sessions cannot be used."""


_KIND = FileKind(
    keeps="sessions of the console",
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
    ),
    mark="consoleSessions",
    # The end of a session must last, too.
    synchronous="FULL",
    error=SessionsUnusable,
)


@frozen
class ConsoleSession:
    """
    A session.

    @ivar id: The hash of the one in the cookie.
    @ivar token: The hash of the token.
    @ivar accessKey: Of the key that has signed in.
    @ivar proof: The hash of its secret, with the id.
    @ivar address: From where it signed in.
    @ivar agent: The C{User-Agent} of that.
    """

    id: str
    token: str
    accessKey: str
    proof: str
    createdMs: int
    usedMs: int
    address: str
    agent: str

    def endMs(self) -> int:
        """Return when it is over, if it is not used until then."""
        return min(self.usedMs + IDLE_SECONDS * 1000, self.createdMs + LONGEST_SECONDS * 1000)

    def isOf(self, key: AccountKey) -> bool:
        """Return whether the secret of a key is that of the session."""
        return hmac.compare_digest(self.proof, _proof(self.id, key))

    def hasToken(self, token: str) -> bool:
        """Return whether this is the token."""
        return hmac.compare_digest(self.token, _hash(token))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _proof(id: str, key: AccountKey) -> str:
    return hmac.digest(id.encode(), key.secretKey.encode(), "sha256").hex()


class ConsoleSessions:
    """Keeps sessions. Reactor thread; the file is used in threads."""

    def __init__(self, directory: str, pool: IWorkPool, now: Callable[[], float]) -> None:
        """
        @param directory: The data directory.
        @param pool: Runs what blocks.
        @param now: Seconds since the epoch.
        """
        self._file = SQLiteFile(os.path.join(directory, "sessions.sqlite"), _KIND, _BUSY_MS)
        self._pool = pool
        self._now = now
        self._lock = DeferredLock()

    async def create(
        self, key: AccountKey, address: str, agent: str
    ) -> tuple[ConsoleSession, str, str]:
        """
        Begin a session.

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
                "INSERT INTO consoleSessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                session.id,
                session.token,
                session.accessKey,
                session.proof,
                session.createdMs,
                session.usedMs,
                session.address,
                session.agent,
            )

        await self._perform(act, True)
        return session, id, token

    async def find(self, id: str) -> ConsoleSession | None:
        """
        Look a session up that is not over, and note its use.

        @param id: As in the cookie.
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
        Return whether a session is not over.

        @param id: The hash.
        """
        found = await self._perform(lambda: self._select("WHERE id = ?", id), False)
        return bool(found) and found[0].endMs() > int(self._now() * 1000)

    async def sessions(self, accessKey: str | None = None) -> list[ConsoleSession]:
        """
        List sessions that are not over, the newest use first.

        @param accessKey: Only of this key.
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

        @param id: The hash.
        """
        delete = "DELETE FROM consoleSessions WHERE id = ?"
        await self._perform(lambda: self._file.execute(delete, id), True)

    async def addTicket(self, session: str, expiresMs: int, document: bytes) -> str:
        """
        Keep a ticket of a session.

        @param session: The hash of its id.
        @param expiresMs: Until when it is good.
        @param document: What it is for.
        @return: Its id.
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
        Return what a ticket of a session is for; L{None} if there is none that is good.

        @param session: The hash of its id.
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
