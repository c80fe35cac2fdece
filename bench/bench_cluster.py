#!/usr/bin/env python3
"""
Measure nodes of a cluster side by side with the embedded store, and with the bare clients of blobs.

    python bench/bench_cluster.py [--rounds 3] [--cases put4k ...] [--servers embedded node ...]

The servers of a case run at once and take turns within each round. A node has core 0 as the
embedded daemon has; PostgreSQL, Ceph and the S3 server behind have both cores. Needs what the tests
of the cluster need. Writes a file of JSON lines and prints the tables.
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
from bench.clustermeasuring import measure
from bench.clusterservers import CASES, Backing, ClusterCase, makeServer
from bench.processes import Server
from bench.programs import firstVersion, storagegateVersion
from bench.running import (
    Recorder,
    addCommonOptions,
    describe,
    measureCases,
    rotate,
    runProgram,
)
from tests.support.postgresql import binaries

SERVERS = list(dict.fromkeys(each.name for case in CASES.values() for each in case.settings))


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure a cluster beside the embedded store.")
    addCommonOptions(parser, CASES)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (2)")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=SERVERS)
    return parser.parse_args(arguments)


def takeTurns(servers: Sequence[Server], case: ClusterCase, rounds: int) -> Iterator[Server]:
    """Give each server in each round; each round begins with another."""
    return rotate(servers, rounds)


def runCases(
    cases: Sequence[ClusterCase], options: argparse.Namespace, recorder: Recorder, folder: Path
) -> None:
    """Start the servers of cases that have the same, measure them in turn, stop them."""
    chosen = [each for each in cases[0].settings if each.name in options.servers]
    with ExitStack() as stack:
        backing = Backing(stack, folder)
        servers = [stack.enter_context(makeServer(each, backing, folder)) for each in chosen]
        one = partial(measure, seconds=options.seconds)
        lines = measureCases(cases, options, partial(takeTurns, servers), one)
        recorder.writeAll(lines, servers)


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Measure every case."""
    buildClient()
    versions = {
        "storagegate": storagegateVersion(),
        "PostgreSQL": firstVersion([str(binaries() / "postgres"), "--version"]),
    }
    recorder.write(describe("cluster", versions, options, folder))
    groups: dict[object, list[ClusterCase]] = {}
    for name in options.cases:
        groups.setdefault(CASES[name].settings, []).append(CASES[name])
    for cases in groups.values():
        runCases(cases, options, recorder, folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("cluster", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
