"""The context of a call, as handlers receive it, and the key of its rate limits."""

from collections.abc import Mapping
from socket import AF_INET6, inet_ntoa, inet_ntop, inet_pton
from typing import TYPE_CHECKING, Any, Generic, Protocol

from attrs import frozen
from msgspec import Struct, field

if TYPE_CHECKING:
    # The default of a type variable is part of Python from 3.13 on.
    from typing_extensions import TypeVar

    U = TypeVar("U", default=Any)
else:
    from typing import TypeVar

    U = TypeVar("U")

MAX_TOKEN_LENGTH = 8 * 1024
"""The maximum length of a token or key: as long as a header may be."""

MAX_DEADLINE_MS = 24 * 60 * 60 * 1000
"""One day: a longer deadline is a mistake in the unit."""

REQUEST_SECONDS = 600.0
"""
How long a complete request may take to arrive, on every transport: the gateway's longest HTTP
request (10 MiB) at 17 kB/s.
"""


@frozen
class ClientInfo:
    """
    The client of a call.

    @ivar id: The identifier of its connection, or else its address.
    @ivar address: Its IP address, or the path of a UNIX socket.
    @ivar port: Its port; 0 without one.
    """

    id: str
    address: str
    port: int
    userAgent: str | None = None
    version: str | None = None


class Tracing(Struct, frozen=True):
    """
    The trace of a call. Every call has one, and attrs takes seven times as long to make it.

    @ivar traceId: 32 hexadecimal digits.
    @ivar spanId: 16 hexadecimal digits: the caller's span; C{None} if unknown.
    @ivar sampled: Whether the trace is recorded: the caller's flag, until this process decides.
    @ivar state: The C{tracestate} of the caller; empty without one.
    @ivar ownId: 16 hexadecimal digits: the span of this call; C{None} unless it is recorded.
    """

    traceId: str
    spanId: str | None = None
    sampled: bool = False
    state: str = ""
    ownId: str | None = None


class FieldLookup(Protocol):
    """Header fields, or the text entries of gRPC's metadata."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a field, its name in lower case; C{None} if it is absent."""


class CallContext(Protocol[U]):
    """
    The parts of a call that every transport has.

    The request of a route, the call of a gRPC application and the context of a gateway's method
    provide it, so that one function can serve all of them as a dependency.

    @ivar user: The authenticated user; C{None} for none.
    """

    user: U

    @property
    def protocol(self) -> str:
        """Return C{http}, C{https}, C{websocket}, C{grpc}, C{udp} or C{tcp}."""

    @property
    def headers(self) -> FieldLookup:
        """Return the header fields or the metadata."""

    @property
    def token(self) -> str | None:
        """Return the bearer token; C{None} without one."""

    @property
    def client(self) -> ClientInfo:
        """Return the client."""


class RequestContext(Struct, Generic[U], weakref=True):
    """
    The context of one call. Every call has one, and attrs takes three times as long to make it.

    @ivar protocol: C{http}, C{websocket}, C{grpc}, C{udp} or C{tcp}.
    @ivar service: The name of the service.
    @ivar method: The bare name of the method.
    @ivar headers: The header fields or metadata of the request, names in lower case.
    @ivar metadata: Values of the transport: C{deadline}, in seconds since 1970; C{route}, the name
        under which an undescribed method is counted; C{path}, the requested path of an unknown
        method. A handler's C{setCookie} becomes a C{Set-Cookie} field over HTTP.
    @ivar authentication: The user; C{None} for an anonymous call.
    @ivar credentials: The credentials of the client, for a forwarded call.
    """

    protocol: str
    service: str
    method: str
    client: ClientInfo
    tracing: Tracing
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    authentication: Any = None
    credentials: Any = None

    @property
    def user(self) -> U:
        """Return the user; C{None} for an anonymous call."""
        user: U = self.authentication
        return user

    @user.setter
    def user(self, user: U) -> None:
        self.authentication = user

    @property
    def token(self) -> str | None:
        """Return the token of the call; C{None} without one."""
        return getattr(self.credentials, "token", None)

    def __repr__(self) -> str:
        """Describe the context without credentials, so that a log shows no secret."""
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__[:-1]]
        return f"{type(self).__name__}({', '.join(shown)})"


GatewayContext = RequestContext
"""The public name of the context of a gateway's call: C{GatewayContext[User]}."""

# The size of the network that a provider typically assigns to one customer.
_NETWORK_BYTES = 7
_NETWORK = f"/{_NETWORK_BYTES * 8}"
# The networks of IPv6 addresses that embed an IPv4 address, see storagegate.core.addresses.
_MAPPED = bytes(10) + b"\xff\xff"
_NAT64 = bytes.fromhex("0064ff9b") + bytes(8)


def rateLimitKey(address: str) -> str:
    """
    Return the key to count the requests of an address under.

    @param address: An IPv6 address counts as its /56 network, or as the IPv4 address that it embeds
        (mapped or NAT64); other text stands for itself.
    """
    if ":" not in address:
        return address
    try:
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if packed.startswith((_MAPPED, _NAT64)):
        return inet_ntoa(packed[12:])
    network = packed[:_NETWORK_BYTES].ljust(16, b"\0")
    return inet_ntop(AF_INET6, network) + _NETWORK
