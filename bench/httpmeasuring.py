"""Measure one cell of the HTTP bench: one case, one server, one round."""

import os
from pathlib import Path

from bench.httpcases import FILES, MIB, Case, checkAnswer
from bench.httprecipes import HTTPRecipe
from bench.measuring import MeasureError, aloneOnTheCores, underLoad
from bench.processes import Server
from bench.results import Cell
from bench.wrk import Load, Report, runWrk

LARGE = MIB
"""From this size on answers are counted by their bytes: whole ones are few and end together."""


class HTTPServer(Server):
    """
    A server of the bench's application that runs while the context lasts.

    @ivar warm: The cases that it has been asked under load, so that compilers have done their work.
    """

    recipe: HTTPRecipe

    def __init__(self, recipe: HTTPRecipe, parent: Path) -> None:
        super().__init__(recipe, parent)
        self.warm: set[str] = set()


def canMeasure(server: HTTPServer, case: Case) -> bool:
    """Say whether a server has what a case asks for."""
    recipe = server.recipe
    return recipe.routes == case.routes and recipe.offers(case)


def makeFiles(folder: Path) -> Path:
    """Make the files that all servers serve, of random bytes."""
    folder.mkdir()
    for name, size in FILES.items():
        (folder / name).write_bytes(os.urandom(size))
    return folder


def check(server: HTTPServer, case: Case, files: Path) -> None:
    """
    Check that a server gives the right answer, without which its time is worth nothing.

    @raise MeasureError: If it does not.
    """
    fields = {"Content-Type": "application/json"} if case.posted else {}
    answer = server.exchange(case.method, case.target, case.posted or None, fields)
    checkAnswer(case, answer, files)


def complaint(case: Case, report: Report) -> str:
    """Say what makes a measurement invalid; nothing where it is valid."""
    if errors := str(report.errors):
        return f"errors: {errors}"
    if not report.requests:
        return f"no answer was complete within {report.seconds:.1f} s"
    if report.received < report.requests * case.size:
        return "answers were short"
    return ""


def measure(
    server: HTTPServer, case: Case, connections: int, seconds: int, warmSeconds: int, files: Path
) -> Cell:
    """
    Measure one cell.

    @param warmSeconds: How long the server is asked before, the first time that it is.
    @param files: Where the files lie that it serves.
    @raise MeasureError: If answers are not right or not there.
    @raise RuntimeError: If the client fails.
    """
    check(server, case, files)
    body = None
    if case.posted:
        body = server.folder / "posted"
        body.write_bytes(case.posted)
    with aloneOnTheCores():
        if warmSeconds and case.name not in server.warm:
            runWrk(server.port, Load(case.target, connections, warmSeconds, body))
            server.warm.add(case.name)
        load = Load(case.target, connections, seconds * case.longer, body)
        (report, clientCpu), used = underLoad(
            server, lambda started: runWrk(server.port, load, started)
        )
    if found := complaint(case, report):
        raise MeasureError(f"{case.name}: {found}")
    check(server, case, files)
    return makeCell(server.recipe.name, case, connections, report, used, clientCpu)


def makeCell(
    server: str, case: Case, connections: int, report: Report, cpu: float, clientCpu: float
) -> Cell:
    """
    Draw the figures of a cell from what the client saw.

    @param cpu: Seconds that the server used.
    @param clientCpu: Seconds that the client used.
    """
    answers = report.received / case.size if case.size >= LARGE else report.requests
    return Cell(
        server=server,
        case=case.name,
        connections=connections,
        rate=answers / report.seconds,
        megabytesPerSecond=report.received / report.seconds / 1e6,
        p50Ms=report.p50Ms,
        p99Ms=report.p99Ms,
        serverCpu=cpu / report.seconds,
        clientCpu=clientCpu / report.seconds,
        cpuMicrosPerRequest=cpu * 1e6 / answers,
        requests=answers,
    )
