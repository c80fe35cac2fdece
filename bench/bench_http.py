#!/usr/bin/env python3
"""
Measure the HTTP framework side by side with its peers, under C{wrk}.

    python bench/bench_http.py [--rounds 3] [--cases hello echo ...] [--servers storagegate ...]
    python bench/bench_http.py --quick

All servers run at once, each on the same core, and take turns within a cell, so that whatever else
the machine does meets them alike. Writes a file of JSON lines and prints the tables. C{--quick}
shows that every cell can be measured, and measures nothing that means anything.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.httpcases import CASES, Case
from bench.httpmeasuring import HTTPServer, canMeasure, makeFiles, measure
from bench.httprecipes import RECIPES, chooseRecipes
from bench.running import (
    Recorder,
    addCommonOptions,
    describe,
    measureCases,
    rotate,
    runProgram,
)
from bench.wrk import describeWrk

WARM_SECONDS = 1
"""How long a server is asked in a case before it is measured: V8 compiles what has run often."""


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the HTTP framework beside its peers.")
    addCommonOptions(parser, CASES)
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement (4)")
    parser.add_argument("--servers", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--quick", action="store_true", help="one round of a second, not warmed up")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = options.seconds = 1
    return options


def takeTurns(servers: Sequence[HTTPServer], case: Case, rounds: int) -> Iterator[HTTPServer]:
    """Give each server that is able to in each round."""
    return rotate([server for server in servers if canMeasure(server, case)], rounds)


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Start the servers, measure every cell, record their memory, stop them."""
    cases = [CASES[name] for name in options.cases]
    files = makeFiles(folder / "files")
    recipes = chooseRecipes(options.servers, cases, files)
    versions = {recipe.name: recipe.describe() for recipe in recipes} | {"wrk": describeWrk()}
    recorder.write(describe("http", versions, options, folder))
    with ExitStack() as stack:
        servers = [stack.enter_context(HTTPServer(recipe, folder)) for recipe in recipes]
        turns = partial(takeTurns, servers)
        warmSeconds = 0 if options.quick else WARM_SECONDS
        one = partial(measure, seconds=options.seconds, warmSeconds=warmSeconds, files=files)
        recorder.writeAll(measureCases(cases, options, turns, one), servers)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("http", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
