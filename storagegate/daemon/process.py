"""
Settings of the daemon's process, and the handling of a failed start.

A failed start ends with one line for each mistake, and a non-zero exit code. C{twistd} cleans up
after exceptions, whose traceback it prints, but not after a L{SystemExit}. Therefore L{startError}
removes the pid file, which would prevent the next start in a container, where process ids repeat.
It also notifies the command that waits for the daemon in the background.
"""

import gc
import linecache
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from storagegate.daemon.config import ConfigurationError
from storagegate.net.heap import trimHeap
from storagegate.net.process import oneLine

_COLLECT_AFTER = 10_000
"""
New containers between two runs of the garbage collector. Python's default of 700 is one batch of
uploads; reference counts free the objects of a request, and the collector took 7 % of the time.
"""

_COLLECT_AT_START = 2000
"""
The threshold during the start: each attrs class leaves garbage behind, and the next class can reuse
its memory. This saves a megabyte.
"""

_NEVER = 1_000_000
"""The threshold of the older generations at the start: they are not collected."""

_SWITCH_SECONDS = 0.0002
"""
How long a busy reactor holds the GIL while a thread waits. With Python's 5 ms a commit, which
releases the GIL at each statement, starved behind reads: its p99 was 630 ms instead of 80 ms.
"""


def tuneProcess() -> None:
    """Apply all settings of the process. Must be called before a listener opens."""
    _forgetTesting()
    # Objects that survive one run stay alive: further runs over them take 60 ms.
    gc.set_threshold(_COLLECT_AT_START, _NEVER, _NEVER)
    gc.callbacks.append(_forgetSources)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # The usual soft limit of 1024 descriptors is lower than the connections of one listener.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Services are imported by name, and the user's modules take precedence.
    sys.path.insert(0, os.getcwd())


_RUNNERS = frozenset({"twisted.trial.unittest", "_pytest"})
"""A module of each program that runs tests."""


_TESTING = frozenset({"difflib", "pprint", "unittest"})
"""C{unittest}, and what only it imports."""


def _forgetTesting() -> None:
    """
    Forget the modules of C{unittest}, which twistd imports with the interfaces of trial's plugins.

    The start uses their memory again, half a megabyte. A process that runs tests keeps them.
    """
    if not _RUNNERS.isdisjoint(sys.modules):
        return
    names = [
        name
        for name in sys.modules
        if name.partition(".")[0] in _TESTING or name.startswith("twisted.trial")
    ]
    for name in names:
        package, _, last = name.rpartition(".")
        if package in sys.modules:
            # A package refers to its modules.
            vars(sys.modules[package]).pop(last, None)
        del sys.modules[name]
    if names:
        gc.collect()


def freezeHeap() -> None:
    """
    Exclude the objects of the start from garbage collection: they live as long as the process.

    L{tuneProcess} must be called first.
    """
    # Only the youngest generation: the older ones contain almost no garbage.
    gc.collect(2)
    gc.callbacks.remove(_forgetSources)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    # Returns 0.3 MB to the system in 2 ms.
    trimHeap()


def _forgetSources(phase: str, found: object) -> None:
    """
    Drop the source of generated methods, which attrs keeps for debuggers: 0.8 MB in total.

    As a callback of the collector it makes the memory reusable during the start.
    """
    linecache.clearcache()


# twistd reads at most this many bytes from the pipe.
_STATUS_BYTES = 100


def startError(
    reason: str | ConfigurationError, twistdOptions: Mapping[str, Any] | None = None
) -> SystemExit:
    """
    Make the exception that ends a start.

    @param reason: The reason for the operator; each mistake of a configuration gets its own line.
    @param twistdOptions: The options of C{twistd} itself, if it is starting the service.
    """
    reasons = reason.errors if isinstance(reason, ConfigurationError) else (reason,)
    text = "\n".join(oneLine(f"storagegate: {each}") for each in reasons)
    options = twistdOptions or {}
    if options.get("pidfile"):
        with suppress(OSError):
            os.unlink(options["pidfile"])
    if options.get("statusPipe") is not None:
        status = f"1 {oneLine(text)}".encode("ascii", "backslashreplace")[:_STATUS_BYTES]
        with suppress(OSError):
            os.write(options["statusPipe"], status)
    return SystemExit(text)
