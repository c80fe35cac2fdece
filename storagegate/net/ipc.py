"""
Messages between a supervisor and its workers, over a pair of UNIX sockets: frames of four bytes of
length, most significant first, and a JSON object, whose C{kind} is one of::

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

What only one process can read at a time, such as the datagrams of a stream, is read by the
predecessor of a worker, until that sends C{left}; then its successor gets C{enter}.

A worker that reads the end of the stream has lost its supervisor, and stops in order.

Nothing is kept or repeated: a process that does not run when a message is sent misses it.
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
"""Bytes held back for a process that does not read, until it does or is killed a minute later."""

CONTROL = 3
"""The descriptor of a worker's end of the pair: the first after the standard ones."""

Message = dict[str, Any]


@frozen
class WorkerSetup:
    """
    The first message to a worker.

    @ivar index: Its index, from 0; its successor has the same.
    @ivar count: The number of workers.
    @ivar places: The address of each listener, by name.
    @ivar memory: Descriptors of memory that all share, by name.
    @ivar options: The program's own values.
    @ivar isNext: Whether another worker of its index still reads; it has to wait for that.
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
    """Make the message that begins a worker: the fields of its setup."""
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

    @param control: A socket that blocks without a limit.
    @return: C{None} if the other side is gone.
    """
    head = control.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("!I", head)
    body = control.recv(min(length, MAX_FRAME), socket.MSG_WAITALL)
    return json.decode(body) if len(body) == length else None


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
        @param received: Called with each message.
        @param lost: Called when the other side is gone.
        """
        self._received = received
        self._lost = lost
        self._isPaused = False
        self._waiting: deque[bytes] = deque()
        self._waitingBytes = 0
        self._isFull = False

    def connectionMade(self) -> None:
        """Register for back pressure."""
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
        """Hold messages back."""
        self._isPaused = True

    def resumeProducing(self) -> None:
        """Send the messages that were held back."""
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
        """Report the end of the other side."""
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

    @ivar index: The index of this worker, from 0.
    @ivar count: The number of workers.
    @ivar memory: The descriptors of shared memory, by name.
    @ivar control: The protocol, for the reactor to read by.
    @ivar retired: Called with seconds of patience when another process takes the worker's place.
    @ivar stopped: Called when everything stops, and when the supervisor is gone.
    @ivar isWaiting: Whether another worker still reads what only one process can.
    @ivar entered: Called when it does so no more.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.index = setup.index
        self.count = setup.count
        self.memory = setup.memory
        self.control = ControlProtocol(self._received, self._lost)
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
        @return: The replies of those that reply within a second, in no order.
        """
        number = next(self._ids)
        replies: Deferred[list[Any]] = Deferred()
        self._questions[number] = replies
        self.control.send({"kind": "ask", "id": number, "topic": topic, "payload": payload})
        return replies

    def askSupervisor(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """
        Ask the supervisor.

        @param payload: Any value that JSON can carry.
        @return: Its reply, alone in a list; an empty list if the supervisor is gone.
        """
        number = next(self._ids)
        replies: Deferred[list[Any]] = Deferred()
        self._questions[number] = replies
        self.control.send({"kind": "request", "id": number, "topic": topic, "payload": payload})
        return replies

    def answer(self, topic: str, callback: Callable[[Any], Any]) -> None:
        """
        Call a function for this worker's reply to questions of a topic.

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
                    _log.failure("a question of {topic} has no reply", topic=topic)
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
