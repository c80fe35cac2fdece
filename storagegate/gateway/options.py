"""
The options of a gateway, read once.

Sizes are bytes or text such as C{"1mb"}; hooks are functions, plain or C{async}.

What C{configureMonitoring} and C{configureServiceDiscovery} take.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from attrs import evolve, field, frozen
from attrs.converters import optional

from storagegate.core.options import (
    changeOptions,
    groupField,
    readFlag,
    readFunction,
    readHostname,
    readNumber,
    readPort,
    readSize,
    readWord,
)
from storagegate.gateway.metrics import COLLECTORS
from storagegate.gateway.transports.http.routes import readRoutes
from storagegate.gateway.transports.websocket import OriginRule
from storagegate.telemetry.accesslog import FIELDS
from storagegate.telemetry.log import LEVELS
from storagegate.telemetry.tracing import TracingOptions, readCollector

PROTOCOLS = ("http", "websocket", "grpc", "udp", "tcp")
"""The wires, in the words of the options."""

MESSAGE_FORMATS = ("json", "binary", "msgpack")

Hook = Callable[..., Any]

# What UDP can carry at all.
_MAX_PACKET_SIZE = 65_507

# What the length of a frame can say is 4 GiB; no payload of a quarter of it fits in memory twice.
_MAX_FRAME_SIZE = 1024 * 1024 * 1024


def _streamHooks(value: Any) -> Mapping[str, Hook]:
    if not isinstance(value, Mapping) or not set(value) <= {"server", "client"}:
        raise ValueError("is a mapping with functions for server and client")
    for hook in value.values():
        readFunction(hook)
    return dict(value)


def _path(value: Any) -> str:
    isPath = isinstance(value, str) and not {"?", "#"} & set(value)
    if not isPath or not (value.startswith("/") or value == ""):
        raise ValueError('is a path such as "/api"')
    return str(value).rstrip("/")


def _texts(value: Any) -> tuple[str, ...]:
    isList = isinstance(value, list | tuple)
    if not isList or not all(isinstance(each, str) for each in value):
        raise ValueError("is a list of texts")
    return tuple(value)


def _origins(value: Any) -> tuple[str, ...]:
    origins = _texts(value)
    OriginRule(origins)
    return origins


def _names(value: Any) -> Mapping[str, str]:
    isMapping = isinstance(value, Mapping)
    if not isMapping or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError("is a mapping of names to names")
    return dict(value)


def _routes(value: Any) -> Mapping[str, str]:
    routes = _names(value)
    readRoutes(routes)
    return routes


def _packetSize(value: Any) -> int:
    return readNumber(readSize(value), 64, _MAX_PACKET_SIZE, "bytes")


def _frameSize(value: Any) -> int:
    return readNumber(readSize(value), 64, _MAX_FRAME_SIZE, "bytes")


def _connections(value: Any) -> int:
    return readNumber(value, 1, 1_000_000, "connections")


def _seconds(value: Any) -> int:
    return readNumber(value, 1, 1_000_000, "seconds")


def _format(value: Any) -> str:
    return readWord(value, MESSAGE_FORMATS)


@frozen(kw_only=True)
class HTTPOptions:
    """
    How services are called over HTTP.

    @ivar basePath: Where they are: C{POST {basePath}/{Service}/{method}}.
    @ivar enableCORS: Whether pages of every origin may call.
    @ivar routes: Further places, C{"GET /users/:id"} to C{"UserService.GetUser"}; they are below
        C{basePath}, too.
    @ivar transformRequest: C{(req, method)} gives the request; the body is C{req.body}.
    @ivar transformResponse: C{(result, method, req)} gives what is sent.
    @ivar maxRequestBodySize: Bytes of a request, or of one line of a stream of them.
    """

    basePath: str = field(default="/api", converter=_path)
    enableCORS: bool = field(default=False, converter=readFlag)
    routes: Mapping[str, str] = field(factory=dict, converter=_routes)
    transformRequest: Hook | None = field(default=None, converter=optional(readFunction))
    transformResponse: Hook | None = field(default=None, converter=optional(readFunction))
    maxRequestBodySize: int = field(default=10 * 1024 * 1024, converter=readSize)


@frozen(kw_only=True)
class WebSocketOptions:
    """
    How services are called over WebSocket.

    @ivar path: Where, on the port of HTTP.
    @ivar enableCompression: Whether permessage-deflate is offered.
    @ivar allowedOrigins: Whose pages may connect, C{*} for all; empty for those of the same host.
    @ivar messageFormat: What clients speak that name no subprotocol.
    @ivar maxMessageSize: Bytes of a message, inflated.
    @ivar maxConnections: Connections at a time.
    @ivar pingSeconds: After how much silence a client is asked whether it is there.
    @ivar routeMessage: C{(message)} gives a mapping of C{service}, C{method}, C{request} and
        C{messageId}.
    @ivar formatResponse: C{(result, messageId, method)} gives the message.
    @ivar handleStreaming: C{server(stream, send, messageId)} and C{client(messages, call,
        messageId)}.
    """

    path: str = field(default="/ws", converter=_path)
    enableCompression: bool = field(default=False, converter=readFlag)
    allowedOrigins: tuple[str, ...] = field(default=(), converter=_origins)
    messageFormat: str = field(default="json", converter=_format)
    maxMessageSize: int = field(default=1024 * 1024, converter=readSize)
    maxConnections: int = field(default=10_000, converter=_connections)
    pingSeconds: int = field(default=30, converter=_seconds)
    routeMessage: Hook | None = field(default=None, converter=optional(readFunction))
    formatResponse: Hook | None = field(default=None, converter=optional(readFunction))
    handleStreaming: Mapping[str, Hook] = field(factory=dict, converter=_streamHooks)


@frozen(kw_only=True)
class GRPCTransportOptions:
    """
    How services are called over gRPC.

    @ivar port: Where; 0 takes a free one.
    @ivar hostname: The interface, in place of that of all wires.
    @ivar reflection: Whether clients may ask for the messages; the daemon's own default is C{true}.
    @ivar protoFiles: Paths of C{.proto} files whose messages services have.
    @ivar services: The names of services in protos, with those of the gateway:
        C{"user.UserService"} to C{"UserService"}.
    @ivar methodMapping: The names of RPCs, with those of methods; the same name and its camelCase
        are found without.
    @ivar maxMessageSize: Bytes of a message, in either direction.
    @ivar reusePort: Whether other processes may listen on the same port; the daemon's own default
        is C{true} where it has several workers.
    @ivar transformRequest: C{(request, method)} gives the request.
    @ivar transformResponse: C{(result, method)} gives what is sent.
    """

    port: int = field(default=50051, converter=readPort)
    hostname: str | None = field(default=None, converter=optional(readHostname))
    reflection: bool = field(default=False, converter=readFlag)
    reusePort: bool = field(default=False, converter=readFlag)
    maxMessageSize: int = field(default=4 * 1024 * 1024, converter=readSize)
    protoFiles: tuple[str, ...] = field(default=(), converter=_texts)
    services: Mapping[str, str] = field(factory=dict, converter=_names)
    methodMapping: Mapping[str, str] = field(factory=dict, converter=_names)
    transformRequest: Hook | None = field(default=None, converter=optional(readFunction))
    transformResponse: Hook | None = field(default=None, converter=optional(readFunction))


@frozen(kw_only=True)
class UDPOptions:
    """
    How services are called over UDP.

    @ivar port: Where; 0 takes a free one.
    @ivar hostname: The interface, in place of that of all wires.
    @ivar maxPacketSize: Bytes of an answer's datagram; what passes everywhere in one piece.
    @ivar parseMessage: C{(bytes)} gives the message.
    @ivar formatResponse: C{(result, type)} gives bytes; C{type} is C{response}, C{error},
        C{stream} or C{stream_end}.
    @ivar routeMessage: C{(message)} gives a mapping of C{service}, C{method}, C{request} and
        C{messageId}.
    """

    port: int = field(default=9103, converter=readPort)
    hostname: str | None = field(default=None, converter=optional(readHostname))
    maxPacketSize: int = field(default=1200, converter=_packetSize)
    parseMessage: Hook | None = field(default=None, converter=optional(readFunction))
    formatResponse: Hook | None = field(default=None, converter=optional(readFunction))
    routeMessage: Hook | None = field(default=None, converter=optional(readFunction))


@frozen(kw_only=True)
class TCPOptions:
    """
    How services are called over TCP.

    @ivar port: Where; 0 takes a free one.
    @ivar hostname: The interface, in place of that of all wires.
    @ivar keepAlive: Whether the system looks after silent connections.
    @ivar noDelay: Whether small frames go out at once.
    @ivar maxFrameSize: Bytes of a frame's payload, or of a line.
    @ivar maxConnections: Connections at a time.
    @ivar maxConnectionsPerAddress: How many of them one client may have.
    """

    port: int = field(default=9102, converter=readPort)
    hostname: str | None = field(default=None, converter=optional(readHostname))
    keepAlive: bool = field(default=True, converter=readFlag)
    noDelay: bool = field(default=True, converter=readFlag)
    maxFrameSize: int = field(default=16 * 1024 * 1024, converter=_frameSize)
    # More than a listener's clients have, and what an unprivileged process may open by far.
    maxConnections: int = field(default=4096, converter=_connections)
    # A large machine's pool; sixteen such addresses fill the listener.
    maxConnectionsPerAddress: int = field(default=256, converter=_connections)


def _protocols(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = _texts(value)
    for name in names:
        readWord(name, PROTOCOLS)
    return tuple(dict.fromkeys(names))


@frozen(kw_only=True)
class GatewayOptions:
    """
    Every option of C{createProtocolGateway}.

    @ivar protocols: Which wires, see L{enabled}.
    @ivar port: That of HTTP and WebSocket.
    @ivar hostname: The interface of all of them.
    """

    protocols: tuple[str, ...] | None = field(default=None, converter=_protocols)
    port: int = field(default=8080, converter=readPort)
    hostname: str = field(default="127.0.0.1", converter=readHostname)
    enableHTTP: bool | None = field(default=None, converter=optional(readFlag))
    enableWebSocket: bool | None = field(default=None, converter=optional(readFlag))
    enableGRPC: bool | None = field(default=None, converter=optional(readFlag))
    enableUDP: bool | None = field(default=None, converter=optional(readFlag))
    enableTCP: bool | None = field(default=None, converter=optional(readFlag))
    http: HTTPOptions = groupField(HTTPOptions)
    websocket: WebSocketOptions = groupField(WebSocketOptions)
    grpc: GRPCTransportOptions = groupField(GRPCTransportOptions)
    udp: UDPOptions = groupField(UDPOptions)
    tcp: TCPOptions = groupField(TCPOptions)

    @property
    def enabled(self) -> tuple[str, ...]:
        """
        Tell which wires are on.

        C{protocols} is exact; without it they all are, unless some are enabled by name. Then each
        C{enable} adds its wire or takes it away.
        """
        said = {
            "http": self.enableHTTP,
            "websocket": self.enableWebSocket,
            "grpc": self.enableGRPC,
            "udp": self.enableUDP,
            "tcp": self.enableTCP,
        }
        if self.protocols is not None:
            base = set(self.protocols)
        elif any(said.values()):
            base = set()
        else:
            base = set(PROTOCOLS)
        return tuple(
            name for name in PROTOCOLS if (said[name] if said[name] is not None else name in base)
        )


# The same options as keywords: what a type checker knows of them.


class HTTPOptionsDict(TypedDict, total=False):
    """The keywords of L{HTTPOptions}."""

    basePath: str
    enableCORS: bool
    routes: Mapping[str, str]
    transformRequest: Hook | None
    transformResponse: Hook | None
    maxRequestBodySize: int | str


class WebSocketOptionsDict(TypedDict, total=False):
    """The keywords of L{WebSocketOptions}."""

    path: str
    enableCompression: bool
    allowedOrigins: list[str] | tuple[str, ...]
    messageFormat: Literal["json", "binary", "msgpack"]
    maxMessageSize: int | str
    maxConnections: int
    pingSeconds: int
    routeMessage: Hook | None
    formatResponse: Hook | None
    handleStreaming: Mapping[str, Hook]


class GRPCOptionsDict(TypedDict, total=False):
    """The keywords of L{GRPCTransportOptions}."""

    port: int
    hostname: str | None
    reflection: bool
    reusePort: bool
    maxMessageSize: int | str
    protoFiles: list[str] | tuple[str, ...]
    services: Mapping[str, str]
    methodMapping: Mapping[str, str]
    transformRequest: Hook | None
    transformResponse: Hook | None


class UDPOptionsDict(TypedDict, total=False):
    """The keywords of L{UDPOptions}."""

    port: int
    hostname: str | None
    maxPacketSize: int | str
    parseMessage: Hook | None
    formatResponse: Hook | None
    routeMessage: Hook | None


class TCPOptionsDict(TypedDict, total=False):
    """The keywords of L{TCPOptions}."""

    port: int
    hostname: str | None
    keepAlive: bool
    noDelay: bool
    maxFrameSize: int | str
    maxConnections: int
    maxConnectionsPerAddress: int


class GatewayOptionsDict(TypedDict, total=False):
    """The keywords of L{GatewayOptions}."""

    protocols: Sequence[Literal["http", "websocket", "grpc", "udp", "tcp"]] | None
    port: int
    hostname: str
    enableHTTP: bool | None
    enableWebSocket: bool | None
    enableGRPC: bool | None
    enableUDP: bool | None
    enableTCP: bool | None
    http: HTTPOptionsDict | HTTPOptions
    websocket: WebSocketOptionsDict | WebSocketOptions
    grpc: GRPCOptionsDict | GRPCTransportOptions
    udp: UDPOptionsDict | UDPOptions
    tcp: TCPOptionsDict | TCPOptions


def readOptions(before: GatewayOptions, changes: Mapping[str, Any]) -> GatewayOptions:
    """
    Change some options; those of a wire that are not named stay as they were.

    @raise OptionError: If there is no such option, or its value is none.
    """
    return changeOptions(before, changes)


PROTOCOL_METRICS: Mapping[str, tuple[str, ...]] = {
    "http": ("status_codes", "user_agents"),
    "websocket": ("connection_duration", "message_frequency"),
    "grpc": ("stream_count", "rpc_latency"),
    "udp": ("packet_loss", "packet_size"),
    "tcp": ("connection_pool", "buffer_utilization"),
}


def _words(value: Any, choices: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"is a list of {', '.join(choices)}")
    return tuple(readWord(each, choices) for each in value)


def _collectors(value: Any) -> tuple[str, ...]:
    return _words(value, COLLECTORS)


def _protocolMetrics(value: Any) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of protocols to lists")
    return {
        readWord(name, tuple(PROTOCOL_METRICS)): _words(words, PROTOCOL_METRICS[name])
        for name, words in value.items()
    }


def _level(value: Any) -> str:
    return readWord(value, LEVELS)


def _logFormat(value: Any) -> str:
    return readWord(value, ("json", "text"))


def _fields(value: Any) -> tuple[str, ...]:
    return _words(value, FIELDS)


@frozen(kw_only=True)
class MetricsOptions:
    """
    What is counted.

    @ivar enabled: Whether anything is.
    @ivar collectors: What is counted of all calls.
    @ivar protocolMetrics: What is counted of a wire beside its calls, by wire: for C{http}
        C{status_codes} and C{user_agents}, for C{websocket} C{connection_duration} and
        C{message_frequency}, for C{grpc} C{stream_count} and C{rpc_latency}, for C{udp}
        C{packet_loss} and C{packet_size}, for C{tcp} C{connection_pool} and C{buffer_utilization}.
    """

    enabled: bool = field(default=True, converter=readFlag)
    collectors: tuple[str, ...] = field(default=COLLECTORS, converter=_collectors)
    protocolMetrics: Mapping[str, tuple[str, ...]] = field(factory=dict, converter=_protocolMetrics)


@frozen(kw_only=True)
class LoggingOptions:
    """
    What is logged of each call, which is nothing as long as this is not given.

    @ivar level: At which level calls are logged that went well; others are C{warn} at least.
    @ivar format: C{json} for an object a line, C{text} for C{name=value}.
    @ivar fields: What a line tells; C{duration} is in milliseconds, C{status} C{ok} or an error's
        code.
    """

    level: str = field(default="info", converter=_level)
    format: str = field(default="json", converter=_logFormat)
    fields: tuple[str, ...] = field(default=FIELDS, converter=_fields)


@frozen(kw_only=True)
class MonitoringOptions:
    """
    Every option of C{configureMonitoring}.

    @ivar metrics: What is counted.
    @ivar tracing: What is traced.
    @ivar logging: C{None} unless it was given: then calls are not logged.
    """

    metrics: MetricsOptions = groupField(MetricsOptions)
    tracing: TracingOptions = groupField(TracingOptions)
    logging: LoggingOptions | None = groupField()


class MonitoringOptionsDict(TypedDict, total=False):
    """The keywords of L{MonitoringOptions}."""

    metrics: Mapping[str, Any] | MetricsOptions
    tracing: Mapping[str, Any] | TracingOptions
    logging: Mapping[str, Any] | LoggingOptions | None


def readMonitoring(before: MonitoringOptions, changes: Mapping[str, Any]) -> MonitoringOptions:
    """
    Change some options.

    @raise OptionError: If there is no such option, its value is none, or tracing is switched on
        and cannot be.
    """
    if before.logging is None and isinstance(changes.get("logging"), Mapping):
        before = evolve(before, logging=LoggingOptions())
    options = changeOptions(before, changes)
    if options.tracing.enabled:
        # What is not installed, or stands in the environment and is none, is said here and now.
        readCollector(options.tracing)
    return options
