"""The health of a server, by C{Check} and C{Watch}."""

from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health_pb2
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import GrpcError
from storagegate.rpc.health import HEALTH, WATCH_SECONDS, Health
from storagegate.rpc.protos import loadProto, protoPath
from tests.rpc.describing import described


class Asked:
    """As much of a call as health looks at."""

    def __init__(self, **request: Any) -> None:
        self.request = request


class Listener:
    """A client that watches, and reads every response immediately."""

    def __init__(self, health: Health, **request: Any) -> None:
        self.statuses: list[str] = []
        self.ended = Deferred.fromCoroutine(self._listen(health.Watch(Asked(**request))))

    async def _listen(self, answers: AsyncIterator[dict[str, Any]]) -> None:
        async for answer in answers:
            self.statuses.append(answer["status"])
            self.told()

    def told(self) -> None:
        """Do something about an answer."""


class HealthTests(SynchronousTestCase):
    """What is answered once."""

    def setUp(self) -> None:
        """Serve two services."""
        self.clock = Clock()
        self.health = Health()
        self.health.begin(self.clock, ["user.UserService", "Storage"])

    def check(self, service: str = "") -> str:
        """Ask for a status as a client does."""
        answer: str = self.health.Check(Asked(service=service) if service else Asked())["status"]
        return answer

    def test_serving(self) -> None:
        """Once a server listens it is serving, and so is each of its services."""
        self.assertEqual(self.check(), "SERVING")
        self.assertEqual(self.check("user.UserService"), "SERVING")

    def test_oneService(self) -> None:
        """A check that names a service is answered for this one alone."""
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.assertEqual(self.check("Storage"), "NOT_SERVING")
        self.assertEqual(self.check("user.UserService"), "SERVING")
        self.assertEqual(self.check(), "SERVING")

    def test_overall(self) -> None:
        """The empty name is the server as a whole, and has a status of its own."""
        self.health.setServingStatus("", "NOT_SERVING")
        self.assertEqual(self.check(), "NOT_SERVING")
        self.assertEqual(self.check("Storage"), "SERVING")

    def test_unknown(self) -> None:
        """A check of an unknown service is NOT_FOUND."""
        error = self.assertRaises(GrpcError, self.check, "user.userservice")
        self.assertEqual(error.statusName, "NOT_FOUND")

    def test_newName(self) -> None:
        """A name that is given a status is known, whether there is such a service or not."""
        self.health.setServingStatus("UserService", "SERVING")
        self.assertEqual(self.check("UserService"), "SERVING")

    def test_noStatus(self) -> None:
        """Any other status is refused, also those that only a client gets to see."""
        for status in ("serving", "UNKNOWN", "SERVICE_UNKNOWN", "", 1, None):
            error = self.assertRaises(
                ValueError,
                self.health.setServingStatus,
                "Storage",
                status,
            )
            self.assertIn(repr(status), str(error))
        self.assertEqual(self.check("Storage"), "SERVING")

    def test_notBegun(self) -> None:
        """Before a server listens nothing is serving, but a status that was set then is kept."""
        self.health = Health()
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.health.setServingStatus("UserService", "SERVING")
        self.assertEqual(self.check(), "NOT_SERVING")
        self.assertEqual(self.check("UserService"), "NOT_SERVING")
        self.health.begin(self.clock, ["Storage", "UserService"])
        self.assertEqual(self.check("Storage"), "NOT_SERVING")
        self.assertEqual(self.check("UserService"), "SERVING")

    def test_shutdown(self) -> None:
        """After the shutdown nothing is serving, whatever is said then; the unknown stays so."""
        self.health.shutdown()
        self.health.setServingStatus("Storage", "SERVING")
        self.assertEqual([self.check(), self.check("Storage")], ["NOT_SERVING"] * 2)
        self.assertRaises(GrpcError, self.check, "absent")

    def test_again(self) -> None:
        """A server that listens again is serving again."""
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.health.shutdown()
        self.health.begin(self.clock)
        self.assertEqual(self.check(), "SERVING")
        self.assertEqual(self.check("Storage"), "NOT_SERVING")

    def test_list(self) -> None:
        """A list has every service and the server as a whole."""
        self.health.setServingStatus("Storage", "NOT_SERVING")
        answer = self.health.List(Asked())
        message = health_pb2.HealthListResponse.FromString(
            HEALTH.methods["List"].response.encode(answer)
        )
        self.assertEqual(
            {name: status.status for name, status in message.statuses.items()},
            {"": 1, "user.UserService": 1, "Storage": 2},
        )


