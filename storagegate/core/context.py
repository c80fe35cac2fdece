"""
What a handler is told of the call that it answers.

Whom a client's calls count for.
"""

from collections.abc import Mapping
from socket import AF_INET6, inet_ntoa, inet_ntop, inet_pton
from typing import Any

from attrs import Factory, define, field, frozen

MAX_TOKEN_LENGTH = 8 * 1024
"""Characters of a token or key: as long as a header may be; longer ones are not looked at."""

MAX_DEADLINE_MS = 24 * 60 * 60 * 1000
"""A day: a longer deadline is a unit that was mistaken."""


@frozen
class ClientInfo:
    """
    Who calls.

    @ivar id: Names the client's connection, or its address where there is none.
    @ivar address: Its IP address, or the path of a UNIX socket.
    @ivar port: Its port; 0 where there is none.
    """

    id: str
    address: str
    port: int
    userAgent: str | None = None
    version: str | None = None


@frozen
class Tracing:
    """
    Where a call belongs.

    @ivar traceId: 32 hexadecimal digits.
    @ivar spanId: 16 of them: the caller's span, C{None} if it named none.
    @ivar sampled: Whether it is recorded: what the caller says, until it is decided here.
    @ivar state: The C{tracestate} that came with it; empty where there is none.
    @ivar ownId: 16 hexadecimal digits: the span of this call, C{None} unless it is recorded.
    """

    traceId: str
    spanId: str | None = None
    sampled: bool = False
    state: str = ""
    ownId: str | None = None


@define
class RequestContext:
    """
    The context of one call.

    @ivar protocol: C{http}, C{websocket}, C{grpc}, C{udp} or C{tcp}.
    @ivar service: The name of the service.
    @ivar method: The bare name of the method.
    @ivar headers: What came beside the request, names in lower case.
    @ivar metadata: What else the wire tells; C{deadline} is when the call ends, in seconds since
        1970, C{route} what a method is counted as that nobody has described, C{path} what was
        asked for where there is no such method. What a handler leaves
        as C{setCookie} becomes a field of that kind where the wire is HTTP.
    @ivar authentication: The user, C{None} if nobody is known.
    @ivar credentials: What the client said of itself, for a call that goes on to somebody else.
    """

    protocol: str
    service: str
    method: str
    client: ClientInfo
    tracing: Tracing
    headers: Mapping[str, str] = Factory(dict)
    metadata: dict[str, Any] = Factory(dict)
    authentication: Any = None
    # Whoever writes a context down writes no secret down.
    credentials: Any = field(default=None, repr=False, eq=False)


# What a provider gives one customer: within it, addresses cost nothing.
_NETWORK_BYTES = 7
_NETWORK = f"/{_NETWORK_BYTES * 8}"
_MAPPED = bytes(10) + b"\xff\xff"


def rateLimitKey(address: str) -> str:
    """
    Give the key of a client's address.

    An IPv6 address counts as its network of 56 bits, one that stands for an IPv4 address as that.
    """
    if ":" not in address:
        return address
    try:
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if packed.startswith(_MAPPED):
        return inet_ntoa(packed[12:])
    network = packed[:_NETWORK_BYTES].ljust(16, b"\0")
    return inet_ntop(AF_INET6, network) + _NETWORK
