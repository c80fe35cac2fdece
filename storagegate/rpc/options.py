"""
The options of a gRPC application.

Times are milliseconds, sizes bytes or text such as C{"4mb"}. C{None} leaves an option
to grpc core, except for our own limits.
"""

from collections.abc import Collection
from functools import partial
from math import inf
from typing import Any, Literal, TypedDict

from attrs import field, fields, frozen
from attrs.converters import optional

from storagegate.core.options import (
    groupField,
    optionField,
    readFileName,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSize,
    readWord,
)
from storagegate.core.shares import shareOf
from storagegate.net.tls import ServerTLSOptions, TLSOptionsDict, readTLS
from storagegate.rpc.dispatch import CallLimits
from storagegate.rpc.engine import ENGINES

_KEYS = "storagegate.keys"
"""The key in a field's metadata for the names of its channel arguments."""

_INT_MAX = 2**31 - 1
"""Channel arguments are C integers."""

_MESSAGE_LENGTH = 4 * 1024 * 1024
"""The default of every gRPC server and client."""

_FIXED_WINDOW = ("grpc.http2.bdp_probe", 0)
"""
The window of a call is 64 KiB, plus the length of the message being read. Clients can drive up grpc
core's estimate: each call held 4 MiB before its message was requested.
"""

_THRESHOLD = 1024
"""Compressing a message that fits one packet saves no time."""

_MIN_METADATA_SIZE = 1024
"""The headers of every call need this much."""

_LEVELS = {"gzip": 1, "deflate": 3}
"""
Compression levels of grpc core: a level compresses only for clients that accept it, an algorithm
for all clients. The lowest level prefers gzip, the highest deflate.
"""


def _length(value: Any) -> int:
    if isinstance(value, int) and value == -1:
        return -1
    try:
        return readNumber(readSize(value), 0, _INT_MAX)
    except ValueError:
        raise ValueError('is a size such as "4mb", below 2 GiB, or -1 for no limit') from None


