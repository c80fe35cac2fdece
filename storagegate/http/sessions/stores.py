"""
Session stores: in the memory of one process, or in a SQLite file shared by several processes.

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

from attrs import field, frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.http.options import Runtime
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
"""Room for 10,000 sessions of 6 KiB: most are far smaller, and a few may be larger."""

_STEP = 60
"""Seconds between removals of expired sessions, which until then only occupy memory."""


@frozen
class _MemorySession:
    """A session in memory. C{cookie} is separate: a touch changes nothing else."""

    content: bytes
    cookie: bytes
    expires: float

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        return len(self.content) + len(self.cookie)


@implementer(IReplacingStore, IBoundStore)
class MemorySessionStore:
    """
    Keeps sessions in memory; beyond its limits, the least recently used session is evicted.

    It returns its results synchronously.

    @cvar isPerProcess: See L{storagegate.core.perprocess}.
    @cvar held: See there.
    @cvar sharedBy: The stores that processes share.
    """

    isPerProcess = True
    held = "sessions"
    sharedBy = "session(store=SQLiteSessionStore(path)) or a session store of openCounts(url)"

    def __init__(
        self,
        maxSessions: int = 10_000,
        clock: IReactorTime | None = None,
        maxBytes: int = _BYTES,
    ) -> None:
        """
        @param maxSessions: Maximum number of sessions.
        @param clock: The clock; by default the application's.
        @param maxBytes: Maximum number of bytes of all contents and cookies together, as JSON.
        """
        if maxSessions < 1 or maxBytes < 1:
            raise ValueError("a session store holds at least one session")
        self._maxSessions = maxSessions
        self._maxBytes = maxBytes
        self._now: Callable[[], float] | None = None if clock is None else clock.seconds
        # In order of last use.
        self._entries: dict[str, _MemorySession] = {}
        self._bytes = 0
        self._sweptTo = 0

    def __len__(self) -> int:
        """Return the number of sessions, including expired ones not yet removed."""
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
        # Move to the end, as the most recently used.
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
        """See L{ISessionStore.destroy<storagegate.http.sessions.ISessionStore.destroy>}."""
        entry = self._entries.pop(id, None)
        if entry is not None:
            self._bytes -= entry.size

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{ISessionStore.touch<storagegate.http.sessions.ISessionStore.touch>}."""
        entry = self._live(id)
        if entry is not None:
            self._put(id, entry.content, encodeCookie(data), maxAgeMs)

    def _time(self) -> float:
        return time.time() if self._now is None else self._now()

    def _live(self, id: str) -> _MemorySession | None:
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
        entry = _MemorySession(content, cookie, now + maxAgeMs / 1000)
        self._entries[id] = entry
        self._bytes += entry.size
        while len(self._entries) > self._maxSessions or self._bytes > self._maxBytes:
            self.destroy(next(iter(self._entries)))

    def _sweep(self, now: float) -> None:
        """Remove expired sessions once a minute: 1 ms for each 10,000 sessions."""
        minute = int(now // _STEP)
        if minute != self._sweptTo:
            self._sweptTo = minute
            for id in [id for id, entry in self._entries.items() if entry.expires <= now]:
                self.destroy(id)


_BUSY_MS = 5_000
"""Another process holds the lock for a transaction of milliseconds; a longer wait is an error."""

_SWEEP_SECONDS = 60
_SWEEP_WRITES = 10_000
"""Expired sessions are deleted after this time, or sooner after this many writes."""

_SWEPT_AT_ONCE = 1_000
"""Rows deleted in one step: a few milliseconds, during which others wait."""

_WAITING = 4096
"""Maximum number of queued operations: four for each of the 1024 calls that a listener admits."""

_BATCH = 256
"""Maximum number of operations of a transaction: a few milliseconds of work, and a size suitable
for the log."""


class SessionFileError(Exception):
    """The file cannot store sessions."""


class SessionStoreBusy(Exception):
    """Too many operations wait for the disk, or the store was closed."""

    statusCode = 503


_KIND = FileKind(
    keeps="sessions",
    migrations=(
        (
            """
            CREATE TABLE sessions (
                id TEXT PRIMARY KEY NOT NULL,
                content BLOB NOT NULL,
                cookie BLOB NOT NULL,
                expires REAL NOT NULL
            )
            """,
            "CREATE INDEX sessionsByExpiry ON sessions (expires)",
        ),
    ),
    mark="sessionsByExpiry",
    # A sync for each commit would cost more than the sessions lost in a power failure are worth.
    synchronous="NORMAL",
    error=SessionFileError,
)

_GET = "SELECT content, cookie FROM sessions WHERE id = ? AND expires > ?"
_SET = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)"
_REPLACE = "UPDATE sessions SET content = ?, cookie = ?, expires = ? WHERE id = ? AND expires > ?"
_TOUCH = "UPDATE sessions SET cookie = ?, expires = ? WHERE id = ? AND expires > ?"
_DESTROY = "DELETE FROM sessions WHERE id = ?"
_SWEEP = """
    DELETE FROM sessions WHERE rowid IN
        (SELECT rowid FROM sessions WHERE expires <= ? ORDER BY expires LIMIT ?)
"""


