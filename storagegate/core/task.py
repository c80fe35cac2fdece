"""
Coroutines on the reactor: the one runner of the project.

L{Task} runs a coroutine without a Deferred of its own, L{runWithDeadline} one that may be cancelled
and has to end in time. L{resolve} and L{resolveThen} take results of functions that may be
C{async} or not. L{IdleWaiters} fires when work has ended.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from storagegate.core.errors import codedError

if TYPE_CHECKING:
    from storagegate.core.asynciotask import AsyncioBridge

T = TypeVar("T")

_bridge: "AsyncioBridge | None" = None

REMEDY = (
    "asyncio's libraries need Twisted's asyncio reactor: app.run(reactor=\"asyncio\") in a script,"
    ' reactor = "asyncio" in the daemon\'s configuration'
)
"""What errors say of an await that needs another reactor."""


def setBridge(bridge: "AsyncioBridge | None") -> None:
    """
    Let the coroutines that begin from now on wait for asyncio's futures.

    @param bridge: C{None} when the asyncio reactor has ended.
    """
    global _bridge
    _bridge = bridge


def nameRemedy(error: BaseException) -> None:
    """
    Add to the error of a library that misses asyncio's loop how it gets one.

    @param error: Of any kind; others are left as they are.
    """
    if _bridge is None and isinstance(error, RuntimeError):
        text = str(error)
        if ("event loop" in text or "async library" in text) and REMEDY not in text:
            error.args = (f"{text}; {REMEDY}",)


class Task:
    """
    Runs one coroutine; a subclass handles its end.

    L{step} starts it, and the first step runs in the caller's stack. C{Deferred.fromCoroutine}
    would do too, at the price of two Deferreds for a coroutine that never waits.
    """

    __slots__ = ("_context", "_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine if _bridge is None else _bridge.adopt(coroutine)
        self._waiting: Deferred[Any] | None = None
        self._context: Context = copy_context()

    def onResult(self, value: Any) -> None:
        """Handle what the coroutine returned."""
        raise NotImplementedError

    def onError(self, error: BaseException) -> None:
        """
        Handle what the coroutine raised.

        @param error: Perhaps C{SystemExit} or the C{CancelledError} of asyncio: they end this
            coroutine only, as they would end a Deferred's.
        """
        raise NotImplementedError

    def onSuspend(self) -> None:
        """Called when the coroutine waits for the first time."""

    def step(self, result: Any = None) -> Any:
        """
        Run the coroutine until it waits or ends.

        @param result: Outcome of the Deferred that was waited for.
        @return: The result for the next callback of that Deferred: its own, or C{None} in place of
            a failure, which the coroutine has handled.
        """
        first = self._waiting is None
        self._waiting = None
        try:
            if isinstance(result, Failure):
                # Kept in no variable, and not thrown by the failure: the frames of both are part of
                # the traceback, and would hold the error in a cycle.
                assert result.value is not None
                errors = [result.value.with_traceback(result.getTracebackObject())]
                result = None
                awaited = self._context.run(self._coroutine.throw, errors.pop())
            else:
                # The Deferred that is waited for takes its result from itself.
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
                # Its traceback leads to the frame of the C{cancel} that made the error.
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

        Under the asyncio reactor the coroutine gets asyncio's C{CancelledError}, a turn later.
        """
        if self._waiting is not None:
            getattr(self._coroutine, "cancel", self._waiting.cancel)()


class _DeadlineTask(Task):
    """
    A coroutine that can be cancelled and has a deadline.

    @ivar outcome: Its result; C{None} before it has waited for anything.
    @ivar isReturned: Whether the caller has the outcome: then this forgets it when it fires, for
        the outcome refers to this task, too.
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
        """Begin to watch the deadline: most calls never wait."""
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
        # Before the coroutine is cancelled: what it makes of that is no result any more.
        self._fire(Failure(codedError(code, reason)))
        self.cancel()


def runWithDeadline(
    coroutine: Coroutine[Any, Any, Any], clock: IReactorTime, seconds: float | None = None
) -> Deferred[Any] | None:
    """
    Run a coroutine that can be cancelled and has a deadline.

    @param seconds: After so long it is cancelled, and its result is C{DEADLINE_EXCEEDED} however it
        reacts. C{None} for no deadline.
    @return: Its result; C{None} if it ended without waiting. Cancelling the Deferred cancels the
        coroutine, with the result C{CANCELLED}.
    @raise Exception: What the coroutine raised before it waited for anything.
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
    Run a coroutine of an application's, as C{Deferred.fromCoroutine} does.

    @param coroutine: May wait for asyncio's futures under the asyncio reactor.
    """
    return Deferred.fromCoroutine(coroutine if _bridge is None else _bridge.adopt(coroutine))


def portable(result: Deferred[T]) -> Deferred[T]:
    """
    Return a Deferred for a caller that may be a task of asyncio's.

    @param result: Returned as it is, unless an asyncio reactor runs.
    """
    return result if _bridge is None else _bridge.portable(result)


def callInThread(reactor: Any, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """
    Call a function in a thread of the reactor's own pool.

    An error that it raises is freed by its last reference, with what the frames of its traceback
    hold: the threads of Twisted keep it in a frame of this very traceback.

    @param reactor: Provides C{IReactorThreads}.
    """
    pool = reactor.getThreadPool()
    return deferToThreadPool(reactor, pool, _tryCall, function, arguments).addCallback(_unpack)


def _tryCall(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """Return the result, or the error and C{None}."""
    try:
        return [function(*arguments)]
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
    Call a function with a value, synchronously, or with the result of an awaitable.

    @return: What the function returns; for an awaitable, a coroutine that returns it.
    """
    return _resolveLater(value, function) if hasattr(value, "__await__") else function(value)


async def _resolveLater(value: Awaitable[Any], function: Callable[[Any], Any]) -> Any:
    return await resolve(function(await value))


class IdleWaiters:
    """Deferreds that fire when work has ended. Reactor thread."""

    def __init__(self) -> None:
        self._waiting: list[Deferred[None]] = []

    def wait(self, busy: bool) -> Deferred[None]:
        """
        Wait for the end of the work.

        @param busy: Whether there is any; without it, the Deferred has fired already.
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
