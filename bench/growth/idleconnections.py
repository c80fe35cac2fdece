"""
Hold connections open that say nothing.

    python -m bench.growth.idleconnections PORT COUNT

Says C{held} when all are open, and how many still are when its standard input is closed.
"""

import socket
import sys
from collections.abc import Sequence


def isOpen(connection: socket.socket) -> bool:
    """Return whether the server has left a connection open."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def main(arguments: Sequence[str]) -> None:
    """Run as a program."""
    port, count = map(int, arguments)
    held = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.setblocking(False)
        held.append(connection)
    print("held", flush=True)
    sys.stdin.read()
    print(sum(map(isOpen, held)))


if __name__ == "__main__":
    main(sys.argv[1:])
