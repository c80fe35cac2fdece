"""What the console shows of the registration of this daemon."""

from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.discovery import showDiscovery
from storagegate.upstream.options import DiscoveryOptions, Entry
from storagegate.upstream.provider import SourceError
from storagegate.upstream.registration import Registration


class _Registry:
    """A registry that refuses while C{problem} is set."""

    problem = "is away"

    async def register(self) -> None:
        if self.problem:
            raise SourceError(self.problem)

    async def deregister(self) -> None:
        pass


class RegistrationTests(SynchronousTestCase):
    """The registration."""

    def test_registration(self) -> None:
        """The entries are shown with the problem of the registry, until it has none."""
        clock, registry = Clock(), _Registry()
        entry = Entry("Orders", "Orders-1", "192.0.2.1", 8080, 2, True, ("blue",))
        registration = Registration("consul", registry, 15, clock, [entry])
        gateway = SimpleNamespace(
            discovery=DiscoveryOptions(provider="consul"), forwarding=None, discoveryProblem=None
        )
        service = SimpleNamespace(gateway=gateway, registration=registration)
        services = SimpleNamespace(
            daemon=SimpleNamespace(gateway=service), now=clock.seconds, reactor=clock
        )
        call: Any = SimpleNamespace(services=services)

        def shown() -> Any:
            coroutine = showDiscovery(call)
            with self.assertRaises(StopIteration) as ended:
                coroutine.send(None)
            return ended.exception.value

        self.assertFalse(shown().registration.isRegistered)
        registration.start()
        found = shown()
        self.assertEqual((found.provider, found.registration.registry), ("consul", "consul"))
        self.assertIn("is away", found.registration.problem)
        [each] = found.registration.entries
        self.assertEqual((each.service, each.host, each.weight), ("Orders", "192.0.2.1", 2))
        self.assertEqual((each.isSecure, each.tags), (True, ["blue"]))
        registry.problem = ""
        clock.pump([1.0] * 60)
        found = shown().registration
        self.assertEqual((found.isRegistered, found.problem), (True, ""))
        registration.stop()
