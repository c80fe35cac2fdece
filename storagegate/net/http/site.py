"""
The site of a listener (its connections, timeouts and limits), and resources whose requests are
handled by coroutines.

Exceptions of handlers become responses only here; the framework, whose handlers may respond to
errors themselves, has its own code for that.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IAddress, IProtocolNegotiationFactory, IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import IResource
from zope.interface import implementer

from storagegate.core.heldbytes import PROCESS_BUDGET, HeldBytes
from storagegate.core.shares import AddressShare, AddressShares, shareOf
from storagegate.core.task import IdleWaiters, Task
from storagegate.net.forwarded import Trust
from storagegate.net.http.channel import HTTPChannel, checkAllTimeouts
from storagegate.net.http.interfaces import (
    BadRequest,
    BodyLost,
    ClientLost,
    HTTPLimits,
    IChannelOwner,
    INativeResource,
    IWebResponse,
)
from storagegate.net.http.message import ChannelRequest, plainText, rejection
from storagegate.net.scheduling import InputScheduler

# twisted.web.server.NOT_DONE_YET; its module takes 50 ms to import. A test compares them.
_NOT_DONE_YET = 1

Shape = tuple[int, Sequence[tuple[bytes, bytes]], bytes]
"""A whole response: status, header fields, body."""

_log = Logger()


@implementer(INativeResource, IResource)
class NativeResource:
    """A leaf resource that handles channel requests in L{answer}, which subclasses implement."""

    isLeaf = True

    def answer(self, request: ChannelRequest) -> None:
        """Respond to a request, now or later, exactly once."""
        raise NotImplementedError

    def render(self, request: Any) -> int:
        """Handle a channel request, or the stock request that represents it."""
        self.answer(request if isinstance(request, ChannelRequest) else request.raw)
        return _NOT_DONE_YET

    def getChildWithDefault(self, name: bytes, request: Any) -> "NativeResource":
        """Return this resource, as it handles the whole path."""
        return self

    def putChild(self, path: bytes, child: Any) -> None:
        """
        Refuse.

        @raise TypeError: Always: a leaf has no children.
        """
        raise TypeError("a leaf has no children")


class CoroutineResource(NativeResource):
    """
    A leaf resource whose requests are handled by a coroutine.

    The first step runs synchronously, so a handler that does not wait costs no Deferred. When the
    client disconnects, the Deferred that the coroutine waits for is cancelled.
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
        """Cancel the handler if the client disconnects."""
        self._request.onDisconnect(self.cancel)

    def onResult(self, value: None) -> None:
        """Check that the handler has responded."""
        request = self._request
        if not (request.finished or request.disconnected):
            self.onError(RuntimeError("the handler returned without finishing the response"))

    def onError(self, error: BaseException) -> None:
        """Respond to the error, or drop a connection with a partial response."""
        request = self._request
        if request.disconnected:
            # The handler was cancelled, which causes these errors.
            if not isinstance(error, (CancelledError, BodyLost, ClientLost)):
                _log.failure("a handler failed after its client had gone", Failure(error))
        elif request.finished:
            # The body is discarded once the response is sent.
            if not isinstance(error, BodyLost):
                _log.failure("a handler failed after its response", Failure(error))
        elif request.started:
            _log.failure("a handler failed in the middle of its response", Failure(error))
            request.abort()
        else:
            if not isinstance(error, Exception):
                error = RuntimeError(f"the handler raised {error!r}")
            try:
                code, headers, body = self._describeError(request, error)
                if code == 500:
                    _log.failure("a handler failed", Failure(error))
                request.respond(code, headers, body)
            except Exception:
                # Log the first error, which is more useful.
                _log.failure("a handler failed", Failure(error))
                _log.failure("so did the description of its error")
                request.abort()


