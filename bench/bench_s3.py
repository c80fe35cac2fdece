#!/usr/bin/env python3
"""
Measure the S3 server side by side with its floor, C{rclone serve s3} and nginx.

    python bench/bench_s3.py [--rounds 3] [--durability full|os|both] [--cases put4k get4k ...]

All servers run at once, each on the same core, and take turns within a cell, so that whatever else
the machine does meets them alike. Writes a file of JSON lines and prints the tables.
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
from bench.processes import FLOOR_NAME
from bench.running import Recorder, addCommonOptions, describe, measureCases, runProgram
from bench.s3cases import CASES, Case
from bench.s3measuring import canMeasure, measure
from bench.s3recipes import chooseRecipes
from bench.s3server import S3Server

SERVERS = ("storagegate", FLOOR_NAME, "rclone", "nginx")


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the S3 server beside its peers.")
    addCommonOptions(parser, CASES)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement (1.5)")
    parser.add_argument("--durability", choices=("full", "os", "both"), default="full")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    return parser.parse_args(arguments)


def takeTurns(servers: Sequence[S3Server], case: Case, rounds: int) -> Iterator[S3Server]:
    """Give each server that is able to in each round, every second round backwards."""
    able = [server for server in servers if canMeasure(server, case)]
    for number in range(rounds):
        yield from able if number % 2 == 0 else able[::-1]


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Start the servers, measure every cell, record their memory, stop them."""
    buildClient()
    cases = [CASES[name] for name in options.cases]
    recipes = chooseRecipes(options.servers, options.durability, cases)
    versions = {recipe.name: recipe.describe() for recipe in recipes}
    recorder.write(describe("s3", versions, options, folder))
    with ExitStack() as stack:
        servers = [stack.enter_context(S3Server(recipe, folder)) for recipe in recipes]
        turns = partial(takeTurns, servers)
        one = partial(measure, seconds=options.seconds)
        recorder.writeAll(measureCases(cases, options, turns, one), servers)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("s3", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
