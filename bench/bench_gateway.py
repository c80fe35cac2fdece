#!/usr/bin/env python3
"""
Measure an echo over each wire of the gateway, side by side with what people use for it.

    python bench/bench_gateway.py [--rounds 3] [--cases tcp ...] [--servers storagegate ...]
    python bench/bench_gateway.py --quick

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

from bench.gatewaycases import CASES, INVOKER, Case
from bench.gatewaymeasuring import GatewayServer, measure, measureInvoker
from bench.gatewayrecipes import SERVERS, chooseRecipes
from bench.h2load import describeH2load
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
"""How long a server is asked before it is measured: V8 compiles what has run often."""


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the gateway beside others.")
    addCommonOptions(parser, [*CASES, INVOKER])
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement (4)")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--quick", action="store_true", help="one round of a second, not warmed up")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = options.seconds = 1
    return options


def takeTurns(servers: Sequence[GatewayServer], case: Case, rounds: int) -> Iterator[GatewayServer]:
    """Give each server of a wire in each round."""
    return rotate([server for server in servers if server.recipe.wire == case.name], rounds)


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Start the servers, measure every cell, record their memory, stop them."""
    cases = [CASES[name] for name in options.cases if name in CASES]
    recipes = chooseRecipes(options.servers, [case.name for case in cases])
    versions = {recipe.name: recipe.describe() for recipe in recipes}
    versions |= {"wrk": describeWrk(), "h2load": describeH2load()}
    recorder.write(describe("gateway", versions, options, folder))
    with ExitStack() as stack:
        servers = [stack.enter_context(GatewayServer(recipe, folder)) for recipe in recipes]
        turns = partial(takeTurns, servers)
        warmSeconds = 0 if options.quick else WARM_SECONDS
        one = partial(measure, seconds=options.seconds, warmSeconds=warmSeconds)
        recorder.writeAll(measureCases(cases, options, turns, one), servers)
    if INVOKER in options.cases:
        for _ in range(options.rounds):
            recorder.write(measureInvoker(options.seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("gateway", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
