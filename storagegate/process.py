"""What concerns the whole process: the limits of the system, and where modules are looked for."""

import ctypes
import gc
import linecache
import os
import resource
import sys

_COLLECT_AFTER = 10_000
"""
New containers between two looks of the collector. Python's 700 are one batch of uploads; all that
a request makes is freed by its reference count, and the collector took 7 % of the time.
"""


_COLLECT_AT_START = 2000
"""
The same while the process starts: each attrs class leaves a first form of itself behind, and what
it took is better used for the next class. It is a megabyte less at the end.
"""

_NEVER = 1_000_000
"""How often the collector looks at what it has found to be in use: not at all at the start."""

_SWITCH_SECONDS = 0.0002
"""
How long a busy reactor keeps the interpreter from a thread that waits for it. With Python's 5 ms a
commit, which gives it up at each statement, starved behind reads: at the 99th percentile it took
630 ms where it now takes 80.
"""


def tuneProcess() -> None:
    """Set the process up before anything listens; the one place for such settings."""
    # What survives one look stays: looking at it again and again takes 60 ms.
    gc.set_threshold(_COLLECT_AT_START, _NEVER, _NEVER)
    gc.callbacks.append(_forgetSources)
    sys.setswitchinterval(_SWITCH_SECONDS)
    # The usual soft limit of 1024 descriptors is below the connections that one listener takes.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Services are named by module, and the user's files come first.
    sys.path.insert(0, os.getcwd())


_SET_DEATH_SIGNAL = 1
"""C{PR_SET_PDEATHSIG} of C{prctl(2)}."""


def dieWithParent(number: int) -> None:
    """Have the system send this process a signal when its parent ends; 0 for none."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


def settleProcess() -> None:
    """
    Keep the garbage collector off what the start has made: it lives as long as the process.

    After L{tuneProcess}, with which the start began.
    """
    # Only what was made last: among what has survived is next to nothing to find.
    gc.collect(0)
    gc.callbacks.remove(_forgetSources)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    _giveBack()


def _forgetSources(phase: str, found: object) -> None:
    """
    Drop the text of generated methods, which attrs keeps for debuggers; a look of the collector.

    Together it is 0.8 MB, which is of use to the start only if it comes back while that goes on.
    """
    linecache.clearcache()


def _giveBack() -> None:
    """Give the system back what only the start needed: a third of a megabyte, once, in 2 ms."""
    # Not every C library has it.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
