"""
What a worker knows of the others: it can tell them something, and ask them all.

Nothing here is kept or repeated: who is away when something is said does not hear of it.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from storagegate.net.workerwire import ControlProtocol, Message, WorkerSetup

_log = Logger()


class WorkerLink:
    """
    A worker's side of the pair.

    @ivar setup: What the worker was told at its start.
    @ivar control: The protocol, for the reactor to read by.
    @ivar retired: Called with seconds of patience when another process takes the worker's place.
    @ivar stopped: Called when everything stops, and when the supervisor is gone.
    @ivar isWaiting: Whether another worker still reads what only one process can.
    @ivar entered: Called when it does so no more.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.control = ControlProtocol(self._received, self._lost)
        self.retired: Callable[[float], object] = lambda patienceSeconds: None
        self.stopped: Callable[[], object] = lambda: None
        self.isWaiting = setup.isNext
        self.entered: Callable[[], object] = lambda: None
        self._subscribers: dict[str, list[Callable[[Any], object]]] = {}
        self._answers: dict[str, Callable[[Any], Any]] = {}
        self._questions: dict[int, Deferred[list[Any]]] = {}
        self._ids = count()

    @property
    def index(self) -> int:
        """Tell which of the workers this is, from 0."""
        return self.setup.index

    @property
    def count(self) -> int:
        """Tell how many workers there are."""
        return self.setup.count

    @property
    def memory(self) -> Mapping[str, int]:
        """Give the descriptors of memory that all share, by name."""
        return self.setup.memory

    def broadcast(self, topic: str, payload: Any) -> None:
        """Tell every other worker something that JSON can carry."""
        self.control.send({"kind": "say", "topic": topic, "payload": payload})

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """Have a function called with what the others say of a topic."""
        self._subscribers.setdefault(topic, []).append(callback)

    def ask(self, topic: str, payload: Any = None) -> Deferred[list[Any]]:
        """
        Ask every worker, this one included.

        @return: The answers of those that answer within a second, in no order.
        """
        question = next(self._ids)
        told: Deferred[list[Any]] = Deferred()
        self._questions[question] = told
        self.control.send({"kind": "ask", "id": question, "topic": topic, "payload": payload})
        return told

    def answer(self, topic: str, callback: Callable[[Any], Any]) -> None:
        """Have a function give this worker's answer when somebody asks of a topic."""
        self._answers[topic] = callback

    def ready(self) -> None:
        """Tell the supervisor that this worker serves."""
        self.control.send({"kind": "ready"})

    def leave(self) -> None:
        """Tell the supervisor that this worker reads no more what only one process can."""
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
            self.retired(message["patienceSeconds"])

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
