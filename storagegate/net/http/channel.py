"""
HTTP/1.1 on one connection.

Bytes come in, requests go up one at a time: the second of two pipelined requests is not even
parsed before the response to the first has ended, so order needs no bookkeeping. A request is
handed over when its head is complete; its body is a stream with back pressure.

A connection is in one of these states::

    idle        no request, nothing pending          keepAliveTimeout
    head        part of a head is pending            headersTimeout, from its first byte
    busy        a request is in flight               requestTimeout without progress
    rest        responded, but its body still comes  keepAliveTimeout
    closing     closed by us, discarding input       lingerTimeout; requestTimeout if unsent bytes
    gone        lost, or taken by another protocol
"""

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.interfaces import IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.shares import AddressShare
from storagegate.net.http.interfaces import (
    BadRequest,
    BodyLost,
    IChannelOwner,
    IncompleteBody,
    IRequestChannel,
)
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.parser import (
    ArrivingBody,
    CompleteBody,
    checkPartialHead,
    parseHead,
)
from storagegate.net.transport import FastServer

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# Bytes read at a time between bodies: a hundred heads.
_READ_SIZE = 64 * 1024

# Below this a copy costs less than a second piece in the system call.
_JOINED = 16 * 1024

_log = Logger()


class ChannelTransport:
    """
    The transport under a channel, alike for TCP, UNIX and TLS.

    @ivar transport: The transport itself. Under TLS it is a wrapper that passes attributes it
        does not know on to the L{FastServer} below.
    @ivar secure: Whether it is encrypted.
    @ivar clientHost: The peer's address, C{''} for a UNIX socket.
    @ivar clientPort: Its port, 0 for a UNIX socket.
    @ivar fileSender: The transport, if it may send files as they are.
    """

    __slots__ = ("_reading", "clientHost", "clientPort", "fileSender", "secure", "transport")

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.secure: bool = ISSLTransport.providedBy(transport)
        peer = transport.getPeer()
        self.clientHost: str = getattr(peer, "host", "")
        self.clientPort: int = getattr(peer, "port", 0)
        self.fileSender: FastServer | None = None
        if isinstance(transport, FastServer) and not self.secure:
            self.fileSender = transport
        self._reading = True

    def tlsVersion(self) -> str | None:
        """Return C{"1.2"} or C{"1.3"}; L{None} without TLS, or before its handshake."""
        if not self.secure:
            return None
        name: str = self.transport.getHandle().get_protocol_version_name()
        return name.removeprefix("TLSv") if name.startswith("TLSv") else None

    def setReading(self, reading: bool) -> None:
        """Read, or let the peer wait."""
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self.transport.resumeProducing()
            else:
                self.transport.pauseProducing()

    def setReadSize(self, size: int) -> None:
        """Read up to C{size} bytes at a time, if the transport has that choice."""
        setReadSize = getattr(self.transport, "setReadSize", None)
        if setReadSize is not None:
            setReadSize(size)

    def hasUnsent(self) -> bool:
        """Return whether bytes or a file wait for the peer to read."""
        hasUnsent = getattr(self.transport, "hasUnsent", None)
        return hasUnsent is not None and hasUnsent()

    def sentBytes(self) -> int:
        """Count bytes that were sent after waiting; two samples show progress."""
        return getattr(self.transport, "sentBytes", 0)

    def close(self, linger: bool) -> None:
        """
        Close once everything is sent.

        A peer that is still sending gets a reset from a plain close, and may lose the response.

        @param linger: Close only the sending half, and continue to read; L{closeNow} does the rest.
        """
        self.transport.unregisterProducer()
        if linger and self.fileSender is not None:
            self.fileSender.loseWriteConnection()
            self.setReading(True)
        else:
            self.transport.loseConnection()

    def closeNow(self) -> None:
        """
        Close without waiting for the peer: TLS would wait for its C{close_notify}, so this closes
        the transport below.
        """
        getattr(self.transport, "transport", self.transport).loseConnection()

    def release(self) -> None:
        """Restore the initial state of the transport, for another protocol."""
        self.transport.unregisterProducer()
        self.setReading(True)


