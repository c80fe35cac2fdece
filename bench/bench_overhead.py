#!/usr/bin/env python3
"""
Measure what monitoring costs the daemon, and what a second worker gives.

    python bench/bench_overhead.py [--rounds 5] [--cases echo get4k ...] [--servers off on0.01 ...]

The daemons of a case run at once and take turns within each round, so that whatever else the
machine does meets them alike: a daemon is compared with another of the same round. Writes a file of
JSON lines and prints the tables.
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
from bench.overheadmeasuring import OverheadServer, collecting, measure
from bench.overheadrecipes import CASES, SETTINGS, Case, makeRecipe
from bench.programs import storagegateVersion
from bench.running import (
    Recorder,
    addCommonOptions,
    describe,
    measureCases,
    rotate,
    runProgram,
)
from bench.wrk import describeWrk

WARM_SECONDS = 3
"""How long a daemon is asked before it is measured."""

ROUNDS = 5


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what monitoring and workers do.")
    addCommonOptions(parser, CASES)
    parser.set_defaults(rounds=ROUNDS)
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement (2)")
    parser.add_argument("--servers", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--quick", action="store_true", help="one round of a second, not warmed up")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = options.seconds = 1
    return options


def takeTurns(
    servers: Sequence[OverheadServer], case: Case, rounds: int
) -> Iterator[OverheadServer]:
    """Give each daemon in each round; each round begins with another."""
    return rotate(servers, rounds)


def runCase(
    case: Case, options: argparse.Namespace, recorder: Recorder, folder: Path, collector: int
) -> None:
    """Start the daemons of a case, measure them in turn, record their memory, stop them."""
    chosen = [setting for setting in case.settings if setting.name in options.servers]
    with ExitStack() as stack:
        recipes = [makeRecipe(setting, case, collector) for setting in chosen]
        servers = [stack.enter_context(OverheadServer(recipe, folder)) for recipe in recipes]
        warmSeconds = 0 if options.quick else WARM_SECONDS
        one = partial(measure, seconds=options.seconds, warmSeconds=warmSeconds)
        lines = measureCases([case], options, partial(takeTurns, servers), one)
        recorder.writeAll(lines, servers)


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Measure every case."""
    buildClient()
    versions = {"storagegate": storagegateVersion(), "wrk": describeWrk()}
    recorder.write(describe("overhead", versions, options, folder))
    with collecting() as collector:
        for name in options.cases:
            runCase(CASES[name], options, recorder, folder, collector)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("overhead", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
