"""
The client's engine on C{grpc.aio}, which uses only public names, and the asyncio loop of both
C{grpc.aio} engines.

All objects of C{grpc.aio} in a process must be on one loop, which runs in a thread of its own while
an engine is open. Unlike with the native engine, the user agent has grpcio's own name.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import grpc
import grpc.aio
from attrs import define, field
from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.core.streams import SharedFuture
from storagegate.rpc.engine.base import MESSAGE_COST, ClientCallBase, callMetadata
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    ClientClosedError,
    IClientCall,
    IClientEngine,
    Metadata,
    UnaryResult,
)

T = TypeVar("T")

_SENDING_FAILED = "Internal error from Core"
"""The message of the status that C{grpc.aio} itself sets if it cannot send a message."""

_STATUS_LOOKS = 100
"""How often such a call is checked for the server's status, every 10 ms."""

_CANCELLED = int(grpc.StatusCode.CANCELLED.value[0])
_INTERNAL = int(grpc.StatusCode.INTERNAL.value[0])
_UNKNOWN = int(grpc.StatusCode.UNKNOWN.value[0])


class LoopBridge:
    """
    The bridge between the reactor and the loop, for one engine.

    The loop itself is never closed: the next engine needs the state that grpcio has registered with
    it.
    """

    _loop: ClassVar[asyncio.AbstractEventLoop | None] = None
    _thread: ClassVar[threading.Thread | None] = None
    _users: ClassVar[int] = 0

    def __init__(self, reactor: Any) -> None:
        """
        Start the loop's thread unless it runs. Must run in the reactor thread.

        @param reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
        """
        shared = LoopBridge
        if shared._loop is None:
            shared._loop = asyncio.new_event_loop()
        if shared._thread is None:
            # A daemon thread: a script that does not close its client can still exit.
            shared._thread = threading.Thread(
                target=shared._loop.run_forever, name="storagegate-grpc-aio", daemon=True
            )
            shared._thread.start()
        shared._users += 1
        self.reactor = reactor
        self.loop = shared._loop
        self._tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Stop the loop's thread if this was its last user. Must run in the reactor thread."""
        shared = LoopBridge
        shared._users -= 1
        if not shared._users and shared._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            # The join is short: no coroutine of an engine remains.
            shared._thread.join()
            shared._thread = None

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """
        Run a short coroutine in the loop, and block until it ends. It must not wait for the
        reactor.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the loop. Must run in the loop."""
        task = self.loop.create_task(coroutine)
        # The loop itself holds only weak references.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, in order. May run in any thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def deliver(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the reactor thread, in order. Must run in the loop."""
        self.reactor.callFromThread(function, *arguments)


