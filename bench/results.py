"""
The results of a run: one JSON document.

The document keeps every round; medians are computed when a table is written.
"""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from bench.cases import OURS, Asked, Case


class Run(msgspec.Struct, frozen=True):
    """
    The place and time of a run.

    @ivar load: Processes that were ready to run in the minute before.
    @ivar versions: The version of each server, by name.
    """

    started: str
    commit: str
    python: str
    processor: str
    cores: int
    kernel: str
    filesystem: str
    load: float
    rounds: int
    seconds: float
    quick: bool
    versions: dict[str, str]


class Cell(msgspec.Struct, frozen=True):
    """
    One measurement: a case, a server, a number of connections, a round.

    @ivar rate: Requests a second.
    @ivar cpuMicros: CPU time of a request, in all processes of the server and behind it.
    @ivar othersMicros: The part of it that the first process did not use.
    @ivar serverCores: The processors that the server used.
    @ivar clientCores: The processors that the load used; near 1 it was the limit.
    @ivar grownBytes: Growth of the server's memory, if the case is about that.
    @ivar doubts: Reasons to doubt the figures.
    """

    case: str
    server: str
    connections: int
    rate: float
    megabytes: float
    p50Ms: float
    p99Ms: float
    cpuMicros: float
    othersMicros: float
    serverCores: float
    clientCores: float
    requests: float
    grownBytes: float | None = None
    doubts: tuple[str, ...] = ()

    @property
    def ownMicros(self) -> float:
        """Return the CPU time of a request in the first process."""
        return self.cpuMicros - self.othersMicros

    @property
    def grownMegabytes(self) -> float:
        """Return the growth of memory."""
        return (self.grownBytes or 0) / 1e6


class Failure(msgspec.Struct, frozen=True):
    """A measurement that could not be made, or whose answers were wrong or lost."""

    case: str
    server: str
    connections: int
    reason: str


Place = tuple[str, str, int]
"""Case, server, connections."""


class Results(msgspec.Struct):
    """
    A run.

    @ivar memory: Peak resident bytes of each server over the run, by folder and name.
    @ivar instructions: Instructions of a request outside of the kernel, by case and server.
    """

    run: Run
    cells: list[Cell] = []
    failures: list[Failure] = []
    memory: dict[str, int] = {}
    instructions: dict[str, float] = {}

    def rounds(self, case: str, server: str, connections: int) -> list[Cell]:
        """Return the rounds of a cell; none if one of them failed."""
        place = (case, server, connections)
        if any((each.case, each.server, each.connections) == place for each in self.failures):
            return []
        return [e for e in self.cells if (e.case, e.server, e.connections) == place]

    def rows(self, folder: str) -> list[Place]:
        """Return the cells of a folder in the order of their first measurement."""
        lines: list[Cell | Failure] = [*self.cells, *self.failures]
        places = {(each.case, each.server, each.connections): None for each in lines}
        found = [place for place in places if place[0].partition("/")[0] == folder]
        # A server that failed stays with its case.
        order = list(dict.fromkeys((case, connections) for case, _, connections in found))
        return sorted(found, key=lambda place: order.index((place[0], place[2])))

    def folders(self) -> list[str]:
        """Return the folders that were measured."""
        return list({cell.case.partition("/")[0]: None for cell in [*self.cells, *self.failures]})

    def median(self, place: Place, figure: Callable[[Cell], float]) -> float | None:
        """Return the median of a figure over the rounds; L{None} without a measurement."""
        values = [figure(cell) for cell in self.rounds(*place)]
        return statistics.median(values) if values else None

    def ratios(self, place: Place, other: Place, figure: str = "rate") -> list[float]:
        """Set a figure of each round in relation to the same figure of another cell."""
        pairs = zip(self.rounds(*place), self.rounds(*other), strict=False)
        found = [(getattr(ours, figure), getattr(theirs, figure)) for ours, theirs in pairs]
        return [ours / theirs for ours, theirs in found if theirs]


class Verdict(msgspec.Struct, frozen=True):
    """
    A bound and the figure that was measured.

    @ivar figure: L{None} if the run did not measure it.
    """

    text: str
    bound: str
    figure: float | None
    isMet: bool

    @property
    def word(self) -> str:
        """Return the verdict in a word or two."""
        if self.figure is None:
            return "not measured"
        return "met" if self.isMet else "missed"


def judge(results: Results, case: Case, asked: Asked) -> Verdict:
    """Compare an asked figure with the measured one."""
    ours = asked.ours or case.servers[0].name
    connections = asked.connections or case.connections[0]
    place = (case.name, ours, connections)
    other = (
        asked.case or case.name,
        asked.against or ours,
        asked.otherConnections or connections,
    )
    values: list[float]
    if not asked.against and not asked.case:
        values = [getattr(cell, asked.figure) for cell in results.rounds(*place)]
    elif asked.isDifference:
        pairs = zip(results.rounds(*place), results.rounds(*other), strict=False)
        values = [getattr(a, asked.figure) - getattr(b, asked.figure) for a, b in pairs]
    else:
        values = results.ratios(place, other, asked.figure)
    figure = statistics.median(values) if values else None
    name = case.name.partition("/")[2]
    rival = " ".join(filter(None, (asked.against, asked.case.partition("/")[2]))) or ours
    subject = "" if ours == OURS else f"{ours} "
    plain = f"{subject}against {rival}" if asked.against or asked.case else subject.strip()
    text = f"{name} x{connections}: {asked.text or plain}"
    bound = f"{'at most' if asked.isMost else 'at least'} {asked.bound:.3g}"
    isMet = figure is not None and (
        figure <= asked.bound if asked.isMost else figure >= asked.bound
    )
    return Verdict(text, bound, figure, isMet)


def verdicts(results: Results, cases: Iterable[Case]) -> list[Verdict]:
    """Judge all asked figures of some cases."""
    return [judge(results, case, asked) for case in cases for asked in case.asked]


def writeResults(path: Path, results: Results) -> None:
    """Write the document; a file that a reader has open stays whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    part.replace(path)


def readResults(path: Path) -> Results:
    """
    Read the document of a run.

    @raise msgspec.ValidationError: It is no such document.
    """
    return msgspec.json.decode(path.read_bytes(), type=Results)
