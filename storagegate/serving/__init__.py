"""
Serving a program: its listeners, opened and closed together, in this process or in workers.

    - C{group.py} opens several servers together, and is the C{run} of applications, gateways and
      gRPC servers with workers.
    - C{program.py} finds out what program a process runs, and runs it in another one.
    - C{supervisor.py} and C{worker.py} are the two sides of workers.
    - C{listeners.py} has the sockets that a supervisor shares with its workers; the supervisor of
      the daemon uses it as well.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_worker: Any = None

_importing: str | None = None


def currentWorker() -> Any:
    """
    Return the L{ProgramWorker<storagegate.serving.worker.ProgramWorker>} that this process is;
    C{None} for any other process.
    """
    return _worker


def claimRun() -> Any:
    """
    Return L{currentWorker}, for the C{run} of a server.

    @raise SystemExit: If a module that is being imported to be run calls C{run}.
    """
    if _importing is not None:
        raise SystemExit(
            f"storagegate: {_importing} calls run() when it is imported: put the call under"
            ' if __name__ == "__main__":'
        )
    return _worker


@contextmanager
def importingProgram(name: str) -> Iterator[None]:
    """
    Make L{claimRun} fail, while a program is imported that is run afterwards.

    @param name: The name of its module.
    """
    global _importing
    _importing = name
    try:
        yield
    finally:
        _importing = None


def becomeWorker(worker: Any) -> None:
    """
    Make this process a worker.

    @param worker: A L{ProgramWorker<storagegate.serving.worker.ProgramWorker>}.
    """
    global _worker
    _worker = worker
