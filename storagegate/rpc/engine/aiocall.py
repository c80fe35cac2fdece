"""
One call of a server on C{grpc.aio}.

It is an object of the reactor with a coroutine in the asyncio loop, which sends, and a task, which
fetches as many messages as the reactor has asked for.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote

import grpc
import grpc.aio
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.rpc.engine.aioloop import LoopBridge
from storagegate.rpc.interfaces import IServerCall, MessageByteCounter, Metadata

_log = Logger()

_STATUSES = {code.value[0]: code for code in grpc.StatusCode}

_OUTGOING_MESSAGES = 16
_OUTGOING_BYTES = 64 * 1024
"""What a call may have waiting for the wire before its producer stops, as in the native engine."""

_CANCEL_ITERATIONS = 5

_CANCEL_SECONDS = 10.0
"""For so long a call that can't be sent to waits for C{grpc.aio} to cancel it."""


class Engine(Protocol):
    """
    What a call needs of its engine.

    @ivar traffic: Counts the bytes of messages.
    @ivar bridge: Leads to the loop.
    """

    traffic: MessageByteCounter
    bridge: LoopBridge

    def operate(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, when the server has settled."""
        ...

    def forget(self, call: "AioServerCall") -> None:
        """Note that a call has ended. In the reactor thread."""
        ...


@implementer(IServerCall)
class AioServerCall:
    """One call, see L{IServerCall}. Made in the loop, used in the reactor thread."""

    def __init__(self, engine: Engine, path: str, context: Any) -> None:
        self.path = path
        self.metadata: Metadata = tuple(context.invocation_metadata() or ())
        remaining = context.time_remaining()
        self.deadline: float | None = None if remaining is None else time.time() + remaining
        self.isOver = self.isRefused = False
        self._peer = unquote(context.peer())
        self._authContext = {key: list(each) for key, each in context.auth_context().items()}
        self._engine = engine
        self._context = context
        # In the loop: what is to be sent, and how many messages are to be fetched.
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._more = asyncio.Event()
        self._wanted = 0
        self._fetching: asyncio.Task[None] | None = None
        # In the reactor thread.
        self._inbox: deque[bytes] = deque()
        self._asked = self._ahead = self._unsentBytes = 0
        # The lengths of messages; the first one is on its way.
        self._unsent: deque[int] = deque()
        self._isAtEnd = self._isLost = self._isGone = self._hasBegun = self._isFinished = False
        self._initial: tuple[tuple[str, str | bytes], ...] = ()
        self._got: Callable[[bytes | None], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        self._onClosed: Callable[[bool], object] | None = None
        self._room: Deferred[None] | None = None

    async def run(self) -> None:
        """Send what the reactor sends, up to the status. In the loop."""
        isLost = True
        try:
            await self._sendAll(self._context)
            isLost = False
        except grpc.aio.BaseError:
            # The client has left, or a message was too long: grpc.aio is about to cancel this.
            await asyncio.sleep(_CANCEL_SECONDS)
        except Exception:
            _log.failure("{path} could not be answered", path=self.path)
            self._context.set_code(grpc.StatusCode.INTERNAL)
        finally:
            if self._fetching is not None:
                self._fetching.cancel()
            self._engine.bridge.deliver(self._ended, isLost)

    async def _sendAll(self, context: Any) -> None:
        while True:
            while not self._outbox:
                self._more.clear()
                await self._more.wait()
            match self._outbox.popleft():
                case "start", metadata:
                    await context.send_initial_metadata(metadata)
                case "message", message, compress:
                    if not compress:
                        context.disable_next_message_compression()
                    await context.write(message)
                    self._engine.bridge.deliver(self._sent)
                case "end", status, text, trailers:
                    context.set_code(_STATUSES.get(status, grpc.StatusCode.UNKNOWN))
                    context.set_details(text)
                    context.set_trailing_metadata(tuple(trailers))
                    return

    def _push(self, *operation: Any) -> None:
        """Have something sent. In the loop."""
        self._outbox.append(operation)
        self._more.set()

    def _want(self, count: int) -> None:
        """Fetch more messages. In the loop."""
        self._wanted += count
        if self._fetching is None or self._fetching.done():
            self._fetching = self._engine.bridge.spawn(self._fetchAll())

    async def _fetchAll(self) -> None:
        deliver = self._engine.bridge.deliver
        with suppress(grpc.aio.BaseError):
            while self._wanted:
                self._wanted -= 1
                message = await self._context.read()
                if message is grpc.aio.EOF:
                    # It looks like this, too, when the client has cancelled, and an upload that was
                    # cut must not look like its end. The cancel comes before a second message, and
                    # reaches run() and then this task within so many iterations of the loop.
                    await self._context.read()
                    for _ in range(_CANCEL_ITERATIONS):
                        await asyncio.sleep(0)
                    deliver(self._arrived, None)
                    return
                deliver(self._arrived, message)

    # In the reactor thread.

    def _ended(self, isLost: bool) -> None:
        """Note the end: the client has left, or has been sent the status."""
        self._engine.forget(self)
        if isLost:
            self._isLost = True
            if self._isFinished or self._cancelled is not None:
                self._lose()
            else:
                # Not watched: such a call reads its end.
                got, self._got = self._got, None
                if got is not None:
                    got(None)
        if self._isFinished:
            self._notifyClosed(isLost)

    def _lose(self) -> None:
        """Clean up after a client that has left."""
        if self._isGone:
            return
        self._isGone = self.isOver = True
        self._got = None
        self._inbox.clear()
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None and not self._isFinished:
            # Before producers that wait for room resume: they would be cancelled in their cleanup.
            cancelled()
        self._makeRoom()

    def _notifyClosed(self, isLost: bool) -> None:
        onClosed, self._onClosed = self._onClosed, None
        if onClosed is not None:
            onClosed(isLost)

    def peer(self) -> str:
        """Return the client's address."""
        return self._peer

    def authContext(self) -> dict[str, list[bytes]]:
        """Return what TLS knows of the client."""
        return self._authContext

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Ask for the client's next message."""
        self._ahead = ahead
        if self._inbox:
            message = self._inbox.popleft()
            self._fetch()
            got(message)
        elif self._isAtEnd or (self._isLost and not self._isGone):
            got(None)
        elif not self._isGone:
            self._got = got
            self._fetch()

    def _fetch(self) -> None:
        count = self._ahead + (self._got is not None) - len(self._inbox) - self._asked
        if count > 0 and not self._isAtEnd and not self._isLost:
            self._asked += count
            self._engine.operate(self._want, count)

    def _arrived(self, message: bytes | None) -> None:
        self._asked -= 1
        if self._isGone:
            return
        got, self._got = self._got, None
        if message is None:
            self._isAtEnd = True
        else:
            self._engine.traffic.bytesIn += len(message)
            if got is None:
                self._inbox.append(message)
            self._fetch()
        if got is not None:
            got(message)

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Have a function called if the call ends before it is finished."""
        self._cancelled = cancelled
        if self._isLost:
            self._engine.bridge.reactor.callLater(0, self._lose)

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        if not self._hasBegun and not self.isOver:
            self._hasBegun = True
            self._engine.operate(self._push, "start", (*self._initial, *metadata))

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Have initial metadata sent with whatever is sent first."""
        self._initial = (*self._initial, *metadata)

    def _begin(self) -> None:
        if self._initial:
            self.sendMetadata(())
        self._hasBegun = True

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        if self._isLost:
            self._lose()
        if self.isOver:
            return False
        self._begin()
        self._unsent.append(len(message))
        self._unsentBytes += len(message)
        self._engine.traffic.bytesOut += len(message)
        self._engine.operate(self._push, "message", message, compress)
        return self._hasRoom()

    def _hasRoom(self, share: int = 1) -> bool:
        waiting = len(self._unsent) - 1
        if waiting <= 0:
            return True
        size = self._unsentBytes - self._unsent[0]
        return waiting < _OUTGOING_MESSAGES // share and size < _OUTGOING_BYTES // share

    def _sent(self) -> None:
        self._unsentBytes -= self._unsent.popleft()
        # At half: to wake the producer for each message costs a third of the time.
        if self._room is not None and self._hasRoom(2):
            self._makeRoom()

    def drained(self) -> Deferred[None]:
        """Wait until there is room for a message."""
        if self.isOver or self._hasRoom():
            return succeed(None)
        self._room = Deferred(self._stopWaiting)
        return self._room

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._room = None

    def _makeRoom(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        self.send(message, compress)
        self.finish(0, "", trailers)

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent."""
        if self.isOver:
            return
        self.isOver = self._isFinished = True
        if self._isLost:
            self._engine.bridge.reactor.callLater(0, self._notifyClosed, True)
        else:
            self._begin()
            self._engine.operate(self._push, "end", status, message, trailers)
        self._makeRoom()

    def whenClosed(self, told: Callable[[bool], object]) -> None:
        """Have a function called when the call is gone."""
        self._onClosed = told
