"""
Many calls on one connection, for TCP and WebSocket.

L{CallMultiplexer} is the connection's side of its calls; L{ReconnectingTransport} makes the
connection with the first call, and again with the first call after its loss.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from storagegate.core.errors import ServiceError
from storagegate.core.streams import BoundedStream, SharedFuture
from storagegate.core.task import IdleWaiters
from storagegate.gateway.client.formats import MessageFormat, Reply
from storagegate.gateway.client.session import LAST, ClientSession, Message
from storagegate.gateway.client.transports import (
    BUFFERED_BYTES,
    CallHead,
    WireCall,
    connectionLost,
    unreachable,
)
from storagegate.gateway.messages.frames import ERROR, GOING_AWAY, PING, PONG
from storagegate.gateway.messages.interfaces import MessageId
from storagegate.upstream.retry import AttemptFailed


class Carrier(Protocol):
    """A connection that carries messages."""

    def write(self, data: bytes) -> None:
        """Send an encoded message."""

    def setReading(self, wanted: bool) -> None:
        """Resume or pause reading."""

    def leave(self) -> None:
        """Close the connection after all data is sent."""


@implementer(IPushProducer)
class MultiplexedCall:
    """
    A call on a connection with others.

    @ivar replies: The replies; the connection is not read while they are full.
    """

    def __init__(self, connection: "CallMultiplexer", content: dict[str, Any]) -> None:
        self._connection = connection
        self.replies: BoundedStream[Reply] = BoundedStream(
            BUFFERED_BYTES, self, sizeOf=lambda reply: reply.size
        )
        self._id, message = connection.session.begin(content, self._receive)
        try:
            connection.write(message)
        except ValueError:
            connection.session.cancel(self._id)
            raise

    def _receive(self, reply: Reply) -> None:
        if isinstance(reply.value, AttemptFailed):
            self.replies.end(reply.value)
        else:
            self.replies.put(reply, last=reply.type in LAST)
        if reply.type in LAST:
            self.resumeProducing()

    async def send(self, data: Any) -> None:
        """Send an item."""
        await self._connection.drained()
        self._connection.write(self._connection.session.item(self._id, data))

    def sendEnd(self) -> None:
        """Send the end of the stream of requests."""
        self._connection.write(self._connection.session.itemsEnd(self._id))

    def close(self) -> None:
        """Cancel the call if it has not ended."""
        self._connection.write(self._connection.session.cancel(self._id))
        self.replies.end()
        self.resumeProducing()
        self._connection.checkUnused()

    def pauseProducing(self) -> None:
        """Pause reading from the connection."""
        self._connection.setFull(self._id, True)

    def resumeProducing(self) -> None:
        """Resume reading, unless another call is full."""
        self._connection.setFull(self._id, False)

    stopProducing = resumeProducing


@implementer(IPushProducer)
class CallMultiplexer:
    """
    The calls of one connection.

    @ivar session: Assigns replies to calls.
    @ivar isOpen: Whether further calls may begin.
    """

    def __init__(self, carrier: Carrier, format: MessageFormat) -> None:
        self.session = ClientSession()
        self.isOpen = True
        self._carrier = carrier
        self._format = format
        self._full: set[MessageId] = set()
        self._isPaused = self._isLost = False
        self._waiting = IdleWaiters()
        # An error without an id, which explains the loss of the connection that follows.
        self._error: ServiceError | None = None

    def begin(self, head: CallHead) -> MultiplexedCall:
        """
        Begin a call.

        @raise ServiceError: C{INVALID_ARGUMENT}: messages cannot carry the call.
        """
        return MultiplexedCall(self, head.message())

    # Output

    def write(self, message: Message | None) -> None:
        """Send a message."""
        if message is not None and not self._isLost:
            self._carrier.write(self._format.encode(message.type, message.content))

    def drained(self) -> Deferred[None]:
        """Wait until the connection accepts more."""
        return self._waiting.wait(self._isPaused)

    def pauseProducing(self) -> None:
        """Stop sending items: the transport is full."""
        self._isPaused = True

    def resumeProducing(self) -> None:
        """Resume sending."""
        self._isPaused = False
        self._waiting.notify()

    stopProducing = resumeProducing

    # Input

    def receive(self, reply: Reply) -> None:
        """Handle a message of the server."""
        if reply.type == PING:
            self._carrier.write(self._format.encodePong(reply))
        elif reply.type == GOING_AWAY:
            self.isOpen = False
        elif reply.type == PONG or self.session.receive(reply):
            pass
        elif reply.id is None:
            if reply.type == ERROR:
                self._error = reply.value
            self.session.receiveOnly(reply)
        self.checkUnused()

    def setFull(self, id: MessageId, isFull: bool) -> None:
        """Pause or resume reading for a call."""
        before = bool(self._full)
        (self._full.add if isFull else self._full.discard)(id)
        if before != bool(self._full) and not self._isLost:
            self._carrier.setReading(not self._full)

    def checkUnused(self) -> None:
        """Close the connection if no further calls may begin and none is left."""
        if not self.isOpen and not self.session.active and not self._isLost:
            self._carrier.leave()

    def fail(self, error: ServiceError) -> None:
        """End all calls with an error, and close the connection: its input is unusable."""
        self.isOpen = False
        self._error = error
        self._end(lambda: error)
        self._carrier.leave()

    def lost(self, reason: BaseException | None) -> None:
        """End all calls: the connection is lost."""
        self._isLost, self.isOpen = True, False
        error = self._error
        self._end(lambda: connectionLost(reason) if error is None else AttemptFailed(error))
        self.resumeProducing()

    def leave(self) -> None:
        """End all calls, and close the connection."""
        self.isOpen = False
        self._end(connectionLost)
        self._carrier.leave()

    def _end(self, makeError: Callable[[], Exception]) -> None:
        self.session.lost(makeError)


class ReconnectingTransport:
    """
    Calls on one connection at a time, which is made when a call needs it.

    A connection whose server accepts no further calls is replaced, and stays open until its calls
    have ended.
    """

    def __init__(self, connect: Callable[[], Awaitable[CallMultiplexer]]) -> None:
        """@param connect: Makes a connection or fails, within a limited time."""
        self._connect = connect
        self._current: CallMultiplexer | None = None
        self._connecting: SharedFuture[CallMultiplexer] | None = None
        self._running: Deferred[None] | None = None

    async def begin(self, head: CallHead) -> WireCall:
        """Begin a call, on the current connection or a new one."""
        head.message()
        current = self._current
        if current is None or not current.isOpen:
            current = await self._acquire()
        return current.begin(head)

    def _acquire(self) -> Deferred[CallMultiplexer]:
        connecting = self._connecting
        if connecting is None:
            connecting = self._connecting = SharedFuture()
            self._running = Deferred.fromCoroutine(self._run(connecting))
        return connecting.wait()

    async def _run(self, future: SharedFuture[CallMultiplexer]) -> None:
        """Make a connection, for all calls that wait for one."""
        try:
            made = self._current = await self._connect()
        except (ServiceError, AttemptFailed) as error:
            failed: Exception | None = error
        except CancelledError:
            failed = connectionLost(isUnsent=True)
        except Exception as error:
            failed = unreachable(error)
        else:
            failed = None
        self._connecting = None
        if failed is None:
            future.set(made)
        else:
            future.fail(failed)

    def close(self) -> Deferred[None]:
        """Close the connection; calls in flight fail."""
        if self._running is not None:
            self._running.cancel()
        if self._current is not None:
            self._current.leave()
        return succeed(None)
