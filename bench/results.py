"""
What a run leaves behind: a file of JSON lines, each of one of the kinds below.

The file keeps every round; medians are drawn from it when a table is made.
"""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec


class Run(msgspec.Struct, frozen=True, tag="run", tag_field="kind"):
    """Where and how it was measured. The first line."""

    started: str
    processor: str
    cores: int
    kernel: str
    filesystem: str
    rounds: int
    seconds: float
    versions: dict[str, str]


class Cell(msgspec.Struct, frozen=True, tag="cell", tag_field="kind"):
    """
    One measurement.

    @ivar p50Ms: Milliseconds of a request; of a mixture, of its reads.
    @ivar serverCpu: The share of its core that the server used.
    @ivar clientCpu: The same of the client: near 1 the client was the limit, not the server.
    """

    server: str
    case: str
    connections: int
    rate: float
    megabytesPerSecond: float
    p50Ms: float
    p99Ms: float
    serverCpu: float
    clientCpu: float
    cpuMicrosPerRequest: float
    complaints: tuple[str, ...] = ()


class Failure(msgspec.Struct, frozen=True, tag="failure", tag_field="kind"):
    """A measurement that could not be made."""

    server: str
    case: str
    connections: int
    reason: str


class Memory(msgspec.Struct, frozen=True, tag="memory", tag_field="kind"):
    """The peak resident size of a server over the whole run, fills included."""

    server: str
    peakBytes: int


Line = Run | Cell | Failure | Memory
Place = tuple[str, str, int]
"""Server, case, connections."""


def encodeLine(line: Line) -> bytes:
    """Encode one line, its end included."""
    return msgspec.json.encode(line) + b"\n"


class Results:
    """The lines of one or more runs; a later run of a cell replaces an earlier one."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.runs: list[Run] = []
        self.memory: dict[str, int] = {}
        self.failures: list[Failure] = []
        self._cells: dict[Place, list[Cell]] = {}
        self._owners: dict[Place, int] = {}
        for line in lines:
            if isinstance(line, Run):
                self.runs.append(line)
            elif isinstance(line, Memory):
                self.memory[line.server] = max(line.peakBytes, self.memory.get(line.server, 0))
            elif isinstance(line, Failure):
                self.failures.append(line)
            else:
                self._add(line)

    def _add(self, cell: Cell) -> None:
        """Take a measurement; the first of a new run puts those of an earlier run away."""
        place = (cell.server, cell.case, cell.connections)
        if self._owners.get(place) != len(self.runs):
            self._cells[place] = []
            self._owners[place] = len(self.runs)
        self._cells[place].append(cell)

    def servers(self) -> list[str]:
        """List the servers in the order of their first measurement."""
        return list(dict.fromkeys(server for server, _, _ in self._cells))

    def rows(self) -> list[tuple[str, int]]:
        """List cases and connections in the order of their first measurement."""
        return list(dict.fromkeys((case, connections) for _, case, connections in self._cells))

    def cells(self, server: str, case: str, connections: int) -> list[Cell]:
        """List the rounds of one cell."""
        return self._cells.get((server, case, connections), [])

    def median(
        self, server: str, case: str, connections: int, figure: Callable[[Cell], float]
    ) -> float | None:
        """Draw the median of a figure over the rounds; L{None} where nothing was measured."""
        values = [figure(cell) for cell in self.cells(server, case, connections)]
        return statistics.median(values) if values else None

    def rate(self, server: str, case: str, connections: int) -> float | None:
        """Draw the median of requests per second."""
        return self.median(server, case, connections, lambda cell: cell.rate)


def readResults(paths: Iterable[Path]) -> Results:
    """
    Read files of JSON lines.

    @raise msgspec.ValidationError: If a line is of no known kind.
    """
    decoder = msgspec.json.Decoder(Line)
    return Results(
        decoder.decode(line) for path in paths for line in path.read_bytes().splitlines()
    )
