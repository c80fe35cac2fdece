"""The load client of the HTTP framework: C{wrk}, its command line and its report."""

from pathlib import Path

import msgspec
from attrs import frozen

from bench.client import Started, runPinned
from bench.places import WRK_SCRIPT
from bench.programs import firstVersion, program

LATE_SECONDS = 2
"""What an answer may take beyond the whole run before it counts as an error."""


@frozen
class Load:
    """
    A run of the client: the same request again and again on each connection.

    @ivar body: The file of what is posted; L{None} for a GET.
    @ivar seconds: wrk knows whole ones only.
    """

    target: str
    connections: int
    seconds: int
    body: Path | None = None


@frozen
class Errors:
    """
    What went wrong, each a number of times.

    @ivar status: Answers of 400 and above.
    """

    connect: int
    read: int
    write: int
    status: int
    timeout: int

    def __str__(self) -> str:
        counts = {
            "connect": self.connect,
            "read": self.read,
            "write": self.write,
            "status over 399": self.status,
            "timeout": self.timeout,
        }
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


@frozen
class Report:
    """
    What one run of the client saw.

    @ivar requests: How many were answered to the end.
    @ivar received: Bytes, those of answers that were cut off by the end of the run included.
    """

    requests: int
    seconds: float
    received: int
    p50Ms: float
    p99Ms: float
    errors: Errors


def findWrk() -> str:
    """
    Find the program.

    @raise FileNotFoundError: If it is not there.
    """
    return program("wrk")


def describeWrk() -> str:
    """Give the version."""
    return firstVersion([findWrk(), "-v"])


def commandLine(wrk: str, port: int, load: Load) -> list[str]:
    """Write the command line: one thread, for it has one core."""
    words = [wrk, "-t1", f"-c{load.connections}", f"-d{load.seconds}s"]
    words += ["--timeout", f"{load.seconds + LATE_SECONDS}s", "-s", str(WRK_SCRIPT)]
    words.append(f"http://127.0.0.1:{port}{load.target}")
    return [*words, "--", str(load.body)] if load.body else words


def readReport(output: bytes) -> Report:
    """
    Read what the client printed.

    @raise RuntimeError: If it is not the client's report.
    """
    try:
        return msgspec.json.decode(output.rstrip().rpartition(b"\n")[2], type=Report)
    except msgspec.DecodeError as error:
        raise RuntimeError(f"wrk's report cannot be read ({error}): {output[-300:]!r}") from error


def runWrk(port: int, load: Load, started: Started | None = None) -> tuple[Report, float]:
    """
    Run the client on its core until it ends.

    @return: Its report, and the CPU seconds that it used.
    @raise RuntimeError: If the client fails; with what it wrote.
    """
    finished = runPinned(commandLine(findWrk(), port, load), started)
    return readReport(finished.output), finished.cpuSeconds
