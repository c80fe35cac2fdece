"""A call: a stream of HTTP/2 with the messages of gRPC."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.codecs import INLINE_SIZE
from storagegate.core.errors import GRPC_STATUSES, UNKNOWN_MESSAGE, GrpcError, asGrpcError
from storagegate.core.heldbytes import TooMuchHeld
from storagegate.net.http2.hpack import ReceivedFields, encodePairs
from storagegate.net.http2.interfaces import ErrorCode
from storagegate.net.http2.stream import Stream
from storagegate.rpc.engine.native.deadlines import DeadlineSet
from storagegate.rpc.engine.native.head import RPCRequestHead, readHead
from storagegate.rpc.engine.native.messages import (
    ENCODINGS,
    PREFIX,
    CompressedMessage,
    MessageDecoder,
    deflateMessage,
    inflateMessage,
    packPrefix,
)
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

_COUNTED_BYTES = 32 * 1024
"""From this size on, what a call holds is counted in the process's budget."""

_MOST_MESSAGES = 64
"""
Messages that wait before further bytes are kept as they arrived: an object for each message of a
few bytes takes eight times as much.
"""

_SPLIT_BYTES = 4096
"""How many of these bytes are split into messages at a time."""

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


def _fault(failure: Failure) -> GrpcError:
    """Log a fault of ours, and return the error of its call."""
    _log.failure("a message could not be compressed or inflated", failure)
    return GrpcError(_INTERNAL, UNKNOWN_MESSAGE)


