"""One call on its way through middleware and handler to its status."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import CoroutineType
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.checkedstreams import ResultStream
from storagegate.core.errors import (
    GRPC_STATUSES,
    UNKNOWN_MESSAGE,
    GrpcError,
    asGrpcError,
    codedError,
    isForeseen,
)
from storagegate.net.coroutines import CoroutineRun
from storagegate.rpc.call import Call, RequestStream
from storagegate.rpc.conversion import ConversionError, MessageCodec
from storagegate.rpc.routes import Route
from storagegate.rpc.status import DETAILS_KEY, encodeDetails, statusMessage
from storagegate.rpc.wire import IServerCall, Metadata

Middleware = Callable[[Call, Callable[[], Awaitable[Any]]], Any]
"""C{async (call, next)}: what it returns is the response, or nothing, and that of next stands."""

_INVALID_ARGUMENT = GRPC_STATUSES["INVALID_ARGUMENT"]
_UNIMPLEMENTED = GRPC_STATUSES["UNIMPLEMENTED"]
_INTERNAL = GRPC_STATUSES["INTERNAL"]

_NOTHING = object()

Refused = Callable[[Call, Exception], object]
"""Called with a call that no handler is asked about, and why."""

_log = Logger()


class CallRun(CoroutineRun):
    """
    A call that is being answered.

    The common call, one request and one response of a handler that does not wait, takes none of
    the machinery here but C{_received} and C{_respond}.
    """

    __slots__ = ("_call", "_compresses", "_ended", "_middleware", "_refused", "_route", "_wire")

    def __init__(
        self,
        wire: IServerCall,
        route: Route,
        middleware: Sequence[Middleware],
        compresses: Callable[[int], bool],
        ended: Callable[[], object],
        refused: Refused,
    ) -> None:
        """
        @param middleware: The first one outermost.
        @param compresses: Tells whether a message of so many bytes is to be compressed.
        @param ended: Called once the handler has ended, whether its client waited or not.
        @param refused: Called if the handler is not asked, and the client has not left.
        """
        self._wire = wire
        self._route = route
        self._middleware = middleware
        self._compresses = compresses
        self._ended = ended
        self._refused = refused
        self._call = Call(wire, route.service.name, route.method.name)

    def begin(self) -> None:
        """Read what the method needs, and answer."""
        if self._route.method.streaming in ("client", "bidirectional"):
            # Nothing of this object: the garbage collector would have to find the circle.
            decode = partial(_decode, self._route.method.request)
            self._call.requests = RequestStream(self._wire, decode)
            self._answer()
        else:
            self._wire.read(self._received)

    def _received(self, message: bytes | None) -> None:
        if message is None:
            self._refuseNothing()
            return
        try:
            self._call.request = _decode(self._route.method.request, message)
        except Exception as error:
            self._refuse(error)
            return
        self._answer()

    def _refuse(self, error: Exception) -> None:
        self._refused(self._call, error)
        self.failed(error)

    def _refuseNothing(self) -> None:
        """Refuse a call that has no request."""
        if self._wire.isRefused:
            self._refuse(codedError("PAYLOAD_TOO_LARGE", "The request is too long, or damaged"))
            return
        reason = f"{self._wire.path} takes exactly one request, and there was none"
        error = GrpcError(_UNIMPLEMENTED, reason)
        refused, call = self._refused, self._call

        def closed(isCancelled: bool) -> None:
            if not isCancelled:
                refused(call, error)

        # Of a client that leaves before its request came, as much is known until the end.
        self._wire.whenClosed(closed)
        self.failed(error)

    def _handler(self) -> Any:
        """
        Give what answers.

        @raise GrpcError: If nothing does.
        """
        answer = self._route.answer
        if answer is None:
            error = GrpcError(_UNIMPLEMENTED, f"{self._wire.path} is not implemented")
            self._refused(self._call, error)
            raise error
        return answer

    def _answer(self) -> None:
        method = self._route.method
        if not self._middleware and method.streaming == "none":
            try:
                result = self._handler()(self._call)
            except BaseException as error:
                self.failed(error)
                return
            if type(result) is CoroutineType:
                super().__init__(result)
                self.step()
            elif hasattr(result, "__await__"):
                super().__init__(_wait(result))
                self.step()
            else:
                self.returned(result)
        else:
            super().__init__(self._pass(0))
            # A client may leave before such a handler waits for anything.
            self._wire.watch(self.cancel)
            self.step()

    async def _pass(self, position: int) -> Any:
        """Go through the middleware from a position on, to the handler."""
        if position == len(self._middleware):
            return await self._handle()
        step = _Next(self, position + 1)
        result = self._middleware[position](self._call, step)
        # Twice where a coroutine returns next() without waiting for it, as in JavaScript.
        while hasattr(result, "__await__"):
            result = await result
        return await step.outcome() if result is None else result

    async def _handle(self) -> Any:
        result = self._handler()(self._call)
        if hasattr(result, "__await__"):
            result = await result
        if self._route.method.streaming in ("none", "client"):
            return result
        await self._sendAll(result)
        return _NOTHING

    async def _sendAll(self, results: Any) -> None:
        """Send a stream of responses, no faster than the client takes them."""
        async with ResultStream(results, self._wire.path) as items:
            async for result in items:
                if not self._send(result):
                    await self._wire.drained()
                    if self._wire.isOver:
                        raise CancelledError

    def _send(self, result: Any) -> bool:
        message = self._encode(result)
        return self._wire.send(message, self._isCompressed(message))

    def _encode(self, result: Any) -> bytes:
        try:
            return self._route.method.response.encode(result)
        except ConversionError as error:
            raise ValueError(f"the result of {self._wire.path} does not fit: {error}") from None

    def _isCompressed(self, message: bytes) -> bool:
        return self._call.compress and self._compresses(len(message))

    def waits(self) -> None:
        """Watch the client from the first time that something is waited for."""
        self._wire.watch(self.cancel)

    def returned(self, value: Any) -> None:
        """Send the response and C{OK}."""
        if self._route.method.streaming in ("server", "bidirectional"):
            if value is not _NOTHING:
                kind = type(value).__name__
                reason = f"no {kind} of a middleware replaces the stream of {self._wire.path}"
                self.failed(TypeError(reason))
                return
            self._wire.finish(0, "", self._call.trailers)
        else:
            try:
                message = self._encode(value)
            except Exception as error:
                self.failed(error)
                return
            self._wire.reply(message, self._call.trailers, self._isCompressed(message))
        self._ended()

    def failed(self, error: BaseException) -> None:
        """Send the status of an error."""
        try:
            self._tell(error)
        except Exception:
            _log.failure("{path} failed with an error that cannot be told", path=self._wire.path)
            self._wire.finish(_INTERNAL, UNKNOWN_MESSAGE)
        self._ended()

    def _tell(self, error: BaseException) -> None:
        if not self._wire.isOver:
            if not isForeseen(error):
                _log.failure(
                    "{path} failed", Failure(error), path=self._wire.path, peer=self._wire.peer()
                )
            self._finish(asGrpcError(error))
        elif not isinstance(error, CancelledError | GeneratorExit) and not isForeseen(error):
            _log.failure(
                "{path} failed after its client had left", Failure(error), path=self._wire.path
            )

    def _finish(self, error: GrpcError) -> None:
        trailers: Metadata = self._call.trailers
        if error.details is not None:
            details = encodeDetails(error)
            if details is not None:
                trailers = [*trailers, (DETAILS_KEY, details)]
        self._wire.finish(error.status, statusMessage(error.message), trailers)


class _Next:
    """
    What a middleware calls to go on.

    It gives something to wait for; what is not waited for by the middleware's end runs then.
    """

    __slots__ = ("_position", "_result", "_run", "_state")

    def __init__(self, run: CallRun, position: int) -> None:
        self._run = run
        self._position = position
        self._state = "unused"
        self._result: Any = None

    def __call__(self) -> "_Next":
        if self._state != "unused":
            raise RuntimeError("next was called twice")
        self._state = "called"
        return self

    def __await__(self) -> Any:
        if self._state == "called":
            self._state = "awaited"
            self._result = yield from self._run._pass(self._position).__await__()
        return None if self._result is _NOTHING else self._result

    async def outcome(self) -> Any:
        """Give what the rest of the chain gave, where the middleware itself gave nothing."""
        if self._state == "called":
            await self
        return self._result


def _decode(codec: MessageCodec, message: bytes) -> Any:
    try:
        return codec.decode(message)
    except ConversionError as error:
        raise GrpcError(_INVALID_ARGUMENT, str(error)) from None


async def _wait(result: Awaitable[Any]) -> Any:
    return await result
