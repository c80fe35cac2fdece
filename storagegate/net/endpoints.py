"""
Listening on Twisted's endpoint strings with the transports of L{storagegate.net.transport}.

An address bound by another process is C{inherited:FD} for descriptor FD, or
C{inherited:FD:DESCRIPTION}, where the description of an endpoint gives the layers above the socket,
such as C{inherited:7:ssl:443:privateKey=key.pem}. Addresses for datagrams are C{HOST:PORT} or
C{inherited:FD}.

This is the only module that imports the process's reactor, sets it to monotonic time, and runs it
for scripts.
"""

import os
import re
import socket
import sys
import time
from asyncio import events
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Protocol

from attrs import frozen
from msgspec import Struct
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred, execute, maybeDeferred
from twisted.internet.error import CannotListenError, UnsupportedAddressFamily
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.internet.protocol import DatagramProtocol, Factory
from zope.interface import implementer

from storagegate.core.heldbytes import PROCESS_BUDGET
from storagegate.net.heap import HeapTrimmer
from storagegate.net.tls import ServerTLSOptions
from storagegate.net.transport import (
    AdoptedPort,
    BoundPort,
    BoundUnixPort,
    FastPort,
    FastUnixPort,
    GivenUnixPort,
    pollDirectly,
)

_INHERITED = re.compile(r"inherited:([0-9]{1,9})(?::(.+))?", re.DOTALL | re.ASCII)

HELD = "held:"
"""Prefix of an endpoint description that makes L{listen} only bind; the port listens, and clients
are no longer refused, once its C{beginListening} is called."""

ENCRYPTED = ("ssl:", "tls:")
"""Prefixes of the descriptions of TLS endpoints."""

# A colon, and the text up to the next one without a backslash before it.
_PARTS = re.compile(r":((?:\\.|[^:\\])*)", re.DOTALL)
_NAMED = re.compile(r"(\w+)=(.*)", re.DOTALL)

_TCP = re.compile(r"tcp:([0-9]{1,5})(?::interface=((?:\\.|[^:\\])*))?", re.ASCII)
"""A TCP endpoint in its usual form. Twisted parses all others, and endpoints of other types."""


def _inheritedDescriptor(place: str) -> int | None:
    """Return the descriptor of an address bound by another process, or C{None}."""
    match = _INHERITED.fullmatch(place)
    return None if match is None else int(match[1])


class ListeningPort(Protocol):
    """An open port, for users' type checkers, to which C{IListeningPort} has no methods."""

    def getHost(self) -> Any:
        """Return the address, such as C{IPv4Address}."""

    def stopListening(self) -> Any:
        """Close the port. Its connections stay open."""


def listen(
    reactor: Any,
    description: str,
    factory: IProtocolFactory,
    tls: ServerTLSOptions | None = None,
) -> Deferred[IListeningPort]:
    """
    Listen on an endpoint string of any type that Twisted supports, or on an inherited address.

    @param description: An endpoint such as C{tcp:9000:interface=127.0.0.1}; with the prefix L{HELD}
        the port is only bound. A socket passed by systemd already listens.
    @param tls: Options for TLS on an endpoint without TLS.
    @return: The listening port; a TLS port has an attribute C{certificates}. Fails with
        C{CannotListenError} if the address is taken.
    @raise ValueError: If the string is not an endpoint.
    """
    isHeld = description.startswith(HELD)
    description = description.removeprefix(HELD)
    inherited = _INHERITED.fullmatch(description)
    own: _Proxy = _FastReactor(reactor, isHeld)
    if inherited is not None:
        # Only TCP carries TLS; a socket without TLS is used directly.
        own = _Inheritor(reactor, int(inherited[1]), isHeld)
        description = inherited[2] or "tcp:0"
    if description.startswith(ENCRYPTED) and tls is not None:
        raise ValueError("the endpoint has TLS itself, and so has the option tls")
    endpoint = _endpoint(own, description)
    files = certificateFiles(description)
    if not files and tls is None:
        opening: Deferred[IListeningPort] = endpoint.listen(factory)
        return opening
    # Imported late: OpenSSL takes megabytes.
    from storagegate.net.certificates import follow, followDirectory, withOptions
    from storagegate.net.tlsserver import ServerTLSFactory

    if tls is None and "path" not in files:
        # Twisted has already read the files once.
        read = [endpoint._sslContextFactory]
        certificates = follow(
            lambda: read.pop() if read else _endpoint(own, description)._sslContextFactory, files
        )
        endpoint._sslContextFactory = certificates
    else:
        certificates = followDirectory(files["path"]) if tls is None else withOptions(tls)
        factory = ServerTLSFactory(certificates, False, factory, reactor)

    def opened(port: Any) -> IListeningPort:
        port.certificates = certificates
        listening: IListeningPort = port
        return listening

    listened: Deferred[IListeningPort] = endpoint.listen(factory).addCallback(opened)
    return listened


