"""Ports that are reserved for one test."""

import socket
import subprocess
import time
from typing import Any

START_SECONDS = 60.0


def heldPort(case: Any) -> int:
    """
    Return a port of 127.0.0.1 that stays reserved until the test ends, without a listener.

    Connections to it are refused. A server can listen on it explicitly, with C{SO_REUSEADDR}, as
    every server does, or with C{SO_REUSEPORT}; the kernel does not assign it to other sockets.
    """
    held = socket.socket()
    case.addCleanup(held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    return port


def waitForPort(port: int, process: "subprocess.Popen[bytes]") -> None:
    """
    Wait until a process listens on a port of 127.0.0.1.

    @raise AssertionError: If it ends instead, or takes too long.
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
