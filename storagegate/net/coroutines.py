"""
Runs a coroutine whose first step costs no Deferred.

C{Deferred.fromCoroutine} would do, at the price of two Deferreds for a coroutine that never waits.
"""

from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class CoroutineRun:
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
