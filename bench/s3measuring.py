"""Measure one cell: one case, one server, one number of connections, one round."""

import secrets
import subprocess
from pathlib import Path

from bench.blast import Load, Outcome, bodyFile, runClient, writeRequests
from bench.filling import (
    checkList,
    ensureBenchBucket,
    fillBucketToList,
    fillStored,
    makeRoom,
    requireAll,
    sendOnce,
)
from bench.measuring import aloneOnTheCores, underLoad
from bench.results import Cell
from bench.s3cases import GROUP, Case, expectedBytes, freshPaths, puts, requestsOf
from bench.s3server import S3Server
from bench.signing import Request

SERIAL_DELETES = 1_000
"""One connection deletes fewer, or a round with a slow server takes a minute."""


def canMeasure(server: S3Server, case: Case) -> bool:
    """Say whether a server can do what a case asks: not all list so much, or take so much."""
    recipe = server.recipe
    if recipe.largest is not None and case.size > recipe.largest:
        return False
    return case.work != "list" or case.keys <= recipe.listLimit


def settleDisk(folder: Path) -> None:
    """
    Write out what earlier runs left in the page cache.

    Else a server that syncs would pay in its turn for the unsynced writes of another.
    """
    subprocess.run(["sync", "-f", str(folder)], check=True)


def prepare(server: S3Server, case: Case, paths: list[str]) -> None:
    """
    Make what a case needs to be there.

    @param paths: What a C{delete} will delete.
    """
    if case.work == "list":
        fillBucketToList(server, case)
        entries = min(GROUP, case.keys // GROUP) if case.delimiter else GROUP
        checkList(server, case, requestsOf(case, "")[0], entries)
        return
    ensureBenchBucket(server)
    if case.work in ("get", "head", "mixed", "overwrite"):
        fillStored(server, case)
    elif case.work == "delete":
        outcome = sendOnce(server, puts(paths, case.size), case.size)
        requireAll(outcome, len(paths), "write what will be deleted")


def complaints(case: Case, outcome: Outcome) -> list[str]:
    """List what makes a measurement doubtful."""
    found = []
    if outcome.bad or outcome.lost:
        found.append(f"{outcome.bad} bad ({outcome.lastBadStatus}), {outcome.lost} lost")
    if outcome.laps and case.work == "put":
        found.append("names repeated")
    written = outcome.tags["1"].n if "1" in outcome.tags else 0
    if outcome.received < expectedBytes(case, outcome.done - outcome.bad, written):
        found.append("answers were short")
    return found


def measure(
    server: S3Server,
    case: Case,
    connections: int,
    seconds: float,
    instead: list[Request] | None = None,
) -> Cell:
    """
    Measure one cell.

    @param instead: What is requested in place of what the case says.
    @raise FillError: If the server does not take what the case needs.
    @raise RuntimeError: If the client fails.
    """
    nonce = secrets.token_hex(4)
    requests = instead or requestsOf(case, nonce)
    if case.work == "delete" and connections == 1:
        requests = requests[:SERIAL_DELETES]
    prepare(server, case, [request.path for request in requests])
    path = server.folder / "requests"
    writeRequests(path, requests, server.host, server.authorizer)
    duration = 0 if case.work == "delete" else seconds
    load = Load(path, bodyFile(server.folder, case.size), connections, duration)
    with aloneOnTheCores():
        settleDisk(server.folder)
        outcome, used = underLoad(server, lambda told: runClient(server.port, load, told))
    if case.work == "put":
        makeRoom(server, freshPaths(case, nonce)[: outcome.issued])
    return makeCell(server.recipe.name, case, connections, outcome, used)


def makeCell(server: str, case: Case, connections: int, outcome: Outcome, cpu: float) -> Cell:
    """
    Draw the figures of a cell from what the client saw.

    @param cpu: Seconds that the server used.
    """
    latency = outcome.tags.get("0")
    return Cell(
        server=server,
        case=case.name,
        connections=connections,
        rate=outcome.done / outcome.seconds,
        megabytesPerSecond=max(outcome.received, outcome.sent) / outcome.seconds / 1e6,
        p50Ms=latency.p50 if latency else 0,
        p99Ms=latency.p99 if latency else 0,
        serverCpu=cpu / outcome.seconds,
        clientCpu=outcome.clientCpu,
        cpuMicrosPerRequest=cpu * 1e6 / max(1, outcome.done),
        complaints=tuple(complaints(case, outcome)),
        requests=outcome.done,
    )
