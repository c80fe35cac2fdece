"""
What the callers of all wires have in common: a call, the listener that it is for, and its answers.

A caller is an asynchronous generator function of a L{CallTarget} and a L{MethodCall}, which yields
L{Answer}: C{(data, bytes)} of the result, or of each item of a stream. It raises
L{ServiceError<storagegate.core.errors.ServiceError>} if the call fails, and closes its connection
when it is closed.
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
"""To connect to a listener of this very process, which may be busy."""

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Where an interface of all addresses is reached."""

Answer = tuple[Any, int]
"""The data of an answer, and its bytes on the wire without those of lower layers."""


@frozen
class MethodCall:
    """
    A call.

    @ivar requests: One, or those of a stream.
    @ivar metadata: Header fields of HTTP and WebSocket, metadata of gRPC; the wires of frames have
        C{traceparent} and C{tracestate} only.
    @ivar token: A token, or an API key; empty for none.
    @ivar deadlineMs: What the listener is told.
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
        """The request of a method that takes one."""
        return self.requests[0] if self.requests else {}

    def fields(self, apiKeyHeader: str) -> dict[str, str]:
        """
        Return header fields: the metadata, and the token as what it looks like.

        @param apiKeyHeader: Has the token, unless it is a JSON Web Token, which is a bearer.
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

    @ivar address: What it listens on.
    @ivar path: Where the services are, for HTTP and WebSocket.
    @ivar isSecure: Whether it speaks TLS.
    @ivar tls: Its options, if it was configured with the files of TLS.
    @ivar apiKeyHeader: The header field of API keys.
    @ivar methods: The methods of gRPC by service and name, an
        L{RPCMethod<storagegate.rpc.protos.RPCMethod>} each.
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
        """The address that a client of this machine connects to."""
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
        """The address that it listens on."""
        return formatAddress(self.address)

    @property
    def endpoint(self) -> Any:
        """
        The endpoint of its stream, without TLS.

        @raise ServiceError: If it has an address of another kind.
        """
        if isinstance(self.address, IPv4Address | IPv6Address):
            port = self.address.port
            return HostnameEndpoint(self.reactor, self.host, port, CONNECT_SECONDS)
        if isinstance(self.address, UNIXAddress) and self.address.name is not None:
            path = os.fsdecode(self.address.name)
            return UNIXClientEndpoint(self.reactor, path, timeout=CONNECT_SECONDS)
        raise codedError("UNAVAILABLE", "The address of the listener is of an unknown kind")

    @property
    def context(self) -> ServerContext | None:
        """
        The context of TLS; C{None} without TLS.

        The certificate is not verified: it is for the names that others use, and the connection
        does not leave this machine. Where the listener demands one of its clients, its own is
        shown.
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
        """The endpoint, with TLS if the listener has it."""
        context = self.context
        if context is None:
            return self.endpoint
        return wrapClientTLS(context, self.endpoint, self.reactor)


WireCaller = Callable[[CallTarget, MethodCall], AsyncGenerator[Answer]]


def tooLarge() -> ServiceError:
    """Make the error of answers over the limit."""
    return codedError("RESPONSE_TOO_LARGE", f"The answers have more than {MAX_BYTES} bytes")


def cut(reason: BaseException | None = None) -> ServiceError:
    """
    Make the error of a connection that ends before the call.

    @param reason: Why; L{None} if it ended in order.
    """
    if reason is None or isinstance(reason, ConnectionDone):
        return codedError("UNAVAILABLE", "The connection ended before the call")
    return codedError("UNAVAILABLE", f"The connection was lost: {describeError(reason)}")


def readError(shape: Any, code: str = "error") -> ServiceError:
    """
    Read an error as a wire shapes it.

    @param shape: An object, perhaps one of the user's C{transformError}.
    @param code: The key of its code.
    """
    if not isinstance(shape, Mapping):
        return ServiceError("UNKNOWN", "", details=shape)
    found = shape.get(code, "UNKNOWN")
    details = shape.get("details")
    if not isinstance(found, str):
        found, details = "UNKNOWN", shape
    return ServiceError(found, str(shape.get("message", "")), details=details)
