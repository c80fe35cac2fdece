"""
gRPC on the wire by grpcio: its server, driven without its own Python layer.

C{grpc.server} keeps a thread for each open call and C{grpc.aio} a task; both make several objects
with locks or futures for each message. Here a call is one object whose operations are started by
the reactor thread and whose completions come over L{the bridge<storagegate.rpc.bridge>}. The names
are those of C{grpc._cython.cygrpc}, which both of grpcio's own servers are written on; it has kept
them since 2018, but does not promise to, so L{checkLibrary} looks at them before anything starts.

What grpc core asks of its users: at most one message is on its way in each direction of a call, no
operation is started after the status or once the queue is shut down, and each call is asked once
for its close, which may be together with the status.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from grpc._cython import cygrpc
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.rpc.bridge import NOTHING, CompletionPump
from storagegate.rpc.wire import IServerCall, IServerEngine, Metadata

_REQUESTED_CALLS = 64
"""How many calls grpcio may hand over before it is asked again: what one turn takes."""

_OUTGOING_MESSAGES = 16
_OUTGOING_BYTES = 64 * 1024
"""
What a call may have waiting for the wire before its producer stops. grpcio itself holds as much
again, and the client's window.
"""

_NO_DEADLINE = 1e10
"""Deadlines after the year 2286 are none: that is how grpcio says so."""

_BUFFER = cygrpc.WriteFlag.buffer_hint
_PLAIN = cygrpc.WriteFlag.no_compress
_TIMEOUT = cygrpc.CompletionType.queue_timeout
_SHUTDOWN = cygrpc.CompletionType.queue_shutdown

_NEW_CALL = object()
_STOPPED = object()

_log = Logger()


def pollQueue(queue: Any) -> Callable[[float | None], Any]:
    """Give a function that asks a completion queue as the pump wants it."""
    ask = queue.poll

    def poll(deadline: float | None) -> Any:
        event = ask(deadline)
        kind = event.completion_type
        if kind == _TIMEOUT:
            return NOTHING
        return None if kind == _SHUTDOWN else event

    return poll


@implementer(IServerCall)
class _ServerCall:
    """One call, see L{IServerCall}."""

    __slots__ = (
        "_call",
        "_cancelled",
        "_engine",
        "_final",
        "_got",
        "_hasBegun",
        "_inbox",
        "_isAtEnd",
        "_isGone",
        "_isReading",
        "_isSending",
        "_isWatched",
        "_outgoing",
        "_outgoingBytes",
        "_readAhead",
        "_room",
        "deadline",
        "isOver",
        "metadata",
        "path",
    )

    def __init__(self, engine: "GrpcioServer", event: Any) -> None:
        self._engine = engine
        self._call = event.call
        details = event.call_details
        self.path: str = details.method.decode("utf-8", "replace")
        self.metadata: Metadata = event.invocation_metadata
        deadline = details.deadline
        self.deadline: float | None = deadline if deadline < _NO_DEADLINE else None
        self.isOver = False
        self._isGone = self._isWatched = self._hasBegun = self._isAtEnd = False
        self._isReading = self._isSending = False
        self._readAhead = 0
        self._got: Callable[[bytes | None], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        self._inbox: deque[bytes] = deque()
        self._outgoing: deque[tuple[bytes, int]] = deque()
        self._outgoingBytes = 0
        self._room: Deferred[None] | None = None
        self._final: tuple[int, str, Metadata] | None = None

    def peer(self) -> str:
        """Give the client's address."""
        return unquote(self._call.peer().decode("utf-8", "replace"))

    def authContext(self) -> dict[str, list[bytes]]:
        """Give what TLS knows of the client."""
        context = cygrpc.auth_context(self._call) or {}
        return {key.decode("utf-8", "replace"): list(values) for key, values in context.items()}

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Ask for the client's next message."""
        if self._inbox:
            message = self._inbox.popleft()
            self._fetch()
            got(message)
        elif self._isAtEnd:
            got(None)
        elif not self._isGone:
            self._got = got
            self._readAhead = ahead
            self._fetch()

    def _fetch(self) -> None:
        if self._isReading or self._isAtEnd or self._isGone:
            return
        if len(self._inbox) < self._readAhead or self._got is not None:
            self._isReading = True
            self._start((cygrpc.ReceiveMessageOperation(0),), self._received)

    def _received(self, event: Any) -> None:
        self._isReading = False
        if self._isGone:
            return
        message = event.batch_operations[0].message()
        got, self._got = self._got, None
        if message is None:
            self._isAtEnd = True
        else:
            if got is None:
                self._inbox.append(message)
            self._fetch()
        if got is not None:
            got(message)

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Have a function called if the call ends before it is finished."""
        self._cancelled = cancelled
        if not self._isWatched:
            self._isWatched = True
            self._start((cygrpc.ReceiveCloseOnServerOperation(0),), self._closed)

    def _closed(self, event: Any) -> None:
        cancelled, self._cancelled = self._cancelled, None
        if not event.batch_operations[0].cancelled():
            return
        wasOver = self.isOver
        self._give()
        if cancelled is not None and not wasOver:
            cancelled()

    def _give(self) -> None:
        """Let go of everything: nobody is there any more."""
        self._isGone = self.isOver = True
        self._got = None
        self._outgoing.clear()
        self._inbox.clear()
        self._makeRoom()

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        if self._hasBegun or self.isOver:
            return
        self._hasBegun = True
        self._start((cygrpc.SendInitialMetadataOperation(tuple(metadata), 0),), _ignore)

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        if self.isOver:
            return False
        self._outgoing.append((message, 0 if compress else _PLAIN))
        self._outgoingBytes += len(message)
        if not self._isSending:
            self._sendNext()
        return self._hasRoom()

    def _hasRoom(self) -> bool:
        return len(self._outgoing) < _OUTGOING_MESSAGES and self._outgoingBytes < _OUTGOING_BYTES

    def drained(self) -> Deferred[None]:
        """Wait until there is room for a message."""
        waiting: Deferred[None] = Deferred(self._stopWaiting)
        if self.isOver or self._hasRoom():
            waiting.callback(None)
        else:
            self._room = waiting
        return waiting

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._room = None

    def _makeRoom(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _sendNext(self) -> None:
        """Send what waits: a message, the status, or the last message together with it."""
        operations: list[Any] = []
        if not self._hasBegun:
            self._hasBegun = True
            operations.append(cygrpc.SendInitialMetadataOperation((), 0))
        if self._outgoing:
            message, flags = self._outgoing.popleft()
            self._outgoingBytes -= len(message)
            if self._outgoing:
                # grpc core need not wait for the wire between this one and the next.
                flags |= _BUFFER
            operations.append(cygrpc.SendMessageOperation(message, flags))
        if self._final is not None and not self._outgoing:
            self._addStatus(operations)
            self._start(operations, _ignore)
            return
        self._isSending = True
        self._start(operations, self._sent)

    def _addStatus(self, operations: list[Any]) -> None:
        status, message, trailers = self._final or (0, "", ())
        operations.append(cygrpc.SendStatusFromServerOperation(trailers, status, message, 0))
        if not self._isWatched:
            self._isWatched = True
            operations.append(cygrpc.ReceiveCloseOnServerOperation(0))

    def _sent(self, event: Any) -> None:
        self._isSending = False
        if not event.success and not self._isGone:
            self._give()
        if self._isGone:
            return
        if self._outgoing or self._final is not None:
            self._sendNext()
        if self._room is not None and self._hasRoom():
            self._makeRoom()

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        if self.isOver:
            return
        self.isOver = True
        self._final = (0, "", trailers)
        self._outgoing.append((message, 0 if compress else _PLAIN))
        if not self._isSending:
            self._sendNext()

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent."""
        if self.isOver:
            return
        self.isOver = True
        self._final = (status, message, trailers)
        if not self._isSending:
            self._sendNext()
        self._makeRoom()

    def _start(self, operations: Sequence[Any], tag: Callable[[Any], object]) -> None:
        if not self._engine.isDown:
            self._call.start_server_batch(operations, tag)


