"""
Checks of the network: whether the ports of the listeners are free or which process holds them, and
whether the configured remote machines accept connections.
"""

import errno
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field, frozen
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory

from storagegate.cli.doctor import Check, Finding
from storagegate.cli.doctor.system import readMounts
from storagegate.core.addresses import DEFAULT_PORTS
from storagegate.daemon.config import Configuration
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.endpoints import isLoopback

_SYSTEMD = "systemd:"


@frozen
class ListenerAddress:
    """
    The address of a listener.

    @ivar description: The endpoint description in the configuration.
    @ivar host: The host; empty for all addresses.
    @ivar port: 0 for any free port; L{None} for a UNIX or inherited socket.
    @ivar path: The path of a UNIX socket.
    @ivar isDatagram: Whether it is a UDP socket.
    @ivar error: The reason why the description is invalid; all other fields are empty then.
    """

    name: str
    description: str
    host: str = ""
    port: int | None = None
    path: str | None = None
    isDatagram: bool = False
    error: str | None = None


@define
class _RecordingReactor:
    """A reactor that records the addresses of its listen calls, and opens nothing."""

    addresses: list[dict[str, Any]] = field(factory=list)

    def listenTCP(self, port: int, *others: Any, interface: str = "", **more: Any) -> None:
        """Record a call."""
        self.addresses.append({"port": port, "host": interface})

    listenSSL = listenTCP

    def listenUNIX(self, address: str, *others: Any, **more: Any) -> None:
        """Record a call."""
        self.addresses.append({"path": address})


def listenerAddresses(configuration: Configuration) -> list[ListenerAddress]:
    """Return the address of each enabled listener."""
    listeners = configuration.listeners
    found = [
        _endpoint(name, description)
        for name, description in (("s3", listeners.s3), ("admin", listeners.admin))
        if description is not None
    ]
    for row in listenerTransports():
        description = listeners.of(row.name)
        if description is None:
            continue
        if row.address == "hostport":
            host, _, port = description.rpartition(":")
            isDatagram = row.inherit == "datagram"
            address = ListenerAddress(
                row.name, description, host.strip("[]"), int(port), isDatagram=isDatagram
            )
        else:
            address = _endpoint(row.name, description)
        found.append(address)
    return found


def _endpoint(name: str, description: str) -> ListenerAddress:
    if description.startswith(_SYSTEMD):
        return ListenerAddress(name, description)
    recorder = _RecordingReactor()
    try:
        endpoint = serverFromString(recorder, description)
        endpoint.listen(Factory()).addErrback(lambda failure: None)
    except Exception as error:
        # Endpoint parsers are plugins, which may raise any error.
        return ListenerAddress(
            name, description, error=" ".join(str(error).split()) or type(error).__name__
        )
    if not recorder.addresses:
        return ListenerAddress(name, description, error="unknown kind of endpoint")
    return ListenerAddress(name, description, **recorder.addresses[0])


def _resolve(listener: ListenerAddress, kind: socket.SocketKind) -> list[tuple[Any, ...]]:
    """
    Resolve the address of a listener with a port.

    @raise OSError: The host is unknown.
    """
    flags = socket.AI_PASSIVE
    return socket.getaddrinfo(listener.host or "0.0.0.0", listener.port, type=kind, flags=flags)


def isExposed(listener: ListenerAddress) -> bool:
    """Return whether other machines can reach a listener; C{False} for a socket of systemd."""
    if listener.port is None:
        return False
    kind = socket.SOCK_DGRAM if listener.isDatagram else socket.SOCK_STREAM
    try:
        return not all(isLoopback(each[4][0]) for each in _resolve(listener, kind))
    except OSError:
        return True


_PORTS = Check("ports")

_TABLES = {
    socket.SOCK_STREAM: ("/proc/net/tcp", "/proc/net/tcp6"),
    socket.SOCK_DGRAM: ("/proc/net/udp", "/proc/net/udp6"),
}

# States in these tables: a listening TCP socket, and an open UDP socket.
_SERVING = {socket.SOCK_STREAM: "0A", socket.SOCK_DGRAM: "07"}


