"""
The interface between the calls of a client and its transports.

A transport begins a call, and returns a L{WireCall}. The call reads replies from its stream, sends
items, and closes it. Errors of a transport are L{AttemptFailed}, which says whether the call may
have reached the server.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import field, frozen
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint
from twisted.internet.error import ConnectionDone

from storagegate.core.errors import ServiceError, codedError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.client.formats import Reply
from storagegate.net.tls import (
    InstanceTLSOptions,
    ServerContext,
    TLSContexts,
    describeError,
    expectedName,
)
from storagegate.upstream.retry import AttemptFailed

CONNECT_SECONDS = 5.0
"""Time to connect, including the handshakes of TLS and WebSocket."""

BUFFERED_BYTES = 256 * 1024
"""Bytes of replies that wait for the reader of a call before reading from the server pauses."""

TRACE_FIELDS = frozenset(("traceparent", "tracestate"))
"""The metadata that a message can carry."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

_OWN = frozenset(
    (
        "connection",
        "content-length",
        "content-encoding",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-deadline-ms",
    )
)
"""Header fields that the client itself sets."""


@frozen
class CallHead:
    """
    A call without its stream of requests.

    @ivar data: The request; C{None} for an empty object, and for streams.
    @ivar deadlineMs: The time that is left, in milliseconds; C{None} for no deadline.
    @ivar token: A bearer token; empty for none.
    @ivar apiKey: An API key; empty for none.
    @ivar apiKeyHeader: The header field of API keys.
    @ivar metadata: Header fields of HTTP, metadata of gRPC; messages carry only L{TRACE_FIELDS}.
    """

    service: str
    method: str
    data: Any = None
    streamsRequests: bool = False
    deadlineMs: int | None = None
    token: str = ""
    apiKey: str = ""
    apiKeyHeader: str = "X-API-Key"
    metadata: Mapping[str, str] = field(factory=dict)

    def fields(self) -> dict[str, str]:
        """Return header fields, names in lower case: the metadata and the credentials."""
        fields = {name.lower(): value for name, value in self.metadata.items()}
        if self.token:
            fields.setdefault("authorization", f"Bearer {self.token}")
        if self.apiKey:
            fields.setdefault(self.apiKeyHeader.lower(), self.apiKey)
        return fields

    def message(self) -> dict[str, Any]:
        """
        Return the content of the message that begins the call, without an id.

        @raise ServiceError: C{INVALID_ARGUMENT}: messages cannot carry the metadata.
        """
        content: dict[str, Any] = {"service": self.service, "method": self.method}
        if self.deadlineMs is not None:
            content["deadlineMs"] = self.deadlineMs
        if self.token or self.apiKey:
            content["auth"] = {"token": self.token or self.apiKey}
        for name, value in self.metadata.items():
            if name.lower() not in TRACE_FIELDS:
                allowed = " and ".join(sorted(TRACE_FIELDS))
                raise codedError(
                    "INVALID_ARGUMENT", f"This protocol carries {allowed}, not {name:.80}"
                )
            content[name.lower()] = value
        if not self.streamsRequests:
            content["data"] = {} if self.data is None else self.data
        return content


