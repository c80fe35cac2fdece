"""
The load client: C{blast.c}, its request files and its figures.

A client in Python would be slower than the servers it measures.
"""

import os
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec
from attrs import frozen

from bench.client import Started, runPinned
from bench.places import BLAST_SOURCE, peersFolder
from bench.signing import Authorizer, Request, encodeHead

HEAD_FLAG = 256
"""Set in a record's tag when the reply has no body whatever its Content-Length says."""

_RECORD = struct.Struct("<IIQ")


@frozen
class Latency:
    """Milliseconds from the first byte sent to the last byte received."""

    n: int
    p50: float
    p99: float
    max: float


@frozen
class Outcome:
    """What one run of the client saw."""

    issued: int
    done: int
    bad: int
    lost: int
    reconnects: int
    laps: int
    seconds: float
    received: int
    sent: int
    clientCpu: float
    lastBadStatus: int
    tags: dict[str, Latency]


@frozen
class Load:
    """
    A run of the client.

    @ivar seconds: How long the requests repeat; 0 sends each once.
    """

    requests: Path
    body: Path
    connections: int
    seconds: float = 0


def encodeRecord(request: Request, head: bytes) -> bytes:
    """Encode one record of a request file."""
    tag = request.tag | (HEAD_FLAG if request.method == "HEAD" else 0)
    return _RECORD.pack(tag, len(head), request.length or 0) + head


def writeRequests(
    path: Path, requests: Iterable[Request], host: str, authorizer: Authorizer
) -> Path:
    """Sign requests and write them to a file for the client."""
    with path.open("wb") as file:
        for request in requests:
            file.write(encodeRecord(request, encodeHead(request, host, authorizer)))
    return path


def bodyFile(folder: Path, size: int) -> Path:
    """Make, once, a file of random bytes whose beginning serves as request body."""
    path = folder / f"body-{size}"
    if not path.exists():
        path.write_bytes(os.urandom(size))
    return path


def buildClient() -> Path:
    """Compile the client where it is missing or older than its source."""
    program = peersFolder() / "blast"
    if not program.exists() or program.stat().st_mtime < BLAST_SOURCE.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-O2", "-o", str(program), str(BLAST_SOURCE)], check=True)
    return program


def commandLine(program: Path, port: int, load: Load) -> list[str]:
    """Write the client's command line."""
    words = [str(program), "-p", str(port), "-c", str(load.connections)]
    words += ["-f", str(load.requests), "-b", str(load.body)]
    if load.seconds:
        words += ["-d", str(load.seconds)]
    return words


def readOutcome(text: str | bytes) -> Outcome:
    """
    Read what the client printed.

    @raise msgspec.ValidationError: If it is not the client's report.
    """
    return msgspec.json.decode(text, type=Outcome)


def runClient(port: int, load: Load, started: Started | None = None) -> Outcome:
    """
    Run the client on its core until it ends.

    @raise RuntimeError: If the client fails; with what it wrote.
    """
    finished = runPinned(commandLine(buildClient(), port, load), started)
    return readOutcome(finished.output)
