"""
HTTP/1.1 on one connection.

Bytes come in, requests go up one at a time: the second of two pipelined requests is not even
parsed before the response to the first has ended, so order needs no bookkeeping. A request is
handed over when its head is complete; its body is a stream that can be made to wait.

A connection is in one of these conditions::

    idle        no request, nothing pending          keepAliveTimeout
    head        part of a head is pending            headersTimeout, from its first byte
    busy        a request is being answered          requestTimeout without progress
    rest        answered, but its body still comes   keepAliveTimeout
    closing     closed by us, discarding what comes  lingerTimeout; requestTimeout if unsent bytes
    gone        lost, or taken by another protocol

The transport under an HTTP channel: what is the same whether it is TCP, UNIX or TLS.

The watch over connections: each knows for itself what is due at a time.
"""

import typing
from collections.abc import Collection, Sequence
from typing import Any

from twisted.internet.interfaces import IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.http.body import NO_BODY, completeBody
from storagegate.net.http.interfaces import (
    BadRequest,
    BodyLost,
    IChannelOwner,
    IncompleteBody,
    IRequestChannel,
)
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.parser import BodyDecoder, RequestHead, checkPartialHead, parseHead
from storagegate.net.transport import FastServer


class ChannelTransport:
    """
    A transport, and whether it is being read.

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

    def setReading(self, reading: bool) -> None:
        """Read, or let the peer wait."""
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self.transport.resumeProducing()
            else:
                self.transport.pauseProducing()

    def setReadSize(self, size: int) -> None:
        """Read up to C{size} bytes at a time, if the transport lets us choose."""
        setReadSize = getattr(self.transport, "setReadSize", None)
        if setReadSize is not None:
            setReadSize(size)

    def hasUnsent(self) -> bool:
        """Say whether bytes or a file wait for the peer to read."""
        hasUnsent = getattr(self.transport, "hasUnsent", None)
        return hasUnsent is not None and hasUnsent()

    def sentBytes(self) -> int:
        """Count what the peer let us send after waiting; two samples show progress."""
        return getattr(self.transport, "sentBytes", 0)

    def close(self, linger: bool) -> None:
        """
        Close once everything is sent.

        A peer that is still sending gets a reset from a plain close, and may lose our last words
        to it.

        @param linger: Close only our half, and go on reading; L{closeAtLast} does the rest.
        """
        self.transport.unregisterProducer()
        if linger and self.fileSender is not None:
            self.fileSender.loseWriteConnection()
            self.setReading(True)
        else:
            self.transport.loseConnection()

    def closeAtLast(self) -> None:
        """
        Close without waiting for the peer any longer.

        The kernel still sends what it has. TLS waits for the peer's own goodbye after a C{close},
        so this reaches below it.
        """
        getattr(self.transport, "transport", self.transport).loseConnection()

    def release(self) -> None:
        """Leave the transport as it was, for another protocol."""
        self.transport.unregisterProducer()
        self.setReading(True)


_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# What a connection reads at a time between bodies: a hundred heads.
_READ_SIZE = 64 * 1024


@implementer(IRequestChannel, IPushProducer)
class HTTPChannel(Protocol):
    """
    One connection.

    @ivar owner: The site.
    @ivar wire: The connection.
    @ivar wireFull: Whether the client is behind with reading.
    """

    def __init__(self, owner: IChannelOwner) -> None:
        self.owner = owner
        self.limits = owner.limits
        self.wireFull = False
        self.wire: ChannelTransport
        self._request: ChannelRequest | None = None
        # The body that is coming, if one is.
        self._intake: BodyDecoder | None = None
        self._persistent = True
        # Whether the client waits for a 100 Continue to send a body that is empty.
        self._expectsForNothing = False
        # Bytes that wait for the request before them to be answered, or for the rest of a head.
        self._pending = b""
        self._headSeen = 0
        self._serving = False
        self._closing = False
        self._discardable = self.limits.drainedBody
        self._deadline = 0.0
        # What the watch on progress compares.
        self._written = 0
        self._requestNumber = 0
        self._progress: tuple[int, ...] = ()
        self._progressTime = 0.0

    # The transport's side

    def connectionMade(self) -> None:
        """Greet nobody: the client speaks first."""
        transport: Any = self.transport
        self.wire = ChannelTransport(transport)
        if self.owner.channelOpened(self):
            transport.registerProducer(self, True)
            self._deadline = self.owner.now + self.limits.headersTimeout
        else:
            self._refuse()

    def dataReceived(self, data: bytes) -> None:
        """Take what came."""
        if self._closing:
            self._discard(data)
            return
        if self._intake is not None:
            try:
                data = self._receiveBody(self._intake, data)
            except BadRequest as error:
                self._reject(error)
                return
            if not data:
                return
        if self._request is not None or self.wireFull or self._closing:
            self._keep(data)
        elif self._pending:
            self._serve(self._pending + data)
        else:
            self._serve(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Let the request know."""
        self._closing = True
        self._intake = None
        self.owner.channelClosed(self)
        self._loseRequest(reason, BodyLost("the client went away"))

    def pauseProducing(self) -> None:
        """Let the response wait: the client is behind with reading."""
        self.wireFull = True
        if self._request is not None:
            self._request.wireChanged(True)

    def resumeProducing(self) -> None:
        """Let the response go on, or begin the next."""
        self.wireFull = False
        if self._request is not None:
            self._request.wireChanged(False)
        self._resume()

    def stopProducing(self) -> None:
        """Do nothing: C{connectionLost} follows."""

    # Requests

    def _serve(self, data: bytes) -> None:
        """Begin the requests in C{data}, as far as each is answered at once."""
        self._pending = b""
        self._serving = True
        served = 0
        while data:
            if self._request is not None or self._closing or self.wireFull:
                self._keep(data)
                break
            if served == self.limits.pipelinedRequests:
                # Others want their turn: a read may hold a thousand small requests.
                self._keep(data)
                self.owner.reactor.callLater(0, self._resume)
                break
            if data.startswith(b"\r\n"):
                # RFC 9112 section 2.2: an empty line before a request is passed over.
                data = data[2:]
                self._headSeen = 0
                continue
            end = data.find(b"\r\n\r\n") + 4
            try:
                if end < 4:
                    self._awaitHead(data)
                    break
                if end == len(data):
                    head, data = parseHead(data, self.limits), b""
                else:
                    head, data = parseHead(data[:end], self.limits), data[end:]
                data = self._begin(head, data)
            except BadRequest as error:
                self._reject(error)
                break
            served += 1
        self._serving = False

    def _awaitHead(self, data: bytes) -> None:
        checkPartialHead(data, self._headSeen, self.limits)
        if not self._headSeen:
            self._deadline = self.owner.now + self.limits.headersTimeout
        self._headSeen = len(data)
        self._pending = data

    def _begin(self, head: RequestHead, data: bytes) -> bytes:
        """
        Hand a request over, with what is here of its body.

        @return: What follows it.
        @raise BadRequest: If the beginning of the body is wrong; nothing was handed over.
        """
        body, length = NO_BODY, head.contentLength
        if length is not None and 0 < length <= len(data):
            # All of it came with its head: what takes it in pieces would take twice as long.
            body, data = completeBody(data[:length]), data[length:]
        elif length != 0:
            intake = BodyDecoder(head, self, self.limits)
            body = intake.body
            self._intake = intake
            data = self._receiveBody(intake, data)
        self._persistent = head.keepAlive
        self._expectsForNothing = head.expectsContinue and head.contentLength == 0
        self._headSeen = 0
        self._requestNumber += 1
        self._request = request = ChannelRequest(self, head, body)
        self._pending = data
        self.owner.requestReceived(request)
        # Closing or taking the transport has taken what was pending too.
        data, self._pending = self._pending, b""
        return data

    def _receiveBody(self, intake: BodyDecoder, data: bytes) -> bytes:
        """
        Take a part of a body.

        @return: What follows the body.
        @raise BadRequest: If its framing is broken.
        """
        data = intake.feed(data)
        if intake.complete:
            self._intake = None
            self.wire.setReadSize(_READ_SIZE)
        elif intake.isLarge():
            self.wire.setReadSize(self.owner.bodyReadSize())
        return data

    def _keep(self, data: bytes) -> None:
        """Hold what came too early, and stop reading when it is enough."""
        if self._closing:
            return
        self._pending += data
        if (
            len(self._pending) > self.limits.headSize
            or self._pending.count(b"\r\n\r\n") >= self.limits.pipelinedRequests
        ):
            self.wire.setReading(False)

    def _resume(self) -> None:
        """Go on with what waits, if nothing is in its way."""
        if self._request is not None or self.wireFull or self._closing or self._serving:
            return
        self.wire.setReading(True)
        if self._pending:
            self._serve(self._pending)

    # The request's side

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._written += 1
        self.wire.transport.write(data)

    def writeSequence(self, pieces: Sequence[bytes]) -> None:
        """Send bytes."""
        self._written += 1
        self.wire.transport.writeSequence(pieces)

    def bodyWanted(self) -> None:
        """Read on; and if the client waits for it, ask for the body."""
        if self._intake is not None and self._intake.owesContinue:
            self._intake.owesContinue = False
            if self._request is not None and not self._request.started:
                self.wire.transport.write(_CONTINUE)
        self.wire.setReading(True)

    def bodyFull(self) -> None:
        """Stop reading."""
        self.wire.setReading(False)

    def beginResponse(self, code: int) -> bool:
        """Say whether the connection has to close after the response that begins now."""
        if self._expectsForNothing:
            # Some versions of botocore misread the next answer where a final one came without a
            # 100 before it, also when there was no body to wait for.
            self._expectsForNothing = False
            if code >= 400:
                return True
            self.wire.transport.write(_CONTINUE)
        return (
            not (self._persistent and self.limits.keepAlive)
            or self.owner.draining
            or (self._intake is not None and self._intake.blocksNext())
        )

    def requestDone(self) -> None:
        """Go on to the next request, or close."""
        request, self._request = self._request, None
        assert request is not None
        self.owner.requestDone()
        if request.closes or self.owner.draining:
            self._close()
            return
        self._deadline = self.owner.now + self.limits.keepAliveTimeout
        if self._intake is not None:
            self._intake.isWanted = False
            self.wire.setReading(True)
        if not self._serving:
            self._resume()

    def takeTransport(self) -> tuple[Any, bytes]:
        """
        Let go of the connection.

        @return: The transport, and the bytes that came after the request.
        """
        transport, self.transport = self.transport, None
        leftover, self._pending = self._pending, b""
        self._closing = True
        self._request = self._intake = None
        self.wire.release()
        self.owner.channelClosed(self)
        self.owner.requestDone()
        return transport, leftover

    def abort(self) -> None:
        """Drop the connection."""
        self._closing = True
        self.wire.transport.abortConnection()

    # The owner's side

    def drain(self) -> None:
        """Close now if nothing is being answered or half here; if something is, its end closes."""
        if self._request is None and not self._headSeen:
            self._close()

    def tick(self, now: float) -> None:
        """Look at the clock. Called about once a second."""
        if self._request is not None or self.wire.hasUnsent():
            self._watchProgress(now)
        elif now < self._deadline:
            return
        elif self._closing:
            self.wire.closeAtLast()
        elif self._headSeen:
            self._reject(BadRequest(408, "The head of the request took too long"))
        else:
            self._close()

    def _watchProgress(self, now: float) -> None:
        progress = (
            self._requestNumber,
            self._intake.progress() if self._intake is not None else 0,
            self._written,
            self.wire.sentBytes(),
        )
        if progress != self._progress:
            self._progress = progress
            self._progressTime = now
        elif now - self._progressTime >= self.limits.requestTimeout:
            if self._request is None:
                self.abort()
            elif self._intake is not None:
                self._reject(BadRequest(408, "The body of the request took too long"))
            else:
                self._reject(BadRequest(503, "The response took too long"))

    # Ends

    def _refuse(self) -> None:
        """Send the client away. Nobody watches this connection's time, so it gets none."""
        self._closing = True
        transport: Any = self.transport
        if self.wire.secure:
            # An answer would have to wait for the client's part of the handshake.
            transport.abortConnection()
        else:
            transport.write(self.owner.rejection(BadRequest(503, "There are too many connections")))
            transport.loseConnection()

    def _reject(self, error: BadRequest) -> None:
        """Answer what is no request, if nothing was answered yet, and close."""
        request = self._request
        if request is not None and request.started:
            self.abort()
            return
        intake = self._intake
        if intake is None or intake.isWanted:
            self.wire.transport.write(self.owner.rejection(error))
        self._loseRequest(Failure(error), IncompleteBody(error.text))
        self._close(linger=True)

    def _loseRequest(self, reason: Failure, bodyError: BodyLost) -> None:
        request, self._request = self._request, None
        if request is not None:
            self.owner.requestDone()
            request.connectionLost(reason, bodyError)

    def _close(self, linger: bool = False) -> None:
        """
        Close once everything is sent; what still comes is thrown away for a while.

        @param linger: Whether the client may be sending still, beyond what is known to be coming.
        """
        if self._closing:
            return
        if self._pending or (self._intake is not None and not self._intake.complete):
            linger = True
        self._closing = True
        self._intake = None
        self._pending = b""
        self._discardable = self.limits.drainedBody
        self._deadline = self.owner.now + self.limits.lingerTimeout
        self.wire.close(linger)

    def _discard(self, data: bytes) -> None:
        self._discardable -= len(data)
        if self._discardable < 0:
            # The client's send blocks now, and it has the time to read our answer.
            self.wire.setReading(False)


_log = Logger()


class TimeoutChecked(typing.Protocol):
    """A connection that is told the time."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def abort(self) -> None:
        """Drop it."""


def tickAll(connections: Collection[TimeoutChecked], now: float) -> None:
    """Tell connections the time; one that fails at it is dropped, and may leave the collection."""
    for connection in list(connections):
        try:
            connection.tick(now)
        except Exception:
            # One connection's trouble must not end the watch over the others.
            _log.failure("a connection failed on a timeout")
            connection.abort()
