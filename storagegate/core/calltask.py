"""One call under way on whatever wire: it can be cancelled, and it ends at its deadline."""

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine as generatorCoroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from storagegate.core.errors import codedError


def runCall(
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
