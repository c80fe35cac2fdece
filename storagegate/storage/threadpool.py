"""
Threads: a bounded pool, and a queue of jobs for one thread.

Work that may wait for the disk runs in the L{BoundedThreadPool}. Threads start when jobs wait.
Results return to the reactor in batches: one wake-up serves all jobs that have ended since the
last.

A L{JobQueue} runs one batch at a time; jobs that arrive meanwhile form the next batch. Many callers
thus share one transaction and one disk sync. A L{SequentialPool} runs one job at a time.
"""

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Generic, TypeVar

from attrs import define, field
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, DeferredLock, fail, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from storagegate.storage.errors import StoreBusy

T = TypeVar("T")

THREADS = 16
"""More threads do not raise the rate of small durable files, and each costs a stack."""

WAITING_LIMIT = 2048
"""Two jobs for each of the 1024 concurrent calls of a listener."""


class IWorkPool(Interface):
    """Runs blocking functions in threads."""

    def run(function: Callable[..., T], *args: Any) -> Deferred[T]:
        """
        Run a function in a thread; the Deferred fires in the reactor thread.

        @param function: A blocking function that uses nothing owned by the reactor thread.
        @raise StoreBusy: Too many jobs wait, or the pool has stopped. Reported through the
            Deferred.
        """

    def runAnyway(function: Callable[..., T], *args: Any) -> Deferred[T]:
        """
        Run a function in a thread even if many jobs wait: for jobs that free resources. The caller
        limits their number.

        @param function: See L{run}.
        @raise StoreBusy: The pool has stopped. Reported through the Deferred.
        """


class PoolFigures(Struct, frozen=True):
    """
    The load of the pool.

    @ivar threads: The number of running threads.
    @ivar waiting: The number of jobs that no thread has taken.
    @ivar lagSeconds: How long the oldest waiting job has waited, in seconds.
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

    @ivar _waitingLimit: The most jobs that may wait for a thread.
    @ivar _name: The prefix of thread names.
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
            return fail(StoreBusy("too much work is waiting for the disk"))
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
                # The system cannot start another thread. Existing threads, if any, run the job.
                if not self._threads:
                    self._queue.get_nowait()
                    self._order.pop()
                    self._pending -= 1
                    return fail(StoreBusy(str(error)))
            else:
                self._threads.append(thread)
        return job.deferred

    def figures(self) -> PoolFigures:
        """Return the load of the pool."""
        self._forgetTaken()
        lagSeconds = self._now() - self._order[0].queuedAt if self._order else 0.0
        return PoolFigures(len(self._threads), len(self._order), lagSeconds)

    def stop(self) -> Deferred[None]:
        """
        Refuse new jobs. Call once.

        @return: Fires when all accepted jobs have ended and all threads have exited.
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
            # The next job may arrive late, and this one may hold a megabyte.
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
        # Otherwise the queue would keep the buffers of the last jobs alive.
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


@define(eq=False)
class SequentialPool:
    """
    Runs functions in a pool, one after the other. All methods: reactor thread.

    A function whose caller is cancelled still ends before the next one begins.
    """

    _pool: IWorkPool
    _lock: DeferredLock = field(factory=DeferredLock, init=False)

    def run(self, function: Callable[..., T], *args: Any) -> Deferred[T]:
        """
        Run a function in a thread, after the functions of earlier calls.

        @param function: See L{IWorkPool.run}, also for the errors. If the caller is cancelled
            before the function begins, it is not called.
        """
        waiting = self._lock.acquire()
        result: Deferred[T] = Deferred(lambda result: waiting.cancel())

        def run(lock: DeferredLock) -> None:
            self._pool.run(function, *args).addBoth(ended)

        def ended(outcome: Any) -> None:
            self._lock.release()
            if not result.called:
                result.callback(outcome)

        def cancelled(failure: Failure) -> None:
            failure.trap(CancelledError)

        waiting.addCallbacks(run, cancelled)
        return result


J = TypeVar("J")


class JobQueue(Generic[J]):
    """
    A queue of jobs for one thread. All methods: reactor thread.

    Subclasses implement the four steps that raise C{NotImplementedError} here, and bound the queue.
    """

    def __init__(self) -> None:
        self._jobs: deque[J] = deque()
        self._isRunning = False
        self._closing: Deferred[None] | None = None

    def close(self) -> Deferred[None]:
        """Close when all jobs have finished. No job may be added afterwards."""
        if self._closing is None:
            self._closing = Deferred()
            if not self._isRunning:
                self._next()
        # Each caller gets its own Deferred, because a Deferred serves one callback chain.
        closed: Deferred[None] = Deferred()
        self._closing.addBoth(_passTo, closed)
        return closed

    def _take(self) -> list[J]:
        """
        Remove a batch of jobs from the front; return an empty list only if the queue is empty.
        """
        raise NotImplementedError

    def _run(self, jobs: list[J]) -> Deferred[Any]:
        """Run a batch in the thread."""
        raise NotImplementedError

    def _deliver(self, results: Any, jobs: list[J]) -> None:
        """Fire the Deferreds of a batch with its results, or with a single C{Failure}."""
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
        # The next batch starts first: callbacks may take long and may add jobs.
        self._next()
        self._deliver(results, jobs)


def _passTo(result: Any, other: Deferred[Any]) -> Any:
    other.callback(result)
    return None if isinstance(result, Failure) else result
