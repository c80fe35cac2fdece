"""The client of a gateway: its options, its credentials, and its calls."""

import random
from collections.abc import Mapping
from typing import Any, Literal, Self, TypedDict, Unpack
from urllib.parse import urlsplit

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred

from storagegate.core.context import MAX_DEADLINE_MS
from storagegate.core.options import (
    OptionError,
    makeOptions,
    optionField,
    readFieldName,
    readNames,
    readNumber,
    readSize,
    readWord,
)
from storagegate.core.task import portable
from storagegate.gateway.client.call import CallResources, GatewayCall, Requests
from storagegate.gateway.client.transports import (
    CallHead,
    ClientTarget,
    ClientTransport,
    checkedFields,
)
from storagegate.gateway.messages.json import MAX_ANSWER
from storagegate.gateway.transports.registry import findTransport, loadReference, transports
from storagegate.net.endpoints import processReactor
from storagegate.net.tls import InstanceTLSOptions, TLSContexts, checkPair
from storagegate.upstream.retry import RetryPolicy
from storagegate.version import __version__

_MAX_RETRIES = 10


def _text(value: Any) -> str:
    if isinstance(value, str) and value.isprintable() and value.isascii():
        return value
    raise ValueError("is printable ASCII text")


def _tls(value: Any) -> InstanceTLSOptions:
    if isinstance(value, InstanceTLSOptions):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options")
    options = makeOptions(InstanceTLSOptions, value, "tls.")
    checkPair(options, "tls")
    return options


@frozen(kw_only=True)
class GatewayClientOptions:
    """
    The options of a client.

    @ivar token: A bearer token for every call.
    @ivar apiKey: An API key for every call.
    @ivar apiKeyHeader: The header field of API keys over HTTP and gRPC.
    @ivar headers: Further header fields: of each call over HTTP, of the handshake of WebSocket.
    @ivar tls: C{caFile}, C{certFile}, C{keyFile}, C{serverName} and C{verify}; the system's
        authorities by default.
    @ivar deadlineMs: The deadline of calls that set none; C{None} for no deadline.
    @ivar retries: Maximum number of retries of a call.
    @ivar retryPercent: Maximum number of retries in a hundred calls, in addition to one a second
        and a reserve.
    @ivar format: The format of messages: C{json}, C{binary} or C{msgpack} of WebSocket, C{frames}
        or C{lines} of TCP.
    @ivar maxMessageBytes: Limit of a received message.
    @ivar grpcEngine: The engine of gRPC: C{"grpcio"}, or C{"native"} for the project's own HTTP/2.
    """

    token: str = optionField("", _text)
    apiKey: str = optionField("", _text)
    apiKeyHeader: str = optionField("X-API-Key", readFieldName)
    headers: Mapping[str, str] = field(factory=dict, converter=readNames)
    tls: InstanceTLSOptions | None = field(default=None, converter=optional(_tls))
    deadlineMs: int | None = optionField(None, readNumber, 1, MAX_DEADLINE_MS, "milliseconds")
    retries: int = optionField(2, readNumber, 0, _MAX_RETRIES)
    retryPercent: int = optionField(20, readNumber, 0, 100)
    format: str = optionField("", _text)
    maxMessageBytes: int = optionField(1024 * 1024, readSize)
    grpcEngine: str = optionField("grpcio", readWord, ("grpcio", "native"))


class GatewayClientOptionsDict(TypedDict, total=False):
    """The keywords of L{GatewayClientOptions}."""

    token: str
    apiKey: str
    apiKeyHeader: str
    headers: Mapping[str, str]
    tls: Mapping[str, Any] | None
    deadlineMs: int | None
    retries: int
    retryPercent: int
    format: Literal["json", "binary", "msgpack", "frames", "lines"]
    maxMessageBytes: int | str
    grpcEngine: Literal["grpcio", "native"]


def readCredential(text: str) -> GatewayClientOptionsDict:
    """
    Return the option for a token in the form of an API key or a JSON Web Token.

    @param text: The token; empty for none.
    """
    return {"token": text} if text.count(".") == 2 else {"apiKey": text}


def createGatewayClient(
    url: str, *, reactor: Any = None, **options: Unpack[GatewayClientOptionsDict]
) -> "RemoteGateway":
    """
    Make a client of a gateway. It connects with the first call, and reconnects as needed.

    @param url: C{http://host:port/api}, C{ws://host:port/ws}, C{tcp://host:port},
        C{udp://host:port} or C{grpc://host:port}; with TLS C{https}, C{wss}, C{tls} and C{grpcs}.
        The ports and paths default to those of a gateway.
    @param options: See L{GatewayClientOptions}.
    @raise ValueError: If the URL or an option is invalid.
    """
    settings = makeOptions(GatewayClientOptions, options)
    name, target = readTarget(url, settings, processReactor(reactor))
    return RemoteGateway(makeTransport(name, target), target.reactor, settings)


