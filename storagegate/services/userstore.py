"""
Users in a SQLite file.

One thread owns the one connection, and the writes of a batch share a transaction.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.errors import DATABASE_MESSAGE, ServiceError, codedError
from storagegate.services.userrecords import DatabaseError, IUserStore, Order, User
from storagegate.services.usertable import UserTable
from storagegate.storage.catalog.faults import Fault, classify
from storagegate.storage.catalog.writer import Undertaken
from storagegate.storage.jobqueue import JobQueue
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
        self._pool = WorkPool(reactor, 1, name="storagegate-users")

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
        return self._do(_Job(act, weight, Undertaken()))

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
