"""Whether the ports are free, and where not, who has them."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

from storagegate.doctor.findings import Check, Finding
from storagegate.doctor.places import Place, addressesOf, isHandedOver

_check = Check("ports")

_TABLES = {
    socket.SOCK_STREAM: ("/proc/net/tcp", "/proc/net/tcp6"),
    socket.SOCK_DGRAM: ("/proc/net/udp", "/proc/net/udp6"),
}

# As the tables write it: a TCP socket that listens, and a UDP socket that is open.
_SERVING = {socket.SOCK_STREAM: "0A", socket.SOCK_DGRAM: "07"}


def checkPlace(place: Place, daemon: int | None) -> Iterator[Finding]:
    """
    Try to bind a place, and let it go at once.

    @param daemon: The process that has the data directory open, whose ports these may be.
    """
    if place.error is not None:
        yield _check.problem(f"{place.name}: {place.description}: {place.error}")
    elif isHandedOver(place.description):
        yield _check.ok(f"{place.name}: systemd opens it")
    elif place.path is not None:
        yield _ofPath(place, daemon)
    else:
        yield _ofPort(place, daemon)


def daemonOf(directory: str) -> int | None:
    """Give the process that has a data directory open, from the system's table of locks."""
    try:
        inode = os.stat(os.path.join(directory, "lock")).st_ino
        with open("/proc/locks", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1337 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None


def _ofPort(place: Place, daemon: int | None) -> Finding:
    kind = socket.SOCK_DGRAM if place.name == "udp" else socket.SOCK_STREAM
    try:
        for family, _, _, _, address in addressesOf(place, kind):
            with socket.socket(family, kind) as probe:
                if kind is socket.SOCK_STREAM:
                    # As the daemon does: what a connection left behind is not in the way.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                # Without listening: nobody who comes now is taken in.
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken(place, kind, daemon)
        return _check.problem(f"{place.name}: {place.description}: {_reason(error)}")
    return _check.ok(f"{place.name}: {place.description} is free")


def _reason(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "only root, or a process with CAP_NET_BIND_SERVICE, may listen there"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return error.strerror or str(error)


def _taken(place: Place, kind: socket.SocketKind, daemon: int | None) -> Finding:
    holders = _holders(place.port or 0, kind)
    if daemon is not None and any(daemon in (pid, _parentOf(pid)) for pid in holders):
        return _check.ok(f"{place.name}: {place.description} is the running daemon's")
    names = ", ".join(f"process {pid} ({_nameOf(pid)})" for pid in sorted(holders))
    by = names or "another process, which only root can name"
    return _check.problem(f"{place.name}: {place.description} is taken by {by}")


def _ofPath(place: Place, daemon: int | None) -> Finding:
    path = place.path or ""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.access(directory, os.W_OK | os.X_OK):
        return _check.problem(f"{place.name}: {directory} is not writable")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return _check.ok(f"{place.name}: {path} is free")
    if daemon is not None:
        return _check.ok(f"{place.name}: {path} is the running daemon's")
    return _check.problem(f"{place.name}: {path} is taken")


def _holders(port: int, kind: socket.SocketKind) -> set[int]:
    """Give the processes that serve a port, as far as we may look."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port, kind)}
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        # One that has ended or is somebody else's shows nothing.
        with suppress(OSError):
            if wanted.intersection(_links(f"/proc/{name}/fd")):
                found.add(int(name))
    return found


def _links(directory: str) -> Iterator[str]:
    for name in os.listdir(directory):
        # Descriptors are closed meanwhile; ours for the list itself is.
        with suppress(OSError):
            yield os.readlink(f"{directory}/{name}")


def _inodes(port: int, kind: socket.SocketKind) -> Iterator[str]:
    for table in _TABLES[kind]:
        try:
            with open(table, encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            # sl, local address, remote address, state, ..., inode
            fields = line.split()
            if fields[3] == _SERVING[kind] and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _parentOf(pid: int) -> int | None:
    """Give the parent of a process: what a worker serves is its daemon's."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # Behind the name, which may hold anything: state, parent.
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _nameOf(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "ended"
