"""Providers without a source, and what all of them have in common."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.options import DiscoveryOptions, Instance, readDiscovery
from storagegate.upstream.provider import InstanceProvider, Publish, SourceError
from storagegate.upstream.proxy import makeProvider
from storagegate.upstream.registration import Registration, checkRegistration, makeRegistration

A, B = Instance("10.0.0.1", 80), Instance("10.0.0.2", 80)


def options(**given: Any) -> DiscoveryOptions:
    """Read options."""
    return readDiscovery(DiscoveryOptions(), given)


def shortest(low: float, high: float) -> float:
    """Return the shortest delay."""
    return low


class Source:
    """A watch whose answers the case gives."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.answers: list[Any] = []

    def make(self, name: str, publish: Publish) -> "Source":
        """Begin to watch."""
        self.names.append(name)
        self.publish = publish
        return self

    async def step(self) -> float:
        """Give the next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise SourceError(answer)
        self.publish(*answer)
        return 1.0


class StaticTests(SynchronousTestCase):
    """Lists of instances in the options."""

    def test_told(self) -> None:
        """They are told at the start, once, to all who want to know."""
        instances = [{"host": "10.0.0.2", "port": 80}, {"host": "10.0.0.1", "port": 80}]
        for provider in (None, "static", "consul"):
            given = options(provider=provider, services={"A": {"instances": instances}})
            found = makeProvider(given, Clock(), MetricsRegistry())
            told: list[Any] = []
            found.watch("A", told.append)
            found.watch("A", told.append)
            self.assertEqual(told, [])
            found.start()
            self.assertEqual(told, [(B, A)] * 2)
            self.assertIsNone(found.problem)
            self.assertIsNone(self.successResultOf(found.stop()))

    def test_unknown(self) -> None:
        """A service that the options do not name has no instances to be told of."""
        found = makeProvider(options(), Clock())
        told: list[Any] = []
        found.watch("A", told.append)
        found.start()
        self.assertEqual(told, [])

    def test_refused(self) -> None:
        """Options that do not fit each other make no provider."""
        given = options(services={"A": "auto-discover"})
        self.assertRaises(OptionError, makeProvider, given, Clock())


class SourceTests(SynchronousTestCase):
    """What is done with the answers of a source."""

    def setUp(self) -> None:
        """Make a provider."""
        self.clock = Clock()
        self.source = Source()
        services = options(services={"S": {"name": "s-1"}}).services
        self.provider = InstanceProvider(
            "x", services, self.source.make, self.clock, MetricsRegistry(), shortest
        )
        self.told: list[Any] = []
        self.provider.watch("S", self.told.append)

    def start(self, *answers: Any) -> None:
        """Start it, and have these answers given one after the other."""
        self.source.answers = [*answers, ((A,), None)]
        self.provider.start()
        for _each in answers[1:]:
            self.clock.advance(1)

    def test_news(self) -> None:
        """What is told are changes: the same in another order, or twice, is none."""
        self.start(((B, A, A), None), ((A, B), None), ((A,), None))
        self.assertEqual(self.source.names, ["s-1"])
        self.assertEqual(self.told, [(A, B), (A,)])

    def test_kept(self) -> None:
        """An error changes nothing; an empty answer empties the list."""
        self.start(((A,), None), "away", ((), None))
        self.assertEqual(self.told, [(A,), ()])

    def test_problem(self) -> None:
        """An error is a problem until there is an answer, which may have one of its own."""
        self.start("away")
        self.assertEqual(self.provider.problem, "S: away")
        self.source.answers = [((A,), "one is left out"), ((A,), None)]
        self.clock.advance(1)
        self.assertEqual(self.provider.problem, "S: one is left out")
        self.clock.advance(1)
        self.assertIsNone(self.provider.problem)

    def test_careless(self) -> None:
        """A subscriber that fails does not keep the others from the change."""

        def fail(instances: Any) -> None:
            raise ZeroDivisionError

        self.provider.watch("S", fail)
        others: list[Any] = []
        self.provider.watch("S", others.append)
        self.start(((A,), None))
        self.assertEqual((self.told, others), ([(A,)], [(A,)]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stopped(self) -> None:
        """After the stop nothing is told, not even of an answer that was under way."""
        self.start(((A,), None))
        self.successResultOf(self.provider.stop())
        self.source.publish((B,), None)
        self.clock.advance(60)
        self.assertEqual(self.told, [(A,)])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RegistrationTests(SynchronousTestCase):
    """What must be known before others are told."""

    def test_refused(self) -> None:
        """An address that is of no use to others is refused, as is a service that is not here."""
        for host, register, expected in (
            ("", {}, "register.address is missing"),
            ("0.0.0.0", {}, "register.address is missing"),
            ("::", {"port": 1}, "register.address is missing"),
            (None, {"address": "a"}, "register.address and register.port"),
            ("10.0.0.1", {"services": {"X": "x"}}, "register.services names X"),
        ):
            given = options(provider="etcd", register=register)
            error = self.assertRaises(OptionError, checkRegistration, given, ("A",), host)
            self.assertIn(expected, str(error))
        given = options(provider="etcd", register={"address": "a", "port": 1})
        checkRegistration(given, ("A",), None)
        given = options(provider="dns", register={})
        arguments = (given, ["A"], "10.0.0.1", 80, Clock())
        self.assertRaises(OptionError, makeRegistration, *arguments)

    def test_silent(self) -> None:
        """A stop does not wait for a registry that does not answer, nor tell one never told."""

        class Silent:
            left = 0

            async def register(self) -> None:
                pass

            async def deregister(self) -> None:
                self.left += 1
                await Deferred()

        clock, registry = Clock(), Silent()
        found = Registration("x", registry, 15, clock)
        self.successResultOf(found.stop())
        self.assertEqual(registry.left, 0)
        found = Registration("x", registry, 15, clock)
        found.start()
        stopping = found.stop()
        self.assertNoResult(stopping)
        clock.advance(2)
        self.successResultOf(stopping)
        self.successResultOf(found.stop())
        self.assertEqual((registry.left, clock.getDelayedCalls()), (1, []))
