"""
Load-balancing strategies: the order in which the instances of a service get calls.

A strategy chooses one of the candidates. It keeps the state of each instance, by id, as long as the
instance exists, so that a change of the set does not restart the order.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """An instance that can be chosen: id, weight and the number of calls in flight."""

    @property
    def id(self) -> str: ...

    @property
    def weight(self) -> int: ...

    @property
    def active(self) -> int: ...


C = TypeVar("C", bound=Candidate)


class Strategy:
    """
    A load-balancing strategy.

    @ivar state: A number for each instance, by its id.
    """

    def __init__(self) -> None:
        self.state: dict[str, int] = {}

    def choose(self, candidates: Sequence[C]) -> C:
        """
        Choose an instance for a call.

        @param candidates: The instances that may be called now; at least one.
        """
        raise NotImplementedError

    def retain(self, ids: Collection[str]) -> None:
        """
        Remove the state of all other instances.

        @param ids: The ids of the instances that the service still has.
        """
        self.state = {id: number for id, number in self.state.items() if id in ids}


class RoundRobin(Strategy):
    """Chooses the instance whose last call is the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0

    def choose(self, candidates: Sequence[C]) -> C:
        """Choose an instance, and record its turn."""
        chosen = min(candidates, key=self._rank)
        self._turn += 1
        self.state[chosen.id] = self._turn
        return chosen

    def _rank(self, candidate: Candidate) -> tuple[float, int]:
        return 0.0, self.state.get(candidate.id, 0)


class LeastConnections(RoundRobin):
    """
    Chooses the instance with the fewest calls in flight relative to its weight; a tie goes to the
    instance whose last call is the oldest.
    """

    def _rank(self, candidate: Candidate) -> tuple[float, int]:
        return candidate.active / candidate.weight, self.state.get(candidate.id, 0)


class Weighted(Strategy):
    """
    Chooses by weight, smoothly: an instance does not get its calls in one burst.

    Each choice adds the weight of every instance to its sum; the instance with the highest sum is
    chosen, and the total of the weights is subtracted from its sum
    (U{https://github.com/nginx/nginx/commit/52327e0627f49dbda1e8db695e63a4b0af4448b1}).
    """

    def choose(self, candidates: Sequence[C]) -> C:
        """Choose an instance, and update the sums."""
        gained = self.state
        for each in candidates:
            gained[each.id] = gained.get(each.id, 0) + each.weight
        chosen = max(candidates, key=lambda each: gained[each.id])
        gained[chosen.id] -= sum(each.weight for each in candidates)
        return chosen


STRATEGIES: Mapping[str, Callable[[], Strategy]] = MappingProxyType(
    {"round_robin": RoundRobin, "least_connections": LeastConnections, "weighted": Weighted}
)
"""The strategies by their names in the options."""
