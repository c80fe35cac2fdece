"""Whose turn it is."""

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.strategies import (
    STRATEGIES,
    LeastConnections,
    RoundRobin,
    Strategy,
    Weighted,
)
from tests.support.balancing import Candidate


def turns(strategy: Strategy, candidates: list[Candidate], count: int) -> str:
    """Give who had the turns."""
    return "".join(strategy.choose(candidates).id for _ in range(count))


class RoundRobinTests(SynchronousTestCase):
    """One after the other."""

    def test_order(self) -> None:
        """Everybody has a turn before anybody has two."""
        self.assertEqual(turns(RoundRobin(), [Candidate(id) for id in "abc"], 7), "abcabca")

    def test_absent(self) -> None:
        """An instance that could not be chosen for a while is next, and does not catch up."""
        a, b, c = (Candidate(id) for id in "abc")
        strategy = RoundRobin()
        self.assertEqual(turns(strategy, [a, b], 4), "abab")
        self.assertEqual(turns(strategy, [a, b, c], 4), "cabc")

    def test_change(self) -> None:
        """The order continues for those that stay when another one goes."""
        a, b, c = (Candidate(id) for id in "abc")
        strategy = RoundRobin()
        self.assertEqual(turns(strategy, [a, b, c], 2), "ab")
        strategy.retain({"b", "c"})
        self.assertEqual(turns(strategy, [b, c], 3), "cbc")

    def test_keep(self) -> None:
        """An instance that returns is a new one: the state of those that are gone is removed."""
        a, b = Candidate("a"), Candidate("b")
        strategy = RoundRobin()
        self.assertEqual(turns(strategy, [a, b], 1), "a")
        strategy.retain({"b"})
        self.assertEqual(turns(strategy, [a, b], 1), "a")


class LeastConnectionsTests(SynchronousTestCase):
    """The one with the least to do."""

    def test_least(self) -> None:
        """The instance with the fewest calls is next."""
        candidates = [Candidate("a", active=2), Candidate("b", active=1), Candidate("c", active=3)]
        self.assertEqual(turns(LeastConnections(), candidates, 2), "bb")

    def test_ties(self) -> None:
        """Equals have turns one after the other."""
        candidates = [Candidate(id, active=1) for id in "abc"]
        self.assertEqual(turns(LeastConnections(), candidates, 6), "abcabc")

    def test_weights(self) -> None:
        """Who has twice the weight has twice the calls before it counts as equal."""
        candidates = [Candidate("a", weight=2, active=3), Candidate("b", active=2)]
        self.assertEqual(turns(LeastConnections(), candidates, 1), "a")
        candidates[0].active = 5
        self.assertEqual(turns(LeastConnections(), candidates, 1), "b")


class WeightedTests(SynchronousTestCase):
    """By weight."""

    def test_smooth(self) -> None:
        """The turns of the heaviest are spread over the round."""
        candidates = [Candidate("a", 5), Candidate("b"), Candidate("c")]
        self.assertEqual(turns(Weighted(), candidates, 7), "aabacaa")

    def test_change(self) -> None:
        """The sum of an instance stays its own when others go or come."""
        a, b = Candidate("a", 3), Candidate("b", 1)
        strategy = Weighted()
        self.assertEqual(turns(strategy, [a, b], 2), "aa")
        strategy.retain({"a", "b", "c"})
        self.assertEqual(turns(strategy, [a, b], 2), "ba")


class ShareTests(SynchronousTestCase):
    """What everybody gets in the long run."""

    @given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
    def test_weights(self, weights: list[int]) -> None:
        """A round is as many turns as there is weight; in it everybody has as many as its own."""
        candidates = [Candidate(str(at), weight) for at, weight in enumerate(weights)]
        strategy = Weighted()
        for _ in range(2):
            found = Counter(strategy.choose(candidates).id for _ in range(sum(weights)))
            self.assertEqual([found[each.id] for each in candidates], weights)

    def test_tenThousand(self) -> None:
        """Of 10,000 calls each instance gets what its weight says, within 5 %."""
        for name, weights in (
            ("weighted", {"a": 5, "b": 3, "c": 2}),
            ("weighted", {"a": 100, "b": 10, "c": 1}),
            ("round_robin", {"a": 1, "b": 1, "c": 1}),
            ("least_connections", {"a": 1, "b": 1, "c": 1}),
            ("least_connections", {"a": 3, "b": 2, "c": 1}),
        ):
            candidates = [Candidate(id, weight) for id, weight in weights.items()]
            strategy = STRATEGIES[name]()
            found: Counter[str] = Counter()
            # Sixty calls in flight, of which the oldest ends when another one begins.
            flying: deque[Candidate] = deque()
            for _ in range(10_000):
                if len(flying) == 60:
                    flying.popleft().active -= 1
                chosen = strategy.choose(candidates)
                found[chosen.id] += 1
                chosen.active += 1
                flying.append(chosen)
            for id, weight in weights.items():
                expected = 10_000 * weight / sum(weights.values())
                self.assertLessEqual(abs(found[id] - expected), expected * 0.05, (name, found))
