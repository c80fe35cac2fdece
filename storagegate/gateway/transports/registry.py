"""
The registry of transports.

A transport is a row of data, in this module or a Twisted plugin, and a folder with its code. The
daemon's configuration, the gateway's options, authentication, metrics and descriptions read the
rows and name no transport. Rows reference their code as C{"module:name"}, so importing this module
imports no transport.

C{twisted.plugin} finds the rows of other packages: module-level names in files of a folder
C{twisted/plugins} on C{sys.path}. A program adds a row to its own process by L{register}.
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
    """The interface of a row of the registry, which C{twisted.plugin} looks up."""


@frozen
class ClientScheme:
    """
    A scheme of the URLs of a transport's clients.

    @ivar isSecure: Whether it stands for TLS.
    @ivar port: The default port.
    @ivar path: The default path; empty if the URLs have no path.
    """

    name: str
    isSecure: bool
    port: int
    path: str = ""


@implementer(IPlugin, ITransportRow)
@frozen(kw_only=True)
class Transport:
    """
    A transport of the gateway.

    @ivar name: Its name in options, in the daemon's configuration, in metrics and in contexts.
    @ivar title: Its display name.
    @ivar flag: The option of the gateway that enables or disables it.
    @ivar options: The class of its options, C{"module:name"}: a frozen attrs class with defaults
        for all options.
    @ivar make: The factory of its L{ITransport}, C{"module:name"}; called with a
        L{TransportContext<storagegate.gateway.host.TransportContext>} and its options.
    @ivar address: The form of its address: an endpoint description, or C{HOST:PORT}; C{None} if it
        has no listener of its own.
    @ivar shares: The transport whose listener serves it.
    @ivar default: Its default address in the daemon; C{None} for off.
    @ivar listener: The meaning of its key in the daemon's configuration.
    @ivar inherit: How a worker gets its listener. C{stream}: all workers inherit one listening
        socket. C{datagram}: each worker inherits its own datagram socket, and hands it to its
        successor. C{reuseport}: each worker binds its own socket with C{SO_REUSEPORT}, by the
        option C{reusePort}, after the process has changed its user.
    @ivar providers: The authentication providers that it may use by default.
    @ivar metrics: The choices of C{metrics.protocolMetrics}, C{"module:name"} of a tuple of
        L{ProtocolMetric<storagegate.gateway.transports.metrics.ProtocolMetric>}.
    @ivar testing: The function that connects a test client, C{"module:name"}; called with the
        L{GatewayClient<storagegate.gateway.testing.GatewayClient>}, the transport, the transport
        whose listener it shares, and options.
    @ivar client: The function that makes its client's side, C{"module:name"}; called with a
        L{ClientTarget<storagegate.gateway.client.transports.ClientTarget>}, it returns a
        L{ClientTransport<storagegate.gateway.client.transports.ClientTransport>}.
    @ivar schemes: The schemes of the URLs of its clients.
    @ivar describe: Its L{Channel<storagegate.gateway.asyncapi.Channel>} in AsyncAPI,
        C{"module:name"}; C{None} omits it.
    @ivar maxItemBytes: The maximum content of a stream item in bytes; C{None} for no limit.
    @ivar hidesCuts: Whether a truncated client stream may look complete.
    @ivar rpcSystem: C{rpc.system.name} of the spans of its calls, by the conventions of
        OpenTelemetry; C{None} for C{storagegate}.
    @ivar hasStatus: Whether its calls have an HTTP status.
    @ivar daemonOptions: Options whose defaults differ in the daemon.
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
    testing: str | None = None
    client: str | None = None
    schemes: tuple[ClientScheme, ...] = ()
    describe: str | None = None
    maxItemBytes: int | None = None
    hidesCuts: bool = False
    rpcSystem: str | None = None
    hasStatus: bool = False
    daemonOptions: Mapping[str, Any] = field(factory=dict)


