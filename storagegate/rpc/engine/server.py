"""
gRPC on the wire by grpcio: its server, driven without its own Python layer.

C{grpc.server} keeps a thread for each open call and C{grpc.aio} a task; both make several objects
with locks or futures for each message. Here a call is one object whose operations are started by
the reactor thread and whose completions come over L{the bridge<storagegate.rpc.engine.queue>}.
The names
are those of C{grpc._cython.cygrpc}, which both of grpcio's own servers are written on; it has kept
them since 2018, but does not promise to, so that L{storagegate.rpc.engine} tries them before
anything starts.

One call of grpcio's server, without a thread, a task or a future of its own.

What grpc core asks of its users: at most one message is on its way in each direction of a call, no
operation is started after the status or once the queue is shut down, and each call is asked once
for its close, which may be together with the status. Operations are started here, in the reactor
thread; each names the method that takes its completion.

How many connections a server of grpcio has, by grpc core's own account of them.

grpc core tells its users of calls, never of connections; but it keeps a book of its servers and
their sockets (channelz, U{https://github.com/grpc/proposal/blob/master/A14-channelz.md}), which
costs nothing while nobody reads it. To read of 1,000 connections takes 1 millisecond.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import unquote

from grpc._cython import cygrpc
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.rpc.engine.queue import NOTHING, CompletionQueuePoller
from storagegate.rpc.interfaces import IServerCall, IServerEngine, MessageByteCounter, Metadata

_OUTGOING_MESSAGES = 16
_OUTGOING_BYTES = 64 * 1024
"""
What a call may have waiting for the wire before its producer stops. grpcio itself holds as much
again, and the client's window. The producer goes on when half of it is gone: to wake it for each
message would cost a third of the time that a stream of small ones takes.
"""

_NO_DEADLINE = 1e10
"""Deadlines after the year 2286 are none: that is how grpcio says so."""

_NO_METADATA = cygrpc.SendInitialMetadataOperation((), 0)
"""One for all calls: it has nothing of any call."""

_BUFFER = cygrpc.WriteFlag.buffer_hint
_PLAIN = cygrpc.WriteFlag.no_compress


class Engine(Protocol):
    """
    What a call asks of its engine.

    @ivar isOpen: Whether operations are started at once.
    @ivar traffic: Counts the bytes of messages.
    """

    isOpen: bool
    traffic: MessageByteCounter

    def hold(self, call: Any, operations: Sequence[Any], tag: Callable[[Any], object]) -> None:
        """Start operations of a call of grpcio later; or never, where nothing is any more."""
        ...

    def putOff(self, call: "ServerCall") -> bool:
        """Have a call asked soon to send what it has; tells if it is not, for nothing goes on."""
        ...


@implementer(IServerCall)
class ServerCall:
    """One call, see L{IServerCall}."""

    __slots__ = (
        "_call",
        "_cancelled",
        "_engine",
        "_final",
        "_got",
        "_hasBegun",
        "_inbox",
        "_initial",
        "_isAtEnd",
        "_isGone",
        "_isReading",
        "_isSending",
        "_isWatched",
        "_mayEnd",
        "_next",
        "_outgoing",
        "_outgoingBytes",
        "_readAhead",
        "_room",
        "_told",
        "deadline",
        "isOver",
        "isRefused",
        "metadata",
        "path",
    )

    def __init__(self, engine: Engine, event: Any) -> None:
        self._engine = engine
        self._call = event.call
        details = event.call_details
        self.path: str = details.method.decode("utf-8", "replace")
        self.metadata: Metadata = event.invocation_metadata
        deadline = details.deadline
        self.deadline: float | None = deadline if deadline < _NO_DEADLINE else None
        self.isOver = self.isRefused = False
        self._told: Callable[[bool], object] | None = None
        self._isGone = self._isWatched = self._hasBegun = self._isAtEnd = False
        self._isReading = self._isSending = self._mayEnd = False
        self._readAhead = 0
        self._initial: tuple[tuple[str, str | bytes], ...] = ()
        self._got: Callable[[bytes | None], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        # Made when a stream needs them: most calls do not, and each takes 600 bytes.
        self._inbox: deque[bytes] | None = None
        self._outgoing: deque[tuple[bytes, int]] | None = None
        self._outgoingBytes = 0
        self._next: tuple[bytes, int] | None = None
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
        if self._got is not None or len(self._inbox or ()) < self._readAhead:
            self._isReading = True
            self._start((cygrpc.ReceiveMessageOperation(0),), self._received)

    def _received(self, event: Any) -> None:
        self._isReading = False
        if self._isGone:
            return
        message = event.batch_operations[0].message()
        if not event.success:
            self.isRefused = True
        if message is None and not self._mayEnd:
            # It looks like this, too, when the client has cancelled, and an upload that was cut
            # must not look like its end. What tells of the cancel comes before a second answer.
            self._mayEnd = self._isReading = True
            self._start((cygrpc.ReceiveMessageOperation(0),), self._received)
            return
        got, self._got = self._got, None
        if message is None:
            self._isAtEnd = True
        else:
            self._engine.traffic.bytesIn += len(message)
            if got is None:
                if self._inbox is None:
                    self._inbox = deque()
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
        if event.batch_operations[0].cancelled():
            self._lose()
        else:
            self._cancelled = None

    def _lose(self) -> None:
        """
        Let go of everything, for nobody is there any more, and say so if the call was unfinished.

        grpc core tells of it in two ways, the close and a message that could not be sent, and
        either one may be the first.
        """
        if self._isGone:
            return
        isFinished = self._final is not None
        self._isGone = self.isOver = True
        self._got = None
        self._next = self._outgoing = self._inbox = None
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None and not isFinished:
            # Before those who wait for room hear of it: whoever is sent on by that has begun to
            # clean up, and would be cancelled in the midst of it.
            cancelled()
        self._makeRoom()

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        if self._hasBegun or self.isOver:
            return
        self._hasBegun = True
        whole = (*self._initial, *metadata)
        self._start((cygrpc.SendInitialMetadataOperation(whole, 0),), _ignore)

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Have initial metadata sent with whatever is sent first."""
        self._initial = (*self._initial, *metadata)

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        if self.isOver:
            return False
        entry = message, 0 if compress else _PLAIN
        if self._isSending:
            if self._outgoing is None:
                self._outgoing = deque()
            self._outgoing.append(entry)
            self._outgoingBytes += len(message)
        else:
            self._next = entry
            # As likely as not another message follows at once, and the two take one system call:
            # of 50,000 messages a second that are echoed, half of the time was such calls.
            self._isSending = self._engine.putOff(self)
            if not self._isSending:
                self._sendNext()
        return self._holdsUnder(_OUTGOING_MESSAGES, _OUTGOING_BYTES)

    def _holdsUnder(self, messages: int, size: int) -> bool:
        return self._outgoingBytes < size and len(self._outgoing or ()) < messages

    def drained(self) -> Deferred[None]:
        """Wait until there is room for a message."""
        waiting: Deferred[None] = Deferred(self._stopWaiting)
        if self.isOver or self._holdsUnder(_OUTGOING_MESSAGES, _OUTGOING_BYTES):
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
        operations = self._beginning()
        entry, self._next = self._next, None
        if entry is None and self._outgoing:
            entry = self._outgoing.popleft()
            self._outgoingBytes -= len(entry[0])
        if entry is not None:
            message, flags = entry
            self._engine.traffic.bytesOut += len(message)
            if self._outgoing and not operations:
                # grpc core need not wait for the wire between this one and the next. With the
                # initial metadata it has to: they are done when they are on the wire.
                flags |= _BUFFER
            operations.append(cygrpc.SendMessageOperation(message, flags))
        if self._final is not None and not self._outgoing:
            self._end(operations, *self._final)
            return
        self._isSending = True
        self._start(operations, self._sent)

    def _beginning(self) -> list[Any]:
        """Give what has to be sent before anything else."""
        if self._hasBegun:
            return []
        self._hasBegun = True
        if self._initial:
            return [cygrpc.SendInitialMetadataOperation(self._initial, 0)]
        return [_NO_METADATA]

    def _end(self, operations: list[Any], status: int, message: str, trailers: Metadata) -> None:
        """Send the status, and the last message with it."""
        operations.append(cygrpc.SendStatusFromServerOperation(trailers, status, message, 0))
        if not self._isWatched:
            self._isWatched = True
            operations.append(cygrpc.ReceiveCloseOnServerOperation(0))
        self._start(operations, _ignore if self._told is None else self._finished)

    def whenClosed(self, told: Callable[[bool], object]) -> None:
        """Have a function called when the call is gone."""
        self._told = told

    def _finished(self, event: Any) -> None:
        told, self._told = self._told, None
        if told is not None:
            # The close is the last operation of the batch that a call which nobody watches ends by.
            told(event.batch_operations[-1].cancelled())

    def sendOn(self) -> None:
        """Send what was put off."""
        self._isSending = False
        if not self._isGone:
            self._sendNext()

    def _sent(self, event: Any) -> None:
        self._isSending = False
        if not event.success:
            self._lose()
        if self._isGone:
            return
        if self._outgoing or self._final is not None:
            self._sendNext()
        if self._room is not None and self._holdsUnder(
            _OUTGOING_MESSAGES // 2, _OUTGOING_BYTES // 2
        ):
            self._makeRoom()

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        if self.isOver:
            return
        self.isOver = True
        self._final = (0, "", trailers)
        self._engine.traffic.bytesOut += len(message)
        operations = self._beginning()
        operations.append(cygrpc.SendMessageOperation(message, 0 if compress else _PLAIN))
        self._end(operations, *self._final)

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
        if self._engine.isOpen:
            self._call.start_server_batch(operations, tag)
        else:
            self._engine.hold(self._call, operations, tag)


