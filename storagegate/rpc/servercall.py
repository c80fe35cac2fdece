"""
One call of grpcio's server, without a thread, a task or a future of its own.

What grpc core asks of its users: at most one message is on its way in each direction of a call, no
operation is started after the status or once the queue is shut down, and each call is asked once
for its close, which may be together with the status. Operations are started here, in the reactor
thread; each names the method that takes its completion.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

from grpc._cython import cygrpc
from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.rpc.wire import IServerCall, Metadata, Traffic

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
    traffic: Traffic

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
