"""
The dispatch of an accepted call, from route through middleware and handler to its status.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from math import inf
from types import CoroutineType
from typing import Any

from attrs import define
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.codecs import INLINE_SIZE
from storagegate.core.context import REQUEST_SECONDS
from storagegate.core.errors import (
    GRPC_STATUSES,
    UNKNOWN_MESSAGE,
    GrpcError,
    asGrpcError,
    codedError,
    isExpected,
)
from storagegate.core.heldbytes import PROCESS_BUDGET, HeldBytes, TooMuchHeld
from storagegate.core.schemas import ResultStream
from storagegate.core.shares import AddressShare, AddressShares
from storagegate.core.task import Task
from storagegate.net.forwarded import Trust, metadataAddress
from storagegate.rpc.call import Call, RequestStream, hostOf, invalidRequest
from storagegate.rpc.codec import MessageCodec
from storagegate.rpc.converters import ConversionError
from storagegate.rpc.interfaces import COUNTED_BYTES, IServerCall, Metadata
from storagegate.rpc.pendingreads import PendingReads
from storagegate.rpc.protos import RPCService
from storagegate.rpc.routes import GRPCRoute, Routes
from storagegate.rpc.status import DETAILS_KEY, DetailError, encodeDetails, statusMessage

_log = Logger()


Middleware = Callable[[Call, Callable[[], Awaitable[Any]]], Any]
"""C{async (call, next)} returns the response; C{None} keeps the response of C{next}."""

_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]
_LATE = GRPC_STATUSES["DEADLINE_EXCEEDED"]
_UNIMPLEMENTED = GRPC_STATUSES["UNIMPLEMENTED"]
_INTERNAL = GRPC_STATUSES["INTERNAL"]

_NOTHING = object()

Refused = Callable[[Call, Exception], object]
"""Called with a call that is refused before its handler runs, and the reason."""


class CallLimits(Struct, frozen=True):
    """
    The limits of a port's calls.

    @ivar calls: The maximum number of concurrent calls.
    @ivar perConnection: The maximum number of running handlers of one connection; infinite for no
        limit.
    @ivar compressAbove: Longer messages are compressed, in bytes; infinite for no compression.
    @ivar perAddress: The maximum number of concurrent calls of one address; infinite for no limit.
    """

    calls: int
    perConnection: float = inf
    compressAbove: float = inf
    perAddress: float = inf


CHECK_SECONDS = 10.0
"""The interval between two checks for requests that have not arrived."""

_MAX_COUNTED = 4096
"""
How many methods of connections are known to get one request, which takes 1 MB: the methods that
clients of a busy server use.
"""

_MAX_PEERS = 4096
"""
How many connections' shares are cached while they have no calls: as many as a busy server has.
"""


class CallRouter:
    """
    Accepts the calls of a server: finds the route of each, and limits the calls in flight.

    @ivar services: The services by their full names.
    @ivar routes: The routes by path.
    @ivar middleware: The middleware, the first one outermost.
    @ivar activeCalls: How many handlers are running.
    @ivar run: Calls C{run(function, *arguments) -> Deferred} in a thread, for large messages;
        C{None} for no thread pool.
    @ivar onRefused: Called with each refused call; may be C{None}.
    @ivar unread: The calls whose request has not arrived, oldest first, with the time of the last
        check before their start.
    @ivar budget: Counts the bytes of incomplete requests.
    @ivar reads: Estimates the bytes of these requests, unless the engine counts them.
    @ivar guarded: The paths of methods that need credentials. If a call has none in its metadata,
        its handler gets the single request as a stream, so that it can refuse it unread.
    @ivar counted: The unary methods, by the peer of a connection and the path, of which a call has
        had exactly one request. How many requests a client sends follows from its definition of the
        method. To wait for the end of each call's requests takes 15 % of the calls a second.
    """

    def __init__(
        self,
        trust: Trust | None = None,
        budget: HeldBytes = PROCESS_BUDGET,
        guarded: Collection[str] = (),
    ) -> None:
        """
        @param trust: Decides which proxies may name the client of a call; C{None} for none.
        @param budget: Counts the bytes of incomplete requests.
        @param guarded: The paths of methods that need credentials; the collection may change.
        """
        self.run: Callable[..., Deferred[Any]] | None = None
        self.services: dict[str, RPCService] = {}
        self.routes: Routes = {}
        self.middleware: list[Middleware] = []
        self.activeCalls = 0
        self.onRefused: Refused | None = None
        self._callsOf: dict[str, int] = {}
        self.unread: dict[CallDispatch, float] = {}
        self.budget = budget
        self.reads = PendingReads(self.unread, budget)
        self.guarded = guarded
        self.counted: set[tuple[str, str]] = set()
        self.now = 0.0
        self._trust = trust
        self._shares = AddressShares()
        # By peer, for calls that do not come through a proxy.
        self._known: dict[str, AddressShare] = {}

    def accept(self, limits: CallLimits, engineCall: IServerCall) -> None:
        """
        Dispatch a call of an engine, or refuse it.

        @param limits: The bounds on the calls of the engine.
        @param engineCall: The call as the engine received it.
        """
        path = engineCall.path
        route = self.routes.get(path)
        if route is None:
            service = path.strip("/").rpartition("/")[0]
            kind = "method" if service in self.services else "service"
            self._refuse(engineCall, service, _UNIMPLEMENTED, f"unknown {kind}: {path:.200}")
            return
        peer = engineCall.peer()
        running = self._callsOf.get(peer, 0)
        share = self._known.get(peer) or self._shareOf(engineCall, peer)
        problem = None
        if self.activeCalls >= limits.calls:
            problem = "too many calls at a time"
        elif share.calls >= limits.perAddress:
            problem = "too many calls at a time from this address"
        elif running >= limits.perConnection and not peer.startswith("unix:"):
            # grpc core enforces the limit, but forgets a call that its client has reset. All
            # clients of a UNIX socket have the same name.
            problem = "too many calls at a time on this connection"
        if problem is not None:
            self._refuse(engineCall, route.service.name, _EXHAUSTED, problem)
            return
        self.activeCalls += 1
        self._callsOf[peer] = running + 1
        share.calls += 1
        CallDispatch(engineCall, route, self, limits.compressAbove, peer, share).begin()

    def _shareOf(self, engineCall: IServerCall, peer: str) -> AddressShare:
        """Return the share of the client's address."""
        kind, _, address = peer.partition(":")
        host = hostOf(address) if kind in ("ipv4", "ipv6") else ""
        if self._trust is not None:
            return self._shares.of(metadataAddress(host, self._trust, engineCall.metadata))
        share = self._shares.of(host)
        # All clients of a UNIX socket have the same name.
        if host:
            if len(self._known) >= _MAX_PEERS:
                self._known.clear()
            self._known[peer] = share
        return share

    def _refuse(self, engineCall: IServerCall, service: str, status: int, reason: str) -> None:
        if self.onRefused is not None:
            call = Call(engineCall, service, engineCall.path.rpartition("/")[2])
            self.refused(call, GrpcError(status, reason))
        engineCall.finish(status, reason)

    def checkRequests(self, now: float) -> None:
        """
        Refuse the calls whose request is overdue.

        @param now: Seconds of a monotonic clock.
        """
        self.now = now
        while self.unread:
            oldest, since = next(iter(self.unread.items()))
            if now - since < REQUEST_SECONDS:
                break
            oldest.expire()

    def setCounted(self, peer: str, path: str) -> None:
        """
        Record that a unary method got exactly one request.

        @param peer: The client's address.
        @param path: The full name of the method.
        """
        if len(self.counted) >= _MAX_COUNTED:
            self.counted.clear()
        self.counted.add((peer, path))

    def refused(self, call: Call, error: Exception) -> None:
        """
        Notify L{onRefused} of a refused call.

        @param call: The call, which still gets its status.
        @param error: Why it is refused.
        """
        if self.onRefused is None:
            return
        try:
            self.onRefused(call, error)
        except Exception:
            # The call still gets its status.
            _log.failure("the refusal of {path} could not be counted", path=call.path)

    def ended(self, peer: str, share: AddressShare) -> None:
        """
        Count the end of a handler, possibly after the client has disconnected.

        @param peer: The client's address as it was counted at the start.
        @param share: The share that the call was counted in.
        """
        self.activeCalls -= 1
        share.calls -= 1
        left = self._callsOf[peer] - 1
        if left:
            self._callsOf[peer] = left
        else:
            del self._callsOf[peer]