def _ignore(event: Any) -> None:
    """Take note that something was sent after which nothing comes."""


COUNTED = ("grpc.enable_channelz", 1)
"""What has a server entered in the book."""

_PAGE = 500
"""Connections that are read at a time: 40 kB of text."""


class ServerConnections:
    """
    Counts the connections of a server, which has no name in the book.

    It is the one that was not there before: this is made, then the server, then L{find} is called.
    """

    def __init__(self) -> None:
        self._others = _servers()
        self._server: int | None = None

    def find(self) -> None:
        """Look which server is new; where another thread has made one as well, nobody knows."""
        found = _servers() - self._others
        if len(found) == 1:
            (self._server,) = found

    def count(self) -> int:
        """Count the connections, of a server that has not been destroyed."""
        if self._server is None:
            return 0
        total = first = 0
        while True:
            page = json.loads(cygrpc.channelz_get_server_sockets(self._server, first, _PAGE))
            sockets = page.get("socketRef", ())
            total += len(sockets)
            if page.get("end") or not sockets:
                return total
            first = int(sockets[-1]["socketId"]) + 1


def _servers() -> set[int]:
    """Give the numbers of all servers of this process."""
    found: set[int] = set()
    while True:
        page: Any = json.loads(cygrpc.channelz_get_servers(max(found, default=0) + 1))
        servers = page.get("server", ())
        found.update(int(each["ref"]["serverId"]) for each in servers)
        if page.get("end") or not servers:
            return found


