"""
The bridge from C{render} to coroutines.

A handler's exception becomes a response here and nowhere else; the framework, whose handlers may
answer errors themselves, has its own way to the same end.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from zope.interface import implementer

from storagegate.core.task import Task
from storagegate.net.http.interfaces import BodyLost, ClientLost
from storagegate.net.http.message import ChannelRequest

# twisted.web.server.NOT_DONE_YET, whose module takes 50 ms to import; a test compares.
_NOT_DONE_YET = 1

Shape = tuple[int, Sequence[tuple[bytes, bytes]], bytes]
"""A whole response: status, header fields, body."""

_log = Logger()


@implementer(IResource)
class NativeResource:
    """A leaf that answers lean requests; a subclass says how."""

    isLeaf = True

    def answer(self, request: ChannelRequest) -> None:
        """Answer a request, now or later, with exactly one response."""
        raise NotImplementedError

    def render(self, request: Any) -> int:
        """Answer, whether the request is lean or the stock one that stands for it."""
        self.answer(request if isinstance(request, ChannelRequest) else request.lean)
        return _NOT_DONE_YET

    def getChildWithDefault(self, name: bytes, request: Any) -> "NativeResource":
        """Give this very resource: it sees the whole path."""
        return self

    def putChild(self, path: bytes, child: Any) -> None:
        """
        Refuse.

        @raise TypeError: Always: a leaf has no children.
        """
        raise TypeError("a leaf has no children")


class CoroutineResource(NativeResource):
    """
    A leaf whose requests are answered by a coroutine.

    The first step runs at once, so a handler that waits for nothing costs no Deferred. When the
    client goes away, what the coroutine waits for is cancelled.
    """

    def __init__(
        self,
        handle: Callable[[ChannelRequest], Coroutine[Any, Any, None]],
        describeError: Callable[[ChannelRequest, Exception], Shape],
    ) -> None:
        """
        @param handle: Answers a request, with exactly one response.
        @param describeError: Gives the response to an exception. If its status is 500, the
            exception is logged with its traceback.
        """
        self._handle = handle
        self._describeError = describeError

    def answer(self, request: ChannelRequest) -> None:
        """Start the handler."""
        _Run(self._handle(request), request, self._describeError).step()


class _Run(Task):
    """One handler on its way."""

    __slots__ = ("_describeError", "_request")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        request: ChannelRequest,
        describeError: Callable[[ChannelRequest, Exception], Shape],
    ) -> None:
        super().__init__(coroutine)
        self._request = request
        self._describeError = describeError

    def waits(self) -> None:
        """Let the handler know if the client goes away."""
        self._request.onDisconnect(self.cancel)

    def returned(self, value: None) -> None:
        """See that there is a response."""
        request = self._request
        if not (request.finished or request.disconnected):
            self.failed(RuntimeError("the handler returned without finishing the response"))

    def failed(self, error: BaseException) -> None:
        """Answer the error, or at least let nobody take half a response for a whole one."""
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

    def _answer(self, error: BaseException) -> None:
        """Send the response that the error is worth."""
        if not isinstance(error, Exception):
            error = RuntimeError(f"the handler raised {error!r}")
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
