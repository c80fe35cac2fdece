"""The load client of the gateway's own wires: C{echoload.c}, its command line and its report."""

import subprocess
from pathlib import Path

import msgspec
from attrs import frozen

from bench.client import Started, runPinned
from bench.places import ECHOLOAD_SOURCE, peersFolder


@frozen
class Report:
    """
    What one run of the client saw.

    @ivar wrong: Answers that were errors, or not as long as the first.
    @ivar lost: Messages that were not answered within a second.
    @ivar received: Bytes of answers.
    """

    calls: int
    wrong: int
    lost: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float


@frozen
class Load:
    """
    A run of the client: the same message again and again on each connection.

    @ivar mode: C{tcp}, C{udp} or C{ws}.
    @ivar message: The file of the message as it goes out.
    @ivar path: Where a WebSocket is asked for.
    """

    mode: str
    connections: int
    seconds: float
    message: Path
    path: str = "/"


def buildClient() -> Path:
    """Compile the client where it is missing or older than its source."""
    program = peersFolder() / "echoload"
    if not program.exists() or program.stat().st_mtime < ECHOLOAD_SOURCE.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-O2", "-o", str(program), str(ECHOLOAD_SOURCE)], check=True)
    return program


def commandLine(program: Path, port: int, load: Load) -> list[str]:
    """Write the client's command line."""
    words = [str(program), "-m", load.mode, "-p", str(port), "-c", str(load.connections)]
    return [*words, "-d", str(load.seconds), "-f", str(load.message), "-u", load.path]


def runEchoload(port: int, load: Load, started: Started | None = None) -> tuple[Report, float]:
    """
    Run the client on its core until it ends.

    @return: Its report, and the CPU seconds that it used.
    @raise RuntimeError: If the client fails; with what it wrote.
    """
    finished = runPinned(commandLine(buildClient(), port, load), started)
    return msgspec.json.decode(finished.output, type=Report), finished.cpuSeconds
