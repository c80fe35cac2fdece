"""What every provider with a source promises, whatever the source is."""

from typing import Any

from twisted.internet.defer import Deferred

from tests.support.discovering import NONSENSE, DiscoveryCase, NonsenseFactory, Watcher
from tests.support.selection import long


class ProviderContract(DiscoveryCase):
    """
    Cases of a provider, mixed into those of each.

    @cvar settings: The options of the provider that all cases have. Who is there answers in time,
        however busy the machine is.
    @cvar hurried: Those for a source that may not answer at all.
    """

    provides = ""
    settings: dict[str, Any] = {"timeoutMs": 30_000}
    hurried: dict[str, Any] = {"timeoutMs": 1_000}

    source: Any

    def address(self) -> dict[str, Any]:
        """Give the options that say where the source is."""
        raise NotImplementedError

    def put(self, service: str, id: str, host: str, port: int, weight: int = 1) -> None:
        """Have the source know an instance."""
        raise NotImplementedError

    def remove(self, service: str, id: str) -> None:
        """Have the source forget an instance."""
        raise NotImplementedError

    def written(self, service: str) -> bytes:
        """Give what stands in requests for a service."""
        raise NotImplementedError

    def watched(self, *services: str, **more: Any) -> tuple[Any, dict[str, Watcher]]:
        """Watch services."""
        return self.provider(
            provider=self.provides,
            services=dict.fromkeys(services, "auto-discover"),
            **{self.provides: {**self.settings, **self.address(), **more}},
        )

    async def test_changes(self) -> None:
        """What is there is told, then each change; of an empty service, that it is empty."""
        self.put("A", "one", "10.0.0.1", 80)
        self.put("B", "one", "10.1.0.1", 80)
        provider, seen = self.watched("A", "C")
        await seen["A"].until("10.0.0.1:80")
        await seen["C"].until()
        self.put("A", "two", "10.0.0.2", 81)
        await seen["A"].until("10.0.0.1:80", "10.0.0.2:81")
        self.remove("A", "one")
        await seen["A"].until("10.0.0.2:81")
        self.remove("A", "two")
        await seen["A"].until()
        self.assertEqual(len(seen["A"].told), 4)
        self.assertEqual(seen["C"].told, [()])
        self.assertIsNone(provider.problem)
        instances = self.counted("storagegate_discovery_instances")
        self.assertEqual(instances, {"A": 0, "C": 0})
        self.assertEqual(self.counted("storagegate_discovery_changes_total"), {"A": 4, "C": 1})

    @long("waits for a server that is away")
    async def test_away(self) -> None:
        """
        A source that is not there at the start is found when it comes. Of one that is killed the
        last word counts, until it is back and has another.
        """
        self.put("A", "one", "10.0.0.1", 80)
        await self.source.kill()
        provider, seen = self.watched("A")
        await self.see(lambda: provider.problem is not None)
        self.assertEqual(seen["A"].told, [])
        await self.source.start()
        await seen["A"].until("10.0.0.1:80")
        await self.source.kill()
        await self.see(lambda: provider.problem is not None)
        self.assertTrue(provider.problem.startswith("A: "), provider.problem)
        await self.source.start()
        self.put("A", "two", "10.0.0.2", 80)
        await seen["A"].until("10.0.0.1:80", "10.0.0.2:80")
        await self.see(lambda: provider.problem is None)
        self.assertEqual(len(seen["A"].told), 2)

    @long("waits for a server that is away")
    async def test_nonsense(self) -> None:
        """Whatever nonsense a source talks: it is a problem, and changes nothing."""
        for name in NONSENSE:
            self.put(name, "one", "10.0.0.1", 80)
        provider, seen = self.watched(*NONSENSE, **self.hurried)
        for name in NONSENSE:
            await seen[name].until("10.0.0.1:80")
        # Whoever has heard of this waits for news now, and hears of the end, too.
        for name in NONSENSE:
            self.put(name, "two", "10.0.0.2", 80)
        for name in NONSENSE:
            await seen[name].until("10.0.0.1:80", "10.0.0.2:80")
        before: dict[str, float] = {}

        def failures(name: str) -> float:
            return self.counted("storagegate_discovery_failures_total").get(name, 0)

        known = {name: failures(name) for name in NONSENSE}
        await self.source.kill()
        # Who has not noticed may be about to wait for news, where silence is no nonsense.
        await self.see(lambda: all(failures(name) > known[name] for name in NONSENSE))
        factory = NonsenseFactory(
            self.written, lambda name: before.setdefault(name, failures(name))
        )
        port = self.reactor.listenTCP(self.source.port, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        await self.see(
            lambda: all(name in before and failures(name) > before[name] for name in NONSENSE)
        )
        told = {name: len(each.told) for name, each in seen.items()}
        self.assertEqual(told, dict.fromkeys(NONSENSE, 2))
        await provider.stop()
        await self.see(lambda: not factory.open)

    async def test_stop(self) -> None:
        """After the stop nothing is told, and the source is asked nothing."""
        provider, seen = self.watched("A")
        await seen["A"].until()
        await provider.stop()
        self.put("A", "one", "10.0.0.1", 80)
        pause: Deferred[None] = Deferred()
        self.reactor.callLater(0.3, pause.callback, None)
        await pause
        self.assertEqual(seen["A"].told, [()])
