"""
The client's end of a connection that has no socket.

Everything is done in the caller's own stack as far as nobody has to wait. What the server does
later reaches a waiting client in a turn of its own, as it would over a socket: it is not the
server's handler that goes on with the client's work.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.http.fetchchannel import LOCALHOST, FetchChannel, MemoryTransport
from storagegate.http.fetchsending import BodySending
from storagegate.http.fetchwire import RequestWire, ResponseHead, ResponseReader
from storagegate.net.interfaces import IChannelOwner

_log = Logger()

# What waits for a client that does not read before the server is asked to wait.
_UNREAD = 64 * 1024


class ResponseLost(ConnectionError):
    """The connection ended before its response was complete."""


class FetchConnection:
    """
    One request and its response.

    @ivar held: How many bytes of the body wait to be read.
    @ivar ended: Whether the response is complete; some of it may wait to be read.
    @ivar error: Why there will be no more of it, if it was cut short.
    @ivar onHead: Called with the head when it is there.
    """

    onHead: Callable[[ResponseHead], None] | None = None

    def __init__(self, owner: IChannelOwner, request: RequestWire, peer: str = LOCALHOST) -> None:
        self.held = 0
        self.ended = False
        self.error: BaseException | None = None
        self._clock = owner.reactor
        self._request = request
        self._reader = ResponseReader()
        self._chunks: deque[bytes] = deque()
        self._full = False
        self._closed = False
        self._lost = False
        # How many calls of ours into the server are under way; what it does outside of them has
        # to be followed up in a turn of its own.
        self._depth = 0
        self._turn: Any = None
        self._waiter: Deferred[None] | None = None
        self._sending: BodySending | None = None
        if request.source is not None:
            self._sending = BodySending(request, request.source, self._send, self._sendingFailed)
        self._channel = FetchChannel(owner, self)
        self._transport = MemoryTransport(self, peer, request.port, request.secure)

    @property
    def head(self) -> ResponseHead | None:
        """Give the head of the response, if it is there."""
        return self._reader.head

    # For whoever asks

    def start(self) -> None:
        """Send the request."""
        self._depth += 1
        self._channel.makeConnection(self._transport)
        for piece in self._request.pieces:
            self._send(piece)
        if self._sending is not None:
            self._sending.start()
        self._leave()

    async def waitForHead(self) -> ResponseHead:
        """
        Give the head of the response. Cancelling this is a client that goes away.

        @raise ResponseLost: If there will be none.
        @raise Exception: What the body of the request raised.
        """
        try:
            while self.head is None:
                await self._wait()
        except CancelledError:
            self.disconnect()
            raise
        return self.head

    async def readPiece(self) -> bytes:
        """
        Give what is here of the body, or what comes next.

        @return: C{b""} at the end.
        @raise ResponseLost: If the response was cut short.
        """
        while not self._chunks and not self.ended:
            await self._wait()
        return self.takeReady()

    def takeReady(self) -> bytes:
        """Give what is here of the body, and let the server go on if it waits."""
        content = b"".join(self._chunks)
        self._chunks.clear()
        self.held = 0
        if self._full:
            self._full = False
            producer = self._transport.producer
            if producer is not None:
                self._depth += 1
                producer.resumeProducing()
                self._leave()
        return content

    def disconnect(self) -> None:
        """Go away."""
        if not self.ended and self.error is None:
            self.error = ResponseLost("the client went away")
        self._chunks.clear()
        self.held = 0
        self._lose(ConnectionDone())

    def disconnectSoon(self) -> None:
        """Go away in a turn of its own, from whatever thread the garbage is collected in."""
        callFromThread = getattr(self._clock, "callFromThread", None)
        if callFromThread is not None:
            callFromThread(self.disconnect)
        else:
            self._clock.callLater(0, self.disconnect)

    # For the server's end

    def receive(self, data: bytes) -> None:
        """Take bytes of the response."""
        if self._closed:
            return
        headless = self.head is None
        body = self._reader.feed(data)
        if headless and self.head is not None and self.onHead is not None:
            self.onHead(self.head)
        if body:
            self._chunks.append(body)
            self.held += len(body)
            if self.held >= _UNREAD and not self._full and self._transport.producer is not None:
                self._full = True
                self._transport.producer.pauseProducing()
        if self._reader.complete:
            self.ended = True
        self._followUp()

    def responseDone(self) -> None:
        """Take note that the response is complete."""
        self.ended = self._closed = True
        self._followUp()

    def serverClosed(self) -> None:
        """Take note that the server has closed."""
        if not self.ended and self.error is None:
            self.error = ResponseLost("the server dropped the connection in mid-response")
        self._closed = True
        self._followUp()

    def pieceWanted(self) -> None:
        """Take note that the handler waits for a piece of the request's body."""
        if self._sending is not None:
            self._sending.want()

    # Between the two

    def _send(self, data: bytes) -> None:
        if data and not self._closed:
            self._depth += 1
            self._channel.dataReceived(data)
            self._leave()

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._settle()

    def _followUp(self) -> None:
        if not self._depth and self._turn is None:
            self._turn = self._clock.callLater(0, self._settle)

    def _settle(self) -> None:
        """Close what is over, and wake whoever waits."""
        turn, self._turn = self._turn, None
        if turn is not None and turn.active():
            turn.cancel()
        if self._closed:
            self._lose(ConnectionDone() if self.error is None else ConnectionAborted())
        waiter = self._waiter
        if waiter is not None and (self.head or self.error):
            self._waiter = None
            waiter.callback(None)

    def _lose(self, reason: Exception) -> None:
        self._closed = True
        if self._lost:
            return
        self._lost = True
        self._depth += 1
        self._channel.connectionLost(Failure(reason))
        if self._sending is not None:
            self._sending.stop()
        self._leave()

    def _wait(self) -> Deferred[None]:
        if self.error is not None:
            raise self.error
        if self._waiter is not None:
            raise RuntimeError("a response has one reader")
        self._waiter = Deferred(self._forgetWaiter)
        return self._waiter

    def _forgetWaiter(self, waiter: Deferred[None]) -> None:
        self._waiter = None

    def _sendingFailed(self, reason: Failure) -> None:
        if self._lost and reason.check(CancelledError):
            return
        if self.ended or self.error is not None:
            _log.failure("the body of a request failed when its response had ended", reason)
            return
        self.error = reason.value
        self.disconnect()