_REQUESTED_CALLS = 64
"""How many calls grpcio may hand over before it is asked again: what one turn takes."""

_WAITING_CALLS = 3000
"""
How many calls that have come may wait for being asked for: grpc core refuses more. Those that still
wait when it is told to stop it would end as C{CANCELLED}; to ask for so many takes 2 milliseconds.
"""

_TIMEOUT = cygrpc.CompletionType.queue_timeout
_SHUTDOWN = cygrpc.CompletionType.queue_shutdown

_NEW_CALL = object()
_STOPPED = object()


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


@implementer(IServerEngine)
class GrpcioServer:
    """
    A server of grpc core, see L{IServerEngine}.

    @ivar isOpen: Whether operations of calls are started at once.
    @ivar traffic: Counts the bytes of messages.
    """

    _log = Logger()

    def __init__(
        self, reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: MessageByteCounter
    ) -> None:
        """
        @param reactor: Where calls are accepted.
        @param arguments: The channel arguments of grpc core.
        """
        self.isOpen = True
        self.traffic = traffic
        self._reactor = reactor
        self._queue = cygrpc.CompletionQueue()
        self._connections = ServerConnections()
        self._server = cygrpc.Server((*arguments, COUNTED), False)
        self._connections.find()
        self._server.register_completion_queue(self._queue)
        self._pump = CompletionQueuePoller(
            reactor,
            pollQueue(self._queue),
            self._process,
            self._settle,
            self._ended,
            "storagegate-grpc",
        )
        self._unsent: list[ServerCall] = []
        self._accept: Callable[[Any], object] | None = None
        self._isDown = self._isStopping = self._hasEnded = False
        self._held: list[tuple[Any, Sequence[Any], Callable[[Any], object]]] = []
        self._settling: Any = None
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
        self._request(_REQUESTED_CALLS)
        self._pump.start()
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def _request(self, count: int) -> None:
        """Ask for calls."""
        for _ in range(count):
            self._server.request_call(self._queue, self._queue, _NEW_CALL)

    def discard(self) -> None:
        """Let go of everything, where L{start} was never called. Takes no time to speak of."""
        # grpc core lets go of ports only by starting and stopping.
        self._server.start()
        self._server.shutdown(self._queue, _STOPPED)
        while self._queue.poll().tag is not _STOPPED:
            pass
        self._isDown = True
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

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel those that have not after the grace."""
        if self._isStopping:
            self._hurry(graceSeconds)
        elif not settleSeconds:
            self._shutDown(graceSeconds)
        elif self._settling is None:
            # grpc core cancels what comes between its own stop and a client's hearing of it. Most
            # clients that are at work wait for an answer before they ask again.
            self.isOpen = False
            self._settling = self._reactor.callLater(
                settleSeconds, self._shutDown, graceSeconds, settleSeconds
            )
        return self._whenStopped()

    def _shutDown(self, graceSeconds: float, settleSeconds: float = 0.0) -> None:
        self._isStopping = True
        if graceSeconds:
            self._request(_WAITING_CALLS)
        self._server.shutdown(self._queue, _STOPPED)
        self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        if self._settling is not None:
            self._stopSettling()
            self._settling = self._reactor.callLater(settleSeconds, self._release)

    def _hurry(self, graceSeconds: float) -> None:
        """Shorten the grace, or leave it as it is."""
        if self._grace.active():
            sooner = self._reactor.seconds() + graceSeconds
            if sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)

    def hold(self, call: Any, operations: Sequence[Any], tag: Callable[[Any], object]) -> None:
        """Start operations when the server has settled; or never, if it is down."""
        if not self._isDown:
            self._held.append((call, operations, tag))

    def _release(self) -> None:
        """Start what was held."""
        held, self._held = self._held, []
        self.isOpen = not self._isDown
        if self.isOpen:
            for call, operations, tag in held:
                try:
                    call.start_server_batch(operations, tag)
                except Exception:
                    # As where calls are settled; the others go on.
                    self._log.failure("a call could not be answered")

    def _stopSettling(self) -> None:
        if self._settling is not None and self._settling.active():
            self._settling.cancel()

    def _stopped(self, graceSeconds: float) -> Deferred[None]:
        """Wait for the end that somebody has begun, or begin it."""
        hasBegun = self._isStopping or self._settling is not None
        return self._whenStopped() if hasBegun else self.stop(graceSeconds)

    def _whenStopped(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self._hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def connections(self) -> int:
        """Count the connections that are there."""
        return 0 if self._hasEnded else self._connections.count()

    def _cancelCalls(self) -> None:
        if not self._isDown:
            self._server.cancel_all_calls()

    def _process(self, event: Any) -> None:
        tag = event.tag
        if tag is _NEW_CALL:
            if event.success and self._accept is not None:
                if not self._isStopping:
                    self._request(1)
                self._accept(ServerCall(self, event))
        elif tag is _STOPPED:
            self._isDown = True
            self.isOpen = False
            self._queue.shutdown()
        else:
            tag(event)

    def putOff(self, call: ServerCall) -> bool:
        """Have a call asked soon to send what it has; tells if it is not, for nothing goes on."""
        if self._pump.isTaking:
            self._unsent.append(call)
            return True
        return False

    def _settle(self) -> None:
        unsent, self._unsent = self._unsent, []
        for call in unsent:
            try:
                call.sendOn()
            except Exception:
                # Such as trailers that somebody has put past setTrailers; the others go on.
                self._log.failure("{path} could not be answered", path=call.path)

    def _ended(self) -> None:
        self._server.destroy()
        self._hasEnded = True
        if self._grace.active():
            self._grace.cancel()
        self._stopSettling()
        self._held.clear()
        # The reactor may be shutting down, and has taken it already.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