class IServed(Interface):
    """The interface of all transports, with or without a listener of their own."""

    def add(service: Any) -> None:
        """
        Serve a service, a C{ServiceDefinition}.

        Most transports look methods up in the invoker when they are called, and do nothing here.
        """

    def setHealth(services: Mapping[str, bool], overall: bool) -> None:
        """
        Publish the health of services, if the transport has a protocol for it.

        @param services: Whether each is healthy, by name.
        """

    def close(graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """
        Accept no further calls, wait for calls in flight, and close.

        @param graceSeconds: After this, calls are cancelled and connections dropped.
        @param idleGraceSeconds: How long further calls are accepted from connected clients, if
            another process serves the same address.
        """


class ITransport(IServed):
    """A transport with a listener."""

    def open(address: str) -> Deferred[Any]:
        """
        Listen.

        @param address: The address in the form of the row's C{address}. In a worker it is
            C{inherited:FD}, unless the row's C{inherit} is C{reuseport}.
        @return: The C{IListeningPort}. Fails with C{CannotListenError} if the address is taken.
        """


class ICarrier(ITransport):
    """A transport whose listener also serves other transports."""

    def carry(guests: list[Any], isServed: bool) -> None:
        """
        Set the transports of the next listener.

        @param guests: The transports that share the listener, each an L{IGuest}.
        @param isServed: Whether the transport's own calls are served.
        """


class IGuest(IServed):
    """A transport without a listener of its own."""

    def install(application: Any) -> None:
        """
        Handle the requests to an application that are for this transport.

        @raise ValueError: If an option cannot be honoured.
        """

    def closeLate() -> Deferred[None]:
        """Wait for connections that were made while the carrier closed; each closes at once."""


@implementer(ITransport)
class InvokedTransport:
    """A base for transports that look methods up in the invoker, and publish no health."""

    def add(self, service: Any) -> None:
        """Do nothing: the invoker has the service."""

    def setHealth(self, services: Mapping[str, bool], overall: bool) -> None:
        """Do nothing: the transport publishes no health."""

    def open(self, address: str) -> Deferred[Any]:
        """Listen, see L{ITransport}."""
        raise NotImplementedError

    def close(self, graceSeconds: float, idleGraceSeconds: float = 0.0) -> Deferred[None]:
        """Close, see L{IServed}."""
        raise NotImplementedError


def _row(name: str, title: str, prefix: str, **more: Any) -> Transport:
    """
    Make the row of a transport of this package, whose classes follow the naming scheme.

    @param prefix: The prefix of its class names.
    """
    folder = f"storagegate.gateway.transports.{name}"
    more.setdefault("client", f"storagegate.gateway.client.{name}:makeTransport")
    return Transport(
        name=name,
        title=title,
        flag=f"enable{prefix}",
        options=f"{folder}:{prefix}Options",
        make=f"{folder}.listener:{prefix}Transport",
        metrics=f"{folder}:METRICS",
        testing=f"{folder}.testing:connect",
        **more,
    )


_CHANNELS = "storagegate.gateway.transports.channels"

HTTP = _row(
    "http",
    "HTTP",
    "HTTP",
    address="endpoint",
    default="tcp:8080:interface=127.0.0.1",
    listener="the HTTP and WebSocket listener",
    providers=("jwt", "apikey", "oauth"),
    hasStatus=True,
    schemes=(ClientScheme("http", False, 80, "/api"), ClientScheme("https", True, 443, "/api")),
)

WEBSOCKET = _row(
    "websocket",
    "WebSocket",
    "WebSocket",
    shares="http",
    providers=("jwt", "apikey"),
    describe=f"{_CHANNELS}:WebSocketChannel",
    schemes=(ClientScheme("ws", False, 80, "/ws"), ClientScheme("wss", True, 443, "/ws")),
)

GRPC = _row(
    "grpc",
    "gRPC",
    "GRPC",
    address="hostport",
    default="127.0.0.1:50051",
    listener="the gRPC listener",
    inherit="reuseport",
    providers=("jwt", "apikey"),
    client="storagegate.gateway.transports.grpc.client:makeTransport",
    # grpc-js ends the stream of a cancelled call, and gRPC's C core drops a truncated message.
    hidesCuts=True,
    rpcSystem="grpc",
    daemonOptions={"reflection": True},
    schemes=(ClientScheme("grpc", False, 50051), ClientScheme("grpcs", True, 50051)),
)

UDP = _row(
    "udp",
    "UDP",
    "UDP",
    address="hostport",
    default="127.0.0.1:9103",
    listener="the UDP listener",
    inherit="datagram",
    describe=f"{_CHANNELS}:UDPChannel",
    # 1,024 characters of Base64, so that a message fits a datagram of 1,200 bytes.
    maxItemBytes=768,
    schemes=(ClientScheme("udp", False, 9103),),
)

TCP = _row(
    "tcp",
    "TCP",
    "TCP",
    address="endpoint",
    default="tcp:9102:interface=127.0.0.1",
    listener="the TCP listener",
    describe=f"{_CHANNELS}:TCPChannel",
    schemes=(ClientScheme("tcp", False, 9102), ClientScheme("tls", True, 9102)),
)

_registered: dict[str, Transport] = {}


def transports() -> tuple[Transport, ...]:
    """Return every row: the rows of this module, then rows of plugins and programs."""
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
    """Return the rows of transports with a listener of their own."""
    return tuple(row for row in transports() if row.shares is None)


def findTransport(name: str) -> Transport:
    """
    Return the row of a name.

    @raise KeyError: If there is no transport of that name.
    """
    transports()
    return _registered[name]


def register(transport: Transport) -> None:
    """
    Add a row to this process.

    @param transport: The row; its name and flag must be unique.
    @raise ValueError: If its name or its flag is taken.
    """
    for row in transports():
        if transport.name == row.name or transport.flag == row.flag:
            raise ValueError(f"there is a transport {row.name} with the flag {row.flag} already")
    _registered[transport.name] = transport


def unregister(transport: Transport) -> None:
    """
    Remove a row from this process.

    @raise KeyError: If the row is not registered.
    """
    del _registered[transport.name]


def loadReference(reference: str) -> Any:
    """
    Import an object that a row names.

    @param reference: C{"module:name"}.
    """
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def defaultRules() -> dict[str, tuple[str, ...]]:
    """Return the authentication providers of each transport, by its name."""
    return {row.name: row.providers for row in transports()}


def maxItemBytes() -> dict[str, int]:
    """
    Return the maximum content of a stream item in bytes, by transport, for transports with a limit.
    """
    return {row.name: row.maxItemBytes for row in transports() if row.maxItemBytes is not None}


def cutHidingTransports() -> frozenset[str]:
    """Return the names of the transports on which a truncated stream may look complete."""
    return frozenset(row.name for row in transports() if row.hidesCuts)
