"""Fsync failures in a running process."""

import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

_DETACH_SECONDS = 10


def failSyncs(case: Any, strace: str, pid: int, log: Path) -> "subprocess.Popen[bytes]":
    """
    Make every fsync of a process fail from now on, until L{endFailing}.

    @param strace: The path of strace.
    @raise SkipTest: If strace cannot attach.
    """
    injected = "inject=fsync,fdatasync:error=EIO"
    command = [strace, "-f", "-e", "trace=fsync,fdatasync", "-e", injected]
    tracer = subprocess.Popen(
        [*command, "-o", str(log), "-p", str(pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    case.addCleanup(tracer.wait)
    case.addCleanup(tracer.kill)
    assert tracer.stderr is not None
    case.addCleanup(tracer.stderr.close)
    said = tracer.stderr.readline().decode()
    if "attached" not in said:
        raise SkipTest(f"strace may not attach: {said.strip()}")
    return tracer


def endFailing(tracer: "subprocess.Popen[bytes]") -> None:
    """Let syncs succeed again. A tracer that cannot detach from a thread is killed."""
    tracer.terminate()
    try:
        tracer.wait(_DETACH_SECONDS)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.wait(_DETACH_SECONDS)
