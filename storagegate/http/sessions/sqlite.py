"""
Sessions in a SQLite file, for several processes and for restarts.

Everything runs in a thread of the application, one batch at a time, and its changes share one
transaction.

What is acknowledged survives the end of the process, however it comes: it is in the write-ahead
log (C{journal_mode=WAL}). The log is not synced with each commit (C{synchronous=NORMAL}), so a
loss of power may take the last sessions, but never damages the file.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.http.runtime import Runtime
from storagegate.http.sessions.content import decodeParts, encodeCookie, encodeParts
from storagegate.http.sessions.interfaces import DAY_MS, IBoundStore, IReplacingStore
from storagegate.http.sessions.sessiontable import SessionTable
from storagegate.storage.jobqueue import JobQueue

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
        """See L{ISessionStore.get<storagegate.http.sessions.interfaces.ISessionStore.get>}."""
        now = self._now()
        return self._do(lambda table: table.get(id, now), writes=False).addCallback(_decoded)

    def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{ISessionStore.set<storagegate.http.sessions.interfaces.ISessionStore.set>}."""
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
        See L{ISessionStore.destroy<storagegate.http.sessions.interfaces.ISessionStore.destroy>}.
        """
        return self._do(lambda table: table.destroy(id))

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Deferred[None]:
        """See L{ISessionStore.touch<storagegate.http.sessions.interfaces.ISessionStore.touch>}."""
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
