#!/usr/bin/env python3
"""
Measure the S3 server side by side with C{rclone serve s3} and nginx.

    python bench/bench_s3.py [--rounds 3] [--durability full|os|both] [--cases put4k get4k ...]

All servers run at once, each on the same core, and take turns within a cell, so that whatever else
the machine does meets them alike. Writes a file of JSON lines and prints the tables.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.blast import buildClient
from bench.cases import CASES, Case
from bench.filling import FillError
from bench.measuring import canMeasure, measure
from bench.places import CHECKOUT
from bench.processes import Server, StartError
from bench.recipes import Recipe, chooseRecipes
from bench.results import Cell, Failure, Line, Memory, Run, encodeLine, readResults
from bench.table import document

SERVERS = ("storagegate", "rclone", "nginx")


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the S3 server beside its peers.")
    parser.add_argument("--rounds", type=int, default=3, help="of each cell (3)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement (1.5)")
    parser.add_argument("--durability", choices=("full", "os", "both"), default="full")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--connections", nargs="+", type=int, help="in place of each case's own")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--folder", type=Path, help="where the servers keep their data")
    parser.add_argument("--output", type=Path, help="the file of JSON lines")
    return parser.parse_args(arguments)


def processorName(cpuinfo: str) -> str:
    """Read the processor's name out of C{/proc/cpuinfo}."""
    for line in cpuinfo.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(recipes: Sequence[Recipe], options: argparse.Namespace, folder: Path) -> Run:
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
        versions={recipe.name: recipe.describe() for recipe in recipes},
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


def measureCase(
    case: Case, connections: int, servers: Sequence[Server], options: argparse.Namespace
) -> list[Line]:
    """Measure one row of the table: each server in each round, every second round backwards."""
    lines: list[Line] = []
    name = case.name
    for number in range(options.rounds):
        for server in servers if number % 2 == 0 else servers[::-1]:
            if not canMeasure(server, case):
                continue
            try:
                lines.append(measure(server, case, connections, options.seconds))
            except (FillError, RuntimeError, OSError, HTTPException) as error:
                reason = server.explain(error)
                lines.append(Failure(server.recipe.name, name, connections, reason))
    return lines


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Start the servers, measure every cell, record their memory, stop them."""
    cases = [CASES[name] for name in options.cases]
    recipes = chooseRecipes(options.servers, options.durability, cases)
    recorder.write(describe(recipes, options, folder))
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(recipe, folder)) for recipe in recipes]
        for case in cases:
            for connections in options.connections or case.connections:
                for line in measureCase(case, connections, servers, options):
                    recorder.write(line)
        for server in servers:
            recorder.write(Memory(server.recipe.name, server.peakMemory()))


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    if (os.cpu_count() or 0) < 2:
        raise SystemExit("the bench needs two cores: one for the server, one for the client")
    # As an exception, so that the servers are stopped and their data goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    buildClient()
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    output = options.output or CHECKOUT / "build" / "bench" / f"s3-{stamp}.jsonl"
    recorder = Recorder(output)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as folder:
        try:
            run(options, recorder, Path(folder))
        except (StartError, FileNotFoundError) as error:
            raise SystemExit(str(error)) from error
    print(f"\n{document(readResults([output]))}\nwritten to {output}")
    return 1 if recorder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
