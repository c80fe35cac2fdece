"""
Users in a SQLite file.

One thread owns the one connection. What comes while a batch runs makes up the next one, and the
writes of a batch share a transaction: many callers wait for one sync of the disk.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, frozen
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.errors import DATABASE_MESSAGE, ServiceError, codedError
from storagegate.services.userrecords import DatabaseError, IUserStore, Order, User
from storagegate.services.usertable import UserTable
from storagegate.storage.catalog.faults import Fault, classify
from storagegate.storage.catalog.writer import Undertaken
from storagegate.storage.pool import WorkPool

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


@frozen
class _Batch:
    """Jobs that are done together."""

    jobs: list[_Job]
    writes: bool


@implementer(IUserStore)
class SQLiteUserStore:
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
        self._table = UserTable(os.fspath(path), busyMs)
        self._pool = WorkPool(reactor, 1, name="storagegate-users")
        self._jobs: deque[_Job] = deque()
        self._running = False
        self._closing: Deferred[None] | None = None

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

    def close(self) -> Deferred[None]:
        """See L{IUserStore.close}."""
        if self._closing is None:
            self._closing = Deferred()
            if not self._running:
                self._next()
        # One for each who asks: a Deferred has one result for one chain.
        closed: Deferred[None] = Deferred()
        self._closing.addBoth(_passTo, closed)
        return closed

    def _read(self, act: Act) -> Deferred[Any]:
        return self._do(_Job(act, 0, Deferred()))

    def _write(self, act: Act, weight: int = 1) -> Deferred[Any]:
        return self._do(_Job(act, weight, Undertaken()))

    def _do(self, job: _Job) -> Deferred[Any]:
        if self._closing is not None or len(self._jobs) >= _WAITING:
            return fail(_unavailable())
        self._jobs.append(job)
        if not self._running:
            self._next()
        return job.done

    def _next(self) -> None:
        batch = self._take()
        self._running = bool(batch.jobs)
        if batch.jobs:
            acts = [job.act for job in batch.jobs]
            running = self._pool.run(self._table.perform, acts, batch.writes)
            running.addBoth(self._ended, batch)
        elif self._closing is not None:
            closing = self._pool.run(self._table.close)
            closing.addBoth(lambda _: self._pool.stop())
            closing.chainDeferred(self._closing)

    def _take(self) -> _Batch:
        """Take jobs from the front, either such as read or such as write."""
        jobs: list[_Job] = []
        weight = 0
        while self._jobs and weight < _BATCH:
            # Who was cancelled needs no answer any more; that happens to readers only.
            if not self._jobs[0].done.called:
                if jobs and bool(jobs[0].weight) != bool(self._jobs[0].weight):
                    break
                jobs.append(self._jobs[0])
            weight += max(self._jobs.popleft().weight, 1)
        return _Batch(jobs, any(job.weight for job in jobs))

    def _ended(self, outcomes: Any, batch: _Batch) -> None:
        # First the next batch: whoever has waited may take its time, and ask for more.
        self._next()
        if isinstance(outcomes, Failure):
            error = _explain(outcomes)
            outcomes = [error] * len(batch.jobs)
        for job, outcome in zip(batch.jobs, outcomes, strict=True):
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


def _passTo(result: Any, other: Deferred[Any]) -> Any:
    other.callback(result)
    return None if isinstance(result, Failure) else result
