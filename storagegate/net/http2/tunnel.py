"""
A stream as the transport of another protocol: WebSockets over HTTP/2 (RFC 8441).

The protocol is that of a connection of its own. It begins with an HTTP/1.1 response of status 101,
as it would there; the stream sends it as a response of status 200, without the fields that
only an upgrade has (section 5).
"""

from collections.abc import Iterable
from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IConsumer, IPushProducer, ITransport
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.http2.hpack import encodeHead
from storagegate.net.http2.interfaces import ErrorCode
from storagegate.net.http2.stream import Stream

# The length of a handshake's response, whose fields the server has chosen.
_MAX_HEAD = 64 * 1024

_NOT_SENT = (b"sec-websocket-accept",)


@implementer(ITransport, IConsumer, IPushProducer)
class StreamTransport:
    """
    The transport of one stream.

    @ivar protocol: The receiver of input.
    @ivar isRequested: Whether the client has asked for a tunnel.
    @ivar isOpen: Whether a protocol has taken it over, and has not lost it.
    @ivar disconnecting: Whether it was closed from this side.
    """

    def __init__(self, stream: Stream) -> None:
        self.protocol: Any = None
        self.isRequested = self.isOpen = self.disconnecting = False
        self._stream: Any = stream
        self._connection = stream.connection
        self._head: bytes | None = b""
        self._producer: Any = None
        self._isPaused = self._isEnded = self._isDelivering = False
        # Input before the takeover, or during a pause. The window limits it, and the client chooses
        # the size of the pieces, so they are joined.
        self._pending = bytearray()

    def begin(self) -> bytes:
        """Let a protocol take over; return the input so far."""
        self.isOpen = True
        if self._isEnded:
            self._deliverLater()
        return self._takePending()

    # For the stream

    def dataReceived(self, data: bytes, isEnded: bool) -> None:
        """Deliver input, or keep it until the protocol takes it."""
        self._isEnded = isEnded
        if self.isOpen and not (self._isPaused or self._isDelivering):
            if data:
                self._take(len(data))
                self.protocol.dataReceived(data)
            if isEnded:
                self._inputEnded()
        elif data:
            self._pending += data

    def setPaused(self, isPaused: bool) -> None:
        """Pause or resume the writer."""
        producer = self._producer
        if producer is not None:
            if isPaused:
                producer.pauseProducing()
            else:
                producer.resumeProducing()

    def connectionLost(self, reason: Exception) -> None:
        """Notify the protocol, once."""
        self._stream = None
        self._pending.clear()
        wasOpen, self.isOpen = self.isOpen, False
        if wasOpen:
            protocol, self.protocol, self._producer = self.protocol, None, None
            protocol.connectionLost(Failure(reason))

    def _inputEnded(self) -> None:
        """Close, as a connection does whose peer has closed."""
        if self._stream is not None:
            self._stream.sendData(b"", True)
        self.connectionLost(ConnectionDone())

    def _takePending(self) -> bytes:
        pending = bytes(self._pending)
        self._pending.clear()
        self._take(len(pending))
        return pending

    def _take(self, count: int) -> None:
        if self._stream is not None:
            self._stream.take(count)

    def _deliverLater(self) -> None:
        if not self._isDelivering:
            self._isDelivering = True
            self._connection.owner.reactor.callLater(0, self._deliver)

    def _deliver(self) -> None:
        """Deliver the input of a pause."""
        self._isDelivering = False
        if self._pending and self.isOpen and not self._isPaused:
            self.protocol.dataReceived(self._takePending())
        if self._isEnded and self.isOpen and not (self._pending or self._isPaused):
            self._inputEnded()

    # For the protocol

    def write(self, data: bytes) -> None:
        """Send bytes."""
        stream = self._stream
        if stream is None or self.disconnecting:
            return
        if self._head is None:
            stream.sendData(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if end:
            self._head = None
            self._sendHead(stream, head)
            stream.sendData(rest)
        elif len(self._head) > _MAX_HEAD:
            self.abortConnection()

    def _sendHead(self, stream: Stream, head: bytes) -> None:
        line, *lines = head.split(b"\r\n")
        status = line[9:12]
        lines = [each for each in lines if not each.lower().startswith(_NOT_SENT)]
        line = b"HTTP/1.1 %b " % (b"200" if status == b"101" else status)
        stream.sendHead(encodeHead(b"\r\n".join([line, *lines, b""])))

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send several pieces."""
        self.write(b"".join(iovec))

    def loseConnection(self, *arguments: Any) -> None:
        """Close once everything is sent."""
        if self._stream is not None and not self.disconnecting:
            self.disconnecting = True
            self._stream.sendData(b"", True)
            self._loseLater(ConnectionDone())

    def abortConnection(self) -> None:
        """Reset the stream."""
        stream = self._stream
        if stream is not None:
            self.disconnecting = True
            stream.reset(ErrorCode.CANCEL)
            self._loseLater(ConnectionAborted())

    def _loseLater(self, reason: Exception) -> None:
        # As with a socket, not in the stack of the protocol.
        self._connection.owner.reactor.callLater(0, self.connectionLost, reason)

    def getPeer(self) -> Any:
        """Return the client's address."""
        return self._connection.transport.getPeer()

    def getHost(self) -> Any:
        """Return the address of the listener."""
        return self._connection.transport.getHost()

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Do nothing: the connection has it."""

    def setReadSize(self, size: int) -> None:
        """Do nothing: frames have their own size."""

    def hasUnsent(self) -> bool:
        """Return whether bytes are still to be sent."""
        return self._stream is not None and self._stream.queued > 0

    @property
    def sentBytes(self) -> int:
        """Return the count of sent bytes; two samples show progress."""
        return 0 if self._stream is None else self._stream.sent

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """
        Let a producer follow the pace of the client.

        @raise ValueError: If it is a pull producer.
        """
        if not streaming:
            raise ValueError("a pull producer is not supported")
        self._producer = producer
        if self._stream is not None and self._stream.isPaused:
            producer.pauseProducing()

    def unregisterProducer(self) -> None:
        """Forget the producer."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Keep further input, whose window is not granted again."""
        self._isPaused = True

    def resumeProducing(self) -> None:
        """Deliver input again."""
        self._isPaused = False
        if self._pending or self._isEnded:
            self._deliverLater()

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()
