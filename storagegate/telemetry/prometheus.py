"""
C{GET /metrics} of the admin listener: a snapshot of the meters in Prometheus's text format, or in
OpenMetrics if the request's C{Accept} prefers it.

prometheus_client is imported on the first scrape, in the thread that writes the page: it takes 14
MB and 0.1 s, which a daemon without scrapes saves.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
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

Response = tuple[int, list[tuple[bytes, bytes]], bytes]

Snapshot = Callable[[], Deferred[list[MetricFamily]] | list[MetricFamily]]
"""Returns the families of this process, or the merged families of several."""

_TOPIC = "meters"

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_NO_STORE = (b"cache-control", b"no-store")

_QUALITY = re.compile(r"[01](\.\d*)?", re.ASCII)


def shareMeters(link: Any, meters: MetricsRegistry) -> Snapshot:
    """
    Answer the other workers' requests for this worker's metrics.

    Counters and histograms get a label C{worker} and are not summed: a replaced worker starts at 0,
    and a worker that does not reply in time is omitted. In a sum, both would look like a reset, and
    the counts of the other workers like new work.

    @param link: The L{WorkerIPC<storagegate.net.ipc.WorkerIPC>}.
    @param meters: The metrics of this worker.
    @return: A function that requests and merges the snapshots of all workers, including this one.
    """
    link.answer(_TOPIC, lambda _: asPlain(_labelled(meters.snapshot(), str(link.index))))

    def merge(replies: list[Any]) -> list[MetricFamily]:
        help = "Workers that answered this scrape."
        count = gaugeFamily("storagegate_workers", help, len(replies))
        return mergeFamilies([[count], *map(fromPlain, replies)])

    def snapshot() -> Deferred[list[MetricFamily]]:
        replies: Deferred[list[Any]] = link.ask(_TOPIC)
        return replies.addCallback(merge)

    return snapshot


async def mergedSnapshot(link: Any, meters: MetricsRegistry) -> list[MetricFamily]:
    """
    Return the metrics of all workers, merged as in L{shareMeters}.

    @param link: The worker's connection to the others; C{None} without workers.
    @param meters: The metrics of this process, shared by L{shareMeters}.
    """
    if link is None:
        return meters.snapshot()
    return mergeFamilies(map(fromPlain, await link.ask(_TOPIC)))


def _labelled(families: Iterable[MetricFamily], worker: str) -> Iterable[MetricFamily]:
    """Label the counters and histograms with their worker."""
    for family in families:
        if family.kind == "gauge":
            yield family
        else:
            samples = [((*labels, worker), value) for labels, value in family.samples]
            yield replace(family, labels=(*family.labels, "worker"), samples=samples)


async def askMeters(link: Any, meters: MetricsRegistry) -> list[MetricFamily]:
    """
    Return the metrics of all workers, labelled as in L{shareMeters}, or of a single process.

    @param link: The L{WorkerIPC<storagegate.net.ipc.WorkerIPC>}; C{None} without workers.
    @param meters: The metrics of this process.
    """
    if link is None:
        return meters.snapshot()
    return mergeFamilies([*map(fromPlain, await link.ask(_TOPIC))])


class MetricsPage:
    """Responds to scrapes."""

    def __init__(self, snapshot: Snapshot, run: Callable[..., Deferred[Any]]) -> None:
        """
        @param snapshot: Called for each scrape.
        @param run: Calls C{run(function, *arguments)} in a thread: a large page takes 0.1 s.
        """
        self._snapshot = snapshot
        self._run = run

    async def respond(self, method: bytes, accept: bytes) -> Response:
        """
        Make the response to a request.

        @param method: The HTTP method; all except C{GET} and C{HEAD} get status 405.
        @param accept: The value of C{Accept}, or an empty string.
        @return: Status, header fields and body.
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
    Return whether C{Accept} prefers OpenMetrics to the default text format.

    Parameters other than C{q} are ignored: scrapers name preferred versions and escapings, but
    accept others.

    @param accept: The field's value, or an empty string.
    """
    qualities = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for item in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind in qualities:
            # A q-value by RFC 9110 section 12.4.2; 1 by default.
            given = [text[2:] for text in parameters if text.startswith("q=")]
            quality = 1.0
            if given:
                quality = float(given[0]) if _QUALITY.fullmatch(given[0]) else 0.0
            qualities[kind] = max(qualities[kind], quality)
    return qualities["application/openmetrics-text"] > qualities["text/plain"]


def writePage(families: Iterable[MetricFamily], isOpen: bool) -> bytes:
    """
    Write a page. May run in any thread.

    @param families: The metrics, in the order of the page.
    @param isOpen: Whether to write OpenMetrics instead of the text format.
    """
    from prometheus_client import exposition
    from prometheus_client.openmetrics import exposition as openmetrics

    write = openmetrics.generate_latest if isOpen else exposition.generate_latest
    registry = SimpleNamespace(collect=lambda: map(_metric, families))
    page: bytes = write(registry)
    return page


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
