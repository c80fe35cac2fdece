"""A call: a stream of HTTP/2 with the messages of gRPC."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.errors import GRPC_STATUSES, UNKNOWN_MESSAGE, GrpcError
from storagegate.net.http2.hpack import ReceivedFields, encodePairs
from storagegate.net.http2.interfaces import ErrorCode
from storagegate.rpc.engine.native.head import RPCRequestHead, readHead
from storagegate.rpc.engine.native.messages import ENCODINGS, PREFIX, packPrefix
from storagegate.rpc.engine.native.messagestream import MessageStream
from storagegate.rpc.engine.native.metadata import writeMessage, writeMetadata
from storagegate.rpc.interfaces import IServerCall, Metadata
from storagegate.rpc.status import DETAILS_KEY, encodeDetails, statusMessage

if TYPE_CHECKING:
    from storagegate.net.http2.core import HTTP2Core
    from storagegate.rpc.engine.native.service import CallPeer, CallService

_INTERNAL = GRPC_STATUSES["INTERNAL"]
_LATE = GRPC_STATUSES["DEADLINE_EXCEEDED"]
_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]

_RESET_CODES = {_EXHAUSTED: ErrorCode.ENHANCE_YOUR_CALM, _INTERNAL: ErrorCode.INTERNAL_ERROR}
"""The codes that clients turn into these statuses."""

_CONTENT = [(b"content-type", b"application/grpc")]
_ACCEPTS = [(b"grpc-accept-encoding", b"identity," + ",".join(ENCODINGS).encode("ascii"))]

_PLAIN_HEAD = encodePairs([(b":status", b"200"), *_CONTENT, *_ACCEPTS])
_HEADS = {
    each: encodePairs(
        [(b":status", b"200"), *_CONTENT, (b"grpc-encoding", each.encode()), *_ACCEPTS]
    )
    for each in ENCODINGS
}
_ONLY_TRAILERS = encodePairs([(b":status", b"200"), *_CONTENT])
_OK = encodePairs([(b"grpc-status", b"0")])

_log = Logger()


@implementer(IServerCall)
class NativeCall(MessageStream):
    """A call of a server, see L{IServerCall}."""

    __slots__ = (
        "_cancelled",
        "_head",
        "_initial",
        "_last",
        "_onClosed",
        "_peer",
        "_service",
        "deadline",
        "isRefused",
        "path",
    )

    countsBytes = True
    direction = "requests"

    _head: RPCRequestHead

    def __init__(
        self, connection: "HTTP2Core", number: int, service: "CallService", peer: "CallPeer"
    ) -> None:
        super().__init__(connection, number)
        self.initialise(service, connection.limits.queued)
        self._service = service
        self._peer = peer
        self.path = ""
        self.deadline: float | None = None
        self.isRefused = False
        self._cancelled: Callable[[], object] | None = None
        self._onClosed: Callable[[bool], object] | None = None
        # The status, while it waits for a message that a thread compresses.
        self._last: tuple[int, str, Metadata] | None = None
        self._initial: Metadata = ()

    # For the connection

    def headReceived(self, fields: ReceivedFields, isEnded: bool) -> None:
        """Accept the call, or refuse it."""
        self._head = head = readHead(fields)
        service = self._service
        if head.refusal is not None:
            self._refuseHead(head)
            return
        self.isOver = self._isGone = False
        self.path = head.path
        self.expected = head.expected
        if head.priority is not None:
            self.connection.prioritise(self, head.priority)
        self._receivedEncoding = head.encoding
        self._encoding = service.encodingFor(head.accepts)
        self._isAtEnd = isEnded
        timeout = head.timeout
        if timeout is not None:
            if timeout <= 0:
                self.finish(_LATE, "Deadline Exceeded")
                return
            self.deadline = time.time() + timeout
            self.expires = service.clock.seconds() + timeout
            self._deadlines = service.deadlines.add(self)
        service.accepted(self)

    def _refuseHead(self, head: RPCRequestHead) -> None:
        """Answer a request that is no call of gRPC, or asks for something unknown."""
        refusal = head.refusal
        assert refusal is not None
        if head.httpStatus != 200:
            fields = [(b":status", str(head.httpStatus).encode())]
            if head.httpStatus == 405:
                fields.append((b"allow", b"POST"))
            self.sendHead(encodePairs([*fields, (b"content-length", b"0")]), True)
            return
        self._sendStatus(refusal.status, refusal.message, ())

    def dataReceived(self, data: bytes, isEnded: bool) -> None:
        """Deliver the messages that are complete."""
        if self.isOver:
            return
        size = len(data) - PREFIX
        if (
            isEnded
            and size >= 0
            and self._decoder is None
            and self._got is not None
            and data[:PREFIX] == packPrefix(0, size)
            and size <= self._resources.limits.maxReceive
        ):
            # A unary call.
            self._isAtEnd = True
            self._resources.traffic.bytesIn += size
            got, self._got = self._got, None
            got(data[PREFIX:])
            return
        self._receive(data, isEnded)

    def refuseOutput(self) -> None:
        """End the call: its client does not take the responses, and all together are too many."""
        super().refuseOutput()
        self.isRefused = True
        self._lose()

    def trailersReceived(self, fields: ReceivedFields) -> None:
        """Handle the end of the messages; gRPC has no trailers of clients."""
        self.dataReceived(b"", True)

    def lost(self, reason: Exception) -> None:
        """End the call: the client has reset it, or disconnected."""
        self._lose()

    def expire(self) -> None:
        """End the call: its deadline has passed."""
        self._deadlines = None
        if not self.isOver:
            self._end(_LATE, "Deadline Exceeded")
        elif self._isUnsent:
            self.reset(ErrorCode.CANCEL)
            self._lose()

    def watchDeadline(self) -> None:
        """Wait for a deadline that is far away."""
        self._deadlines = None
        if not self.isOver or self._isUnsent:
            self._deadlines = self._resources.deadlines.add(self)

    def checkTimeouts(self, now: float) -> None:
        """End the call if its client takes no output, or hardly any."""
        if self.isLocalClosed:
            # The client has had a second to send the rest of a body of known length.
            self.reset(ErrorCode.NO_ERROR)
        elif not self.queued:
            self._progress = ()
        elif self.stalledSeconds(now) >= self.connection.limits.stallTimeout:
            if self.isOver:
                self.reset(ErrorCode.CANCEL)
                self._lose()
            else:
                self._end(_EXHAUSTED, "the client does not take the responses")

    @property
    def _isUnsent(self) -> bool:
        """Return whether the client has not taken all messages yet."""
        return self.queued > 0 or self._unsent is not None

    def cancel(self) -> None:
        """End the call: the server stops."""
        if not self.isOver:
            self._end(GRPC_STATUSES["UNAVAILABLE"], "the server stops")

    def _fail(self, error: GrpcError) -> None:
        """End the call because of its client's messages."""
        if not self.isOver:
            self.isRefused = True
            details = encodeDetails(error)
            trailers = () if details is None else ((DETAILS_KEY, details),)
            self._end(error.status, statusMessage(error.message), trailers)

    def _end(self, status: int, message: str, trailers: Metadata = ()) -> None:
        """End the call in the place of its handler."""
        if self._isBlocked:
            # The status would wait for the client's window, after a part of a message.
            self.reset(_RESET_CODES.get(status, ErrorCode.CANCEL))
        else:
            self._sendStatus(status, message, trailers)
        self._lose()

    def _lose(self) -> None:
        """Clean up after the end of a call that its handler has not ended, and notify it."""
        if self._isGone:
            return
        wasFinished = self.isOver
        self._isGone = self.isOver = True
        # Its handler may still ask, and a transport that is lost knows nothing.
        self._peer.authContext()
        self._leave()
        if wasFinished:
            self._cancelled = None
        else:
            # Before a producer that waits for capacity resumes: otherwise it would be cancelled
            # during its cleanup.
            self._notifyCancelled()
        got, self._got = self._got, None
        if got is not None:
            got(None)
        # A message that is followed by a mistake must not look like the only one.
        self._passEnd(not self.isRefused)
        self._resumeSender()
        self._notifyClosed(not wasFinished)

    def _leave(self) -> None:
        """Release what an open call holds."""
        # A client that does not take the response has until the deadline.
        if self._deadlines is not None and (
            self._isGone or not (self._unsent is not None or self._isBlocked)
        ):
            self._deadlines.pop(self, None)
            self._deadlines = None
        self._release()

    def _notifyCancelled(self) -> None:
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            cancelled()

    def _notifyClosed(self, isCancelled: bool) -> None:
        onClosed, self._onClosed = self._onClosed, None
        if onClosed is not None:
            onClosed(isCancelled)

    # For the server

    @property
    def metadata(self) -> Metadata:
        """The client's metadata."""
        return self._head.metadata

    def peer(self) -> str:
        """Return the client's address."""
        return self._peer.name

    def authContext(self) -> dict[str, list[bytes]]:
        """Return the properties of the TLS peer."""
        return self._peer.authContext()

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Register a function to be called if the call ends before it is finished."""
        if self._isGone and self._cancelled is None:
            # Its handler begins after the client has left, and does not wait yet.
            self._resources.clock.callLater(0, self._notifyCancelled)
        self._cancelled = cancelled

    def whenClosed(self, closed: Callable[[bool], object]) -> None:
        """Register a function to be called when the call is closed."""
        self._onClosed = closed
        if self._isGone:
            self._notifyClosed(True)

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Add initial metadata that is sent with the first operation."""
        self._initial = (*self._initial, *metadata)

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        if not (self._hasBegun or self.isOver):
            self.prepareMetadata(metadata)
            self._begin()

    def _begin(self) -> None:
        """Send the head of the response."""
        encoding = self._encoding
        block = _PLAIN_HEAD if encoding is None else _HEADS[encoding]
        if self._initial:
            block += encodePairs(writeMetadata(self._initial))
        self._hasBegun = True
        self.connection.sendBlock(self, block, False)

    def _refuseMessage(self, error: GrpcError) -> None:
        self._end(error.status, error.message)

    def _sendLast(self) -> bool:
        if self._last is None:
            return False
        self._sendStatus(*self._last)
        return True

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        if self.isOver:
            return
        size, service = len(message), self._service
        if (
            self._hasBegun
            or self._initial
            or trailers
            or self._encoding is not None
            or size > service.limits.maxSend
        ):
            self.send(message, compress)
            self.finish(0, "", trailers)
            return
        # The most common response: head, message and status in one go take 1 us of 10 less.
        self._hasBegun = self.isOver = True
        service.traffic.bytesOut += size
        self.sendWhole(_PLAIN_HEAD, packPrefix(0, size) + message, _OK)
        self._finished()

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent."""
        if self.isOver:
            return
        self.isOver = True
        if not status and not self._hasBegun:
            self._begin()
        if self._unsent is None:
            self._sendStatus(status, message, trailers)
        else:
            self._last = status, message, trailers
        self._finished()

    def _finished(self) -> None:
        """Clean up after the end of a call that its handler has ended."""
        self._cancelled = self._gotEnd = None
        self._leave()
        got, self._got = self._got, None
        if got is not None:
            # A reader outside the handler may still wait.
            got(None)
        self._resumeSender()
        self._notifyClosed(False)

    def _sendStatus(self, status: int, message: str, trailers: Metadata) -> None:
        """Send the trailers, alone if nothing was sent before."""
        if not (status or message or trailers):
            self.sendTrailers(_OK)
            return
        try:
            fields = writeMetadata(trailers)
        except (AttributeError, TypeError, ValueError):
            # Invalid trailers that bypassed setTrailers.
            _log.failure("{path} got no response", path=self.path)
            status, message, fields = _INTERNAL, UNKNOWN_MESSAGE, []
        pairs = [(b"grpc-status", b"%d" % status)]
        if message:
            pairs.append((b"grpc-message", writeMessage(message)))
        block = encodePairs(pairs + fields)
        if self._initial and not self._hasBegun:
            self._begin()
        if self._hasBegun:
            self.sendTrailers(block)
        else:
            self._hasBegun = True
            encodings = encodePairs(_ACCEPTS) if status == GRPC_STATUSES["UNIMPLEMENTED"] else b""
            self.sendHead(_ONLY_TRAILERS + encodings + block, True)
