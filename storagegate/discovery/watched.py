"""What all providers have in common: who wants to know what, and what was last known."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.meters import Meters
from storagegate.discovery.follower import Follower
from storagegate.discovery.instances import Instance, distinct
from storagegate.discovery.interfaces import Changed, IProvider
from storagegate.discovery.services import DiscoveredService
from storagegate.discovery.trouble import Trouble

_log = Logger()


class Publish(Protocol):
    """Takes what a source says of a service."""

    def __call__(self, instances: Iterable[Instance], wrong: str | None = None) -> None:
        """
        Take it.

        @param wrong: What of it had to be left out.
        """


class Watch(Protocol):
    """Follows one service at a source."""

    async def step(self) -> float:
        """
        Ask once, and publish the answer.

        @return: Seconds to wait before the next time.
        @raise SourceError: If there was none.
        """


MakeWatch = Callable[[str, Publish], Watch]
"""Makes what follows the service of a name at the source."""


class _Known:
    """What is known of one service."""

    def __init__(self) -> None:
        self.instances: tuple[Instance, ...] | None = None
        self.changed: list[Changed] = []
        self.wrong: str | None = None


@implementer(IProvider)
class Provider:
    """Tells where services are: those with a list at once, others as a source says."""

    def __init__(
        self,
        name: str,
        services: Mapping[str, DiscoveredService],
        makeWatch: MakeWatch | None,
        reactor: Any,
        meters: Meters,
        chance: Callable[[], float],
    ) -> None:
        """
        @param name: That of the provider.
        @param makeWatch: C{None} if there is no source.
        """
        self._services = services
        self._makeWatch = makeWatch
        self._reactor = reactor
        self._chance = chance
        self._trouble = Trouble(f"discovery by {name}", reactor.seconds)
        self._known: dict[str, _Known] = {}
        self._followers: list[Follower] = []
        self._stopped = False
        self._gauge = meters.gauge(
            "storagegate_discovery_instances", "Instances known of a service.", ["service"], "max"
        )
        self._failures = meters.counter(
            "storagegate_discovery_failures_total", "Questions without an answer.", ["service"]
        )
        self._changes = meters.counter(
            "storagegate_discovery_changes_total", "Changes of the instances known.", ["service"]
        )

    @property
    def problem(self) -> str | None:
        """Tell what is wrong with the source now; C{None} if nothing is."""
        return self._trouble.problem

    def watch(self, service: str, changed: Changed) -> None:
        """Have the instances of a service told."""
        self._known.setdefault(service, _Known()).changed.append(changed)

    def start(self) -> None:
        """Begin."""
        for service in self._known:
            options = self._services.get(service) or DiscoveredService()
            if options.instances is not None:
                self._publish(service, options.instances)
            elif self._makeWatch is not None:
                self._follow(service, options.name or service, self._makeWatch)

    def stop(self) -> Deferred[None]:
        """End."""
        self._stopped = True
        followers, self._followers = self._followers, []
        stopping: Deferred[Any] = gatherResults([each.stop() for each in followers])
        return stopping.addCallback(lambda results: None)

    def _follow(self, service: str, knownAs: str, makeWatch: MakeWatch) -> None:
        known = self._known[service]

        def publish(instances: Iterable[Instance], wrong: str | None = None) -> None:
            known.wrong = wrong
            # By their names: a source that lists the same in another order has no news.
            self._publish(service, tuple(sorted(distinct(instances), key=lambda each: each.id)))

        def failed(text: str) -> None:
            self._failures.add(1, (service,))
            self._trouble.begin(service, text)

        def worked() -> None:
            if known.wrong is None:
                self._trouble.end(service)
            else:
                self._trouble.begin(service, known.wrong)

        step = makeWatch(knownAs, publish).step
        follower = Follower(self._reactor, step, failed, worked, self._chance)
        self._followers.append(follower)
        follower.start()

    def _publish(self, service: str, instances: tuple[Instance, ...]) -> None:
        known = self._known[service]
        if self._stopped or instances == known.instances:
            return
        known.instances = instances
        self._gauge.set(len(instances), (service,))
        self._changes.add(1, (service,))
        for changed in known.changed:
            try:
                changed(instances)
            except Exception:
                _log.failure("the instances of {service} were not taken", service=service)
