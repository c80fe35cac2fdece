"""Ports for programs that have to be told one before they start."""

import socket
from typing import Any


def reservePort(case: Any) -> int:
    """
    Find a port that nobody has, and keep it until the end of a test.

    It is bound and nobody listens there: the kernel gives it to no other socket that wants just any
    port, not even to one that connects, but whoever asks for it by its number may listen.

    @param case: Its cleanup gives the port back.
    """
    kept = socket.socket()
    case.addCleanup(kept.close)
    # Without it nobody else could have the port, not even by its number.
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    number: int = kept.getsockname()[1]
    return number
