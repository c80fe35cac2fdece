#!/usr/bin/env python3
"""
Say where the processor time of a request goes: by stage, by function and by file.

    python bench/profile.py get4k [--compare CHECKOUT] [--json] [--top 30]

The server is the one that the bench of the cell measures, and so is its load. First some rounds
are measured without any record: they say how many microseconds of the processor a request takes.
Then a round is sampled, which divides these among the stages. A second server then counts calls of
functions. With C{--compare} a server of another checkout takes turns with this one.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import msgspec

from bench.instructions import canCount
from bench.places import CHECKOUT
from bench.processes import Recipe
from bench.profilecells import CELLS, ProfiledCell, Record, counted, recorded
from bench.profilestages import ORDER, OTHER, SAMPLER, stageOf
from bench.results import Cell
from bench.table import figure, simpleTable

NATIVE = "threads without Python"
"""The stage of threads such as gRPC's own, of which nothing is seen but their time."""

COUNT_SECONDS = 1
WARM_SECONDS = 1
INSTRUCTIONS_SECONDS = 5
INSTRUCTIONS_CONNECTIONS = 4
"""Few, for a connection that is accepted takes as much as some requests do."""

_LEAST_MICROS = 0.005
_LEAST_CALLS = 0.05
"""A stage or a file below both is not shown."""


class Share(msgspec.Struct, frozen=True):
    """
    What a request takes in a stage, a file or a function.

    @ivar micros: CPU time, without that of what was called in other files or functions.
    @ivar totalMicros: The same with what was called; of functions.
    @ivar calls: Calls of functions in Python.
    @ivar nativeCalls: Calls of functions in C from there.
    """

    name: str
    micros: float
    totalMicros: float = 0
    calls: float = 0
    nativeCalls: float = 0


class Profile(msgspec.Struct, frozen=True):
    """
    Where the time of a request goes.

    @ivar cpuMicros: CPU time of a request without any record, the median of the rounds.
    @ivar roundMicros: The same of each round.
    @ivar userMicros: What of it was spent outside of the kernel.
    @ivar instructions: Instructions of a request outside of the kernel; L{None} where they were
        not counted.
    @ivar floorInstructions: The same of the floor; L{None} where there is none.
    @ivar covered: Which part of the samples belongs to a stage.
    """

    cell: str
    connections: int
    version: str
    rate: float
    cpuMicros: float
    roundMicros: list[float]
    userMicros: float
    instructions: float | None
    floorInstructions: float | None
    samples: int
    covered: float
    calls: float
    stages: list[Share]
    files: list[Share]
    functions: list[Share]
    threads: list[Share]


def shorten(file: str, roots: Iterable[str]) -> str:
    """Leave out of a path what leads to a checkout, to packages or to Python's own library."""
    for root in (*roots, "site-packages/", f"/python3.{sys.version_info[1]}/"):
        _, found, rest = file.rpartition(root)
        if found:
            return rest.lstrip("/")
    return file


class _Sums:
    """Adds up what belongs to names."""

    def __init__(self) -> None:
        self.micros: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.native: Counter[str] = Counter()

    def shares(self, order: Sequence[str] = ()) -> list[Share]:
        """List everything: in an order, and what is not in it by time."""
        names = list({**self.micros, **self.totals, **self.calls})
        names.sort(key=lambda name: (-self.micros[name], -self.calls[name]))
        if order:
            names.sort(key=lambda name: order.index(name) if name in order else len(order))
        return [
            Share(name, self.micros[name], self.totals[name], self.calls[name], self.native[name])
            for name in names
        ]


