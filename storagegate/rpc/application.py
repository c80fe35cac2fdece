"""
The gRPC application: services, middleware and options that can be served.

The options of a gRPC application, read once, and what the library beneath calls them.

Times are milliseconds, sizes bytes or text such as C{"4mb"}. C{None} leaves a setting to the
library, except where a limit of our own would be gone.

Where a gRPC server listens, looked at before grpc core is.
"""

import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import inf
from typing import Any, Literal, Self, TypedDict, Unpack

from attrs import field, fields, frozen
from attrs.converters import optional
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from storagegate.core.definitions import DefinitionError
from storagegate.core.options import (
    changeOptions,
    groupField,
    joinOptions,
    listenArguments,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSize,
    readWord,
)
from storagegate.net.endpoints import processReactor, runUntilStopped
from storagegate.rpc.credentials import GRPCTLSOptions, TLSOptionsDict, readTLS
from storagegate.rpc.dispatch import (
    CallLimits,
    CallRouter,
    GRPCRoute,
    Middleware,
    Refused,
    serviceRoutes,
)
from storagegate.rpc.engine import makeServerEngine
from storagegate.rpc.health import HEALTH, Health
from storagegate.rpc.interfaces import MessageByteCounter, NullByteCounter
from storagegate.rpc.protos import RPCService
from storagegate.rpc.reflection import reflectionServices

# The metadata of a field: what the library calls it.
_KEYS = "storagegate.keys"

# The library's settings are C integers.
_INT_MAX = 2**31 - 1

# What every gRPC server and client takes unless it is told otherwise.
_MESSAGE_LENGTH = 4 * 1024 * 1024

# One that fits a packet is not sooner there for being shorter.
_THRESHOLD = 1024

# Less has no room for the headers that each call has.
_MIN_METADATA_SIZE = 1024

# By the level the library knows to compress for those clients only that said they can read it;
# its setting for an algorithm compresses for all. The lowest level prefers gzip, the highest
# deflate.
_LEVELS = {"gzip": 1, "deflate": 3}


def _length(value: Any) -> int:
    if isinstance(value, int) and value == -1:
        return -1
    try:
        return readNumber(readSize(value), 0, _INT_MAX)
    except ValueError:
        raise ValueError('is a size such as "4mb", below 2 GiB, or -1 for no limit') from None


def _milliseconds(value: Any) -> int:
    return readNumber(value, 1, _INT_MAX, "milliseconds")


def _millisecondsFromZero(value: Any) -> int:
    return readNumber(value, 0, _INT_MAX, "milliseconds")


def _count(value: Any) -> int:
    return readNumber(value, 1, _INT_MAX)


def _countFromZero(value: Any) -> int:
    return readNumber(value, 0, _INT_MAX)


