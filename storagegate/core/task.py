"""
Runs a coroutine whose first step costs no Deferred.

C{Deferred.fromCoroutine} would do, at the price of two Deferreds for a coroutine that never waits.

One call under way on whatever wire: it can be cancelled, and it ends at its deadline.

Those who wait until nothing is left to do.
"""

from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine as generatorCoroutine
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from storagegate.core.errors import codedError


class Task:
    """
    One coroutine on its way; a subclass says what its end means.

    L{step} starts it. The first step runs at once, in the caller's own stack.
    """

    __slots__ = ("_context", "_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._waiting: Deferred[Any] | None = None
        self._context: Context = copy_context()

    def returned(self, value: Any) -> None:
        """Take what the coroutine returned."""
        raise NotImplementedError

    def failed(self, error: BaseException) -> None:
        """
        Take what the coroutine raised.

        That may be C{SystemExit} or the C{CancelledError} of asyncio: a Deferred would keep those
        as well, and nobody would be answered.
        """
        raise NotImplementedError

    def waits(self) -> None:
        """Take note that the coroutine waits for the first time."""

    def step(self, result: Any = None) -> Any:
        """
        Run the coroutine until it waits or ends.

        @return: What a Deferred that was waited for goes on with: its result stays its own, unless
            it is a failure, which the coroutine has got.
        """
        first = self._waiting is None
        self._waiting = None
        try:
            if isinstance(result, Failure):
                awaited = self._context.run(result.throwExceptionIntoGenerator, self._coroutine)
            else:
                # The Deferred that is waited for takes its result from itself.
                awaited = self._context.run(self._coroutine.send, None)
            while not isinstance(awaited, Deferred):
                wrong = TypeError(f"a coroutine can wait for Deferreds here, not {type(awaited)}")
                awaited = self._context.run(self._coroutine.throw, wrong)
        except StopIteration as end:
            self.returned(end.value)
        except BaseException as error:
            self.failed(error)
        else:
            self._wait(awaited, first)
        return None if isinstance(result, Failure) else result

    def cancel(self) -> None:
        """Cancel what the coroutine waits for, if it does."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _wait(self, awaited: Deferred[Any], first: bool) -> None:
        self._waiting = awaited
        if first:
            self.waits()
        awaited.addBoth(self.step)


def runWithDeadline(
    coroutine: Coroutine[Any, Any, Any], clock: IReactorTime, seconds: float | None = None
) -> Deferred[Any] | None:
    """
    Run what answers a call.

    @param seconds: How long it may take; C{None} for as long as it likes. After that it is
        cancelled, and whether it obeys or not, the result is C{DEADLINE_EXCEEDED}.
    @return: What the coroutine gives; C{None} if it has ended already, for whoever calls it has an
        answer then. Cancelling it cancels the coroutine where it waits, and the result is
        C{CANCELLED}.
    @raise Exception: Whatever the coroutine raised before it waited for anything.
    """
    context = copy_context()
    try:
        # Most calls do not wait for anything, and need no more than this step: a Deferred would
        # take another 1.5 microseconds.
        awaited = context.run(coroutine.send, None)
    except StopIteration:
        return None
    running = context.run(Deferred.fromCoroutine, _rest(coroutine, awaited))
    outcome: Deferred[Any] = Deferred(lambda outcome: _end(running, outcome, "CANCELLED"))
    timer = None
    if seconds is not None:
        late = "DEADLINE_EXCEEDED"
        timer = clock.callLater(max(0.0, seconds), _end, running, outcome, late)

    def ended(result: Any) -> None:
        if timer is not None and timer.active():
            timer.cancel()
        if not outcome.called:
            outcome.callback(result)

    running.addBoth(ended)
    return outcome


@generatorCoroutine
def _rest(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that waits, as C{yield from} would have from its beginning."""
    try:
        while True:
            try:
                result = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                awaited = coroutine.throw(error)
            else:
                awaited = coroutine.send(result)
    except StopIteration as end:
        return end.value


_REASONS = {
    "CANCELLED": "The call was cancelled",
    "DEADLINE_EXCEEDED": "The deadline has passed",
}


def _end(running: Deferred[Any], outcome: Deferred[Any], code: str) -> None:
    """Give the outcome first: what the coroutine makes of its end is no answer any more."""
    if not outcome.called:
        outcome.errback(Failure(codedError(code, _REASONS[code])))
    running.cancel()


class IdleWaiters:
    """Fires the Deferreds of all who wait. Reactor thread."""

    def __init__(self) -> None:
        self._waiting: list[Deferred[None]] = []

    def wait(self, busy: bool) -> Deferred[None]:
        """Give what fires with the next L{tell}, or has fired where nobody is busy."""
        if not busy:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def tell(self) -> None:
        """Say that nothing is left to do."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.callback(None)
