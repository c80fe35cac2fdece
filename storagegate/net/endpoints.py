"""Twisted's endpoint strings, listening with the transports of L{storagegate.net.transport}."""

import socket
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import UnsupportedAddressFamily
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.protocols.tls import TLSMemoryBIOFactory

from storagegate.net.transport import FastPort, FastUnixPort


def listen(reactor: Any, description: str, factory: IProtocolFactory) -> Deferred[IListeningPort]:
    """
    Listen where an endpoint string says.

    C{tcp:}, C{tcp6:}, C{ssl:}, C{tls:} (a directory of certificates that is read again when it
    changes), C{unix:} and C{systemd:} all work, with the options that Twisted gives them.

    @return: The listening port. Fails with C{CannotListenError} if the place is taken.
    @raise ValueError: If the string is no endpoint.
    """
    try:
        endpoint: IStreamServerEndpoint = serverFromString(_FastReactor(reactor), description)
    except (AttributeError, LookupError, TypeError) as error:
        # What the parsers of endpoints raise where a socket, or an option's name, is none.
        isAdopted = description.startswith("systemd:")
        reason = "systemd has handed over no such socket" if isAdopted else str(error)
        raise ValueError(reason) from error
    return endpoint.listen(factory)


class _FastReactor:
    """
    A reactor as endpoints see it, which makes our ports instead of its own.

    Everything else is the real reactor's.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(
        self, port: Any, factory: IProtocolFactory, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        """Listen on a TCP port."""
        return _started(FastPort(port, factory, backlog, interface, self._reactor))

    def listenSSL(
        self,
        port: Any,
        factory: IProtocolFactory,
        contextFactory: Any,
        backlog: int = 50,
        interface: str = "",
    ) -> IListeningPort:
        """Listen on a TCP port for TLS."""
        wrapped = TLSMemoryBIOFactory(contextFactory, False, factory, self._reactor)
        return self.listenTCP(port, wrapped, backlog, interface)

    def listenUNIX(
        self,
        address: Any,
        factory: IProtocolFactory,
        backlog: int = 50,
        mode: int = 0o666,
        wantPID: int = 0,
    ) -> IListeningPort:
        """Listen on a UNIX socket."""
        return _started(FastUnixPort(address, factory, backlog, mode, self._reactor, wantPID))

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: IProtocolFactory
    ) -> IListeningPort:
        """Listen on a socket that another process has opened."""
        if addressFamily == socket.AF_UNIX:
            return _started(
                FastUnixPort._fromListeningDescriptor(self._reactor, fileDescriptor, factory)
            )
        if addressFamily not in (socket.AF_INET, socket.AF_INET6):
            raise UnsupportedAddressFamily(addressFamily)
        return _started(
            FastPort._fromListeningDescriptor(self._reactor, fileDescriptor, addressFamily, factory)
        )


def _started(port: Any) -> IListeningPort:
    port.startListening()
    started: IListeningPort = port
    return started