def certificateFiles(description: str) -> Mapping[str, str]:
    """
    Return the files of the certificates of an endpoint.

    @param description: The endpoint, in which a backslash escapes a colon or an equals sign.
    @return: For C{ssl:}, C{privateKey}, C{certKey} and others by argument name; for C{tls:}, the
        C{path} of the directory; otherwise empty.
    """
    positional, named = [], {}
    for part in _PARTS.findall(description):
        match = _NAMED.fullmatch(part)
        if match is None:
            positional.append(_plain(part))
        else:
            named[match[1]] = _plain(match[2])
    if description.startswith("tls:"):
        return {"path": named.get("path") or positional[0]}
    if not description.startswith("ssl:"):
        return {}
    key = named.get("privateKey", "server.pem")
    more = {each: named[each] for each in ("extraCertChain", "dhParameters") if each in named}
    return {"privateKey": key, "certKey": named.get("certKey", key), **more}


def _withoutPath(description: str) -> str:
    """
    Return the TCP endpoint of a C{tls:} endpoint.

    Twisted's own form serves one certificate for a name, without tickets, and reads the directory
    again at each unknown name that a client sends.
    """
    parts = _PARTS.findall(description)
    names = [match and match[1] for match in map(_NAMED.fullmatch, parts)]
    del parts[names.index("path" if "path" in names else None)]
    hasPort = "port" in names or any(_NAMED.fullmatch(each) is None for each in parts)
    return ":".join(("tcp6", *parts) if hasPort else ("tcp6", "443", *parts))


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


class BoundSocket(Struct, frozen=True):
    """
    An address bound for other processes.

    @ivar port: Keeps the socket open; it refuses connections until another process listens.
    @ivar tail: The description of the layers above the socket, or an empty string.
    """

    port: Any
    tail: str

    @property
    def address(self) -> IAddress:
        """Return the address."""
        address: IAddress = self.port.getHost()
        return address

    def inherited(self, descriptor: int) -> str:
        """Return the description for a process that inherits the socket as C{descriptor}."""
        return f"inherited:{descriptor}:{self.tail}" if self.tail else f"inherited:{descriptor}"


def bind(reactor: Any, description: str) -> Deferred[BoundSocket]:
    """
    Bind the address of an endpoint string, for other processes to listen on.

    @param description: An endpoint that is not inherited.
    @return: The socket. Fails with C{CannotListenError} if the address is taken.
    @raise ValueError: If the string is not an endpoint.
    """
    tail = description if description.startswith(ENCRYPTED) else ""
    factory = Factory()
    factory.noisy = False
    binding: Deferred[Any] = _endpoint(_Binder(reactor), description).listen(factory)
    return binding.addCallback(lambda port: BoundSocket(port, tail))