def _metadataSize(value: Any) -> int:
    try:
        # The hard limit is twice as high.
        return readNumber(readSize(value), _MIN_METADATA_SIZE, _INT_MAX // 2)
    except ValueError:
        raise ValueError('is a size such as "8kb", from 1 KiB to 1 GiB') from None


def _level(value: Any) -> int:
    return readNumber(value, 1, 9)


def _algorithm(value: Any) -> str | None:
    word = readWord(value, ("gzip", "deflate", "identity"))
    return None if word == "identity" else word


@frozen(kw_only=True)
class CompressionOptions:
    """
    How messages are compressed.

    @ivar level: From 1 to 9, as for zlib. It is checked and no more: the library has no such
        setting, and always compresses as at zlib's 6.
    @ivar threshold: Only messages that are longer are compressed.
    """

    level: int | None = field(default=None, converter=optional(_level))
    threshold: int = field(default=_THRESHOLD, converter=readSize)


def _argument(keys: str, converter: Any, default: Any = None) -> Any:
    """Make the field of a setting that the library has, too, under one name or several."""
    return field(
        default=default, converter=optional(converter), metadata={_KEYS: tuple(keys.split())}
    )


@frozen(kw_only=True)
class GRPCServerOptions:
    """
    The options under C{grpc}.

    @ivar maxReceiveMessageLength: A longer message ends its call with C{RESOURCE_EXHAUSTED}; -1
        takes any.
    @ivar maxSendMessageLength: The same for what handlers give.
    @ivar keepaliveTimeMs: After how long without a word from the client it is pinged.
    @ivar keepaliveTimeoutMs: How long it may take to answer before the connection is closed; a
        minute if this is not given.
    @ivar keepalivePermitWithoutCalls: Whether to ping, and let the client ping, with no call open.
    @ivar http2MaxPingsWithoutData: How many pings may go out with nothing else; 0 for any number.
        The library has this limit for clients only: its servers ping as often as is said above.
    @ivar http2MinTimeBetweenPingsMs: How long a client has to wait between its pings.
    @ivar http2MaxPingStrikes: How many pings that come too soon are borne before the connection is
        closed; 0 for any number.
    @ivar maxConnectionIdle: After how long without a call a connection is closed.
    @ivar maxConnectionAge: After how long a connection takes no more calls; a tenth more or less,
        so that clients do not all come back at once.
    @ivar maxConnectionAgeGrace: How long calls may then still take.
    @ivar compression: C{"gzip"}, C{"deflate"}, or C{"identity"} or C{None} for none. A client that
        reads only the other of the two gets that one, one that reads neither gets messages as they
        are.
    @ivar maxConcurrentRpcs: Calls at a time; more are refused with C{RESOURCE_EXHAUSTED}.
    @ivar maxConcurrentStreams: Calls at a time on one connection; more wait at the client.
    @ivar overloadProtection: Whether a call counts on its connection until the server has taken
        note of its end. So nobody can keep a server busy with calls that are reset as fast as they
        are made; but a client with more than half of C{maxConcurrentStreams} at a time may have
        calls refused (C{REFUSED_STREAM}, C{UNAVAILABLE}), which it can make again. For ports that
        strangers reach.
    @ivar maxMetadataSize: Bytes of a call's headers. Some calls over it are refused with
        C{RESOURCE_EXHAUSTED}, and all that have more than twice as much.
    @ivar reflection: Whether clients can ask what services there are.
    @ivar health: Whether clients can ask how services are.
    @ivar reusePort: Whether other processes may listen on the same port. If not, a port that is
        taken is an error.
    """

    maxReceiveMessageLength: int | None = _argument(
        "grpc.max_receive_message_length", _length, _MESSAGE_LENGTH
    )
    maxSendMessageLength: int | None = _argument(
        "grpc.max_send_message_length", _length, _MESSAGE_LENGTH
    )
    keepaliveTimeMs: int | None = _argument("grpc.keepalive_time_ms", _milliseconds)
    # The first alone changes nothing: the second closes connections, after a minute by default.
    keepaliveTimeoutMs: int | None = _argument(
        "grpc.keepalive_timeout_ms grpc.http2.ping_timeout_ms", _milliseconds
    )
    keepalivePermitWithoutCalls: bool | None = _argument(
        "grpc.keepalive_permit_without_calls", readFlag
    )
    http2MaxPingsWithoutData: int | None = _argument(
        "grpc.http2.max_pings_without_data", _countFromZero
    )
    http2MinTimeBetweenPingsMs: int | None = _argument(
        "grpc.http2.min_ping_interval_without_data_ms", _millisecondsFromZero
    )
    http2MaxPingStrikes: int | None = _argument("grpc.http2.max_ping_strikes", _countFromZero)
    maxConnectionIdle: int | None = _argument("grpc.max_connection_idle_ms", _milliseconds)
    maxConnectionAge: int | None = _argument("grpc.max_connection_age_ms", _milliseconds)
    maxConnectionAgeGrace: int | None = _argument(
        "grpc.max_connection_age_grace_ms", _millisecondsFromZero
    )
    # As most servers of HTTP/2 have it: it takes ten clients to reach maxConcurrentRpcs.
    maxConcurrentStreams: int | None = _argument("grpc.max_concurrent_streams", _count, 100)
    # Off, for a client that makes thousands of calls at once would lose every third of them.
    overloadProtection: bool = field(
        default=False, converter=readFlag, metadata={_KEYS: ("grpc.http.overload_protection",)}
    )
    maxMetadataSize: int | None = _argument("grpc.max_metadata_size", _metadataSize, 8 * 1024)
    reusePort: bool = field(
        default=False, converter=readFlag, metadata={_KEYS: ("grpc.so_reuseport",)}
    )
    compression: str | None = field(default=None, converter=optional(_algorithm))
    compressionOptions: CompressionOptions = groupField(CompressionOptions)
    # An open call takes some 25 kB: so many take no more than 26 MB.
    maxConcurrentRpcs: int = field(default=1024, converter=_count)
    reflection: bool = field(default=False, converter=readFlag)
    health: bool = field(default=True, converter=readFlag)

    def arguments(self, names: Collection[str]) -> list[tuple[str, int]]:
        """Give what the library has to be told of some options that clients have, too."""
        given = []
        for attribute in fields(type(self)):
            value = getattr(self, attribute.name)
            if attribute.name in names and value is not None:
                given += [(key, int(value)) for key in attribute.metadata.get(_KEYS, ())]
        return given

    def channelArguments(self) -> tuple[tuple[str, int], ...]:
        """Give what the library has to be told for a server, in its own words."""
        given = self.arguments([attribute.name for attribute in fields(type(self))])
        if self.maxMetadataSize is not None:
            given.append(("grpc.absolute_max_metadata_size", 2 * self.maxMetadataSize))
        if self.compression is not None:
            given.append(("grpc.default_compression_level", _LEVELS[self.compression]))
        return tuple(given)


@frozen(kw_only=True)
class RPCOptions:
    """
    Every option of C{withOptions}.

    @ivar port: Where C{listen} listens if it is not told.
    @ivar hostname: The interface.
    @ivar grpc: What calls, messages and connections may be like.
    @ivar tls: C{None} to speak in the clear.
    """

    port: int = field(default=50051, converter=readPort)
    hostname: str = field(default="127.0.0.1", converter=readHostname)
    grpc: GRPCServerOptions = groupField(GRPCServerOptions)
    tls: GRPCTLSOptions | None = field(default=None, converter=readTLS)

    def channelArguments(self) -> tuple[tuple[str, int], ...]:
        """Give what the library has to be told, in its own words."""
        return self.grpc.channelArguments()

    def callLimits(self) -> CallLimits:
        """Return the options that the calls of a port need."""
        grpc = self.grpc
        streams = grpc.maxConcurrentStreams
        return CallLimits(
            grpc.maxConcurrentRpcs,
            inf if streams is None else _RESET_FACTOR * streams,
            inf if grpc.compression is None else grpc.compressionOptions.threshold,
        )


# The same options as keywords: what a type checker knows of them.


class MessageCompressionDict(TypedDict, total=False):
    """The keywords of L{CompressionOptions}."""

    level: int | None
    threshold: int | str


class GRPCSettingsDict(TypedDict, total=False):
    """The keywords of L{GRPCServerOptions}."""

    maxReceiveMessageLength: int | str | None
    maxSendMessageLength: int | str | None
    keepaliveTimeMs: int | None
    keepaliveTimeoutMs: int | None
    keepalivePermitWithoutCalls: bool | None
    http2MaxPingsWithoutData: int | None
    http2MinTimeBetweenPingsMs: int | None
    http2MaxPingStrikes: int | None
    maxConnectionIdle: int | None
    maxConnectionAge: int | None
    maxConnectionAgeGrace: int | None
    maxConcurrentStreams: int | None
    overloadProtection: bool
    maxMetadataSize: int | str | None
    reusePort: bool
    compression: Literal["gzip", "deflate", "identity"] | None
    compressionOptions: MessageCompressionDict | CompressionOptions
    maxConcurrentRpcs: int
    reflection: bool
    health: bool


class RPCOptionsDict(TypedDict, total=False):
    """The keywords of L{RPCOptions}."""

    port: int
    hostname: str
    grpc: GRPCSettingsDict | GRPCServerOptions
    tls: TLSOptionsDict | GRPCTLSOptions | None


def readOptions(before: RPCOptions, changes: Mapping[str, Any]) -> RPCOptions:
    """
    Change some options; those under C{grpc} that are not named stay as they were.

    @raise OptionError: If there is no such option, or its value is none.
    """
    return changeOptions(before, changes)


def checkAddress(host: str, port: int, isShared: bool) -> None:
    """
    See whether a port can be had.

    grpc core does not tell why it could not have one, and writes a line of its own to the process's
    error output.

    @param isShared: Whether others may listen there, too.
    @raise CannotListenError: If it cannot be had at any of the host's addresses.
    """
    reason: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        found, reason = [], error
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if isShared:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(address)
            return
        except OSError as error:
            reason = error
    raise CannotListenError(host, port, reason)


def checkSocket(path: str) -> None:
    """
    See whether a UNIX socket can be had: grpc core would put its own in the place of another.

    @raise CannotListenError: If a server listens there. What a server left behind is replaced.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            # The backlog of a server is full.
            pass
        except (OSError, ValueError):
            # No server, or no path.
            return
    raise CannotListenError("unix", path, OSError("another server is there"))


DEFAULT_GRACE_MS = 30_000
"""What a call in flight is given to end in; the longest that most balancers wait."""

RUN_GRACE_MS = 5_000
"""The same for L{GRPCServer.run}: whoever presses Ctrl-C waits for it."""


_RESET_FACTOR = 2
"""
How many times C{maxConcurrentStreams} a connection may have handlers running: a client that resets
all of its calls and makes as many anew has so many until the handlers of the first have ended.
"""


class RPCPort:
    """A port that calls come in by."""

    def __init__(self, engine: Any, address: IPv4Address | IPv6Address | UNIXAddress) -> None:
        self._engine = engine
        self._address = address

    def getHost(self) -> Any:
        """
        Give the port's own address.

        @return: An L{IPv4Address<twisted.internet.address.IPv4Address>}, C{IPv6Address} or
            C{UNIXAddress}: only the caller knows which it is, so a type checker takes any.
        """
        return self._address

    def connections(self) -> int:
        """Count the connections that came by this port and are there; 4,000 take some 4 ms."""
        count: int = self._engine.connections()
        return count

    def stopListening(self, graceMs: float = 0, settleMs: float = 0) -> Deferred[None]:
        """Close the port and the calls that came by it, after a grace; see L{GRPCServer.stop}."""
        stopped: Deferred[None] = self._engine.stop(graceMs / 1000, settleMs / 1000)
        return stopped


class GRPCServer:
    """
    A gRPC application.

    @ivar settings: What L{withOptions} has set.
    @ivar services: Every service by its whole name.
    @ivar health: The health service, which clients see unless the option C{grpc.health} is off.
    @ivar traffic: Counts the bytes of messages from the next L{listen} on.
    """

    _log = Logger()

    def __init__(self) -> None:
        self.settings = RPCOptions()
        self.health = Health()
        self.traffic: MessageByteCounter = NullByteCounter()
        self._router = CallRouter()
        self.services = self._router.services
        self._clock: Any = None
        self._ports: list[RPCPort] = []
        self._closing: list[RPCPort] = []

    @property
    def activeCalls(self) -> int:
        """How many handlers are running."""
        return self._router.activeCalls

    @property
    def onRefused(self) -> Refused | None:
        """
        Called with each L{Call<storagegate.rpc.call.Call>} that is answered without calling a
        handler, and the error: its method is unknown or has no handler, its request cannot be
        read, or it is over a limit.
        """
        return self._router.onRefused

    @onRefused.setter
    def onRefused(self, refused: Refused | None) -> None:
        self._router.onRefused = refused

    @property
    def connections(self) -> int:
        """Count the connections that are there, see L{RPCPort.connections}."""
        return sum(port.connections() for port in (*self._ports, *self._closing))

    def withOptions(
        self, options: Mapping[str, Any] | None = None, /, **more: Unpack[RPCOptionsDict]
    ) -> Self:
        """
        Change options, see L{RPCOptions<storagegate.rpc.application.RPCOptions>}; they hold for the
        next L{listen}.

        @param options: As a mapping, by keywords, or both, where the keywords win.
        @raise OptionError: If there is no such option, or its value is none.
        """
        self.settings = readOptions(self.settings, joinOptions(options, more))
        return self

    def use(self, middleware: Middleware) -> Self:
        """
        Add a middleware, inside those that are there.

        @param middleware: C{async (call, next)}; it goes on by C{await next()}, which gives the
            response, and may raise. What it returns is the response; if it returns nothing, that of
            C{next} stands.
        """
        if not callable(middleware):
            raise TypeError(f"a middleware is a function of (call, next), not {middleware!r}")
        self._router.middleware.append(middleware)
        return self

    def addService(
        self,
        service: str | Mapping[str, Any] | RPCService | None = None,
        methods: Any = None,
        *,
        name: str | None = None,
        definition: RPCService | None = None,
        implementation: Any = None,
    ) -> Self:
        """
        Add a service, in one of two forms::

            addService(name="Probe", methods={"echo": echo, "watch": {"handler": watch}})
            addService(definition=loaded.UserService, implementation={"GetUser": getUser})

        In the first, handlers get the request, and the call if they take two parameters. The
        messages are made from the schemas C{input} and C{output} of the methods. Where no method
        has any, they are those of the service of this full name in a file that
        L{loadProto<storagegate.rpc.protos.loadProto>} has loaded, if there is one.

        In the second, C{implementation} is a mapping of method names or an object with methods, and
        handlers get the call.

        A mapping of the same words will do for either; and so will a name, followed by the methods
        or by a mapping that has them, and a loaded service, followed by its implementation.

        @raise DefinitionError: If it is none, or its name is taken.
        """
        named = {"name": name, "definition": definition, "implementation": implementation}
        return self._add(*serviceRoutes(service, methods, named))

    def _add(self, service: RPCService, routes: dict[str, GRPCRoute]) -> Self:
        if service.name in self.services:
            raise DefinitionError(f"there is a service {service.name} already")
        self.services[service.name] = service
        self._router.routes.update(routes)
        if self._ports:
            self.health.begin(self._clock, (service.name,))
        return self

    def setServingStatus(self, service: str, status: str) -> None:
        """
        Say whether a service can be used, for those who ask the health service.

        @param service: Its whole name; empty for the whole server.
        @param status: C{SERVING} or C{NOT_SERVING}.
        @raise ValueError: If it is neither.
        """
        self.health.setServingStatus(service, status)

    def listen(
        self,
        port: int | str | Mapping[str, Any] | None = None,
        hostname: str | None = None,
        *,
        reactor: Any = None,
    ) -> Deferred[RPCPort]:
        """
        Start serving.

        @param port: Where; 0 takes a free one. Or C{"host:port"} or C{"unix:path"}; or a mapping of
            these parameters.
        @param hostname: The name or address of the interface.
        @return: The port. Fails with C{CannotListenError} if the place is taken.
        @raise OptionError: If the port is no number from 0 to 65535, or a file of C{tls} cannot be
            used.
        """
        if isinstance(port, Mapping):
            return self.listen(**listenArguments(port, hostname, reactor))
        if reactor is None:
            reactor = processReactor()
        host, number = self._place(port, hostname)
        try:
            return succeed(self._open(host, number, reactor))
        except CannotListenError:
            return fail()

    def _open(self, host: str, number: int | None, reactor: Any) -> RPCPort:
        """
        Open a port and serve.

        @raise CannotListenError: If it cannot be had.
        """
        address = host
        if number is None:
            checkSocket(host.removeprefix("unix:"))
        else:
            checkAddress(host, number, self.settings.grpc.reusePort)
            address = f"{_bracketed(host)}:{number}"
        credentials = None
        if self.settings.tls is not None:
            from storagegate.rpc.credentials import makeServerCredentials

            credentials = makeServerCredentials(self.settings.tls)
        engine = makeServerEngine(reactor, self.settings.channelArguments(), self.traffic)
        try:
            bound = engine.bind(address, credentials)
        except CannotListenError:
            engine.discard()
            raise
        self._clock = reactor
        self._addStandard(reactor)
        opened = RPCPort(engine, _address(host, None if number is None else bound))
        engine.start(partial(self._router.accept, self.settings.callLimits()))
        self._ports.append(opened)
        return opened

    def _place(self, port: int | str | None, hostname: str | None) -> tuple[str, int | None]:
        """Read where to listen: an interface and a port, or the address of a UNIX socket."""
        if isinstance(port, str):
            if port.startswith("unix:"):
                return port, None
            hostname, _, digits = port.rpartition(":")
            port = int(digits) if digits.isascii() and digits.isdigit() else -1
        changes: dict[str, Any] = {}
        if port is not None:
            changes["port"] = port
        if hostname is not None:
            changes["hostname"] = hostname
        settings = readOptions(self.settings, changes)
        return settings.hostname.strip("[]"), settings.port

    def _addStandard(self, clock: Any) -> None:
        """Add the standard services that the options ask for."""
        if self.settings.grpc.health and HEALTH.name not in self.services:
            self.addService(definition=HEALTH, implementation=self.health)
        if self.settings.grpc.reflection:
            for service, implementation in reflectionServices(lambda: self.services):
                if service.name not in self.services:
                    self.addService(definition=service, implementation=implementation)
        if self.settings.grpc.health:
            # The last, for it knows what was added before.
            self.health.begin(clock, self.services)

    def stop(self, graceMs: float = DEFAULT_GRACE_MS, settleMs: float = 0) -> Deferred[None]:
        """
        Stop serving: accept nothing more, let what is being answered end.

        @param graceMs: After this, calls are cancelled. Whoever stops again, sooner, has it so.
        @param settleMs: For so long before clients are told to go elsewhere, and as long after it,
            no call is answered, and until then more are accepted: for a port that another process
            serves as well. A call that comes in the moment between is cancelled by grpc core, and
            a client that waits for an answer makes none.
        @return: Fires when all is closed, also what was being closed already.
        """
        self.health.shutdown()
        self._closing += self._ports
        self._ports = []
        closing = [self._close(port, graceMs, settleMs) for port in tuple(self._closing)]
        return gatherResults(closing).addCallback(lambda results: None)

    def _close(self, port: RPCPort, graceMs: float, settleMs: float) -> Deferred[None]:
        def closed(result: None) -> None:
            # Another stop may have waited for it as well.
            if port in self._closing:
                self._closing.remove(port)

        return port.stopListening(graceMs, settleMs).addCallback(closed)

    def run(
        self,
        port: int | str | None = None,
        hostname: str | None = None,
        *,
        started: Callable[[RPCPort], Any] | None = None,
        graceMs: int = RUN_GRACE_MS,
    ) -> None:
        """
        Serve until the process is told to stop: for scripts.

        Without arguments an application that L{listen}s already stays where it is.

        @param started: Called with the port.
        @param graceMs: What is being answered then gets this long.
        @raise SystemExit: If the place is taken.
        """
        reactor = processReactor()
        listening = None
        if port is not None or hostname is not None or not self._ports:
            listening = self.listen(port, hostname, reactor=reactor)
            if started is not None:
                listening.addCallback(started)
        runUntilStopped(reactor, listening, lambda: self.stop(graceMs))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _address(host: str, port: int | None) -> IPv4Address | IPv6Address | UNIXAddress:
    if port is None:
        return UNIXAddress(host.removeprefix("unix:"))
    if ":" in host:
        return IPv6Address("TCP", host, port)
    return IPv4Address("TCP", host, port)
