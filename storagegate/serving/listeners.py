"""
The listeners of a supervisor, whose workers inherit the sockets.

A listener is shared in one of three ways, see C{inherit} of L{Transport
<storagegate.gateway.transports.registry.Transport>}: C{stream} is one bound socket on which all
workers listen, C{datagram} one socket for each worker, and C{reuseport} a reserved port that each
worker binds itself.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from socket import socket
from typing import Any, Literal

from attrs import field, frozen
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure

from storagegate.net.endpoints import (
    BoundSocket,
    bind,
    bindDatagrams,
    formatAddress,
    reservePort,
)
from storagegate.net.ipc import CONTROL, WorkerSetup
from storagegate.net.workers import WorkerCommand

Sharing = Literal["stream", "datagram", "reuseport"]
"""How the workers share a listener."""


@frozen
class Inheritance:
    """
    The descriptors that the workers of a supervisor inherit.

    @ivar shared: The descriptors of all workers: the number in the worker, and the number here.
    @ivar own: The descriptors of each worker alone, by index.
    """

    shared: dict[int, int] = field(factory=dict)
    own: list[dict[int, int]] = field(factory=list)

    def add(self, descriptor: int) -> int:
        """Pass a descriptor to all workers; return its number there."""
        number = self._next()
        self.shared[number] = descriptor
        return number

    def addOwn(self, descriptors: Sequence[int]) -> int:
        """
        Pass one descriptor to each worker; return their number there.

        @param descriptors: The descriptors by the index of the worker.
        """
        number = self._next()
        for own, descriptor in zip(self.own, descriptors, strict=True):
            own[number] = descriptor
        return number

    def _next(self) -> int:
        return CONTROL + 1 + len(self.shared) + max(map(len, self.own), default=0)


class SharedListeners:
    """
    Binds listeners for workers.

    @ivar addresses: The bound addresses by listener.
    """

    def __init__(self, reactor: Any, workers: int) -> None:
        """@param workers: The number of workers."""
        self.addresses: dict[str, IAddress] = {}
        self._reactor = reactor
        self._workers = workers
        self._bound: dict[str, BoundSocket] = {}
        self._datagrams: dict[str, list[socket]] = {}
        self._reserved: dict[str, socket] = {}

    def bind(self, name: str, endpoint: str, sharing: Sharing = "stream") -> None:
        """
        Bind a listener.

        @param endpoint: An endpoint string for a stream, otherwise C{HOST:PORT}.
        @raise CannotListenError: If the address is taken.
        @raise ValueError: If the endpoint is invalid.
        """
        if sharing == "stream":
            found: list[Any] = []
            bind(self._reactor, endpoint).addBoth(found.append)
            [bound] = found or [
                Failure(CannotListenError("", 0, OSError("not bound synchronously")))
            ]
            if isinstance(bound, Failure):
                bound.raiseException()
            self._bound[name] = bound
            self.addresses[name] = bound.address
        elif sharing == "datagram":
            sockets = bindDatagrams(endpoint, self._workers)
            self._datagrams[name] = sockets
            self.addresses[name] = _address("UDP", sockets[0])
        else:
            reserved = self._reserved[name] = reservePort(endpoint)
            self.addresses[name] = _address("TCP", reserved)

    def inheritance(self) -> Inheritance:
        """Return an empty inheritance of these workers."""
        return Inheritance(own=[{} for _ in range(self._workers)])

    def handOver(self, inheritance: Inheritance) -> dict[str, str]:
        """
        Pass the sockets to the workers.

        @return: The address of each listener for a worker.
        """
        places: dict[str, str] = {}
        for name, bound in self._bound.items():
            places[name] = bound.inherited(inheritance.add(bound.port.fileno()))
        for name in self._reserved:
            places[name] = formatAddress(self.addresses[name])
        for name, sockets in self._datagrams.items():
            number = inheritance.addOwn([each.fileno() for each in sockets])
            places[name] = f"inherited:{number}"
        return places

    def stopListening(self) -> None:
        """
        Close the sockets of streams. Workers accept the connections that the kernel has queued, so
        this precedes their end.
        """
        for bound in self._bound.values():
            bound.port.stopListening()

    def close(self) -> None:
        """Close the other sockets."""
        for each in (*chain(*self._datagrams.values()), *self._reserved.values()):
            each.close()


def workerCommand(
    command: Sequence[str],
    environment: Mapping[str, str],
    inheritance: Inheritance,
    places: Mapping[str, str],
    memory: Mapping[str, int],
    options: Mapping[str, Any],
) -> WorkerCommand:
    """
    Return a command of workers.

    @param command: The executable and its arguments.
    @param environment: The environment variables of the workers.
    @param inheritance: All descriptors that the workers inherit.
    @param places: See L{SharedListeners.handOver}.
    @param memory: The descriptors of shared memory, by name; their numbers in the worker.
    @param options: Values of the program.
    """
    return WorkerCommand(
        command=command,
        environment=environment,
        descriptors=inheritance.shared,
        own=inheritance.own,
        setup=WorkerSetup(0, len(inheritance.own), places, memory, options),
    )


def _address(kind: Literal["TCP", "UDP"], bound: Any) -> IAddress:
    host, port, *rest = bound.getsockname()
    return IPv6Address(kind, host, port, *rest) if rest else IPv4Address(kind, host, port)
