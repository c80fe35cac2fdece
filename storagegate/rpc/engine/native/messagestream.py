"""A stream of HTTP/2 with the messages of gRPC in both directions, for servers and clients."""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.codecs import INLINE_SIZE
from storagegate.core.errors import GRPC_STATUSES, UNKNOWN_MESSAGE, GrpcError, asGrpcError
from storagegate.core.heldbytes import TooMuchHeld
from storagegate.net.http2.stream import Stream
from storagegate.rpc.engine.native.deadlines import DeadlineSet
from storagegate.rpc.engine.native.messages import (
    PREFIX,
    CompressedMessage,
    MessageDecoder,
    deflateMessage,
    inflateMessage,
    packPrefix,
    tooLongToSend,
)
from storagegate.rpc.engine.native.resources import RPCResources
from storagegate.rpc.interfaces import COUNTED_BYTES

_INTERNAL = GRPC_STATUSES["INTERNAL"]
_EXHAUSTED = GRPC_STATUSES["RESOURCE_EXHAUSTED"]

_MOST_MESSAGES = 64
"""
Messages that wait before further bytes are kept as they arrived: an object for each message of a
few bytes takes eight times as much.
"""

_SPLIT_BYTES = 4096
"""How many of these bytes are split into messages at a time."""

_MOST_SPLIT = 1024
"""Messages of one frame that are kept as messages: more than a part of C{_SPLIT_BYTES} has."""

_log = Logger()


def _fault(failure: Failure) -> GrpcError:
    """Log a fault of ours, and return the error of its call."""
    _log.failure("a message could not be compressed or inflated", failure)
    return GrpcError(_INTERNAL, UNKNOWN_MESSAGE)


