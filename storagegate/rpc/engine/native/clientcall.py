"""
A client's call: it waits for a connection, is a stream of one, and ends with a status.

A call that the server has certainly not processed is moved to another stream, once: the server has
refused its stream, or named a lower one in GOAWAY. Its messages are kept for that until the
response begins, or they are too long.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from zope.interface import implementer

from storagegate.core.errors import GRPC_STATUSES, GrpcError
from storagegate.core.streams import SharedFuture
from storagegate.net.http2.hpack import ReceivedFields, encodePairs
from storagegate.net.http2.interfaces import ErrorCode, HTTP2Limits, StreamReset
from storagegate.net.http2.stream import Stream
from storagegate.rpc.engine.base import MESSAGE_COST, QUEUE_BYTES
from storagegate.rpc.engine.native.messages import PREFIX, packPrefix, tooLongToSend
from storagegate.rpc.engine.native.messagestream import MessageStream
from storagegate.rpc.engine.native.metadata import writeMetadata, writeTimeout
from storagegate.rpc.engine.native.resources import RPCResources
from storagegate.rpc.engine.native.response import (
    NO_TRAILERS,
    RPCResponseHead,
    RPCStatus,
    readEnd,
    readResponseHead,
    statusOf,
)
from storagegate.rpc.engine.native.target import RPCTarget
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    IClientCall,
    Metadata,
    UnaryResult,
)
from storagegate.rpc.status import statusMessage

if TYPE_CHECKING:
    from storagegate.net.http2.core import HTTP2Core

_LATE = RPCStatus(GRPC_STATUSES["DEADLINE_EXCEEDED"], "Deadline Exceeded")
_CANCELLED = RPCStatus(GRPC_STATUSES["CANCELLED"], CANCELLED_MESSAGE)
_SEVERAL = RPCStatus(GRPC_STATUSES["INTERNAL"], "the server sent more than one response")

_TIMEOUT_NAME = b"grpc-timeout"

_UNREAD_SECONDS = 0.01
"""The pause of a producer whose call has ended, which its reader does not know yet: without one it
would take all the time of the reactor."""


class ICallOwner(Protocol):
    """
    The channel of a call.

    @ivar resources: The limits and timers of calls.
    @ivar limits: The limits of HTTP/2.
    @ivar target: The address of the server.
    @ivar isClosed: Whether the channel is closed.
    @ivar failures: How many attempts in a row gave no connection that answered a call.
    """

    resources: RPCResources
    limits: HTTP2Limits
    target: RPCTarget
    isClosed: bool
    failures: int

    def wait(self, call: Any) -> None:
        """Let a call wait for a connection or a stream."""

    def held(self, size: int) -> None:
        """Count bytes of the messages of a call that waits."""

    def forget(self, call: Any) -> None:
        """Remove a call from those that wait."""


@implementer(IClientCall)
class NativeClientCall(MessageStream):
    """
    A call of a client, see L{IClientCall}.

    @ivar path: The full name of the method.
    @ivar encoding: How messages are compressed; C{None} for not at all.
    @ivar waitsForReady: Whether the call waits while the server cannot be reached.
    @ivar isLate: Whether the deadline had passed before the call began.
    @ivar keptBytes: The size of the messages that are kept.
    """

    __slots__ = (
        "_begun",
        "_channel",
        "_done",
        "_ended",
        "_fields",
        "_hasDeadline",
        "_head",
        "_isEndWanted",
        "_isRetried",
        "_kept",
        "_response",
        "_status",
        "isLate",
        "keptBytes",
        "path",
        "waitsForReady",
    )

    direction = "responses"

    def __init__(
        self, channel: ICallOwner, path: str, options: CallOptions, request: bytes | None
    ) -> None:
        """
        @raise TypeError: If a value of the metadata is neither text nor bytes.
        @raise UnicodeError: If the metadata are not ASCII.
        """
        resources = channel.resources
        self.initialise(resources, channel.limits.queued)
        self.connection: Any = None
        self._channel = channel
        self.path = path
        self.isOver = self._isGone = False
        self._hasBegun = True
        compression = options.compression
        if compression is None:
            self._encoding = resources.limits.compression
        elif compression != "identity":
            self._encoding = compression
        metadata = options.metadata
        self._fields = encodePairs(writeMetadata(metadata)) if metadata else b""
        self.waitsForReady = options.waitForReady
        # The messages so far, in case that the call has to begin again; None if it cannot.
        self._kept: list[bytes] | None = []
        self.keptBytes = 0
        self._isEndWanted = request is not None
        if request is not None:
            self._kept.append(request)
            self.keptBytes = len(request) + MESSAGE_COST
        self._isRetried = self._hasDeadline = self.isLate = False
        self._head: RPCResponseHead | None = None
        self._status: RPCStatus | None = None
        self._response: bytes | None = None
        # Created when they are waited for.
        self._begun: SharedFuture[Metadata] | None = None
        self._ended: SharedFuture[tuple[int, str, Metadata]] | None = None
        self._done: Callable[[UnaryResult], object] | None = None
        if options.deadline is not None:
            timeout = options.deadline - time.time()
            self._hasDeadline = True
            self.isLate = timeout <= 0
            self.expires = resources.clock.seconds() + timeout
            if not self.isLate:
                self._deadlines = resources.deadlines.add(self)

    # For the channel

    def tooLong(self) -> GrpcError | None:
        """Return the error of a single request that is too long."""
        limit = self._resources.limits.maxSend
        if self._isEndWanted and self._kept and len(self._kept[0]) > limit:
            return tooLongToSend(len(self._kept[0]), limit)
        return None

    def collect(self, done: Callable[[UnaryResult], object]) -> None:
        """
        Read the only response.

        @param done: Called with the result, not before this returns.
        """
        if self._isGone:
            self._resources.clock.callLater(0, done, self._result())
        else:
            self._done = done
            self._got = self._gotResponse

    def _gotResponse(self, message: bytes | None) -> None:
        if message is not None:
            self._response = message
            self._got = self._gotSurplus

    def _gotSurplus(self, message: bytes | None) -> None:
        if message is not None:
            self.end(_SEVERAL)

    def attach(self, core: "HTTP2Core", number: int) -> "NativeClientCall":
        """Become a stream of a connection."""
        Stream.__init__(self, core, number)
        return self

    def start(self, block: bytes) -> None:
        """
        Send the head and the messages so far, on the stream that the call has just become.

        @param block: The head, without the deadline and the metadata.
        """
        if self._hasDeadline:
            left = max(0.001, self.expires - self._resources.clock.seconds())
            block += encodePairs([(_TIMEOUT_NAME, writeTimeout(left))])
        if self._fields:
            block += self._fields
        kept = self._kept
        assert kept is not None
        if self._isEndWanted and self._encoding is None and len(kept) == 1:
            message = kept[0]
            size = len(message)
            self._resources.traffic.bytesOut += size
            self.connection.sendWhole(self, block, packPrefix(0, size) + message)
            return
        self.sendHead(block)
        for message in kept:
            super().send(message)
        if self._unsent is None:
            self._sendLast()
            if not self.isPaused:
                self._resumeSender()

    @property
    def encoding(self) -> str | None:
        """Return the encoding of requests."""
        return self._encoding

    # For the connection

    def headReceived(self, fields: ReceivedFields, isEnded: bool) -> None:
        """Receive the head of the response, or all of it."""
        try:
            head = readResponseHead(fields, isEnded)
        except GrpcError as error:
            self.isHeadReceived = True
            self._fail(error)
            return
        if head is None:
            return
        self.isHeadReceived = True
        self._kept = None
        self._channel.failures = 0
        if head.status is not None:
            self.end(head.status)
            return
        self._head = head
        self.expected = head.length
        self._receivedEncoding = head.encoding
        if self._begun is not None:
            self._begun.set(head.metadata)

    def dataReceived(self, data: bytes, isEnded: bool) -> None:
        """Deliver the messages that are complete."""
        if self.isOver:
            return
        size = len(data) - PREFIX
        if (
            self._got is not None
            and size >= 0
            and (self._decoder is None or not self._decoder.held)
            and not self._inbox
            and not self._isInflating
            and data[:PREFIX] == packPrefix(0, size)
            and size <= self._resources.limits.maxReceive
        ):
            # A frame with one message, which the reader waits for.
            self._resources.traffic.bytesIn += size
            got, self._got = self._got, None
            self.take(size + PREFIX)
            got(data[PREFIX:])
        else:
            self._receive(data, False)
        if isEnded:
            self._arrived(NO_TRAILERS)

    def trailersReceived(self, fields: ReceivedFields) -> None:
        """Receive the status."""
        try:
            status = readEnd(fields)
        except GrpcError as error:
            self._fail(error)
        else:
            self._arrived(status)

    def _arrived(self, status: RPCStatus) -> None:
        """End the call when the messages before its status have been read."""
        if self._isGone:
            return
        self.isOver = True
        self._status = status
        if not self.isLocalClosed:
            # Section 8.1: the server does not need the rest.
            self.reset(ErrorCode.NO_ERROR)
        if self._decoder is None:
            self._isAtEnd = True
        else:
            self._receive(b"", True)
        self._settle()

    def _settle(self) -> None:
        status = self._status
        if (
            status is not None
            and self._isAtEnd
            and not (self._inbox or self._isInflating or self._isGone)
        ):
            self.end(status)
        elif status is not None:
            self._resumeSender()

    def lost(self, reason: Exception) -> None:
        """Begin again on another stream, or end."""
        if (
            isinstance(reason, StreamReset)
            and reason.isUnprocessed
            and not (self._isGone or self._isRetried or self._channel.isClosed)
            and self._kept is not None
            and self._unsent is None
        ):
            self._isRetried = True
            self.connection = None
            self._channel.wait(self)
            return
        debug = self.connection.peerFailure[1]
        self.end(statusOf(reason, self._channel.target.text, debug))

    def expire(self) -> None:
        """End the call: its deadline has passed."""
        self._deadlines = None
        self.end(_LATE)

    def watchDeadline(self) -> None:
        """Wait for a deadline that is far away."""
        self._deadlines = None if self._isGone else self._resources.deadlines.add(self)

    def end(self, status: RPCStatus) -> None:
        """End the call, unless it has ended."""
        if self._isGone:
            return
        self._isGone = self.isOver = True
        self._status = status
        if self._deadlines is not None:
            self._deadlines.pop(self, None)
            self._deadlines = None
        if self._decoder is not None:
            self._release()
        self._kept = None
        if self.connection is None:
            self._channel.forget(self)
        elif not (self.isLocalClosed and self.isRemoteClosed):
            self.reset(ErrorCode.CANCEL)
        if self._begun is not None:
            self._begun.set(())
        if self._ended is not None:
            self._ended.set((status.code, status.message, status.trailers))
        got, self._got = self._got, None
        done, self._done = self._done, None
        if done is not None:
            done(self._result())
        elif got is not None:
            got(None)
        self._resumeSender()

    def _result(self) -> UnaryResult:
        status, head = self._status, self._head
        assert status is not None
        return UnaryResult(
            status.code,
            status.message,
            self._response,
            () if head is None else head.metadata,
            status.trailers,
        )

    def _fail(self, error: GrpcError) -> None:
        status = self._status
        if status is None or not status.code or status is NO_TRAILERS:
            status = RPCStatus(error.status, statusMessage(error.message))
        self.end(status)

    _refuseMessage = _fail

    def _sendLast(self) -> bool:
        if self._isEndWanted:
            self.sendData(b"", True)
        return self._isEndWanted

    def _readGone(self, got: Callable[[bytes | None], object]) -> None:
        got(None)

    def _deliver(self) -> None:
        super()._deliver()
        self._settle()

    # For the client

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message; return whether another message may follow."""
        if self.isOver or self._isEndWanted:
            return False
        kept = self._kept
        if kept is None:
            return super().send(message, compress)
        size = len(message)
        limit = self._resources.limits.maxSend
        if size > limit:
            self._fail(tooLongToSend(size, limit))
            return False
        self.keptBytes += size + MESSAGE_COST
        if self.connection is None:
            self._channel.held(size + MESSAGE_COST)
            kept.append(message)
            return self.keptBytes < QUEUE_BYTES
        if self.keptBytes < QUEUE_BYTES:
            kept.append(message)
        else:
            self._kept = None
        return super().send(message, compress)

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent, or the call has ended."""
        if self.isOver and not self._isGone:
            # The status is known, but not read.
            return deferLater(self._resources.clock, _UNREAD_SECONDS, _nothing)
        if self.connection is None and self.keptBytes >= QUEUE_BYTES and not self.isOver:
            self._drained = Deferred(self._stopWaiting)
            return self._drained
        return succeed(None) if self.connection is None else super().drained()

    def sendEnd(self) -> None:
        """Send the end of the messages."""
        if self._isEndWanted or self.isOver:
            return
        self._isEndWanted = True
        if self.connection is not None and self._unsent is None:
            self._sendLast()

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Request the next message."""
        super().read(got, ahead)
        if self._status is not None:
            self._settle()

    def begun(self) -> Deferred[Metadata]:
        """Wait for the initial metadata."""
        if self._begun is None:
            self._begun = SharedFuture()
            if self._head is not None:
                self._begun.set(self._head.metadata)
            elif self._isGone:
                self._begun.set(())
        return self._begun.wait()

    def ended(self) -> Deferred[tuple[int, str, Metadata]]:
        """Wait for the status, its message and the trailers."""
        if self._ended is None:
            self._ended = SharedFuture()
            if self._isGone:
                status = self._status
                assert status is not None
                self._ended.set((status.code, status.message, status.trailers))
        return self._ended.wait()

    def cancel(self) -> None:
        """Cancel the call. May run in any thread, and in a destructor."""
        self._resources.clock.callFromThread(self.end, _CANCELLED)


def _nothing() -> None:
    """Do nothing, later."""