@implementer(IClientEngine)
@define(eq=False)
class AioChannel:
    """
    A channel of C{grpc.aio} to one server.

    @ivar isClosed: Whether the channel is closed to new calls.
    @ivar bridge: The bridge to the loop; C{None} before the first call.
    """

    _target: str
    _credentials: Any
    _arguments: Sequence[tuple[str, Any]]
    _reactor: Any
    isClosed: bool = False
    counted: set[str] = field(factory=set)
    bridge: LoopBridge | None = None
    _channel: Any = None
    _handles: set["AioClientCall"] = field(factory=set)
    _gone: SharedFuture[None] = field(factory=SharedFuture)

    def call(
        self, path: str, options: CallOptions, request: bytes | None = None
    ) -> "AioClientCall":
        """Begin a call."""
        return self._start(path, options, request)

    def exchange(
        self,
        path: str,
        options: CallOptions,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """Make a unary call."""
        return self._start(path, options, request, done).cancel

    def _start(self, *arguments: Any) -> "AioClientCall":
        if self.isClosed:
            raise ClientClosedError("the client is closed")
        if self.bridge is None:
            self.bridge = LoopBridge(self._reactor)
        call = AioClientCall(self, self.bridge)
        self._handles.add(call)
        self.bridge.post(call.start, *arguments)
        return call

    def channel(self) -> Any:
        """Return the channel. Must run in the loop."""
        if self._channel is None:
            options = tuple(self._arguments)
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self._target, options)
            else:
                self._channel = grpc.aio.secure_channel(self._target, self._credentials, options)
        return self._channel

    def forget(self, call: "AioClientCall") -> None:
        """Record that a call has ended."""
        self._handles.discard(call)
        self._closeIfIdle()

    def close(self) -> Deferred[None]:
        """Cancel the calls in flight; release the connection and the thread."""
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
class AioClientCall(ClientCallBase):
    """
    A call over a channel.

    @ivar bridge: The bridge to the loop.
    """

    def __init__(self, engine: AioChannel, bridge: LoopBridge) -> None:
        super().__init__()
        self.bridge = bridge
        self._engine = engine
        # In the loop.
        self._call: Any = None
        self._responses: Any = None
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._isCancelled = False
        self._outcome: tuple[int, str, Metadata] | None = None
        self._done = asyncio.Event()

    # In the loop.

    def start(
        self,
        path: str,
        given: CallOptions,
        request: bytes | None,
        done: Callable[[UnaryResult], object] | None = None,
    ) -> None:
        """Begin the call; a unary call passes its outcome to C{done}."""
        channel = self._engine.channel()
        options = {
            "metadata": tuple(callMetadata(given)),
            "timeout": None if given.deadline is None else given.deadline - time.time(),
            "wait_for_ready": given.waitForReady or None,
        }
        if request is None:
            self._call = channel.stream_stream(path)(**options)
        else:
            self._call = channel.unary_stream(path)(request, **options)
        self._call.add_done_callback(self._noteStatus)
        if done is not None:
            self.bridge.spawn(self._exchange(done))
        else:
            # Its read() returns nothing after a failed send, and grpc core reports no status until
            # all messages are read.
            self._responses = aiter(self._call)
            sending = None if request is not None else self.bridge.spawn(self._sendAll())
            self.bridge.spawn(self._run(sending))

    async def _exchange(self, done: Callable[[UnaryResult], object]) -> None:
        responses: list[bytes] = []
        # Not a unary call of grpc.aio: with a second response, it lasts until its deadline.
        with suppress(grpc.RpcError, asyncio.CancelledError):
            async for response in self._call:
                responses.append(response)
                if len(responses) > 1:
                    self._call.cancel()
        metadata = tuple(await self._call.initial_metadata() or ())
        status, message, trailers = await self._whenDone()
        self.bridge.deliver(self._ended, status, message, trailers)
        if len(responses) > 1:
            status, message = _INTERNAL, "the server sent more than one response"
        response = responses[0] if len(responses) == 1 else None
        self.bridge.deliver(done, UnaryResult(status, message, response, metadata, trailers))

    async def _run(self, sending: asyncio.Task[None] | None) -> None:
        metadata = tuple(await self._call.initial_metadata() or ())
        self.bridge.deliver(self._metadata.set, metadata)
        outcome = await self._whenDone()
        if sending is not None:
            sending.cancel()
        self.bridge.deliver(self._ended, *outcome)

    def _noteStatus(self, call: Any) -> None:
        """
        Record the status each time C{grpc.aio} sets it.

        A message that cannot be sent because the call has ended also sets a status, before or after
        the server's own status.
        """
        message = _result(call.details()) or ""
        if self._outcome is None or message != _SENDING_FAILED:
            try:
                status = int(_result(call.code()).value[0])
            except KeyError:
                # The number of an unknown status.
                status = _UNKNOWN
            if self._isCancelled and status == _CANCELLED:
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
        # A call that accepts no message has ended; _noteStatus records the reason.
        with suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            while True:
                message = await self._outbox.get()
                if message is None:
                    await self._call.done_writing()
                    return
                await self._call.write(message)
                self.bridge.deliver(self._hold, -len(message) - MESSAGE_COST)

    async def _fetch(self, got: Callable[[bytes | None], object]) -> None:
        message = None
        with suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.CancelledError):
            message = await anext(self._responses, None)
        self.bridge.deliver(got, message)

    def _cancel(self) -> None:
        self._isCancelled = True
        self._call.cancel()

    # In the reactor thread.

    def _ended(self, status: int, message: str, trailers: Metadata) -> None:
        super()._ended(status, message, trailers)
        self._engine.forget(self)

    def send(self, message: bytes) -> bool:
        """Send a message; return whether another message may follow."""
        if self._end.isKnown:
            return False
        self.bridge.post(self._outbox.put_nowait, message)
        return self._hold(len(message) + MESSAGE_COST)

    def sendEnd(self) -> None:
        """Send the end of the messages."""
        self.bridge.post(self._outbox.put_nowait, None)

    def read(self, got: Callable[[bytes | None], object]) -> None:
        """Request the next message."""
        self.bridge.post(lambda: self.bridge.spawn(self._fetch(got)))

    def cancel(self) -> None:
        """Cancel the call. May run in any thread."""
        self.bridge.post(self._cancel)


def _result(coroutine: Any) -> Any:
    """Return the result of a coroutine that does not suspend, as on a completed call."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    return None
