"""A client's call: its requests, responses, metadata and status."""

from collections import deque
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from storagegate.core.errors import GRPC_NAMES, GRPC_STATUSES, GrpcError
from storagegate.core.streams import SharedFuture
from storagegate.core.task import fromCoroutine, portable
from storagegate.rpc.call import READ_AHEAD, CallMetadata
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    IClientCall,
    IClientEngine,
    Metadata,
    UnaryResult,
)
from storagegate.rpc.protos import RPCMethod
from storagegate.rpc.status import DETAILS_KEY, decodeDetails

_UNSURE = [GRPC_STATUSES[name] for name in ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE")]
"""The statuses after which the responses of a unary method are counted again."""


@define(eq=False)
class ClientCall:
    """
    One call: an awaitable of the response, or an asynchronous iterable of a stream of responses.

    The call begins when it is created, awaited or not, and may be awaited any number of times. At
    most L{READ_AHEAD} responses of a stream are fetched before they are consumed, so that a slow
    consumer slows the server down. A consumer that stops before the end cancels the call.
    """

    _engine: IClientEngine
    # The method's name, for errors.
    _name: str
    _request: Any
    _options: CallOptions
    # Provides IReactorTime.
    _clock: Any
    _method: RPCMethod | None = None
    _engineCall: IClientCall | None = None
    _cancelEngine: Callable[[], object] | None = None
    _isCancelled: bool = False
    _sending: Deferred[None] | None = None
    _messages: deque[bytes] = field(factory=deque)
    _isReading: bool = False
    _isRead: bool = False
    _hasEnded: bool = False
    # The reason why no response follows. A local error takes precedence over the status, because
    # the call is then cancelled.
    _error: BaseException | None = None
    _response: SharedFuture[Any] = field(factory=SharedFuture)
    _metadata: SharedFuture[CallMetadata] = field(factory=SharedFuture)
    _trailers: SharedFuture[CallMetadata] = field(factory=SharedFuture)
    _item: Deferred[None] | None = None

    def begin(self, method: RPCMethod) -> None:
        """
        Send the request.

        @param method: The method, from the definition or from reflection.
        @raise ConversionError: If the request does not fit its message.
        @raise TypeError: If the method takes a stream of requests, and the request is not an
            iterable.
        """
        if self._hasEnded:
            return
        self._method = method
        if method.streaming == "none" and method.path in self._engine.counted:
            request = self._encodeOne(method)
            self._cancelEngine = self._engine.exchange(
                method.path, self._options, request, self._exchanged
            )
            return
        if method.streaming in ("none", "server"):
            # How many responses a server sends follows from its definition of the method: those of
            # a unary method are counted until a call has had exactly one.
            engineCall = self._engine.call(method.path, self._options, self._encodeOne(method))
        elif isinstance(self._request, AsyncIterable | Iterable) and not isinstance(
            # A single request may also be iterable.
            self._request,
            Mapping | str | bytes,
        ):
            engineCall = self._engine.call(method.path, self._options)
        else:
            kind = type(self._request).__name__
            raise TypeError(f"{self._name} takes an iterable of requests, not a {kind}")
        self._engineCall, self._cancelEngine = engineCall, engineCall.cancel
        engineCall.begun().addCallback(self._begun)
        engineCall.ended().addCallback(lambda end: self._ended(*end))
        if self._streams:
            self._response.fail(self._misused())
        self._readMore()
        if method.streaming in ("client", "bidirectional"):
            self._sending = fromCoroutine(self._send(engineCall, method.request.encoder()))

    def _encodeOne(self, method: RPCMethod) -> bytes:
        return method.request.encode({} if self._request is None else self._request)

    def fail(self, error: BaseException) -> None:
        """End the call with an error before it has begun."""
        if not self._hasEnded:
            self._error = error
            self._begun(())
            self._ended(GRPC_STATUSES["CANCELLED"], "", ())

    @property
    def _streams(self) -> bool:
        """Whether the method has a stream of responses."""
        return self._method is not None and self._method.streaming in ("server", "bidirectional")

    def _misused(self) -> TypeError:
        if self._streams:
            return TypeError(f"{self._name} returns a stream: iterate over it with 'async for'")
        return TypeError(f"{self._name} returns one response: await it")

    # Requests

    async def _send(self, engineCall: IClientCall, encode: Callable[[Any], bytes]) -> None:
        """Send a stream of requests, each taken when it can be sent."""
        requests = self._request
        isAsync = isinstance(requests, AsyncIterable)
        source = aiter(requests) if isAsync else iter(requests)
        # The caller has the call before the requests begin to run.
        returned: Deferred[None] = Deferred()
        self._clock.callLater(0, returned.callback, None)
        try:
            await returned
            while not self._hasEnded:
                try:
                    request = await anext(source) if isAsync else next(source)
                except (StopAsyncIteration, StopIteration):
                    engineCall.sendEnd()
                    return
                if not engineCall.send(encode(request)):
                    await engineCall.drained()
        except Exception as error:
            # After the end of the call, this is the cancelled wait for another request.
            if not self._hasEnded:
                self._abort(error)
        finally:
            # Let an unfinished generator clean up.
            if hasattr(source, "aclose"):
                await source.aclose()
            elif isinstance(source, Generator):
                source.close()

    def _abort(self, error: BaseException) -> None:
        """Cancel the call because of a local error."""
        if self._error is None:
            self._error = error
        self.cancel()

    # Responses

    def _begun(self, metadata: Metadata) -> None:
        self._metadata.set(CallMetadata(metadata or ()))

    def _exchanged(self, exchange: UnaryResult) -> None:
        """Receive the result of a unary call."""
        self._begun(exchange.metadata)
        if exchange.response is not None:
            self._messages.append(exchange.response)
        self._isRead = True
        self._ended(exchange.status, exchange.message, exchange.trailers)

    def _readMore(self) -> None:
        if self._isReading or self._isRead or len(self._messages) >= READ_AHEAD:
            return
        if self._engineCall is not None:
            self._isReading = True
            self._engineCall.read(self._got)

    def _got(self, message: bytes | None) -> None:
        self._isReading = False
        if message is None:
            self._isRead = True
        else:
            self._messages.append(message)
            if len(self._messages) > 1 and not self._streams:
                self._abort(self._miscounted())
        self._readMore()
        self._progress()

    def _ended(self, status: int, message: str, trailers: Metadata) -> None:
        """Receive the status."""
        self._hasEnded = True
        received = CallMetadata(trailers or ())
        if status in _UNSURE and self._method is not None:
            # Another server may follow, or a second response was not read.
            self._engine.counted.discard(self._method.path)
        if self._isCancelled and not status:
            # The end was already in flight; a cancelled call always has the same status.
            status, message = GRPC_STATUSES["CANCELLED"], CANCELLED_MESSAGE
        if status and self._error is None:
            pool = None if self._method is None else self._method.response.pool
            self._error = statusError(status, message, received, pool)
        self._trailers.set(received)
        if self._sending is not None:
            self._sending.cancel()
        self._progress()

    def _progress(self) -> None:
        """Resume the consumers that can continue."""
        if self._hasEnded and not self._streams and (self._isRead or self._error is not None):
            self._settle()
        if self._item is not None and (self._messages or self._isDone):
            item, self._item = self._item, None
            item.callback(None)

    @property
    def _isDone(self) -> bool:
        return self._hasEnded and (self._isRead or self._error is not None)

    def _settle(self) -> None:
        """Set the only response."""
        if self._response.isKnown:
            return
        if self._error is None and not self._messages:
            self._error = self._miscounted()
        if self._error is None:
            assert self._method is not None
            self._engine.counted.add(self._method.path)
            try:
                self._response.set(self._decode(self._messages.popleft()))
            except GrpcError as error:
                self._error = error
        if self._error is not None:
            self._response.fail(self._error)

    def _miscounted(self) -> GrpcError:
        """Return the error of a server that sends no response, or several, instead of one."""
        if self._messages:
            return GrpcError("INTERNAL", f"{self._name} got more than one response")
        return GrpcError("UNIMPLEMENTED", f"{self._name} got no response")

    def _decode(self, message: bytes) -> Any:
        assert self._method is not None
        try:
            return self._method.response.decode(message)
        except ConversionError as error:
            raise GrpcError("INTERNAL", f"the response cannot be read: {error}") from error

    # For the caller

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.deferred().__await__()

    def deferred(self) -> Deferred[Any]:
        """
        Return the response as a Deferred; cancelling it cancels the call.

        It fails with L{GrpcError} if the call fails, or with the error of the stream of requests.
        """
        if self._streams:
            raise self._misused()
        return portable(self._response.wait(self.cancel))

    def __aiter__(self) -> "Responses":
        if self._method is not None and not self._streams:
            raise self._misused()
        return Responses(self)

    def initialMetadata(self) -> Deferred[CallMetadata]:
        """
        Wait for the initial metadata; empty if the server sends none.

        In a unary call, they arrive with the response.
        """
        return portable(self._metadata.wait())

    def trailers(self) -> Deferred[CallMetadata]:
        """Wait for the trailers, which the server sends with any status."""
        return portable(self._trailers.wait())

    def cancel(self) -> None:
        """Cancel the call, which then ends with C{CANCELLED} unless it has already ended."""
        if self._cancelEngine is None and not self._hasEnded:
            self.fail(GrpcError("CANCELLED", CANCELLED_MESSAGE))
        self.abandon()

    def abandon(self) -> None:
        """Cancel the engine's call. May run in any thread."""
        if self._cancelEngine is not None and not self._hasEnded:
            self._isCancelled = True
            self._cancelEngine()

    def takeNext(self) -> Generator[Any, Any, Any]:
        """
        Wait for the next response of a stream.

        @raise StopAsyncIteration: At the end of the stream.
        """
        while True:
            if self._method is not None and not self._streams:
                raise self._misused()
            if self._messages and not self._isCancelled:
                break
            if self._isDone:
                raise self._error or StopAsyncIteration
            if self._item is not None:
                raise RuntimeError(f"the next response of {self._name} is already awaited")
            item = self._item = Deferred(self._stopWaiting)
            yield from portable(item).__await__()
        message = self._messages.popleft()
        self._readMore()
        try:
            return self._decode(message)
        except GrpcError as error:
            self._abort(error)
            raise

    def _stopWaiting(self, item: Deferred[None]) -> None:
        self._item = None


@frozen(eq=False)
class Responses:
    """
    The iterator over the responses of a call.

    C{async for} holds the iterator: when the loop exits by C{break} or an exception, the iterator
    is deleted and cancels the call. The iterator itself is the awaitable of C{__anext__}, which
    saves an object for each response.
    """

    _call: ClientCall

    def __aiter__(self) -> "Responses":
        return self

    def __anext__(self) -> "Responses":
        return self

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._call.takeNext()

    async def aclose(self) -> None:
        """Stop iterating: cancel the call if it has not ended."""
        self._call.cancel()

    def __del__(self) -> None:
        self._call.abandon()


def statusError(status: int, message: str, trailers: CallMetadata, pool: Any = None) -> GrpcError:
    """
    Return the error of a call that ended with a status other than C{OK}.

    @param status: The number of the status; an unknown one becomes C{UNKNOWN}.
    @param message: The text from the server.
    @param trailers: The trailers, which become the metadata of the error and may hold its details.
    @param pool: The descriptor pool of the service, with the types of its details.
    """
    if status not in GRPC_NAMES:
        message = f"unknown status {status}: {message}"
        status = GRPC_STATUSES["UNKNOWN"]
    details = trailers.get(DETAILS_KEY)
    error = GrpcError(status, message, decodeDetails(details[0], pool) if details else None)
    error.metadata = trailers
    return error
