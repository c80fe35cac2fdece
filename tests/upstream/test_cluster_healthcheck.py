"""Checks of health."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.cluster import HealthChecks
from storagegate.upstream.options import Instance
from tests.support.balancing import ClusterCase, LongestRandom, instances


class HealthChecksTests(SynchronousTestCase):
    """Two instances, asked every two seconds."""

    def make(self, **options: Any) -> None:
        """Make a cluster whose instances are asked."""
        self.case = ClusterCase(healthCheck="/health", **options)
        self.cluster, self.clock = self.case.cluster, self.case.clock
        self.asked: list[tuple[str, Deferred[bool]]] = []
        self.cancelled: list[str] = []
        metrics = self.case.upstreamMetrics
        HealthChecks(self.cluster, self._ask, self.clock, LongestRandom(), metrics)
        self.cluster.setInstances(instances("a", "b"))
        self.clock.advance(0)

    def _ask(self, instance: Instance) -> Deferred[bool]:
        answer: Deferred[bool] = Deferred(lambda answer: self.cancelled.append(instance.id))
        self.asked.append((instance.id, answer))
        return answer

    def answer(self, **well: bool) -> None:
        """Answer those that were asked."""
        asked, self.asked = self.asked, []
        for id, answer in asked:
            answer.callback(well[id])

    def healthy(self) -> list[str]:
        """Name those that are well."""
        return [id for id, member in self.cluster.members.items() if member.isHealthy]

    def test_begin(self) -> None:
        """Each is asked at once, and is well until it says something else."""
        self.make()
        self.assertEqual([id for id, _ in self.asked], ["a", "b"])
        self.assertEqual(self.healthy(), ["a", "b"])

    def test_unhealthy(self) -> None:
        """Two bad answers in a row put it out, one good one brings it back."""
        self.make()
        self.answer(a=False, b=True)
        self.assertEqual(self.healthy(), ["a", "b"])
        self.clock.advance(2)
        self.answer(a=False, b=True)
        self.assertEqual(self.healthy(), ["b"])
        self.clock.advance(2)
        self.answer(a=True, b=True)
        self.assertEqual(self.healthy(), ["a", "b"])
        self.assertEqual(self.case.value("checks_total", "Probe", "unhealthy"), 2)

    def test_inARow(self) -> None:
        """Bad answers with a good one between them do not count together."""
        self.make()
        for isAvailable in (False, True, False, True):
            self.answer(a=isAvailable, b=True)
            self.clock.advance(2)
        self.assertEqual(self.healthy(), ["a", "b"])

    def test_options(self) -> None:
        """How many answers it takes is as was said."""
        self.make(unhealthyAfter=1, healthyAfter=2, healthIntervalMs=500)
        self.answer(a=False, b=True)
        self.assertEqual(self.healthy(), ["b"])
        for expected in (["b"], ["a", "b"]):
            self.clock.advance(0.5)
            self.answer(a=True, b=True)
            self.assertEqual(self.healthy(), expected)

    def test_revives(self) -> None:
        """Who is well again may be called though its calls failed before."""
        self.make(unhealthyAfter=1, ejectAfter=1, ejectMs=60_000)
        slot = self.successResultOf(self.cluster.acquire("default"))
        slot.end(False)
        member = slot.member
        self.answer(**{"a": True, "b": True, member.id: False})
        self.clock.advance(2)
        self.assertEqual(member.state, "unhealthy")
        self.answer(a=True, b=True)
        self.assertEqual((member.state, member.isAvailable), ("healthy", True))

    def test_wakes(self) -> None:
        """Who waits for room gets an instance that is well again."""
        self.make(unhealthyAfter=1, maxConnections=1)
        self.answer(a=True, b=False)
        self.successResultOf(self.cluster.acquire("default"))
        waiting = self.cluster.acquire("default")
        self.assertNoResult(waiting)
        self.clock.advance(2)
        self.answer(a=True, b=True)
        self.assertEqual(self.successResultOf(waiting).member.id, "b")

    def test_slow(self) -> None:
        """An answer that takes too long is a bad one, and is not waited for."""
        self.make(unhealthyAfter=1)
        [_, (_, other)] = self.asked
        other.callback(True)
        self.clock.advance(0.99)
        self.assertEqual(self.cancelled, [])
        self.clock.advance(0.01)
        self.assertEqual(self.cancelled, ["a"])
        self.assertEqual(self.healthy(), ["b"])

    def test_gone(self) -> None:
        """Who has gone is not asked any more, and nothing is left behind."""
        self.make()
        self.cluster.setInstances(instances("b"))
        self.assertEqual(self.cancelled, ["a"])
        self.asked.clear()
        self.clock.advance(2)
        self.assertEqual([id for id, _ in self.asked], ["b"])
        self.successResultOf(self.cluster.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
