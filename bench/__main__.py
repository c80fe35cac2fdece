"""
Measure storagegate beside other servers in one run.

C{python -m bench} measures every case and prints its tables. The results of all rounds are one JSON
document; C{--write} puts the tables into C{bench/README.rst} and C{README.rst}.
"""

import argparse
import fnmatch
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

from attrs import evolve

from bench import cases as values
from bench.cases import Case
from bench.instructions import canCount
from bench.measuring import Effort, Measurer, now
from bench.peers import CHECKOUT, PARTS, commit, install
from bench.processes import Session
from bench.results import Results, Run, readResults, writeResults
from bench.tables import LEGEND, document, writeTables

FOLDERS = ("s3", "http", "grpc", "gateway", "cluster", "console", "growth")
QUICK_SCALE = 10
"""A quick run has a tenth of the objects and connections of the largest settings."""


def allCases() -> list[Case]:
    """Return the cases of all folders."""
    return [case for folder in FOLDERS for case in import_module(f"bench.{folder}.cases").CASES]


def choose(cases: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    """Return the cases and servers that the options select."""
    chosen = []
    for case in cases:
        patterns = options.only or ["*"]
        # A folder alone means all that is in it.
        if not any(
            fnmatch.fnmatch(case.name, p) or fnmatch.fnmatch(case.folder, p) for p in patterns
        ):
            continue
        if options.quick and not case.quick:
            continue
        servers = case.servers
        if options.servers:
            servers = tuple(each for each in servers if each.name in options.servers)
        if options.against:
            ours = next((each for each in servers if each.isOurs), None)
            servers = (ours, values.beside(ours, options.against)) if ours else ()
        if servers:
            chosen.append(case if servers == case.servers else evolve(case, servers=servers))
    return chosen


def processorName(cpuinfo: str) -> str:
    """Read the name of the processor from C{/proc/cpuinfo}."""
    for line in cpuinfo.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describeRun(effort: Effort, folder: Path) -> Run:
    """Describe this machine and run."""
    words = ["df", "--output=fstype", str(folder)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    return Run(
        started=now(),
        commit=commit(),
        python=platform.python_version(),
        processor=processorName(Path("/proc/cpuinfo").read_text()),
        cores=os.cpu_count() or 0,
        kernel=platform.release(),
        filesystem=found.stdout.split()[-1],
        load=os.getloadavg()[0],
        rounds=effort.rounds,
        seconds=effort.seconds,
        quick=effort.quick,
        versions={},
    )


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure storagegate beside other servers in one run."
    )
    parser.add_argument(
        "--only", nargs="+", metavar="PATTERN", help="cases, such as s3, s3/put4k or '*/get4k'"
    )
    parser.add_argument("--servers", nargs="+", metavar="NAME", help="of each case, these only")
    parser.add_argument(
        "--quick", action="store_true", help="the main cases, with less data: at most 15 minutes"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each cell (3)")
    parser.add_argument("--seconds", type=float, help="of a measurement (2; quick: 1)")
    parser.add_argument("--connections", nargs="+", type=int, help="in place of each case's own")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the JSON document")
    parser.add_argument("--folder", type=Path, help="a directory for the servers' data")
    parser.add_argument(
        "--against", metavar="CHECKOUT", help="measure ours beside the package of another checkout"
    )
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with valgrind; no rates"
    )
    parser.add_argument("--write", action="store_true", help="write the tables into the documents")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="take this JSON document; measure nothing"
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument(
        "--install", nargs="*", choices=list(PARTS), help="install the peers; needs root for apt"
    )
    options = parser.parse_args(arguments)
    if options.seconds is None:
        options.seconds = 1.0 if options.quick else 2.0
    if options.against:
        options.against = str(Path(options.against).absolute())
    if options.instructions and not canCount():
        parser.error("no callgrind_control: install valgrind")
    return options


def measure(cases: Sequence[Case], options: argparse.Namespace) -> Results:
    """Measure cases; the document is written after each measurement."""
    if (os.cpu_count() or 0) < 2:
        raise SystemExit("the benchmarks need two cores: one for the server, one for the load")
    # As an exception, so that the servers are stopped and their data is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    output = options.out or CHECKOUT / "build" / "bench" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    effort = Effort(
        options.rounds, options.seconds, options.quick, tuple(options.connections or ())
    )
    with (
        tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-") as folder,
        ExitStack() as stack,
    ):
        place = Path(folder).absolute()
        results = Results(describeRun(effort, place))
        session = Session(place, stack, QUICK_SCALE if options.quick else 1)
        save = partial(writeResults, output, results)
        measurer = Measurer(session, results, effort, partial(print, flush=True), save)
        if options.instructions:
            measurer.countInstructions(cases)
        else:
            measurer.measure(cases)
        save()
    print(f"written to {output}")
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 if a cell could not be measured.
    """
    options = readOptions(arguments)
    if options.install is not None:
        install(options.install)
        return 0
    every = allCases()
    chosen = choose(every, options)
    if options.list:
        for case in chosen:
            print(f"{case.name:24} {case.what}: {', '.join(e.name for e in case.servers)}")
        return 0
    if not chosen:
        raise SystemExit("no case is selected; --list shows them all")
    results = readResults(options.results) if options.results else measure(chosen, options)
    print(f"\n{LEGEND}")
    for folder in results.folders():
        print(f"{folder}\n")
        print(document(results, [case for case in chosen if case.folder == folder]))
    if options.write:
        writeTables(results, every)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
