"""
gRPC in memory, for tests of servers: no socket, no thread, and a clock that the test advances.

L{MemoryEngine} replaces the engines of L{storagegate.rpc.engine}. The server and the client above
it are the real ones, with their messages, limits and statuses::

    client = RPCTestClient(server)
    assert client.call("users.Users/GetUser", {"id": "7"})["name"] == "Ada"

Start a call that takes time, or a stream::

    call = client.start("users.Users/WatchUsers")
    client.advance(5)
    assert len(call.responses) == 2
"""

import time
from collections import deque
from collections.abc import AsyncIterable, Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from zope.interface import implementer

from storagegate.core.errors import GRPC_STATUSES
from storagegate.core.streams import BoundedStream
from storagegate.net.testing import MemoryDriver
from storagegate.rpc.application import GRPCServer
from storagegate.rpc.client import GrpcClient
from storagegate.rpc.clientcall import ClientCall
from storagegate.rpc.engine.base import MESSAGE_COST, OUTGOING_MESSAGES, ClientCallBase
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    ClientClosedError,
    IClientCall,
    IClientEngine,
    IServerCall,
    Metadata,
    UnaryResult,
)


@implementer(IServerCall)
class MemoryServerCall:
    """The server's side of a call."""

    countsBytes = False

    def __init__(self, client: "MemoryClientCall", path: str, options: CallOptions) -> None:
        self.path = path
        self.metadata: Metadata = tuple(options.metadata)
        self.deadline = options.deadline
        self.isOver = self.isRefused = False
        self._client = client
        self._requests: deque[bytes | None] = deque()
        self._initial: list[tuple[str, str | bytes]] = []
        self._got: Callable[[bytes | None], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        self._closed: Callable[[bool], object] | None = None
        self._drained: Deferred[None] | None = None

    def peer(self) -> str:
        """Return the client's address."""
        return self._client.engine.peer

    def authContext(self) -> dict[str, list[bytes]]:
        """Return an empty mapping: the client has no certificate."""
        return {}

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Request the client's next message."""
        self._got = got
        self._deliver()

    def takeMessage(self) -> bytes | None:
        """Return a message that has arrived."""
        requests = self._requests
        if self.isOver or not requests or requests[0] is None:
            return None
        message = requests.popleft()
        assert message is not None
        self._client.taken(message)
        return message

    def readEnd(self, done: Callable[[bool], object]) -> None:
        """Wait for the end of the client's messages."""
        self.read(lambda message: done(message is None))

    def _deliver(self) -> None:
        while self._got is not None and self._requests and not self.isOver:
            got, self._got = self._got, None
            message = self._requests.popleft()
            if message is not None:
                self._client.taken(message)
            got(message)

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Register a function to be called if the call ends before it is finished."""
        self._cancelled = cancelled

    def whenClosed(self, closed: Callable[[bool], object]) -> None:
        """Register a function to be called when the call is closed."""
        self._closed = closed

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Add initial metadata that is sent with the first operation."""
        self._initial.extend(metadata)

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        self._client.begin((*self._initial, *metadata))

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        self.sendMetadata(())
        self._client.receive(message)
        return self._hasCapacity()

    def _hasCapacity(self) -> bool:
        return self._client.unread < OUTGOING_MESSAGES

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent."""
        if self.isOver or self._hasCapacity():
            return succeed(None)
        self._drained = Deferred(lambda waiting: setattr(self, "_drained", None))
        return self._drained

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        self.send(message)
        self.finish(0, "", trailers)

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent."""
        if self.isOver:
            return
        self.isOver = True
        self.sendMetadata(())
        self._client.end(status, message, trailers)
        self._close(isCancelled=False)

    # For the client's side

    def receive(self, message: bytes | None, limit: int) -> None:
        """
        Receive a message of the client; C{None} is the end of the stream.

        @param limit: The maximum length of a message in bytes; -1 for no limit.
        """
        if message is not None and 0 <= limit < len(message):
            self.isRefused = True
            self._client.end(
                GRPC_STATUSES["RESOURCE_EXHAUSTED"],
                f"Received message larger than max ({len(message)} vs. {limit})",
                (),
            )
            message = None
        self._requests.append(message)
        self._deliver()

    def resume(self) -> None:
        """Resume a waiting producer, if the client has read enough."""
        if self._drained is not None and (self.isOver or self._hasCapacity()):
            drained, self._drained = self._drained, None
            drained.callback(None)

    def lose(self) -> None:
        """End the call: the client has disconnected, or its deadline has passed."""
        if self.isOver:
            return
        self.isOver = True
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            cancelled()
        got, self._got = self._got, None
        if got is not None:
            got(None)
        self.resume()
        self._close(isCancelled=True)

    def _close(self, isCancelled: bool) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(isCancelled)


@implementer(IClientCall)
class MemoryClientCall(ClientCallBase):
    """The client's side of a call."""

    def __init__(self, engine: "MemoryEngine", path: str, options: CallOptions) -> None:
        super().__init__()
        self.engine = engine
        self.server = MemoryServerCall(self, path, options)
        self._responses: deque[bytes] = deque()
        self._got: Callable[[bytes | None], object] | None = None
        self._hasBegun = self._isEnding = self._isSent = False
        self._deadline: Any = None
        if options.deadline is not None:
            seconds = max(0.0, options.deadline - time.time())
            self._deadline = engine.clock.callLater(seconds, self._late)
        engine.later(engine.accept, self.server)

    @property
    def unread(self) -> int:
        """Return how many messages of the server are unread."""
        return len(self._responses)

    def send(self, message: bytes) -> bool:
        """Send a message."""
        hasCapacity = self._hold(len(message) + MESSAGE_COST)
        self.engine.traffic.bytesIn += len(message)
        self.engine.later(self.server.receive, message, self.engine.maxRequest)
        return hasCapacity

    def taken(self, message: bytes) -> None:
        """Release the capacity of a message that the server has read."""
        self._hold(-len(message) - MESSAGE_COST)

    def sendEnd(self) -> None:
        """Send the end of the messages."""
        if not self._isSent:
            self._isSent = True
            self.engine.later(self.server.receive, None, -1)

    def read(self, got: Callable[[bytes | None], object]) -> None:
        """Request the server's next message."""
        self._got = got
        self.engine.later(self._deliver)

    def cancel(self) -> None:
        """Cancel the call."""
        self._abandon("CANCELLED", CANCELLED_MESSAGE)

    def _late(self) -> None:
        self._abandon("DEADLINE_EXCEEDED", "Deadline Exceeded")

    def _abandon(self, code: str, message: str) -> None:
        if not self._isEnding:
            self._responses.clear()
            self.end(GRPC_STATUSES[code], message, ())
            self.engine.later(self.server.lose)

    # For the server's side

    def begin(self, metadata: Metadata) -> None:
        """Receive the initial metadata, once."""
        if not self._hasBegun and not self._isEnding:
            self._hasBegun = True
            self.engine.later(self._metadata.set, tuple(metadata))

    def receive(self, message: bytes) -> None:
        """Receive a message of the server."""
        if not self._isEnding:
            self.engine.traffic.bytesOut += len(message)
            self._responses.append(message)
            self.engine.later(self._deliver)

    def end(self, status: int, message: str, trailers: Metadata) -> None:
        """Receive the status; only the first counts."""
        if self._isEnding:
            return
        self._isEnding = True
        self.engine.calls.discard(self)
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self.engine.later(self._ended, status, message, tuple(trailers))
        self.engine.later(self._deliver)

    def _deliver(self) -> None:
        if self._got is None or not (self._responses or self._end.isKnown):
            return
        got, self._got = self._got, None
        got(self._responses.popleft() if self._responses else None)
        self.server.resume()


@implementer(IClientEngine)
class MemoryEngine:
    """
    Carries the calls of a client to a server in the same process.

    @ivar accept: Called with the server's side of a call.
    @ivar peer: The address of the client, in gRPC's form.
    @ivar maxRequest: The maximum length of a request in bytes; -1 for no limit.
    @ivar traffic: Counts the bytes of messages.
    @ivar calls: The calls in flight.
    """

    def __init__(self, server: GRPCServer, clock: Clock, address: str) -> None:
        self.clock = clock
        self.accept = server._prepare(clock, server.settings.grpc.maxConcurrentStreams)
        self.peer = f"ipv6:[{address}]:50000" if ":" in address else f"ipv4:{address}:50000"
        self.maxRequest = server.settings.grpc.maxReceiveMessageLength
        self.traffic = server.traffic
        self.isClosed = False
        self.counted: set[str] = set()
        self.calls: set[MemoryClientCall] = set()

    def later(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function in a reactor iteration of its own, like events of a connection."""
        self.clock.callLater(0, function, *arguments)

    def call(self, path: str, options: CallOptions, request: bytes | None = None) -> Any:
        """Begin a call."""
        if self.isClosed:
            raise ClientClosedError("the client is closed")
        call = MemoryClientCall(self, path, options)
        self.calls.add(call)
        if request is not None:
            call.send(request)
            call.sendEnd()
        return call

    def exchange(
        self,
        path: str,
        options: CallOptions,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """Make a unary call."""
        call = self.call(path, options, request)
        Deferred.fromCoroutine(_exchange(call)).addCallback(done)
        cancel: Callable[[], None] = call.cancel
        return cancel

    def close(self) -> Deferred[None]:
        """Cancel the calls in flight."""
        self.isClosed = True
        for call in list(self.calls):
            call.cancel()
        return succeed(None)


async def _exchange(call: MemoryClientCall) -> UnaryResult:
    read: Deferred[bytes | None] = Deferred()
    call.read(read.callback)
    response = await read
    metadata = await call.begun()
    status, message, trailers = await call.ended()
    return UnaryResult(status, message, response if status == 0 else None, metadata, trailers)


class RPCTestCall:
    """
    A call of a test.

    @ivar name: The path of the method, without its first slash.
    @ivar responses: The responses so far.
    @ivar isStream: Whether the responses are a stream.
    @ivar isDone: Whether the call has ended.
    @ivar error: The error that ended the call.
    @ivar call: The call of the client, with C{initialMetadata()} and C{trailers()}.
    """

    def __init__(self, name: str, call: ClientCall, requests: Any, isStream: bool) -> None:
        """
        @param requests: The stream to put requests in; C{None} if the requests were passed to the
            call.
        @param isStream: Whether the responses are a stream.
        """
        self.name = name
        self.isStream = isStream
        self.responses: list[Any] = []
        self.isDone = False
        self.error: Exception | None = None
        self.call = call
        self._requests = requests
        Deferred.fromCoroutine(self._collect())

    async def _collect(self) -> None:
        try:
            if self.isStream:
                async for response in self.call:
                    self.responses.append(response)
            else:
                self.responses.append(await self.call)
        except Exception as error:
            # A GrpcError, or the error of an invalid request.
            self.error = error
        self.isDone = True

    @property
    def response(self) -> Any:
        """
        Return the last response.

        @raise AssertionError: If the call has not ended.
        @raise GrpcError: If the call has ended with an error.
        """
        if not self.isDone:
            raise AssertionError(
                f"{self.name} has no response yet; use start(), then let time pass "
                "with client.advance(seconds)"
            )
        if self.error is not None:
            raise self.error
        return self.responses[-1] if self.responses else None

    def send(self, request: Any) -> None:
        """Send a request of the client's stream; L{RPCTestClient.flush} delivers it."""
        self._requests.put(request)

    def end(self) -> None:
        """End the client's stream."""
        self._requests.end()

    def cancel(self) -> None:
        """Cancel the call."""
        self.call.cancel()


class RPCTestClient(MemoryDriver):
    """
    An in-process client of one server, and the server's clock.

    @ivar clock: The server's clock, which only C{advance} moves.
    @ivar grpc: The client, like the result of C{createGrpcClient}.
    """

    def __init__(
        self, server: GRPCServer, *, clock: Clock | None = None, address: str = "127.0.0.1"
    ) -> None:
        """
        @param clock: A clock to share with other clients.
        @param address: The IP address of the client.
        """
        super().__init__(Clock() if clock is None else clock)
        self._server = server
        self.grpc = GrpcClient(MemoryEngine(server, self.clock, address), None, self.clock)

    def start(
        self, path: str, request: Any = None, *, metadata: Any = None, deadlineMs: Any = None
    ) -> RPCTestCall:
        """
        Begin a call.

        @param path: C{package.Service/Method}; the method may be in camelCase.
        @param request: A mapping or a message; omitted for a stream of requests.
        @param metadata: See L{MethodCaller<storagegate.rpc.client.MethodCaller>}, also for
            C{deadlineMs}.
        @raise KeyError: If the server has no such method.
        """
        name, _, methodName = path.strip("/").rpartition("/")
        service = self._server.services[name]
        method = service.find(methodName)
        if method is None:
            raise KeyError(path)
        requests: BoundedStream[Any] | None = None
        if method.streaming in ("client", "bidirectional") and request is None:
            requests = BoundedStream()
        elif method.streaming in ("client", "bidirectional") and not isinstance(
            request, AsyncIterable | list | tuple
        ):
            raise TypeError(f"{path} takes a list of requests")
        caller = self.grpc.service(service)[method.name]
        call = caller(
            request if requests is None else requests, metadata=metadata, deadlineMs=deadlineMs
        )
        isStream = method.streaming in ("server", "bidirectional")
        started = RPCTestCall(path, call, requests, isStream)
        self.flush()
        return started

    def call(
        self, path: str, request: Any = None, *, metadata: Any = None, deadlineMs: Any = None
    ) -> Any:
        """
        Make a call; return its response, or the list of the responses of a stream.

        @param path: The method, see L{start} for all parameters.
        @raise AssertionError: If the call has not ended at once.
        @raise GrpcError: If the call ends with an error.
        """
        call = self.start(path, request, metadata=metadata, deadlineMs=deadlineMs)
        response = call.response
        return call.responses if call.isStream else response