@implementer(IStreamServerEndpoint)
@frozen
class _TCPEndpoint:
    """An endpoint of TCP."""

    _reactor: Any
    _port: int
    _interface: str

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Listen, as C{TCP4ServerEndpoint} does."""
        opened: Deferred[IListeningPort] = execute(
            self._reactor.listenTCP, self._port, protocolFactory, interface=self._interface
        )
        return opened


def _endpoint(reactor: Any, description: str) -> Any:
    tcp = _TCP.fullmatch(description)
    if tcp is not None:
        return _TCPEndpoint(reactor, int(tcp[1]), _plain(tcp[2] or ""))
    if description.startswith("tls:"):
        description = _withoutPath(description)
    # Imported late: it loads the ciphers of OpenSSL, which take 3 MB.
    from twisted.internet.endpoints import serverFromString

    try:
        endpoint = serverFromString(reactor, description)
    except (AttributeError, LookupError, TypeError) as error:
        # Raised by the parsers of endpoints, for an unknown socket or option.
        isAdopted = description.startswith("systemd:")
        reason = "systemd passed no such socket" if isAdopted else str(error)
        raise ValueError(reason) from error
    return endpoint


class _Proxy:
    """A reactor proxy for endpoints, which listens differently."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenSSL(
        self, port: Any, factory: Any, contextFactory: Any, *more: Any, **named: Any
    ) -> Any:
        """Listen on a TCP port for TLS."""
        from storagegate.net.tlsserver import ServerTLSFactory

        wrapped = ServerTLSFactory(contextFactory, False, factory, self._reactor)
        return self.listenTCP(port, wrapped, *more, **named)


class _FastReactor(_Proxy):
    """Makes our ports instead of the reactor's."""

    def __init__(self, reactor: Any, isHeld: bool) -> None:
        super().__init__(reactor)
        self._isHeld = isHeld
        pollDirectly(reactor)

    def listenTCP(
        self, port: Any, factory: IProtocolFactory, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        """Listen on a TCP port."""
        return _started(FastPort(port, factory, backlog, interface, self._reactor), self._isHeld)

    def listenUNIX(
        self,
        address: Any,
        factory: IProtocolFactory,
        backlog: int = 50,
        mode: int = 0o666,
        wantPID: int = 0,
    ) -> IListeningPort:
        """Listen on a UNIX socket."""
        port = FastUnixPort(address, factory, backlog, mode, self._reactor, wantPID)
        return _started(port, self._isHeld)

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: IProtocolFactory
    ) -> IListeningPort:
        """Listen on a socket opened by another process."""
        port: Any
        if addressFamily == socket.AF_UNIX:
            port = GivenUnixPort._fromListeningDescriptor(self._reactor, fileDescriptor, factory)
            return _started(port, self._isHeld)
        if addressFamily not in (socket.AF_INET, socket.AF_INET6):
            raise UnsupportedAddressFamily(addressFamily)
        port = FastPort._fromListeningDescriptor(
            self._reactor, fileDescriptor, addressFamily, factory
        )
        return _started(port, self._isHeld)


