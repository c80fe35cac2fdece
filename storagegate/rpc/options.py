"""
The options of a gRPC application, read once, and what the library beneath calls them.

Times are milliseconds, sizes bytes or text such as C{"4mb"}. C{None} leaves a setting to the
library, except where a limit of our own would be gone.
"""

from collections.abc import Collection, Mapping
from typing import Any

from attrs import field, fields, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import (
    changeOptions,
    groupField,
    readFlag,
    readHostname,
    readNumber,
    readPort,
    readSize,
    readWord,
)
from storagegate.rpc.tlsoptions import TLSOptions, readTLS

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
class GRPCOptions:
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
    grpc: GRPCOptions = groupField(GRPCOptions)
    tls: TLSOptions | None = field(default=None, converter=readTLS)

    def channelArguments(self) -> tuple[tuple[str, int], ...]:
        """Give what the library has to be told, in its own words."""
        return self.grpc.channelArguments()

    def compresses(self, length: int) -> bool:
        """Tell whether a message of so many bytes is compressed, for a client that can read it."""
        options = self.grpc
        return options.compression is not None and length > options.compressionOptions.threshold


def readOptions(before: RPCOptions, changes: Mapping[str, Any]) -> RPCOptions:
    """
    Change some options; those under C{grpc} that are not named stay as they were.

    @raise OptionError: If there is no such option, or its value is none.
    """
    return changeOptions(before, changes)
