"""Ports that nobody else gets."""

import socket
import subprocess
import time
from typing import Any

START_SECONDS = 60.0


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


def waitForPort(port: int, process: "subprocess.Popen[bytes]") -> None:
    """
    Wait until a process listens on a port of 127.0.0.1.

    @raise AssertionError: If it ends instead, or takes longer than any start.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens on {port}"
        try:
            code = process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the process ended with {code}")
