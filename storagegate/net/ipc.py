"""
Messages between a supervisor and its workers, over a pair of UNIX sockets. A frame is a four-byte
big-endian length and a JSON object whose C{kind} is one of::

    supervisor to worker            worker to supervisor
    setup     see WorkerSetup       ready
    enter                           left
    retire    idleGraceSeconds       failed   reason
    say       topic, payload        say      topic, payload
    ask       id, topic, payload    reply    id, value
    replies   id, values            ask      id, topic, payload
                                    request  id, topic, payload
    ping                            pong
    stop

Exclusive input, which only one process can read at a time, such as the datagrams of a stream, is
read by the predecessor of a worker until it sends C{left}; then its successor receives C{enter}.

A worker that reads the end of the stream has lost its supervisor, and stops gracefully.

Messages are not stored or repeated: a process that is not running misses them.
"""

import signal
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from attrs import asdict, field, frozen
from msgspec import DecodeError, json
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.net.process import setParentDeathSignal

MAX_FRAME = 16 * 1024 * 1024
"""Maximum number of bytes of a message: the metrics of a busy worker take a few hundred
kilobytes."""

MAX_SENT = MAX_FRAME - 1024
"""Maximum number of bytes of a message from a worker: the supervisor forwards it with another
id."""

MAX_WAITING = 4 * MAX_FRAME
"""Maximum number of bytes buffered for a process that does not read, until it does or is killed a
minute later."""

CONTROL = 3
"""The descriptor of a worker's end of the pair: the first after the standard streams."""

Message = dict[str, Any]


@frozen
class WorkerSetup:
    """
    The first message to a worker.

    @ivar index: The index of the worker, from 0; its successor has the same.
    @ivar count: The number of workers.
    @ivar places: The address of each listener, by name.
    @ivar memory: Descriptors of shared memory, by name.
    @ivar options: Values of the program.
    @ivar isNext: Whether another worker with the same index still reads, so that this one has to
        wait.
    """

    index: int
    count: int
    places: Mapping[str, str]
    memory: Mapping[str, int]
    options: Mapping[str, Any] = field(factory=dict)
    isNext: bool = False


def encode(message: Mapping[str, Any]) -> bytes:
    """
    Encode a frame.

    @param message: Values that JSON can represent, by name.
    """
    body = json.encode(message)
    return struct.pack("!I", len(body)) + body


def setupMessage(setup: WorkerSetup) -> Message:
    """Make the first message to a worker: the fields of its setup."""
    return {"kind": "setup", **asdict(setup)}


def readSetup(message: Message) -> WorkerSetup:
    """
    Read the first message to a worker, whose C{kind} is removed.

    @raise ValueError: If it is another message.
    """
    if message.pop("kind") != "setup":
        raise ValueError("the first message to a worker is its setup")
    return WorkerSetup(**message)


def readBlocking(control: socket.socket) -> Message | None:
    """
    Read one message before the reactor runs.

    @param control: A blocking socket without a timeout.
    @return: C{None} if the other side has closed.
    """
    head = control.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("!I", head)
    body = control.recv(min(length, MAX_FRAME), socket.MSG_WAITALL)
    return json.decode(body) if len(body) == length else None


def receiveSetup() -> tuple[socket.socket, WorkerSetup]:
    """
    Receive the setup of this process, a worker that has just begun to run.

    Until the reactor reads the control socket, the death of the supervisor kills this process. An
    import may block forever; without its supervisor the process would keep the sockets and the
    data.

    @return: The control socket, and the setup.
    @raise SystemExit: If no supervisor has started this process, or it has ended.
    """
    control = socket.socket(fileno=CONTROL)
    setParentDeathSignal(signal.SIGKILL)
    message = readBlocking(control)
    if message is None or _isAlone(control):
        raise SystemExit("storagegate: only the supervisor can start a worker")
    return control, readSetup(message)


def _isAlone(control: socket.socket) -> bool:
    """Return whether the supervisor has ended; this does not consume data from the connection."""
    try:
        return not control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False


