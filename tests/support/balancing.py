"""Clusters without a network: instances, fake connections and predictable randomness."""

from random import Random
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from storagegate.telemetry.metrics import MetricsRegistry
from storagegate.upstream.cluster import Cluster
from storagegate.upstream.metrics import UpstreamMetrics
from storagegate.upstream.options import DiscoveredService, Instance
from storagegate.upstream.strategies import STRATEGIES


class LongestRandom(Random):
    """Always draws the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        """Return the upper bound."""
        return b


@define
class Candidate:
    """An instance, in the form that strategies see."""

    id: str
    weight: int = 1
    active: int = 0


def instances(*names: str, weight: int = 1) -> list[Instance]:
    """Make instances with the given names, each at its own address."""
    return [Instance(name, 8000, weight, name) for name in names]


class ClusterCase:
    """
    A cluster of C{Probe}.

    @ivar connecting: The attempted connections: the instance and the Deferred to fire.
    """

    def __init__(self, *names: str, **options: Any) -> None:
        self.clock = Clock()
        self.meters = MetricsRegistry()
        self.upstreamMetrics = UpstreamMetrics(self.meters)
        self.connecting: list[tuple[Instance, Deferred[Any]]] = []
        self.options = DiscoveredService(**options)
        self.cluster = Cluster(
            "Probe",
            self.options,
            {"default": STRATEGIES[self.options.strategy]()},
            self._connect,
            self.clock,
            LongestRandom(),
            self.upstreamMetrics,
        )
        self.cluster.setInstances(instances(*names))

    def _connect(self, instance: Instance) -> Deferred[Any]:
        connected: Deferred[Any] = Deferred()
        self.connecting.append((instance, connected))
        return connected

    def value(self, name: str, *labels: str) -> Any:
        """Return the value of a metric; 0 if it has no sample."""
        for family in self.meters.snapshot():
            if family.name == f"storagegate_upstream_{name}":
                return {tuple(key): value for key, value in family.samples}.get(labels, 0)
        raise AssertionError(f"there is no meter {name}")
