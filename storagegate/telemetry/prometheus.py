"""
C{GET /metrics} of the admin listener: a snapshot of the meters in Prometheus's text format, or in
OpenMetrics where the C{Accept} of the request prefers that.

prometheus_client is imported with the first scrape, in the thread that writes the page: it takes
14 MB and a tenth of a second, and a daemon that nobody scrapes has no need of it.
"""

from collections.abc import Awaitable, Callable, Iterable
from itertools import accumulate
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from storagegate.telemetry.metrics import (
    MetricFamily,
    MetricsRegistry,
    asPlain,
    fromPlain,
    gaugeFamily,
    mergeFamilies,
)

PATH = b"/metrics"

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

Snapshot = Callable[[], Deferred[list[MetricFamily]] | list[MetricFamily]]
"""Gives what there is to tell, of this process or of several together."""

_TOPIC = "meters"

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_NO_STORE = (b"cache-control", b"no-store")


def shareMeters(link: Any, meters: MetricsRegistry) -> Snapshot:
    """
    Tell the other workers of this one's meters whenever they ask.

    What only grows has a label C{worker}, and is not added up: one that is replaced begins at 0,
    and one that does not answer in time is left out. In a sum both would look like a counter that
    began anew, and all that the others have counted like the work of a moment.

    @param link: The L{WorkerIPC<storagegate.net.ipc.WorkerIPC>}.
    @return: Asks all of them, this one included.
    """
    link.answer(_TOPIC, lambda _: asPlain(_named(meters.snapshot(), str(link.index))))

    def together(answers: list[Any]) -> list[MetricFamily]:
        help = "Workers that answered this scrape."
        count = gaugeFamily("storagegate_workers", help, len(answers))
        return mergeFamilies([[count], *map(fromPlain, answers)])

    def ask() -> Deferred[list[MetricFamily]]:
        asked: Deferred[list[Any]] = link.ask(_TOPIC)
        return asked.addCallback(together)

    return ask


def _named(families: Iterable[MetricFamily], worker: str) -> Iterable[MetricFamily]:
    """Say whose the counters and histograms are."""
    for family in families:
        if family.kind == "gauge":
            yield family
        else:
            samples = [((*labels, worker), value) for labels, value in family.samples]
            yield evolve(family, labels=(*family.labels, "worker"), samples=samples)


class MetricsPage:
    """Answers scrapes."""

    def __init__(self, snapshot: Snapshot, run: Callable[..., Deferred[Any]]) -> None:
        """
        @param run: Calls C{run(function, *arguments)} in a thread: a large page takes a tenth of a
            second to write.
        """
        self._snapshot = snapshot
        self._run = run

    async def answer(self, method: bytes, accept: bytes) -> Answer:
        """
        Answer a request.

        @param accept: Its C{Accept}, empty if it has none.
        """
        if method not in (b"GET", b"HEAD"):
            return 405, [(b"allow", b"GET, HEAD"), _NO_STORE], b""
        families: Any = self._snapshot()
        if isinstance(families, Awaitable):
            families = await families
        isOpen = prefersOpenMetrics(accept.decode("latin-1"))
        body: bytes = await self._run(writePage, families, isOpen)
        contentType = _OPEN_METRICS if isOpen else _TEXT
        return 200, [(b"content-type", contentType.encode("ascii")), _NO_STORE], body


def prefersOpenMetrics(accept: str) -> bool:
    """
    Tell whether C{Accept} puts OpenMetrics before text, which is what all others get.

    Parameters but C{q} are not compared: scrapers name versions and escapings that they would like,
    and take others.
    """
    qualities = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in qualities:
            qualities[kind] = max(qualities[kind], _quality(parameters))
    return qualities["application/openmetrics-text"] > qualities["text/plain"]


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "q":
            whole, _, part = value.partition(".")
            isNumber = whole in ("0", "1") and (not part or (part.isdecimal() and part.isascii()))
            return float(value) if isNumber else 0.0
    return 1.0


def writePage(families: Iterable[MetricFamily], isOpen: bool) -> bytes:
    """Write a page. May run in any thread."""
    from prometheus_client import exposition
    from prometheus_client.openmetrics import exposition as openmetrics

    write = openmetrics.generate_latest if isOpen else exposition.generate_latest
    page: bytes = write(_Registry(families))
    return page


class _Registry:
    """A snapshot, as prometheus_client wants to be given one."""

    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        """Give the families."""
        return map(_metric, self._families)


def _metric(family: MetricFamily) -> Any:
    from prometheus_client import core

    if family.kind == "histogram":
        bounds = [*(str(float(bound)) for bound in family.buckets), "+Inf"]
        histogram = core.HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, values in family.samples:
            counts = accumulate(values[:-1])
            histogram.add_metric(labels, list(zip(bounds, counts, strict=True)), values[-1])
        return histogram
    kinds = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
    metric = kinds[family.kind](family.name, family.help, labels=family.labels)
    for labels, value in family.samples:
        metric.add_metric(labels, value)
    return metric
