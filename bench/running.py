"""What every bench does as a program: note where it runs, take turns, keep each figure."""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Protocol, TypeVar

from bench.measuring import MeasureError
from bench.places import CHECKOUT
from bench.processes import Server, StartError
from bench.results import Cell, Failure, Line, Memory, Run, encodeLine, readResults
from bench.table import document


class Row(Protocol):
    """A case, of whichever bench."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def connections(self) -> tuple[int, ...]:
        """With how many connections it is measured."""
        ...


CaseT = TypeVar("CaseT", bound=Row)
ServerT = TypeVar("ServerT", bound=Server)


def addCommonOptions(parser: argparse.ArgumentParser, cases: Iterable[str]) -> None:
    """Add the options that every bench has."""
    names = list(cases)
    parser.add_argument("--rounds", type=int, default=3, help="of each cell (3)")
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="CASE")
    parser.add_argument("--connections", nargs="+", type=int, help="in place of each case's own")
    parser.add_argument("--folder", type=Path, help="where the servers keep their data")
    parser.add_argument("--output", type=Path, help="the file of JSON lines")


def processorName(cpuinfo: str) -> str:
    """Read the processor's name out of C{/proc/cpuinfo}."""
    for line in cpuinfo.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(
    bench: str, versions: Mapping[str, str], options: argparse.Namespace, folder: Path
) -> Run:
    """Note where and how this run measures."""
    found = subprocess.run(
        ["df", "--output=fstype", str(folder)], capture_output=True, text=True, check=True
    )
    return Run(
        started=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=processorName(Path("/proc/cpuinfo").read_text()),
        cores=os.cpu_count() or 0,
        kernel=platform.release(),
        filesystem=found.stdout.split()[-1],
        rounds=options.rounds,
        seconds=options.seconds,
        versions=dict(versions),
        bench=bench,
        load=os.getloadavg()[0],
    )


class Recorder:
    """Writes each line to the file at once, so that a broken run keeps what it had."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, line: Line) -> None:
        """Append a line and say it."""
        with self.path.open("ab") as file:
            file.write(encodeLine(line))
        if isinstance(line, Cell):
            place = f"{line.case} x{line.connections}"
            doubts = " ".join(line.complaints)
            print(f"{place:16} {line.server:16} {line.rate:12,.1f}/s {doubts}", flush=True)
        elif isinstance(line, Failure):
            self.failed = True
            print(f"{line.case} x{line.connections} {line.server}: {line.reason}", flush=True)

    def writeAll(self, lines: Iterable[Line], servers: Iterable[Server]) -> None:
        """Append the lines of a run as they come, and then the peak memory of each server."""
        for line in lines:
            self.write(line)
        for server in servers:
            self.write(Memory(server.recipe.name, server.peakMemory()))


def rotate(servers: Sequence[ServerT], rounds: int) -> Iterator[ServerT]:
    """Give each server in each round, each round beginning with another."""
    for number in range(rounds):
        first = number % max(1, len(servers))
        yield from [*servers[first:], *servers[:first]]


def measureCases(
    cases: Iterable[CaseT],
    options: argparse.Namespace,
    takeTurns: Callable[[CaseT, int], Iterable[ServerT]],
    measure: Callable[[ServerT, CaseT, int], Cell],
) -> Iterator[Line]:
    """
    Measure every cell.

    @param takeTurns: Says which servers are measured in a case, one after the other, those of a
        number of rounds.
    @param measure: Measures a server in a case with a number of connections.
    """
    for case in cases:
        for connections in options.connections or case.connections:
            for server in takeTurns(case, options.rounds):
                try:
                    yield measure(server, case, connections)
                except (MeasureError, RuntimeError, OSError, HTTPException) as error:
                    reason = server.explain(error)
                    yield Failure(server.recipe.name, case.name, connections, reason)


def runProgram(
    bench: str, options: argparse.Namespace, run: Callable[[Recorder, Path], None]
) -> int:
    """
    Run a bench and print its tables.

    @param run: Measures, in a folder for the servers.
    @return: The exit status: 1 where a cell could not be measured.
    """
    if (os.cpu_count() or 0) < 2:
        raise SystemExit("the bench needs two cores: one for the server, one for the client")
    # As an exception, so that the servers are stopped and their data goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    output = options.output or CHECKOUT / "build" / "bench" / f"{bench}-{stamp}.jsonl"
    recorder = Recorder(output)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as folder:
        try:
            run(recorder, Path(folder).absolute())
        except (StartError, FileNotFoundError) as error:
            raise SystemExit(str(error)) from error
    for results in readResults([output]):
        print(f"\n{document(results)}")
    print(f"written to {output}")
    return 1 if recorder.failed else 0
