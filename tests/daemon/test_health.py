"""Whether the daemon serves, part by part."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.health import (
    CHECK_SECONDS,
    FORGET_SECONDS,
    Readiness,
    ReadinessChecks,
    WorkerHealth,
    listening,
)
from tests.daemon.test_daemon import DaemonCase


class Link:
    """Links that hear each other."""

    def __init__(self, index: int, others: "list[Link]") -> None:
        self.index = index
        self.others = others
        self.subscribers: dict[str, Callable[[Any], object]] = {}
        self.said: list[Any] = []
        others.append(self)

    @property
    def count(self) -> int:
        """Count them."""
        return 2

    def broadcast(self, topic: str, payload: Any) -> None:
        """Tell the others."""
        self.said.append(payload)
        for other in self.others:
            if other is not self:
                other.subscribers[topic](payload)

    def subscribe(self, topic: str, callback: Callable[[Any], object]) -> None:
        """Listen."""
        self.subscribers[topic] = callback


class BoardTests(SynchronousTestCase):
    """One process."""

    def setUp(self) -> None:
        """Make a checks with a part, a listener and a warning."""
        self.wrong: dict[str, str | None] = {"catalog": None}
        self.ports: dict[str, str | None] = {"s3": None}
        self.clock = Clock()
        self.told: list[str | None] = []
        self.checks = ReadinessChecks(
            self.clock,
            lambda: self.wrong,
            lambda: self.ports,
            lambda: {"disk": "slow"},
            lambda readiness: self.told.append(readiness.error),
        )

    def test_ready(self) -> None:
        """It is ready if every part is; warnings change nothing."""
        self.assertEqual(
            self.checks.evaluate(),
            Readiness("ok", None, {"catalog": None}, {"disk": "slow"}, {"s3": None}),
        )

    def test_wrong(self) -> None:
        """One part or listener that is not well is enough, and all that are not are named."""
        self.wrong["catalog"] = "gone"
        self.assertEqual(self.checks.evaluate().error, "catalog: gone")
        self.ports["s3"] = "no longer listens"
        seen = self.checks.evaluate()
        self.assertEqual(seen.status, "unavailable")
        self.assertEqual(seen.error, "catalog: gone; s3: no longer listens")
        self.wrong["blobs"] = "gone"
        seen = self.checks.evaluate()
        self.assertEqual(seen.error, "catalog, blobs: gone; s3: no longer listens")

    def test_draining(self) -> None:
        """While it stops it says so, and not what its parts lack because of that."""
        self.wrong["catalog"] = "closed"
        self.checks.isDraining = True
        seen = self.checks.evaluate()
        self.assertEqual((seen.status, seen.error), ("draining", "the daemon is stopping"))

    def test_listening(self) -> None:
        """A port that was closed by itself is found out."""

        class Port:
            connected = False

        self.assertEqual(
            listening({"s3": object(), "tcp": Port()}), {"s3": None, "tcp": "no longer listens"}
        )

    def test_monitor(self) -> None:
        """What changes is told within a second, and nothing else is."""
        clock, told = self.clock, self.told
        self.checks.start()
        clock.pump([CHECK_SECONDS] * 3)
        self.assertEqual(told, [None])
        self.wrong["catalog"] = "gone"
        clock.advance(CHECK_SECONDS)
        self.wrong["catalog"] = None
        clock.advance(CHECK_SECONDS)
        self.assertEqual(told, [None, "catalog: gone", None])
        self.checks.isDraining = True
        self.checks.check()
        self.assertEqual(told[-1], "the daemon is stopping")
        self.checks.stop()
        self.assertEqual(clock.getDelayedCalls(), [])


class PeerTests(SynchronousTestCase):
    """Several workers."""

    def setUp(self) -> None:
        """Make two workers."""
        self.clock = Clock()
        self.links: list[Link] = []
        self.wrong: list[str | None] = [None, None]
        self.checks = []
        for index in range(2):
            link: Any = Link(index, self.links)
            checks = ReadinessChecks(
                self.clock,
                lambda index=index: {"catalog": self.wrong[index]},  # type: ignore[misc]
                dict,
                dict,
                lambda readiness: None,
                WorkerHealth(link, self.clock),
            )
            checks.start()
            self.checks.append(checks)

    def turn(self) -> list[str | None]:
        """Let a second pass; give what each says of itself."""
        self.clock.advance(CHECK_SECONDS)
        return [checks.evaluate().error for checks in self.checks]

    def test_told(self) -> None:
        """What is wrong with a worker is said by every other one, and no more once it is well."""
        self.assertEqual(self.turn(), [None, None])
        self.wrong[1] = "gone"
        for _ in range(5):
            self.assertEqual(self.turn(), ["workers: 1: catalog: gone", "catalog: gone"])
        self.wrong[1] = None
        self.assertEqual(self.turn(), [None, None])

    def test_quiet(self) -> None:
        """Workers that are well say nothing, and one does not repeat what another has said."""
        self.turn()
        self.wrong[1] = "gone"
        self.turn()
        self.assertEqual(self.links[0].said, [])
        self.assertEqual(self.links[1].said, [{"index": 1, "error": "catalog: gone"}])

    def test_gone(self) -> None:
        """What a worker said that has died is forgotten."""
        self.wrong[1] = "gone"
        self.turn()
        self.checks.pop().stop()
        self.clock.advance(FORGET_SECONDS)
        self.assertEqual(self.turn(), [None])

    def test_missing(self) -> None:
        """A worker that is missing is a warning: the others serve."""
        self.links[0].subscribers["workers"](1)
        seen = self.checks[0].evaluate()
        self.assertEqual((seen.status, seen.warnings["workers"]), ("ok", "1 of 2 serve"))
        self.links[0].subscribers["workers"](2)
        self.assertIsNone(self.checks[0].evaluate().warnings["workers"])

    def test_draining(self) -> None:
        """A worker that stops to make room for another is not wrong to the others."""
        self.wrong[1] = "closed"
        self.checks[1].isDraining = True
        self.assertEqual(self.turn()[0], None)


class DaemonTests(DaemonCase):
    """The daemon's own parts."""

    def test_parts(self) -> None:
        """Store and listeners are parts by name; what discovery lacks is a warning."""
        self.parts.theRoom.ports["grpc"] = object()
        daemon = self.started(grpc="127.0.0.1:50051")
        seen = daemon.readiness()
        self.assertEqual((seen.status, seen.parts), ("ok", {"catalog": None, "blobs": None}))
        self.assertEqual(seen.listeners, {"s3": None, "admin": None, "grpc": None})
        self.assertEqual(seen.warnings, {"disk": None, "discovery": "consul is away"})

    def test_closedPort(self) -> None:
        """A listener that was lost takes the daemon out of service."""
        self.parts.theRoom.ports["tcp"] = type("Port", (), {"connected": False})
        seen = self.started(tcp="tcp:9102").readiness()
        self.assertEqual((seen.status, seen.error), ("unavailable", "tcp: no longer listens"))

    def test_told(self) -> None:
        """The room behind the gateway is told of each change, and at once of the stop."""
        daemon = self.started(grpc="127.0.0.1:50051")
        told = self.parts.theRoom.told
        self.assertEqual([each.status for each in told], ["ok"])
        self.parts.theStore.wrong["catalog"] = "gone"
        self.parts.reactor.advance(CHECK_SECONDS)
        self.assertEqual([each.error for each in told], [None, "catalog: gone"])
        self.parts.theRoom.ended = Deferred()
        daemon.stopService()
        self.assertEqual(told[-1].status, "draining")
        self.assertEqual(self.parts.reactor.getDelayedCalls(), [])