def checkListener(listener: ListenerAddress, daemon: int | None) -> Iterator[Finding]:
    """
    Try to bind the address of a listener, and release it.

    @param listener: The address to check; an invalid description is reported as a problem.
    @param daemon: The process that has the data directory open and may hold the port.
    """
    if listener.error is not None:
        yield _PORTS.problem(f"{listener.name}: {listener.description}: {listener.error}")
    elif listener.description.startswith(_SYSTEMD):
        yield _PORTS.ok(f"{listener.name}: systemd opens it")
    elif listener.path is not None:
        yield _ofPath(listener, daemon)
    else:
        yield _ofPort(listener, daemon)


def daemonOf(directory: str) -> int | None:
    """Return the process that has a data directory open, from C{/proc/locks}."""
    try:
        # The file may be unreadable for this user.
        descriptor = os.open(os.path.join(directory, "lock"), os.O_PATH | os.O_CLOEXEC)
        try:
            inode, device = os.fstat(descriptor).st_ino, _deviceOf(descriptor)
        finally:
            os.close(descriptor)
        with open("/proc/locks", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    return lockHolder(lines, inode, device)


def lockHolder(lines: Iterable[str], inode: int, device: tuple[int, int] | None) -> int | None:
    """
    Find the process that has locked a file.

    @param lines: The lines of C{/proc/locks}.
    @param device: The major and minor number of its file system, because files of other file
        systems may have the same inode number; L{None} if they are unknown.
    """
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1337 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK":
            major, minor, number = fields[5].split(":")
            found = int(major, 16), int(minor, 16)
            if number == str(inode) and device in (None, found):
                return int(fields[4])
    return None


def _deviceOf(descriptor: int) -> tuple[int, int] | None:
    """
    Return the device numbers of a file's file system; L{None} if they are unknown.

    C{st_dev} is another number on btrfs and overlayfs.
    """
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        mount = next((line.split()[1] for line in file if line.startswith("mnt_id:")), "")
    for line in readMounts().splitlines():
        # 36 35 98:0 / /mnt rw,noatime - ext4 /dev/root rw
        number, _, device, *_ = line.split()
        if number == mount:
            major, _, minor = device.partition(":")
            return int(major), int(minor)
    return None


def _ofPort(listener: ListenerAddress, daemon: int | None) -> Finding:
    kind = socket.SOCK_DGRAM if listener.isDatagram else socket.SOCK_STREAM
    try:
        for family, _, _, _, address in _resolve(listener, kind):
            with socket.socket(family, kind) as probe:
                if kind is socket.SOCK_STREAM:
                    # Like the daemon: connections in TIME_WAIT do not block the port.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                # The probe does not listen, so no client connects.
                probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return _taken(listener, kind, daemon)
        return _PORTS.problem(f"{listener.name}: {listener.description}: {_reason(error)}")
    return _PORTS.ok(f"{listener.name}: {listener.description} is free")


def _reason(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "only root or a process with CAP_NET_BIND_SERVICE may listen on this port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have this address"
    return error.strerror or str(error)


def isHeldByOther(port: int, daemon: int) -> bool:
    """Return whether processes serve a TCP port, and none of them is the daemon or its worker."""
    holders = _holders(port, socket.SOCK_STREAM)
    return bool(holders) and not any(daemon in (pid, _parentOf(pid)) for pid in holders)


def _taken(listener: ListenerAddress, kind: socket.SocketKind, daemon: int | None) -> Finding:
    holders = _holders(listener.port or 0, kind)
    if daemon is not None and any(daemon in (pid, _parentOf(pid)) for pid in holders):
        return _PORTS.ok(f"{listener.name}: {listener.description} is in use by the running daemon")
    names = ", ".join(f"process {pid} ({_nameOf(pid)})" for pid in sorted(holders))
    by = names or "another process, which only root can identify"
    return _PORTS.problem(f"{listener.name}: {listener.description} is in use by {by}")


def _ofPath(listener: ListenerAddress, daemon: int | None) -> Finding:
    path = listener.path or ""
    directory = os.path.dirname(os.path.abspath(path))
    if not os.access(directory, os.W_OK | os.X_OK):
        return _PORTS.problem(f"{listener.name}: {directory} is not writable")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return _PORTS.ok(f"{listener.name}: {path} is free")
    if daemon is not None:
        return _PORTS.ok(f"{listener.name}: {path} is in use by the running daemon")
    return _PORTS.problem(f"{listener.name}: {path} is in use")


def _holders(port: int, kind: socket.SocketKind) -> set[int]:
    """Return the processes that serve a port, if permissions allow it."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port, kind)}
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        # The process may have ended or belong to another user.
        with suppress(OSError):
            if wanted.intersection(_links(f"/proc/{name}/fd")):
                found.add(int(name))
    return found


def _links(directory: str) -> Iterator[str]:
    for name in os.listdir(directory):
        # The descriptor may have been closed.
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
    """Return the parent of a process: workers serve the ports of their daemon."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # State and parent follow the name, which may contain any character.
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _nameOf(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "ended"


def discoveryOptions(tables: Mapping[str, Any]) -> Any:
    """
    Read the C{DiscoveryOptions} of a gateway from its tables.

    @param tables: All tables of the gateway, by name.
    @return: C{None} if they are absent or invalid, which another check reports.
    """
    if "discovery" not in tables:
        return None
    from storagegate.core.options import OptionError
    from storagegate.upstream.options import DiscoveryOptions, readDiscovery

    try:
        return readDiscovery(DiscoveryOptions(), tables["discovery"])
    except (OptionError, TypeError):
        return None


_NETWORK = Check("network")

_SECONDS = 1.0

# There may be many instances, and each attempt needs a thread.
_PARALLEL = 32


def checkPeers(tables: Mapping[str, Any]) -> Iterator[Finding]:
    """
    Connect to the registries, instances and collectors of discovery and tracing.

    @param tables: The tables of the gateway; another check reports errors in them.
    """
    peers = [*_ofDiscovery(tables), *_ofTracing(tables)]
    for start in range(0, len(peers), _PARALLEL):
        attempts = [_Attempt(*peer) for peer in peers[start : start + _PARALLEL]]
        for attempt in attempts:
            yield attempt.finding()


class _Attempt:
    """A connection attempt in a thread, because resolving a name has no time limit."""

    def __init__(self, what: str, host: str, port: int) -> None:
        self._what = what
        self._address = (host, port)
        self._finding = _NETWORK.warning(f"{what}: the name {host} was not resolved in time")
        # A daemon thread does not delay the end of the process.
        self._thread = Thread(target=self._try, daemon=True)
        self._thread.start()

    def finding(self) -> Finding:
        """Wait at most two seconds for the result."""
        self._thread.join(2 * _SECONDS)
        return self._finding

    def _try(self) -> None:
        what, (host, port) = self._what, self._address
        try:
            socket.create_connection(self._address, _SECONDS).close()
        except socket.gaierror as error:
            reason = error.strerror
            self._finding = _NETWORK.warning(f"{what}: the host {host} is unknown: {reason}")
        except OSError as error:
            reason = error.strerror or f"no answer in {_SECONDS:.0f} s"
            self._finding = _NETWORK.warning(f"{what} at {host}:{port} does not respond: {reason}")
        else:
            self._finding = _NETWORK.ok(f"{what} at {host}:{port} responds")


def _ofDiscovery(tables: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    options = discoveryOptions(tables)
    if options is None:
        return
    if options.provider == "consul":
        yield "Consul", *_split(options.consul.address)
    elif options.provider == "etcd":
        for address in options.etcd.addresses:
            yield "etcd", *_split(address)
    elif options.provider == "kubernetes":
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        if options.kubernetes.address is not None:
            yield "Kubernetes", *_split(options.kubernetes.address)
        elif host:
            yield "Kubernetes", host, int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
    for name, service in options.services.items():
        for instance in service.instances or ():
            yield f"an instance of {name}", instance.host, instance.port


def _ofTracing(tables: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    monitoring = tables.get("monitoring")
    tracing = monitoring.get("tracing") if isinstance(monitoring, Mapping) else None
    if not isinstance(tracing, Mapping) or not tracing.get("enabled"):
        return
    from storagegate.core.options import OptionError, makeOptions
    from storagegate.telemetry.tracing import TracingOptions, readCollector

    given = {name: tracing[name] for name in ("provider", "endpoint") if name in tracing}
    try:
        endpoint = readCollector(makeOptions(TracingOptions, given)).endpoint
    except OptionError:
        return
    yield "the trace collector", *_split(endpoint or "")


def _split(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme, 443)
