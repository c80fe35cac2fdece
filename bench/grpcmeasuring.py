"""Measure one cell of the gRPC bench: one case, one server, one round."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from attrs import frozen

from bench.client import CLIENT_CORE
from bench.grpccases import FRAMED, HELD_METHOD, SERVICE, Case
from bench.grpcrecipes import GRPCRecipe
from bench.h2load import Load, Report, runH2load
from bench.measuring import MeasureError, aloneOnTheCores, underLoad
from bench.places import GRPC_CLIENT
from bench.processes import Server
from bench.results import Cell

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_NO_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
_CLIENT_SECONDS = 60
"""Longer than the client waits for an answer itself."""


class GRPCServer(Server):
    """
    A server of the bench's service that runs while the context lasts.

    @ivar warm: The cases that it has been asked under load, so that compilers have done their work.
    """

    recipe: GRPCRecipe

    def __init__(self, recipe: GRPCRecipe, parent: Path) -> None:
        super().__init__(recipe, parent)
        self.warm: set[str] = set()

    def ask(self) -> None:
        """
        Begin to speak HTTP/2, the only thing that these servers speak.

        @raise OSError: If nobody answers.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=_CLIENT_SECONDS) as client:
            client.sendall(_PREFACE + _NO_SETTINGS)
            if not client.recv(1):
                raise ConnectionError("nobody speaks HTTP/2 here")


@frozen
class Effort:
    """
    How long is measured.

    @ivar warmSeconds: How long a server is asked before, the first time that it is.
    """

    seconds: int
    warmSeconds: int


def canMeasure(server: GRPCServer, case: Case) -> bool:
    """Say whether a server can do what a case asks for."""
    most = server.recipe.mostStreams
    return most is None or case.held < most


def check(server: GRPCServer, case: Case) -> None:
    """
    Check that a server gives the right answer, without which its time is worth nothing.

    @raise MeasureError: If it does not.
    """
    done = subprocess.run(
        [sys.executable, str(GRPC_CLIENT), "ask", str(server.port), case.path],
        input=case.posted,
        capture_output=True,
        timeout=_CLIENT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise MeasureError(f"{case.name}: {_reason(done.stderr)}")
    if done.stdout != case.wanted:
        raise MeasureError(f"{case.name}: answered {len(done.stdout)} bytes, not what it should")


def _reason(complaint: bytes) -> str:
    """Give the end of what a client says of its failure."""
    return complaint.decode(errors="replace")[-300:]


@contextmanager
def holding(server: GRPCServer, streams: int) -> Iterator[None]:
    """
    Hold streams open, each in use, while the context lasts.

    @raise MeasureError: If one of them is not answered, or ends badly.
    """
    words = ["hold", str(server.port), f"/{SERVICE}/{HELD_METHOD}", str(streams)]
    with subprocess.Popen(
        ["taskset", "-c", CLIENT_CORE, sys.executable, str(GRPC_CLIENT), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            if process.stdout and process.stdout.readline():
                yield
            _, complaint = process.communicate(timeout=_CLIENT_SECONDS)
        finally:
            process.kill()
    if process.returncode:
        raise MeasureError(f"{streams} streams could not be held: {_reason(complaint)}")


def complaint(case: Case, report: Report) -> str:
    """Say what makes a measurement invalid; nothing where it is valid."""
    if report.failed:
        return f"{report.failed} of {report.calls} calls failed"
    if not report.calls:
        return f"no call ended within {report.seconds:.1f} s"
    # What gRPC calls an error is one of these.
    if report.received < report.calls * len(case.wanted):
        return "answers were short"
    return ""


def measure(server: GRPCServer, case: Case, connections: int, effort: Effort) -> Cell:
    """
    Measure one cell.

    @raise MeasureError: If answers are not right or not there.
    @raise RuntimeError: If the client fails.
    """
    if not case.held:
        return _measureLoad(server, case, connections, effort)
    # Memory that one round has made a server take is there in the next one.
    with GRPCServer(server.recipe, server.folder.parent) as fresh:
        _warm(fresh, case, connections, effort)
        before = fresh.memory()
        with holding(fresh, case.held):
            grown = fresh.memory() - before
            cell = _measureLoad(fresh, case, connections, effort)
    return msgspec.structs.replace(cell, grownBytes=grown)


def _load(server: GRPCServer, case: Case, connections: int, seconds: int) -> Load:
    body = server.folder / "posted"
    body.write_bytes(case.posted)
    return Load(case.path, connections, seconds, body)


def _warm(server: GRPCServer, case: Case, connections: int, effort: Effort) -> None:
    """Ask a server that has not been asked."""
    if effort.warmSeconds and case.name not in server.warm:
        load = _load(server, case, connections, effort.warmSeconds)
        runH2load(server.port, load, server.folder)
        server.warm.add(case.name)


def _measureLoad(server: GRPCServer, case: Case, connections: int, effort: Effort) -> Cell:
    check(server, case)
    load = _load(server, case, connections, effort.seconds)
    with aloneOnTheCores():
        _warm(server, case, connections, effort)
        (report, clientCpu), used = underLoad(
            server, lambda started: runH2load(server.port, load, server.folder, started)
        )
    if found := complaint(case, report):
        raise MeasureError(f"{case.name}: {found}")
    return makeCell(server.recipe.name, case, connections, report, used, clientCpu)


def makeCell(
    server: str, case: Case, connections: int, report: Report, cpu: float, clientCpu: float
) -> Cell:
    """
    Draw the figures of a cell from what the client saw: of messages, but for how long a call takes.

    @param cpu: Seconds that the server used.
    @param clientCpu: Seconds that the client used.
    """
    messages = report.received / len(FRAMED)
    return Cell(
        server=server,
        case=case.name,
        connections=connections,
        rate=messages / report.seconds,
        megabytesPerSecond=report.received / report.seconds / 1e6,
        p50Ms=report.p50Ms,
        p99Ms=report.p99Ms,
        serverCpu=cpu / report.seconds,
        clientCpu=clientCpu / report.seconds,
        cpuMicrosPerRequest=cpu * 1e6 / messages,
        requests=messages,
    )
