"""Which calls of a service that is elsewhere go to the same instance, wire by wire."""

from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import groupField, readFieldName, readFlag
from storagegate.discovery.services import readStrategy


def _secret(value: Any) -> str:
    # Whoever guesses it can choose an instance, no more; but then shorter ones are guessed.
    if not isinstance(value, str) or not 16 <= len(value) <= 1024:
        raise ValueError("is a text of 16 to 1024 characters")
    return value


@frozen(kw_only=True)
class HTTPRouting:
    """
    Which calls over HTTP stay together.

    @ivar sticky_sessions: Whether calls of one session go to one instance.
    @ivar session_header: The header field that names the session; calls without it are known by a
        cookie that the first answer sets.
    @ivar cookie_secret: What signs that cookie; where none is given, a secret of this process, and
        in the daemon that of the file C{affinity-secret} in the data directory.
    """

    sticky_sessions: bool = field(default=False, converter=readFlag)
    session_header: str = field(default="X-Session-ID", converter=readFieldName)
    cookie_secret: str | None = field(default=None, converter=optional(_secret), repr=False)


@frozen(kw_only=True)
class WebSocketRouting:
    """
    Which calls over WebSocket stay together.

    @ivar connection_affinity: Whether the calls of one connection go to one instance.
    """

    connection_affinity: bool = field(default=False, converter=readFlag)


@frozen(kw_only=True)
class GRPCRouting:
    """
    How calls over gRPC are spread.

    @ivar load_balancing: The strategy of these calls, in place of that of the service.
    """

    load_balancing: str | None = field(default=None, converter=optional(readStrategy))


@frozen(kw_only=True)
class RoutingOptions:
    """
    Which calls belong together; those of UDP and TCP are each for themselves.

    @ivar http: Which of HTTP.
    @ivar websocket: Which of WebSocket.
    @ivar grpc: How those of gRPC are spread.
    """

    http: HTTPRouting = groupField(HTTPRouting)
    websocket: WebSocketRouting = groupField(WebSocketRouting)
    grpc: GRPCRouting = groupField(GRPCRouting)