@frozen(eq=False)
class _Operation:
    """A statement to execute in the thread; C{done} fires with the resulting row."""

    statement: str
    values: tuple[Any, ...]
    done: Deferred[Any] = field(factory=Deferred)


@implementer(IReplacingStore, IBoundStore)
class SQLiteSessionStore(JobQueue[_Operation]):
    """Keeps sessions in a file. Methods must run in the reactor thread and return Deferreds."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        runtime: Runtime | None = None,
        maxSessions: int = 1_000_000,
    ) -> None:
        """
        @param path: The file; created if absent, readable only by its owner.
        @param runtime: The runtime; by default that belongs to the first application that uses the
            store.
        @param maxSessions: An approximate limit; beyond it, the sessions that expire first are
            removed.
        """
        super().__init__()
        self._file = SQLiteFile(os.fspath(path), _KIND, _BUSY_MS)
        self._runtime = runtime
        self._maxSessions = maxSessions
        self._sweepAt = 0.0
        self._writes = 0

    def bind(self, runtime: Runtime) -> None:
        """See L{IBoundStore.bind}."""
        if self._runtime is None:
            self._runtime = runtime

    def get(self, id: str) -> Deferred[dict[str, Any] | None]:
        """See L{ISessionStore.get<storagegate.http.sessions.ISessionStore.get>}."""
        found = self._execute(_GET, id, self._useRuntime().now())
        return found.addCallback(lambda row: None if row is None else decodeParts(*row))

    def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{ISessionStore.set<storagegate.http.sessions.ISessionStore.set>}."""
        expires = self._useRuntime().now() + maxAgeMs / 1000
        return self._execute(_SET, id, *encodeParts(data), expires)

    def replace(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{IReplacingStore.replace}."""
        now = self._useRuntime().now()
        return self._execute(_REPLACE, *encodeParts(data), now + maxAgeMs / 1000, id, now)

    def destroy(self, id: str) -> Deferred[None]:
        """See L{ISessionStore.destroy<storagegate.http.sessions.ISessionStore.destroy>}."""
        return self._execute(_DESTROY, id)

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{ISessionStore.touch<storagegate.http.sessions.ISessionStore.touch>}."""
        now = self._useRuntime().now()
        return self._execute(_TOUCH, encodeCookie(data), now + maxAgeMs / 1000, id, now)

    def _useRuntime(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError("a store that no application has used yet needs runtime=")
        return self._runtime

    def _execute(self, statement: str, *values: Any) -> Deferred[Any]:
        if self._closing is not None:
            return fail(SessionStoreBusy("the session store is closed"))
        if len(self._jobs) >= _WAITING:
            return fail(SessionStoreBusy("too many sessions are waiting for the disk"))
        operation = _Operation(statement, values)
        self._put(operation)
        return operation.done

    def _take(self) -> list[_Operation]:
        return [self._jobs.popleft() for _ in range(min(len(self._jobs), _BATCH))]

    def _run(self, jobs: list[_Operation]) -> Deferred[Any]:
        runtime = self._useRuntime()
        return runtime.run(self._perform, jobs, runtime.now())

    def _perform(self, operations: Sequence[_Operation], now: float) -> list[Any]:
        """
        Execute all statements or none of them. Runs in a thread.

        @return: The first row of each result.
        """
        execute = self._file.execute
        isWriting = any(each.statement is not _GET for each in operations)
        try:
            rows = self._file.perform(
                lambda: [execute(each.statement, *each.values).fetchone() for each in operations],
                isWriting,
            )
            if isWriting:
                self._writes += len(operations)
                # If it is more than a minute ahead, the clock was set back.
                isDue = not 0 < self._sweepAt - now <= _SWEEP_SECONDS
                if isDue or self._writes >= _SWEEP_WRITES:
                    self._file.perform(lambda: self._sweep(now), writes=True)
        except sqlite3.Error as error:
            raise SessionFileError(f"{self._file.path} cannot keep sessions: {error}") from error
        return rows

    def _sweep(self, now: float) -> None:
        """Delete expired and excess sessions, up to a bound. Runs in a thread."""
        execute = self._file.execute
        swept = execute(_SWEEP, now, _SWEPT_AT_ONCE).rowcount
        (count,) = execute("SELECT count(*) FROM sessions").fetchone()
        excess = min(count - self._maxSessions, _SWEPT_AT_ONCE)
        if excess > 0:
            execute(_SWEEP, float("inf"), excess)
        self._writes = 0
        # If more is left, the next batch continues.
        more = swept == _SWEPT_AT_ONCE or excess == _SWEPT_AT_ONCE
        self._sweepAt = now if more else now + _SWEEP_SECONDS

    def _deliver(self, results: Any, jobs: list[_Operation]) -> None:
        for index, job in enumerate(jobs):
            job.done.callback(results if isinstance(results, Failure) else results[index])

    def _finish(self) -> Deferred[None]:
        # Without a runtime, the file was never opened.
        return succeed(None) if self._runtime is None else self._runtime.run(self._file.close)