@implementer(IChannelOwner, IProtocolNegotiationFactory)
class Site(Factory):
    """
    Serves a resource.

    @ivar resource: The root. It may be replaced; a request keeps the root that it began with. It
        may be C{None} only before the reactor runs.
    @ivar now: The time, up to a second old, so that requests need not read the clock.
    @ivar requests: Requests in flight; the channels count them.
    @ivar draining: Whether C{drain} was called.
    @ivar scheduler: Divides time between the connections.
    @ivar shares: The counts of connections and requests for each address.
    @ivar trust: Decides which proxies may name the client of a request, for its share.
    @ivar http2Errors: The number of errors of HTTP/2 clients by the name of their code.
    @ivar openCall: Makes the streams of gRPC's calls; C{None} without any.
    @ivar servesWebSockets: Whether clients of HTTP/2 may ask for WebSockets.
    """

    noisy = False
    protocol = HTTPChannel

    def __init__(
        self,
        resource: IResource | None,
        limits: HTTPLimits,
        reactor: IReactorTime,
        describeRejection: Callable[[BadRequest], tuple[bytes, bytes]] = plainText,
        budget: HeldBytes = PROCESS_BUDGET,
    ) -> None:
        """
        @param limits: The limits of all connections of the listener.
        @param reactor: The reactor; its clock is read once a second.
        @param describeRejection: Returns the content type and the body of the response to a request
            that never reaches the resource.
        @param budget: Counts the bytes of bodies read into memory.
        """
        self.resource: Any = resource
        self._describeRejection = describeRejection
        self.limits = limits
        self.budget = budget
        self.reactor = reactor
        self.scheduler = InputScheduler(reactor)
        self.now = 0.0
        self.draining = False
        self._channels: set[Any] = set()
        self.shares = AddressShares()
        self.trust: Trust | None = None
        self.servesWebSockets = False
        self.openCall: Callable[[Any, int, Any], Any] | None = None
        self.http2Errors: dict[str, int] = {}
        self._connectionShare = shareOf(limits.maxConnections)
        self._requestShare = shareOf(limits.maxRequests)
        self.requests = 0
        self._watch = LoopingCall(self._checkTimeouts)
        self._watch.clock = reactor
        self._drained = IdleWaiters()
        self._web: Any = None

    def buildProtocol(self, addr: IAddress | None) -> HTTPChannel:
        """Make the protocol of a new connection."""
        channel = HTTPChannel(self)
        channel.factory = self
        return channel

    def acceptableProtocols(self) -> list[bytes]:
        """Return the protocols that TLS clients may negotiate, the preferred one first."""
        return [b"h2", b"http/1.1"] if self.limits.http2 else [b"http/1.1"]

    @property
    def connections(self) -> int:
        """Count the connections."""
        return len(self._channels)

    @property
    def isCrowded(self) -> bool:
        """Return whether more than half of the possible connections are open."""
        return len(self._channels) * 2 > self.limits.maxConnections

    def drain(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Close every connection: idle ones now, busy ones after their response.

        A connection is idle if no byte of a request has arrived; bytes in the kernel are read
        first. New connections are refused; the caller closes the port.

        @param graceSeconds: Connections still open after this time are aborted.
        @param idleGraceSeconds: Time that idle connections may stay open while another process
            serves the same address. The response to the next request announces the close, so that
            no request is lost to it.
        @return: Fires when all are closed.
        """
        self.draining = True
        if not self._channels:
            return succeed(None)
        for channel in list(self._channels):
            channel.willDrain()
        # Then two more reactor iterations, as the reactor runs due calls before it reads sockets:
        # the process may have been suspended for longer than the grace.
        pauses = [min(idleGraceSeconds, graceSeconds), 0.0] if idleGraceSeconds else [0.0]

        def abortAll() -> None:
            for channel in list(self._channels):
                channel.abort()

        def wait() -> None:
            if pauses:
                timers.append(self.reactor.callLater(pauses.pop(0), wait))
                return
            for channel in list(self._channels):
                channel.drain()

        def stop(result: None) -> None:
            for timer in timers:
                if timer.active():
                    timer.cancel()

        timers = [self.reactor.callLater(graceSeconds, abortAll), self.reactor.callLater(0, wait)]
        return self._drained.wait(busy=True).addCallback(stop)

    def _checkTimeouts(self) -> None:
        self.now = self.reactor.seconds()
        checkAllTimeouts(self._channels, self.now)

    # For channels

    def channelOpened(self, channel: HTTPChannel) -> bool:
        """Count a new connection, and return whether it may stay."""
        isGreedy = channel.share.connections >= self._connectionShare
        if self.draining or isGreedy or len(self._channels) >= self.limits.maxConnections:
            return False
        self._channels.add(channel)
        channel.share.connections += 1
        if not self._watch.running:
            self.now = self.reactor.seconds()
            self._watch.start(1.0, now=False)
        return True

    def channelClosed(self, channel: HTTPChannel) -> None:
        """Forget a connection."""
        if channel in self._channels:
            self._channels.discard(channel)
            channel.share.connections -= 1
        if not self._channels:
            if self._watch.running:
                self._watch.stop()
            self._drained.notify()

    def channelReplaced(self, channel: HTTPChannel, successor: Any) -> None:
        """Let another protocol continue a connection."""
        self._channels.remove(channel)
        self._channels.add(successor)

    def pieceSize(self) -> int:
        """
        Return how many bytes of a large body or a file are handled at once. Large pieces take less
        time, but with many requests in flight their memory matters.
        """
        limits = self.limits
        share = limits.pieces // max(self.requests, 1)
        return max(limits.bodyBuffer, min(limits.pieceSize, share))

    def bodyWindow(self) -> int:
        """Return how many bytes of a large body a client of HTTP/2 may send ahead of its reader."""
        limits = self.limits
        share = limits.bodyWindows // max(self.requests, 1)
        return max(limits.bodyBuffer, min(limits.bodyWindow, share))

    def rejection(self, error: BadRequest) -> bytes:
        """Encode the whole response to a request that breaks the protocol."""
        return rejection(error, *self._describeRejection(error))

    def requestReceived(self, request: ChannelRequest, share: AddressShare) -> None:
        """Pass a request to the resource, or refuse it if too many are in flight."""
        if share.calls > self._requestShare or self.requests > self.limits.maxRequests:
            contentType, body = self._describeRejection(
                BadRequest(503, "Too many requests are being answered")
            )
            request.respond(503, [(b"Retry-After", b"1"), (b"Content-Type", contentType)], body)
            return
        try:
            if isinstance(self.resource, NativeResource):
                self.resource.answer(request)
            else:
                self._webSite().serve(request)
        except Exception:
            _log.failure("a resource failed")
            request.abort()

    def requestShare(self, request: ChannelRequest, share: AddressShare) -> AddressShare:
        """Return the share of the client that a trusted proxy names."""
        client = request.clientAddress(self.trust)
        return share if client == request.clientHost else self.shares.of(client)

    def webRequest(self, request: ChannelRequest) -> Any:
        """Make the stock Twisted request that represents C{request}."""
        return self._webSite().webRequest(request)

    def serveMounted(
        self, request: ChannelRequest, resource: IResource, prefix: int, reply: IWebResponse
    ) -> None:
        """Let a stock Twisted resource respond."""
        self._webSite().serveMounted(request, resource, prefix, reply)

    def _webSite(self) -> Any:
        if self._web is None:
            # twisted.web.server takes 50 ms to import, and few listeners need it.
            from storagegate.net.http.webcompat import WebSite

            self._web = WebSite(self.resource, self.limits, self.reactor)
        return self._web