class _Inheritor(_Proxy):
    """Listens on a descriptor instead of the endpoint's address."""

    def __init__(self, reactor: Any, descriptor: int, isHeld: bool) -> None:
        super().__init__(reactor)
        self._descriptor = descriptor
        self._isHeld = isHeld

    def listenTCP(
        self, port: Any, factory: IProtocolFactory, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        """Listen on the socket."""
        # The port has its own descriptor; with this one open, the socket would outlive the port.
        with socket.socket(fileno=self._descriptor) as given:
            fast = _FastReactor(self._reactor, self._isHeld)
            opened = fast.adoptStreamPort(self._descriptor, given.family, factory)
        # Others accept on the same socket: a process that accepts every waiting connection would
        # get all the work.
        opened.sharesSocket()  # type: ignore[attr-defined]
        return opened


class _Binder(_Proxy):
    """Binds without listening: the first process that serves listens."""

    def listenTCP(
        self, port: Any, factory: IProtocolFactory, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        """Bind a TCP port."""
        return _deaf(_started(BoundPort(port, factory, backlog, interface, self._reactor), True))

    def listenUNIX(
        self,
        address: Any,
        factory: IProtocolFactory,
        backlog: int = 50,
        mode: int = 0o666,
        wantPID: int = 0,
    ) -> IListeningPort:
        """Bind a UNIX socket."""
        bound = BoundUnixPort(address, factory, backlog, mode, self._reactor, wantPID)
        return _deaf(_started(bound, True))

    def adoptStreamPort(
        self, fileDescriptor: int, addressFamily: int, factory: IProtocolFactory
    ) -> IListeningPort:
        """Keep a socket opened by another process."""
        # Not in one of our own ports, which accept waiting connections when they close.
        if addressFamily == socket.AF_UNIX:
            given = AdoptedPort._fromListeningDescriptor(self._reactor, fileDescriptor, factory)
            return _deaf(_started(given, False))
        return _deaf(self._reactor.adoptStreamPort(fileDescriptor, addressFamily, factory))


def _deaf(port: Any) -> IListeningPort:
    port.stopReading()
    # A shutdown of the socket would affect every process that has it.
    port._shouldShutdown = False
    bound: IListeningPort = port
    return bound


def _started(port: Any, isHeld: bool) -> IListeningPort:
    if isHeld:
        port.hold()
    port.startListening()
    started: IListeningPort = port
    return started


def listenDatagrams(
    reactor: Any, place: str, protocol: DatagramProtocol, maxPacketSize: int
) -> IListeningPort:
    """
    Listen for datagrams.

    @param place: C{HOST:PORT}, with port 0 for a free one; or C{inherited:FD}.
    @param protocol: Receives the datagrams.
    @param maxPacketSize: Maximum number of bytes read of a datagram.
    @raise CannotListenError: If the address cannot be bound.
    """
    port: IListeningPort
    descriptor = _inheritedDescriptor(place)
    if descriptor is None:
        host, number = _split(place)
        port = reactor.listenUDP(number, protocol, interface=host, maxPacketSize=maxPacketSize)
        return port
    # The port has its own descriptor; with this one open, the socket would outlive the port.
    with socket.socket(fileno=descriptor) as given:
        port = reactor.adoptDatagramPort(descriptor, given.family, protocol, maxPacketSize)
    return port


def bindDatagrams(place: str, count: int) -> list[socket.socket]:
    """
    Bind an address several times, once for each process. The kernel delivers all datagrams of a
    peer to the same socket. A socket outlives its process, so that nothing is lost while the
    process is replaced.

    @param place: C{HOST:PORT}.
    @param count: The number of sockets.
    @raise CannotListenError: If the address cannot be bound, or another process has it.
    """
    host, port = _split(place)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets: list[socket.socket] = []
    try:
        # Bound exclusively first: another process that shares the address would get part of our
        # datagrams.
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


def findAddresses(host: str, port: int, flags: int = 0) -> list[Any]:
    """
    Look up the addresses to bind for a TCP port. Blocks for names.

    @param flags: See C{getaddrinfo}.
    @return: What C{socket.getaddrinfo} returns.
    @raise OSError: The name is unknown.
    """
    # Text would load the codec of internationalised names, half a megabyte.
    name = host.encode("ascii") if host.isascii() else host
    return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)


def reservePort(place: str) -> socket.socket:
    """
    Reserve a TCP port for processes that share it with C{SO_REUSEPORT}.

    @param place: C{HOST:PORT}, with port 0 for a free one.
    @return: A socket that is bound to the port and never listens.
    @raise CannotListenError: If the port cannot be bound, or another process has it.
    """
    host, port = _split(place)
    try:
        [found, *_] = findAddresses(host, port)
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


def processReactor(given: Any = None) -> Any:
    """
    Return a reactor, prepared for use.

    It is imported late, as the import installs one. In an asyncio program, a reactor is started on
    the running loop.

    @param given: The caller's choice; C{None} for the reactor of the process.
    @raise RuntimeError: If an asyncio loop is running, and the process has a reactor that is not on
        it.
    """
    if given is None:
        if events._get_running_loop() is not None:
            from storagegate.net.asyncioreactor import startOnLoop

            startOnLoop()
        from twisted.internet import reactor as given
    if "twisted.internet.asyncioreactor" in sys.modules:
        from storagegate.net.asyncioreactor import joinAsyncio

        joinAsyncio(given)
    measureMonotonically(given)
    return given


def measureMonotonically(reactor: Any) -> None:
    """
    Make a reactor use the monotonic clock, which is never set.

    Twisted's reactors use C{time.time}: setting it back by an hour stops every timer for an hour;
    setting it ahead fires all of them. C{reactor.seconds()} is no longer a date after this. Calls
    already scheduled keep their remaining time. Does nothing to a reactor with another clock, such
    as a C{Clock} of tests, nor when called again.

    @param reactor: A reactor of any kind.
    """
    if not isinstance(reactor, ReactorBase) or reactor.seconds is not time.time:
        return
    passed = time.monotonic() - time.time()
    # The same shift for all keeps their order in the reactor's heap.
    for call in (*reactor._pendingTimedCalls, *reactor._newTimedCalls):
        call.time += passed
        call.seconds = time.monotonic
    reactor.seconds = time.monotonic


def chooseReactor(name: str | None) -> Any:
    """
    Return the process's reactor, installing it if necessary.

    @param name: C{asyncio}; C{default} or C{None} for the process's reactor, or Twisted's default.
    @raise SystemExit: If the process already has another reactor.
    @raise ValueError: If the name is unknown.
    """
    if name not in (None, "default", "asyncio"):
        raise ValueError(f'reactor is "default" or "asyncio", not {name!r}')
    if name == "asyncio":
        from storagegate.net.asyncioreactor import installAsyncio

        installAsyncio()
    return processReactor()


def isLoopback(address: IAddress | str) -> bool:
    """
    Return whether only this machine can connect to an address.

    @param address: The address of a listener, bound or as an IP address; a UNIX socket is local.
    """
    if isinstance(address, IPv4Address | IPv6Address):
        address = address.host
    return not isinstance(address, str) or ip_address(address.partition("%")[0]).is_loopback


def formatAddress(address: IAddress) -> str:
    """
    Format an address as C{127.0.0.1:9000}, C{[::1]:9000} or C{unix:/path}.

    @param address: The address of a listener; other types are formatted by C{str}.
    """
    if isinstance(address, IPv4Address):
        return f"{address.host}:{address.port}"
    if isinstance(address, IPv6Address):
        return f"[{address.host}]:{address.port}"
    if isinstance(address, UNIXAddress) and address.name is not None:
        return f"unix:{address.name.decode('utf-8', 'backslashreplace')}"
    return str(address)


def endAsyncioTasks(result: Any) -> Any:
    """
    End the tasks that an application has left in asyncio's loop, under the asyncio reactor.

    @param result: The value to return.
    """
    if "storagegate.net.asyncioreactor" not in sys.modules or events._get_running_loop() is None:
        return result
    from storagegate.net.asyncioreactor import endTasks

    return endTasks().addCallback(lambda ended: result)


def runUntilStopped(
    reactor: Any,
    opening: Deferred[Any] | None,
    stop: Callable[[], object],
    listeners: Callable[[], Iterable[tuple[str, ListeningPort]]],
) -> None:
    """
    Serve until the process is stopped, for scripts.

    @param opening: Fires when the listeners are open; C{None} if they are already open.
    @param stop: Stops serving; may return a Deferred to wait for.
    @param listeners: Returns the open ports, each with its transport's name; they are printed to
        standard error, one per line.
    @raise SystemExit: If a listener could not be opened.
    """
    failures: list[str] = []
    notifier = None
    if "NOTIFY_SOCKET" in os.environ:
        from storagegate.net.systemd import Notifier

        notifier = Notifier(reactor, os.environ)

    def failed(reason: Any) -> None:
        failures.append(reason.getErrorMessage())
        reactor.callWhenRunning(reactor.stop)

    def opened() -> None:
        if notifier is not None:
            notifier.ready("serving")
        # A script may have closed its standard error.
        with suppress(OSError, ValueError, AttributeError):
            for name, port in listeners():
                address = formatAddress(port.getHost())
                print(f"listening name={name} address={address}", file=sys.stderr, flush=True)

    if opening is None:
        reactor.callWhenRunning(opened)
    else:
        opening.addCallbacks(lambda result: reactor.callWhenRunning(opened), failed)

    def ending() -> Deferred[Any]:
        if notifier is not None:
            notifier.stopping("stopping")
        return maybeDeferred(stop).addBoth(endAsyncioTasks)

    reactor.addSystemEventTrigger("before", "shutdown", ending)
    trimmer = HeapTrimmer(reactor)
    trimmer.start()
    PROCESS_BUDGET.onRefused = trimmer.hasten
    reactor.run()
    if failures:
        raise SystemExit(failures[0])
