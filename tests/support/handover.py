"""
Runs a command with listening sockets, passed as systemd does::

    python handover.py NAME=PLACE... -- COMMAND...

A place is C{HOST:PORT}, where port 0 selects a free port, or the number of a descriptor that this
process has inherited. The sockets become the descriptors from 3 on; C{LISTEN_PID}, C{LISTEN_FDS}
and C{LISTEN_FDNAMES} describe them.
"""

import os
import socket
import sys

_FIRST = 3

# Above the descriptors that a starting interpreter uses.
_ASIDE = 100


def main(arguments: list[str]) -> None:
    """Open the sockets and become the command."""
    end = arguments.index("--")
    names = []
    for index, argument in enumerate(arguments[:end]):
        name, _, place = argument.partition("=")
        host, _, number = place.rpartition(":")
        names.append(name)
        descriptor = int(number)
        if host:
            descriptor = socket.create_server((host, int(number)), backlog=100).detach()
        os.dup2(descriptor, _ASIDE + index, inheritable=False)
    for index in range(len(names)):
        os.dup2(_ASIDE + index, _FIRST + index, inheritable=True)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(names))
    os.environ["LISTEN_FDNAMES"] = ":".join(names)
    command = arguments[end + 1 :]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
