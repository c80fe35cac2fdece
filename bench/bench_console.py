#!/usr/bin/env python3
"""
Measure what the console costs the requests beside it.

    python bench/bench_console.py [--rounds 3] [--cases get4k put4k list1m upload download]
    python bench/bench_console.py --quick

The daemons of a case run at once and take turns within each round: one without a console, one
whose console was never requested, one whose was, and one with the live view of all requests open.
C{list1m} asks the console for pages of 1,000 of a million keys, one after the other. C{upload} and
C{download} move 200 MiB over S3 and through the console. C{--quick} has a hundredth of the keys and
bytes, and measures nothing that means anything.
"""

import argparse
import http.client
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from attrs import evolve, frozen

from bench import s3measuring, s3recipes
from bench.blast import buildClient
from bench.client import CLIENT_CORE
from bench.consoletransfers import Client, measureTransfers, uploadByConsole, uploadByS3
from bench.filling import ensureBenchBucket
from bench.measuring import MeasureError
from bench.places import BULK_FILL
from bench.processes import freePort
from bench.programs import storagegateVersion
from bench.results import Cell
from bench.running import Recorder, addCommonOptions, describe, measureCases, rotate, runProgram
from bench.s3cases import CASES as S3_CASES
from bench.s3cases import GROUP, LISTED_SIZE
from bench.s3recipes import CREDENTIALS, S3Recipe
from bench.s3server import S3Server

API = "/console/api/v1/"

_FIELDS = {"X-Storage-Access-Key": CREDENTIALS.access, "X-Storage-Secret-Key": CREDENTIALS.secret}

_MILLION = 1_000_000

_LISTED = "listed"
"""The bucket with the million."""

_READER = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=300)
connection.request("GET", sys.argv[2], headers={
    "X-Storage-Access-Key": sys.argv[3], "X-Storage-Secret-Key": sys.argv[4]})
response = connection.getresponse()
assert response.status == 200, response.read()
print("open", flush=True)
while response.read1(1 << 20):
    pass
