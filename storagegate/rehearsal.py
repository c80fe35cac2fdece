"""
Trying something out in a process of its own, before anything is opened.

A supervisor does not import what its workers do: it would cost it 40 MB for as long as it lives. So
a child, which is a fork of it, makes a gateway of the configuration, says what is wrong, and ends.
The supervisor has no threads by then, and the child never runs the reactor.
"""

import os
import select
import signal
import time
from collections.abc import Callable

from storagegate.config import ConfigurationError
from storagegate.process import dieWithParent

LIMIT_SECONDS = 60.0
"""How long it may take: as long as a worker may take to start."""

_LOOK_SECONDS = 0.2
"""How long a stop waits that comes meanwhile."""

_MAX_TEXT = 4096
"""Bytes of what is wrong: a pipe takes so much at once."""


def rehearse(act: Callable[[], object], isUnwanted: Callable[[], bool]) -> None:
    """
    Do something in a child.

    @param isUnwanted: Tells whether to wait no longer.
    @raise ConfigurationError: The one that C{act} raises there, or that it takes too long. What
        else goes wrong there will go wrong in earnest as well.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        try:
            dieWithParent(signal.SIGKILL)
            if os.getppid() == parent:
                act()
        except ConfigurationError as error:
            os.write(writer, str(error).encode("utf-8", "backslashreplace")[:_MAX_TEXT])
        finally:
            # Nothing of the parent's is to be ended here.
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + LIMIT_SECONDS
    try:
        while not select.select([reader], [], [], _LOOK_SECONDS)[0]:
            if isUnwanted():
                return
            if time.monotonic() >= end:
                seconds = f"{LIMIT_SECONDS:.0f} s"
                raise ConfigurationError(f"the services were not imported within {seconds}")
        wrong = os.read(reader, _MAX_TEXT).decode("utf-8", "replace")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
    if wrong:
        raise ConfigurationError(wrong)
