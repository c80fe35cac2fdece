"""
The client's engine on grpcio's channel.

The engine bypasses grpcio's own client: batches of operations start in the reactor thread, and a
L{ChannelPoller} delivers their completions.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from attrs import define, field
from grpc._cython import cygrpc
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.streams import SharedFuture
from storagegate.rpc.credentials import GRPCClientTLS
from storagegate.rpc.engine.base import MESSAGE_COST, ClientCallBase, callMetadata
from storagegate.rpc.interfaces import (
    CANCELLED_MESSAGE,
    CallOptions,
    ClientClosedError,
    IClientCall,
    IClientEngine,
    UnaryResult,
)
from storagegate.version import __version__

_WAIT_FOR_READY = (
    cygrpc.InitialMetadataFlags.wait_for_ready
    | cygrpc.InitialMetadataFlags.wait_for_ready_explicitly_set
)

_OPTIONS = (
    "keepalivePermitWithoutCalls",
    "keepaliveTimeMs",
    "keepaliveTimeoutMs",
    "maxReceiveMessageLength",
    "maxSendMessageLength",
)
"""The options of a client that are channel arguments under the same names as a server's."""

_ALGORITHMS = {"deflate": 1, "gzip": 2}
"""The numbers of compression algorithms in grpcio."""

_CLOSED = "The client is closed"

_log = Logger()


def channelArguments(options: Any, tls: GRPCClientTLS | None) -> list[tuple[str, Any]]:
    """
    Return the channel arguments of a client.

    @param options: L{GRPCServerOptions<storagegate.rpc.options.GRPCServerOptions>}.
    @param tls: The TLS settings; a server name becomes a channel argument.
    """
    arguments: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"storagegate/{__version__}"),
        # Connections are not shared: each closes with its client, and is not delayed by failures of
        # others.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    arguments += options.arguments(_OPTIONS)
    if options.maxConnectionIdle is not None:
        arguments.append(("grpc.client_idle_timeout_ms", options.maxConnectionIdle))
    if options.compression is not None:
        algorithm = _ALGORITHMS[options.compression]
        arguments.append(("grpc.default_compression_algorithm", algorithm))
    if tls is not None and tls.serverName is not None:
        arguments.append(("grpc.ssl_target_name_override", tls.serverName))
        arguments.append(("grpc.default_authority", tls.serverName))
    return arguments