"""
"""A program that reads the events of the console, and discards them."""


@frozen
class Setting:
    """
    A daemon.

    @ivar hasConsole: Whether it has a console.
    @ivar isUsed: Whether that has had a request.
    @ivar isLive: Whether the live view of all requests is open.
    @ivar keys: How many objects there are to list.
    @ivar size: Bytes of the object that is moved.
    """

    name: str
    hasConsole: bool = True
    isUsed: bool = False
    isLive: bool = False
    keys: int = 0
    size: int = 0


@frozen
class Case:
    """
    What is asked.

    @ivar settings: The daemons that are compared, the first without a console.
    """

    name: str
    settings: tuple[Setting, ...]
    connections: tuple[int, ...] = (64,)


_BESIDE = (
    Setting("none", hasConsole=False),
    Setting("unused"),
    Setting("used", isUsed=True),
    Setting("live", isUsed=True, isLive=True),
)

_MOVING = (Setting("s3", size=200 << 20), Setting("api", isUsed=True, size=200 << 20))

CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("get4k", _BESIDE),
        Case("put4k", _BESIDE),
        Case("list1m", (Setting("million", isUsed=True, keys=_MILLION),), (1,)),
        Case("upload", _MOVING, (3,)),
        Case("download", _MOVING, (1,)),
    )
}


def shrink(setting: Setting) -> Setting:
    """Take a hundredth, to show that all works."""
    return evolve(setting, keys=setting.keys // 100, size=setting.size // 100)


def _recipe(setting: Setting, admin: int) -> S3Recipe:
    recipe = s3recipes.storagegate("full")
    switch = {"STORAGEGATE_CONSOLE": "true" if setting.hasConsole else "false"}

    def command(folder: Path, port: int) -> list[str]:
        words = recipe.command(folder, port)
        words[words.index("--admin") + 1] = f"tcp:{admin}:interface=127.0.0.1"
        return words

    def prepare(folder: Path, port: int) -> None:
        if setting.keys:
            words = [sys.executable, str(BULK_FILL), str(folder / "data"), _LISTED]
            words += [str(setting.keys), str(LISTED_SIZE)]
            subprocess.run(words, check=True, env={**os.environ, **recipe.environment})

    return evolve(
        recipe,
        name=setting.name,
        command=command,
        prepare=prepare,
        environment={**recipe.environment, **switch},
    )


class ConsoleServer(S3Server):
    """
    A daemon that runs while the context lasts.

    @ivar admin: The port of its admin listener.
    """

    def __init__(self, setting: Setting, parent: Path) -> None:
        self.setting = setting
        self.admin = freePort()
        super().__init__(_recipe(setting, self.admin), parent)

    def request(self, path: str) -> bytes:
        """
        Request something of the console.

        @raise MeasureError: The status is not 200.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        try:
            connection.request("GET", API + path, headers=_FIELDS)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise MeasureError(f"{path}: {response.status} {body[:200]!r}")
        return body

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have the live view open as long as a load lasts, if that is the setting."""
        if not self.setting.isLive:
            yield
            return
        words = ["taskset", "-c", CLIENT_CORE, sys.executable, "-c", _READER, str(self.admin)]
        words += [f"{API}events?topics=requests", CREDENTIALS.access, CREDENTIALS.secret]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                if not process.stdout.readline():
                    raise MeasureError("the stream of events does not open")
                yield
                if process.poll() is not None:
                    raise MeasureError("the stream of events has ended")
            finally:
                process.kill()


def measure(server: ConsoleServer, case: Case, connections: int, seconds: float) -> Cell:
    """
    Measure one cell.

    @raise MeasureError: If answers are not right or not there.
    @raise RuntimeError: If the client fails.
    """
    if server.setting.isUsed:
        server.request("overview")
    if server.setting.keys:
        return _measureLists(server, case, seconds)
    ensureBenchBucket(server)
    if server.setting.size:
        return _measureTransfers(server, case, connections, seconds)
    return s3measuring.measure(server, S3_CASES[case.name], connections, seconds)


def _measureLists(server: ConsoleServer, case: Case, seconds: float) -> Cell:
    """Measure pages of a list, each behind another key."""
    taken: list[float] = []
    received = 0
    used, began = server.cpu(), time.perf_counter()
    while time.perf_counter() - began < seconds or len(taken) < 10:
        number = secrets.randbelow(server.setting.keys - GROUP)
        after = f"f{number // GROUP:03d}-{number % GROUP:03d}"
        start = time.perf_counter()
        received += len(server.request(f"buckets/{_LISTED}/objects?limit=1000&after={after}"))
        taken.append((time.perf_counter() - start) * 1000)
    total = time.perf_counter() - began
    cpu = server.cpu() - used
    taken.sort()
    return Cell(
        server=server.recipe.name,
        case=case.name,
        connections=1,
        rate=len(taken) / total,
        megabytesPerSecond=received / total / 1e6,
        p50Ms=taken[len(taken) // 2],
        p99Ms=taken[-1 - len(taken) // 100],
        serverCpu=cpu / total,
        clientCpu=0.0,
        cpuMicrosPerRequest=cpu * 1e6 / len(taken),
        requests=len(taken),
    )


def _measureTransfers(server: ConsoleServer, case: Case, connections: int, seconds: float) -> Cell:
    """Measure an object that is sent or read, over S3 or through the console."""
    size, api = server.setting.size, server.setting.isUsed
    client = Client(server.admin if api else server.port, _FIELDS)
    path = f"{API}buckets/bench/objects/large?bytes" if api else "/bench/large"

    def upload() -> int:
        if api:
            uploadByConsole(client, API, size, connections)
        else:
            uploadByS3(client, size, connections)
        return size

    def download() -> int:
        received = client.read(path)
        if received != size:
            raise MeasureError(f"{received} bytes of {size}")
        return received

    # Of a download, what it reads.
    upload()
    move = upload if case.name == "upload" else download
    return measureTransfers(server, case.name, connections, move, seconds)


def readOptions(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure what the console costs.")
    addCommonOptions(parser, CASES)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (2)")
    parser.add_argument("--quick", action="store_true", help="one round of a second, with little")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def _takeTurns(
    servers: Sequence[ConsoleServer], case: Case, rounds: int
) -> Iterator[ConsoleServer]:
    return rotate(servers, rounds)


def run(options: argparse.Namespace, recorder: Recorder, folder: Path) -> None:
    """Measure every case."""
    buildClient()
    recorder.write(describe("console", {"storagegate": storagegateVersion()}, options, folder))
    for name in options.cases:
        case = CASES[name]
        settings = [shrink(each) if options.quick else each for each in case.settings]
        with ExitStack() as stack:
            servers = [stack.enter_context(ConsoleServer(each, folder)) for each in settings]
            one = partial(measure, seconds=options.seconds)
            lines = measureCases([case], options, partial(_takeTurns, servers), one)
            recorder.writeAll(lines, servers)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run as a program.

    @return: The exit status: 1 where a cell could not be measured.
    """
    options = readOptions(arguments)
    return runProgram("console", options, partial(run, options))


if __name__ == "__main__":
    sys.exit(main())
