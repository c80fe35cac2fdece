"""Attempts of a call."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError, codedError
from storagegate.upstream.cluster import CallSlot
from storagegate.upstream.retry import RESERVE, AttemptFailed, CallPolicy, Upstream
from tests.support.balancing import ClusterCase, LongestRandom


class UpstreamTests(SynchronousTestCase):
    """Calls of three instances."""

    def make(self, **options: Any) -> None:
        """Make an upstream."""
        self.case = ClusterCase("a", "b", "c", **options)
        self.clock = self.case.clock
        self.upstream = Upstream(
            self.case.cluster, self.clock, LongestRandom(), self.case.upstreamMetrics
        )
        self.tried: list[str] = []

    def call(
        self, answer: Callable[[str], Any], isRepeatable: bool = True, seconds: float = 1.0
    ) -> Deferred[Any]:
        """
        Call.

        @param answer: Gives, or raises, what comes of an attempt with an instance.
        """

        async def attempt(slot: CallSlot) -> Any:
            id = slot.member.id
            self.tried.append(id)
            try:
                result = answer(id)
            except AttemptFailed:
                slot.end(False)
                raise
            except BaseException:
                slot.end(None)
                raise
            slot.end(True)
            return result

        policy = CallPolicy("default", None, isRepeatable, seconds)
        return Deferred.fromCoroutine(self.upstream.call(attempt, policy))

    def fail(self, id: str) -> Any:  # type: ignore[override]
        """Fail somewhere in between."""
        raise AttemptFailed(codedError("UNAVAILABLE", f"{id} failed"))

    def failUnsent(self, id: str) -> Any:
        """Fail to connect."""
        raise AttemptFailed(codedError("UNAVAILABLE", f"{id} is not there"), isUnsent=True)

    def test_first(self) -> None:
        """An answer is the answer."""
        self.make()
        self.assertEqual(self.successResultOf(self.call(str.upper)), "A")

    def test_others(self) -> None:
        """Each attempt goes to another instance, after a pause that grows."""
        self.make()
        calling = self.call(lambda id: id if id == "c" else self.fail(id))
        self.assertEqual(self.tried, ["a"])
        self.clock.advance(0.024)
        self.assertEqual(self.tried, ["a"])
        self.clock.advance(0.001)
        self.assertEqual(self.tried, ["a", "b"])
        self.clock.advance(0.049)
        self.assertNoResult(calling)
        self.clock.advance(0.001)
        self.assertEqual(self.successResultOf(calling), "c")
        self.assertEqual(self.case.value("retries_total", "Probe"), 2)

    def test_last(self) -> None:
        """What is told is what went wrong with the last one."""
        self.make(retries=1)
        calling = self.call(self.fail)
        self.clock.advance(1)
        error: Any = self.failureResultOf(calling, ServiceError).value
        self.assertEqual((error.message, self.tried), ("b failed", ["a", "b"]))

    def test_once(self) -> None:
        """What may not be repeated is not, if an instance may have seen it."""
        self.make()
        calling = self.call(self.fail, isRepeatable=False)
        self.failureResultOf(calling, ServiceError)
        self.assertEqual(self.tried, ["a"])

    def test_unsent(self) -> None:
        """If nothing was sent it is."""
        self.make()
        calling = self.call(lambda id: id if id == "b" else self.failUnsent(id), isRepeatable=False)
        self.clock.advance(1)
        self.assertEqual(self.successResultOf(calling), "b")

    def test_error(self) -> None:
        """An answer that is an error is an answer."""
        self.make()

        def answer(id: str) -> Any:
            raise codedError("NOT_FOUND", "nothing")

        self.failureResultOf(self.call(answer), ServiceError)
        self.assertEqual(self.tried, ["a"])

    def test_notBegun(self) -> None:
        """An attempt that fails before it begins, as without a key for its cookie, has no place."""
        self.make(maxConnections=1)

        async def attempt(slot: CallSlot) -> Any:
            raise OSError("no space left")

        policy = CallPolicy("default", None, True, 1.0)
        for _ in range(4):
            calling = Deferred.fromCoroutine(self.upstream.call(attempt, policy))
            self.failureResultOf(calling, OSError)
        self.assertEqual(self.successResultOf(self.call(str.upper)), "B")

    def test_budget(self) -> None:
        """When everything fails, only a part is tried again."""
        self.make(retries=1, ejectAfter=100)
        for _ in range(1000):
            calling = self.call(self.fail)
            self.clock.advance(0.025)
            self.failureResultOf(calling, ServiceError)
        retries = self.case.value("retries_total", "Probe")
        # A fifth, the reserve, and one for each of the seconds that passed.
        self.assertTrue(200 + RESERVE <= retries <= 200 + RESERVE + 1000 * 0.025 + 1, retries)
        refused = self.case.value("retries_refused_total", "Probe")
        self.assertEqual(retries + refused, 1000)

    def test_giveUp(self) -> None:
        """Who gives up in the pause is not called for again."""
        self.make()
        calling = self.call(self.fail)
        calling.cancel()
        self.failureResultOf(calling, CancelledError)
        self.clock.advance(1)
        self.assertEqual((self.tried, self.clock.getDelayedCalls()), (["a"], []))

    def test_wait(self) -> None:
        """For an instance with room a call waits as long as an attempt may take."""
        self.make(maxConnections=1)
        slots = [self.successResultOf(self.case.cluster.acquire("default")) for _ in range(3)]
        first, second = self.call(str.upper), self.call(str.upper)
        self.clock.advance(0.9)
        slots[1].end(True)
        self.assertEqual(self.successResultOf(first), "B")
        self.assertEqual(self.successResultOf(second), "B")
        third = [self.successResultOf(self.case.cluster.acquire("default")), self.call(str.upper)]
        self.clock.advance(1)
        error: Any = self.failureResultOf(third[1], ServiceError).value
        self.assertEqual((error.code, error.message), ("UNAVAILABLE", BUSY))
        self.assertEqual(self.clock.getDelayedCalls(), [])


BUSY = "Every instance of Probe is busy"
