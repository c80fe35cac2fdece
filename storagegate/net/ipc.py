"""
Messages between a supervisor and its workers, over a pair of UNIX sockets: frames of four bytes of
length, most significant first, and a JSON object, whose C{kind} is one of::

    supervisor to worker            worker to supervisor
    setup     see WorkerSetup       ready
    enter                           left
    retire    idleGraceSeconds       failed   reason
    say       topic, payload        say      topic, payload
    ask       id, topic, payload    answer   id, value
    told      id, values            ask      id, topic, payload
    ping                            pong
    stop

What only one process can read at a time, such as the datagrams of a stream, is read by the worker
that was there before, until that sends C{left}; then its successor gets C{enter}.

A worker that reads the end of the stream has lost its supervisor, and stops in order.

Nothing here is kept or repeated: a process that is not there when a message is sent misses it.
"""

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

MAX_FRAME = 16 * 1024 * 1024
"""Bytes of one message: the counts of a busy worker are some hundred kilobytes."""

MAX_WAITING = 4 * MAX_FRAME
"""Bytes that wait for a process that does not read, until it does or is killed a minute later."""

CONTROL = 3
"""The descriptor that a worker finds its end of the pair at: the first after the standard ones."""

Message = dict[str, Any]


@frozen
class WorkerSetup:
    """
    The first message to a worker.

    @ivar index: Which of the workers it is, from 0; its successor has the same.
    @ivar count: How many workers there are.
    @ivar places: Where each listener is, by name.
    @ivar memory: Descriptors of memory that all share, by name.
    @ivar options: What else the program wants it to know.
    @ivar isNext: Whether another worker of its index is there, which it has to wait for.
    """

    index: int
    count: int
    places: Mapping[str, str]
    memory: Mapping[str, int]
    options: Mapping[str, Any] = field(factory=dict)
    isNext: bool = False


def encode(message: Mapping[str, Any]) -> bytes:
    """
    Write a frame.

    @param message: Values that JSON can carry, by name.
    """
    body = json.encode(message)
    return struct.pack("!I", len(body)) + body


def setupMessage(setup: WorkerSetup) -> Message:
    """
    Make the message that begins a worker.

    @param setup: Its attributes become the fields of the message.
    """
    return {"kind": "setup", **asdict(setup)}


def readSetup(message: Message) -> WorkerSetup:
    """
    Read it.

    @param message: The first message to a worker; its C{kind} is removed.
    @raise ValueError: If it is another message.
    """
    if message.pop("kind") != "setup":
        raise ValueError("the first message to a worker is its setup")
    return WorkerSetup(**message)


def readBlocking(control: socket.socket) -> Message | None:
    """
    Read one message before the reactor runs.

    @return: C{None} if the other side is gone.
    @raise TimeoutError: If it does not come within the socket's time.
    """
    head = _readExactly(control, 4)
    if head is None:
        return None
    (length,) = struct.unpack("!I", head)
    body = _readExactly(control, min(length, MAX_FRAME))
    return None if body is None else json.decode(body)


def _readExactly(control: socket.socket, count: int) -> bytes | None:
    received = b""
    while len(received) < count:
        data = control.recv(count - len(received))
        if not data:
            return None
        received += data
    return received


@implementer(IPushProducer)
class ControlProtocol(Int32StringReceiver):
    """
    One side of the pair.

    While the other side does not read, up to L{MAX_WAITING} bytes wait; further messages are lost,
    for a process that has stopped must not fill the memory of another.
    """

    _log = Logger()

    MAX_LENGTH = MAX_FRAME

    def __init__(self, received: Callable[[Message], object], lost: Callable[[], object]) -> None:
        """
        @param received: Is given each message.
        @param lost: Is called when the other side is gone.
        """
        self._received = received
        self._lost = lost
        self._isPaused = False
        self._waiting: deque[bytes] = deque()
        self._waitingBytes = 0
        self._isFull = False

    def connectionMade(self) -> None:
        """Begin to learn whether the other side reads."""
        transport: Any = self.transport
        transport.registerProducer(self, True)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Does nothing if the other side is gone."""
        if self.transport is None:
            return
        frame = encode(message)
        if not self._isPaused:
            self.transport.write(frame)
        elif self._waitingBytes + len(frame) <= MAX_WAITING:
            self._waiting.append(frame)
            self._waitingBytes += len(frame)
        elif not self._isFull:
            self._isFull = True
            self._log.warn("a process of this daemon does not read: messages to it are lost")

    def pauseProducing(self) -> None:
        """Let what is sent wait."""
        self._isPaused = True

    def resumeProducing(self) -> None:
        """Send what has waited."""
        self._isPaused = self._isFull = False
        while self._waiting and not self._isPaused and self.transport is not None:
            frame = self._waiting.popleft()
            self._waitingBytes -= len(frame)
            self.transport.write(frame)

    def stopProducing(self) -> None:
        """Do nothing: L{connectionLost} follows."""

    def stringReceived(self, string: bytes) -> None:
        """Take a message."""
        try:
            message = json.decode(string)
        except DecodeError:
            assert self.transport is not None
            self.transport.loseConnection()
            return
        self._received(message)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Take note that the other side is gone."""
        self._lost()


