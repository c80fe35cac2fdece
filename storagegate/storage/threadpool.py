"""
Threads: a bounded pool, and a queue of jobs for one thread.

All that may wait for the disk runs in the L{BoundedThreadPool}. Threads start when jobs wait, and
results come back to the reactor in batches: one wake-up for all jobs that ended since the last.

A L{JobQueue} runs a batch at a time: jobs that come while one runs are the next. So many callers
share one transaction, and one sync of the disk.
"""

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from storagegate.storage.errors import StoreBusy

T = TypeVar("T")

THREADS = 16
"""More raise the rate of small durable files no further; each costs a stack."""

WAITING_LIMIT = 2048
"""Two jobs for each of the 1024 concurrent calls of a listener."""


class IWorkPool(Interface):
    """Runs blocking functions in threads."""

    def run(function: Callable[..., T], *args: Any) -> Deferred[T]:
        """
        Run a function in a thread; the Deferred fires in the reactor thread.

        @param function: Blocks, and touches nothing that belongs to the reactor thread.
        @raise StoreBusy: Too many jobs wait, or the pool has stopped. As a failure.
        """

    def runAnyway(function: Callable[..., T], *args: Any) -> Deferred[T]:
        """
        Run a function in a thread even if many jobs wait: for jobs that free resources. The caller
        limits their number.

        @param function: See L{run}.
        @raise StoreBusy: The pool has stopped. As a failure.
        """


@frozen
class PoolFigures:
    """
    How busy the pool is.

    @ivar threads: Threads that have been started.
    @ivar waiting: Jobs that no thread has taken yet.
    @ivar lagSeconds: How long the oldest of them has waited.
    """

    threads: int
    waiting: int
    lagSeconds: float


@define(eq=False)
class _Job:
    """A function call and its result."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    deferred: Deferred[Any]
    queuedAt: float
    taken: bool = False
    result: object = None


@implementer(IWorkPool)
@define(eq=False)
class BoundedThreadPool:
    """
    Up to C{threads} threads with a bounded queue. All methods: reactor thread.

    @ivar _waitingLimit: Jobs that may wait for a thread.
    @ivar _name: The beginning of the threads' names.
    """

    _reactor: IReactorFromThreads
    _size: int = field(default=THREADS, alias="threads")
    _waitingLimit: int = WAITING_LIMIT
    _name: str = "storagegate-store"
    _now: Callable[[], float] = time.monotonic
    _threads: list[Thread] = field(factory=list, init=False)
    _queue: SimpleQueue[_Job | None] = field(factory=SimpleQueue, init=False)
    _pending: int = field(default=0, init=False)
    _order: deque[_Job] = field(factory=deque, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _ended: list[_Job | Thread] = field(factory=list, init=False)
    _woken: bool = field(default=False, init=False)
    _stopped: Deferred[None] | None = field(default=None, init=False)

    def run(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """See L{IWorkPool.run}."""
        if self._pending >= self._size + self._waitingLimit:
            return fail(StoreBusy("too much work waits for the disk"))
        return self.runAnyway(function, *args)

    def runAnyway(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """See L{IWorkPool.runAnyway}."""
        if self._stopped is not None:
            return fail(StoreBusy("the store is closing"))
        job = _Job(function, args, Deferred(), self._now())
        self._pending += 1
        self._forgetTaken()
        self._order.append(job)
        self._queue.put(job)
        if self._pending > len(self._threads) and len(self._threads) < self._size:
            name = f"{self._name}-{len(self._threads)}"
            # Daemon threads: an exit that skips close() is a crash, which every job must survive.
            thread = Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The system has no room for a thread. Others run the job, if there are some.
                if not self._threads:
                    self._queue.get_nowait()
                    self._order.pop()
                    self._pending -= 1
                    return fail(StoreBusy(str(error)))
            else:
                self._threads.append(thread)
        return job.deferred

    def figures(self) -> PoolFigures:
        """Return how busy the pool is."""
        self._forgetTaken()
        lagSeconds = self._now() - self._order[0].queuedAt if self._order else 0.0
        return PoolFigures(len(self._threads), len(self._order), lagSeconds)

    def stop(self) -> Deferred[None]:
        """
        Refuse new jobs. Once.

        @return: Fires when every accepted job has ended and no thread is left.
        """
        if not self._threads:
            self._stopped = succeed(None)
            return self._stopped
        self._stopped = Deferred()
        for _ in self._threads:
            self._queue.put(None)
        return self._stopped

    def _forgetTaken(self) -> None:
        while self._order and self._order[0].taken:
            self._order.popleft()

    def _work(self) -> None:
        """Run jobs until the pool stops. Runs in a pool thread."""
        while (job := self._queue.get()) is not None:
            job.taken = True
            try:
                job.result = job.function(*job.args)
            except BaseException:
                job.result = Failure()
            self._post(job)
            # The next job may come late, and this one may hold a megabyte.
            del job
        self._post(current_thread())

    def _post(self, ended: _Job | Thread) -> None:
        """Pass a result to the reactor. Runs in a pool thread."""
        with self._lock:
            self._ended.append(ended)
            wake, self._woken = not self._woken, True
        if wake:
            self._reactor.callFromThread(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
            self._woken = False
        # Else the queue would keep the buffers of the last jobs.
        self._forgetTaken()
        for item in ended:
            if isinstance(item, Thread):
                item.join()
                self._threads.remove(item)
                if not self._threads and self._stopped is not None:
                    self._stopped.callback(None)
            else:
                self._pending -= 1
                item.deferred.callback(item.result)


J = TypeVar("J")


class JobQueue(Generic[J]):
    """
    A queue of jobs for one thread. All methods: reactor thread.

    Subclasses define the four steps that raise C{NotImplementedError} here, and limit the queue.
    """

    def __init__(self) -> None:
        self._jobs: deque[J] = deque()
        self._isRunning = False
        self._closing: Deferred[None] | None = None

    def close(self) -> Deferred[None]:
        """Close when all jobs are done. No job may follow."""
        if self._closing is None:
            self._closing = Deferred()
            if not self._isRunning:
                self._next()
        # One for each caller: a Deferred has one result for one chain.
        closed: Deferred[None] = Deferred()
        self._closing.addBoth(_passTo, closed)
        return closed

    def _take(self) -> list[J]:
        """Remove the jobs of a batch from the front; none only if there are none left."""
        raise NotImplementedError

    def _run(self, jobs: list[J]) -> Deferred[Any]:
        """Run a batch in the thread."""
        raise NotImplementedError

    def _deliver(self, results: Any, jobs: list[J]) -> None:
        """Fire the Deferreds of a batch with its results, which may be one C{Failure}."""
        raise NotImplementedError

    def _finish(self) -> Deferred[None]:
        """Close the file and end the thread."""
        raise NotImplementedError

    def _push(self, job: J) -> None:
        """Add a job to the queue."""
        self._jobs.append(job)

    def _put(self, job: J) -> None:
        self._push(job)
        if not self._isRunning:
            self._next()

    def _next(self) -> None:
        jobs = self._take()
        self._isRunning = bool(jobs)
        if jobs:
            self._run(jobs).addBoth(self._ended, jobs)
        elif self._closing is not None:
            self._finish().chainDeferred(self._closing)

    def _ended(self, results: Any, jobs: list[J]) -> None:
        # First the next batch: callbacks may take long, and add jobs.
        self._next()
        self._deliver(results, jobs)


def _passTo(result: Any, other: Deferred[Any]) -> Any:
    other.callback(result)
    return None if isinstance(result, Failure) else result
