"""The instances of a service: who gets a call, who waits, and what comes and goes."""

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.upstream.cluster import CallSlot
from storagegate.upstream.options import Instance
from tests.support.balancing import ClusterCase, instances


class ClusterTests(SynchronousTestCase):
    """A cluster."""

    def make(self, *names: str, **options: Any) -> ClusterCase:
        """Make a cluster of instances with names."""
        self.case = ClusterCase(*names, **options)
        self.cluster = self.case.cluster
        return self.case

    def slot(self, *tried: str, choose: Any = None) -> CallSlot:
        """Get an instance, at once."""
        slot: CallSlot = self.successResultOf(self.cluster.acquire("default", tried, choose))
        return slot

    def ids(self, count: int, *tried: str) -> str:
        """Get instances one after the other, each for a call that succeeds at once."""
        found = []
        for _ in range(count):
            slot = self.slot(*tried)
            found.append(slot.member.id)
            slot.end(True)
        return "".join(found)

    def failCalls(self, id: str, times: int) -> None:
        """Let calls to an instance fail."""
        for _ in range(times):
            CallSlot(self.cluster.members[id], self.cluster._ended).end(False)

    def refused(self, acquiring: Deferred[Any]) -> ServiceError:
        """Give the error of a call that gets no instance."""
        error: Any = self.failureResultOf(acquiring, ServiceError).value
        self.assertEqual((error.code, error.statusCode), ("UNAVAILABLE", 503))
        return error

    # Who is well

    def test_failing(self) -> None:
        """An instance whose calls fail gets none, and after its time one to try."""
        self.make("a", "b", ejectAfter=3)
        self.failCalls("a", 2)
        self.assertEqual(self.ids(2), "ab")
        self.failCalls("a", 3)
        self.assertEqual(self.ids(3), "bbb")
        self.assertEqual(self.case.value("ejections_total", "Probe"), 1)
        self.case.clock.advance(1)
        trying = self.slot()
        self.assertEqual(trying.member.id, "a")
        self.assertEqual(self.ids(3), "bbb")
        trying.end(True)
        self.assertEqual(sorted(self.ids(2)), ["a", "b"])

    def test_panic(self) -> None:
        """When all are out, all of them are tried."""
        self.make("a", "b", ejectAfter=1)
        self.failCalls("a", 1)
        self.cluster.members["b"].isHealthy = False
        self.assertEqual(sorted(self.slot().member.id for _ in range(2)), ["a", "b"])
        self.assertEqual(self.case.value("panics_total", "Probe"), 2)

    def test_tried(self) -> None:
        """Who was tried is not chosen again as long as there is another one that is well."""
        self.make("a", "b", "c", ejectAfter=1)
        self.assertEqual(self.ids(3, "a"), "bcb")
        self.assertEqual(self.ids(2, "a", "c"), "bb")
        self.assertEqual(sorted(self.ids(3, "a", "b", "c")), ["a", "b", "c"])

    def test_gauges(self) -> None:
        """It can be seen who is well, ill and out."""
        self.make("a", "b", "c", ejectAfter=1)
        self.failCalls("a", 1)
        self.cluster.members["b"].isHealthy = False
        self.slot()
        values = {state: self.case.value("instances", "Probe", state) for state in STATES}
        self.assertEqual(values, {"healthy": 1, "unhealthy": 1, "ejected": 1})
        for former in ("well", "ill"):
            self.assertEqual(self.case.value("instances", "Probe", former), 1)
        self.assertEqual(self.case.value("active", "Probe"), 1)

    # Who waits

    def test_full(self) -> None:
        """Over the limit a call waits until another has ended; the first one is served first."""
        self.make("a", maxConnections=1)
        first = self.slot()
        second, third = (self.cluster.acquire("default") for _ in range(2))
        self.assertNoResult(second)
        self.assertEqual(self.cluster.queued, 2)
        first.end(True)
        slot = self.successResultOf(second)
        self.assertNoResult(third)
        slot.end(False)
        self.successResultOf(third)

    def test_queue(self) -> None:
        """When too many wait, a call is refused."""
        self.make("a", maxConnections=1, maxQueue=2)
        self.slot()
        for _ in range(2):
            self.assertNoResult(self.cluster.acquire("default"))
        error = self.refused(self.cluster.acquire("default"))
        self.assertEqual(error.message, "Every instance of Probe is busy")
        self.assertEqual(self.case.value("refused_total", "Probe", "full"), 1)

    def test_giveUp(self) -> None:
        """Who does not wait any more leaves its place."""
        self.make("a", maxConnections=1)
        first = self.slot()
        second, third = (self.cluster.acquire("default") for _ in range(2))
        second.cancel()
        self.failureResultOf(second, CancelledError)
        first.end(None)
        self.successResultOf(third)

    def test_room(self) -> None:
        """One that has no room is passed over."""
        self.make("a", "b", maxConnections=2)
        self.assertEqual("".join(self.slot().member.id for _ in range(4)), "abab")
        self.assertNoResult(self.cluster.acquire("default"))

    def test_bound(self) -> None:
        """A call that wants one instance waits for it, and lets others pass."""
        self.make("a", "b", maxConnections=1)

        def wanted(candidates: Any) -> Any:
            return next(each for each in candidates if each.id == "a")

        first = self.slot(choose=wanted)
        bound = self.cluster.acquire("default", (), wanted)
        self.assertNoResult(bound)
        other = self.slot()
        self.assertEqual(other.member.id, "b")
        other.end(True)
        self.assertNoResult(bound)
        first.end(True)
        self.assertEqual(self.successResultOf(bound).member.id, "a")

    def test_nobody(self) -> None:
        """Where there are no instances, that is said at once."""
        self.make()
        error = self.refused(self.cluster.acquire("default"))
        self.assertEqual(error.message, "No instance of Probe is known")

    # Who comes and goes

    def test_come(self) -> None:
        """Who waits gets an instance that comes."""
        self.make("a", maxConnections=1)
        self.slot()
        waiting = self.cluster.acquire("default")
        self.cluster.setInstances(instances("a", "b"))
        self.assertEqual(self.successResultOf(waiting).member.id, "b")

    def test_stays(self) -> None:
        """What is known of an instance stays with it when others come and go."""
        self.make("a", "b", ejectAfter=1)
        self.failCalls("a", 1)
        self.cluster.members["b"].active = 3
        self.cluster.setInstances(instances("c", "b", "a"))
        self.assertEqual(self.cluster.members["a"].state, "ejected")
        self.assertEqual(self.cluster.members["b"].active, 3)
        self.assertEqual(sorted(self.ids(2)), ["b", "c"])

    def test_weightChanges(self) -> None:
        """A new weight holds at once."""
        self.make("a", "b", strategy="weighted")
        self.cluster.setInstances([*instances("a", weight=3), *instances("b")])
        self.assertEqual(sorted(self.ids(8)), list("aaaaaabb"))

    def test_moved(self) -> None:
        """An instance of the same name at another place is another one."""
        self.make("a", ejectAfter=1)
        self.failCalls("a", 1)
        self.cluster.setInstances([Instance("a", 9000, 1, "a")])
        self.assertEqual(self.cluster.members["a"].state, "healthy")
        # Connections without TLS are none that an instance could go on with that has it now.
        before = self.cluster.members["a"]
        self.cluster.setInstances([Instance("a", 9000, 1, "a", tls=True)])
        self.assertIsNot(self.cluster.members["a"], before)

    def test_gone(self) -> None:
        """Who has gone ends its calls, and gets no others."""
        self.make("a", "b")
        slot = self.slot()
        self.cluster.setInstances(instances("b"))
        self.assertEqual(self.ids(2), "bb")
        self.assertEqual(self.case.value("active", "Probe"), 1)
        slot.end(True)
        self.assertEqual(self.case.value("active", "Probe"), 0)

    def test_leaseEndsOnce(self) -> None:
        """A slot ends once, whatever is told of it after that."""
        self.make("a", ejectAfter=1)
        slot = self.slot()
        slot.end(True)
        slot.end(False)
        slot.end(None)
        member = self.cluster.members["a"]
        self.assertEqual((member.active, member.state), (0, "healthy"))

    def test_stop(self) -> None:
        """Who waits when it stops is told so, and nothing is counted any more."""
        self.make("a", maxConnections=1)
        self.slot()
        waiting = self.cluster.acquire("default")
        self.successResultOf(self.cluster.stop())
        self.refused(waiting)
        self.assertEqual(self.case.value("instances", "Probe", "healthy"), 0)


STATES = ("healthy", "unhealthy", "ejected")
