"""Measure one cell of the overhead bench: one case, one daemon, one round."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.blast import Load, bodyFile, runClient, writeRequests
from bench.client import CLIENT_CORE, Started
from bench.filling import ensureBenchBucket, fillStored
from bench.gatewaycases import TEXT
from bench.gatewaymeasuring import JSON, Seen, makeCell, postTo
from bench.measuring import MeasureError, aloneOnTheCores, underLoad
from bench.overheadrecipes import ADMIN_SOCKET, BODY, STORED, Case, OverheadRecipe
from bench.places import COLLECTOR
from bench.results import Cell
from bench.s3cases import requestsOf
from bench.s3measuring import complaints
from bench.s3server import S3Server
from bench.scraping import scraping

Run = Callable[[Started | None], tuple[Seen, float]]
"""Runs a load; gives what the client saw and the CPU seconds that it used."""


class OverheadServer(S3Server):
    """
    A daemon that runs while the context lasts.

    @ivar isWarm: Whether it has been asked under load.
    """

    recipe: OverheadRecipe

    def __init__(self, recipe: OverheadRecipe, parent: Path) -> None:
        super().__init__(recipe, parent)
        self.isWarm = False

    @property
    def adminSocket(self) -> Path | None:
        """Give where its metrics are read; C{None} where they are not."""
        return self.folder / ADMIN_SOCKET if self.recipe.isScraped else None


@contextmanager
def collecting() -> Iterator[int]:
    """Run a stand-in for a collector beside the client; give its port."""
    words = ["taskset", "-c", CLIENT_CORE, sys.executable, str(COLLECTOR)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def check(server: OverheadServer, case: Case) -> None:
    """
    Check that a daemon gives the right answer, without which its time is worth nothing.

    @raise MeasureError: If it does not.
    """
    if server.recipe.isS3:
        ensureBenchBucket(server)
        fillStored(server, STORED)
        return
    answer = server.exchange("POST", case.target, BODY, JSON)
    if answer.status != 200 or json.loads(answer.body).get("data") != {"text": TEXT}:
        raise MeasureError(f"{case.name}: answered {answer.status} {answer.body[:200]!r}")


def _makeLoad(server: OverheadServer, case: Case, connections: int, seconds: int) -> Run:
    if server.recipe.isS3:
        return _readObjects(server, connections, seconds)
    return postTo(server, case.target, connections, seconds)


def _readObjects(server: OverheadServer, connections: int, seconds: int) -> Run:
    path = server.folder / "requests"
    writeRequests(path, requestsOf(STORED, ""), server.host, server.authorizer)
    load = Load(path, bodyFile(server.folder, STORED.size), connections, seconds)

    def run(started: Started | None) -> tuple[Seen, float]:
        outcome = runClient(server.port, load, started)
        latency = outcome.tags["0"]
        complaint = "; ".join(complaints(STORED, outcome))
        seen = (outcome.done, outcome.seconds, outcome.received, latency.p50, latency.p99)
        return Seen(*seen, complaint=complaint), outcome.clientCpu * outcome.seconds

    return run


def measure(
    server: OverheadServer, case: Case, connections: int, seconds: int, warmSeconds: int
) -> Cell:
    """
    Measure one cell.

    @param warmSeconds: How long the daemon is asked before, the first time that it is.
    @raise MeasureError: If answers are not right or not there, or metrics cannot be read.
    @raise RuntimeError: If the client fails.
    """
    check(server, case)
    with aloneOnTheCores():
        if warmSeconds and not server.isWarm:
            _makeLoad(server, case, connections, warmSeconds)(None)
            server.isWarm = True
        load = _makeLoad(server, case, connections, seconds)
        first = server.firstCpu()
        with scraping(server.adminSocket) as scraper:
            (seen, clientCpu), used = underLoad(server, load)
        first = server.firstCpu() - first
    if seen.complaint or not seen.calls:
        raise MeasureError(f"{case.name}: {seen.complaint or 'no call was answered'}")
    if scraper is not None and (scraper.problem or not scraper.reads):
        raise MeasureError(f"the metrics were not read: {scraper.problem}")
    cell = makeCell(server.recipe.name, case.name, connections, seen, used, clientCpu)
    beside = max(0.0, used - first) * 1e6 / seen.calls
    return msgspec.structs.replace(cell, besideMicros=beside)
