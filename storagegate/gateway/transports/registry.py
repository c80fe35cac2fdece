"""
The registry of transports.

A transport is a row of data here, or of a Twisted plugin, and a folder with its code. The daemon's
configuration, the gateway's options, authentication, metrics and descriptions read the rows; none
of them names a transport. Rows name their code as C{"module:name"}: importing this module imports
no transport.

A row of another package is found where C{twisted.plugin} looks: it is a module-level name of a file
in a folder C{twisted/plugins} on C{sys.path}. A program adds one to its own process by L{register}.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.plugin import IPlugin, getPlugins
from zope.interface import Interface, implementer

TransportName = Literal["http", "websocket", "grpc", "udp", "tcp"]
"""The names of the transports that come with the package."""


class ITransportRow(Interface):
    """A row of the registry, by which its plugin is found."""


@implementer(IPlugin, ITransportRow)
@frozen(kw_only=True)
class Transport:
    """
    A transport of the gateway.

    @ivar name: Its name in options, in the daemon's configuration, in metrics and in contexts.
    @ivar title: Its name in prose.
    @ivar flag: The option of the gateway that switches it on or off.
    @ivar options: The class of its options, C{"module:name"}: frozen, of attrs, all with defaults.
    @ivar make: What makes an L{ITransport}, C{"module:name"}; called with a
        L{GatewayHost<storagegate.gateway.host.TransportContext>} and its options.
    @ivar address: What its address is: a description of an endpoint, or C{HOST:PORT}; C{None} where
        it has no listener of its own.
    @ivar shares: The transport whose listener serves it.
    @ivar default: Its address in the daemon, unless another is configured; C{None} is off.
    @ivar listener: The meaning of its key in the daemon's configuration.
    @ivar inherit: How a worker gets its listener: a socket that accepts for all of them, a socket
        for datagrams each, or its own, bound with C{SO_REUSEPORT}. The last has an option
        C{reusePort}, and its port is bound after the process has changed its user.
    @ivar providers: The authentication providers that it may use, unless a rule says otherwise.
    @ivar metrics: What C{metrics.protocolMetrics} may choose of it, C{"module:name"} of a tuple of
        L{ProtocolMetric<storagegate.gateway.transports.metrics.ProtocolMetric>}.
    @ivar describe: Its L{Channel<storagegate.gateway.asyncapi.Channel>} in AsyncAPI,
        C{"module:name"}; C{None} leaves it out.
    @ivar maxItemBytes: How many bytes of content an item of a stream may have; C{None}: it has no
        limit.
    @ivar rpcSystem: C{rpc.system.name} of the spans of its calls, by the conventions of
        OpenTelemetry; C{None} for C{storagegate}.
    @ivar hasStatus: Whether its calls have a status of HTTP.
    @ivar daemonOptions: Options that are others in the daemon.
    """

    name: str
    title: str
    flag: str
    options: str
    make: str
    address: Literal["endpoint", "hostport"] | None = None
    shares: str | None = None
    default: str | None = None
    listener: str = ""
    inherit: Literal["stream", "datagram", "reuseport"] = "stream"
    providers: tuple[str, ...] = ("apikey",)
    metrics: str | None = None
    describe: str | None = None
    maxItemBytes: int | None = None
    rpcSystem: str | None = None
    hasStatus: bool = False
    daemonOptions: Mapping[str, Any] = field(factory=dict)


class ITransport(Interface):
    """What serves a transport."""

    def add(service: Any) -> None:
        """
        Serve a service, a C{ServiceDefinition}.

        Most transports look methods up in the invoker when they are called, and do nothing here.
        """

    def setHealth(services: Mapping[str, bool], overall: bool) -> None:
        """
        Publish the health of services, where the transport has a protocol for that.

        @param services: By name.
        """

    def open(address: str) -> Deferred[Any]:
        """
        Listen.

        @param address: As the row's C{address} says; in a worker C{inherited:FD}, unless the row's
            C{inherit} is C{reuseport}.
        @return: The C{IListeningPort}. Fails with C{CannotListenError} if the address is taken.
        """

    def close(graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Take no further calls, wait for those in flight, and close.

        @param graceSeconds: After this, calls are cancelled and connections dropped.
        @param idleGraceSeconds: How long further calls are taken from clients that are connected,
            where another process serves the same address.
        """


class ICarrier(ITransport):
    """A transport whose listener serves others, too."""

    def carry(guests: list[Any], isServed: bool) -> None:
        """
        Set what the next listener serves.

        @param guests: Each an L{IGuest}.
        @param isServed: Whether the calls of the transport itself are taken.
        """


