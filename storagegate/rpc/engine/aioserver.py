"""
The server's engine on C{grpc.aio}, which uses only public names.

A call is an object in the reactor thread with a coroutine in the asyncio loop, which sends, and a
task for each requested message. This engine has limitations that the native one does not:

  - connections are not counted: C{connections} counts the peers of open calls
  - a request over the limit still ends its call, but looks like a disconnected client
  - some calls that arrive while the server begins to stop are cancelled: C{grpc.aio} accepts calls
    one by one, and cannot accept the waiting ones
  - no message is fetched before it is requested
  - a unary response takes a second batch for its status
  - a path that is not UTF-8 ends its call with C{UNKNOWN}
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.rpc.engine.aio import LoopBridge
from storagegate.rpc.engine.base import (
    OUTGOING_BYTES,
    OUTGOING_MESSAGES,
    WAITING_CALLS,
    GracefulServer,
    ServerCallBase,
)
from storagegate.rpc.interfaces import IServerCall, IServerEngine, MessageByteCounter, Metadata

_STATUSES = {code.value[0]: code for code in grpc.StatusCode}

_CANCEL_ITERATIONS = 5
"""Iterations of the loop until a cancellation has reached a call's coroutine and its task."""

_CANCEL_SECONDS = 10.0
"""The time within which C{grpc.aio} cancels a call that it cannot send to."""

_UNLIMITED_SECONDS = 1e8
"""The grace passed to C{grpc.aio}; the reactor's own timer ends it earlier."""

_log = Logger()


@implementer(IServerCall)
class AioServerCall(ServerCallBase):
    """A call of a server, see L{IServerCall}. Created in the loop, used in the reactor thread."""

    def __init__(self, engine: "AioServer", path: str, context: Any) -> None:
        self.isOver = self.isRefused = False
        self._isGone = self._hasBegun = self._isAtEnd = False
        self._initial = ()
        self._got = self._cancelled = self._onClosed = self._drained = None
        self.path = path
        self.metadata = tuple(context.invocation_metadata() or ())
        remaining = context.time_remaining()
        self.deadline = None if remaining is None else time.time() + remaining
        self._peer = unquote(context.peer())
        self._authContext = {key: list(each) for key, each in context.auth_context().items()}
        self._engine = engine
        self._context = context
        # In the loop: the operations to send, and the task that fetches a message.
        self._outbox: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self._fetching: asyncio.Task[None] | None = None
        # In the reactor thread: the bytes that wait to be sent.
        self._unsent = 0
        self._isLost = False

    # In the loop.

    async def run(self) -> None:
        """Send the operations of the reactor, up to the status."""
        isLost = True
        try:
            await self._sendAll(self._context)
            isLost = False
        except grpc.aio.BaseError:
            # The client has disconnected, or a message was too long: grpc.aio is about to cancel
            # this.
            await asyncio.sleep(_CANCEL_SECONDS)
        except Exception:
            _log.failure("{path} got no response", path=self.path)
            self._context.set_code(grpc.StatusCode.INTERNAL)
        finally:
            if self._fetching is not None:
                self._fetching.cancel()
            self._engine.bridge.deliver(self._ended, isLost)

    async def _sendAll(self, context: Any) -> None:
        while True:
            match await self._outbox.get():
                case "start", metadata:
                    await context.send_initial_metadata(metadata)
                case "message", message, compress:
                    if not compress:
                        context.disable_next_message_compression()
                    # The message in flight does not count, because its producer may wait for
                    # another event.
                    self._engine.bridge.deliver(self._sent, _costOf(message))
                    await context.write(message)
                case "end", status, text, trailers:
                    context.set_code(_STATUSES.get(status, grpc.StatusCode.UNKNOWN))
                    context.set_details(text)
                    context.set_trailing_metadata(tuple(trailers))
                    return

    def _fetch(self) -> None:
        self._fetching = self._engine.bridge.spawn(self._fetchMessage())

    async def _fetchMessage(self) -> None:
        with suppress(grpc.aio.BaseError):
            message = await self._context.read()
            if message is grpc.aio.EOF:
                # A cancelled call looks the same, and a truncated upload must not look complete.
                # The cancellation arrives before a second message.
                message = None
                await self._context.read()
                for _ in range(_CANCEL_ITERATIONS):
                    await asyncio.sleep(0)
            self._engine.bridge.deliver(self._arrived, message)

    async def _fetchEnd(self, done: Callable[[bool], object]) -> None:
        isEnd = True
        with suppress(grpc.aio.BaseError):
            isEnd = await self._context.read() is grpc.aio.EOF
        self._engine.bridge.deliver(done, isEnd)

    # In the reactor thread.

    def readEnd(self, done: Callable[[bool], object]) -> None:
        """Wait for the end of the client's messages."""

        def fetch() -> None:
            self._fetching = self._engine.bridge.spawn(self._fetchEnd(done))

        self._engine.operate(fetch)

    def _push(self, *operation: Any) -> None:
        self._engine.operate(self._outbox.put_nowait, operation)

    def _ended(self, isLost: bool) -> None:
        """Record the end: the client has disconnected, or the status was sent."""
        self._engine.forget(self)
        isFinished = self.isOver
        if isLost:
            self._isLost = True
            if isFinished or self._cancelled is not None:
                self._lose()
            else:
                # An unwatched call learns of its end by reading.
                got, self._got = self._got, None
                if got is not None:
                    got(None)
        if isFinished:
            self._notifyClosed(isLost)

    def peer(self) -> str:
        """Return the client's address."""
        return self._peer

    def authContext(self) -> dict[str, list[bytes]]:
        """Return the properties of the TLS peer."""
        return self._authContext

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Request the client's next message."""
        if self._isAtEnd or (self._isLost and not self._isGone):
            got(None)
        elif not self._isGone:
            self._got = got
            self._engine.operate(self._fetch)

    def _arrived(self, message: bytes | None) -> None:
        got, self._got = self._got, None
        if message is None:
            self._isAtEnd = True
        else:
            self._engine.traffic.bytesIn += len(message)
        if got is not None:
            got(message)

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Register a function to be called if the call ends before it is finished."""
        self._cancelled = cancelled
        if self._isLost:
            self._engine.bridge.reactor.callLater(0, self._lose)

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        if not self._hasBegun and not self.isOver:
            self._hasBegun = True
            self._push("start", (*self._initial, *metadata))

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
        self._unsent += _costOf(message)
        self._engine.traffic.bytesOut += len(message)
        self._push("message", message, compress)
        return self._hasCapacity()

    def _hasCapacity(self, share: int = 1) -> bool:
        """Return whether the unsent bytes are below C{1 / share} of the limit."""
        return self._unsent < OUTGOING_BYTES // share

    def _sent(self, cost: int) -> None:
        self._unsent -= cost
        # At half, because waking the producer for each message costs a third of the time.
        if self._drained is not None and self._hasCapacity(2):
            self._resumeProducer()

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        self.send(message, compress)
        self.finish(0, "", trailers)

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent."""
        if self.isOver:
            return
        self.isOver = True
        if self._isLost:
            self._engine.bridge.reactor.callLater(0, self._notifyClosed, True)
        else:
            self._begin()
            self._push("end", status, message, trailers)
        self._resumeProducer()


