"""
Stock Twisted resources on our channel.

A resource that is not ours (C{static.File}, C{WSGIResource}, Autobahn's C{WebSocketResource}) gets
a real C{twisted.web.server.Request}, made from the lean one when it is needed, so that it behaves
to the letter as such resources expect. L{WebChannel} is what that request takes for its HTTP
channel: it turns what the request writes into the lean response.
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

from storagegate.net.http.body import completeBody
from storagegate.net.http.interfaces import BodyLost, BodyTooLarge, HTTPLimits, IWebResponse
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.resource import NativeResource

_log = Logger()


class WebSite:
    """Finds the resource for a request, buffers the body, and lets the resource render."""

    def __init__(self, resource: IResource, limits: HTTPLimits, reactor: IReactorTime) -> None:
        self._limits = limits
        self._reactor = reactor
        # For its traversal and its sessions; it never sees a connection.
        self._site = server.Site(resource, reactor=reactor)

    def webRequest(self, lean: ChannelRequest) -> "WebRequest":
        """Make the stock request that stands for C{lean}, without its body."""
        web = WebRequest(WebChannel(lean, self._site, self._reactor))
        for name, value in lean.headerList:
            web.requestHeaders.addRawHeader(name, value)
        web.parseCookies()
        web.receive(b"", None)
        web.prepath = []
        web.postpath = web.segments[:]
        lean.onDisconnect(web.clientLost)
        return web

    def serve(self, lean: ChannelRequest) -> None:
        """Let the tree answer."""
        web: WebRequest = lean.web
        if lean.path == b"*":
            web._handleStar()
            return
        self._serveBelow(web, self._site.resource)

    def serveMounted(
        self, lean: ChannelRequest, resource: IResource, prefix: int, reply: IWebResponse
    ) -> None:
        """
        Let another tree answer, which is mounted at the first segments of the path.

        @param prefix: How many segments.
        @param reply: Takes the response.
        """
        web: WebRequest = lean.web
        web.channel.reply = reply
        web.prepath, web.postpath = web.segments[:prefix], web.segments[prefix:]
        self._serveBelow(web, resource)

    def _serveBelow(self, web: "WebRequest", root: IResource) -> None:
        web.sitepath = list(web.prepath or [])
        lean = web.lean
        try:
            resource = getChildForRequest(root, web)
        except Exception:
            web.processingFailed(Failure())
            return
        if isinstance(resource, NativeResource):
            resource.render(lean)
            return
        reading = Deferred.fromCoroutine(lean.body.read(self._limits.foreignBodySize))
        reading.addCallback(web.receive, resource)
        reading.addErrback(self._refuse, web)

    def _refuse(self, reason: Failure, web: "WebRequest") -> None:
        if reason.check(BodyTooLarge):
            reply = web.channel.reply
            reply.respond(413, [(b"Content-Type", b"text/plain")], b"The body is too large\n")
        elif not reason.check(BodyLost):
            _log.failure("a body was lost", reason)
            web.lean.abort()


class WebRequest(server.Request):
    """
    A stock request that stands for a lean one.

    @ivar lean: That one.
    @ivar segments: Those of its path, unquoted one by one.
    @ivar sitepath: The segments at which the tree is mounted; session cookies are called by them.
    """

    channel: Any

    def __init__(self, channel: "WebChannel") -> None:
        super().__init__(channel)
        channel.web = self
        self.lean = channel.lean
        self.segments = [unquote_to_bytes(each) for each in self.lean.path[1:].split(b"/")]
        self.sitepath: list[bytes] = []
        self.site = channel.site
        self._resource: IResource | None = None

    def receive(self, content: bytes, resource: IResource | None) -> None:
        """
        Take the body, and let a resource render.

        @param resource: C{None} before the body has come: then only the head is read.
        """
        self.content = BytesIO(content)
        # The stock code learns from the position how long the body is.
        self.content.seek(len(content))
        self._resource = resource
        if resource is not None:
            # One of our own may yet render, by way of a stock one, and want the body again.
            self.lean.body = completeBody(content)
        self.requestReceived(self.lean.method, self.lean.uri, self.lean.version)

    def process(self) -> None:
        """Render. The stock code looks for the resource here; ours was found before the body."""
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
        """Answer with 500, if there is no answer yet."""
        if not self.startedWriting:
            super().processingFailed(reason)
            return reason
        _log.failure("a resource failed in the middle of its response", reason)
        self.lean.abort()
        return reason

    def clientLost(self) -> None:
        """Let the producer and whoever waits for the end know that there will be none."""
        producer = self.producer
        if producer is not None:
            self.unregisterProducer()
            producer.stopProducing()
        self.connectionLost(self.lean.lostReason)


class WebChannel:
    """
    What a stock request takes for the HTTP channel it came on.

    @ivar factory: C{None}: there is no access log to write.
    @ivar reply: Takes the response: the lean request itself, unless somebody else wants it.
    @ivar web: The stock request.
    """

    factory = None
    web: WebRequest

    def __init__(self, lean: ChannelRequest, site: server.Site, reactor: IReactorTime) -> None:
        self.lean = lean
        self.reply: IWebResponse = lean
        self.site = site
        self._reactor = reactor
        self._pull: _PullLoop | None = None
        self._taken: Any = None
        self._leftover = b""

    # The connection

    @property
    def transport(self) -> Any:
        """Give the transport. Autobahn takes it by setting C{None} here."""
        return self.lean.channel.transport

    @transport.setter
    def transport(self, value: None) -> None:
        self._taken, self._leftover = self.lean.takeTransport()

    def deliverLeftover(self) -> None:
        """Let whoever has taken the transport have what came after the request."""
        if self._leftover:
            taker = getattr(self._taken, "wrappedProtocol", None) or self._taken.protocol
            taker.dataReceived(self._leftover)

    def _protocolUpgradeForWebsockets(self, protocol: IProtocol) -> None:
        """Hand the connection to Twisted's own WebSocket."""
        self.lean.upgrade(protocol)

    def getPeer(self) -> Any:
        """Give the client's address."""
        return self.transport.getPeer()

    def getHost(self) -> Any:
        """Give our own address."""
        return self.transport.getHost()

    def isSecure(self) -> bool:
        """Say whether the connection is encrypted."""
        return self.lean.secure

    def loseConnection(self) -> None:
        """End a response that cannot be completed."""
        self.lean.abort()

    def _respondToBadRequestAndDisconnect(self) -> None:
        """Answer a form that cannot be read."""
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
        # The lean response frames its chunks itself.
        self.web.chunked = 0
        self.reply.begin(int(code), fields, None, reason)

    def write(self, data: bytes) -> None:
        """Send a part of the body."""
        self.reply.send(data)

    def writeSequence(self, pieces: list[bytes]) -> None:
        """Send a part of the body."""
        self.reply.send(b"".join(pieces))

    def requestDone(self, request: WebRequest) -> None:
        """End the response."""
        try:
            self.reply.finish()
        except ValueError:
            _log.failure("a resource broke its word on the length of its response")

    # Producers

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Let a producer follow the pace of the client."""
        if not streaming:
            self._pull = producer = _PullLoop(producer, self.lean, self._reactor)

        def follow(full: bool) -> None:
            if full:
                producer.pauseProducing()
            else:
                producer.resumeProducing()

        self.lean.wireObserver = follow
        if self.lean.channel.wireFull:
            producer.pauseProducing()
        elif not streaming:
            producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """Let the producer go."""
        self.lean.wireObserver = None
        if self._pull is not None:
            self._pull.pauseProducing()
            self._pull = None


class _PullLoop:
    """Asks a producer that must be asked, once a turn of the reactor, while the client reads."""

    def __init__(self, producer: Any, lean: ChannelRequest, reactor: IReactorTime) -> None:
        self._producer = producer
        self._lean = lean
        self._reactor = reactor
        self._next: IDelayedCall | None = None

    def pauseProducing(self) -> None:
        """Stop asking."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def resumeProducing(self) -> None:
        """Ask from the next turn on."""
        if self._next is None:
            self._next = self._reactor.callLater(0, self._ask)

    def _ask(self) -> None:
        # Before asking, so that the producer can stop it by what it writes or by ending.
        self._next = self._reactor.callLater(0, self._ask)
        try:
            self._producer.resumeProducing()
        except Exception:
            _log.failure("a producer failed")
            self.pauseProducing()
            self._lean.abort()
