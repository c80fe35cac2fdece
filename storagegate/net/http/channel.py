"""
HTTP/1.1 on one connection.

The channel delivers one request at a time: a pipelined request is not parsed before the response to
its predecessor has ended, so responses stay in order without bookkeeping. A request is delivered
when its head is complete; its body is a stream with back pressure.

A connection is in one of these states::

    idle        no request, nothing pending          keepAliveTimeout
    head        part of a head is pending            headersTimeout, from its first byte
    busy        a request is in flight               requestTimeout without progress
    rest        responded, but its body still comes  keepAliveTimeout
    closing     closed by us, discarding input       lingerTimeout; requestTimeout if unsent bytes
    gone        lost, or taken by another protocol
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.interfaces import IHandshakeListener, IPushProducer, ISSLTransport
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
from storagegate.net.http.message import ChannelRequest, setProtocol
from storagegate.net.http.parser import (
    ArrivingBody,
    CompleteBody,
    checkPartialHead,
    parseHead,
)
from storagegate.net.transport import FastServer

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# Bytes per read between bodies: a hundred heads.
_READ_SIZE = 64 * 1024

# The first line of the preface of an HTTP/2 client.
_PREFACE_LINE = b"PRI * HTTP/2.0\r\n"

_EMPTY_LINES = re.compile(rb"(?:\r\n)+")

# Below this size, a copy costs less than a second buffer in the system call.
_JOINED = 16 * 1024

_log = Logger()


class ChannelTransport:
    """
    The transport of a channel, with one interface for TCP, UNIX and TLS.

    @ivar transport: The transport itself. With TLS it is a wrapper that delegates unknown
        attributes to the L{FastServer} below it.
    @ivar secure: Whether it is encrypted.
    @ivar clientHost: The peer's address, or C{''} for a UNIX socket.
    @ivar clientPort: The peer's port, or 0 for a UNIX socket.
    @ivar fileSender: The transport, if it can send files with sendfile.
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
        """Return C{"1.2"} or C{"1.3"}; C{None} without TLS, or before the handshake."""
        if not self.secure:
            return None
        name: str = self.transport.getHandle().get_protocol_version_name()
        return name.removeprefix("TLSv") if name.startswith("TLSv") else None

    def setReading(self, reading: bool) -> None:
        """Resume or pause reading."""
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self.transport.resumeProducing()
            else:
                self.transport.pauseProducing()

    def setReadSize(self, size: int) -> None:
        """Read up to C{size} bytes at a time, if the transport supports it."""
        setReadSize = getattr(self.transport, "setReadSize", None)
        if setReadSize is not None:
            setReadSize(size)

    def hasUnsent(self) -> bool:
        """Return whether bytes or a file are still to be sent."""
        hasUnsent = getattr(self.transport, "hasUnsent", None)
        return hasUnsent is not None and hasUnsent()

    def sentBytes(self) -> int:
        """
        Return the count of sent bytes that had waited in the buffer; two samples show progress.
        """
        return getattr(self.transport, "sentBytes", 0)

    def close(self, linger: bool) -> None:
        """
        Close once everything is sent.

        A plain close resets a peer that is still sending, which may then lose the response.

        @param linger: Whether to close only the sending half and continue to read until
            L{closeNow}.
        """
        self.transport.unregisterProducer()
        if linger and self.fileSender is not None:
            self.fileSender.loseWriteConnection()
            self.setReading(True)
        else:
            self.transport.loseConnection()

    def closeNow(self) -> None:
        """
        Close without waiting for the peer. TLS would wait for its C{close_notify}, so this closes
        the transport below it.
        """
        getattr(self.transport, "transport", self.transport).loseConnection()

    def release(self) -> None:
        """Restore the initial state of the transport, for another protocol."""
        self.transport.unregisterProducer()
        self.setReading(True)