@implementer(IPushProducer)
class ControlProtocol(Int32StringReceiver):
    """
    One side of the pair.

    While the other side does not read, up to L{MAX_WAITING} bytes are buffered and further messages
    are dropped, so that a stopped process does not exhaust another's memory.
    """

    _log = Logger()

    MAX_LENGTH = MAX_FRAME

    def __init__(
        self,
        received: Callable[[Message], object],
        lost: Callable[[], object],
        limit: int = MAX_FRAME,
    ) -> None:
        """
        @param received: Called with each message.
        @param lost: Called when the other side has closed.
        @param limit: Maximum number of bytes of a sent message.
        """
        self._received = received
        self._lost = lost
        self._limit = limit
        self._isPaused = False
        self._waiting: deque[bytes] = deque()
        self._waitingBytes = 0
        self._isFull = False

    def connectionMade(self) -> None:
        """Register for back pressure."""
        transport: Any = self.transport
        transport.registerProducer(self, True)

    def send(self, message: Mapping[str, Any]) -> None:
        """
        Send a message. Does nothing if the other side has closed.

        @raise ValueError: The message is too large: it would end the connection.
        """
        if self.transport is None:
            return
        frame = encode(message)
        if len(frame) > self._limit:
            text = f"a message to other processes has {len(frame)} bytes, more than {self._limit}"
            raise ValueError(text)
        if not self._isPaused:
            self.transport.write(frame)
        elif self._waitingBytes + len(frame) <= MAX_WAITING:
            self._waiting.append(frame)
            self._waitingBytes += len(frame)
        elif not self._isFull:
            self._isFull = True
            self._log.warn("a process of this daemon does not read its messages, which are lost")

    def pauseProducing(self) -> None:
        """Buffer messages."""
        self._isPaused = True

    def resumeProducing(self) -> None:
        """Send buffered messages."""
        self._isPaused = self._isFull = False
        while self._waiting and not self._isPaused and self.transport is not None:
            frame = self._waiting.popleft()
            self._waitingBytes -= len(frame)
            self.transport.write(frame)

    def stopProducing(self) -> None:
        """Do nothing: L{connectionLost} follows."""

    def stringReceived(self, string: bytes) -> None:
        """Process a message."""
        try:
            message = json.decode(string)
        except DecodeError:
            assert self.transport is not None
            self.transport.loseConnection()
            return
        self._received(message)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Report the end of the other side."""
        self._lost()


def adopt(reactor: Any, control: socket.socket, protocol: ControlProtocol) -> None:
    """Let the reactor read and write from now on; the socket object is closed."""
    factory = Factory.forProtocol(lambda: protocol)
    reactor.adoptStreamConnection(control.fileno(), socket.AF_UNIX, factory)
    control.close()


_log = Logger()


class WorkerIPC:
    """
    A worker's side of the pair.

    @ivar index: The index of this worker, from 0.
    @ivar count: The number of workers.
    @ivar memory: The descriptors of shared memory, by name.
    @ivar control: The protocol for the reactor.
    @ivar retired: Called with the grace for idle connections in seconds when another process takes
        the worker's place.
    @ivar stopped: Called when everything stops, or the supervisor has ended.
    @ivar isWaiting: Whether another worker still reads exclusive input.
    @ivar entered: Called when the other worker has stopped reading it.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.index = setup.index
        self.count = setup.count
        self.memory = setup.memory
        self.control = ControlProtocol(self._received, self._lost, MAX_SENT)
        self.retired: Callable[[float], object] = lambda idleGraceSeconds: None
        self.stopped: Callable[[], object] = lambda: None
        self.isWaiting = setup.isNext
        self.entered: Callable[[], object] = lambda: None
        self._subscribers: dict[str, list[Callable[[Any], object]]] = {}
        self._answers: dict[str, Callable[[Any], Any]] = {}
        self._questions: dict[int, Deferred[list[Any]]] = {}
        self._ids = count()

    def broadcast(self, topic: str, payload: Any) -> None:
        """
        Send a message to every other worker.

        @param topic: Only subscribers of the same topic are called.
        @param payload: Any value that JSON can represent.
        @raise ValueError: The message has more than L{MAX_SENT} bytes.
        """
        self.control.send({"kind": "say", "topic": topic, "payload": payload})

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """
        Register a function for the messages of the other workers on a topic.

        @param topic: The topic that the other workers pass to L{broadcast}.
        @param callback: Called with the payload of each message, in the reactor thread.
        """
        self._subscribers.setdefault(topic, []).append(callback)

    def ask(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """
        Ask every worker, including this one.

        @param topic: Selects the function registered with L{answer} in each worker.
        @param payload: Any value that JSON can represent.
        @return: The replies received within a second, in no particular order.
        @raise ValueError: The question has more than L{MAX_SENT} bytes.
        """
        return self._ask("ask", topic, payload)

    def askSupervisor(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """
        Ask the supervisor.

        @param payload: Any value that JSON can represent.
        @return: A list of the reply; an empty list if the supervisor has ended.
        @raise ValueError: The question has more than L{MAX_SENT} bytes.
        """
        return self._ask("request", topic, payload)

    def answer(self, topic: str, callback: Callable[[Any], Any]) -> None:
        """
        Register a function that replies to questions on a topic.

        @param topic: The topic; a later function for the same topic replaces this one.
        @param callback: Called with the payload of the question; returns a value that JSON can
            represent.
        """
        self._answers[topic] = callback

    def ready(self) -> None:
        """Report to the supervisor that this worker serves."""
        self.control.send({"kind": "ready"})

    def leave(self) -> None:
        """Report to the supervisor that this worker no longer reads exclusive input."""
        self.control.send({"kind": "left"})

    def _ask(self, kind: str, topic: str, payload: Any) -> Deferred[list[Any]]:
        number = next(self._ids)
        replies: Deferred[list[Any]] = Deferred()
        self._questions[number] = replies
        try:
            self.control.send({"kind": kind, "id": number, "topic": topic, "payload": payload})
        except Exception:
            del self._questions[number]
            raise
        return replies

    def _received(self, message: Message) -> None:
        kind, topic = message["kind"], message.get("topic", "")
        if kind == "say":
            for callback in self._subscribers.get(topic, ()):
                try:
                    callback(message["payload"])
                except Exception:
                    _log.failure("a subscriber of {topic} failed", topic=topic)
        elif kind == "ask":
            if (answer := self._answers.get(topic)) is not None:
                try:
                    value = answer(message["payload"])
                    self.control.send({"kind": "reply", "id": message["id"], "value": value})
                except Exception:
                    _log.failure("a question about {topic} got no reply", topic=topic)
        elif kind == "replies":
            replies = self._questions.pop(message["id"], None)
            if replies is not None and not replies.called:
                replies.callback(message["values"])
        elif kind == "ping":
            self.control.send({"kind": "pong"})
        elif kind == "enter":
            self.isWaiting = False
            self.entered()
        elif kind == "stop":
            self.stopped()
        elif kind == "retire":
            self.retired(message["idleGraceSeconds"])

    def _lost(self) -> None:
        questions, self._questions = self._questions, {}
        for replies in questions.values():
            if not replies.called:
                replies.callback([])
        self.stopped()
