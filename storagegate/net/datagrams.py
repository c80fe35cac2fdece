"""Where datagrams come in: C{HOST:PORT}, or C{inherited:FD} for a socket of another process."""

import socket
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import DatagramProtocol

from storagegate.net.endpoints import inheritedDescriptor


def listenDatagrams(
    reactor: Any, place: str, protocol: DatagramProtocol, maxPacketSize: int
) -> IListeningPort:
    """
    Listen for datagrams.

    @param place: C{HOST:PORT}, port 0 takes a free one; or C{inherited:FD}.
    @raise CannotListenError: If the place cannot be had.
    """
    port: IListeningPort
    descriptor = inheritedDescriptor(place)
    if descriptor is None:
        host, number = _split(place)
        port = reactor.listenUDP(number, protocol, interface=host, maxPacketSize=maxPacketSize)
        return port
    # The port has a descriptor of its own; with this one open, the socket would outlive it.
    with socket.socket(fileno=descriptor) as given:
        port = reactor.adoptDatagramPort(descriptor, given.family, protocol, maxPacketSize)
    return port


def bindDatagrams(place: str, count: int) -> list[socket.socket]:
    """
    Bind a place several times, for as many processes: the kernel gives all datagrams of an address
    to the same one. A socket outlives its process, so that nothing is lost while one is replaced.

    @raise CannotListenError: If the place cannot be had, or somebody else has it.
    """
    host, port = _split(place)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets: list[socket.socket] = []
    try:
        # Alone first: others that share would be given a part of our datagrams.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, port))
            port = probe.getsockname()[1]
        for _ in range(count):
            bound = socket.socket(family, socket.SOCK_DGRAM)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.setblocking(False)
            bound.bind((host, port))
    except OSError as error:
        for each in sockets:
            each.close()
        raise CannotListenError(host, port, error) from error
    return sockets


def reservePort(place: str) -> socket.socket:
    """
    Keep a TCP port for processes that bind it together, each with C{SO_REUSEPORT}.

    @return: A socket that is bound to it and never listens.
    @raise CannotListenError: If it cannot be had, or somebody else has it.
    """
    host, port = _split(place)
    try:
        [found, *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
            address = probe.getsockname()
        reserved = socket.socket(found[0], socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError as error:
        raise CannotListenError(host, port, error) from error
    return reserved


def _split(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host.strip("[]"), int(port)
