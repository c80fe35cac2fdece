"""
Stock resources of twisted.web on the channel.

A stock resource (C{static.File}, C{WSGIResource}, Autobahn's C{WebSocketResource}) gets a real
C{twisted.web.server.Request}, made from the channel's request on demand, so that it behaves exactly
as such resources expect. L{_WebChannel} acts as the HTTP channel of the stock request: it converts
the output of the request into the response of the channel's request.
"""

from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.http_headers import Headers
from twisted.web.resource import IResource, _IEncodingResource, getChildForRequest

from storagegate.core.heldbytes import TooMuchHeld
from storagegate.net.http.interfaces import (
    BodyLost,
    BodyTooLarge,
    HTTPLimits,
    INativeResource,
    IWebResponse,
)
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.parser import CompleteBody

_log = Logger()


class WebSite:
    """Finds the resource for a request, buffers the body, and renders the resource."""

    def __init__(self, resource: IResource, limits: HTTPLimits, reactor: IReactorTime) -> None:
        self._limits = limits
        self._reactor = reactor
        # Used for traversal and sessions; it never has a connection.
        self._site = server.Site(resource, reactor=reactor)

    def webRequest(self, raw: ChannelRequest) -> "_WebRequest":
        """Make the stock request that represents C{raw}, without its body."""
        web = _WebRequest(_WebChannel(raw, self._site, self._reactor))
        for name, value in raw.headerList:
            web.requestHeaders.addRawHeader(name, value)
        web.parseCookies()
        web.receive(b"", None)
        web.prepath = []
        web.postpath = web.segments[:]
        raw.onDisconnect(web.clientLost)
        return web

    def serve(self, raw: ChannelRequest) -> None:
        """Let the tree respond."""
        web: _WebRequest = raw.web
        if raw.path == b"*":
            web._handleStar()
            return
        self._serveBelow(web, self._site.resource)

    def serveMounted(
        self, raw: ChannelRequest, resource: IResource, prefix: int, reply: IWebResponse
    ) -> None:
        """Let another tree respond, mounted at the first segments of the path."""
        web: _WebRequest = raw.web
        web.channel.reply = reply
        web.prepath, web.postpath = web.segments[:prefix], web.segments[prefix:]
        self._serveBelow(web, resource)

    def _serveBelow(self, web: "_WebRequest", root: IResource) -> None:
        web.sitepath = list(web.prepath or [])
        raw = web.raw
        try:
            resource = getChildForRequest(root, web)
        except Exception:
            web.processingFailed(Failure())
            return
        if INativeResource.providedBy(resource):
            resource.render(raw)
            return
        Deferred.fromCoroutine(self._render(web, resource))

    async def _render(self, web: "_WebRequest", resource: IResource) -> None:
        """Read the body, and render a resource."""
        try:
            web.receive(await web.raw.body.read(self._limits.webBodySize), resource)
        except BodyTooLarge:
            reply = web.channel.reply
            reply.respond(413, [(b"Content-Type", b"text/plain")], b"The body is too large\n")
        except TooMuchHeld as error:
            fields = [(b"Content-Type", b"text/plain"), (b"Retry-After", b"1")]
            web.channel.reply.respond(429, fields, error.message.encode() + b"\n")
        except BodyLost:
            # The client has disconnected.
            return
        except Exception:
            _log.failure("a body was lost")
            web.raw.abort()


class _WebRequest(server.Request):
    """
    A stock request that represents a channel request.

    @ivar segments: The segments of the path, each unquoted.
    @ivar sitepath: The segments that the tree is mounted at, as used in names of session cookies.
    """

    channel: Any

    def __init__(self, channel: "_WebChannel") -> None:
        super().__init__(channel)
        channel.web = self
        self.raw = channel.raw
        self.segments = [unquote_to_bytes(each) for each in self.raw.path[1:].split(b"/")]
        self.sitepath: list[bytes] = []
        self.site = channel.site
        self._resource: IResource | None = None

    def receive(self, content: bytes, resource: IResource | None) -> None:
        """
        Set the body, and render a resource.

        @param resource: The resource; C{None} before the body has been received, to parse only the
            head.
        """
        self.content = BytesIO(content)
        # The stock code derives the length of the body from the position.
        self.content.seek(len(content))
        self._resource = resource
        if resource is not None:
            # A stock resource may delegate to a native one, which reads the body again.
            self.raw.body = CompleteBody(content)
        self.requestReceived(self.raw.method, self.raw.uri, self.raw.version)

    def process(self) -> None:
        """
        Render. The stock code finds the resource here; this class does so before reading the body.
        """
        resource, channel = self._resource, self.channel
        if resource is None:
            return
        try:
            encoding: Any = _IEncodingResource(resource, None)
            if encoding is not None:
                self._encoder = encoding.getEncoder(self)
            self.render(resource)
        except Exception:
            self.processingFailed(Failure())
        channel.deliverLeftover()

    def processingFailed(self, reason: Failure) -> Failure:
        """Respond with 500, if no response has begun."""
        if not self.startedWriting:
            super().processingFailed(reason)
            return reason
        _log.failure("a resource failed in the middle of its response", reason)
        self.raw.abort()
        return reason

    def clientLost(self) -> None:
        """Notify the producer and the Deferreds of C{notifyFinish}."""
        producer = self.producer
        if producer is not None:
            self.unregisterProducer()
            producer.stopProducing()
        self.connectionLost(self.raw.lostReason)