@implementer(IServerCall)
class NativeCall(Stream):
    """A call of a server, see L{IServerCall}."""

    __slots__ = (
        "_cancelled",
        "_deadlines",
        "_decoder",
        "_drained",
        "_encoding",
        "_got",
        "_gotEnd",
        "_hasBegun",
        "_head",
        "_inbox",
        "_inboxBytes",
        "_initial",
        "_isAtEnd",
        "_isCounted",
        "_isEnding",
        "_isGone",
        "_isInflating",
        "_last",
        "_mostQueued",
        "_onClosed",
        "_peer",
        "_readAhead",
        "_service",
        "_ungranted",
        "_unsent",
        "_unsplit",
        "deadline",
        "expires",
        "isOver",
        "isRefused",
        "path",
    )

    countsBytes = True

    _head: RPCRequestHead

    def __init__(
        self, connection: "HTTP2Core", number: int, service: "CallService", peer: "CallPeer"
    ) -> None:
        super().__init__(connection, number)
        self._service = service
        self._peer = peer
        self.path = ""
        self.deadline: float | None = None
        self.isRefused = False
        # Until the call is accepted.
        self.isOver = self._isGone = True
        self._hasBegun = self._isAtEnd = self._isCounted = self._isInflating = False
        self._isEnding = False
        self._got: Callable[[bytes | None], object] | None = None
        self._gotEnd: Callable[[bool], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        self._onClosed: Callable[[bool], object] | None = None
        self._drained: Deferred[None] | None = None
        self._deadlines: DeadlineSet | None = None
        # Created when a stream needs them.
        self._inbox: deque[bytes] | None = None
        self._inboxBytes = 0
        # The bytes that follow the messages of the inbox; and whether the end follows them.
        self._unsplit: bytearray | None = None
        self._decoder: MessageDecoder | None = None
        self._encoding: str | None = None
        # Messages, and then the status, that wait for one that a thread compresses.
        self._unsent: deque[tuple[bytes, bool]] | None = None
        self._last: tuple[int, str, Metadata] | None = None
        self._initial: Metadata = ()
        self._readAhead = 0
        self._mostQueued = connection.limits.queued
        # Received bytes that the peer may not send again yet.
        self._ungranted = 0

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
        decoder = self._decoder
        if decoder is None:
            size = len(data) - PREFIX
            if (
                isEnded
                and size >= 0
                and self._got is not None
                and data[:PREFIX] == packPrefix(0, size)
                and size <= self._service.limits.maxReceive
            ):
                # A unary call.
                self._isAtEnd = True
                self._service.traffic.bytesIn += size
                got, self._got = self._got, None
                got(data[PREFIX:])
                return
            isCompressed = self._head.encoding is not None
            decoder = self._decoder = MessageDecoder(self._service.limits.maxReceive, isCompressed)
        self._ungranted += len(data)
        if self._unsplit is not None or len(self._inbox or ()) >= _MOST_MESSAGES:
            if self._unsplit is None:
                self._unsplit = bytearray()
            self._unsplit += data
            self._isEnding = isEnded
            return
        hasMessages = self._split(decoder, data, isEnded)
        if hasMessages and self._gotEnd is not None:
            self._passEnd(False)
        if hasMessages or isEnded:
            self._deliver()
        if not isEnded and decoder.held:
            self._grant()

    def _split(self, decoder: MessageDecoder, data: bytes, isEnded: bool) -> bool:
        """
        Split bytes into messages for the inbox, which may end the call.

        @param isEnded: Whether nothing follows them.
        @return: Whether a message is complete.
        """
        try:
            messages = decoder.feed(data)
            if isEnded:
                self._isAtEnd = True
                if decoder.held:
                    raise GrpcError(_INTERNAL, "the requests end within a message")
        except GrpcError as error:
            self._fail(error)
            return False
        if messages:
            if self._inbox is None:
                self._inbox = deque()
            self._inbox.extend(messages)
            size = sum(map(len, messages))
            self._inboxBytes += size
            if self._head.encoding is not None:
                # Compressed ones count by their own length, once it is known.
                size = sum(len(each) for each in messages if type(each) is bytes)
            self._service.traffic.bytesIn += size
        if decoder.held >= _COUNTED_BYTES or self._isCounted:
            self._count()
        return bool(messages)

    def _refill(self, unsplit: bytearray) -> None:
        """Split more of the bytes that wait."""
        decoder = self._decoder
        assert decoder is not None
        while self._inbox is not None and len(self._inbox) < _MOST_MESSAGES:
            data = bytes(unsplit[:_SPLIT_BYTES])
            del unsplit[:_SPLIT_BYTES]
            if not unsplit:
                self._unsplit = None
                self._split(decoder, data, self._isEnding)
                return
            self._split(decoder, data, False)

    def _deliver(self) -> None:
        """Pass messages, or the end, to the reader while it asks for them."""
        got, inbox = self._got, self._inbox
        while got is not None and inbox:
            message = self.takeMessage()
            if message is None:
                # It is inflated in a thread, or has ended the call.
                return
            self._got = None
            got(message)
            got, inbox = self._got, self._inbox
        if self._isAtEnd and not (inbox or self._isGone or self._isInflating):
            if got is not None:
                self._got = None
                got(None)
            elif self._gotEnd is not None:
                self._passEnd(True)

    def _passEnd(self, isEnd: bool) -> None:
        done, self._gotEnd = self._gotEnd, None
        if done is not None:
            done(isEnd)

    def _opened(self, message: bytes) -> bytes | None:
        """
        Return a message that is about to be read, inflated.

        @return: C{None} if it cannot be inflated, and the call has ended; or if it is long, and is
            inflated in a thread.
        """
        if self._isCounted:
            self._count()
        if type(message) is not CompressedMessage:
            return message
        encoding, service = self._head.encoding, self._service
        assert encoding is not None
        most = service.limits.maxReceive
        try:
            message = inflateMessage(encoding, message, min(most, INLINE_SIZE))
        except GrpcError as error:
            if error.status == _EXHAUSTED and most > INLINE_SIZE and service.run is not None:
                self._isInflating = True
                inflating = service.run(inflateMessage, encoding, message, most)
                inflating.addCallbacks(self._inflated, self._inflateFailed)
            else:
                self._fail(error)
            return None
        service.traffic.bytesIn += len(message)
        return message

    def _inflated(self, message: bytes) -> None:
        """Deliver a message that was inflated in a thread."""
        self._isInflating = False
        got, self._got = self._got, None
        self._service.traffic.bytesIn += len(message)
        if got is not None:
            got(message)
        if not self._isGone:
            self._deliver()

    def _inflateFailed(self, failure: Failure) -> None:
        self._isInflating = False
        self._fail(failure.value if isinstance(failure.value, GrpcError) else _fault(failure))

    def _grant(self) -> None:
        """Let the client send as much again, if few enough messages wait."""
        count = self._ungranted
        if (
            count
            and len(self._inbox or ()) <= self._readAhead
            and (self._got is not None or self._readAhead)
        ):
            self._ungranted = 0
            self.take(count)

    def _count(self) -> None:
        """Count what is held in the budget of the process, which may end the call."""
        size = 0 if self._decoder is None else self._decoder.held
        if not self._isGone:
            size += self._inboxBytes
        isLarge = size >= _COUNTED_BYTES and not self._isGone
        self._isCounted = isLarge
        self._service.budget.update(self, size if isLarge else 0)

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """End the call: all requests together hold too much."""
        self._fail(asGrpcError(error))

    def refuseOutput(self) -> None:
        """End the call: its client does not take the responses, and all together are too many."""
        super().refuseOutput()
        self.isRefused = True
        self._lose()

    def trailersReceived(self, fields: ReceivedFields) -> None:
        """Handle the end of the messages; gRPC has no trailers of clients."""
        self.dataReceived(b"", True)

    def setPaused(self, isPaused: bool) -> None:
        """Let the sender continue."""
        if not (isPaused or self._unsent is not None):
            self._resumeSender()

    def _resumeSender(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)

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
            self._deadlines = self._service.deadlines.add(self)

    def checkTimeouts(self, now: float) -> None:
        """End the call if its client takes no output, or hardly any."""
        if not self.queued:
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

    @property
    def _isBlocked(self) -> bool:
        """Return whether the messages have to wait for the client's window."""
        window: int = min(self.sendWindow, self.connection.sendWindow)
        return self.queued > window

    def _lose(self) -> None:
        """Clean up after the end of a call that its handler has not ended, and notify it."""
        if self._isGone:
            return
        wasFinished = self.isOver
        self._isGone = self.isOver = True
        # Its handler may still ask, and a transport that is lost knows nothing.
        self._peer.authContext()
        self._leave()
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None and not wasFinished:
            # Before a producer that waits for capacity resumes: otherwise it would be cancelled
            # during its cleanup.
            cancelled()
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
        self._inbox = self._unsplit = None
        self._inboxBytes = 0
        if self._decoder is not None:
            self._decoder.clear()
        if self._isCounted:
            self._isCounted = False
            self._service.budget.update(self, 0)

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

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Request the client's next message."""
        self._readAhead = ahead
        message = self.takeMessage()
        if message is not None:
            got(message)
        elif self._isGone:
            return
        elif self._isInflating:
            self._got = got
        elif self._isAtEnd:
            got(None)
        else:
            self._got = got
            if self._ungranted:
                self._grant()

    def takeMessage(self) -> bytes | None:
        """Return a message that has arrived."""
        inbox = self._inbox
        if not inbox or self._isInflating:
            return None
        if self._unsplit is not None and len(inbox) < _MOST_MESSAGES:
            self._refill(self._unsplit)
            if self._inbox is None:
                # A mistake has ended the call.
                return None
        message = inbox.popleft()
        self._inboxBytes -= len(message)
        if self._ungranted and len(inbox) <= self._readAhead:
            self._grant()
        if type(message) is bytes and not self._isCounted:
            return message
        return self._opened(message)

    def readEnd(self, done: Callable[[bool], object]) -> None:
        """Wait for the end of the client's messages."""
        if self._inbox:
            done(False)
        elif self._isAtEnd or self._isGone:
            done(True)
        else:
            self._gotEnd = done

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Register a function to be called if the call ends before it is finished."""
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

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        if self.isOver:
            return False
        if not self._hasBegun:
            self._begin()
        size, service = len(message), self._service
        if size > service.limits.maxSend:
            self._refuseResponse(size)
            return False
        service.traffic.bytesOut += size
        # Behind one message, however long, another may wait: its sender would else be paused by a
        # message that is already on its way.
        queued = self.queued
        if self._encoding is not None:
            return self._sendEncoded(message, compress)
        frame = packPrefix(0, size) + message
        if not queued:
            self.sendData(frame)
            return True
        # As sendData, for a stream whose output is queued already.
        self.enqueue(frame)
        if self.queued > self._mostQueued:
            self.isPaused = True
        return not self.isPaused

    def _sendEncoded(self, message: bytes, compress: bool) -> bool:
        """Send a message of a call with compression; a thread compresses a long one."""
        if self._unsent is not None:
            self._unsent.append((message, compress))
            return False
        encoding, service = self._encoding, self._service
        assert encoding is not None
        if compress and len(message) > INLINE_SIZE and service.run is not None:
            self._unsent = deque()
            packing = service.run(deflateMessage, encoding, message, service.limits.level)
            packing.addCallbacks(self._packed, self._packFailed)
            return False
        if compress:
            message = deflateMessage(encoding, message, service.limits.level)
        self.sendData(packPrefix(compress, len(message)) + message)
        return not self.isPaused

    def _packed(self, message: bytes) -> None:
        """Send a message that was compressed in a thread, and what waits behind it."""
        unsent, self._unsent = self._unsent, None
        if self._isGone or unsent is None:
            return
        self.sendData(packPrefix(1, len(message)) + message)
        while unsent and self._unsent is None:
            self._sendEncoded(*unsent.popleft())
        if self._unsent is not None:
            self._unsent.extend(unsent)
        elif self._last is not None:
            self._sendStatus(*self._last)
        elif not self.isPaused:
            self._resumeSender()

    def _packFailed(self, failure: Failure) -> None:
        self._unsent = None
        if not self._isGone:
            self.isOver = False
            self._fail(_fault(failure))

    def _refuseResponse(self, size: int) -> None:
        limit = self._service.limits.maxSend
        self._end(_EXHAUSTED, f"Sent message larger than max ({size} vs. {limit})")

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent."""
        if self.isOver or not (self.isPaused or self._unsent is not None):
            return succeed(None)
        self._drained = Deferred(self._stopWaiting)
        return self._drained

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._drained = None

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
