"""What connects services as the links of workers connect processes."""

import json
from collections.abc import Callable
from typing import Any


class Buses:
    """
    Any number of ends that hear each other.

    @ivar said: What was said and is on its way; L{deliver} takes it there.
    """

    def __init__(self) -> None:
        self.said: list[tuple[Bus, str, str]] = []
        self._ends: list[Bus] = []

    def make(self) -> "Bus":
        """Make one more end."""
        self._ends.append(Bus(self.said))
        return self._ends[-1]

    def deliver(self) -> None:
        """Take everything to the others, in its order."""
        while self.said:
            source, topic, payload = self.said.pop(0)
            for end in self._ends:
                if end is not source:
                    end.hear(topic, json.loads(payload))


class Bus:
    """One end."""

    def __init__(self, said: list[tuple["Bus", str, str]]) -> None:
        self._said = said
        self._callbacks: dict[str, list[Callable[[Any], object]]] = {}

    def broadcast(self, topic: str, payload: Any) -> None:
        """Tell every other end something that JSON can carry."""
        self._said.append((self, topic, json.dumps(payload)))

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """Have a function called with what the others say of a topic."""
        self._callbacks.setdefault(topic, []).append(callback)

    def hear(self, topic: str, payload: Any) -> None:
        """Take what another one says."""
        for callback in self._callbacks.get(topic, ()):
            callback(payload)
