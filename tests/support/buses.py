"""An in-memory substitute for the links between worker processes."""

import json
from collections.abc import Callable
from typing import Any


class Buses:
    """
    Any number of connected ends.

    @ivar said: The messages in flight; L{deliver} delivers them.
    """

    def __init__(self) -> None:
        self.said: list[tuple[Bus, str, str]] = []
        self._ends: list[Bus] = []

    def make(self) -> "Bus":
        """Make another end."""
        self._ends.append(Bus(self.said))
        return self._ends[-1]

    def deliver(self) -> None:
        """Deliver all messages to the other ends, in order."""
        while self.said:
            source, topic, payload = self.said.pop(0)
            for end in self._ends:
                if end is not source:
                    end.hear(topic, json.loads(payload))


class Bus:
    """One end of a bus."""

    def __init__(self, said: list[tuple["Bus", str, str]]) -> None:
        self._said = said
        self._callbacks: dict[str, list[Callable[[Any], object]]] = {}

    def broadcast(self, topic: str, payload: Any) -> None:
        """Broadcast a JSON-compatible message to every other end."""
        self._said.append((self, topic, json.dumps(payload)))

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """Call a function with each message of a topic from other ends."""
        self._callbacks.setdefault(topic, []).append(callback)

    def hear(self, topic: str, payload: Any) -> None:
        """Receive a message from another end."""
        for callback in self._callbacks.get(topic, ()):
            callback(payload)