def _metadataSize(value: Any) -> int:
    try:
        # The hard limit is twice this.
        return readNumber(readSize(value), _MIN_METADATA_SIZE, _INT_MAX // 2)
    except ValueError:
        raise ValueError('is a size such as "8kb", from 1 KiB to 1 GiB') from None


def _algorithm(value: Any) -> str | None:
    word = readWord(value, ("gzip", "deflate", "identity"))
    return None if word == "identity" else word


def _engine(value: Any) -> str:
    return readWord(value, ENGINES)


_count = partial(readNumber, minimum=1, maximum=_INT_MAX)
_milliseconds = partial(_count, unit="milliseconds")
_countFromZero = partial(readNumber, minimum=0, maximum=_INT_MAX)
_millisecondsFromZero = partial(_countFromZero, unit="milliseconds")


@frozen(kw_only=True)
class CompressionOptions:
    """
    How messages are compressed.

    @ivar level: From 1 to 9, as for zlib. It has no effect on grpc core, which always compresses
        with zlib's 6.
    @ivar threshold: Only longer messages are compressed, in bytes.
    """

    level: int | None = optionField(None, readNumber, 1, 9)
    threshold: int = field(default=_THRESHOLD, converter=readSize)


def _argument(keys: str, converter: Any, default: Any = None) -> Any:
    """Make the field of an option that is a channel argument under one name or several."""
    if default is not False:
        converter = optional(converter)
    return field(default=default, converter=converter, metadata={_KEYS: tuple(keys.split())})


@frozen(kw_only=True)
class GRPCServerOptions:
    """
    The options under C{grpc}.

    @ivar maxReceiveMessageLength: A longer message ends its call with C{RESOURCE_EXHAUSTED}; -1 for
        no limit.
    @ivar maxSendMessageLength: The same for the results of handlers.
    @ivar keepaliveTimeMs: The time without data from the client after which it is pinged.
    @ivar keepaliveTimeoutMs: How long to wait for data after a ping before the connection is
        closed; a minute by default.
    @ivar keepalivePermitWithoutCalls: Whether to ping, and let the client ping, while no call is
        open.
    @ivar http2MaxPingsWithoutData: How many pings may be sent without data; 0 for no limit. grpc
        core enforces this in clients only: its servers ping as often as C{keepaliveTimeMs}.
    @ivar http2MinTimeBetweenPingsMs: The minimum time between a client's pings.
    @ivar http2MaxPingStrikes: How many pings at shorter intervals close the connection; 0 for no
        limit.
    @ivar maxConnections: The maximum number of connections; more are closed. grpc core accepts them
        itself, so there is no limit per address; the native engine gives one three quarters.
    @ivar maxConnectionIdle: The time without a call after which a connection is closed.
    @ivar maxConnectionAge: The time after which a connection accepts no more calls, give or take 10
        %, so that clients do not all reconnect together.
    @ivar maxConnectionAgeGrace: How long its calls may last after that.
    @ivar compression: C{"gzip"} or C{"deflate"}; C{"identity"} or C{None} for none. A client that
        accepts only the other algorithm gets it; a client that accepts neither gets plain messages.
    @ivar maxConcurrentRpcs: The maximum number of concurrent calls; more are refused with
        C{RESOURCE_EXHAUSTED}.
    @ivar maxCallsPerAddress: The maximum number of concurrent calls of one address; C{None} for
        three quarters.
    @ivar maxConcurrentStreams: The maximum number of concurrent calls on one connection; more wait
        at the client.
    @ivar overloadProtection: Whether a call counts towards its connection's limit until the server
        has processed its end. This protects public ports from clients that reset calls as fast as
        they make them; the native engine always does. A client with more than half of
        C{maxConcurrentStreams} calls may have some refused (C{REFUSED_STREAM}, C{UNAVAILABLE}),
        which it can retry.
    @ivar maxMetadataSize: The limit of a call's headers in bytes. Calls between one and two times
        the limit may be refused with C{RESOURCE_EXHAUSTED}; larger ones always are.
    @ivar reflection: Whether to serve C{grpc.reflection}.
    @ivar health: Whether to serve C{grpc.health.v1}.
    @ivar engine: C{"grpcio"} for grpc core, or C{"native"} for the project's own HTTP/2.
    @ivar reusePort: Whether other processes may listen on the same port; otherwise a taken port is
        an error.
    @ivar protoLock: The path of the lock that numbers the fields of generated messages, which
        C{storagegate proto} writes; C{None} to number them in their order.
    """

    maxReceiveMessageLength: int | None = _argument(
        "grpc.max_receive_message_length", _length, _MESSAGE_LENGTH
    )
    maxSendMessageLength: int | None = _argument(
        "grpc.max_send_message_length", _length, _MESSAGE_LENGTH
    )
    keepaliveTimeMs: int | None = _argument("grpc.keepalive_time_ms", _milliseconds)
    # Both are needed: the second closes connections, after a minute by default.
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
    # The same as the other listeners.
    maxConnections: int | None = _argument("grpc.max_allowed_incoming_connections", _count, 4096)
    maxConnectionIdle: int | None = _argument("grpc.max_connection_idle_ms", _milliseconds)
    maxConnectionAge: int | None = _argument("grpc.max_connection_age_ms", _milliseconds)
    maxConnectionAgeGrace: int | None = _argument(
        "grpc.max_connection_age_grace_ms", _millisecondsFromZero
    )
    # The default of most HTTP/2 servers: ten clients reach maxConcurrentRpcs.
    maxConcurrentStreams: int | None = _argument("grpc.max_concurrent_streams", _count, 100)
    # Off: a client that makes thousands of calls at a time would lose a third of them.
    overloadProtection: bool = _argument("grpc.http.overload_protection", readFlag, False)
    maxMetadataSize: int | None = _argument("grpc.max_metadata_size", _metadataSize, 8 * 1024)
    reusePort: bool = _argument("grpc.so_reuseport", readFlag, False)
    engine: str = field(default="grpcio", converter=_engine)
    compression: str | None = field(default=None, converter=optional(_algorithm))
    compressionOptions: CompressionOptions = groupField(CompressionOptions)
    # An open call takes about 25 kB, so these take up to 26 MB.
    maxConcurrentRpcs: int = optionField(1024, _count)
    maxCallsPerAddress: int | None = optionField(None, _count)
    reflection: bool = field(default=False, converter=readFlag)
    health: bool = field(default=True, converter=readFlag)
    protoLock: str | None = field(default=None, converter=optional(readFileName))

    def arguments(self, names: Collection[str]) -> list[tuple[str, int]]:
        """
        Return the channel arguments of some of the options.

        @param names: The names of the options; unset options are omitted.
        """
        given = []
        for attribute in fields(type(self)):
            value = getattr(self, attribute.name)
            if attribute.name in names and value is not None:
                given += [(key, int(value)) for key in attribute.metadata.get(_KEYS, ())]
        return given

    def longestRequest(self) -> int:
        """Return the maximum length of a request in bytes."""
        length = self.maxReceiveMessageLength
        return _INT_MAX if length == -1 else length or _MESSAGE_LENGTH

    def channelArguments(self) -> tuple[tuple[str, int], ...]:
        """Return the channel arguments of a server."""
        given = self.arguments([attribute.name for attribute in fields(type(self))])
        given.append(_FIXED_WINDOW)
        if self.maxMetadataSize is not None:
            given.append(("grpc.absolute_max_metadata_size", 2 * self.maxMetadataSize))
        if self.compression is not None:
            given.append(("grpc.default_compression_level", _LEVELS[self.compression]))
        return tuple(given)


@frozen(kw_only=True)
class RPCOptions:
    """
    Every option of C{withOptions}.

    @ivar port: The default port of C{listen}.
    @ivar hostname: The default interface of C{listen}.
    @ivar grpc: Limits of calls, messages and connections.
    @ivar tls: C{None} for plain text.
    """

    port: int = field(default=50051, converter=readPort)
    hostname: str = field(default="127.0.0.1", converter=readHostname)
    grpc: GRPCServerOptions = groupField(GRPCServerOptions)
    tls: ServerTLSOptions | None = field(default=None, converter=readTLS)

    def callLimits(self, streams: int | None) -> CallLimits:
        """
        Return the options that the calls of a port need.

        @param streams: The maximum number of concurrent calls on a connection of the port.
        """
        grpc = self.grpc
        return CallLimits(
            grpc.maxConcurrentRpcs,
            inf if streams is None else _RESET_FACTOR * streams,
            inf if grpc.compression is None else grpc.compressionOptions.threshold,
            shareOf(grpc.maxConcurrentRpcs, grpc.maxCallsPerAddress),
        )


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
    maxConnections: int | None
    maxConnectionIdle: int | None
    maxConnectionAge: int | None
    maxConnectionAgeGrace: int | None
    maxConcurrentStreams: int | None
    overloadProtection: bool
    maxMetadataSize: int | str | None
    reusePort: bool
    engine: Literal["grpcio", "native"]
    compression: Literal["gzip", "deflate", "identity"] | None
    compressionOptions: MessageCompressionDict | CompressionOptions
    maxConcurrentRpcs: int
    maxCallsPerAddress: int | None
    reflection: bool
    health: bool
    protoLock: str | None


class RPCOptionsDict(TypedDict, total=False):
    """The keywords of L{RPCOptions}."""

    port: int
    hostname: str
    grpc: GRPCSettingsDict | GRPCServerOptions
    tls: TLSOptionsDict | ServerTLSOptions | None


SETTLE_MS = 100
"""
Time in milliseconds for which responses are held before and after clients receive a GOAWAY. Of 240
clients that called without a pause, 20 to 40 had a call cancelled without this delay, and one or
two with it. Of 24 clients, one had a call cancelled in one of ten runs without it, none with it.
"""

_RESET_FACTOR = 2
"""
The limit of running handlers of a connection, as a multiple of C{maxConcurrentStreams}. A client
that resets all of its calls and makes the same number again has twice as many until the first
handlers end.
"""
