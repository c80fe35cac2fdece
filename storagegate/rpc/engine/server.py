"""
The server's engine on grpc core, without grpcio's own Python layer.

C{grpc.server} keeps a thread for each open call, and C{grpc.aio} a task; both create several
objects with locks or futures for each message. Here, a call is one object whose operations the
reactor thread starts; L{CompletionQueuePoller} delivers their completions. The engine uses
C{grpc._cython.cygrpc}, as both of grpcio's own servers do. Its names have been stable since 2018
but are private, so L{storagegate.rpc.engine} checks them first.

Rules of grpc core: at most one message of a call is in flight in each direction; no operation
starts after the status or once the queue is shut down; and the close of each call is requested
exactly once, possibly together with the status.

grpc core reports calls, not connections. But it keeps statistics of its servers and their sockets
(channelz, U{https://github.com/grpc/proposal/blob/master/A14-channelz.md}), which cost nothing
until they are read. Reading the statistics of 1,000 connections takes 1 ms.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from attrs import define, field
from grpc._cython import cygrpc
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.net.scheduling import SLICE_SECONDS
from storagegate.net.tls import ServerTLSOptions
from storagegate.rpc.credentials import GRPCCertificates
from storagegate.rpc.engine.base import OUTGOING_BYTES, OUTGOING_MESSAGES
from storagegate.rpc.interfaces import IServerCall, IServerEngine, MessageByteCounter, Metadata

_log = Logger()

_EVENTS_PER_ITERATION = 64
"""
How many events to process before the reactor serves other sources: a few milliseconds of work.
"""

_TIMED_EVENTS = 16
"""The number of events between two checks of the clock."""

_TIMEOUT = cygrpc.CompletionType.queue_timeout
_SHUTDOWN = cygrpc.CompletionType.queue_shutdown


def _lockedLock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@define(eq=False)
class CompletionQueuePoller:
    """
    Delivers the events of a completion queue to the reactor.

    A thread waits for the first event and passes it to the reactor, which also processes all
    following events without waiting; when none is left, the thread waits again. A busy server thus
    rarely switches threads, and the two never poll at the same time. On one core, this gives 27,000
    calls a second; a thread switch for each event gives 22,000, and C{grpc.aio} 4,200.

    @ivar reactor: Provides C{IReactorFromThreads} and C{IReactorTime}.
    @ivar poll: Returns the queue's next event, whose C{tag} is called with the event in the reactor
        thread. The event has no tag at the deadline, or once the queue is shut down. Waits forever
        if the deadline is C{None}. Called in either thread, never in both at once.
    @ivar settle: Called in the reactor thread to run the operations that tags delayed: when no
        event is left, and after a time slice or C{_EVENTS_PER_ITERATION} events. Returns whether
        some remain for the next iteration.
    @ivar ended: Called in the reactor thread when the queue is shut down and empty.
    @ivar name: The name of the thread.
    @ivar isTaking: Whether the reactor is processing events, so that C{settle} is called soon.
    @ivar end: The end of this iteration's time slice, by the reactor's clock.
    """

    reactor: Any
    poll: Callable[[float | None], Any]
    settle: Callable[[], object]
    ended: Callable[[], object]
    name: str
    isTaking: bool = False
    end: float = 0.0
    _isOpen: bool = True
    # Locked while the thread may not poll.
    _resumed: threading.Lock = field(factory=_lockedLock)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. Must run in the reactor thread."""
        self._thread = threading.Thread(target=self._wait, name=self.name, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        """Wait for events. Runs in the poller's own thread."""
        while self._isOpen:
            event = self.poll(None)
            self.reactor.callFromThread(self._take, event)
            # A reference to the event would keep its call alive during the next poll.
            del event
            self._resumed.acquire()

    def _take(self, event: Any) -> None:
        """Process an event and all following ones. Runs in the reactor thread."""
        poll, seconds = self.poll, self.reactor.seconds
        self.isTaking = True
        self.end = seconds() + SLICE_SECONDS
        for number in range(1, _EVENTS_PER_ITERATION + 1):
            if number % _TIMED_EVENTS == 0 and seconds() >= self.end:
                break
            tag = event.tag
            if tag is None:
                if event.completion_type != _TIMEOUT:
                    self._end()
                    return
                isLeft = self.settle()
                # Delayed operations may have produced events.
                event = poll(0)
                if event.tag is not None:
                    continue
                if isLeft:
                    break
                if event.completion_type == _TIMEOUT:
                    self.isTaking = False
                    self._resumed.release()
                    return
                continue
            try:
                tag(event)
            except BaseException:
                # Including SystemExit, which the reactor would also only log: without the following
                # events, all calls would hang.
                _log.failure("an event of grpcio could not be handled")
            event = tag = None
            event = poll(0)
        self.settle()
        self.isTaking = False
        self.reactor.callLater(0, self._take, event)

    def _end(self) -> None:
        self._isOpen = self.isTaking = False
        self._resumed.release()
        if self._thread is not None:
            self._thread.join()
        self.ended()


_NO_DEADLINE = 1e10
"""In seconds since 1970 (year 2286): grpcio reports a missing deadline as a later time."""

_ReceiveClose = cygrpc.ReceiveCloseOnServerOperation
_ReceiveMessage = cygrpc.ReceiveMessageOperation
_SendMessage = cygrpc.SendMessageOperation
_SendStatus = cygrpc.SendStatusFromServerOperation

_NO_METADATA = cygrpc.SendInitialMetadataOperation((), 0)
_OK = _SendStatus((), 0, "", 0)
_CLOSE = _ReceiveClose(0)
"""
Operations shared by all calls without metadata that succeed and are not watched. Their only
per-call state is whether the call was cancelled, which is not read for such calls. Creating the
three took 2,800 of the 200,000 instructions of a call.
"""

_BUFFER = cygrpc.WriteFlag.buffer_hint
_PLAIN = cygrpc.WriteFlag.no_compress


@implementer(IServerCall)
class ServerCall:
    """A call of a server, see L{IServerCall}."""

    __slots__ = (
        "_call",
        "_cancelled",
        "_drained",
        "_engine",
        "_final",
        "_got",
        "_hasBegun",
        "_inbox",
        "_initial",
        "_isAtEnd",
        "_isGone",
        "_isPutOff",
        "_isReading",
        "_isSending",
        "_isWatched",
        "_mayEnd",
        "_next",
        "_onClosed",
        "_outgoing",
        "_outgoingBytes",
        "_readAhead",
        "deadline",
        "isOver",
        "isRefused",
        "metadata",
        "path",
    )

    countsBytes = False

    def __init__(self, engine: "GrpcioServer", event: Any) -> None:
        self.isOver = self.isRefused = False
        self._isGone = self._hasBegun = self._isAtEnd = False
        self._initial: tuple[tuple[str, str | bytes], ...] = ()
        self._got: Callable[[bytes | None], object] | None = None
        self._cancelled: Callable[[], object] | None = None
        self._onClosed: Callable[[bool], object] | None = None
        self._drained: Deferred[None] | None = None
        self._engine = engine
        self._call = event.call
        details = event.call_details
        self.path = details.method.decode("utf-8", "replace")
        self.metadata: Metadata = event.invocation_metadata
        deadline = details.deadline
        self.deadline: float | None = deadline if deadline < _NO_DEADLINE else None
        self._isWatched = self._isReading = self._isSending = self._mayEnd = False
        self._isPutOff = False
        self._readAhead = self._outgoingBytes = 0
        # Created when a stream needs them: most calls do not, and each takes 600 bytes.
        self._inbox: deque[bytes] | None = None
        self._outgoing: deque[tuple[bytes, int]] | None = None
        self._next: tuple[bytes, int] | None = None
        self._final: tuple[int, str, Metadata] | None = None

    def peer(self) -> str:
        """Return the client's address."""
        peer = self._call.peer().decode("utf-8", "replace")
        return unquote(peer) if "%" in peer else peer

    def authContext(self) -> dict[str, list[bytes]]:
        """Return the properties of the TLS peer."""
        context = cygrpc.auth_context(self._call) or {}
        return {key.decode("utf-8", "replace"): list(values) for key, values in context.items()}

    def read(self, got: Callable[[bytes | None], object], ahead: int = 0) -> None:
        """Request the client's next message."""
        inbox = self._inbox
        if inbox:
            message = inbox.popleft()
            if not self._isReading:
                self._fetch()
            got(message)
        elif self._isAtEnd:
            got(None)
        elif not self._isGone:
            self._got = got
            self._readAhead = ahead
            if ahead and inbox is None:
                self._inbox = deque()
            if not self._isReading:
                self._fetch()

    def takeMessage(self) -> bytes | None:
        """Return a message that has arrived."""
        if not self._inbox:
            return None
        message = self._inbox.popleft()
        if not self._isReading:
            self._fetch()
        return message

    def _fetch(self) -> None:
        """Request a message from grpc core; only one request is outstanding."""
        if not (self._isAtEnd or self._isGone):
            self._isReading = True
            self._start((_ReceiveMessage(0),), self._received)

    def _received(self, event: Any) -> None:
        self._isReading = False
        if self._isGone:
            return
        message = event.batch_operations[0].message()
        if not event.success:
            self.isRefused = True
        inbox = self._inbox
        if message is None:
            if not self._mayEnd:
                # A cancelled call looks the same, and a truncated upload must not look complete.
                # The notice of a cancellation arrives before a second completion.
                self._mayEnd = True
                self._fetch()
                return
            self._isAtEnd = True
        else:
            self._engine.traffic.bytesIn += len(message)
            if inbox is not None:
                inbox.append(message)
                if len(inbox) < self._readAhead:
                    self._fetch()
                # More messages often follow, and the reader then wakes once for all of them.
                if self._got is not None and not self._isPutOff:
                    self._isPutOff = self._engine.putOff(self)
                    if not self._isPutOff:
                        self._deliver()
                return
        got = self._got
        if got is not None and not inbox:
            self._got = None
            got(message)

    def readEnd(self, done: Callable[[bool], object]) -> None:
        """Wait for the end of the client's messages."""
        self._start(
            (_ReceiveMessage(0),), lambda event: done(event.batch_operations[0].message() is None)
        )

    def _deliver(self) -> None:
        """Pass the first waiting message to the reader."""
        got, inbox = self._got, self._inbox
        if got is not None and inbox:
            self._got = None
            message = inbox.popleft()
            if not self._isReading:
                self._fetch()
            got(message)

    def watch(self, cancelled: Callable[[], object]) -> None:
        """Register a function to be called if the call ends before it is finished."""
        self._cancelled = cancelled
        if not self._isWatched:
            self._isWatched = True
            self._start((_ReceiveClose(0),), self._closed)

    def _closed(self, event: Any) -> None:
        if event.batch_operations[0].cancelled():
            self._lose()
        else:
            self._cancelled = None

    def _dropMessages(self) -> None:
        self._next = self._outgoing = self._inbox = None

    def sendMetadata(self, metadata: Metadata) -> None:
        """Send the initial metadata now."""
        if self._hasBegun or self.isOver:
            return
        self._hasBegun = True
        whole = (*self._initial, *metadata)
        self._start((cygrpc.SendInitialMetadataOperation(whole, 0),), _ignore)

    def send(self, message: bytes, compress: bool = True) -> bool:
        """Send a message."""
        if self.isOver:
            return False
        outgoing = self._outgoing
        if not self._isSending:
            self._next = message, 0 if compress else _PLAIN
            # Another message often follows synchronously, and the two then take one system call.
            # When echoing 50,000 messages a second, half of the time was system calls.
            self._isSending = True
            if not self._isPutOff:
                self._isPutOff = self._engine.putOff(self)
                if not self._isPutOff:
                    self._sendNext()
            return True
        if outgoing is None:
            outgoing = self._outgoing = deque()
        outgoing.append((message, 0 if compress else _PLAIN))
        self._outgoingBytes += len(message)
        return len(outgoing) < OUTGOING_MESSAGES and self._outgoingBytes < OUTGOING_BYTES

    def _hasCapacity(self, share: int = 1) -> bool:
        """Return whether the unsent messages are below C{1 / share} of the limits."""
        waiting = len(self._outgoing or ())
        return waiting < OUTGOING_MESSAGES // share and (
            self._outgoingBytes < OUTGOING_BYTES // share
        )

    def _sendNext(self) -> None:
        """Send the next message, the status, or the last message together with the status."""
        entry, self._next = self._next, None
        outgoing = self._outgoing
        if entry is None and outgoing:
            entry = outgoing.popleft()
            self._outgoingBytes -= len(entry[0])
        operations = [] if self._hasBegun else self._beginning()
        if entry is not None:
            message, flags = entry
            self._engine.traffic.bytesOut += len(message)
            if outgoing and not operations:
                # grpc core need not flush between this message and the next. With the initial
                # metadata it must, because they complete when they are written.
                flags |= _BUFFER
            operations.append(_SendMessage(message, flags))
        if self._final is not None and not outgoing:
            self._end(operations, *self._final)
            return
        self._isSending = True
        self._start(operations, self._sent)

    def _beginning(self) -> list[Any]:
        """Return the operation that sends the initial metadata."""
        self._hasBegun = True
        if self._initial:
            return [cygrpc.SendInitialMetadataOperation(self._initial, 0)]
        return [_NO_METADATA]

    def _end(self, operations: list[Any], status: int, message: str, trailers: Metadata) -> None:
        """Send the status, and the last message with it."""
        isPlain = status == 0 and not (message or trailers)
        operations.append(_OK if isPlain else _SendStatus(trailers, status, message, 0))
        onClosed = self._onClosed
        if not self._isWatched:
            self._isWatched = True
            operations.append(_CLOSE if onClosed is None else _ReceiveClose(0))
        self._start(operations, _ignore if onClosed is None else self._finished)

    def _finished(self, event: Any) -> None:
        # In the batch that ends an unwatched call, the close is the last operation.
        self._notifyClosed(event.batch_operations[-1].cancelled())

    def sendOn(self) -> bool:
        """
        Run the delayed steps of L{GrpcioServer.putOff}: deliver a received message, and send.

        @return: Whether a message was delivered.
        """
        hasRead = self._got is not None and bool(self._inbox)
        if hasRead:
            # Messages that its reader sends now go out at the end of this method.
            self._deliver()
        self._isPutOff = False
        if self._next is not None and not self._isGone:
            self._sendNext()
        return hasRead

    def _sent(self, event: Any) -> None:
        if not event.success:
            self._lose()
        if self._isGone:
            return
        if self._outgoing or self._final is not None:
            self._sendNext()
        else:
            self._isSending = False
        if self._drained is not None and self._hasCapacity(2):
            self._resumeProducer()

    def reply(self, message: bytes, trailers: Metadata = (), compress: bool = True) -> None:
        """Send the only message and finish."""
        if self.isOver:
            return
        self.isOver = True
        self._engine.traffic.bytesOut += len(message)
        operations = [] if self._hasBegun else self._beginning()
        operations.append(_SendMessage(message, 0 if compress else _PLAIN))
        self._end(operations, 0, "", trailers)

    def finish(self, status: int, message: str = "", trailers: Metadata = ()) -> None:
        """End the call, after the messages that were sent."""
        if self.isOver:
            return
        self.isOver = True
        self._final = (status, message, trailers)
        if not self._isSending:
            self._sendNext()
        self._resumeProducer()

    def _lose(self) -> None:
        """
        Clean up after a client has disconnected; notify the watcher if the call was unfinished.
        """
        if self._isGone:
            return
        wasFinished = self.isOver
        self._isGone = self.isOver = True
        self._dropMessages()
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None and not wasFinished:
            # Before a producer that waits for capacity resumes: otherwise it would be cancelled
            # during its cleanup.
            cancelled()
        got, self._got = self._got, None
        if got is not None:
            # A reader outside the handler may still wait.
            got(None)
        self._resumeProducer()

    def _notifyClosed(self, isCancelled: bool) -> None:
        onClosed, self._onClosed = self._onClosed, None
        if onClosed is not None:
            onClosed(isCancelled)

    def whenClosed(self, closed: Callable[[bool], object]) -> None:
        """Register a function to be called when the call is closed."""
        self._onClosed = closed

    def prepareMetadata(self, metadata: Metadata) -> None:
        """Add initial metadata that is sent with the first operation."""
        self._initial = (*self._initial, *metadata)

    def drained(self) -> Deferred[None]:
        """Wait until another message may be sent."""
        if self.isOver or self._hasCapacity():
            return succeed(None)
        self._drained = Deferred(self._stopWaiting)
        return self._drained

    def _stopWaiting(self, waiting: Deferred[None]) -> None:
        self._drained = None

    def _resumeProducer(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.callback(None)

    def _start(self, operations: Sequence[Any], tag: Callable[[Any], object]) -> None:
        if self._engine.isOpen:
            self._call.start_server_batch(operations, tag)
        else:
            self._engine.hold(self._call.start_server_batch, operations, tag)


def _ignore(event: Any) -> None:
    """Ignore the completion of an operation that needs no follow-up."""


_WAITING_CALLS = 3000
"""
How many calls may wait for the reactor; more are refused. Calls that still wait in grpc core when
the server stops would end as C{CANCELLED}, so all of them are requested then, which takes 2 ms.
"""

_REQUESTED_CALLS = 64
"""How many calls grpc core may hand over before more are requested: the calls of one iteration."""


_CHANNELZ = ("grpc.enable_channelz", 1)

_PAGE = 500
"""How many connections to read at a time, as 40 kB of text."""


@implementer(IServerEngine)
class GrpcioServer:
    """
    A server of grpc core, see L{IServerEngine}.

    A stop has these steps: settle, accept no more calls, grace, cancel. grpc core cancels calls
    that arrive between its own stop and the moment when the client learns of it. Most busy clients
    wait for a response before they call again. So responses are held for a while before and after
    the stop: the server settles.

    @ivar traffic: Counts the bytes of messages.
    @ivar certificates: The TLS certificates; C{None} without TLS.
    @ivar isOpen: Whether operations of calls start at once; otherwise they go to L{hold}.
    @ivar isStopping: Whether no more calls are accepted.
    @ivar hasEnded: Whether all calls, ports and threads have ended.
    """

    def __init__(
        self, reactor: Any, arguments: Sequence[tuple[str, Any]], traffic: MessageByteCounter
    ) -> None:
        """
        @param reactor: Provides C{IReactorFromThreads}, C{IReactorTime} and C{IReactorCore}.
        """
        self.traffic = traffic
        self.certificates: GRPCCertificates | None = None
        self.isOpen = True
        self.isStopping = self.hasEnded = False
        self._reactor = reactor
        self._accept: Callable[[Any], object] | None = None
        self._isClosed = False
        self._held: list[tuple[Callable[..., object], Any]] = []
        self._settling: Any = None
        self._grace: Any = None
        self._trigger: Any = None
        self._waiting: list[Deferred[None]] = []
        self._queue = cygrpc.CompletionQueue()
        others = _channelzServers()
        self._server = cygrpc.Server((*arguments, _CHANNELZ), False)
        found = _channelzServers() - others
        # If another thread has created a server meanwhile, the two cannot be told apart.
        self._channelzID = found.pop() if len(found) == 1 else None
        self._server.register_completion_queue(self._queue)
        self._poller = CompletionQueuePoller(
            reactor, self._queue.poll, self._settle, self._ended, "storagegate-grpc"
        )
        self._delayed: deque[ServerCall] = deque()
        self._isDown = False

    def _addPort(self, address: str, credentials: Any) -> int:
        secure = () if credentials is None else (credentials._credentials,)
        return int(self._server.add_http2_port(address.encode(), *secure))

    def bind(self, address: str, tls: ServerTLSOptions | None = None) -> int:
        """Open a port."""
        host, _, port = address.rpartition(":")
        credentials = None
        if tls is not None:
            self.certificates = GRPCCertificates(tls)
            credentials = self.certificates.credentials()
        try:
            bound = self._addPort(address, credentials)
        except RuntimeError as error:
            raise CannotListenError(host, port, error) from error
        if not bound:
            raise CannotListenError(host, port, OSError("the address is taken or invalid"))
        return bound

    def _stopWithReactor(self) -> None:
        """Stop when the reactor stops: the server's thread would keep the process running."""
        self._trigger = self._reactor.addSystemEventTrigger("before", "shutdown", self._leave)

    def _leave(self) -> Deferred[None]:
        """Stop, but let a stop with a grace in the same iteration go first."""
        done: Deferred[None] = Deferred()

        def stop() -> None:
            hasBegun = self.isStopping or self._settling is not None
            (self._whenEnded() if hasBegun else self.stop(0)).chainDeferred(done)

        self._reactor.callLater(0, stop)
        return done

    def stop(self, graceSeconds: float, settleSeconds: float = 0.0) -> Deferred[None]:
        """Accept nothing more, let calls end, and cancel the remaining calls after the grace."""
        if self.isStopping:
            sooner = self._reactor.seconds() + graceSeconds
            if self._grace.active() and sooner < self._grace.getTime():
                self._grace.reset(graceSeconds)
        elif not settleSeconds:
            self._beginStop(graceSeconds, 0.0)
        elif self._settling is None:
            self.isOpen = False
            self._settling = self._reactor.callLater(
                settleSeconds, self._beginStop, graceSeconds, settleSeconds
            )
        return self._whenEnded()

    def _beginStop(self, graceSeconds: float, settleSeconds: float) -> None:
        self.isStopping = True
        self._shutDown(graceSeconds)
        self._grace = self._reactor.callLater(graceSeconds, self._cancelCalls)
        if self._settling is not None:
            self._stopTimer(self._settling)
            self._settling = self._reactor.callLater(settleSeconds, self._release)

    def _whenEnded(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        if self.hasEnded:
            done.callback(None)
        else:
            self._waiting.append(done)
        return done

    def _stopTimer(self, timer: Any) -> None:
        if timer is not None and timer.active():
            timer.cancel()

    def hold(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function when the server has settled; drop it if the engine is closed."""
        if not self._isClosed:
            self._held.append((function, arguments))

    def _release(self) -> None:
        held, self._held = self._held, []
        self.isOpen = not self._isClosed
        for function, arguments in held:
            try:
                function(*arguments)
            except Exception:
                # The other calls still get their responses.
                _log.failure("a response could not be sent")

    def _closeOperations(self) -> None:
        """Drop all held and further operations: the engine is closed."""
        self._isClosed = True
        self.isOpen = False
        self._held.clear()

    def _finishStop(self) -> None:
        """Fire the Deferreds of L{stop}: all calls, ports and threads have ended."""
        self.hasEnded = True
        self._stopTimer(self._grace)
        self._stopTimer(self._settling)
        self._closeOperations()
        # A reactor that is shutting down has already removed it.
        with suppress(KeyError, ValueError):
            self._reactor.removeSystemEventTrigger(self._trigger)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)

    def start(self, accept: Callable[[Any], object]) -> None:
        """Start accepting calls."""
        self._accept = accept
        self._server.start()
        self._request(_REQUESTED_CALLS)
        self._poller.start()
        self._stopWithReactor()

    def _request(self, count: int) -> None:
        """Request calls from grpc core."""
        for _ in range(count):
            self._server.request_call(self._queue, self._queue, self._accepted)

    def discard(self) -> None:
        """Release everything if L{start} was never called. Does not wait for the network."""
        # grpc core closes ports only by starting and stopping.
        self._server.start()
        self._server.shutdown(self._queue, self._stopped)
        while self._queue.poll().tag != self._stopped:
            pass
        self._queue.shutdown()
        while self._queue.poll().completion_type != _SHUTDOWN:
            pass
        self._server.destroy()

    def _shutDown(self, graceSeconds: float) -> None:
        if graceSeconds:
            self._request(_WAITING_CALLS)
        self._server.shutdown(self._queue, self._stopped)

    def _cancelCalls(self) -> None:
        if not self._isDown:
            self._server.cancel_all_calls()

    def connections(self) -> int:
        """Count the open connections."""
        if self._channelzID is None or self.hasEnded:
            return 0
        total = first = 0
        while True:
            page = json.loads(cygrpc.channelz_get_server_sockets(self._channelzID, first, _PAGE))
            sockets = page.get("socketRef", ())
            total += len(sockets)
            if page.get("end") or not sockets:
                return total
            first = int(sockets[-1]["socketId"]) + 1

    def _accepted(self, event: Any) -> None:
        """Accept a call from grpc core."""
        if event.success and self._accept is not None:
            if not self.isStopping:
                self._server.request_call(self._queue, self._queue, self._accepted)
            self._accept(ServerCall(self, event))

    def _stopped(self, event: Any) -> None:
        """Finish the shutdown: grpc core accepts no more calls, and none remains."""
        self._isDown = True
        self._closeOperations()
        self._queue.shutdown()

    def putOff(self, call: ServerCall) -> bool:
        """
        Call L{ServerCall.sendOn} at the end of the current batch of events.

        @return: Whether a batch is in progress; otherwise nothing is called.
        """
        if self._poller.isTaking:
            self._delayed.append(call)
            return True
        return False

    def _settle(self) -> bool:
        """Run delayed calls until the time slice ends; return whether some remain."""
        delayed, seconds, end = self._delayed, self._reactor.seconds, self._poller.end
        while delayed:
            call = delayed.popleft()
            try:
                hasRead = call.sendOn()
            except Exception:
                # For example, invalid trailers that bypassed setTrailers. The other calls continue.
                _log.failure("{path} got no response", path=call.path)
                continue
            if hasRead and delayed and seconds() >= end:
                return True
        return False

    def _ended(self) -> None:
        self._server.destroy()
        self._finishStop()


def _channelzServers() -> set[int]:
    """Return the channelz numbers of all servers of this process."""
    found: set[int] = set()
    while True:
        page: Any = json.loads(cygrpc.channelz_get_servers(max(found, default=0) + 1))
        servers = page.get("server", ())
        found.update(int(each["ref"]["serverId"]) for each in servers)
        if page.get("end") or not servers:
            return found
