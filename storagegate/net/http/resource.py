"""
Resources whose requests are handled by coroutines.

A handler's exception becomes a response here and nowhere else; the framework, whose handlers may
respond to errors themselves, has its own code for that.
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
    """A leaf that handles requests of the channel; a subclass says how."""

    isLeaf = True

    def answer(self, request: ChannelRequest) -> None:
        """Respond to a request, now or later, exactly once."""
        raise NotImplementedError

    def render(self, request: Any) -> int:
        """Handle a request of the channel, or the stock one that stands for it."""
        self.answer(request if isinstance(request, ChannelRequest) else request.raw)
        return _NOT_DONE_YET

    def getChildWithDefault(self, name: bytes, request: Any) -> "NativeResource":
        """Return this very resource: it handles the whole path."""
        return self

    def putChild(self, path: bytes, child: Any) -> None:
        """
        Refuse.

        @raise TypeError: Always: a leaf has no children.
        """
        raise TypeError("a leaf has no children")


class CoroutineResource(NativeResource):
    """
    A leaf whose requests are handled by a coroutine.

    The first step runs at once, so a handler that waits for nothing costs no Deferred. When the
    client goes away, the Deferred that the coroutine waits for is cancelled.
    """

    def __init__(
        self,
        handle: Callable[[ChannelRequest], Coroutine[Any, Any, None]],
        describeError: Callable[[ChannelRequest, Exception], Shape],
    ) -> None:
        """
        @param handle: Responds to a request, exactly once.
        @param describeError: Returns the response to an exception. If its status is 500, the
            exception is logged with its traceback.
        """
        self._handle = handle
        self._describeError = describeError

    def answer(self, request: ChannelRequest) -> None:
        """Start the handler."""
        _RequestTask(self._handle(request), request, self._describeError).step()


class _RequestTask(Task):
    """Runs the handler of one request."""

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

    def onSuspend(self) -> None:
        """Cancel the handler if the client goes away."""
        self._request.onDisconnect(self.cancel)

    def onResult(self, value: None) -> None:
        """Check that there is a response."""
        request = self._request
        if not (request.finished or request.disconnected):
            self.onError(RuntimeError("the handler returned without finishing the response"))

    def onError(self, error: BaseException) -> None:
        """Respond to the error, or drop a connection with half a response."""
        request = self._request
        if request.disconnected:
            # The handler was cancelled: the errors that this causes are expected.
            if not isinstance(error, (CancelledError, BodyLost, ClientLost)):
                _log.failure("a handler failed after its client had gone", Failure(error))
        elif request.finished:
            _log.failure("a handler failed after its response", Failure(error))
        elif request.started:
            _log.failure("a handler failed in the middle of its response", Failure(error))
            request.abort()
        else:
            self._describe(error)

    def _describe(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            error = RuntimeError(f"the handler raised {error!r}")
        request = self._request
        try:
            code, headers, body = self._describeError(request, error)
            if code == 500:
                _log.failure("a handler failed", Failure(error))
            request.respond(code, headers, body)
        except Exception:
            # The first error is the more useful one.
            _log.failure("a handler failed", Failure(error))
            _log.failure("and so did the description of its error")
            request.abort()