def _ignore(event: Any) -> None:
    """Take note that something was sent after which nothing comes."""


@implementer(IServerEngine)
class GrpcioServer:
    """
    A server of grpc core, see L{IServerEngine}.

    @ivar isDown: Whether its queue is shut down, so that nothing may be started any more.
    """

    def __init__(self, reactor: Any, arguments: Sequence[tuple[str, Any]]) -> None:
        """
        @param reactor: Where calls are accepted.
        @param arguments: The channel arguments of grpc core.
        """
        checkLibrary()
        self.isDown = False
        self._reactor = reactor
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(tuple(arguments), False)
        self._server.register_completion_queue(self._queue)
        self._pump = CompletionPump(
            reactor, pollQueue(self._queue), self._process, self._ended, "storagegate-grpc"
        )
        self._accept: Callable[[Any], object] | None = None
        self._isStopping = self._hasEnded = False
        self._waiting: list[Deferred[None]] = []
        self._grace: Any = None
        self._trigger: Any = None

    def bind(self, address: str, credentials: Any = None) -> int:
        """
        Open a port.

        @param address: C{host:port}, C{[::1]:port} or C{unix:path}.
        @param credentials: C{grpc.ServerCredentials}; C{None} for none.
        @return: The port.
        @raise CannotListenError: If it cannot be had.
        """
        host, _, port = address.rpartition(":")
        try:
            if credentials is None:
                bound = self._server.add_http2_port(address.encode())
            else:
                bound = self._server.add_http2_port(address.encode(), credentials._credentials)
        except RuntimeError as error:
            raise CannotListenError(host, port, error) from error
        if not bound:
            raise CannotListenError(host, port, OSError("the address is taken or is none"))
        return int(bound)

    def start(self, accept: Callable[[Any], object]) -> None:
        """Begin to accept calls."""
        self._accept = accept
        self._server.start()
        for _ in range(_REQUESTED_CALLS):
            self._server.request_call(self._queue, self._queue, _NEW_CALL)
        self._pump.start()
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def discard(self) -> None:
        """Let go of everything, where L{start} was never called. Takes no time to speak of."""
        # grpc core lets go of ports only by starting and stopping.
        self._server.start()
        self._server.shutdown(self._queue, _STOPPED)
        while self._queue.poll().tag is not _STOPPED:
            pass
        self.isDown = True
        self._queue.shutdown()
        while self._queue.poll().completion_type != _SHUTDOWN:
            pass
        self._server.destroy()

    def _leave(self) -> Deferred[None]:
        """
        Stop with the reactor, if nobody else does.

        A queue that nobody empties any more keeps the process from ending. Whoever stops this
        server himself, with a grace, does so in the same turn.
        """
        done: Deferred[None] = Deferred()
        self._reactor.callLater(0, lambda: self._stopped(0).chainDeferred(done))
        return done

    def stop(self, graceSeconds: float) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel those that have not after the grace."""
        if not self._isStopping:
            self._isStopping = True
            self._server.shutdown(self._queue, _STOPPED)
            self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        elif self._grace is not None and self._grace.active():
            sooner = self._reactor.seconds() + graceSeconds
            if sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        return self._whenStopped()

    def _stopped(self, graceSeconds: float) -> Deferred[None]:
        """Wait for the end that somebody has begun, or begin it."""
        return self._whenStopped() if self._isStopping else self.stop(graceSeconds)

    def _whenStopped(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self._hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def _cancelCalls(self) -> None:
        if not self.isDown:
            self._server.cancel_all_calls()

    def _process(self, event: Any) -> None:
        tag = event.tag
        if tag is _NEW_CALL:
            if event.success and self._accept is not None:
                if not self._isStopping:
                    self._server.request_call(self._queue, self._queue, _NEW_CALL)
                self._accept(_ServerCall(self, event))
        elif tag is _STOPPED:
            self.isDown = True
            self._queue.shutdown()
        else:
            tag(event)

    def _ended(self) -> None:
        self._server.destroy()
        self._hasEnded = True
        if self._grace.active():
            self._grace.cancel()
        # The reactor may be shutting down, and has taken it already.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)


def checkLibrary() -> None:
    """
    Look whether grpcio has what this file is written on.

    @raise ImportError: If it has not, with the version.
    """
    needed = (
        "CompletionQueue",
        "Server",
        "ReceiveMessageOperation",
        "ReceiveCloseOnServerOperation",
        "SendInitialMetadataOperation",
        "SendMessageOperation",
        "SendStatusFromServerOperation",
        "WriteFlag",
        "auth_context",
    )
    missing = [name for name in needed if not hasattr(cygrpc, name)]
    if missing:
        import grpc

        raise ImportError(f"grpcio {grpc.__version__} has no {', '.join(missing)}")
