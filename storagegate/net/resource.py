"""
The bridge from C{render} to coroutines.

This is the only place where an exception becomes a response.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from zope.interface import implementer

from storagegate.net.httperrors import BodyLost, ClientLost
from storagegate.net.request import Request

# twisted.web.server.NOT_DONE_YET, whose module takes 50 ms to import; a test compares.
_NOT_DONE_YET = 1

Shape = tuple[int, Sequence[tuple[bytes, bytes]], bytes]
"""A whole response: status, header fields, body."""

_log = Logger()


@implementer(IResource)
class CoroutineResource:
    """
    A leaf whose requests are answered by a coroutine.

    The first step runs at once, so a handler that waits for nothing costs no Deferred. When the
    client goes away, what the coroutine waits for is cancelled.
    """

    isLeaf = True

    def __init__(
        self,
        handle: Callable[[Request], Coroutine[Any, Any, None]],
        describeError: Callable[[Request, Exception], Shape],
    ) -> None:
        """
        @param handle: Answers a request, with exactly one response.
        @param describeError: Gives the response to an exception. If its status is 500, the
            exception is logged with its traceback.
        """
        self._handle = handle
        self._describeError = describeError

    def render(self, request: Any) -> int:
        """Start the handler."""
        if not isinstance(request, Request):
            request = request.lean
        _Run(self._handle(request), request, self._describeError).step()
        return _NOT_DONE_YET

    def getChildWithDefault(self, name: bytes, request: Any) -> "CoroutineResource":
        """Give this very resource: the handler sees the whole path."""
        return self

    def putChild(self, path: bytes, child: Any) -> None:
        """
        Refuse.

        @raise TypeError: Always: a leaf has no children.
        """
        raise TypeError("a leaf has no children")


class _Run:
    """
    One handler on its way.

    C{Deferred.fromCoroutine} would do, at the price of two Deferreds for a handler that never
    waits.
    """

    __slots__ = ("_context", "_coroutine", "_describeError", "_request", "_waiting")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        request: Request,
        describeError: Callable[[Request, Exception], Shape],
    ) -> None:
        self._coroutine = coroutine
        self._request = request
        self._describeError = describeError
        self._waiting: Deferred[Any] | None = None
        self._context: Context = copy_context()

    def step(self, result: Any = None) -> Any:
        """
        Run the handler until it waits or ends.

        @return: What a Deferred that was waited for goes on with: its result stays its own, unless
            it is a failure, which the handler has got.
        """
        first = self._waiting is None
        self._waiting = None
        try:
            if isinstance(result, Failure):
                awaited = self._context.run(result.throwExceptionIntoGenerator, self._coroutine)
            else:
                # The Deferred that is waited for takes its result from itself.
                awaited = self._context.run(self._coroutine.send, None)
        except StopIteration:
            self._check()
        except Exception as error:
            self._fail(error)
        else:
            self._wait(awaited, first)
        return None if isinstance(result, Failure) else result

    def _wait(self, awaited: Any, first: bool) -> None:
        if not isinstance(awaited, Deferred):
            self._coroutine.close()
            self._fail(TypeError(f"a handler can wait for Deferreds, not for {type(awaited)}"))
            return
        self._waiting = awaited
        if first:
            self._request.onDisconnect(self._cancel)
        awaited.addBoth(self.step)

    def _cancel(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def _check(self) -> None:
        request = self._request
        if not (request.finished or request.disconnected):
            self._fail(RuntimeError("the handler returned without finishing the response"))

    def _fail(self, error: Exception) -> None:
        request = self._request
        if request.disconnected:
            # The handler was torn out of its wait; only what it did not get from us is news.
            if not isinstance(error, (CancelledError, BodyLost, ClientLost)):
                _log.failure("a handler failed after its client had gone", Failure(error))
        elif request.finished:
            _log.failure("a handler failed after its response", Failure(error))
        elif request.started:
            _log.failure("a handler failed in the middle of its response", Failure(error))
            request.abort()
        else:
            self._answer(error)

    def _answer(self, error: Exception) -> None:
        """Send the response that the error is worth."""
        try:
            code, headers, body = self._describeError(self._request, error)
            if code == 500:
                _log.failure("a handler failed", Failure(error))
            self._request.respond(code, headers, body)
        except Exception:
            # Not even the error could be described; the first one is worth more.
            _log.failure("a handler failed", Failure(error))
            _log.failure("and so did the description of its error")
            self._request.abort()