class CallDispatch(Task):
    """
    Runs one call through middleware and handler to its status.

    The common case, a unary call whose handler does not wait, needs only C{_received} and
    C{returned}.
    """

    __slots__ = ("_call", "_compressAbove", "_engineCall", "_route", "_router", "_share", "peer")

    def __init__(
        self,
        engineCall: IServerCall,
        route: GRPCRoute,
        router: CallRouter,
        compressAbove: float,
        peer: str,
        share: AddressShare,
    ) -> None:
        self._engineCall = engineCall
        self._route = route
        self._router = router
        self._compressAbove = compressAbove
        self.peer = peer
        self._share = share
        self._call = Call(engineCall, route.service.name, route.method.name)

    def begin(self) -> None:
        """Read the request, or set up the stream of requests, and call the handler."""
        router, engineCall, method = self._router, self._engineCall, self._route.method
        isGuarded = engineCall.path in router.guarded
        isUnknown = isGuarded and not _hasCredentials(engineCall.metadata)
        if isUnknown or method.streaming in ("client", "bidirectional"):
            # Not a reference to this object, which would be a cycle.
            codec, run = method.request, router.run
            self._call.requests = RequestStream(
                engineCall,
                codec.decoder(),
                None if run is None else partial(run, _decodeLarge, codec),
            )
            self._callHandler()
        else:
            router.unread[self] = router.now
            if engineCall.countsBytes or len(router.unread) <= router.reads.quiet:
                engineCall.read(self._received)
            else:
                router.reads.begin(self)

    def open(self) -> None:
        """Read the request, see L{IPendingRead}."""
        self._engineCall.read(self._received)

    def expire(self) -> None:
        """Refuse the call: its request was not complete in time."""
        reason = f"the request was not complete after {REQUEST_SECONDS:.0f} seconds"
        self._refuseUnread(GrpcError(_LATE, reason))

    def _received(self, message: bytes | None, isWhole: bool = False) -> None:
        """
        Handle the request.

        @param isWhole: Whether the end of the client's messages has followed it.
        """
        router = self._router
        if router.unread.pop(self, None) is None:
            return
        if router.reads.isSampling and not isWhole:
            router.reads.received(self.peer, len(message or b""))
        if message is None:
            self._refuseNothing()
            return
        if not isWhole and (
            self._route.method.streaming == "server"
            or (self.peer, self._engineCall.path) not in router.counted
        ):
            router.unread[self] = router.now
            self._engineCall.readEnd(partial(self._ended, message))
            if len(message) >= COUNTED_BYTES and self in router.unread:
                # The client decides how long it is kept.
                router.budget.update(self, len(message))
            return
        if len(message) > INLINE_SIZE and router.run is not None:
            self._start(self._passLarge(router.run, message))
            return
        try:
            self._call.request = self._route.method.request.decode(message)
        except ConversionError as error:
            self._refuse(invalidRequest(error))
            return
        except Exception as error:
            self._refuse(error)
            return
        self._callHandler()

    def _ended(self, message: bytes, isEnd: bool) -> None:
        """Handle the request, unless a second one has followed it."""
        self._router.budget.update(self, 0)
        if isEnd:
            if self._route.method.streaming == "none":
                self._router.setCounted(self.peer, self._engineCall.path)
            self._received(message, isWhole=True)
        elif self._router.unread.pop(self, None) is not None:
            self._refuse(self._tooMany())

    def _counted(self, isEnd: bool) -> None:
        """End a unary call whose handler waits, if a second request has arrived."""
        if not isEnd and not self._engineCall.isOver:
            error = self._tooMany()
            self._engineCall.finish(error.status, error.message)
            self.cancel()

    def _tooMany(self) -> GrpcError:
        reason = f"{self._engineCall.path} takes exactly one request, and there were more"
        return GrpcError(_UNIMPLEMENTED, reason)

    async def _passLarge(self, run: Callable[..., Deferred[Any]], message: bytes) -> Any:
        """Decode a large request in a thread, and call the handler."""
        decoding = run(_decodeLarge, self._route.method.request, message)
        del message
        try:
            self._call.request = await decoding
        except GrpcError as error:
            self._router.refused(self._call, error)
            raise
        return await self._pass(0)

    def refuse(self, error: TooMuchHeld) -> None:
        """Refuse the call before its request has arrived, see L{IPendingRead}."""
        self._refuseUnread(error)

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """Refuse the call, whose request has no end yet, see L{IByteHolder
        <storagegate.core.heldbytes.IByteHolder>}."""
        self._refuseUnread(error)

    def _refuseUnread(self, error: Exception) -> None:
        del self._router.unread[self]
        self._router.budget.update(self, 0)
        self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        self._router.refused(self._call, error)
        self.onError(error)

    def _refuseNothing(self) -> None:
        """Refuse a call without a request."""
        if self._engineCall.isRefused:
            self._refuse(codedError("PAYLOAD_TOO_LARGE", "The request is too long, or damaged"))
            return
        reason = f"{self._engineCall.path} takes exactly one request, and there was none"
        error = GrpcError(_UNIMPLEMENTED, reason)
        refused, call = self._router.refused, self._call

        def closed(isCancelled: bool) -> None:
            if not isCancelled:
                refused(call, error)

        # A client that disconnects before it has sent its request looks the same until the end.
        self._engineCall.whenClosed(closed)
        self.onError(error)

    def _handler(self) -> Any:
        """
        Return the handler.

        @raise GrpcError: If the method has none.
        """
        handler = self._route.handler
        if handler is None:
            error = GrpcError(_UNIMPLEMENTED, f"{self._engineCall.path} is not implemented")
            self._router.refused(self._call, error)
            raise error
        return handler

    def _callHandler(self) -> None:
        route = self._route
        if not self._router.middleware and route.method.streaming == "none":
            try:
                result = (route.handler or self._handler())(self._call)
            except BaseException as error:
                self.onError(error)
                return
            if type(result) is CoroutineType:
                super().__init__(result)
                self.step()
            elif hasattr(result, "__await__"):
                super().__init__(_wait(result))
                self.step()
            else:
                self.onResult(result)
        else:
            self._start(self._pass(0))

    def _start(self, passing: Coroutine[Any, Any, Any]) -> None:
        super().__init__(passing)
        # The client may disconnect before such a handler waits.
        self._engineCall.watch(self.cancel)
        self.step()

    async def _pass(self, position: int) -> Any:
        """Run the middleware from a position on, and the handler."""
        middleware = self._router.middleware
        if position == len(middleware):
            return await self._handle()
        step = _Next(self, position + 1)
        result = middleware[position](self._call, step)
        # Repeated if a coroutine returns next() without awaiting it, as in JavaScript.
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
        """Send a stream of responses, no faster than the client reads them."""
        engineCall, call, compressAbove = self._engineCall, self._call, self._compressAbove
        encode, send = self._route.method.response.encoder(), engineCall.send
        async with ResultStream(results, engineCall.path) as items:
            async for result in items:
                try:
                    message = encode(result)
                except ConversionError as error:
                    raise self._misfit(error) from None
                if not send(message, len(message) > compressAbove and call.compress):
                    await engineCall.drained()
                    if engineCall.isOver:
                        raise CancelledError

    def _misfit(self, error: ConversionError) -> ValueError:
        return ValueError(f"the result of {self._engineCall.path} does not fit: {error}")

    def onSuspend(self) -> None:
        """Watch the client once the handler waits."""
        self._engineCall.watch(self.cancel)
        if self._route.method.streaming == "none" and self._call.requests is None:
            self._engineCall.readEnd(self._counted)

    def onResult(self, value: Any) -> None:
        """Send the response and C{OK}."""
        method, call = self._route.method, self._call
        if method.streaming in ("server", "bidirectional"):
            if value is not _NOTHING:
                kind = type(value).__name__
                reason = f"a middleware returned a {kind} for the stream of {self._engineCall.path}"
                self.onError(TypeError(reason))
                return
            self._router.ended(self.peer, self._share)
            self._engineCall.finish(0, "", call.trailers)
            return
        try:
            message = method.response.encode(value)
        except ConversionError as error:
            self.onError(self._misfit(error))
            return
        except Exception as error:
            self.onError(error)
            return
        self._router.ended(self.peer, self._share)
        isCompressed = call.compress and len(message) > self._compressAbove
        self._engineCall.reply(message, call.trailers, isCompressed)

    def onError(self, error: BaseException) -> None:
        """Send the status of an error."""
        self._router.ended(self.peer, self._share)
        try:
            self._report(error)
        except Exception:
            _log.failure(
                "{path} failed with an error that cannot be sent", path=self._engineCall.path
            )
            self._engineCall.finish(_INTERNAL, UNKNOWN_MESSAGE)

    def _report(self, error: BaseException) -> None:
        """Log an unexpected error; send the status if the client is still connected."""
        if not self._engineCall.isOver:
            if not isExpected(error):
                _log.failure(
                    "{path} failed", Failure(error), path=self._engineCall.path, peer=self.peer
                )
            grpcError, details = self._withDetails(asGrpcError(error))
            trailers: Metadata = self._call.trailers
            if details is not None:
                trailers = [*trailers, (DETAILS_KEY, details)]
            self._engineCall.finish(grpcError.status, statusMessage(grpcError.message), trailers)
        elif not isinstance(error, CancelledError | GeneratorExit) and not isExpected(error):
            _log.failure(
                "{path} failed after its client had disconnected",
                Failure(error),
                path=self._engineCall.path,
            )

    def _withDetails(self, error: GrpcError) -> tuple[GrpcError, bytes | None]:
        """
        Return an error and its encoded details. A detail that does not fit the type that it names
        is a mistake of the handler: the call ends with C{INTERNAL}.
        """
        if error.details is None:
            return error, None
        try:
            return error, encodeDetails(error, self._route.method.response.pool)
        except DetailError as mistake:
            _log.error(
                "{path} failed with {status}: {mistake}",
                path=self._engineCall.path,
                status=error.statusName,
                mistake=str(mistake),
            )
            return GrpcError(_INTERNAL, UNKNOWN_MESSAGE), None


@define(eq=False)
class _Next:
    """
    The C{next} of a middleware: runs the rest of the chain when it is awaited.

    If it was called but not awaited, it runs when the middleware returns C{None}.
    """

    _run: CallDispatch
    _position: int
    _state: str = "unused"
    _result: Any = None

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
        """Return the result of the rest of the chain for a middleware that returned C{None}."""
        if self._state == "called":
            await self
        return self._result


def _hasCredentials(metadata: Metadata) -> bool:
    return any(name in ("authorization", "x-api-key") for name, _ in metadata)


def _decodeLarge(codec: MessageCodec, message: bytes) -> Any:
    try:
        return codec.decodeLarge(message)
    except ConversionError as error:
        raise invalidRequest(error) from None


async def _wait(result: Awaitable[Any]) -> Any:
    return await result
