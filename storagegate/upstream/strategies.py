"""
Whose turn it is among the instances of a service.

A strategy knows no network: it gets those that may be chosen and names one of them. What it
remembers of each, it keeps by the instance's id as long as that is in the set, so that a change of
the set does not begin the order anew for those that stay.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """
    What can be chosen.

    @ivar active: Calls that it has in flight.
    """

    @property
    def id(self) -> str:
        """Name it."""

    @property
    def weight(self) -> int:
        """Tell its share."""

    @property
    def active(self) -> int:
        """Count its calls in flight."""


C = TypeVar("C", bound=Candidate)


class Strategy(Protocol):
    """An order of instances."""

    def choose(self, candidates: Sequence[C]) -> C:
        """Choose one of at least one."""

    def keep(self, ids: Collection[str]) -> None:
        """Forget whoever is not among these."""


class _Turns:
    """Who had the last turn, and who waits longest."""

    def __init__(self) -> None:
        self._turn = 0
        self._turns: dict[str, int] = {}

    def since(self, candidate: Candidate) -> int:
        """Give a number that is the smaller the longer somebody waits."""
        return self._turns.get(candidate.id, 0)

    def take(self, chosen: C) -> C:
        """Take note of a turn."""
        self._turn += 1
        self._turns[chosen.id] = self._turn
        return chosen

    def keep(self, ids: Collection[str]) -> None:
        """Forget whoever is not among these."""
        self._turns = {id: turn for id, turn in self._turns.items() if id in ids}


class RoundRobin:
    """One after the other: whoever waits longest is next."""

    def __init__(self) -> None:
        self._turns = _Turns()
        self.keep = self._turns.keep

    def choose(self, candidates: Sequence[C]) -> C:
        """Choose one of at least one."""
        return self._turns.take(min(candidates, key=self._turns.since))


class LeastConnections:
    """Whoever has the fewest calls in flight for its weight; among equals one after the other."""

    def __init__(self) -> None:
        self._turns = _Turns()
        self.keep = self._turns.keep

    def choose(self, candidates: Sequence[C]) -> C:
        """Choose one of at least one."""
        since = self._turns.since
        return self._turns.take(
            min(candidates, key=lambda each: (each.active / each.weight, since(each)))
        )


class Weighted:
    """
    By weight, and smoothly: nobody has its turns all at once.

    Each time everybody gains its weight, and whoever has most is chosen and pays what all gained
    together (U{https://github.com/nginx/nginx/commit/52327e0627f49dbda1e8db695e63a4b0af4448b1}).
    """

    def __init__(self) -> None:
        self._gained: dict[str, int] = {}

    def choose(self, candidates: Sequence[C]) -> C:
        """Choose one of at least one."""
        gained = self._gained
        total = 0
        for each in candidates:
            gained[each.id] = gained.get(each.id, 0) + each.weight
            total += each.weight
        chosen = max(candidates, key=lambda each: gained[each.id])
        gained[chosen.id] -= total
        return chosen

    def keep(self, ids: Collection[str]) -> None:
        """Forget whoever is not among these."""
        self._gained = {id: gained for id, gained in self._gained.items() if id in ids}


STRATEGIES: Mapping[str, Callable[[], Strategy]] = MappingProxyType(
    {
        "round_robin": RoundRobin,
        "least_connections": LeastConnections,
        "weighted": Weighted,
    }
)
"""The strategies by the names of the options."""