def adopt(reactor: Any, control: socket.socket, protocol: ControlProtocol) -> None:
    """Read and write by the reactor from now on; the socket object is closed."""
    factory = Factory.forProtocol(lambda: protocol)
    reactor.adoptStreamConnection(control.fileno(), socket.AF_UNIX, factory)
    control.close()


_log = Logger()


class WorkerIPC:
    """
    A worker's side of the pair.

    @ivar setup: The first message of the supervisor.
    @ivar control: The protocol, for the reactor to read by.
    @ivar retired: Called with seconds of patience when another process takes the worker's place.
    @ivar stopped: Called when everything stops, and when the supervisor is gone.
    @ivar isWaiting: Whether another worker still reads what only one process can.
    @ivar entered: Called when it does so no more.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.control = ControlProtocol(self._received, self._lost)
        self.retired: Callable[[float], object] = lambda idleGraceSeconds: None
        self.stopped: Callable[[], object] = lambda: None
        self.isWaiting = setup.isNext
        self.entered: Callable[[], object] = lambda: None
        self._subscribers: dict[str, list[Callable[[Any], object]]] = {}
        self._answers: dict[str, Callable[[Any], Any]] = {}
        self._questions: dict[int, Deferred[list[Any]]] = {}
        self._ids = count()

    @property
    def index(self) -> int:
        """Return the index of this worker, from 0."""
        return self.setup.index

    @property
    def count(self) -> int:
        """Return the number of workers."""
        return self.setup.count

    @property
    def memory(self) -> Mapping[str, int]:
        """Return the descriptors of memory that all share, by name."""
        return self.setup.memory

    def broadcast(self, topic: str, payload: Any) -> None:
        """
        Send a message to every other worker.

        @param topic: Only subscribers of the same topic are called.
        @param payload: Any value that JSON can carry.
        """
        self.control.send({"kind": "say", "topic": topic, "payload": payload})

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """
        Register a function for the messages of the other workers on a topic.

        @param topic: The same text as in L{broadcast} of the others.
        @param callback: Called with the payload of each message, in the reactor thread.
        """
        self._subscribers.setdefault(topic, []).append(callback)

    def ask(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """
        Ask every worker, this one included.

        @param topic: Selects the function that L{answer} has registered in each worker.
        @param payload: Any value that JSON can carry.
        @return: The answers of those that answer within a second, in no order.
        """
        question = next(self._ids)
        told: Deferred[list[Any]] = Deferred()
        self._questions[question] = told
        self.control.send({"kind": "ask", "id": question, "topic": topic, "payload": payload})
        return told

    def answer(self, topic: str, callback: Callable[[Any], Any]) -> None:
        """
        Call a function for this worker's answer to questions of a topic.

        @param topic: A text; a later function for the same topic replaces this one.
        @param callback: Called with the payload of the question; returns what JSON can carry.
        """
        self._answers[topic] = callback

    def ready(self) -> None:
        """Report to the supervisor that this worker serves."""
        self.control.send({"kind": "ready"})

    def leave(self) -> None:
        """Report to the supervisor that this worker reads no more what only one process can."""
        self.control.send({"kind": "left"})

    def _received(self, message: Message) -> None:
        kind = message["kind"]
        if kind == "say":
            for callback in self._subscribers.get(message["topic"], ()):
                try:
                    callback(message["payload"])
                except Exception:
                    _log.failure("what another worker said of {topic}", topic=message["topic"])
        elif kind == "ask":
            self._reply(message)
        elif kind == "told":
            told = self._questions.pop(message["id"], None)
            if told is not None and not told.called:
                told.callback(message["values"])
        elif kind == "ping":
            self.control.send({"kind": "pong"})
        elif kind == "enter":
            self.isWaiting = False
            self.entered()
        elif kind == "stop":
            self.stopped()
        elif kind == "retire":
            self.retired(message["idleGraceSeconds"])

    def _reply(self, message: Message) -> None:
        answer = self._answers.get(message["topic"])
        if answer is None:
            return
        try:
            value = answer(message["payload"])
            self.control.send({"kind": "answer", "id": message["id"], "value": value})
        except Exception:
            _log.failure(
                "no answer to what another worker asked of {topic}", topic=message["topic"]
            )

    def _lost(self) -> None:
        questions, self._questions = self._questions, {}
        for told in questions.values():
            if not told.called:
                told.callback([])
        self.stopped()