def analyse(
    sampled: Record, counted: Record | None, requests: float, cpuMicros: float, roots: Sequence[str]
) -> dict[str, Any]:
    """
    Divide what a request takes.

    @param requests: How many were counted.
    @param cpuMicros: What a request takes, which is divided.
    @param roots: The folders of checkouts, which are left out of paths.
    @return: Fields of a L{Profile}.
    """
    stages, files, functions, threads = _Sums(), _Sums(), _Sums(), _Sums()
    native = max(0, sampled.nanos - sum(thread.nanos for thread in sampled.threads))
    pieces: list[tuple[str, str, str, list[str], float]] = []
    for thread in sampled.threads:
        weight = sum(weight for _, weight in thread.stacks)
        if not weight:
            if thread.nanos:
                pieces.append((thread.name, OTHER, "", [], thread.nanos))
            continue
        for stack, nanos in thread.stacks:
            stage = stageOf(stack)
            if stage != SAMPLER:
                names = [f"{shorten(file, roots)} {name}" for file, name in stack]
                file = shorten(stack[0][0], roots)
                pieces.append((thread.name, stage, file, names, nanos * thread.nanos / weight))
    if native:
        pieces.append((NATIVE, NATIVE, "", [], native))
    scale = cpuMicros / (sum(nanos for *_, nanos in pieces) or 1)
    for thread, stage, file, names, nanos in pieces:
        micros = nanos * scale
        threads.micros[thread] += micros
        stages.micros[stage] += micros
        files.micros[file or thread] += micros
        if names:
            functions.micros[names[0]] += micros
        for name in set(names):
            functions.totals[name] += micros
    if counted is not None:
        for thread in counted.threads:
            for stack, count in thread.stacks:
                stage = stageOf(stack)
                isNative = not stack[0][0]
                file, name = stack[1] if isNative and len(stack) > 1 else stack[0]
                file = shorten(file, roots)
                for sums, key in (
                    (stages, stage),
                    (files, file),
                    (functions, f"{file} {name}"),
                    (threads, thread.name),
                ):
                    (sums.native if isNative else sums.calls)[key] += count / requests
    del stages.calls[SAMPLER], stages.native[SAMPLER]
    return {
        "stages": stages.shares((*ORDER, NATIVE, OTHER)),
        "files": files.shares(),
        "functions": functions.shares(),
        "threads": threads.shares(),
        "covered": 1 - stages.micros[OTHER] / (cpuMicros or 1),
        "calls": sum(stages.calls.values()),
    }


class _Side:
    """
    The servers of one checkout, and what was measured of them.

    @ivar cells: The rounds without a record.
    """

    def __init__(self, cell: ProfiledCell, checkout: Path, folder: Path, stack: ExitStack) -> None:
        self._cell = cell
        self._checkout = checkout
        self._folder = folder
        self._measure = cell.measure(folder / "files")
        self._server = stack.enter_context(self._start("sample"))
        self.cells: list[Cell] = []
        self.counted: tuple[Record, float] | None = None
        self.instructions: float | None = None
        self.floorInstructions: float | None = None

    def _start(self, mode: str) -> Any:
        recipe = self._cell.recipe(self._folder / "files")
        return self._cell.server(recorded(recipe, self._checkout, mode), self._folder)

    def warm(self, connections: int) -> None:
        """Ask the server before anything counts."""
        self._measure(self._server, WARM_SECONDS, connections)

    def round(self, seconds: int, connections: int) -> None:
        """Measure a round without a record."""
        self.cells.append(self._measure(self._server, seconds, connections))

    def sample(self, seconds: int, connections: int) -> None:
        """Measure a round that is sampled."""
        self._server.isRecorded = True
        self._measure(self._server, seconds, connections)
        self.sampled: Record = self._server.record()
        self._server.isRecorded = False

    def countInstructions(self) -> None:
        """Count the instructions of a request, here and of the floor."""
        self.instructions = self._instructionsOf(self._cell.recipe)
        if self._cell.floor is not None:
            self.floorInstructions = self._instructionsOf(self._cell.floor)

    def _instructionsOf(self, describe: Callable[[Path], Recipe]) -> float:
        """Measure a round whose instructions are counted, with a server of its own."""
        recipe = counted(describe(self._folder / "files"), self._checkout)
        with self._cell.server(recipe, self._folder) as server:
            self._measure(server, INSTRUCTIONS_SECONDS, INSTRUCTIONS_CONNECTIONS)
            server.isCounted = True
            cell = self._measure(server, INSTRUCTIONS_SECONDS, INSTRUCTIONS_CONNECTIONS)
            return float(server.instructions / cell.requests)

    def count(self, connections: int) -> None:
        """Measure a round whose calls are counted, with a server of its own."""
        with self._start("count") as server:
            self._measure(server, COUNT_SECONDS, connections)
            server.isRecorded = True
            cell = self._measure(server, COUNT_SECONDS, connections)
            self.counted = server.record(), cell.requests

    def profile(self, name: str, connections: int) -> Profile:
        """Draw the figures."""
        micros = [cell.cpuMicrosPerRequest for cell in self.cells]
        cpuMicros = statistics.median(micros)
        record, requests = self.counted or (None, 1.0)
        return Profile(
            cell=name,
            connections=connections,
            version=commitOf(self._checkout),
            rate=statistics.median(cell.rate for cell in self.cells),
            cpuMicros=cpuMicros,
            roundMicros=micros,
            userMicros=cpuMicros * self.sampled.userShare,
            instructions=self.instructions,
            floorInstructions=self.floorInstructions,
            samples=self.sampled.samples,
            **analyse(
                self.sampled, record, requests, cpuMicros, [str(self._checkout), str(CHECKOUT)]
            ),
        )


