"""
A stream of an HTTP/2 connection: its state, its windows, and the bytes that wait to be sent.

L{HTTP2Core<storagegate.net.http2.core.HTTP2Core>} calls the methods of the first group, which
subclasses implement; subclasses call those of the second group.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from storagegate.core.heldbytes import TooMuchHeld
from storagegate.net.http2.interfaces import ErrorCode

if TYPE_CHECKING:
    from storagegate.net.http2.hpack import ReceivedFields

DEFAULT_URGENCY = 3
"""RFC 9218 section 4.1."""

LEVELS = 16
"""The levels of L{Stream.level}: two for each urgency."""


class QueuedOutput:
    """
    The output of a stream as a holder of the process's budget, see L{IByteHolder}.

    @ivar progress: The last sample of the output that the client has taken.
    """

    __slots__ = ("_stream", "progress")

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self.progress = 0

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """End the stream, because its client does not read the response."""
        self._stream.refuseOutput()


class Stream:
    """
    One stream.

    @ivar connection: The L{HTTP2Core<storagegate.net.http2.core.HTTP2Core>}.
    @ivar id: The number of the stream.
    @ivar isHeadReceived: Whether the next header block from the peer contains trailers.
    @ivar isLocalClosed: Whether we have sent the end of the stream.
    @ivar isRemoteClosed: Whether the peer has.
    @ivar isPaused: Whether too many bytes are queued for another L{sendData}.
    @ivar queued: The number of bytes that wait for a window or the transport.
    @ivar counted: Counts the queued bytes in the budget, if they wait for the client.
    @ivar sent: The number of bytes of DATA that were passed to the transport.
    @ivar received: The number of bytes of DATA that were received, without padding.
    @ivar expected: The number of bytes of DATA that the peer announced; C{None} if unknown.
    @ivar sendWindow: The number of bytes that the peer accepts.
    @ivar receiveWindow: The number of bytes that the peer may send.
    @ivar window: The size of the receive window when the reader has taken everything.
    @ivar untaken: The number of received bytes that were not granted again.
    @ivar trailers: The header block that follows the queued bytes.
    @ivar isEnding: Whether nothing more may be queued.
    @ivar level: The place in the order of output: lower ones are sent first, and streams of an odd
        one take turns; see L{urgency}.
    """

    __slots__ = (
        "_progress",
        "_progressOfOthers",
        "_progressTime",
        "connection",
        "counted",
        "expected",
        "id",
        "isEnding",
        "isHeadReceived",
        "isLocalClosed",
        "isPaused",
        "isRemoteClosed",
        "level",
        "queue",
        "queued",
        "receiveWindow",
        "received",
        "sendWindow",
        "sent",
        "trailers",
        "untaken",
        "window",
    )

    def __init__(self, connection: Any, number: int) -> None:
        self.connection = connection
        self.id = number
        self.isHeadReceived = self.isLocalClosed = self.isRemoteClosed = False
        self.isPaused = self.isEnding = False
        self.queue: deque[bytes | memoryview] = deque()
        self.queued = self.sent = self.received = self.untaken = 0
        self.counted: QueuedOutput | None = None
        self.expected: int | None = None
        self.trailers: bytes | None = None
        self.sendWindow: int = connection.initialSendWindow
        window: int = connection.limits.streamWindow
        self.receiveWindow = self.window = window
        # Samples of progress, see stalledSeconds.
        self._progress: tuple[int, ...] = ()
        self._progressOfOthers = 0
        self._progressTime = 0.0
        # Without a wish of the client, its streams share the connection.
        self.level = DEFAULT_URGENCY * 2 + 1

    @property
    def urgency(self) -> int:
        """Return 0 to 7; lower is sent first (RFC 9218)."""
        return self.level // 2

    @property
    def isIncremental(self) -> bool:
        """
        Return whether the stream shares the connection with others of its urgency.

        Otherwise these are sent one after the other.
        """
        return bool(self.level % 2)

    @property
    def share(self) -> object:
        """Return the client's address, see L{HTTP2Core.share
        <storagegate.net.http2.core.HTTP2Core>}."""
        return self.connection.share

    # For subclasses to implement. An exception ends the stream with INTERNAL_ERROR.

    def headReceived(self, fields: "ReceivedFields", isEnded: bool) -> None:
        """
        Handle the header fields of a request, or of a response including interim ones.

        A client sets L{isHeadReceived} with the final response, and L{expected} if it has a length.

        @param isEnded: Whether neither DATA nor trailers follow.
        @raise StreamFailure: If the head is malformed. L{lost} is then called, too.
        """
        raise NotImplementedError

    def dataReceived(self, data: bytes, isEnded: bool) -> None:
        """
        Handle a part of the body.

        @param data: May be empty.
        @param isEnded: Whether nothing follows.
        """
        raise NotImplementedError

    def trailersReceived(self, fields: "ReceivedFields") -> None:
        """
        Handle the trailers, which end the body.

        @raise StreamFailure: If they are malformed.
        """
        raise NotImplementedError

    def lost(self, reason: Exception) -> None:
        """
        Handle the early end of the stream, which is closed in both directions.

        Called at most once: for a server before the end of its response was sent, for a client
        before the end of the response has arrived. Not called after L{reset}.

        @param reason: A L{StreamReset<storagegate.net.http2.interfaces.StreamReset>}, our own
            L{HTTP2Error<storagegate.net.http2.interfaces.HTTP2Error>}, or the reason for the loss
            of the connection.
        """
        raise NotImplementedError

    def refuseRest(self) -> None:
        """Ask the peer of an answered stream to send no more (RFC 9113 section 8.1)."""
        self.reset(ErrorCode.NO_ERROR)

    def refuseOutput(self) -> None:
        """End the stream: all requests of the process together hold too much."""
        self.reset(ErrorCode.ENHANCE_YOUR_CALM)

    def setPaused(self, isPaused: bool) -> None:
        """Pause the writer, or let it continue: see L{isPaused}."""

    def checkTimeouts(self, now: float) -> None:
        """
        Enforce the timeouts of the stream. Called about once a second.

        @param now: The time of the connection's clock in seconds.
        """

    # For subclasses to call

    def stalledSeconds(self, now: float, more: tuple[int, ...] = ()) -> float:
        """
        Return how long the stream has made no progress; call this about once a second.

        Its output makes progress by C{progress} bytes of the L{HTTP2Limits
        <storagegate.net.http2.interfaces.HTTP2Limits>}, or a client could hold the queued bytes
        with a window of one byte now and then.

        @param more: Samples of other progress.
        """
        connection = self.connection
        size = connection.limits.progress
        if self.queued and self.sendWindow > 0:
            # It waits for its turn, or for the transport.
            self._progressOfOthers = (connection.sentData + connection.sentBytes()) // size
        progress = (self.sent // size, self._progressOfOthers, *more)
        if progress != self._progress:
            self._progress = progress
            self._progressTime = now
        return now - self._progressTime

    def sendHead(self, block: bytes, isEnd: bool = False) -> None:
        """
        Send a header block: the head of a request or a response, including interim responses.

        @param isEnd: Whether neither DATA nor trailers follow.
        """
        self.connection.sendBlock(self, block, isEnd)

    def sendWhole(self, block: bytes, body: bytes, trailers: bytes | None = None) -> None:
        """Send a head, the whole body, and trailers that end the stream."""
        self.connection.sendWhole(self, block, body, trailers)

    def sendData(self, data: bytes, isEnd: bool = False) -> None:
        """
        Queue a part of the body. Does nothing once the stream is closed.

        @param data: May be empty.
        @param isEnd: Whether nothing follows.
        """
        if self.isLocalClosed or self.isEnding:
            return
        if data:
            self.isEnding = isEnd
            self.enqueue(data)
            # The owner may have sent it at once.
            if self.queued > self.connection.limits.queued and not (isEnd or self.isPaused):
                self.isPaused = True
                self.setPaused(True)
        elif isEnd:
            self.isEnding = True
            if not self.queued:
                self.connection.sendEnd(self)

    def enqueue(self, data: bytes) -> None:
        """Queue bytes, which are not empty, for the next output."""
        connection, before, size = self.connection, self.queued, len(data)
        self.queue.append(data)
        self.queued = before + size
        connection.waiting += size
        if not before:
            connection.makeReady(self)
        elif self.counted is not None:
            connection.countOutput(self)

    def sendTrailers(self, block: bytes) -> None:
        """Queue a header block that ends the stream. Does nothing once the stream is closed."""
        if self.isLocalClosed or self.isEnding:
            return
        self.isEnding = True
        if self.queued:
            self.trailers = block
        else:
            self.connection.sendBlock(self, block, True)

    def take(self, count: int) -> None:
        """
        Grant the peer as many bytes again as the reader has taken.

        @param count: Bytes that were passed to L{dataReceived}.
        """
        self.untaken += count
        if self.untaken * 2 >= self.window and not self.isRemoteClosed:
            # Half a window at once, so that a peer that sends small frames gets few updates.
            self.connection.grant(self)

    def setWindow(self, size: int) -> None:
        """
        Change the size of the receive window; a smaller one holds as the peer uses up the former.

        @param size: Bytes, less than 2**31.
        """
        self.untaken += size - self.window
        self.window = size
        self.take(0)

    def reset(self, code: int = ErrorCode.CANCEL) -> None:
        """End the stream at once; L{lost} is not called."""
        self.connection.resetStream(self, code)
