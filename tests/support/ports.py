"""Ports that nobody else gets."""

import socket
from typing import Any


def heldPort(case: Any) -> int:
    """
    Give a port of 127.0.0.1 that is the test's until its end, though nobody listens there.

    Who connects to it is refused. Who means to listen there says its number, and C{SO_REUSEADDR},
    as every server does; whoever takes any port, to listen or to connect, is given another one.
    """
    held = socket.socket()
    case.addCleanup(held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    return port
