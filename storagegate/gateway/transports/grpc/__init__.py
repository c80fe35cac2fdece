"""gRPC: its options, and its metrics (calls by streaming type, durations)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.options import (
    Hook,
    optionField,
    readFileName,
    readFlag,
    readFunction,
    readHostname,
    readNames,
    readNumber,
    readPort,
    readSize,
    readTexts,
    readWord,
)
from storagegate.gateway.transports.metrics import (
    MAX_ROUTES,
    ProtocolMetric,
    Samples,
    Streaming,
    TransportMetrics,
    average,
    byLabel,
)
from storagegate.net.tls import ServerTLSOptions, TLSOptionsDict, readTLS
from storagegate.telemetry.metrics import MetricsRegistry


@frozen(kw_only=True)
class GRPCOptions:
    """
    The options of calls over gRPC.

    @ivar port: The port; 0 takes a free one.
    @ivar hostname: The interface; C{None} for the interface of all transports.
    @ivar tls: The certificate of the listener, and whether clients need one; C{None} for plain
        text.
    @ivar reflection: Whether to serve reflection; the daemon's own default is C{true}.
    @ivar protoFiles: Paths of C{.proto} files that define messages of services.
    @ivar protoLock: The path of the lock that numbers the fields of generated messages, which
        C{storagegate proto} writes; C{None} to number them in their order.
    @ivar keepUnknown: Whether messages of the protos keep fields that their definitions lack, as
        bytes under C{"@unknown"}. Only gRPC carries them.
    @ivar naive: C{"utc"} to take a C{datetime} without a zone as UTC in messages of the protos; it
        is refused by default.
    @ivar services: Maps service names in protos to names in the gateway: C{"user.UserService"} to
        C{"UserService"}.
    @ivar methodMapping: Maps names of RPCs to names of methods. The same name and its camelCase
        form need no entry.
    @ivar maxMessageSize: The maximum length of a message in bytes, in either direction.
    @ivar maxConnections: The maximum number of connections; more are closed.
    @ivar maxCallsPerAddress: How many of the 1024 concurrent calls one address may make; C{None}
        for three quarters.
    @ivar engine: C{"grpcio"} for grpc core, or C{"native"} for the project's own HTTP/2.
    @ivar onHTTP: Whether calls are also served on the port of HTTP, over HTTP/2, which always has
        the native engine.
    @ivar reusePort: Whether other processes may listen on the same port; the daemon's own default
        is C{true} with several workers.
    @ivar transformRequest: C{(request, method)} returns the request.
    @ivar transformResponse: C{(result, method)} returns the response to send.
    """

    port: int = optionField(50051, readPort)
    hostname: str | None = optionField(None, readHostname)
    tls: ServerTLSOptions | None = field(default=None, converter=readTLS)
    reflection: bool = optionField(False, readFlag)
    reusePort: bool = optionField(False, readFlag)
    engine: Literal["grpcio", "native"] = optionField("grpcio", readWord, ("grpcio", "native"))
    maxMessageSize: int = optionField(4 * 1024 * 1024, readSize)
    # The same as TCP.
    maxConnections: int = optionField(4096, readNumber, 1, 1_000_000, "connections")
    maxCallsPerAddress: int | None = optionField(None, readNumber, 1, 1_000_000, "calls")
    onHTTP: bool = optionField(False, readFlag)
    protoFiles: tuple[str, ...] = optionField((), readTexts)
    protoLock: str | None = optionField(None, readFileName)
    keepUnknown: bool = optionField(False, readFlag)
    naive: str = optionField("", readWord, ("", "utc"))
    services: Mapping[str, str] = field(factory=dict, converter=readNames)
    methodMapping: Mapping[str, str] = field(factory=dict, converter=readNames)
    transformRequest: Hook | None = field(default=None, converter=optional(readFunction))
    transformResponse: Hook | None = field(default=None, converter=optional(readFunction))


class GRPCOptionsDict(TypedDict, total=False):
    """The keywords of L{GRPCOptions}."""

    port: int
    hostname: str | None
    tls: TLSOptionsDict | ServerTLSOptions | None
    reflection: bool
    reusePort: bool
    engine: Literal["grpcio", "native"]
    onHTTP: bool
    maxMessageSize: int | str
    maxConnections: int
    maxCallsPerAddress: int | None
    protoFiles: list[str] | tuple[str, ...]
    protoLock: str | None
    keepUnknown: bool
    naive: Literal["", "utc"]
    services: Mapping[str, str]
    methodMapping: Mapping[str, str]
    transformRequest: Hook | None
    transformResponse: Hook | None


def _countStreams(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    streams = meters.counter("storagegate_grpc_streams_total", "Ended streaming calls.", ("kind",))

    def ended(service: str, method: str, seconds: Sequence[float]) -> None:
        kind = "none" if streaming is None else streaming(service, method)
        if kind != "none":
            streams.add(len(seconds), (kind,))

    counts.onEnds.append(ended)


def _measureCalls(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    latency = meters.histogram(
        "storagegate_grpc_rpc_duration_seconds",
        "Duration of gRPC calls.",
        ("service", "method"),
    )
    latency.maxSets = MAX_ROUTES

    def ended(service: str, method: str, seconds: Sequence[float]) -> None:
        latency.observeAll(seconds, (service, method))

    counts.onEnds.append(ended)


def _latency(samples: Samples) -> Any:
    found = samples("grpc_rpc_duration_seconds")
    return {f"{service}.{method}": average(value, 1000) for (service, method), value in found}


METRICS = (
    ProtocolMetric(name="stream_count", start=_countStreams, view=byLabel("grpc_streams_total")),
    ProtocolMetric(name="rpc_latency", start=_measureCalls, view=_latency),
)