class _WebChannel:
    """
    The HTTP channel of a stock request.

    @ivar factory: C{None}, as there is no access log to write.
    @ivar reply: The receiver of the response: the channel's request, unless the tree is mounted.
    @ivar web: The stock request.
    """

    factory = None
    web: _WebRequest

    def __init__(self, raw: ChannelRequest, site: server.Site, reactor: IReactorTime) -> None:
        self.raw = raw
        self.reply: IWebResponse = raw
        self.site = site
        self._reactor = reactor
        # The producer of the body, whether it runs, and the pieces that wait for the client, or for
        # a thread that encodes them.
        self._producer: Any = None
        self._isRunning = False
        self._waiting = 0
        self._taken: Any = None
        self._leftover = b""

    # The connection

    @property
    def transport(self) -> Any:
        """Return the transport. Autobahn takes it over by setting C{None} here."""
        return self.raw.channel.transport

    @transport.setter
    def transport(self, value: None) -> None:
        self._taken, self._leftover = self.raw.takeTransport()

    def deliverLeftover(self) -> None:
        """Pass the bytes after the request to the protocol that took over the transport."""
        if self._leftover:
            taker = getattr(self._taken, "wrappedProtocol", None) or self._taken.protocol
            taker.dataReceived(self._leftover)

    def _protocolUpgradeForWebsockets(self, protocol: IProtocol) -> None:
        """Hand over the connection to Twisted's WebSocket."""
        self.raw.upgrade(protocol)

    def getPeer(self) -> Any:
        """Return the client's address."""
        return self.transport.getPeer()

    def getHost(self) -> Any:
        """Return the address of the listener."""
        return self.transport.getHost()

    def isSecure(self) -> bool:
        """Return whether the connection is encrypted."""
        return self.raw.secure

    def loseConnection(self) -> None:
        """End a response that cannot be completed."""
        self.raw.abort()

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Respond to a form that cannot be parsed."""
        self.reply.respond(400, [(b"Connection", b"close")])

    # The response

    def writeHeaders(self, version: bytes, code: bytes, reason: bytes, headers: Headers) -> None:
        """Begin the response."""
        fields = [
            (name, value)
            for name, values in headers.getAllRawHeaders()
            for value in values
            if name != b"Transfer-Encoding"
        ]
        # The channel's request frames its chunks itself.
        self.web.chunked = 0
        self.reply.begin(int(code), fields, None, reason)

    def write(self, data: bytes) -> None:
        """Send a part of the body."""
        ready = self.reply.send(data)
        if isinstance(ready, Deferred):
            self._waiting += 1
            self._followPace()
            # An error of the encoder also fails the end of the response.
            ready.addBoth(self._sent)

    def writeSequence(self, pieces: list[bytes]) -> None:
        """Send a part of the body."""
        self.write(b"".join(pieces))

    def _sent(self, result: object) -> None:
        self._waiting -= 1
        self._followPace()

    def requestDone(self, request: _WebRequest) -> None:
        """End the response."""
        try:
            self.reply.finish()
        except ValueError:
            _log.failure("a resource broke its word on the length of its response")

    # Producers

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Apply the back pressure of the client, and of an encoder, to a producer."""
        self._producer = producer if streaming else _PullLoop(producer, self.raw, self._reactor)
        self._isRunning = streaming
        self.raw.onBackPressure = lambda isFull: self._followPace()
        self._followPace()

    def unregisterProducer(self) -> None:
        """Stop the producer."""
        self.raw.onBackPressure = None
        producer, self._producer = self._producer, None
        if isinstance(producer, _PullLoop):
            producer.pauseProducing()

    def _followPace(self) -> None:
        """Pause or resume the producer."""
        isWanted = not (self.raw.channel.isPaused or self._waiting)
        if self._producer is None or isWanted is self._isRunning or self.raw.disconnected:
            return
        self._isRunning = isWanted
        if isWanted:
            self._producer.resumeProducing()
        else:
            self._producer.pauseProducing()


class _PullLoop:
    """Resumes a pull producer once per reactor iteration, while the client reads."""

    def __init__(self, producer: Any, raw: ChannelRequest, reactor: IReactorTime) -> None:
        self._producer = producer
        self._raw = raw
        self._reactor = reactor
        self._next: IDelayedCall | None = None

    def pauseProducing(self) -> None:
        """Stop pulling."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def resumeProducing(self) -> None:
        """Pull from the next reactor iteration on."""
        if self._next is None:
            self._next = self._reactor.callLater(0, self._pull)

    def _pull(self) -> None:
        # Scheduled before the call, so that the producer can cancel it by writing or ending.
        self._next = self._reactor.callLater(0, self._pull)
        try:
            self._producer.resumeProducing()
        except Exception:
            _log.failure("a producer failed")
            self.pauseProducing()
            self._raw.abort()