@implementer(IRequestChannel, IPushProducer, IHandshakeListener)
class HTTPChannel(Protocol):
    """
    One connection.

    @ivar owner: The site.
    @ivar connection: The transport.
    @ivar share: The listener's counts for the client's address.
    @ivar requestShare: The counts that include the request in flight: C{share}, unless a trusted
        proxy names another client.
    @ivar isPaused: Whether the client has fallen behind with reading.
    """

    connection: ChannelTransport
    share: AddressShare
    requestShare: AddressShare
    # Whether only bytes of a first request have been received.
    _mayBePreface = True

    def __init__(self, owner: IChannelOwner) -> None:
        self.owner = owner
        self.limits = owner.limits
        self.isPaused = False
        self._request: ChannelRequest | None = None
        # The body that is arriving.
        self._body: ArrivingBody | None = None
        # The body whose reader keeps some of its bytes.
        self._heldBody: ArrivingBody | None = None
        self._closesAfterResponse = False
        # Whether the head of the request lets the connection stay open.
        self._endsPlainly = False
        # Whether the client waits for a 100 Continue before an empty body.
        self._expectsForNothing = False
        # Bytes that wait for the end of the current response, or for the rest of a head.
        self._pending = b""
        self._headSeen = 0
        self._serving = False
        # Whether other connections are served first; see InputScheduler.
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
        """Start the timeouts of the connection, or refuse it if there are too many."""
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
            # A response would have to wait for the handshake.
            transport.abortConnection()
        else:
            transport.write(self.owner.rejection(BadRequest(503, "There are too many connections")))
            transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Process received bytes."""
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
                # The client's send now blocks, so it has time to read the response.
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
        """Pause the response, because the client has fallen behind with reading."""
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
        Deliver the requests in C{data}, up to the first whose response is not complete.

        @param data: Not empty. No request may be in flight or waiting.
        """
        self._pending = b""
        self._serving = True
        owner, limits = self.owner, self.limits
        served = 0
        while data and (not served or self._mayContinue(data, served)):
            # Nearly all reads end with a head, and have nothing before it: the parser finds the end
            # in a third of the time.
            isWhole = not served and data[-4:] == b"\r\n\r\n"
            end = len(data) if isWhole else data.find(b"\r\n\r\n") + 4
            try:
                if data[:2] == b"\r\n":
                    # RFC 9112 section 2.2: empty lines before a request are ignored.
                    empty = _EMPTY_LINES.match(data)
                    assert empty is not None
                    data = data[empty.end() :]
                    self._headSeen = 0
                    self._mayBePreface = False
                    continue
                if end < 4:
                    self._awaitHead(data)
                    break
                request = ChannelRequest(self)
                end = parseHead(data if end == len(data) else data[:end], limits, request)
                data = data[end:] if end < len(data) else b""
                isPlain = request.keepAlive and request.version == b"HTTP/1.1" and limits.keepAlive
                if request.contentLength != 0:
                    data = self._beginBody(request, data)
                elif request.expectsContinue:
                    self._expectsForNothing = True
                    isPlain = False
            except BadRequest as error:
                if error.code == 505 and self._isPreface(data):
                    self._handOver(data)
                else:
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
            # Closing, or handing over the transport, has cleared it.
            data = self._pending
            if data:
                self._pending = b""
            served += 1
        self._serving = False

    def _isPreface(self, data: bytes) -> bool:
        """
        Return whether the client has begun with the preface of HTTP/2 (RFC 9113 section 3.4).

        With TLS, it would have negotiated the protocol (section 3.2).
        """
        return (
            self.limits.http2
            and self._mayBePreface
            and not (self._requestNumber or self.connection.secure)
            and data.startswith(_PREFACE_LINE)
        )

    def handshakeCompleted(self) -> None:
        """Let the client speak the protocol that it has negotiated by TLS."""
        transport: Any = self.transport
        if transport.negotiatedProtocol == b"h2" and not self._closing:
            self._handOver(b"")

    def _handOver(self, data: bytes) -> None:
        """
        Hand the connection over to HTTP/2.

        @param data: The bytes received so far.
        """
        # An idle process does not load it.
        from storagegate.net.http2.connection import HTTP2Connection

        transport, self.transport = self.transport, None
        self._closing = True
        self.connection.release()
        http2 = HTTP2Connection(self.owner, self.connection, self.share)
        self.owner.channelReplaced(self, http2)
        setProtocol(transport, http2)
        http2.makeConnection(transport)
        if data:
            http2.dataReceived(data)

    def _mayContinue(self, data: bytes, served: int) -> bool:
        """Return whether the next request may begin now; otherwise keep C{data}."""
        if self._request is not None or self._closing or self.isPaused:
            self._keep(data)
            return False
        if served == 1:
            self.owner.scheduler.begin()
        if self.owner.scheduler.isOver(served):
            self._keep(data)
            self._wait()
            return False
        return True

    def _wait(self) -> None:
        """Let other connections be served first."""
        if not self._isWaiting:
            self._isWaiting = True
            self.connection.setReading(False)
            self.owner.scheduler.wait(self._endWaiting)

    def _awaitHead(self, data: bytes) -> None:
        checkPartialHead(data, self._headSeen, self.limits)
        if not self._headSeen:
            self._deadline = self.owner.now + self.limits.headersTimeout
        self._headSeen = len(data)
        self._pending = data

    def _beginBody(self, request: ChannelRequest, data: bytes) -> bytes:
        """
        Give a request the received part of its body.

        @return: The bytes after the body.
        @raise BadRequest: If the beginning of the body is malformed.
        """
        length = request.contentLength
        if length is not None and length <= len(data):
            # The body arrived with its head: a decoder would take twice as long.
            request.body = CompleteBody(data[:length])
            return data[length:]
        self._body = request.body = body = ArrivingBody(request, self, self.limits)
        self._bodyTime = self.owner.now
        return self._feedBody(body, data)

    def _feedBody(self, body: ArrivingBody, data: bytes) -> bytes:
        """
        Pass on a part of a body.

        @return: The bytes after the body.
        @raise BadRequest: If its framing is broken.
        """
        data = body.feed(data)
        if body.isReceived:
            self._body = None
            self.connection.setReadSize(_READ_SIZE)
        elif body.isBehind:
            self._wait()
        elif body.isLarge():
            size = min(self.limits.bodyReadSize, self.owner.pieceSize())
            self.connection.setReadSize(size)
        return data

    def _keep(self, data: bytes) -> None:
        """Keep bytes that arrived early, and stop reading at a limit."""
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
        """Continue with the body, or serve pending requests: it is this connection's turn."""
        self._isWaiting = False
        body, data = self._body, b""
        if body is not None and body.isBehind:
            try:
                data = self._feedBody(body, b"")
            except BadRequest as error:
                self._reject(error)
                return
        isFull = self._body is not None and self._body.isFull
        if self._request is not None and not (self._isWaiting or isFull):
            self.connection.setReading(True)
        if data:
            self._keep(data)
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

    def interim(self, head: bytes) -> None:
        """Send an interim response."""
        self.connection.transport.write(head + b"\r\n")

    def write(self, data: bytes) -> None:
        """Send a part of a response."""
        self._writes += 1
        self.connection.transport.write(data)

    def writeSequence(self, pieces: Sequence[bytes]) -> None:
        """Send a part of a response."""
        self._writes += 1
        self.connection.transport.writeSequence(pieces)

    def writeBuffer(self, view: memoryview) -> None:
        """Send a part of a response from a buffer that the caller writes to again."""
        self._writes += 1
        sender = self.connection.fileSender
        if sender is None:
            self.connection.transport.write(bytes(view))
        else:
            sender.writeBuffer(view)

    def finish(self, data: bytes) -> None:
        """Send the last bytes of a response, and continue with the next request."""
        if data:
            self.write(data)
        self.requestDone()

    def _endHead(self, code: int, closes: bool) -> bytes:
        """
        Encode the end of a head, and decide whether to close the connection after the response.
        """
        if self._expectsForNothing:
            # Some versions of botocore misread the next response if a final one was not preceded by
            # a 100, even for an empty body.
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
        """Mark the request as finished, and release it."""
        request = self._request
        assert request is not None
        request.ended()
        if self._heldBody is not None:
            self._heldBody.hold(0)
        self._request = None
        self._deadline = self.owner.now + self.limits.keepAliveTimeout
        self.owner.requests -= 1
        self.requestShare.calls -= 1

    def requestDone(self) -> None:
        """Release a request whose response is complete, and continue with the next."""
        self._endRequest()
        self._continue()

    def _continue(self) -> None:
        """Continue with the next request, or close."""
        body = self._body
        if body is not None:
            # Even on a closing connection, or its reader would wait forever.
            body.discard()
        if self._closesAfterResponse or self.owner.draining:
            self._close()
            return
        if body is not None and not self._isWaiting:
            self.connection.setReading(True)
        if not self._serving:
            self._resume()

    def pauseBody(self) -> None:
        """Pause reading."""
        self.connection.setReading(False)

    def resumeBody(self) -> None:
        """Resume reading, and send C{100 Continue} if the client waits for it."""
        body = self._body
        if body is not None and body.owesContinue:
            body.owesContinue = False
            if self._request is not None and not self._request.started:
                self.connection.transport.write(_CONTINUE)
        if not self._isWaiting:
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

    def willDrain(self) -> None:
        """Do nothing: the next response announces the close."""

    def drain(self) -> None:
        """Close an idle connection now, a busy one after its response."""
        if self._request is None and not self._headSeen and not self._isWaiting:
            self._close()

    def checkTimeouts(self, now: float) -> None:
        """Enforce the timeouts. Called about once a second."""
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
        Close once everything is sent; bytes still received are discarded for a while.

        @param linger: Whether the client may still be sending, beyond the known rest of its body.
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
    Enforce the timeouts of connections; one that raises is dropped.

    @param connections: Objects with C{checkTimeouts} and C{abort}, as L{HTTPChannel}; the
        collection may change during the call.
    @param now: The time of the reactor's clock in seconds.
    """
    for connection in list(connections):
        try:
            connection.checkTimeouts(now)
        except Exception:
            # The other connections must still be checked.
            _log.failure("a connection failed on a timeout")
            connection.abort()
