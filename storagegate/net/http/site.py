"""
A resource tree on a listener: the factory of its connections, and their watch.

The root of a listener that is bound before its room stands, and keeps its place in a reload.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IProtocolNegotiationFactory, IReactorTime
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.web.resource import IResource
from zope.interface import implementer

from storagegate.net.http.channel import HTTPChannel, tickAll
from storagegate.net.http.interfaces import BadRequest, HTTPLimits, IChannelOwner, IWebResponse
from storagegate.net.http.message import ChannelRequest, plainText, rejection
from storagegate.net.http.resource import CoroutineResource, NativeResource, Shape

_log = Logger()


@implementer(IChannelOwner, IProtocolNegotiationFactory)
class Site(Factory):
    """
    Serves a resource.

    @ivar now: The time, up to a second old: a request asks no clock.
    @ivar draining: Whether C{drain} was called.
    """

    noisy = False
    protocol = HTTPChannel

    def __init__(
        self,
        resource: IResource,
        limits: HTTPLimits,
        reactor: IReactorTime,
        describeRejection: Callable[[BadRequest], tuple[bytes, bytes]] = plainText,
    ) -> None:
        """
        @param describeRejection: Gives the content type and the body of an answer to what never
            reaches the resource.
        """
        self.resource = resource
        self._describeRejection = describeRejection
        self.limits = limits
        self.reactor = reactor
        self.now = 0.0
        self.draining = False
        self._channels: set[HTTPChannel] = set()
        self._requests = 0
        self._watch = LoopingCall(self._tick)
        self._watch.clock = reactor
        self._drained: list[Deferred[None]] = []
        self._foreign: Any = None

    def buildProtocol(self, addr: IAddress | None) -> HTTPChannel:
        """Make the protocol of a new connection."""
        channel = HTTPChannel(self)
        channel.factory = self
        return channel

    def acceptableProtocols(self) -> list[bytes]:
        """Name what TLS clients may negotiate: most offer HTTP/2 first, and must hear a no."""
        return [b"http/1.1"]

    @property
    def connections(self) -> int:
        """Count the connections."""
        return len(self._channels)

    @property
    def requests(self) -> int:
        """Count the requests that are being answered."""
        return self._requests

    def drain(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Close every connection: idle ones now, busy ones after their response.

        Idle is who has sent nothing, also nothing that is still in the kernel: that is read before.
        Who has sent half a head may end it.

        New connections are refused, but the listening port is the caller's to close.

        @param idleGraceSeconds: How long idle ones may stay, where somebody else serves the same
            place: the next request there is answered, and its answer says that the connection
            closes, so that no request crosses with a close.
        @return: Fires when all are gone; those that are not after C{graceSeconds} are aborted.
        """
        self.draining = True
        if not self._channels:
            return succeed(None)
        # And two turns, for what is due is called before sockets are read: also where this process
        # had no turn itself for longer than the patience.
        pauses = [min(idleGraceSeconds, graceSeconds), 0.0] if idleGraceSeconds else [0.0]
        timers = [self.reactor.callLater(graceSeconds, self._abortAll)]

        def wait() -> None:
            if pauses:
                timers.append(self.reactor.callLater(pauses.pop(0), wait))
            else:
                self._closeIdle()

        timers.append(self.reactor.callLater(0, wait))
        drained: Deferred[None] = Deferred()

        def stop(result: None) -> None:
            for timer in timers:
                if timer.active():
                    timer.cancel()

        drained.addCallback(stop)
        self._drained.append(drained)
        return drained

    def _closeIdle(self) -> None:
        for channel in list(self._channels):
            channel.drain()

    def _abortAll(self) -> None:
        for channel in list(self._channels):
            channel.abort()

    def _tick(self) -> None:
        self.now = self.reactor.seconds()
        tickAll(self._channels, self.now)

    # For channels

    def channelOpened(self, channel: HTTPChannel) -> bool:
        """
        Count a new connection.

        @return: Whether it may stay.
        """
        if self.draining or len(self._channels) >= self.limits.maxConnections:
            return False
        self._channels.add(channel)
        if not self._watch.running:
            self.now = self.reactor.seconds()
            self._watch.start(1.0, now=False)
        return True

    def channelClosed(self, channel: HTTPChannel) -> None:
        """Forget a connection."""
        self._channels.discard(channel)
        if not self._channels:
            if self._watch.running:
                self._watch.stop()
            waiting, self._drained = self._drained, []
            for drained in waiting:
                drained.callback(None)

    def bodyReadSize(self) -> int:
        """
        Share what reads may bring: large ones cost less time, and with many requests under way
        their memory counts.
        """
        limits = self.limits
        share = limits.bodyReads // max(self._requests, 1)
        return max(limits.bodyBuffer, min(limits.bodyReadSize, share))

    def rejection(self, error: BadRequest) -> bytes:
        """Write the whole response to what is no request."""
        return rejection(error, *self._describeRejection(error))

    def requestReceived(self, request: ChannelRequest) -> None:
        """Let the resource answer a request."""
        self._requests += 1
        if self._requests > self.limits.maxRequests:
            contentType, body = self._describeRejection(
                BadRequest(503, "Too many requests are being answered")
            )
            request.respond(503, [(b"Retry-After", b"1"), (b"Content-Type", contentType)], body)
            return
        try:
            if isinstance(self.resource, NativeResource):
                self.resource.answer(request)
            else:
                self._foreignSite().serve(request)
        except Exception:
            _log.failure("a resource failed")
            request.abort()

    def requestDone(self) -> None:
        """Count a request that has ended."""
        self._requests -= 1

    def webRequest(self, request: ChannelRequest) -> Any:
        """Make the stock Twisted request that stands for C{request}."""
        return self._foreignSite().webRequest(request)

    def serveMounted(
        self, request: ChannelRequest, resource: IResource, prefix: int, reply: IWebResponse
    ) -> None:
        """
        Let a stock Twisted resource answer.

        @param prefix: At how many segments of the path it is mounted.
        @param reply: Takes its response.
        """
        self._foreignSite().serveMounted(request, resource, prefix, reply)

    def _foreignSite(self) -> Any:
        if self._foreign is None:
            # twisted.web.server takes 50 ms to import, and few listeners need it.
            from storagegate.net.http.webcompat import WebSite

            self._foreign = WebSite(self.resource, self.limits, self.reactor)
        return self._foreign


class RequestHandler(Protocol):
    """Answers the requests of a listener."""

    def serve(self, request: ChannelRequest) -> Coroutine[Any, Any, None]:
        """Answer one request."""

    def describeError(self, request: ChannelRequest, error: Exception) -> Shape:
        """Give an exception its shape."""


class DelegatingResource(CoroutineResource):
    """
    A leaf that leads to whatever room stands behind it now.

    A request stays in the room that it has entered. Until there is a room, the reactor does not
    run, so no request comes.
    """

    room: RequestHandler

    def __init__(self) -> None:
        super().__init__(self._enter, self._describe)

    def _enter(self, request: ChannelRequest) -> Coroutine[Any, Any, None]:
        return self.room.serve(request)

    def _describe(self, request: ChannelRequest, error: Exception) -> Shape:
        return self.room.describeError(request, error)
