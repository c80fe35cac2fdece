"""
WebSocket: its options, its metrics, and the origins whose pages may connect.

Two origins are the same if scheme, host and port are (RFC 6454 section 5). A client that sends no
C{Origin} with its handshake is no browser, and may connect; C{null}, which any sandboxed page can
send, never may.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.httpurls import DEFAULT_PORTS, HTTPS, SCHEMES
from storagegate.core.options import (
    Hook,
    optionField,
    parseDecimal,
    readFlag,
    readFunction,
    readNumber,
    readPath,
    readSize,
    readTexts,
    readWord,
)
from storagegate.gateway.transports.metrics import (
    ProtocolMetric,
    Samples,
    Streaming,
    TransportMetrics,
    average,
    byLabel,
)
from storagegate.telemetry.metrics import MetricFamily, MetricsRegistry, counterFamily

PROTOCOL = "websocket"
"""The name of this transport."""

MESSAGE_FORMATS = ("json", "binary", "msgpack")

# RFC 6454 section 6.2, with the case that browsers have lowered already. A host has no characters
# that would end it, and an IPv6 address has brackets.
_HOST = r"(?P<host>\[[0-9a-f:.]{2,45}\]|[^\s/?#@:\[\]\\*]{1,253})(?::(?P<port>[0-9]{1,5}))?"
_ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]{{0,40}})://{_HOST}")
_AUTHORITY = re.compile(_HOST)

ANY = "*"
"""Among the allowed origins: the pages of any origin."""


@frozen
class Origin:
    """
    Where a page is from.

    @ivar port: C{None} where the scheme has no port.
    """

    scheme: str
    host: str
    port: int | None


def parseOrigin(text: str) -> Origin | None:
    """
    Read an origin; C{None} if it is none, or C{null}.

    @param text: The field C{Origin} of a handshake, or an allowed origin.
    """
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme = found["scheme"]
    return Origin(scheme, found["host"], _port(found["port"], scheme))


class OriginRule:
    """Says which origins may connect."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """
        @param allowed: Origins such as C{https://example.com}; C{*} for all of them; none for the
            host's own pages.
        @raise ValueError: If one is no origin.
        """
        self._isOpen = False
        self._allowed: set[Origin] = set()
        for text in allowed:
            origin = parseOrigin(text)
            if text == ANY:
                self._isOpen = True
            elif origin is None:
                raise ValueError(f"has {text!r}, which is no origin such as https://example.com")
            else:
                self._allowed.add(origin)

    def admits(self, origin: str | None, host: str, secure: bool) -> bool:
        """
        Return whether a page may connect.

        @param origin: The field of that name, if there was one.
        @param host: The field C{Host}.
        @param secure: Whether the connection is encrypted.
        """
        if origin is None:
            return True
        page = parseOrigin(origin)
        if page is None:
            return False
        if self._isOpen or self._allowed:
            return self._isOpen or page in self._allowed
        return _isOwn(page, host, secure)


def _isOwn(page: Origin, host: str, secure: bool) -> bool:
    """Return whether a page is from the host that it connects to."""
    found = _AUTHORITY.fullmatch(host.lower())
    # A proxy may end the encryption, but none adds it for a page without.
    schemes = (HTTPS,) if secure else SCHEMES
    if found is None or page.scheme not in schemes:
        return False
    return (page.host, page.port) == (found["host"], _port(found["port"], page.scheme))


def _port(digits: str | None, scheme: str) -> int | None:
    if digits is None:
        return DEFAULT_PORTS.get(scheme)
    return parseDecimal(digits.encode("ascii"), 99_999)


def _streamHooks(value: Any) -> Mapping[str, Hook]:
    if not isinstance(value, Mapping) or not set(value) <= {"server", "client"}:
        raise ValueError("is a mapping with functions for server and client")
    for hook in value.values():
        readFunction(hook)
    return dict(value)


def _origins(value: Any) -> tuple[str, ...]:
    origins = readTexts(value)
    OriginRule(origins)
    return origins


@frozen(kw_only=True)
class WebSocketOptions:
    """
    How services are called over WebSocket.

    @ivar path: Where, on the port of HTTP.
    @ivar enableCompression: Whether permessage-deflate is offered.
    @ivar allowedOrigins: Whose pages may connect, C{*} for all; empty for those of the same host.
    @ivar messageFormat: What clients speak that name no subprotocol.
    @ivar maxMessageSize: Bytes of a message, inflated.
    @ivar maxConnections: Connections at a time.
    @ivar pingSeconds: Seconds without input after which a ping is sent.
    @ivar routeMessage: C{(message)} gives a mapping of C{service}, C{method}, C{request} and
        C{messageId}.
    @ivar formatResponse: C{(result, messageId, method)} gives the message.
    @ivar handleStreaming: C{server(stream, send, messageId)} and C{client(messages, call,
        messageId)}.
    """

    path: str = optionField("/ws", readPath)
    enableCompression: bool = optionField(False, readFlag)
    allowedOrigins: tuple[str, ...] = optionField((), _origins)
    messageFormat: str = optionField("json", readWord, MESSAGE_FORMATS)
    maxMessageSize: int = optionField(1024 * 1024, readSize)
    maxConnections: int = optionField(10_000, readNumber, 1, 1_000_000, "connections")
    pingSeconds: int = optionField(30, readNumber, 1, 1_000_000, "seconds")
    routeMessage: Hook | None = field(default=None, converter=optional(readFunction))
    formatResponse: Hook | None = field(default=None, converter=optional(readFunction))
    handleStreaming: Mapping[str, Hook] = field(factory=dict, converter=_streamHooks)


class WebSocketOptionsDict(TypedDict, total=False):
    """The keywords of L{WebSocketOptions}."""

    path: str
    enableCompression: bool
    allowedOrigins: list[str] | tuple[str, ...]
    messageFormat: Literal["json", "binary", "msgpack"]
    maxMessageSize: int | str
    maxConnections: int
    pingSeconds: int
    routeMessage: Hook | None
    formatResponse: Hook | None
    handleStreaming: Mapping[str, Hook]


_SECONDS = (0.1, 1, 10, 60, 300, 900, 3600, 14_400, 86_400)
"""What matters of a WebSocket is whether it lasts for moments, minutes or days."""


def _measureConnections(
    meters: MetricsRegistry, counts: TransportMetrics, streaming: Streaming | None
) -> None:
    counts.durations = meters.histogram(
        "storagegate_websocket_connection_duration_seconds",
        "How long WebSockets that are gone were there.",
        (),
        _SECONDS,
    )


def _connectionDuration(samples: Samples) -> Any:
    found = samples("websocket_connection_duration_seconds")
    values = next((value for _, value in found), (0, 0.0))
    return {"count": sum(values[:-1]), "average": average(values)}


def _messages(counts: TransportMetrics) -> Iterable[MetricFamily]:
    yield counterFamily(
        "storagegate_websocket_messages_total",
        "Messages of WebSockets.",
        ("direction",),
        [(("in",), counts.messagesIn), (("out",), counts.messagesOut)],
    )


METRICS = (
    ProtocolMetric(name="connection_duration", start=_measureConnections, view=_connectionDuration),
    ProtocolMetric(
        name="message_frequency", collect=_messages, view=byLabel("websocket_messages_total")
    ),
)
