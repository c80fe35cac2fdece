"""
The client's engine on C{grpc.aio}, by public names alone.

What differs from the native one: the user agent has grpcio's own name in place of ours.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from storagegate.core.streams import SharedFuture
from storagegate.rpc.engine.aioloop import LoopBridge
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    ClientClosedError,
    IClientCall,
    IClientEngine,
    Metadata,
    UnaryResult,
)

_ROOM_BYTES = 64 * 1024
"""What a call may have waiting for the wire before its producer stops, as in the native engine."""

_MESSAGE_COST = 64
"""What a waiting message costs besides its bytes; empty ones count, too."""

_SENDING_FAILED = "Internal error from Core"
"""The message of the status that C{grpc.aio} sets itself where a message can't be sent."""

_STATUS_LOOKS = 100
"""So many times, every 10 ms, such a call is checked for the status of its server."""

_CANCELLED = int(grpc.StatusCode.CANCELLED.value[0])
_UNKNOWN = int(grpc.StatusCode.UNKNOWN.value[0])


@implementer(IClientEngine)
class AioChannel:
    """
    Calls over one channel of C{grpc.aio}, to one server.

    @ivar isClosed: Whether it makes no calls any more.
    @ivar bridge: Leads to the loop; C{None} before the first call.
    """

    def __init__(
        self, target: str, credentials: Any, arguments: Sequence[tuple[str, Any]], reactor: Any
    ) -> None:
        """
        @param target: The server, by a name that gRPC understands.
        @param credentials: C{grpc.ChannelCredentials}, C{None} for plain text.
        @param arguments: The channel's arguments.
        """
        self.isClosed = False
        self.bridge: LoopBridge | None = None
        self._target = target
        self._credentials = credentials
        self._arguments = tuple(arguments)
        self._reactor = reactor
        self._channel: Any = None
        self._handles: set[AioClientCall] = set()
        self._gone: SharedFuture[None] = SharedFuture()

    def call(
        self,
        path: str,
        metadata: Metadata,
        deadline: float | None,
        waitForReady: bool,
        request: bytes | None = None,
    ) -> "AioClientCall":
        """Begin a call."""
        call = self._newCall()
        call.bridge.post(call.start, path, metadata, deadline, waitForReady, request, None)
        return call

    def exchange(
        self,
        path: str,
        metadata: Metadata,
        deadline: float | None,
        waitForReady: bool,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """Make a unary call."""
        call = self._newCall()
        call.bridge.post(call.start, path, metadata, deadline, waitForReady, request, done)
        return call.cancel

    def _newCall(self) -> "AioClientCall":
        if self.isClosed:
            raise ClientClosedError("the client is closed")
        if self.bridge is None:
            self.bridge = LoopBridge(self._reactor)
        call = AioClientCall(self, self.bridge)
        self._handles.add(call)
        return call

    def channel(self) -> Any:
        """Return the channel. In the loop."""
        if self._channel is None:
            options = self._arguments
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self._target, options)
            else:
                self._channel = grpc.aio.secure_channel(self._target, self._credentials, options)
        return self._channel

    def forget(self, call: "AioClientCall") -> None:
        """Note that a call has ended."""
        self._handles.discard(call)
        self._closeIfIdle()

    def close(self) -> Deferred[None]:
        """Cancel what is under way and let go of the connection and the thread."""
        if not self.isClosed:
            self.isClosed = True
            for call in self._handles:
                call.cancel()
            self._closeIfIdle()
        return self._gone.wait()

    def _closeIfIdle(self) -> None:
        if not self.isClosed or self._handles:
            return
        if self.bridge is None:
            self._gone.set(None)
        else:
            self.bridge.post(self.bridge.spawn, self._close(self.bridge))

    async def _close(self, bridge: LoopBridge) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)
        bridge.deliver(self._closed, bridge)

    def _closed(self, bridge: LoopBridge) -> None:
        bridge.close()
        self._gone.set(None)


