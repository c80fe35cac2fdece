"""What the measurements of all benches have in common."""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bench.client import Started
from bench.processes import Server, favour

T = TypeVar("T")

FAVOURED = -15
"""The nice value of both sides during a run, where that is allowed (root)."""


class MeasureError(Exception):
    """A server does not do what a measurement needs."""


@contextmanager
def aloneOnTheCores() -> Iterator[None]:
    """Wait until no other bench of this machine measures, and keep it so."""
    with (Path(tempfile.gettempdir()) / "storagegate-bench.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def underLoad(server: Server, load: Callable[[Started], T]) -> tuple[T, float]:
    """
    Run a load with both sides favoured.

    @param load: Runs the client, and tells what it is given the client's process id.
    @return: What the load gave, and the CPU seconds that the server used meanwhile.
    """
    favour(server.process.pid, FAVOURED)
    try:
        before = server.cpu()
        with server.watched():
            seen = load(lambda pid: favour(pid, FAVOURED))
        return seen, server.cpu() - before
    finally:
        favour(server.process.pid, 0)
