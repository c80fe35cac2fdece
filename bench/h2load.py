"""The load client of gRPC: C{h2load}, its command line and what it leaves."""

import re
from pathlib import Path

from attrs import frozen

from bench.client import Started, runPinned
from bench.programs import firstVersion, program

_SUMMARY = re.compile(
    rb"finished in ([0-9.]+)s,.*?([0-9]+) done,.*?([0-9]+) failed,.*?\(([0-9]+)\) data", re.DOTALL
)


@frozen
class Load:
    """
    A run of the client: the same call again and again, on one connection.

    @ivar body: The file of what each call sends.
    """

    path: str
    inFlight: int
    seconds: int
    body: Path


@frozen
class Report:
    """
    What one run of the client saw.

    @ivar calls: How many ended.
    @ivar failed: How many of them without an answer; what gRPC calls an error is not seen.
    @ivar received: Bytes of messages, those of calls that were cut off by the end of the run
        included.
    """

    calls: int
    failed: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float


def findH2load() -> str:
    """
    Find the program.

    @raise FileNotFoundError: If it is not there.
    """
    return program("h2load")


def describeH2load() -> str:
    """Give the version."""
    return firstVersion([findH2load(), "--version"])


def commandLine(h2load: str, port: int, load: Load, log: Path) -> list[str]:
    """
    Write the command line: one thread, for it has one core.

    @param log: Where a line is written for each call.
    """
    words = [h2load, "-t1", "-c1", f"-m{load.inFlight}", f"-D{load.seconds}"]
    words += [f"--data={load.body}", f"--log-file={log}"]
    words += ["--header=content-type: application/grpc", "--header=te: trailers"]
    return [*words, f"http://127.0.0.1:{port}{load.path}"]


def readReport(output: bytes, log: str) -> Report:
    """
    Read what the client printed, and how long each call took.

    @raise RuntimeError: If it is not the client's report.
    """
    match = _SUMMARY.search(output)
    if match is None:
        raise RuntimeError(f"h2load's report cannot be read: {output[-300:]!r}")
    seconds, calls, failed, received = match.groups()
    # When it began, the HTTP status, how many microseconds it took.
    took = sorted(int(line.split("\t")[2]) / 1000 for line in log.splitlines())
    return Report(
        calls=int(calls),
        failed=int(failed),
        seconds=float(seconds),
        received=int(received),
        p50Ms=took[len(took) // 2] if took else 0,
        p99Ms=took[len(took) * 99 // 100] if took else 0,
    )


def runH2load(
    port: int, load: Load, folder: Path, started: Started | None = None
) -> tuple[Report, float]:
    """
    Run the client on its core until it ends.

    @param folder: Where it may write.
    @return: Its report, and the CPU seconds that it used.
    @raise RuntimeError: If the client fails; with what it wrote.
    """
    log = folder / "h2load.log"
    # It appends.
    log.unlink(missing_ok=True)
    finished = runPinned(commandLine(findH2load(), port, load, log), started)
    return readReport(finished.output, log.read_text()), finished.cpuSeconds