class WatchTests(SynchronousTestCase):
    """Streams of C{Watch}."""

    def setUp(self) -> None:
        """Serve two services."""
        self.clock = Clock()
        self.health = Health()
        self.health.begin(self.clock, ["UserService", "Storage"])

    def stop(self, listener: Listener) -> None:
        """Let a client go, as the end of its call does."""
        listener.ended.cancel()
        self.failureResultOf(listener.ended, CancelledError)

    def assertNothingLeft(self) -> None:
        """No watcher and no timer is left."""
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.health.watching, {})

    def test_atOnce(self) -> None:
        """The first answer comes at once, for the named service or for the whole."""
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.assertEqual(Listener(self.health, service="Storage").statuses, ["NOT_SERVING"])
        self.assertEqual(Listener(self.health).statuses, ["SERVING"])

    def test_onChange(self) -> None:
        """Every change is sent when it happens, to watchers of that service only."""
        storage, other = (
            Listener(self.health, service="Storage"),
            Listener(self.health, service="UserService"),
        )
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.health.setServingStatus("Storage", "SERVING")
        self.assertEqual(storage.statuses, ["SERVING", "NOT_SERVING", "SERVING"])
        self.assertEqual(other.statuses, ["SERVING"])

    def test_noChange(self) -> None:
        """A status that is set once more is no change."""
        listener = Listener(self.health, service="Storage")
        self.health.setServingStatus("Storage", "SERVING")
        self.assertEqual(listener.statuses, ["SERVING"])

    def test_period(self) -> None:
        """The status is repeated every 5000 milliseconds for as long as the stream is open."""
        self.assertEqual(WATCH_SECONDS * 1000, 5000)
        listener = Listener(self.health)
        for count in range(1, 10):
            self.clock.advance(4.875)
            self.assertEqual(len(listener.statuses), count)
            self.clock.advance(0.125)
            self.assertEqual(listener.statuses, ["SERVING"] * (count + 1))

    def test_periodOfUnknown(self) -> None:
        """An unknown service has SERVICE_UNKNOWN, repeated until it is known."""
        listener = Listener(self.health, service="Orders")
        self.clock.advance(5)
        self.assertEqual(listener.statuses, ["SERVICE_UNKNOWN"] * 2)
        self.health.setServingStatus("Orders", "SERVING")
        self.clock.advance(5)
        self.assertEqual(listener.statuses[2:], ["SERVING"] * 2)

    def test_addedLater(self) -> None:
        """A service that a server begins to serve becomes known to who waited for it."""
        listener = Listener(self.health, service="Orders")
        self.health.begin(self.clock, ["Orders"])
        self.assertEqual(listener.statuses, ["SERVICE_UNKNOWN", "SERVING"])

    def test_slowReader(self) -> None:
        """A client that does not read gets the status as it is when it reads, not all it missed."""
        answers = self.health.Watch(Asked(service="Storage"))
        self.assertEqual(self.next(answers), "SERVING")
        for _ in range(100):
            self.health.setServingStatus("Storage", "NOT_SERVING")
            self.health.setServingStatus("Storage", "SERVING")
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.assertEqual(self.next(answers), "NOT_SERVING")
        self.assertNoResult(self.begin(answers))

    def test_slowReaderPeriod(self) -> None:
        """Repetitions that a client did not read come to one."""
        answers = self.health.Watch(Asked())
        self.next(answers)
        self.clock.pump([5] * 20)
        self.assertEqual(self.next(answers), "SERVING")
        waiting = self.begin(answers)
        self.assertNoResult(waiting)
        self.clock.advance(5)
        self.assertEqual(self.successResultOf(waiting), "SERVING")

    def test_gone(self) -> None:
        """Nothing is left of a client that goes while it waits."""
        listeners = [Listener(self.health, service=name) for name in ("", "Storage", "Orders")]
        for listener in listeners:
            self.stop(listener)
        self.assertNothingLeft()
        self.health.setServingStatus("Storage", "NOT_SERVING")
        self.assertEqual(listeners[1].statuses, ["SERVING"])

    def test_goneUnread(self) -> None:
        """Nothing is left of a client that goes before it has read its answer."""
        answers = self.health.Watch(Asked())
        self.next(answers)
        self.successResultOf(Deferred.fromCoroutine(close(answers)))
        self.assertNothingLeft()

    def test_goneTogether(self) -> None:
        """A client may go because of what another one was told."""
        first, second = Listener(self.health), Listener(self.health)
        gone: list[Listener] = []

        def stopOther(one: Listener, other: Listener) -> None:
            if not gone:
                gone.append(other)
                self.stop(other)

        first.told = lambda: stopOther(first, second)  # type: ignore[method-assign]
        second.told = lambda: stopOther(second, first)  # type: ignore[method-assign]
        self.health.setServingStatus("", "NOT_SERVING")
        self.assertEqual([each.statuses for each in gone], [["SERVING"]])
        self.assertEqual(self.health.watching, {"": 1})

    def test_shutdown(self) -> None:
        """At the shutdown everybody gets the last word, and then the stream's end."""
        listeners = [Listener(self.health), Listener(self.health, service="Storage")]
        self.health.shutdown()
        for listener in listeners:
            self.assertEqual(listener.statuses, ["SERVING", "NOT_SERVING"])
            self.successResultOf(listener.ended)
        self.assertNothingLeft()

    def test_shutdownUnchanged(self) -> None:
        """Those whose status does not change with the shutdown are let go as well."""
        self.health.setServingStatus("Storage", "NOT_SERVING")
        for name, status in (("Storage", "NOT_SERVING"), ("Orders", "SERVICE_UNKNOWN")):
            listener = Listener(self.health, service=name)
            self.health.shutdown()
            self.successResultOf(listener.ended)
            self.assertEqual(listener.statuses, [status])
        self.assertNothingLeft()

    def test_shutdownSlowReader(self) -> None:
        """A client that was not reading at the shutdown gets the last word when it does."""
        answers = self.health.Watch(Asked())
        self.next(answers)
        self.health.shutdown()
        self.assertEqual(self.next(answers), "NOT_SERVING")
        self.failureResultOf(self.begin(answers), StopAsyncIteration)
        self.assertNothingLeft()

    def test_afterShutdown(self) -> None:
        """A stream that begins after the shutdown stays open: its client would begin it again."""
        self.health.shutdown()
        listener = Listener(self.health)
        self.clock.advance(5)
        self.assertEqual(listener.statuses, ["NOT_SERVING"] * 2)
        self.assertNoResult(listener.ended)
        self.health.begin(self.clock)
        self.assertEqual(listener.statuses[2:], ["SERVING"])

    def test_notBegun(self) -> None:
        """Before a server listens there is nothing to watch."""
        listener = Listener(Health())
        error = self.failureResultOf(listener.ended, GrpcError).value
        self.assertEqual(error.statusName, "UNAVAILABLE")

    def begin(self, answers: AsyncIterator[dict[str, Any]]) -> "Deferred[str]":
        """Ask for the next answer's status."""

        async def following() -> str:
            status: str = (await anext(answers))["status"]
            return status

        return Deferred.fromCoroutine(following())

    def next(self, answers: AsyncIterator[dict[str, Any]]) -> str:
        """Take the next answer's status, which has to be there."""
        return self.successResultOf(self.begin(answers))


class DefinitionTests(SynchronousTestCase):
    """What is said of health in descriptors."""

    def test_definition(self) -> None:
        """The definition is the one of grpcio's own package, under the name that gRPC gives it."""
        self.assertEqual(HEALTH.name, "grpc.health.v1.Health")
        self.assertEqual(HEALTH.file.name, "grpc/health/v1/health.proto")
        self.assertEqual(described(HEALTH.file), described(health_pb2.DESCRIPTOR))

    def test_file(self) -> None:
        """It is what the file that clients can load says."""
        loaded = loadProto(protoPath() / "health.proto")
        self.assertEqual(described(HEALTH.file), described(loaded.file))

    def test_implemented(self) -> None:
        """Every method is there, under its own name."""
        self.assertEqual(sorted(HEALTH.methods), ["Check", "List", "Watch"])
        for name in HEALTH.methods:
            self.assertTrue(callable(getattr(Health(), name)))


async def close(answers: Any) -> None:
    """Close a generator, as the end of a call does."""
    await answers.aclose()