def _costOf(message: bytes) -> int:
    """Return the cost of a message in bytes: L{OUTGOING_MESSAGES} small messages fill a call."""
    return max(len(message), OUTGOING_BYTES // OUTGOING_MESSAGES)


@implementer(IServerEngine)
class AioServer(GracefulServer):
    """
    A server of C{grpc.aio}, see L{IServerEngine}.

    @ivar bridge: The bridge to the loop.
    """

    def __init__(
        self, reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: MessageByteCounter
    ) -> None:
        super().__init__(reactor, traffic)
        self.bridge = LoopBridge(reactor)
        self._peers: dict[str, int] = {}
        self._handedOver = self._accepted = 0
        self._running: set[asyncio.Task[Any]] = set()

        async def make() -> Any:
            return grpc.aio.server(handlers=(_BytesHandler(self._serve),), options=tuple(arguments))

        self._server: Any = self.bridge.wait(make())

    def _addPort(self, address: str, credentials: Any) -> int:
        async def add() -> int:
            if credentials is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, credentials))

        return self.bridge.wait(add())

    def start(self, accept: Callable[[Any], object]) -> None:
        """Start accepting calls."""
        self._accept = accept
        self.bridge.wait(self._server.start())
        self._stopWithReactor()

    def discard(self) -> None:
        """Close everything if L{start} was never called. Does not wait for the network."""

        async def startAndStop() -> None:
            # grpc core closes ports only by starting and stopping.
            server, self._server = self._server, None
            await server.start()
            await server.stop(None)

        self.bridge.wait(startAndStop())
        self.bridge.close()

    async def _serve(self, path: str, context: Any) -> None:
        """Serve one call. Runs in the loop."""
        if self._handedOver - self._accepted >= WAITING_CALLS:
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details("too many calls at a time")
            return
        task: Any = asyncio.current_task()
        self._running.add(task)
        try:
            call = AioServerCall(self, path, context)
            self._handedOver += 1
            self.bridge.deliver(self._begin, call)
            await call.run()
        finally:
            self._running.discard(task)

    def _begin(self, call: AioServerCall) -> None:
        self._accepted += 1
        peer = call.peer()
        self._peers[peer] = self._peers.get(peer, 0) + 1
        if self._accept is not None:
            self._accept(call)

    def forget(self, call: AioServerCall) -> None:
        """Record that a call has ended. Runs in the reactor thread."""
        peer = call.peer()
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def operate(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop, once the server has settled."""
        if self.isOpen:
            self.bridge.post(function, *arguments)
        else:
            self.hold(self.bridge.post, function, *arguments)

    def connections(self) -> int:
        """Count the peers of open calls, a lower bound of the connections."""
        return len(self._peers)

    def _shutDown(self, graceSeconds: float) -> None:
        async def begin() -> None:
            self._spawnStop(_UNLIMITED_SECONDS if graceSeconds else None)
            await asyncio.sleep(0)

        # When this returns, no more calls are accepted.
        self.bridge.wait(begin())

    def _cancelCalls(self) -> None:
        self.bridge.post(self._spawnStop, None)

    def _spawnStop(self, graceSeconds: float | None) -> None:
        """Stop the server. Runs in the loop. A second stop, without grace, ends the first."""
        if self._server is not None:
            self.bridge.spawn(self._stop(graceSeconds))

    async def _stop(self, graceSeconds: float | None) -> None:
        server = self._server
        if server is None:
            # Another stop has completed meanwhile.
            return
        await server.stop(graceSeconds)
        if self._running:
            await asyncio.wait(self._running)
        if self._server is not None:
            # It must be destroyed in this thread.
            self._server = None
            self.bridge.deliver(self._ended)

    def _ended(self) -> None:
        self._peers.clear()
        self.bridge.close()
        self._finishStop()


class _BytesHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Serves every method in the same way, as bytes."""

    def __init__(self, serve: Callable[[str, Any], Coroutine[Any, Any, None]]) -> None:
        self._serve = serve

    def service(self, details: Any) -> Any:
        """Return the handler of a call; only C{details} has the name of its method."""

        async def serve(requests: Any, context: Any) -> None:
            await self._serve(details.method, context)

        return grpc.stream_stream_rpc_method_handler(serve)