@frozen
class ClientTarget:
    """
    The address of a listener.

    @ivar host: A name or an IP address, without brackets.
    @ivar path: The path of the services, for HTTP and WebSocket.
    @ivar tls: The options of TLS; C{None} for plain text.
    @ivar maxMessageBytes: Limit of a received message, or of the response of a unary call over
        HTTP.
    @ivar headers: Further header fields of WebSocket's handshake.
    @ivar format: The format of messages; empty for the default of the transport.
    @ivar userAgent: The value of C{User-Agent}.
    @ivar grpcEngine: The engine of gRPC, as of a client of gRPC.
    @ivar unixAddress: The address of a UNIX socket, which takes the place of host and port.
    @ivar methods: The gRPC methods by service and name, each an
        L{RPCMethod<storagegate.rpc.protos.RPCMethod>}; C{None} for reflection.
    """

    reactor: Any
    host: str
    port: int
    path: str = ""
    tls: InstanceTLSOptions | None = None
    maxMessageBytes: int = 1024 * 1024
    headers: Mapping[str, str] = field(factory=dict)
    format: str = ""
    userAgent: str = "storagegate"
    methods: Mapping[tuple[str, str], Any] | None = None
    unixAddress: UNIXAddress | None = None
    grpcEngine: str = "grpcio"
    _contexts: TLSContexts | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        protocols = [b"http/1.1"] if self.path else None
        contexts = None if self.tls is None else TLSContexts("tls", self.tls, protocols)
        object.__setattr__(self, "_contexts", contexts)

    @property
    def authority(self) -> str:
        """The value of C{Host}."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    @property
    def endpoint(self) -> Any:
        """The endpoint, without TLS."""
        if self.unixAddress is not None and self.unixAddress.name is not None:
            path = os.fsdecode(self.unixAddress.name)
            return UNIXClientEndpoint(self.reactor, path, timeout=CONNECT_SECONDS)
        return HostnameEndpoint(self.reactor, self.host, self.port, CONNECT_SECONDS)

    @property
    def context(self) -> ServerContext | None:
        """
        The context of TLS, from the current files; C{None} for plain text.

        @raise TLSFileError: If a file cannot be used.
        """
        if self._contexts is None or self.tls is None:
            return None
        return self._contexts.creator(expectedName(self.tls, self.host))


class WireCall(Protocol):
    """
    A call that a transport has begun.

    @ivar replies: The replies. Its error is an L{AttemptFailed} if the connection is lost.
    """

    replies: BoundedStream[Reply]

    async def send(self, data: Any) -> None:
        """
        Send an item of the stream of requests, and wait until another may follow. Does nothing
        after the end of the call.
        """

    def sendEnd(self) -> None:
        """Send the end of the stream of requests."""

    def close(self) -> None:
        """Release the call. A call that has not ended is cancelled at the server."""


class ClientTransport(Protocol):
    """Makes calls to one listener."""

    async def begin(self, head: CallHead) -> WireCall:
        """
        Connect if necessary, and begin a call.

        @raise AttemptFailed: If the listener cannot be reached.
        @raise ServiceError: If the transport cannot carry the call.
        """

    def close(self) -> Deferred[None]:
        """
        Close the connections; calls in flight fail.

        @return: Fires when they are closed.
        """


MakeTransport = Callable[[ClientTarget], ClientTransport]
"""Makes the transport of a listener; the C{client} of a row of the registry names it."""


def checkedFields(fields: Mapping[str, str]) -> dict[str, str]:
    """
    Return header fields after checking that a caller may add them.

    @raise ServiceError: C{INVALID_ARGUMENT}: a field is malformed, or reserved for the client
        itself.
    """
    for name, value in fields.items():
        lowered = name.lower()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise codedError(
                "INVALID_ARGUMENT", f"The metadata {name!r:.80} is not a valid header field"
            )
        if lowered in _OWN or lowered.startswith("sec-websocket-"):
            raise codedError("INVALID_ARGUMENT", f"The metadata {name} is set by the call itself")
    return dict(fields)


def tooLarge(limit: int) -> ServiceError:
    """Make the error of a reply over the limit, in bytes."""
    return codedError("RESPONSE_TOO_LARGE", f"The response exceeds {limit} bytes")


def connectionLost(reason: BaseException | None = None, isUnsent: bool = False) -> AttemptFailed:
    """
    Make the error of a connection that ends before the call.

    @param reason: The reason; C{None} for an orderly close.
    @param isUnsent: Whether the server is known not to have received the call.
    """
    if reason is None or isinstance(reason, ConnectionDone):
        text = "The connection ended before the call"
    else:
        text = f"The connection was lost: {describeError(reason)}"
    return AttemptFailed(codedError("UNAVAILABLE", text), isUnsent)


def unreachable(error: BaseException) -> AttemptFailed:
    """Make the error of a connection that could not be made."""
    return AttemptFailed(codedError("UNAVAILABLE", describeError(error)), isUnsent=True)