@implementer(IRequestChannel, IPushProducer)
class HTTPChannel(Protocol):
    """
    One connection.

    @ivar owner: The site.
    @ivar connection: The transport.
    @ivar share: What the client's address has of the listener.
    @ivar requestShare: What the request in flight counts in: the same, unless a proxy that is
        trusted names another client.
    @ivar isPaused: Whether the client is behind with reading.
    """

    connection: ChannelTransport
    share: AddressShare
    requestShare: AddressShare

    def __init__(self, owner: IChannelOwner) -> None:
        self.owner = owner
        self.limits = owner.limits
        self.isPaused = False
        self._request: ChannelRequest | None = None
        # The body that is arriving.
        self._body: ArrivingBody | None = None
        # The one of whose bytes the reader keeps some.
        self._heldBody: ArrivingBody | None = None
        self._closesAfterResponse = False
        # Whether nothing in the head of the request keeps the connection from staying open.
        self._endsPlainly = False
        # Whether the client waits for a 100 Continue to send a body that is empty.
        self._expectsForNothing = False
        # Bytes that wait for the response before them, or for the rest of a head.
        self._pending = b""
        self._headSeen = 0
        self._serving = False
        # Whether other connections come first, see InputScheduler.
        self._isWaiting = False
        self._closing = False
        self._discardable = self.limits.drainedBody
        self._deadline = 0.0
        # Samples of progress, see _checkProgress.
        self._writes = 0
        self._requestNumber = 0
        self._progress: tuple[int, ...] = ()
        self._progressTime = 0.0
        self._bodyTime = 0.0

    # For the transport

    def connectionMade(self) -> None:
        """Begin to watch the connection, or refuse it if there are too many."""
        transport: Any = self.transport
        self.connection = ChannelTransport(transport)
        self.share = self.requestShare = self.owner.shares.of(self.connection.clientHost)
        if self.owner.channelOpened(self):
            transport.registerProducer(self, True)
            self._deadline = self.owner.now + self.limits.headersTimeout
            return
        # The site does not check the timeouts of this connection, so it must end now.
        self._closing = True
        if self.connection.secure:
            # A response would have to wait for the client's part of the handshake.
            transport.abortConnection()
        else:
            transport.write(self.owner.rejection(BadRequest(503, "There are too many connections")))
            transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Handle bytes of the client."""
        if (
            self._request is None
            and self._body is None
            and not (self._closing or self.isPaused or self._isWaiting)
        ):
            self._serve(self._pending + data if self._pending else data)
            return
        if self._closing:
            self._discardable -= len(data)
            if self._discardable < 0:
                # The client's send blocks now, and it has the time to read the response.
                self.connection.setReading(False)
            return
        if self._body is not None:
            try:
                data = self._feedBody(self._body, data)
            except BadRequest as error:
                self._reject(error)
                return
            if not data:
                return
        if self._request is not None or self.isPaused or self._closing or self._isWaiting:
            self._keep(data)
        else:
            self._serve(self._pending + data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Notify the request."""
        self._closing = True
        self._body = None
        self.owner.channelClosed(self)
        self._loseRequest(reason, BodyLost("the client went away"))

    def pauseProducing(self) -> None:
        """Pause the response: the client is behind with reading."""
        self.isPaused = True
        if self._request is not None:
            self._request.setPaused(True)

    def resumeProducing(self) -> None:
        """Resume the response, or begin the next request."""
        self.isPaused = False
        if self._request is not None:
            self._request.setPaused(False)
        self._resume()

    def stopProducing(self) -> None:
        """Do nothing: C{connectionLost} follows."""

    # Requests

    def _serve(self, data: bytes) -> None:
        """
        Hand over the requests in C{data}, up to the first whose response is not complete.

        @param data: Not empty. No request is in flight, and none has to wait.
        """
        self._pending = b""
        self._serving = True
        owner, limits = self.owner, self.limits
        served = 0
        while data and (not served or self._mayContinue(data, served)):
            end = data.find(b"\r\n\r\n") + 4
            try:
                if data[:2] == b"\r\n":
                    # RFC 9112 section 2.2: an empty line before a request is ignored.
                    data = data[2:]
                    self._headSeen = 0
                    continue
                if end < 4:
                    self._awaitHead(data)
                    break
                request = ChannelRequest(self)
                if end == len(data):
                    parseHead(data, limits, request)
                    data = b""
                else:
                    parseHead(data[:end], limits, request)
                    data = data[end:]
                isPlain = request.keepAlive and request.version == b"HTTP/1.1" and limits.keepAlive
                if request.contentLength != 0:
                    data = self._beginBody(request, data)
                elif request.expectsContinue:
                    self._expectsForNothing = True
                    isPlain = False
            except BadRequest as error:
                self._reject(error)
                break
            self._headSeen = 0
            self._requestNumber += 1
            self._request = request
            self._endsPlainly = isPlain
            self._pending = data
            if owner.trust is not None:
                self.requestShare = owner.requestShare(request, self.share)
            share = self.requestShare
            share.calls += 1
            owner.requests += 1
            owner.requestReceived(request, share)
            # Closing, or handing the transport over, has cleared it.
            data = self._pending
            if data:
                self._pending = b""
            served += 1
        self._serving = False

    def _mayContinue(self, data: bytes, served: int) -> bool:
        """Return whether the next request may begin now; otherwise keep C{data} for later."""
        if self._request is not None or self._closing or self.isPaused:
            self._keep(data)
            return False
        if served == 1:
            self.owner.scheduler.begin()
        elif self.owner.scheduler.isOver(served):
            self._keep(data)
            self._isWaiting = True
            self.connection.setReading(False)
            self.owner.scheduler.wait(self._endWaiting)
            return False
        return True

    def _awaitHead(self, data: bytes) -> None:
        checkPartialHead(data, self._headSeen, self.limits)
        if not self._headSeen:
            self._deadline = self.owner.now + self.limits.headersTimeout
        self._headSeen = len(data)
        self._pending = data

    def _beginBody(self, request: ChannelRequest, data: bytes) -> bytes:
        """
        Give a request what has arrived of its body.

        @return: The bytes after the body.
        @raise BadRequest: If the beginning of the body is wrong.
        """
        length = request.contentLength
        if length is not None and length <= len(data):
            # All of it came with its head: a decoder would take twice as long.
            request.body = CompleteBody(data[:length])
            return data[length:]
        self._body = request.body = body = ArrivingBody(request, self, self.limits)
        self._bodyTime = self.owner.now
        return self._feedBody(body, data)

    def _feedBody(self, body: ArrivingBody, data: bytes) -> bytes:
        """
        Pass a part of a body on.

        @return: The bytes after the body.
        @raise BadRequest: If its framing is broken.
        """
        data = body.feed(data)
        if body.isReceived:
            self._body = None
            self.connection.setReadSize(_READ_SIZE)
        elif body.isLarge():
            self.connection.setReadSize(self.owner.bodyReadSize())
        return data

    def _keep(self, data: bytes) -> None:
        """Hold bytes that came too early, and stop reading when it is enough."""
        if self._closing:
            return
        self._pending += data
        if (
            len(self._pending) > self.limits.headSize
            or self._pending.count(b"\r\n\r\n") >= self.limits.pipelinedRequests
        ):
            self.connection.setReading(False)

    def _resume(self) -> None:
        """Serve pending requests, if nothing is in flight."""
        isHeld = self.isPaused or self._closing or self._isWaiting
        if self._request is not None or self._serving or isHeld:
            return
        self.connection.setReading(True)
        if self._pending:
            self._serve(self._pending)

    def _endWaiting(self) -> None:
        """Serve pending requests: it is the turn of this connection."""
        self._isWaiting = False
        self._resume()

    # For the request

    def respond(self, code: int, head: bytes, body: bytes, closes: bool) -> None:
        """Send a whole response in one write, and continue with the next request."""
        isBusy = closes or self._body is not None or self.owner.draining
        if self._endsPlainly and not isBusy:
            self._closesAfterResponse = False
            end = b"\r\n"
        else:
            isBusy = True
            end = self._endHead(code, closes)
        self._writes += 1
        self._endRequest()
        transport = self.connection.transport
        if len(body) < _JOINED:
            transport.write(head + end + body)
        else:
            transport.writeSequence((head, end, body))
        if isBusy or not self._serving:
            self._continue()

    def begin(self, code: int, head: bytes, closes: bool) -> None:
        """Send the head of a response."""
        self.write(head + self._endHead(code, closes))

    def write(self, data: bytes) -> None:
        """Send a part of a response."""
        self._writes += 1
        self.connection.transport.write(data)

    def writeSequence(self, pieces: Sequence[bytes]) -> None:
        """Send a part of a response."""
        self._writes += 1
        self.connection.transport.writeSequence(pieces)

    def finish(self, data: bytes) -> None:
        """Send the last bytes of a response, and continue with the next request."""
        if data:
            self.write(data)
        self.requestDone()

    def _endHead(self, code: int, closes: bool) -> bytes:
        """Encode the end of a head, and decide whether the connection closes after the response."""
        if self._expectsForNothing:
            # Some versions of botocore misread the next response where a final one came without a
            # 100 before it, also when there was no body to wait for.
            self._expectsForNothing = False
            if code >= 400:
                closes = True
            else:
                self.connection.transport.write(_CONTINUE)
        request = self._request
        assert request is not None
        self._closesAfterResponse = closes = (
            closes
            or not (request.keepAlive and self.limits.keepAlive)
            or self.owner.draining
            or (self._body is not None and self._body.blocksNext())
        )
        if closes:
            return b"Connection: close\r\n\r\n"
        if request.version == b"HTTP/1.0":
            return b"Connection: keep-alive\r\n\r\n"
        return b"\r\n"

    def _endRequest(self) -> None:
        """Mark the request as finished, and let go of it."""
        request = self._request
        assert request is not None
        request.finished = True
        request.disconnectCallbacks = request.handlerState = None
        if request.ends:
            # The callbacks know the request, mostly: to keep them would make a cycle.
            ends, request.ends = request.ends, ()
            for end in ends:
                end()
        if self._heldBody is not None:
            self._heldBody.hold(0)
        self._request = None
        self._deadline = self.owner.now + self.limits.keepAliveTimeout
        self.owner.requests -= 1
        self.requestShare.calls -= 1

    def requestDone(self) -> None:
        """Let go of a request whose response is complete, and continue with the next."""
        self._endRequest()
        self._continue()

    def _continue(self) -> None:
        """Continue with the next request, or close."""
        body = self._body
        if body is not None:
            # Also if the connection closes already: its reader must not wait for ever.
            body.discard()
        if self._closesAfterResponse or self.owner.draining:
            self._close()
            return
        if body is not None:
            self.connection.setReading(True)
        if not self._serving:
            self._resume()

    def resumeBody(self) -> None:
        """Read on; and if the client waits for it, send C{100 Continue}."""
        body = self._body
        if body is not None and body.owesContinue:
            body.owesContinue = False
            if self._request is not None and not self._request.started:
                self.connection.transport.write(_CONTINUE)
        self.connection.setReading(True)

    def holdBody(self, body: ArrivingBody, size: int) -> None:
        """Account for bytes of the request's body that its reader keeps."""
        self._heldBody = body if size else None
        self.owner.budget.update(body, size)

    def takeTransport(self) -> tuple[Any, bytes]:
        """Hand the connection over to another protocol."""
        transport, self.transport = self.transport, None
        leftover, self._pending = self._pending, b""
        self._closing = True
        body, self._body = self._body, None
        self.connection.release()
        self.owner.channelClosed(self)
        if self._request is not None:
            self._endRequest()
        if body is not None:
            body.discard()
        return transport, leftover

    def abort(self) -> None:
        """Drop the connection."""
        self._closing = True
        self.connection.transport.abortConnection()

    # For the owner

    @property
    def isBusy(self) -> bool:
        """Return whether a request is in flight."""
        return self._request is not None

    def drain(self) -> None:
        """Close an idle connection now, any other after its response."""
        if self._request is None and not self._headSeen and not self._isWaiting:
            self._close()

    def checkTimeouts(self, now: float) -> None:
        """Apply the timeouts. Called about once a second."""
        if self._request is not None or self.connection.hasUnsent():
            self._checkProgress(now)
        elif now < self._deadline:
            return
        elif self._closing:
            self.connection.closeNow()
        elif self._headSeen:
            self._reject(BadRequest(408, "The head of the request took too long"))
        else:
            self._close()

    def _checkProgress(self, now: float) -> None:
        body, seconds = self._body, now - self._bodyTime
        if body is not None and body.isWhole and seconds >= self.limits.bodyTimeout:
            self._reject(BadRequest(408, "The body of the request took too long"))
            return
        progress = (
            self._requestNumber,
            self._body.progress() if self._body is not None else 0,
            self._writes,
            self.connection.sentBytes(),
        )
        if progress != self._progress:
            self._progress = progress
            self._progressTime = now
        elif now - self._progressTime >= self.limits.requestTimeout:
            if self._request is None:
                self.abort()
            elif self._body is not None:
                self._reject(BadRequest(408, "The body of the request took too long"))
            else:
                self._reject(BadRequest(503, "The response took too long"))

    # Ends

    def _reject(self, error: BadRequest) -> None:
        """Send a rejection, if no response has begun, and close."""
        request = self._request
        if request is not None and request.started:
            self.abort()
            return
        if self._body is None or self._body.isWanted:
            self.connection.transport.write(self.owner.rejection(error))
        self._loseRequest(Failure(error), IncompleteBody(error.text))
        self._close(linger=True)

    def _loseRequest(self, reason: Failure, bodyError: BodyLost) -> None:
        request, self._request = self._request, None
        if request is not None:
            self.owner.requests -= 1
            self.requestShare.calls -= 1
            request.connectionLost(reason, bodyError)
            if self._heldBody is not None:
                self._heldBody.hold(0)

    def _close(self, linger: bool = False) -> None:
        """
        Close once everything is sent; bytes that still come are discarded for a while.

        @param linger: Whether the client may be sending still, beyond what is known to be coming.
        """
        if self._closing:
            return
        if self._pending or (self._body is not None and not self._body.isReceived):
            linger = True
        if self._body is not None:
            self._body.discard()
        self._closing = True
        self._body = None
        self._pending = b""
        self._discardable = self.limits.drainedBody
        self._deadline = self.owner.now + self.limits.lingerTimeout
        self.connection.close(linger)


def checkAllTimeouts(connections: Iterable[Any], now: float) -> None:
    """
    Apply the timeouts of connections; one that raises is dropped.

    @param connections: Have C{checkTimeouts} and C{abort}, as L{HTTPChannel}; may change meanwhile.
    @param now: Seconds of the reactor's clock.
    """
    for connection in list(connections):
        try:
            connection.checkTimeouts(now)
        except Exception:
            # The others must be checked all the same.
            _log.failure("a connection failed on a timeout")
            connection.abort()