class MessageStream(Stream):
    """
    The messages of one call, received and sent.

    Subclasses implement the head, the end and the failure of a call.

    @ivar direction: The plural of the messages that are received, for errors.
    @ivar isOver: Whether no more messages are sent.
    @ivar expires: The deadline, in seconds of the clock.
    """

    __slots__ = (
        "_deadlines",
        "_decoder",
        "_drained",
        "_encoding",
        "_got",
        "_gotEnd",
        "_hasBegun",
        "_inbox",
        "_inboxBytes",
        "_isAtEnd",
        "_isCounted",
        "_isEnding",
        "_isGone",
        "_isInflating",
        "_mostQueued",
        "_readAhead",
        "_receivedEncoding",
        "_resources",
        "_ungranted",
        "_unsent",
        "_unsplit",
        "expires",
        "isOver",
    )

    direction = ""

    _resources: RPCResources

    def initialise(self, resources: Any, queued: int) -> None:
        """
        Set the first state of the messages.

        @param resources: L{RPCResources}.
        @param queued: Bytes queued on a stream, after which its writer is paused.
        """
        self._resources = resources
        # Until the call is accepted, or begun.
        self.isOver = self._isGone = True
        self._hasBegun = self._isAtEnd = self._isCounted = False
        self._isInflating = self._isEnding = False
        self._got: Callable[[bytes | None], object] | None = None
        self._gotEnd: Callable[[bool], object] | None = None
        self._drained: Deferred[None] | None = None
        self._deadlines: DeadlineSet | None = None
        # Created when a stream needs them.
        self._inbox: deque[bytes] | None = None
        self._inboxBytes = 0
        # The bytes that follow the messages of the inbox; and whether the end follows them.
        self._unsplit: bytearray | None = None
        self._decoder: MessageDecoder | None = None
        # The encodings of the messages that are sent, and of those that are received.
        self._encoding: str | None = None
        self._receivedEncoding: str | None = None
        # Messages, and then the end, that wait for one that a thread compresses.
        self._unsent: deque[tuple[bytes, bool]] | None = None
        self._readAhead = 0
        self._mostQueued = queued
        # Received bytes that the peer may not send again yet.
        self._ungranted = 0

    # For subclasses to implement

    def _fail(self, error: GrpcError) -> None:
        """End the call because of a message of the peer."""
        raise NotImplementedError

    def _refuseMessage(self, error: GrpcError) -> None:
        """End the call because a message is too long to be sent."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Send the head, before the first message."""
        raise NotImplementedError

    def _readGone(self, got: Callable[[bytes | None], object]) -> None:
        """Answer a read after the end of the call; a server, whose client has left, does not."""

    def _sendLast(self) -> bool:
        """Send the end, if it waited for a message that a thread has compressed."""
        raise NotImplementedError

    # Received messages

    def _receive(self, data: bytes, isEnded: bool) -> None:
        """Deliver the messages that are complete."""
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = MessageDecoder(
                self._resources.limits.maxReceive, self._receivedEncoding is not None
            )
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
            if len(messages) > _MOST_SPLIT:
                rest = decoder.held + sum([len(each) + PREFIX for each in messages[_MOST_SPLIT:]])
                del messages[_MOST_SPLIT:]
                decoder.clear()
                self._unsplit, self._isEnding = bytearray(data[-rest:]), isEnded
            elif isEnded:
                self._isAtEnd = True
                if decoder.held:
                    raise GrpcError(_INTERNAL, f"the {self.direction} end within a message")
        except GrpcError as error:
            self._fail(error)
            return False
        if messages:
            if self._inbox is None:
                self._inbox = deque()
            self._inbox.extend(messages)
            size = sum(map(len, messages))
            self._inboxBytes += size
            if self._receivedEncoding is not None:
                # Compressed ones count by their own length, once it is known.
                size = sum(len(each) for each in messages if type(each) is bytes)
            self._resources.traffic.bytesIn += size
        if self._isCounted or decoder.held + self._inboxBytes >= COUNTED_BYTES:
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
        encoding, resources = self._receivedEncoding, self._resources
        assert encoding is not None
        most = resources.limits.maxReceive
        try:
            message = inflateMessage(encoding, message, min(most, INLINE_SIZE))
        except GrpcError as error:
            if error.status == _EXHAUSTED and most > INLINE_SIZE and resources.run is not None:
                self._isInflating = True
                inflating = resources.run(inflateMessage, encoding, message, most)
                inflating.addCallbacks(self._inflated, self._inflateFailed)
            else:
                self._fail(error)
            return None
        resources.traffic.bytesIn += len(message)
        return message

    def _inflated(self, message: bytes) -> None:
        """Deliver a message that was inflated in a thread."""
        self._isInflating = False
        got, self._got = self._got, None
        self._resources.traffic.bytesIn += len(message)
        if got is not None:
            got(message)
        if not self._isGone:
            self._deliver()

    def _inflateFailed(self, failure: Failure) -> None:
        self._isInflating = False
        self._fail(failure.value if isinstance(failure.value, GrpcError) else _fault(failure))

    def _grant(self) -> None:
        """Let the peer send as much again, if few enough messages wait."""
        count = self._ungranted
        if (
            count
            and len(self._inbox or ()) <= self._readAhead
            and (self._got is not None or self._readAhead)
        ):
            self._ungranted = 0
            self.take(count)

    def _count(self) -> None:
        """Count the held bytes in the budget of the process, which may end the call."""
        size = 0 if self._decoder is None else self._decoder.held
        if not self._isGone:
            size += self._inboxBytes
        isLarge = size >= COUNTED_BYTES and not self._isGone
        self._isCounted = isLarge
        self._resources.budget.update(self, size if isLarge else 0)

    def _release(self) -> None:
        """Drop the messages that were received."""
        self._inbox = self._unsplit = None
        self._inboxBytes = 0
        if self._decoder is not None:
            self._decoder.clear()
        if self._isCounted:
            self._isCounted = False
            self._resources.budget.update(self, 0)

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """End the call: all incomplete messages together hold too much."""
        self._fail(asGrpcError(error))

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Request the next message."""
        self._readAhead = ahead
        message = self.takeMessage()
        if message is not None:
            got(message)
        elif self._isGone:
            self._readGone(got)
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
        """Wait for the end of the messages."""
        if self._inbox:
            done(False)
        elif self._isAtEnd or self._isGone:
            done(True)
        else:
            self._gotEnd = done

    # Sent messages

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        if self.isOver:
            return False
        if not self._hasBegun:
            self._begin()
        size = len(message)
        if size > self._resources.limits.maxSend:
            self._refuseMessage(tooLongToSend(size, self._resources.limits.maxSend))
            return False
        self._resources.traffic.bytesOut += size
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
        encoding, resources = self._encoding, self._resources
        assert encoding is not None
        if compress and len(message) > INLINE_SIZE and resources.run is not None:
            self._unsent = deque()
            packing = resources.run(deflateMessage, encoding, message, resources.limits.level)
            packing.addCallbacks(self._packed, self._packFailed)
            return False
        if compress:
            message = deflateMessage(encoding, message, resources.limits.level)
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
        elif not (self._sendLast() or self.isPaused):
            self._resumeSender()

    def _packFailed(self, failure: Failure) -> None:
        self._unsent = None
        if not self._isGone:
            self.isOver = False
            self._fail(_fault(failure))

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent."""
        if self.isOver or not (self.isPaused or self._unsent is not None):
            return succeed(None)
        self._drained = Deferred(self._stopWaiting)
        return self._drained

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._drained = None

    def setPaused(self, isPaused: bool) -> None:
        """Let the sender continue."""
        if not (isPaused or self._unsent is not None):
            self._resumeSender()

    def _resumeSender(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)

    @property
    def _isBlocked(self) -> bool:
        """Return whether the messages have to wait for the peer's window."""
        # A setting of the peer can make a window negative.
        window: int = max(0, min(self.sendWindow, self.connection.sendWindow))
        return self.queued > window