def commitOf(checkout: Path) -> str:
    """Say which commit a checkout has."""
    words = ["git", "describe", "--always", "--dirty", "--tags"]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def shareTable(title: str, shares: Sequence[Share], most: int, whole: float) -> str:
    """Lay out what a request takes in each of some places."""
    rows = [[title, "us", "%", "calls", "in C"]]
    rows += [
        [
            share.name,
            f"{share.micros:.2f}",
            f"{100 * share.micros / (whole or 1):.1f}",
            f"{share.calls:.1f}",
            f"{share.nativeCalls:.1f}",
        ]
        for share in shares[:most]
        if share.micros >= _LEAST_MICROS or share.calls >= _LEAST_CALLS
    ]
    return simpleTable(rows)


def functionTable(shares: Sequence[Share], most: int) -> str:
    """Lay out the functions: by the time that is their own, and what is called from there."""
    rows = [["function", "us", "with called", "calls", "in C"]]
    rows += [
        [
            share.name,
            f"{share.micros:.2f}",
            f"{share.totalMicros:.2f}",
            f"{share.calls:.2f}",
            f"{share.nativeCalls:.2f}",
        ]
        for share in shares[:most]
    ]
    return simpleTable(rows)


def describe(profile: Profile) -> str:
    """Say in a few lines what a request takes."""
    best = min(profile.roundMicros)
    found = profile.instructions
    text = "" if found is None else f"; {found:,.0f} instructions outside of the kernel"
    if profile.floorInstructions is not None:
        text += f" ({profile.floorInstructions:,.0f} of the floor)"
    return (
        f"{profile.cell} x{profile.connections} at {profile.version}: "
        f"{figure(profile.rate)} requests a second, {profile.cpuMicros:.1f} us of the processor a "
        f"request\n(at best {best:.1f}; {profile.userMicros:.1f} outside of the "
        f"kernel), {profile.calls:.0f} calls of functions{text};\n"
        f"{profile.samples:,} samples, of which stages cover {profile.covered:.1%}.\n"
    )


def document(profile: Profile, top: int) -> str:
    """Write all tables of a profile."""
    whole = profile.cpuMicros
    return "\n".join(
        [
            describe(profile),
            shareTable("stage", profile.stages, len(profile.stages), whole),
            functionTable(profile.functions, top),
            shareTable("file", profile.files, top, whole),
            shareTable("thread", profile.threads, top, whole),
        ]
    )