class IGuest(Interface):
    """What serves a transport without a listener of its own."""

    def add(service: Any) -> None:
        """Serve a service, as L{ITransport.add}."""

    def setHealth(services: Mapping[str, bool], overall: bool) -> None:
        """Publish the health of services, as L{ITransport.setHealth}."""

    def install(application: Any) -> None:
        """
        Answer the requests of an application that are for this transport.

        @raise ValueError: If an option cannot be obeyed.
        """

    def close(graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Close, as L{ITransport.close}."""

    def closeLate() -> Deferred[None]:
        """Wait for connections that were made while the carrier closed: they close as they come."""


@implementer(ITransport)
class InvokedTransport:
    """A base for transports that look methods up in the invoker, and publish no health."""

    def add(self, service: Any) -> None:
        """Do nothing: the invoker has the service."""

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """Do nothing."""

    def open(self, address: str) -> Deferred[Any]:
        """Listen."""
        raise NotImplementedError

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Close."""
        raise NotImplementedError


HTTP = Transport(
    name="http",
    title="HTTP",
    flag="enableHTTP",
    options="storagegate.gateway.transports.http:HTTPOptions",
    make="storagegate.gateway.transports.http.listener:HTTPTransport",
    address="endpoint",
    default="tcp:8080:interface=127.0.0.1",
    listener="the HTTP and WebSocket listener",
    providers=("jwt", "apikey", "oauth"),
    metrics="storagegate.gateway.transports.http:METRICS",
    hasStatus=True,
)

WEBSOCKET = Transport(
    name="websocket",
    title="WebSocket",
    flag="enableWebSocket",
    options="storagegate.gateway.transports.websocket:WebSocketOptions",
    make="storagegate.gateway.transports.websocket.listener:WebSocketTransport",
    shares="http",
    providers=("jwt", "apikey"),
    metrics="storagegate.gateway.transports.websocket:METRICS",
    describe="storagegate.gateway.transports.channels:WebSocketChannel",
)

GRPC = Transport(
    name="grpc",
    title="gRPC",
    flag="enableGRPC",
    options="storagegate.gateway.transports.grpc:GRPCOptions",
    make="storagegate.gateway.transports.grpc.listener:GRPCTransport",
    address="hostport",
    default="127.0.0.1:50051",
    listener="the gRPC listener, in clear text",
    inherit="reuseport",
    providers=("jwt", "apikey"),
    metrics="storagegate.gateway.transports.grpc:METRICS",
    rpcSystem="grpc",
    daemonOptions={"reflection": True},
)

UDP = Transport(
    name="udp",
    title="UDP",
    flag="enableUDP",
    options="storagegate.gateway.transports.udp:UDPOptions",
    make="storagegate.gateway.transports.udp.listener:UDPTransport",
    address="hostport",
    default="127.0.0.1:9103",
    listener="the UDP listener",
    inherit="datagram",
    metrics="storagegate.gateway.transports.udp:METRICS",
    describe="storagegate.gateway.transports.channels:UDPChannel",
    # 1,024 characters of Base64, and so a whole message in a datagram of 1,200 bytes.
    maxItemBytes=768,
)

TCP = Transport(
    name="tcp",
    title="TCP",
    flag="enableTCP",
    options="storagegate.gateway.transports.tcp:TCPOptions",
    make="storagegate.gateway.transports.tcp.listener:TCPTransport",
    address="endpoint",
    default="tcp:9102:interface=127.0.0.1",
    listener="the TCP listener",
    metrics="storagegate.gateway.transports.tcp:METRICS",
    describe="storagegate.gateway.transports.channels:TCPChannel",
)

_registered: dict[str, Transport] = {}


def transports() -> tuple[Transport, ...]:
    """Return every row: those of this module, then those of plugins and programs."""
    if not _registered:
        for row in (HTTP, WEBSOCKET, GRPC, UDP, TCP):
            _registered[row.name] = row
        plugins: Any = getPlugins(ITransportRow)
        for row in plugins:
            register(row)
    return tuple(_registered.values())


def transportNames() -> tuple[str, ...]:
    """Return the names of all transports."""
    return tuple(row.name for row in transports())


def listenerTransports() -> tuple[Transport, ...]:
    """Return the rows that have listeners of their own."""
    return tuple(row for row in transports() if row.shares is None)


def findTransport(name: str) -> Transport:
    """
    Return a row.

    @param name: The name of a row, built in or registered.
    @raise KeyError: If there is no transport of that name.
    """
    transports()
    return _registered[name]


def register(transport: Transport) -> None:
    """
    Add a row to this process.

    @param transport: A row whose name and flag no other one has.
    @raise ValueError: If its name or its flag is taken.
    """
    for row in transports():
        if transport.name == row.name or transport.flag == row.flag:
            raise ValueError(f"there is a transport {row.name} with the flag {row.flag} already")
    _registered[transport.name] = transport


def unregister(transport: Transport) -> None:
    """
    Remove a row that was registered.

    @raise KeyError: If it was not.
    """
    del _registered[transport.name]


def loadReference(reference: str) -> Any:
    """
    Import what a row names.

    @param reference: C{"module:name"}.
    """
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def defaultRules() -> dict[str, tuple[str, ...]]:
    """Return the authentication providers of each transport, by its name."""
    return {row.name: row.providers for row in transports()}


def maxItemBytes() -> dict[str, int]:
    """Return how many bytes of content an item may have, by transport, where it has a limit."""
    return {row.name: row.maxItemBytes for row in transports() if row.maxItemBytes is not None}
