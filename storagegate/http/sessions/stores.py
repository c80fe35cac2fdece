"""
Stores of sessions: in the memory of one process, or in a SQLite file for several processes.

The SQLite store runs in a thread of the application, one batch at a time; the changes of a batch
share one transaction. An acknowledged change is in the write-ahead log (C{journal_mode=WAL}) and
survives the end of the process. The log is not synced with each commit (C{synchronous=NORMAL}), so
a loss of power may take the last sessions, but never damages the file::

    sessions( id, content, cookie, expires )

C{content} and C{cookie} are JSON, C{expires} is in seconds since the epoch.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.http.runtime import Runtime
from storagegate.http.sessions import (
    DAY_MS,
    IBoundStore,
    IReplacingStore,
    decodeParts,
    encodeCookie,
    encodeParts,
)
from storagegate.storage.sqlite import FileKind, SQLiteFile
from storagegate.storage.threadpool import JobQueue

_BYTES = 64 * 1024 * 1024
"""10,000 sessions of 6 KiB: most are far smaller, and a few may be larger."""

_STEP = 60
"""Expired sessions leave once a minute; until then they only take room."""


@frozen
class _Entry:
    """One session. C{cookie} is apart, for it alone changes when a session is touched."""

    content: bytes
    cookie: bytes
    expires: float

    @property
    def size(self) -> int:
        """Give about how many bytes it takes."""
        return len(self.content) + len(self.cookie)


@implementer(IReplacingStore, IBoundStore)
class MemorySessionStore:
    """
    Keeps up to so many sessions, and bytes of them; past that the least recently used one goes.

    It answers at once.
    """

    def __init__(
        self,
        maxSessions: int = 10_000,
        clock: IReactorTime | None = None,
        maxBytes: int = _BYTES,
    ) -> None:
        """
        @param clock: By default the time is that of the application.
        """
        if maxSessions < 1 or maxBytes < 1:
            raise ValueError("a store of sessions has room for at least one")
        self._maxSessions = maxSessions
        self._maxBytes = maxBytes
        self._now: Callable[[], float] | None = None if clock is None else clock.seconds
        # In the order of their last use, and by the minute after which they have expired.
        self._entries: dict[str, _Entry] = {}
        self._minutes: dict[int, dict[str, None]] = {}
        self._bytes = 0
        self._sweptTo = 0

    def __len__(self) -> int:
        """Say how many sessions take room."""
        return len(self._entries)

    def bind(self, runtime: Runtime) -> None:
        """See L{IBoundStore.bind}."""
        if self._now is None:
            self._now = runtime.now

    def get(self, id: str) -> dict[str, Any] | None:
        """See L{ISessionStore.get<storagegate.http.sessions.ISessionStore.get>}."""
        entry = self._live(id)
        if entry is None:
            return None
        # To the end: the most recently used.
        self._entries[id] = self._entries.pop(id)
        return decodeParts(entry.content, entry.cookie)

    def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{ISessionStore.set<storagegate.http.sessions.ISessionStore.set>}."""
        self._put(id, *encodeParts(data), maxAgeMs)

    def replace(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{IReplacingStore.replace}."""
        if self._live(id) is not None:
            self._put(id, *encodeParts(data), maxAgeMs)

    def destroy(self, id: str) -> None:
        """
        See L{ISessionStore.destroy<storagegate.http.sessions.ISessionStore.destroy>}.
        """
        entry = self._entries.pop(id, None)
        if entry is not None:
            self._bytes -= entry.size
            minute = self._minutes[_minute(entry.expires)]
            del minute[id]
            if not minute:
                del self._minutes[_minute(entry.expires)]

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{ISessionStore.touch<storagegate.http.sessions.ISessionStore.touch>}."""
        entry = self._live(id)
        if entry is not None:
            self._put(id, entry.content, encodeCookie(data), maxAgeMs)

    def _time(self) -> float:
        return time.time() if self._now is None else self._now()

    def _live(self, id: str) -> _Entry | None:
        entry = self._entries.get(id)
        if entry is not None and entry.expires <= self._time():
            self.destroy(id)
            return None
        return entry

    def _put(self, id: str, content: bytes, cookie: bytes, maxAgeMs: float) -> None:
        now = self._time()
        self.destroy(id)
        self._sweep(now)
        if maxAgeMs <= 0:
            return
        entry = _Entry(content, cookie, now + maxAgeMs / 1000)
        self._entries[id] = entry
        self._minutes.setdefault(_minute(entry.expires), {})[id] = None
        self._bytes += entry.size
        while len(self._entries) > self._maxSessions or self._bytes > self._maxBytes:
            self.destroy(next(iter(self._entries)))

    def _sweep(self, now: float) -> None:
        """Let those go that have expired. Each costs once what its coming did."""
        minute = int(now // _STEP)
        if minute != self._sweptTo:
            self._sweptTo = minute
            for past in [key for key in self._minutes if key <= minute]:
                for id in list(self._minutes[past]):
                    self.destroy(id)


def _minute(expires: float) -> int:
    """Give the first minute in which a session has expired all through."""
    return int(expires // _STEP) + 1


_BUSY_MS = 5_000
"""Another process holds the lock for a transaction of milliseconds; then something is wrong."""

_SWEEP_SECONDS = 60
_SWEEP_WRITES = 10_000
"""How often what has expired is taken out: by time, or sooner where much comes."""

_SWEPT_AT_ONCE = 1_000
"""Rows in one step: some milliseconds, during which others wait."""

_FIRST = (
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY NOT NULL,
        content BLOB NOT NULL,
        cookie BLOB NOT NULL,
        expires REAL NOT NULL
    )
    """,
    "CREATE INDEX sessionsByExpiry ON sessions (expires)",
)

_SWEEP = """
    DELETE FROM sessions WHERE rowid IN
        (SELECT rowid FROM sessions WHERE expires <= ? ORDER BY expires LIMIT ?)
"""


class SessionFileError(Exception):
    """The file cannot keep sessions."""


_KIND = FileKind(
    keeps="sessions",
    migrations=(_FIRST,),
    mark="sessionsByExpiry",
    # A sync for each would cost more than the last sessions before a loss of power are worth.
    synchronous="NORMAL",
    error=SessionFileError,
)


class SessionTable:
    """The table in its file. One thread at a time."""

    def __init__(self, path: str, maxSessions: int) -> None:
        self._file = SQLiteFile(path, _KIND, _BUSY_MS)
        self._execute = self._file.execute
        self._maxSessions = maxSessions
        self._sweepAt = 0.0
        self._writes = 0

    def perform(
        self, acts: Sequence[Callable[["SessionTable"], Any]], writes: bool, now: float
    ) -> list[Any]:
        """
        Do several things, all of them or none.

        @param writes: Whether any of them changes something.
        @raise SessionFileError: The file cannot be used.
        """
        try:
            results = self._file.perform(lambda: [act(self) for act in acts], writes)
            if writes:
                self._writes += len(acts)
                if now >= self._sweepAt or self._writes >= _SWEEP_WRITES:
                    self._file.perform(lambda: self._sweep(now), writes=True)
        except sqlite3.Error as error:
            raise SessionFileError(f"{self._file.path} cannot keep sessions: {error}") from error
        return results

    def close(self) -> None:
        """Close the file, if it is open."""
        self._file.close()

    # What may be done in perform()

    def get(self, id: str, now: float) -> tuple[bytes, bytes] | None:
        """Give content and cookie of a session that has not expired."""
        row: tuple[bytes, bytes] | None = self._execute(
            "SELECT content, cookie FROM sessions WHERE id = ? AND expires > ?", id, now
        ).fetchone()
        return row

    def set(self, id: str, content: bytes, cookie: bytes, expires: float) -> None:
        """Put a session in."""
        self._execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", id, content, cookie, expires
        )

    def replace(self, id: str, content: bytes, cookie: bytes, expires: float, now: float) -> None:
        """Change a session that has not expired."""
        self._execute(
            "UPDATE sessions SET content = ?, cookie = ?, expires = ? WHERE id = ? AND expires > ?",
            *(content, cookie, expires, id, now),
        )

    def touch(self, id: str, cookie: bytes, expires: float, now: float) -> None:
        """Change the cookie of a session that has not expired."""
        self._execute(
            "UPDATE sessions SET cookie = ?, expires = ? WHERE id = ? AND expires > ?",
            *(cookie, expires, id, now),
        )

    def destroy(self, id: str) -> None:
        """Take a session out."""
        self._execute("DELETE FROM sessions WHERE id = ?", id)

    def _sweep(self, now: float) -> None:
        """Take out what has expired, and what is too much; some of it, if there is much."""
        swept = self._execute(_SWEEP, now, _SWEPT_AT_ONCE).rowcount
        (count,) = self._execute("SELECT count(*) FROM sessions").fetchone()
        excess = min(count - self._maxSessions, _SWEPT_AT_ONCE)
        if excess > 0:
            self._execute(_SWEEP, float("inf"), excess)
        self._writes = 0
        # With more to do, the next batch goes on.
        more = swept == _SWEPT_AT_ONCE or excess == _SWEPT_AT_ONCE
        self._sweepAt = now if more else now + _SWEEP_SECONDS


_WAITING = 4096
"""Four for each of the 1024 calls that a listener lets in."""

_BATCH = 256
"""Some milliseconds of work, and no more bytes in one transaction than the log can bear."""


class SessionStoreBusy(Exception):
    """More waits for the disk than the store takes, or the store was closed."""

    statusCode = 503


@define(eq=False)
class _Job:
    """Something to do in the thread, and who waits for it."""

    act: Callable[[SessionTable], Any]
    writes: bool
    done: Deferred[Any] = field(factory=Deferred)


@implementer(IReplacingStore, IBoundStore)
class SQLiteSessionStore(JobQueue[_Job]):
    """Keeps sessions in a file. All methods: reactor thread; each result is a Deferred."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        runtime: Runtime | None = None,
        maxSessions: int = 1_000_000,
    ) -> None:
        """
        @param path: The file; it is made, for its owner alone, if there is none.
        @param runtime: By default that of the application.
        @param maxSessions: About as many are kept; past that those that expire first go.
        """
        super().__init__()
        self._table = SessionTable(os.fspath(path), maxSessions)
        self._runtime = runtime

    def bind(self, runtime: Runtime) -> None:
        """See L{IBoundStore.bind}."""
        if self._runtime is None:
            self._runtime = runtime

    def get(self, id: str) -> Deferred[dict[str, Any] | None]:
        """See L{ISessionStore.get<storagegate.http.sessions.ISessionStore.get>}."""
        now = self._now()
        return self._do(lambda table: table.get(id, now), writes=False).addCallback(_decoded)

    def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{ISessionStore.set<storagegate.http.sessions.ISessionStore.set>}."""
        content, cookie = encodeParts(data)
        expires = self._now() + maxAgeMs / 1000
        return self._do(lambda table: table.set(id, content, cookie, expires))

    def replace(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{IReplacingStore.replace}."""
        content, cookie = encodeParts(data)
        now = self._now()
        expires = now + maxAgeMs / 1000
        return self._do(lambda table: table.replace(id, content, cookie, expires, now))

    def destroy(self, id: str) -> Deferred[None]:
        """
        See L{ISessionStore.destroy<storagegate.http.sessions.ISessionStore.destroy>}.
        """
        return self._do(lambda table: table.destroy(id))

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{ISessionStore.touch<storagegate.http.sessions.ISessionStore.touch>}."""
        cookie = encodeCookie(data)
        now = self._now()
        expires = now + maxAgeMs / 1000
        return self._do(lambda table: table.touch(id, cookie, expires, now))

    def _world(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError("a store that no application has used yet needs runtime=")
        return self._runtime

    def _now(self) -> float:
        return self._world().now()

    def _do(self, act: Callable[[SessionTable], Any], writes: bool = True) -> Deferred[Any]:
        if self._closing is not None:
            return fail(SessionStoreBusy("the store of sessions was closed"))
        if len(self._jobs) >= _WAITING:
            return fail(SessionStoreBusy("too many sessions wait for the disk"))
        job = _Job(act, writes)
        self._put(job)
        return job.done

    def _take(self) -> list[_Job]:
        return [self._jobs.popleft() for _ in range(min(len(self._jobs), _BATCH))]

    def _run(self, jobs: list[_Job]) -> Deferred[Any]:
        writes = any(job.writes for job in jobs)
        return self._world().run(
            self._table.perform, [job.act for job in jobs], writes, self._now()
        )

    def _deliver(self, results: Any, jobs: list[_Job]) -> None:
        for index, job in enumerate(jobs):
            job.done.callback(results if isinstance(results, Failure) else results[index])

    def _finish(self) -> Deferred[None]:
        # Without a runtime nothing was ever done.
        return succeed(None) if self._runtime is None else self._runtime.run(self._table.close)


def _decoded(row: tuple[bytes, bytes] | None) -> dict[str, Any] | None:
    return None if row is None else decodeParts(*row)