def comparison(new: Profile, old: Profile, top: int) -> str:
    """Lay out what has changed between two checkouts."""
    parts = [f"Before: {describe(old)}"]
    kinds: Mapping[str, tuple[Sequence[Share], Sequence[Share]]] = {
        "stage": (new.stages, old.stages),
        "function": (new.functions, old.functions),
    }
    for title, (ours, theirs) in kinds.items():
        before = {share.name: share for share in theirs}
        after = {share.name: share for share in ours}
        nothing = Share("", 0)
        names = list(dict.fromkeys([*after, *before]))
        both = {name: (before.get(name, nothing), after.get(name, nothing)) for name in names}
        if title == "function":
            names.sort(key=lambda name: -abs(both[name][1].micros - both[name][0].micros))
        rows = [[title, "us before", "after", "change", "calls before", "after"]]
        for name in names if title == "stage" else names[:top]:
            was, now = both[name]
            change = f"{now.micros - was.micros:+.2f}"
            calls = [f"{was.calls + was.nativeCalls:.1f}", f"{now.calls + now.nativeCalls:.1f}"]
            rows.append([name, f"{was.micros:.2f}", f"{now.micros:.2f}", change, *calls])
        if title == "stage":
            change = f"{new.cpuMicros - old.cpuMicros:+.2f}"
            total = [f"{old.cpuMicros:.2f}", f"{new.cpuMicros:.2f}", change]
            rows.append(["all", *total, f"{old.calls:.1f}", f"{new.calls:.1f}"])
        parts.append(simpleTable(rows))
    pairs = zip(old.roundMicros, new.roundMicros, strict=True)
    ratios = [before / after for before, after in pairs]
    span = f"[{min(ratios):.2f}-{max(ratios):.2f}]"
    parts.append(
        f"By CPU time, in each round: {statistics.median(ratios):.2f} {span} times as fast.\n"
    )
    if old.instructions and new.instructions:
        times = old.instructions / new.instructions
        parts.append(
            f"By instructions outside of the kernel, {old.instructions:,.0f} before and "
            f"{new.instructions:,.0f} now: {times:.2f} times as fast.\n"
        )
    return "\n".join(parts)


def encodeProfiles(profiles: Sequence[Profile]) -> str:
    """Write profiles as JSON: C{profile}, and C{before} where an older checkout was measured."""
    return msgspec.json.encode(dict(zip(("profile", "before"), profiles, strict=False))).decode()


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Say where the time of a request goes.")
    parser.add_argument("cell", choices=CELLS)
    parser.add_argument("--compare", type=Path, metavar="CHECKOUT", help="an older checkout")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--rounds", type=int, default=3, help="without a record (3)")
    parser.add_argument("--seconds", type=int, default=2, help="of each of these rounds (2)")
    parser.add_argument("--sampled", type=int, default=5, help="seconds that are sampled (5)")
    parser.add_argument("--connections", type=int, help="in place of the cell's own")
    parser.add_argument("--top", type=int, default=30, help="functions and files that are shown")
    parser.add_argument("--no-count", action="store_true", help="do not count calls")
    parser.add_argument(
        "--instructions", action="store_true", help="count them; takes a minute with valgrind"
    )
    parser.add_argument("--folder", type=Path, help="where the servers keep their data")
    options = parser.parse_args(arguments)
    if options.instructions and not canCount():
        parser.error("no callgrind_control: install valgrind")
    return options


def measureProfiles(options: argparse.Namespace) -> list[Profile]:
    """Measure this checkout, and the older one behind it."""
    cell = CELLS[options.cell]
    connections = options.connections or cell.connections
    checkouts = [CHECKOUT, *([options.compare.absolute()] if options.compare else [])]
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(dir=options.folder, prefix="profile-")
        place = Path(stack.enter_context(folder)).absolute()
        sides = [_Side(cell, checkout, place, stack) for checkout in checkouts]
        for side in sides:
            side.warm(connections)
        for number in range(options.rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                side.round(options.seconds, connections)
        for side in sides:
            side.sample(options.sampled, connections)
        if not options.no_count:
            for side in sides:
                side.count(connections)
        if options.instructions:
            for side in sides:
                side.countInstructions()
        return [side.profile(options.cell, connections) for side in sides]


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status.
    """
    options = readOptions(arguments)
    profiles = measureProfiles(options)
    if options.json:
        print(encodeProfiles(profiles))
        return 0
    print(document(profiles[0], options.top))
    if options.compare:
        print(comparison(profiles[0], profiles[1], options.top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
