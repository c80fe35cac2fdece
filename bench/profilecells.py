"""What is profiled: cells of the other benches, by names of their own."""

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
from attrs import evolve, frozen

from bench import (
    gatewaymeasuring,
    growthmeasuring,
    growthrecipes,
    grpcmeasuring,
    httpmeasuring,
    httprecipes,
    instructions,
    overheadmeasuring,
    overheadrecipes,
    s3measuring,
    s3recipes,
)
from bench.gatewaycases import CASES as GATEWAY_CASES
from bench.gatewayrecipes import chooseRecipes
from bench.grpccases import CASES as GRPC_CASES
from bench.grpcrecipes import RECIPES as GRPC_RECIPES
from bench.httpcases import CASES as HTTP_CASES
from bench.places import PROFILER
from bench.processes import FLOOR_NAME, Recipe, StartError
from bench.results import Cell
from bench.s3cases import CASES as S3_CASES

OURS = "storagegate"
BEGIN = signal.SIGRTMIN + 1
END = signal.SIGRTMIN + 2
"""The signals of C{profiler/sitecustomize.py}."""

WRITE_SECONDS = 60
"""How long a server may take to write what it has recorded."""


class ThreadRecord(msgspec.Struct, frozen=True):
    """
    What was recorded of a thread.

    @ivar nanos: The CPU time that it used.
    @ivar stacks: Stacks, the innermost function first, each with its weight: nanoseconds or calls.
    """

    name: str
    isMain: bool
    nanos: int
    stacks: list[tuple[list[tuple[str, str]], int]]


class Record(msgspec.Struct, frozen=True):
    """
    What C{profiler/sitecustomize.py} wrote.

    @ivar nanos: The CPU time of the whole process.
    @ivar samples: How many were taken.
    @ivar userShare: Which part was spent outside of the kernel.
    """

    threads: list[ThreadRecord]
    nanos: int
    samples: int
    userShare: float


class _Watched:
    """
    Mixed into a server: a record is made while it is under load.

    @ivar isRecorded: Whether one is to be made.
    @ivar isCounted: Whether instructions are to be counted.
    @ivar instructions: How many there were.
    """

    isRecorded = False
    isCounted = False
    instructions = 0

    @contextmanager
    def watched(self: Any) -> Iterator[None]:
        """Begin and end the record."""
        if self.isCounted:
            instructions.begin(self.process.pid)
            yield
            self.instructions = instructions.end(self.process.pid, self.folder)
            return
        if not self.isRecorded:
            yield
            return
        output = recordPath(self.folder)
        output.unlink(missing_ok=True)
        os.kill(self.process.pid, BEGIN)
        try:
            yield
        finally:
            os.kill(self.process.pid, END)
        limit = time.monotonic() + WRITE_SECONDS
        while not output.exists():
            if time.monotonic() > limit or self.process.poll() is not None:
                raise StartError(f"no profile was written:\n{self.logEnd()}")
            time.sleep(0.02)

    def record(self: Any) -> Record:
        """Read what was recorded last."""
        return msgspec.json.decode(recordPath(self.folder).read_bytes(), type=Record)


def recordPath(folder: Path) -> Path:
    """Say where a server writes its record."""
    return folder / "profile.json"


class _S3Server(_Watched, s3measuring.S3Server):
    """A daemon with a record."""


class _HTTPServer(_Watched, httpmeasuring.HTTPServer):
    """An application with a record."""


class _GatewayServer(_Watched, gatewaymeasuring.GatewayServer):
    """A gateway with a record."""


class _OverheadServer(_Watched, overheadmeasuring.OverheadServer):
    """A daemon with or without monitoring, with a record. No metrics are read meanwhile."""

    adminSocket = None


class _GrowthServer(_Watched, growthmeasuring.GrowthS3Server):
    """A daemon with a setting of the growth bench, with a record."""

    def __init__(self, setting: growthrecipes.Setting, recipe: Any, parent: Path) -> None:
        super().__init__(setting, parent)
        self.recipe = recipe


class _GRPCServer(_Watched, grpcmeasuring.GRPCServer):
    """A gRPC server with a record."""


Measure = Callable[[Any, int, int], Cell]
"""Measures a server with a number of connections for some seconds."""


@frozen
class ProfiledCell:
    """
    A cell.

    @ivar recipe: Describes its server, given a folder for files.
    @ivar server: What runs the server.
    @ivar measure: Makes what measures it, given the folder for files.
    @ivar floor: Describes the floor, given the folder for files; C{None} where there is none.
    """

    recipe: Callable[[Path], Recipe]
    server: Callable[[Any, Path], Any]
    measure: Callable[[Path], Measure]
    connections: int = 64
    floor: Callable[[Path], Recipe] | None = None


def _s3(name: str, connections: int = 64) -> ProfiledCell:
    case = S3_CASES[name]

    def measure(server: Any, seconds: int, connections: int) -> Cell:
        return s3measuring.measure(server, case, connections, seconds)

    return ProfiledCell(
        lambda folder: s3recipes.storagegate("full"),
        _S3Server,
        lambda files: measure,
        connections,
        (lambda folder: s3recipes.floor()) if case.size <= s3recipes.FLOOR_LARGEST else None,
    )


