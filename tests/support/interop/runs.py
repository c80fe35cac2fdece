"""Runs a client's cases against a server, as a program or in a thread."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from tests.support.grpctap import Tap
from tests.support.interop.cases import PROTO, Outcome, readOutcomes
from tests.support.interop.grpcioclient import runGrpcio
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import nodeModules

RUN_SECONDS = 100
"""Limit of the time for all cases of a client; they take about two seconds."""


@frozen
class ClientRun:
    """
    A client's report about a server.

    @ivar outcomes: The outcomes by case; cases that did not run are missing.
    @ivar complaint: The standard error of a program.
    @ivar tap: The recorded calls of the compressed cases.
    """

    outcomes: Mapping[str, Outcome]
    complaint: str = ""
    tap: Tap = field(factory=Tap)


RunClient = Callable[[int, int], ClientRun]
"""
Takes the port of a server and the port of a tap in front of it. Blocks. Raises C{SkipTest} if the
client is not available.
"""


def runGrpcioClient(port: int, tappedPort: int) -> ClientRun:
    """Run grpcio's stubs, in this thread."""
    return ClientRun({outcome.case: outcome for outcome in runGrpcio(port, tappedPort)})


def runGrpclibClient(port: int, tappedPort: int) -> ClientRun:
    """Run the program that uses grpclib."""
    module = "tests.support.interop.grpclibclient"
    return _runProgram((sys.executable, "-m", module, str(port), str(tappedPort)), {})


def runGrpcJsClient(port: int, tappedPort: int) -> ClientRun:
    """Run the program that uses @grpc/grpc-js."""
    program = Path(__file__).with_name("grpcjsclient.js")
    command = ("node", str(program), str(port), str(tappedPort), str(PROTO))
    return _runProgram(command, {"NODE_PATH": str(nodeModules())})


def _runProgram(command: Sequence[str], environment: Mapping[str, str]) -> ClientRun:
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output, complaint = error.stdout or b"", f"not done after {RUN_SECONDS} s"
    else:
        output, complaint = done.stdout, done.stderr.decode("utf-8", "backslashreplace")[-2000:]
    return ClientRun(readOutcomes(output.decode()), complaint)