def readTarget(url: str, options: GatewayClientOptions, reactor: Any) -> tuple[str, ClientTarget]:
    """
    Read a URL.

    @return: The name of the transport, and the target.
    @raise ValueError: If it is invalid.
    """
    problem = f"the URL of a gateway is such as http://host:8080/api, not {url!r:.80}"
    if not isinstance(url, str) or not url.isascii() or not url.isprintable():
        raise ValueError(problem)
    parts = urlsplit(url)
    schemes = {scheme.name: (row, scheme) for row in transports() for scheme in row.schemes}
    if parts.scheme not in schemes:
        raise ValueError(f"the scheme of {url!r:.80} is none of {', '.join(schemes)}")
    row, scheme = schemes[parts.scheme]
    port = parts.port
    isPlain = not (parts.query or parts.fragment or parts.username is not None or " " in url)
    if not parts.hostname or not isPlain or port == 0:
        raise ValueError(problem)
    path = parts.path.rstrip("/") or scheme.path
    if path and not scheme.path:
        raise ValueError(f"a URL of {parts.scheme} has no path: {url!r:.80}")
    if options.tls is not None and not scheme.isSecure:
        raise OptionError(f"the option tls does not fit the scheme {scheme.name}")
    tls = (options.tls or InstanceTLSOptions()) if scheme.isSecure else None
    if tls is not None:
        TLSContexts("tls", tls).check()
    target = ClientTarget(
        reactor,
        parts.hostname,
        scheme.port if port is None else port,
        path,
        tls,
        min(options.maxMessageBytes, MAX_ANSWER),
        checkedFields(options.headers),
        options.format,
        f"storagegate/{__version__}",
        grpcEngine=options.grpcEngine,
    )
    return row.name, target


def makeTransport(name: str, target: ClientTarget) -> ClientTransport:
    """
    Make the client's side of a transport.

    @param name: The name of the transport in the registry.
    @raise ValueError: If it has no client, or the target does not fit it.
    """
    row = findTransport(name)
    if row.client is None:
        raise ValueError(f"the transport {name} has no client")
    made: ClientTransport = loadReference(row.client)(target)
    return made


class RemoteGateway:
    """
    A gateway that is called over a network.

    It can be used in C{async with}, which closes it.
    """

    def __init__(
        self,
        transport: ClientTransport,
        reactor: Any,
        options: GatewayClientOptions,
        graceSeconds: float = 0.0,
    ) -> None:
        """
        @param transport: Makes the calls.
        @param graceSeconds: Time for the server to report that a deadline has passed, before the
            client ends the call itself.
        """
        self._transport = transport
        self._options = options
        retries = RetryPolicy(options.retries, options.retryPercent, reactor, random.uniform)
        self._context = CallResources(transport, retries, reactor, graceSeconds)

    def call(
        self,
        service: str,
        method: str,
        data: Any = None,
        *,
        requests: Requests | None = None,
        deadlineMs: int | None = None,
        token: str | None = None,
        apiKey: str | None = None,
        metadata: Mapping[str, str] | None = None,
        isIdempotent: bool = False,
    ) -> GatewayCall:
        """
        Call a method. The call begins at once.

        @param data: The request; C{None} for an empty object.
        @param requests: The stream of requests, instead of C{data}: an iterable, plain or
            asynchronous. Each request is taken when it can be sent.
        @param deadlineMs: The deadline in milliseconds, after which the call ends with
            C{DEADLINE_EXCEEDED}; C{None} for the option of the client.
        @param token: A bearer token; C{None} for the option of the client, empty for none.
        @param apiKey: An API key; C{None} for the option of the client, empty for none.
        @param metadata: Header fields over HTTP, metadata over gRPC. Other transports carry only
            C{traceparent} and C{tracestate}.
        @param isIdempotent: Whether the call may be repeated although the server may have received
            it.
        @return: The call: await it, or iterate over it.
        @raise ValueError: If an argument is invalid.
        """
        if requests is not None and data is not None:
            raise ValueError("a call has data or requests, not both")
        options = self._options
        if deadlineMs is not None and not 0 < deadlineMs <= MAX_DEADLINE_MS:
            raise ValueError(f"deadlineMs is 1 to {MAX_DEADLINE_MS}, not {deadlineMs!r:.40}")
        head = CallHead(
            service,
            method,
            data,
            requests is not None,
            options.deadlineMs if deadlineMs is None else deadlineMs,
            options.token if token is None else _text(token),
            options.apiKey if apiKey is None else _text(apiKey),
            options.apiKeyHeader,
            {} if metadata is None else metadata,
        )
        return GatewayCall(self._context, head, requests, isIdempotent)

    def close(self) -> Deferred[None]:
        """
        Close the connections; calls in flight fail, and later calls end with C{CANCELLED}.

        @return: Fires when they are closed.
        """
        self._context.isClosed = True
        return portable(self._transport.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