def _http(name: str) -> ProfiledCell:
    case = HTTP_CASES[name]

    def make(files: Path) -> Measure:
        if not files.exists():
            httpmeasuring.makeFiles(files)
        return lambda server, seconds, connections: httpmeasuring.measure(
            server, case, connections, seconds, 0, files
        )

    floor = httprecipes.floor(Path(), case.routes)
    return ProfiledCell(
        lambda files: httprecipes.storagegate(files, case.routes),
        _HTTPServer,
        make,
        floor=(lambda files: floor) if floor.offers(case) else None,
    )


def _gateway(wire: str) -> ProfiledCell:
    case = GATEWAY_CASES[wire]

    def measure(server: Any, seconds: int, connections: int) -> Cell:
        return gatewaymeasuring.measure(server, case, connections, seconds, 0)

    floors = chooseRecipes([FLOOR_NAME], [wire])
    return ProfiledCell(
        lambda files: chooseRecipes([OURS], [wire])[0],
        _GatewayServer,
        lambda files: measure,
        floor=(lambda files: floors[0]) if floors else None,
    )


def _overhead(name: str, setting: str) -> ProfiledCell:
    case = overheadrecipes.CASES[name]

    def measure(server: Any, seconds: int, connections: int) -> Cell:
        return overheadmeasuring.measure(server, case, connections, seconds, 0)

    return ProfiledCell(
        lambda folder: overheadrecipes.makeRecipe(
            overheadrecipes.SETTINGS[setting], case, _collector()
        ),
        _OverheadServer,
        lambda files: measure,
    )


@cache
def _collector() -> int:
    """Run what takes spans until this program ends; give its port."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(overheadmeasuring.collecting())


def _growth(name: str, setting: growthrecipes.Setting) -> ProfiledCell:
    """Describe a cell of the growth bench, of a daemon that serves S3."""
    case = growthrecipes.CASES[name]

    def measure(server: Any, seconds: int, connections: int) -> Cell:
        return growthmeasuring.measure(server, case, connections, seconds)

    recipe = growthrecipes.makeS3Recipe(setting)
    return ProfiledCell(
        lambda folder: recipe,
        partial(_GrowthServer, setting),
        lambda files: measure,
        case.connections[0],
    )


_STREAM_MESSAGES = 100


def _grpc(name: str) -> ProfiledCell:
    case = GRPC_CASES[name]
    if case.sent > 1:
        # Short streams, or none would end while calls are counted.
        case = evolve(case, sent=_STREAM_MESSAGES, answered=_STREAM_MESSAGES)

    def measure(server: Any, seconds: int, connections: int) -> Cell:
        return grpcmeasuring.measure(server, case, connections, grpcmeasuring.Effort(seconds, 0))

    return ProfiledCell(
        lambda folder: GRPC_RECIPES[OURS], _GRPCServer, lambda files: measure, case.connections[-1]
    )


CELLS: Mapping[str, ProfiledCell] = {
    **{name: _s3(name) for name in ("get4k", "head", "put4k", "mixed", "delete", "get1m", "put1m")},
    "list": _s3("list10k", connections=16),
    "hello": _http("hello"),
    "route": _http("route10"),
    "echo": _http("echo"),
    "static": _http("static16k"),
    "gatewayhttp": _gateway("http"),
    **{wire: _gateway(wire) for wire in ("websocket", "tcp", "udp", "grpc")},
    **{
        f"{name}-{setting.name}": _overhead(name, setting.name)
        for name in ("echo", "get4k")
        for setting in overheadrecipes.MONITORING
    },
    **{f"{name}-keys": _growth(name, growthrecipes.KEYS) for name in ("get4k", "head", "put4k")},
    **{
        f"{name}-{setting.name}": _growth(name, setting)
        for name in ("overwrite4k", "list10k", "list1k", "getone", "get4k-policy")
        for setting in growthrecipes.CASES[name].settings
    },
    **{f"grpc{name}": _grpc(name) for name in ("unary", "server", "bidi")},
}


def counted(recipe: Any, checkout: Path) -> Any:
    """Have a server's instructions counted, and run it with the package of a checkout."""
    inner = recipe.command
    return evolve(
        recipe,
        command=lambda folder, port: [*instructions.commandPrefix(folder), *inner(folder, port)],
        environment={**recipe.environment, "PYTHONPATH": str(checkout)},
        startSeconds=instructions.START_SECONDS,
    )


def recorded(recipe: Any, checkout: Path, mode: str) -> Any:
    """
    Have a server recorded, and run with the package of a checkout.

    @param mode: C{sample} or C{count}.
    """
    inner = recipe.command

    def command(folder: Path, port: int) -> list[str]:
        words: list[str] = inner(folder, port)
        return ["env", f"PROFILE_OUTPUT={recordPath(folder)}", f"PROFILE_MODE={mode}", *words]

    path = os.pathsep.join([str(PROFILER), str(checkout)])
    environment = {**recipe.environment, "PYTHONPATH": path}
    return evolve(recipe, command=command, environment=environment)
