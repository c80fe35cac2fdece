"""
The common interface of the callers of all wires: a call, its listener, and its answers.

A caller is an asynchronous generator function of a L{CallTarget} and a L{MethodCall}, which yields
L{Answer}: C{(data, bytes)} of the result, or of each item of a stream. It raises
L{ServiceError<storagegate.core.errors.ServiceError>} if the call fails, and closes its connection
when the generator is closed.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectionDone

from storagegate.core.errors import ServiceError, codedError
from storagegate.net.endpoints import formatAddress
from storagegate.net.tls import ServerContext, ServerTLSOptions, describeError, loadPair

MAX_BYTES = 1 << 20
"""Bytes of all answers of a call: more than a person reads, and little for the daemon to hold."""

CONNECT_SECONDS = 5.0
"""Timeout for connecting to a listener of this process, which may be busy."""

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Loopback addresses for listeners on all addresses."""

Answer = tuple[Any, int]
"""The data of an answer, and its size in bytes on the wire, without lower layers."""


@frozen
class MethodCall:
    """
    A call.

    @ivar requests: One request, or the requests of a stream.
    @ivar metadata: Header fields of HTTP and WebSocket, metadata of gRPC; framed wires carry only
        C{traceparent} and C{tracestate}.
    @ivar token: A token, or an API key; empty for none.
    @ivar deadlineMs: The deadline that the listener receives.
    """

    service: str
    method: str
    requests: Sequence[Any]
    metadata: Mapping[str, str]
    token: str
    deadlineMs: int
    streamsRequests: bool

    @property
    def request(self) -> Any:
        """The request of a method without request stream."""
        return self.requests[0] if self.requests else {}

    def fields(self, apiKeyHeader: str) -> dict[str, str]:
        """
        Return header fields: the metadata, and the token in the header that fits its form.

        @param apiKeyHeader: The header for an API key; a JSON Web Token is sent as a bearer token.
        """
        fields = {name.lower(): value for name, value in self.metadata.items()}
        if self.token.count(".") == 2:
            fields.setdefault("authorization", f"Bearer {self.token}")
        elif self.token:
            fields.setdefault(apiKeyHeader.lower(), self.token)
        return fields


@frozen
class CallTarget:
    """
    A listener of this process.

    @ivar address: The address of the listener.
    @ivar path: The path of the services, for HTTP and WebSocket.
    @ivar isSecure: Whether the listener uses TLS.
    @ivar tls: The TLS options, if it was configured with certificate files.
    @ivar apiKeyHeader: The header field of API keys.
    @ivar methods: The gRPC methods by service and name, each an
        L{RPCMethod<storagegate.rpc.protos.RPCMethod>}.
    """

    reactor: Any
    address: Any
    path: str
    isSecure: bool
    tls: ServerTLSOptions | None
    apiKeyHeader: str
    methods: Mapping[tuple[str, str], Any]

    @property
    def host(self) -> str:
        """The address that a client on this machine connects to."""
        host = str(self.address.host)
        return _ANYWHERE.get(host, host)

    @property
    def authority(self) -> str:
        """The value of C{Host}."""
        if not isinstance(self.address, IPv4Address | IPv6Address):
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.address.port}"

    @property
    def shownAddress(self) -> str:
        """The address of the listener, formatted."""
        return formatAddress(self.address)

    @property
    def endpoint(self) -> Any:
        """
        The client endpoint, without TLS.

        @raise ServiceError: The address is of an unknown kind.
        """
        if isinstance(self.address, IPv4Address | IPv6Address):
            port = self.address.port
            return HostnameEndpoint(self.reactor, self.host, port, CONNECT_SECONDS)
        if isinstance(self.address, UNIXAddress) and self.address.name is not None:
            path = os.fsdecode(self.address.name)
            return UNIXClientEndpoint(self.reactor, path, timeout=CONNECT_SECONDS)
        raise codedError("UNAVAILABLE", "The listener has an unknown kind of address")

    @property
    def context(self) -> ServerContext | None:
        """
        The context of TLS; C{None} without TLS.

        The certificate is not verified: it carries the public names of the daemon, and the
        connection does not leave this machine. If the listener requires a client certificate, the
        client presents the listener's own.
        """
        if not self.isSecure:
            return None
        from twisted.internet.ssl import CertificateOptions

        own: dict[str, Any] = {}
        if self.tls is not None and self.tls.requiresClient:
            own = loadPair(self.tls.cert, self.tls.key)
        return ServerContext(CertificateOptions(**own), "127.0.0.1", isVerified=False)

    @property
    def secured(self) -> Any:
        """The endpoint, with TLS if the listener uses it."""
        context = self.context
        if context is None:
            return self.endpoint
        return wrapClientTLS(context, self.endpoint, self.reactor)


WireCaller = Callable[[CallTarget, MethodCall], AsyncGenerator[Answer]]


def tooLarge() -> ServiceError:
    """Make the error for answers over the limit."""
    return codedError("RESPONSE_TOO_LARGE", f"The responses exceed {MAX_BYTES} bytes")


def cut(reason: BaseException | None = None) -> ServiceError:
    """
    Make the error for a connection that ends before the call.

    @param reason: The reason; L{None} for an orderly close.
    """
    if reason is None or isinstance(reason, ConnectionDone):
        return codedError("UNAVAILABLE", "The connection ended before the call")
    return codedError("UNAVAILABLE", f"The connection was lost: {describeError(reason)}")


def readError(shape: Any, code: str = "error") -> ServiceError:
    """
    Read an error in the shape of a wire.

    @param shape: An object, perhaps from the application's C{transformError}.
    @param code: The key of the error code.
    """
    if not isinstance(shape, Mapping):
        return ServiceError("UNKNOWN", "", details=shape)
    found = shape.get(code, "UNKNOWN")
    details = shape.get("details")
    if not isinstance(found, str):
        found, details = "UNKNOWN", shape
    return ServiceError(found, str(shape.get("message", "")), details=details)
