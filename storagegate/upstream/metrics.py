"""What is counted of calls to instances."""

from collections.abc import Callable, Iterable

from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry

_STATES = "Instances of each service: well, ill (by its health check) or ejected (failed calls)."


class UpstreamMeters:
    """
    The meters of all services that are elsewhere; each has the service for its first label.

    No instance is a label: where they come and go, there would soon be thousands.
    """

    def __init__(self, meters: MetricsRegistry) -> None:
        self._meters = meters
        self._gauges: list[Callable[[], Iterable[tuple[str, str, float]]]] = []
        service = ("service",)
        name = "storagegate_upstream_"
        self.attempts = meters.counter(
            f"{name}attempts_total",
            "What became of calls to instances: ok, error (the service's own), failed (no answer, "
            "or none that makes sense), late, cancelled.",
            ("service", "outcome"),
        )
        self.seconds = meters.histogram(
            f"{name}duration_seconds",
            "Time until an instance answered, or began to answer with a stream.",
            service,
        )
        self.retries = meters.counter(
            f"{name}retries_total", "Calls that went to another instance.", service
        )
        self.refusedRetries = meters.counter(
            f"{name}retries_refused_total",
            "Calls that might have gone to another instance, if fewer had done so before.",
            service,
        )
        self.ejections = meters.counter(
            f"{name}ejections_total", "Instances put out for calls that failed in a row.", service
        )
        self.checks = meters.counter(
            f"{name}checks_total", "Checks of health, well or ill.", ("service", "result")
        )
        self.panics = meters.counter(
            f"{name}panics_total", "Calls sent though no instance seemed well.", service
        )
        self.refused = meters.counter(
            f"{name}refused_total",
            "Calls that no instance got: all were busy (full), or there was none (none).",
            ("service", "reason"),
        )
        meters.watch(self._families)

    def watch(self, gauges: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        """
        Have numbers of a service asked for when somebody looks.

        @param gauges: Gives triples: C{well}, C{ill}, C{ejected}, C{active}, C{queued} or
            C{connections}; the service; and how many.
        """
        self._gauges.append(gauges)

    def forget(self, gauges: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        """Ask no more."""
        self._gauges.remove(gauges)

    def _families(self) -> Iterable[MetricFamily]:
        states: list[tuple[tuple[str, ...], float]] = []
        others: dict[str, list[tuple[tuple[str, ...], float]]] = {
            "active": [],
            "queued": [],
            "connections": [],
        }
        for gauges in self._gauges:
            for kind, service, value in gauges():
                if kind in others:
                    others[kind].append(((service,), value))
                else:
                    states.append(((service, kind), value))
        # Every process has an eye on the same instances; its calls are its own.
        yield _gauge("instances", _STATES, ("service", "state"), "max", states)
        for kind, help in (
            ("active", "Calls in flight with instances."),
            ("queued", "Calls that wait until an instance may have another."),
            ("connections", "Connections to instances."),
        ):
            yield _gauge(kind, help, ("service",), "sum", others[kind])


def _gauge(
    name: str,
    help: str,
    labels: tuple[str, ...],
    merge: str,
    samples: list[tuple[tuple[str, ...], float]],
) -> MetricFamily:
    return MetricFamily(f"storagegate_upstream_{name}", help, "gauge", labels, (), merge, samples)
