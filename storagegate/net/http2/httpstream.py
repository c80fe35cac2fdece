"""
A stream of HTTP/2 that carries a request and its response, as L{HTTPChannel
<storagegate.net.http.channel.HTTPChannel>} does for HTTP/1.1.

The request is the object of HTTP/1.1, whose head is encoded as lines; they become a header block
here. A stream is in one of these states::

    request     its handler responds            requestTimeout without progress
    rest        responded, body or end to come  keepAliveTimeout
    tunnel      taken by a WebSocket            its own pings
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.shares import AddressShare
from storagegate.net.http.interfaces import BadRequest, BodyLost, IncompleteBody, IRequestChannel
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.parser import ArrivingBody
from storagegate.net.http2.fields import readRequest, readTrailers
from storagegate.net.http2.hpack import encodeHead
from storagegate.net.http2.interfaces import ErrorCode, HTTP2Error, StreamReset
from storagegate.net.http2.stream import Stream
from storagegate.net.http2.tunnel import StreamTransport

if TYPE_CHECKING:
    from storagegate.net.http2.hpack import ReceivedFields

_CONTINUE = encodeHead(b"HTTP/1.1 100 Continue\r\n")

# The form of HTTP/1.1 in which an extended CONNECT reaches its handler. The key has a fixed value,
# as RFC 8441 has none; its digest does not reach the client.
_UPGRADE = (
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
    (b"sec-websocket-key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
)


# The response to a CONNECT whose handler knows no WebSocket (RFC 9220 section 3).
_NO_TUNNEL = b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n"


class StreamDecoder:
    """
    The body of a stream: DATA frames are its whole framing, and the stream has checked its length.

    @ivar remaining: The number of bytes still to come; C{None} if unknown.
    @ivar complete: Whether the body is complete.
    @ivar isLast: Whether the next bytes are the last.
    @ivar trailers: The fields after the body, names in lower case.
    """

    __slots__ = ("complete", "isLast", "remaining", "trailers")

    rest = b""
    isBehind = False

    def __init__(self, length: int | None) -> None:
        self.remaining = length
        self.complete = self.isLast = False
        self.trailers: tuple[tuple[bytes, bytes], ...] = ()

    def feed(self, wire: bytes) -> bytes:
        """Take bytes, all of which belong to the body."""
        if self.remaining is not None:
            self.remaining -= len(wire)
        self.complete = self.isLast
        return wire


@implementer(IRequestChannel)
class HTTPStream(Stream):
    """
    One stream.

    @ivar connection: The L{HTTP2Connection<storagegate.net.http2.connection.HTTP2Connection>}, also
        the L{IRequestChannel.connection}.
    """

    connection: Any

    __slots__ = (
        "_arrived",
        "_body",
        "_bodyTime",
        "_decoder",
        "_heldBody",
        "_isRefusing",
        "_isUpload",
        "_isWithholding",
        "_request",
        "_share",
        "_tunnel",
        "_withheld",
        "_writes",
    )

    def __init__(self, connection: Any, number: int) -> None:
        super().__init__(connection, number)
        self._request: ChannelRequest | None = None
        # The body that is arriving, and the one whose reader keeps some of its bytes.
        self._body: ArrivingBody | None = None
        self._heldBody: ArrivingBody | None = None
        self._decoder: StreamDecoder | None = None
        # Bytes of the body that are passed on at the end of the turn.
        self._arrived: list[bytes] = []
        # Whether its body is large and being read.
        self._isUpload = False
        self._share: AddressShare = connection.share
        self._tunnel: StreamTransport | None = None
        # Whether the client is soon asked to send no more.
        self._isRefusing = False
        # Received bytes whose window is not granted again, because the reader has fallen behind.
        self._isWithholding = False
        self._withheld = 0
        # A sample of progress.
        self._writes = 0
        self._progressTime = self._bodyTime = connection.owner.now

    @property
    def owner(self) -> Any:
        """Return the site."""
        return self.connection.owner

    @property
    def share(self) -> AddressShare:
        """Return the client's address, perhaps behind a proxy."""
        return self._share

    @property
    def transport(self) -> Any:
        """Return the transport that L{takeTransport} hands over, for stock Twisted code."""
        if self._tunnel is None:
            self._tunnel = StreamTransport(self)
        return self._tunnel

    # For the connection

    def headReceived(self, fields: "ReceivedFields", isEnded: bool) -> None:
        """Deliver a request."""
        connection = self.connection
        owner = connection.owner
        if owner.openCall is not None:
            call = owner.openCall(connection, self.id, fields)
            if call is not None:
                connection.replaceStream(self, call)
                call.headReceived(fields, isEnded)
                return
        request = ChannelRequest(self)
        try:
            protocol = readRequest(fields, owner.limits, request, isEnded)
            if protocol is not None:
                self._beginTunnel(request, protocol)
        except BadRequest as error:
            self._sendRejection(error)
            return
        priority = request.headers.get(b"priority")
        if priority is not None:
            connection.prioritise(self, priority)
        if self._tunnel is not None:
            if isEnded:
                self._tunnel.dataReceived(b"", True)
        elif not isEnded:
            # Also with a declared length of 0: DATA may exceed it.
            self.expected = length = request.contentLength
            self._decoder = decoder = StreamDecoder(length)
            self._body = request.body = ArrivingBody(request, self, owner.limits, decoder)
        self._request = request
        if owner.trust is not None:
            self._share = owner.requestShare(request, connection.share)
        self._share.calls += 1
        owner.requests += 1
        owner.requestReceived(request, self._share)

    def _beginTunnel(self, request: ChannelRequest, protocol: bytes) -> None:
        """
        Present an extended CONNECT as a request of HTTP/1.1 for an upgrade.

        @raise BadRequest: If the listener has no such protocol.
        """
        if protocol != b"websocket" or not self.owner.servesWebSockets:
            # RFC 8441 section 4 and RFC 9220 section 3
            raise BadRequest(501, "The protocol is not supported")
        request.method = b"GET"
        request.contentLength = 0
        request.headers.update(_UPGRADE)
        request.headerList = [*request.headerList, *_UPGRADE]
        self._tunnel = StreamTransport(self)
        self._tunnel.isRequested = True

    def dataReceived(self, data: bytes, isEnded: bool) -> None:
        """Pass on a part of the body."""
        if self._body is None:
            if self._tunnel is not None:
                self._tunnel.dataReceived(data, isEnded)
            return
        arrived = self._arrived
        arrived.append(data)
        if isEnded:
            self.deliver(isEnded)
        elif len(arrived) == 1:
            self.connection.deliverLater(self)

    def deliver(self, isEnded: bool = False) -> None:
        """
        Pass the bytes of a turn to the reader of the body, together: a reader takes as long for a
        short piece as for a long one.

        @param isEnded: Whether they are the last.
        """
        body, decoder, arrived = self._body, self._decoder, self._arrived
        if body is None or not arrived:
            return
        assert decoder is not None
        data = arrived[0] if len(arrived) == 1 else b"".join(arrived)
        arrived.clear()
        size = len(data)
        if isEnded:
            decoder.isLast = True
            self._endBody()
        elif not self._isWithholding:
            self.take(size)
            size = 0
        self._withheld += size
        body.feed(data)

    def _endBody(self) -> None:
        """Forget the body: it is complete, lost or discarded."""
        self._body = None
        self._arrived.clear()
        if self._isUpload:
            self._isUpload = False
            self.connection.countUpload(-1)

    def trailersReceived(self, fields: "ReceivedFields") -> None:
        """End the body with trailers."""
        trailers = readTrailers(fields)
        if self._decoder is not None:
            self._decoder.trailers = trailers
        self.dataReceived(b"", True)

    def lost(self, reason: Exception) -> None:
        """Notify the request of a reset, or of the loss of the connection."""
        self._endBody()
        if self._tunnel is not None:
            self._tunnel.connectionLost(reason)
        if isinstance(reason, HTTP2Error):
            self._loseRequest(reason, IncompleteBody(reason.text))
        else:
            self._loseRequest(reason, BodyLost("the client went away"))

    def refuseRest(self) -> None:
        """See L{HTTP2Connection.refuseLater
        <storagegate.net.http2.connection.HTTP2Connection.refuseLater>}."""
        if not self._isRefusing:
            self._isRefusing = True
            self.connection.refuseLater(self)

    def refuseOutput(self) -> None:
        """Reset the stream, and let the request hear of it."""
        super().refuseOutput()
        self._loseLater(StreamReset(ErrorCode.ENHANCE_YOUR_CALM))

    def setPaused(self, isPaused: bool) -> None:
        """Pause or resume the response."""
        if self._request is not None:
            self._request.setPaused(isPaused)
        elif self._tunnel is not None:
            self._tunnel.setPaused(isPaused)

    # For the request

    def respond(self, code: int, head: bytes, body: bytes, closes: bool) -> None:
        """Send a whole response."""
        if code < 300 and self._isUntakenTunnel:
            head, body = _NO_TUNNEL, b""
        self._endRequest()
        self.sendWhole(encodeHead(head), body)
        self._responded()

    def begin(self, code: int, head: bytes, closes: bool) -> None:
        """Send the head of a response."""
        self._writes += 1
        if code < 300 and self._isUntakenTunnel:
            self.sendHead(encodeHead(_NO_TUNNEL), True)
            # The core has forgotten the stream, but its handler goes on.
            self.isPaused = True
            self._loseLater(StreamReset(ErrorCode.NO_ERROR))
        else:
            self.sendHead(encodeHead(head))

    @property
    def _isUntakenTunnel(self) -> bool:
        """Return whether a successful response would wrongly open a tunnel."""
        return self._tunnel is not None and self._tunnel.isRequested

    def interim(self, head: bytes) -> None:
        """Send an interim response."""
        self.sendHead(encodeHead(head))

    def write(self, data: bytes) -> None:
        """Send a part of a response."""
        self._writes += 1
        self.sendData(data)

    def writeSequence(self, pieces: Sequence[bytes]) -> None:
        """Send a part of a response."""
        self._writes += 1
        self.sendData(b"".join(pieces))

    def writeBuffer(self, view: memoryview) -> None:
        """Send a part of a response from a buffer that the caller writes to again."""
        self.write(bytes(view))

    def finish(self, data: bytes) -> None:
        """Send the last bytes of a response."""
        self._endRequest()
        self.sendData(data, True)
        self._responded()

    def _endRequest(self) -> None:
        """Mark the request as finished, and release it."""
        request, self._request = self._request, None
        assert request is not None
        request.ended()
        self._release()

    def _release(self) -> None:
        if self._heldBody is not None:
            self._heldBody.hold(0)
        self._progressTime = self.owner.now
        self.owner.requests -= 1
        self._share.calls -= 1

    def _responded(self) -> None:
        connection = self.connection
        if not (connection.owner.limits.keepAlive or connection.isGoingAway):
            connection.goAway()
        body = self._body
        if body is not None:
            # Its window is not granted again; the core ends the stream if too much is to come. A
            # client that waits for 100 Continue may never send its body.
            if body.owesContinue:
                self.refuseRest()
            body.discard()
            # They refer to each other.
            self._endBody()

    def pauseBody(self) -> None:
        """Grant no window, so that the client stops."""
        self._isWithholding = True

    def resumeBody(self) -> None:
        """Grant the window again, and send C{100 Continue} if the client waits for it."""
        body = self._body
        if body is None:
            return
        if body.owesContinue:
            body.owesContinue = False
            if self._request is not None and not self._request.started:
                self.sendHead(_CONTINUE)
        self._isWithholding = False
        if body.isLarge():
            if not self._isUpload:
                self._isUpload = True
                self.connection.countUpload(1)
            size = self.owner.bodyWindow()
            if size != self.window:
                self.setWindow(size)
        withheld, self._withheld = self._withheld, 0
        self.take(withheld)

    def holdBody(self, body: ArrivingBody, size: int) -> None:
        """Account for bytes of the request's body that its reader keeps."""
        self._heldBody = body if size else None
        self.owner.budget.update(body, size)

    def takeTransport(self) -> tuple[Any, bytes]:
        """
        Hand the stream over to another protocol.

        @raise RuntimeError: If the client has not asked for it.
        """
        tunnel = self._tunnel
        if tunnel is None or not tunnel.isRequested:
            raise RuntimeError("a request over HTTP/2 has no connection to take over")
        self._endRequest()
        return tunnel, tunnel.begin()

    def abort(self) -> None:
        """Reset the stream, so that the client does not take the response for complete."""
        self.reset(ErrorCode.INTERNAL_ERROR)
        self._loseLater(StreamReset(ErrorCode.INTERNAL_ERROR))

    def _loseLater(self, reason: Exception) -> None:
        # Not in the caller's stack, which is often the handler's.
        self.owner.reactor.callLater(0, self.lost, reason)

    def _sendRejection(self, error: BadRequest) -> None:
        head, _, body = self.owner.rejection(error).partition(b"\r\n\r\n")
        self.sendWhole(encodeHead(head), body)

    def _reject(self, error: BadRequest) -> None:
        """End the request because of a timeout: with a response, if none has begun."""
        request = self._request
        body = self._body
        self._endBody()
        if request is None or request.started or not (body is None or body.isWanted):
            self.reset(ErrorCode.CANCEL)
        else:
            self._sendRejection(error)
        self._loseRequest(error, IncompleteBody(error.text))
        if body is not None:
            body.discard()

    def _loseRequest(self, reason: Exception, bodyError: BodyLost) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.connectionLost(Failure(reason), bodyError)
            self._release()

    # Timeouts

    def checkTimeouts(self, now: float) -> None:
        """Enforce the timeouts. Called about once a second."""
        limits = self.owner.limits
        body = self._body
        if self._request is not None:
            seconds = now - self._bodyTime
            if body is not None and body.isWhole and seconds >= limits.bodyTimeout:
                self._reject(BadRequest(408, "The body of the request took too long"))
                return
        elif self._tunnel is not None and self._tunnel.isOpen:
            return
        more = (0 if body is None else body.progress(), self._writes)
        seconds = self.stalledSeconds(now, more)
        if self._request is None and not self.queued:
            # Responded, and the client does not end its side.
            if seconds >= limits.keepAliveTimeout:
                self.reset(ErrorCode.NO_ERROR)
        elif seconds >= limits.requestTimeout:
            if body is not None:
                self._reject(BadRequest(408, "The body of the request took too long"))
            else:
                self._reject(BadRequest(503, "The response took too long"))
