"""
Coroutines on the reactor: the one runner of the project.

L{Task} runs a coroutine without creating a Deferred for it; L{runWithDeadline} runs a coroutine
with cancellation and a deadline. L{resolve} and L{resolveThen} handle the results of plain and
C{async} functions. L{IdleWaiters} fires when work has ended.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from storagegate.core.errors import codedError

if TYPE_CHECKING:
    from storagegate.core.asynciotask import AsyncioBridge

P = ParamSpec("P")
T = TypeVar("T")

_bridge: "AsyncioBridge | None" = None

REMEDY = (
    "asyncio's libraries need Twisted's asyncio reactor: app.run(reactor=\"asyncio\") in a script,"
    ' reactor = "asyncio" in the daemon\'s configuration'
)
"""The advice in errors about an await that needs another reactor."""


def setBridge(bridge: "AsyncioBridge | None") -> None:
    """
    Let coroutines that start from now on await asyncio futures.

    @param bridge: The bridge; C{None} when the asyncio reactor has stopped.
    """
    global _bridge
    _bridge = bridge


def nameRemedy(error: BaseException) -> None:
    """
    Add advice to the error of a library that finds no asyncio event loop.

    @param error: Any error; only errors about a missing event loop are changed.
    """
    if _bridge is None and isinstance(error, RuntimeError):
        text = str(error)
        if ("event loop" in text or "async library" in text) and REMEDY not in text:
            error.args = (f"{text}; {REMEDY}",)


class Task:
    """
    Runs one coroutine; a subclass handles its end.

    L{step} starts it; the first step runs in the caller's stack. C{Deferred.fromCoroutine} would
    create two Deferreds even for a coroutine that never waits.
    """

    __slots__ = ("_context", "_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine if _bridge is None else _bridge.adopt(coroutine)
        self._waiting: Deferred[Any] | None = None
        self._context: Context = copy_context()

    def onResult(self, value: Any) -> None:
        """Handle the result of the coroutine."""
        raise NotImplementedError

    def onError(self, error: BaseException) -> None:
        """
        Handle an error of the coroutine.

        @param error: The error. It may be C{SystemExit} or asyncio's C{CancelledError}, which end
            only this coroutine, as in a Deferred.
        """
        raise NotImplementedError

    def onSuspend(self) -> None:
        """Called when the coroutine waits for the first time."""

    def step(self, result: Any = None) -> Any:
        """
        Run the coroutine until it waits or ends.

        @param result: The outcome of the awaited Deferred.
        @return: The result for the Deferred's next callback: unchanged, or C{None} instead of a
            failure, which the coroutine has handled.
        """
        first = self._waiting is None
        self._waiting = None
        try:
            if isinstance(result, Failure):
                # Keep the error in no variable, and do not throw it through the Failure: their
                # frames are part of the traceback and would hold the error in a cycle.
                assert result.value is not None
                errors = [result.value.with_traceback(result.getTracebackObject())]
                result = None
                awaited = self._context.run(self._coroutine.throw, errors.pop())
            else:
                # The coroutine reads the result from the awaited Deferred itself.
                awaited = self._context.run(self._coroutine.send, None)
            while not isinstance(awaited, Deferred):
                wrong = TypeError(f"cannot wait for a {type(awaited).__name__} here; {REMEDY}")
                awaited = self._context.run(self._coroutine.throw, wrong)
        except StopIteration as end:
            value = end.value
        except BaseException as error:
            nameRemedy(error)
            self.onError(error)
            if isinstance(error, CancelledError):
                # Its traceback references the frame of the cancel() that made the error.
                error.__traceback__ = None
            return result
        else:
            self._waiting = awaited
            if first:
                self.onSuspend()
            awaited.addBoth(self.step)
            return result
        self.onResult(value)
        return result

    @property
    def isWaiting(self) -> bool:
        """Return whether the coroutine waits for a Deferred."""
        return self._waiting is not None

    def cancel(self) -> None:
        """
        Cancel the Deferred that the coroutine waits for, if it waits.

        Under the asyncio reactor, asyncio's C{CancelledError} is raised in the coroutine one loop
        iteration later.
        """
        if self._waiting is not None:
            getattr(self._coroutine, "cancel", self._waiting.cancel)()


class _DeadlineTask(Task):
    """
    A coroutine that can be cancelled and has a deadline.

    @ivar outcome: Its result; C{None} until it waits for the first time.
    @ivar isReturned: Whether the caller has the outcome. The task then drops it when it fires, to
        break the reference cycle.
    """

    __slots__ = ("_clock", "_hasWaited", "_seconds", "_timer", "isReturned", "outcome")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], clock: IReactorTime, seconds: float | None
    ) -> None:
        Task.__init__(self, coroutine)
        self.outcome: Deferred[Any] | None = None
        self.isReturned = False
        self._hasWaited = False
        self._clock = clock
        self._seconds = seconds
        self._timer: IDelayedCall | None = None

    def onSuspend(self) -> None:
        """Start the deadline timer, which calls that never wait do not need."""
        self._hasWaited = True
        self.outcome = Deferred(lambda _: self._end("CANCELLED", "The call was cancelled"))
        if self._seconds is not None:
            late = ("DEADLINE_EXCEEDED", "The deadline has passed")
            self._timer = self._clock.callLater(max(0.0, self._seconds), self._end, *late)

    def onResult(self, value: Any) -> None:
        """Fire the outcome, if there is one."""
        if self.outcome is not None:
            self._fire(value)

    def onError(self, error: BaseException) -> None:
        """Fire the outcome; if the coroutine never waited, raise the error."""
        if not self._hasWaited:
            try:
                raise error
            finally:
                # Its traceback holds this frame.
                del error
        self._fire(Failure(error))

    def _fire(self, result: Any) -> None:
        outcome = self.outcome
        if outcome is None or outcome.called:
            return
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        if self.isReturned:
            self.outcome = None
        outcome.callback(result)

    def _end(self, code: str, reason: str) -> None:
        # Before the coroutine is cancelled: its reaction must not become the result.
        self._fire(Failure(codedError(code, reason)))
        self.cancel()


def runWithDeadline(
    coroutine: Coroutine[Any, Any, Any], clock: IReactorTime, seconds: float | None = None
) -> Deferred[Any] | None:
    """
    Run a coroutine that can be cancelled and has a deadline.

    @param seconds: The deadline: the coroutine is then cancelled, and the result is
        C{DEADLINE_EXCEEDED} however it reacts. C{None} for no deadline.
    @return: Its result; C{None} if it ended without waiting. Cancelling the Deferred cancels the
        coroutine, with the result C{CANCELLED}.
    @raise Exception: The error of a coroutine that failed before its first wait.
    """
    task = _DeadlineTask(coroutine, clock, seconds)
    task.step()
    outcome = task.outcome
    task.isReturned = True
    if outcome is not None and outcome.called:
        task.outcome = None
    return outcome


def fromCoroutine(coroutine: Coroutine[Any, Any, T]) -> Deferred[T]:
    """
    Run an application's coroutine, as C{Deferred.fromCoroutine} does.

    @param coroutine: The coroutine. It may await asyncio futures under the asyncio reactor.
    """
    return Deferred.fromCoroutine(coroutine if _bridge is None else _bridge.adopt(coroutine))


def portable(result: Deferred[T]) -> Deferred[T]:
    """
    Return a Deferred for a caller that may be an asyncio task.

    @param result: The Deferred; returned unchanged unless an asyncio reactor runs.
    """
    return result if _bridge is None else _bridge.portable(result)


def callInThread(
    reactor: Any, function: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs
) -> Deferred[T]:
    """
    Call a function in a thread of the reactor's pool.

    The error travels as a value, so that it and the frames of its traceback are freed with its last
    reference: Twisted's thread pool would keep it in a frame of that traceback.

    @param reactor: Provides C{IReactorThreads}.
    """
    pool = reactor.getThreadPool()
    run = partial(function, *arguments, **keywords)
    return deferToThreadPool(reactor, pool, _tryCall, run).addCallback(_unpack)


def _tryCall(function: Callable[[], Any]) -> list[Any]:
    """Return the result alone, or the error and C{None}."""
    try:
        return [function()]
    except BaseException as error:
        return [error, None]


def _unpack(outcome: list[Any]) -> Any:
    if len(outcome) == 2:
        raise outcome.pop(0)
    return outcome.pop()


async def resolve(value: Any) -> Any:
    """Return a value, or the result of an awaitable."""
    return await value if hasattr(value, "__await__") else value


def resolveThen(value: Any, function: Callable[[Any], Any]) -> Any:
    """
    Call a function with a value, or with the result of an awaitable.

    @return: The result of the function; for an awaitable, a coroutine that returns it.
    """
    return _resolveLater(value, function) if hasattr(value, "__await__") else function(value)


async def _resolveLater(value: Awaitable[Any], function: Callable[[Any], Any]) -> Any:
    return await resolve(function(await value))


class IdleWaiters:
    """Deferreds that fire when work has ended. Used in the reactor thread."""

    def __init__(self) -> None:
        self._waiting: list[Deferred[None]] = []

    def wait(self, busy: bool) -> Deferred[None]:
        """
        Return a Deferred that fires at the end of the work.

        @param busy: Whether work is in progress; otherwise the Deferred has already fired.
        """
        if not busy:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def notify(self) -> None:
        """Fire the Deferreds: the work has ended."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)