@define(eq=False)
class ChannelPoller:
    """
    Delivers the events of a channel to the reactor.

    A channel's queue cannot be polled without waiting, so a thread takes every event. Events cross
    threads in batches, with one C{callFromThread} for each batch.

    @ivar reactor: Provides C{IReactorFromThreads}.
    @ivar take: Waits for the next event and returns it. Called in the poller's own thread.
    @ivar wake: Creates an event with the given tag, which ends a wait.
    @ivar shut: Closes the channel, which has no calls in flight. Called in the poller's own thread
        if it was started, because closing waits for locks.
    @ivar ended: Called in the reactor thread when the channel is closed and the thread ended.
    """

    reactor: Any
    take: Callable[[], Any]
    wake: Callable[[object], object]
    shut: Callable[[], object]
    ended: Callable[[], object]
    _events: deque[Any] = field(factory=deque)
    _expected: int = 0
    _isScheduled: bool = False
    _isStopping: bool = False
    _thread: threading.Thread | None = None

    def expect(self, count: int) -> None:
        """Count expected events. Must run in the reactor thread."""
        self._expected += count
        if self._thread is None:
            # A daemon thread: a script that does not close its client can still exit.
            self._thread = threading.Thread(target=self._wait, name="grpc-client", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop once no more events are expected. Must run in the reactor thread."""
        self._isStopping = True
        self._stopIfIdle()

    def _stopIfIdle(self) -> None:
        if not self._isStopping or self._expected:
            return
        self._isStopping = False
        if self._thread is None:
            self.shut()
            self.ended()
        else:
            self.wake(self)

    def _wait(self) -> None:
        """Take events as they arrive. Runs in the poller's own thread."""
        while True:
            event = self.take()
            if event.tag is self:
                break
            # With grpcio's fork support, a wait sometimes ends without an event.
            if event.tag is not None:
                self._events.append(event)
                if not self._isScheduled:
                    self._isScheduled = True
                    self.reactor.callFromThread(self._deliver)
            # A reference to the event would keep its call alive during the next wait.
            del event
        self.shut()
        self.reactor.callFromThread(self._end)

    def _deliver(self) -> None:
        """Process the events that have arrived. Runs in the reactor thread."""
        self._isScheduled = False
        # Events that arrive meanwhile wait: the reactor serves other sources before the next batch.
        for _ in range(len(self._events)):
            event = self._events.popleft()
            self._expected -= 1
            try:
                event.tag(event)
            except BaseException:
                _log.failure("an event of grpcio could not be handled")
        self._stopIfIdle()

    def _end(self) -> None:
        """Join the thread. Runs in the reactor thread."""
        if self._thread is not None:
            # The join is short: the thread has nothing left to do.
            self._thread.join()
        self.ended()


@implementer(IClientEngine)
class ChannelEngine:
    """
    A channel of grpcio to one server.

    @ivar isClosed: Whether the channel is closed to new calls.
    @ivar counted: See L{IClientEngine}.
    """

    def __init__(
        self,
        target: str,
        tls: GRPCClientTLS | None,
        arguments: Sequence[tuple[str, Any]],
        reactor: IReactorFromThreads,
    ) -> None:
        """
        @param tls: C{None} for plain text.
        @param arguments: The result of L{channelArguments}.
        """
        self.isClosed = False
        self.counted: set[str] = set()
        secure = None
        if tls is not None:
            secure = grpc.ssl_channel_credentials(tls.roots, tls.key, tls.chain)._credentials
        self._channel = cygrpc.Channel(target.encode(), tuple(arguments), secure)
        self._poller = ChannelPoller(
            reactor,
            self._channel.next_call_event,
            self._wake,
            self._shut,
            lambda: self._gone.set(None),
        )
        self._handles: set[Any] = set()
        self._gone: SharedFuture[None] = SharedFuture()

    def call(self, path: str, options: CallOptions, request: bytes | None = None) -> "ChannelCall":
        """Begin a call."""
        call = ChannelCall(self, hasRequest=request is not None)
        start = [_sendStart(options), cygrpc.ReceiveStatusOnClientOperation(0)]
        if request is not None:
            start[1:1] = [
                cygrpc.SendMessageOperation(request, 0),
                cygrpc.SendCloseFromClientOperation(0),
            ]
        batches = ((start, call.end), ((cygrpc.ReceiveInitialMetadataOperation(0),), call.begin))
        call.handle = self._begin(path, options.deadline, batches)
        return call

    def exchange(
        self,
        path: str,
        options: CallOptions,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """
        Make a unary call.

        The call is one batch, which gives 15,000 calls a second instead of 11,000 with a separate
        batch for the initial metadata. In return, a second response is not read: the call then
        lasts until its deadline, as with grpcio's own client. A read beside the batch is no remedy:
        if the first response has not arrived, grpc core aborts the process.
        """
        batch = (
            _sendStart(options),
            cygrpc.SendMessageOperation(request, 0),
            cygrpc.SendCloseFromClientOperation(0),
            cygrpc.ReceiveInitialMetadataOperation(0),
            cygrpc.ReceiveMessageOperation(0),
            cygrpc.ReceiveStatusOnClientOperation(0),
        )

        def complete(event: Any) -> None:
            _, _, _, start, message, status = event.batch_operations
            self.forget(handle)
            done(
                UnaryResult(
                    status.code(),
                    status.details(),
                    message.message(),
                    start.initial_metadata(),
                    status.trailing_metadata(),
                )
            )

        handle = self._begin(path, options.deadline, ((batch, complete),))
        return lambda: _cancel(handle)

    def _begin(self, path: str, deadline: float | None, batches: Any) -> Any:
        """Start a call on the channel."""
        if self.isClosed:
            raise ClientClosedError("the client is closed")
        # The flags control what a call inherits from its parent call; this one has no parent. The
        # metadata is in its batch; the metadata parameter is only used in error texts.
        handle = self._channel.integrated_call(
            0, path.encode(), None, deadline, None, None, batches
        )
        self._poller.expect(len(batches))
        self._handles.add(handle)
        return handle

    def operate(self, handle: Any, operations: Any, tag: Callable[[Any], None]) -> bool:
        """Start a batch of a call; return whether the call accepted it."""
        if not handle.operate(operations, tag):
            return False
        self._poller.expect(1)
        return True

    def forget(self, handle: Any) -> None:
        """Record that a call has ended."""
        self._handles.discard(handle)

    def close(self) -> Deferred[None]:
        """Cancel the calls in flight; release the connection and the thread."""
        if not self.isClosed:
            self.isClosed = True
            for handle in self._handles:
                _cancel(handle)
            self._poller.stop()
        return self._gone.wait()

    def _wake(self, tag: object) -> None:
        """Create an event on the channel: a call that is cancelled before it sends anything."""
        batch = (_sendStart(CallOptions()), cygrpc.ReceiveStatusOnClientOperation(0))
        _cancel(self._channel.integrated_call(0, b"/", None, None, None, None, ((batch, tag),)))

    def _shut(self) -> None:
        """Close the channel, which has no call in flight. May run in any thread."""
        self._channel.close(cygrpc.StatusCode.cancelled, _CLOSED)


@implementer(IClientCall)
class ChannelCall(ClientCallBase):
    """
    A call over a channel.

    @ivar handle: The channel's own call.
    """

    def __init__(self, engine: ChannelEngine, hasRequest: bool) -> None:
        super().__init__()
        self.handle: Any = None
        self._engine = engine
        self._messages: deque[bytes] = deque()
        self._isSending = False
        self._wantsEnd = False
        self._isEndSent = hasRequest
        self._got: Callable[[bytes | None], object] | None = None

    def send(self, message: bytes) -> bool:
        """Send a message; return whether another message may follow."""
        if self._end.isKnown:
            return False
        self._messages.append(message)
        hasCapacity = self._hold(len(message) + MESSAGE_COST)
        self._sendNext()
        return hasCapacity

    def sendEnd(self) -> None:
        """Send the end of the messages."""
        self._wantsEnd = True
        self._sendNext()

    def _sendNext(self) -> None:
        """Send the next message or the end: gRPC takes one message at a time."""
        if self._isSending or self._isEndSent or self._end.isKnown:
            return
        operations: list[Any] = []
        size = 0
        if self._messages:
            message = self._messages.popleft()
            size = len(message) + MESSAGE_COST
            operations.append(cygrpc.SendMessageOperation(message, 0))
        if self._wantsEnd and not self._messages:
            self._isEndSent = True
            operations.append(cygrpc.SendCloseFromClientOperation(0))
        if operations:
            # A call that does not accept it has ended; its status follows.
            self._isSending = self._engine.operate(
                self.handle, operations, lambda event: self._sent(size)
            )

    def _sent(self, size: int) -> None:
        self._isSending = False
        self._sendNext()
        self._hold(-size)

    def read(self, got: Callable[[bytes | None], object]) -> None:
        """Request the next message."""
        self._got = got
        if not self._engine.operate(
            self.handle, (cygrpc.ReceiveMessageOperation(0),), self._receive
        ):
            self._got = None
            got(None)

    def _receive(self, event: Any) -> None:
        got, self._got = self._got, None
        if got is not None:
            got(event.batch_operations[0].message())

    def begin(self, event: Any) -> None:
        """Receive the initial metadata."""
        self._metadata.set(event.batch_operations[0].initial_metadata())

    def end(self, event: Any) -> None:
        """Receive the status."""
        self._engine.forget(self.handle)
        status = event.batch_operations[-1]
        self._messages.clear()
        self._ended(status.code(), status.details(), status.trailing_metadata())

    def cancel(self) -> None:
        """Cancel the call."""
        _cancel(self.handle)


def _cancel(handle: Any) -> None:
    """Cancel a call; do nothing if it has ended."""
    handle.cancel(cygrpc.StatusCode.cancelled, CANCELLED_MESSAGE)


def _sendStart(options: CallOptions) -> Any:
    flags = _WAIT_FOR_READY if options.waitForReady else 0
    return cygrpc.SendInitialMetadataOperation(callMetadata(options), flags)
