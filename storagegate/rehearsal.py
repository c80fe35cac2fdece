"""
What a supervisor finds out before it opens a port: whether its workers will do as they are told.

It does not load the user's modules itself, for it lives longer than they do: workers that come
later read them anew. So a child tries, and is forked while there are neither threads nor a library
that minds.
"""

import os
import select
import signal
from collections.abc import Callable

from storagegate.config import ConfigurationError
from storagegate.net.workerprocess import START_SECONDS

_MAX_BYTES = 4096
"""What a pipe takes in one piece, and much more than a line."""


def rehearse(attempt: Callable[[], object]) -> None:
    """
    Try something in a process of its own; blocking.

    What goes wrong otherwise, or takes too long, is left to be told by whoever does it in earnest.

    @raise ConfigurationError: If the attempt has.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _try(attempt, writing)
    os.close(writing)
    readable, _, _ = select.select([reading], [], [], START_SECONDS)
    if not readable:
        os.kill(child, signal.SIGKILL)
    text = os.read(reading, _MAX_BYTES)
    os.close(reading)
    os.waitpid(child, 0)
    if text:
        raise ConfigurationError(text.decode("utf-8", "replace"))


def _try(attempt: Callable[[], object], writing: int) -> None:
    """Try it, say what is wrong, and end: nothing of the parent's is to be tidied up here."""
    try:
        attempt()
    except ConfigurationError as error:
        os.write(writing, str(error).encode("utf-8", "replace")[:_MAX_BYTES])
    finally:
        os._exit(0)
