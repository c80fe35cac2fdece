"""Metrics of calls to instances."""

from collections.abc import Callable, Iterable
from typing import Any

from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry

_FORMER = {"healthy": "well", "unhealthy": "ill", "timeout": "late"}
"""The label values of earlier releases; their series are kept for one more release."""

Gauges = Callable[[], Iterable[tuple[str, str, float]]]
"""
Returns triples: C{healthy}, C{unhealthy}, C{ejected}, C{active}, C{queued} or C{connections}; the
name of a service; and the number.
"""

_GAUGES = {
    "active": "Calls in flight to instances.",
    "queued": "Calls waiting for an instance with capacity.",
    "connections": "Connections to instances.",
}


class UpstreamMetrics:
    """
    The metrics of all remote services; the first label is the service.

    Instances are not labels: in a dynamic environment there would soon be thousands.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._gauges: list[Gauges] = []

        def counter(name: str, help: str, *labels: str) -> Any:
            return registry.counter(
                f"storagegate_upstream_{name}_total", help, ("service", *labels)
            )

        self.attempts = counter(
            "attempts",
            "Outcomes of calls to instances: ok, error (the service's own), failed (no valid "
            "response), timeout, cancelled.",
            "outcome",
        )
        self.seconds = registry.histogram(
            "storagegate_upstream_duration_seconds",
            "Time until the response of an instance, or the start of its stream.",
            ("service",),
        )
        self.retries = counter("retries", "Calls retried on another instance.")
        self.refusedRetries = counter(
            "retries_refused",
            "Retries refused because the retry budget was used up.",
        )
        self.ejections = counter("ejections", "Instances ejected after consecutive failed calls.")
        self.checks = counter("checks", "Health checks by result, healthy or unhealthy.", "result")
        self.panics = counter("panics", "Calls sent while no instance was healthy.")
        self.refused = counter(
            "refused",
            "Calls that no instance received: all were busy (full), or none was known (none).",
            "reason",
        )
        registry.watch(self._families)

    def countAttempt(self, service: str, outcome: str) -> None:
        """Count the end of a call to an instance."""
        for name in _withFormer(outcome):
            self.attempts.add(1, (service, name))

    def countCheck(self, service: str, isHealthy: bool) -> None:
        """Count the end of a health check."""
        for name in _withFormer("healthy" if isHealthy else "unhealthy"):
            self.checks.add(1, (service, name))

    def watch(self, gauges: Gauges) -> None:
        """Add gauges, which are read at each scrape."""
        self._gauges.append(gauges)

    def forget(self, gauges: Gauges) -> None:
        """Remove gauges."""
        self._gauges.remove(gauges)

    def _families(self) -> Iterable[MetricFamily]:
        states: list[tuple[tuple[str, ...], float]] = []
        others: dict[str, list[tuple[tuple[str, ...], float]]] = {kind: [] for kind in _GAUGES}
        for gauges in self._gauges:
            for kind, service, value in gauges():
                if kind in others:
                    others[kind].append(((service,), value))
                else:
                    states += [((service, state), value) for state in _withFormer(kind)]
        help = "Instances: healthy, unhealthy (by health checks) or ejected (failed calls)."
        name = "storagegate_upstream_"
        # Every process sees the same instances, but only its own calls.
        yield MetricFamily(
            f"{name}instances", help, "gauge", ("service", "state"), (), "max", states
        )
        for kind, help in _GAUGES.items():
            yield MetricFamily(
                f"{name}{kind}", help, "gauge", ("service",), (), "sum", others[kind]
            )


def _withFormer(value: str) -> tuple[str, ...]:
    return (value, _FORMER[value]) if value in _FORMER else (value,)
