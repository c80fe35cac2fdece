"""
What a run leaves behind: a file of JSON lines, each of one of the kinds below.

The file keeps every round; medians are drawn from it when a table is made.
"""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec


class Run(msgspec.Struct, frozen=True, tag="run", tag_field="kind"):
    """
    Where and how it was measured. The first line.

    @ivar bench: C{s3}, C{http}, C{grpc}, C{gateway}, C{overhead}, C{growth}, C{cluster} or
        C{console}.
    @ivar load: How many processes of the machine wanted to run in the minute before; C{None} where
        nobody looked.
    """

    started: str
    processor: str
    cores: int
    kernel: str
    filesystem: str
    rounds: int
    seconds: float
    versions: dict[str, str]
    bench: str = "s3"
    load: float | None = None


class Cell(msgspec.Struct, frozen=True, tag="cell", tag_field="kind"):
    """
    One measurement.

    @ivar p50Ms: Milliseconds of a request; of a mixture, of its reads.
    @ivar serverCpu: The share of its core that the server used.
    @ivar clientCpu: The same of the client: near 1 the client was the limit, not the server.
    @ivar grownBytes: How much the server's memory grew, where the case is about that.
    @ivar besideMicros: What of C{cpuMicrosPerRequest} was used by processes that the server has
        started, where somebody looked.
    @ivar requests: How many were answered.
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
    grownBytes: int | None = None
    besideMicros: float | None = None
    requests: float = 0


class Failure(msgspec.Struct, frozen=True, tag="failure", tag_field="kind"):
    """A measurement that could not be made, or whose answers were wrong or lost."""

    server: str
    case: str
    connections: int
    reason: str


class Memory(msgspec.Struct, frozen=True, tag="memory", tag_field="kind"):
    """The peak resident size of a server over the whole run, all preparations included."""

    server: str
    peakBytes: int


Line = Run | Cell | Failure | Memory
Place = tuple[str, str, int]
"""Server, case, connections."""


def encodeLine(line: Line) -> bytes:
    """Encode one line, its end included."""
    return msgspec.json.encode(line) + b"\n"


class Results:
    """
    The lines of one or more runs of one bench; a later run of a cell replaces an earlier one.

    A cell that failed in a round has no figures at all.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self.runs: list[Run] = []
        self.memory: dict[str, int] = {}
        self._measured: dict[Place, list[Cell | Failure]] = {}
        self._owners: dict[Place, int] = {}
        for line in lines:
            if isinstance(line, Run):
                self.runs.append(line)
            elif isinstance(line, Memory):
                self.memory[line.server] = max(line.peakBytes, self.memory.get(line.server, 0))
            else:
                self._add(line)

    def _add(self, line: Cell | Failure) -> None:
        """Take a measurement; the first of a new run puts those of an earlier run away."""
        place = (line.server, line.case, line.connections)
        if self._owners.get(place) != len(self.runs):
            self._measured[place] = []
            self._owners[place] = len(self.runs)
        self._measured[place].append(line)

    @property
    def bench(self) -> str:
        """Say what was measured."""
        return self.runs[0].bench

    @property
    def failures(self) -> list[Failure]:
        """List what could not be measured."""
        lines = (line for lines in self._measured.values() for line in lines)
        return [line for line in lines if isinstance(line, Failure)]

    def servers(self) -> list[str]:
        """List the servers in the order of their first measurement."""
        return list(dict.fromkeys(server for server, _, _ in self._measured))

    def rows(self) -> list[tuple[str, int]]:
        """List cases and connections in the order of their first measurement."""
        return list(dict.fromkeys((case, connections) for _, case, connections in self._measured))

    def cells(self, server: str, case: str, connections: int) -> list[Cell]:
        """List the rounds of one cell; none where one failed."""
        lines = self._measured.get((server, case, connections), [])
        cells = [line for line in lines if isinstance(line, Cell)]
        return cells if len(cells) == len(lines) else []

    def median(
        self, server: str, case: str, connections: int, figure: Callable[[Cell], float]
    ) -> float | None:
        """Draw the median of a figure over the rounds; L{None} where nothing was measured."""
        values = [figure(cell) for cell in self.cells(server, case, connections)]
        return statistics.median(values) if values else None

    def rate(self, server: str, case: str, connections: int) -> float | None:
        """Draw the median of requests per second."""
        return self.median(server, case, connections, lambda cell: cell.rate)

    def ratios(
        self,
        server: str,
        other: str,
        case: str,
        connections: int,
        figure: Callable[[Cell], float] = lambda cell: cell.rate,
    ) -> list[float]:
        """Set a figure of each round in relation to the same of another server in that round."""
        ours, theirs = self.cells(server, case, connections), self.cells(other, case, connections)
        return [figure(a) / figure(b) for a, b in zip(ours, theirs, strict=False) if figure(b)]


def readResults(paths: Iterable[Path]) -> list[Results]:
    """
    Read files of JSON lines.

    @return: What is in them, each bench apart.
    @raise msgspec.ValidationError: If a line is of no known kind.
    """
    decoder = msgspec.json.Decoder(Line)
    benches: dict[str, list[Line]] = {}
    for path in paths:
        bench: list[Line] = []
        for text in path.read_bytes().splitlines():
            line = decoder.decode(text)
            if isinstance(line, Run):
                bench = benches.setdefault(line.bench, [])
            bench.append(line)
    return [Results(lines) for lines in benches.values()]
