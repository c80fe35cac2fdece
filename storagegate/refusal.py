"""
How a start is refused: one line, an exit code that is not 0, and nothing left behind.

C{twistd} cleans up after an exception, whose traceback it shows; a L{SystemExit} passes by it. So
what it would have done is done here: its pid file goes, for one that stays keeps the next start
from running where numbers of processes repeat, as they do in a container; and the command that
waits for the daemon in the background is told, for it would wait for ever.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

# twistd reads no more than this from the pipe.
_STATUS_BYTES = 100


def oneLine(text: str) -> str:
    """Make a message fit for a single line."""
    return " ".join(text.split())


def refusal(reason: str, twistdOptions: Mapping[str, Any] | None = None) -> SystemExit:
    """
    Make the exception that ends a start.

    @param twistdOptions: The options of C{twistd} itself, once it has begun to start the service.
    """
    line = oneLine(f"storagegate: {reason}")
    options = twistdOptions or {}
    if options.get("pidfile"):
        with suppress(OSError):
            os.unlink(options["pidfile"])
    if options.get("statusPipe") is not None:
        status = f"1 {line}".encode("ascii", "backslashreplace")[:_STATUS_BYTES]
        with suppress(OSError):
            os.write(options["statusPipe"], status)
    return SystemExit(line)