@implementer(IClientCall)
class AioClientCall:
    """
    One call over a channel.

    @ivar bridge: Leads to the loop.
    """

    def __init__(self, engine: AioChannel, bridge: LoopBridge) -> None:
        self.bridge = bridge
        self._engine = engine
        # In the loop.
        self._call: Any = None
        self._responses: Any = None
        self._outbox: deque[bytes | None] = deque()
        self._more = asyncio.Event()
        self._isGivenUp = False
        self._outcome: tuple[int, str, Metadata] | None = None
        self._done = asyncio.Event()
        # In the reactor thread.
        self._held = 0
        self._metadata: SharedFuture[Metadata] = SharedFuture()
        self._end: SharedFuture[tuple[int, str, Metadata]] = SharedFuture()
        # Producers that wait for room; a new one each time that there is.
        self._room: SharedFuture[None] = SharedFuture()

    # In the loop.

    def start(
        self,
        path: str,
        metadata: Metadata,
        deadline: float | None,
        waitForReady: bool,
        request: bytes | None,
        done: Callable[[UnaryResult], object] | None,
    ) -> None:
        """Begin the call; C{done} is called with its outcome if it is unary."""
        channel = self._engine.channel()
        options = {
            "metadata": tuple(metadata),
            "timeout": None if deadline is None else deadline - time.time(),
            "wait_for_ready": waitForReady or None,
        }
        if request is None:
            self._call = channel.stream_stream(path)(**options)
        elif done is None:
            self._call = channel.unary_stream(path)(request, **options)
        else:
            self._call = channel.unary_unary(path)(request, **options)
        self._call.add_done_callback(self._noteStatus)
        if done is not None:
            self.bridge.spawn(self._exchange(done))
        else:
            # Its read() gives nothing more once a message could not be sent, and grpc core no
            # status before all messages were taken.
            self._responses = aiter(self._call)
            sending = None if request is not None else self.bridge.spawn(self._sendAll())
            self.bridge.spawn(self._run(sending))

    async def _exchange(self, done: Callable[[UnaryResult], object]) -> None:
        response = None
        with suppress(grpc.RpcError, asyncio.CancelledError):
            response = await self._call
        metadata = tuple(await self._call.initial_metadata() or ())
        status, message, trailers = await self._whenDone()
        self.bridge.deliver(self._ended, (status, message, trailers))
        self.bridge.deliver(done, UnaryResult(status, message, response, metadata, trailers))

    async def _run(self, sending: asyncio.Task[None] | None) -> None:
        metadata = tuple(await self._call.initial_metadata() or ())
        self.bridge.deliver(self._metadata.set, metadata)
        outcome = await self._whenDone()
        if sending is not None:
            sending.cancel()
        self.bridge.deliver(self._ended, outcome)

    def _noteStatus(self, call: Any) -> None:
        """
        Keep the status, each time that C{grpc.aio} sets it.

        A message that can't be sent, for the call has ended, sets one as well: before the status
        that the server has sent, or after it.
        """
        message = _result(call.details()) or ""
        if self._outcome is None or message != _SENDING_FAILED:
            try:
                status = int(_result(call.code()).value[0])
            except KeyError:
                # A number that no status has.
                status = _UNKNOWN
            if self._isGivenUp and status == _CANCELLED:
                message = CANCELLED_MESSAGE
            trailers = tuple(_result(call.trailing_metadata()) or ())
            self._outcome = status, message, trailers
        self._done.set()

    async def _whenDone(self) -> tuple[int, str, Metadata]:
        await self._done.wait()
        assert self._outcome is not None
        for _ in range(_STATUS_LOOKS):
            if self._outcome[1] != _SENDING_FAILED:
                break
            await asyncio.sleep(0.01)
            self._noteStatus(self._call)
        return self._outcome

    async def _sendAll(self) -> None:
        # A call that takes no message has ended; how is known elsewhere.
        with suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            while True:
                while not self._outbox:
                    self._more.clear()
                    await self._more.wait()
                message = self._outbox.popleft()
                if message is None:
                    await self._call.done_writing()
                    return
                await self._call.write(message)
                self.bridge.deliver(self._sent, len(message) + _MESSAGE_COST)

    def _push(self, message: bytes | None) -> None:
        self._outbox.append(message)
        self._more.set()

    async def _fetch(self, got: Callable[[bytes | None], object]) -> None:
        message = None
        with suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.CancelledError):
            message = await anext(self._responses, None)
        self.bridge.deliver(got, message)

    def _giveUp(self) -> None:
        self._isGivenUp = True
        self._call.cancel()

    # In the reactor thread.

    def _ended(self, outcome: tuple[int, str, Metadata]) -> None:
        self._metadata.set(())
        self._end.set(outcome)
        self._room.set(None)
        self._engine.forget(self)

    def _sent(self, size: int) -> None:
        self._held -= size
        if self._held < _ROOM_BYTES:
            room, self._room = self._room, SharedFuture()
            room.set(None)

    def send(self, message: bytes) -> bool:
        """Send a message; return whether there is room for another one."""
        if self._end.isKnown:
            return False
        self._held += len(message) + _MESSAGE_COST
        self.bridge.post(self._push, message)
        return self._held < _ROOM_BYTES

    def sendEnd(self) -> None:
        """Send the end of the messages."""
        self.bridge.post(self._push, None)

    def drained(self) -> Deferred[None]:
        """Wait until there is room for a message, or the call has ended."""
        if self._held < _ROOM_BYTES or self._end.isKnown:
            return succeed(None)
        return self._room.wait()

    def read(self, got: Callable[[bytes | None], object]) -> None:
        """Ask for the next message."""
        self.bridge.post(lambda: self.bridge.spawn(self._fetch(got)))

    def begun(self) -> Deferred[Metadata]:
        """Wait for the initial metadata."""
        return self._metadata.wait()

    def ended(self) -> Deferred[tuple[int, str, Metadata]]:
        """Wait for the status, its message and the trailers."""
        return self._end.wait()

    def cancel(self) -> None:
        """Give the call up. May be called in any thread."""
        self.bridge.post(self._giveUp)


def _result(coroutine: Any) -> Any:
    """Return the result of a coroutine that does not suspend, as those of a call that is done."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    return None
