#!/usr/bin/env python3
"""
Measure what a million objects, ten thousand idle connections, a thousand keys, and work beside do.

    python bench/bench_growth.py [--rounds 3] [--cases get4k ...] [--servers quiet ...]
    python bench/bench_growth.py --quick

The servers of a case run at once and take turns within each round, so that whatever else the
machine does meets them alike: a server is compared with the quiet one of the same round. Writes a
file of JSON lines and prints the tables. C{--quick} has a hundredth of objects and connections, and
measures nothing that means anything.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.blast import buildClient
from bench.growthmeasuring import makeServer, measure
from bench.growthrecipes import CASES, SETTINGS, Case, shrink
from bench.processes import Server
from bench.programs import storagegateVersion
from bench.running import (
    Recorder,
    addCommonOptions,
    describe,
    measureCases,
    rotate,
    runProgram,
)


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what growth and work beside do.")
    addCommonOptions(parser, CASES)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (2)")
    parser.add_argument("--servers", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--quick", action="store_true", help="one round of a second, with little")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def takeTurns(servers: Sequence[Server], case: Case, rounds: int) -> Iterator[Server]:
    """Give each server in each round; each round begins with another."""
    return rotate(servers, rounds)


def runCase(case: Case, options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Start the servers of a case, measure them in turn, record their memory, stop them."""
    chosen = [setting for setting in case.settings if setting.name in options.servers]
    if options.quick:
        chosen = [shrink(setting) for setting in chosen]
    with ExitStack() as stack:
        servers = [stack.enter_context(makeServer(case, each, folder)) for each in chosen]
        one = partial(measure, seconds=options.seconds)
        lines = measureCases([case], options, partial(takeTurns, servers), one)
        recorder.writeAll(lines, servers)


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Measure every case."""
    buildClient()
    recorder.write(describe("growth", {"storagegate": storagegateVersion()}, options, folder))
    for name in options.cases:
        runCase(CASES[name], options, recorder, folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("growth", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
