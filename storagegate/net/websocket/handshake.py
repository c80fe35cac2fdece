"""
The server side of the WebSocket opening handshake (RFC 6455 section 4.2), and the origins whose
pages may connect.

The request is already parsed; this module decides whether it becomes a WebSocket.

Two origins are the same if their scheme, host and port are equal (RFC 6454 section 5). A client
that sends no C{Origin} with its handshake is not a browser, and may connect. C{null}, which any
sandboxed page can send, is always refused.
"""

import re
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import starmap

from attrs import field, frozen
from msgspec import Struct

from storagegate.core.addresses import DEFAULT_PORTS, HTTPS, SCHEMES
from storagegate.core.errors import ServiceError
from storagegate.core.options import parseDecimal

VERSION = b"13"

_BLANKS = b" \t"

UPGRADE_FIELDS = {"Upgrade": "websocket", "Sec-WebSocket-Version": VERSION.decode("ascii")}
"""Fields of a response with status 426 (RFC 9110 section 15.5.22 and RFC 6455 section 4.4)."""

# RFC 6454 section 6.2, in lower case, as browsers send it. A host has no characters that would end
# it, and an IPv6 address has brackets.
_HOST = r"(?P<host>\[[0-9a-f:.]{2,45}\]|[^\s/?#@:\[\]\\*]{1,253})(?::(?P<port>[0-9]{1,5}))?"
_ORIGIN = re.compile(rf"(?P<scheme>[a-z][a-z0-9+.-]{{0,40}})://{_HOST}")
_AUTHORITY = re.compile(_HOST)

_BITS: frozenset[bytes | None] = frozenset(b"%d" % bits for bits in range(8, 16))

_DEFLATE_VALUES: Mapping[bytes, Set[bytes | None]] = {
    b"server_no_context_takeover": {None},
    b"client_no_context_takeover": {None},
    # zlib cannot compress with a window of 8 bits.
    b"server_max_window_bits": _BITS - {b"8"},
    b"client_max_window_bits": _BITS | {None},
}
"""The parameters of permessage-deflate with their acceptable values (RFC 7692 section 7.1); C{None}
is the absence of a value."""

ANY = "*"
"""An allowed origin that stands for any origin."""


class Origin(Struct, frozen=True):
    """
    The origin of a page.

    @ivar port: The port; C{None} if the scheme has none.
    """

    scheme: str
    host: str
    port: int | None


def parseOrigin(text: str) -> Origin | None:
    """
    Parse an origin; return C{None} if it is invalid or C{null}.

    @param text: The field C{Origin} of a handshake, or an allowed origin.
    """
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme = found["scheme"]
    return Origin(scheme, found["host"], _port(found["port"], scheme))


class OriginRule:
    """Decides which origins may connect."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """
        @param allowed: Origins such as C{https://example.com}; C{*} for any; empty for only the
            host's own pages.
        @raise ValueError: If an item is not an origin.
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

        @param origin: The C{Origin} field, or C{None}.
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
    # A proxy may terminate TLS, but does not add it for a page without TLS.
    schemes = (HTTPS,) if secure else SCHEMES
    if found is None or page.scheme not in schemes:
        return False
    return (page.host, page.port) == (found["host"], _port(found["port"], page.scheme))


def _port(digits: str | None, scheme: str) -> int | None:
    if digits is None:
        return DEFAULT_PORTS.get(scheme)
    return parseDecimal(digits.encode("ascii"), 99_999)


class HandshakeRefused(ServiceError):
    """
    A request does not become a WebSocket.

    @ivar headers: Header fields of the response.
    """

    def __init__(
        self, code: str, message: str, statusCode: int, headers: Mapping[str, str] | None = None
    ) -> None:
        """
        @param statusCode: The status of the HTTP response.
        """
        super().__init__(code, message, statusCode)
        self.headers = headers or {}


@frozen
class Handshake:
    """
    A request that becomes a WebSocket.

    @ivar subprotocol: The accepted subprotocol, or C{None}.
    @ivar head: The request head rewritten with the fields that Autobahn needs.
    @ivar fields: Additional fields of the response; a repeated field has several values.
    """

    subprotocol: str | None
    head: bytes
    fields: Mapping[str, str | Sequence[str]] = field(factory=dict)


def readHandshake(
    method: bytes,
    version: bytes,
    headers: Mapping[bytes, bytes],
    host: str,
    secure: bool,
    origins: OriginRule,
    subprotocols: Sequence[str] = (),
    isCompressed: bool = False,
) -> Handshake:
    """
    Validate a request for a WebSocket.

    A stream of HTTP/2 presents an extended CONNECT (RFC 8441) in the form of HTTP/1.1.

    @param headers: Names in lower case, repeated fields joined by commas.
    @param host: The requested host, with its port if given.
    @param secure: Whether the client's connection is encrypted.
    @param origins: The rule for the field C{Origin}.
    @param subprotocols: The supported subprotocols; the first match in the client's list is
        accepted.
    @param isCompressed: Whether permessage-deflate may be negotiated.
    @raise HandshakeRefused: If the request is invalid or not allowed.
    """
    if method != b"GET":
        raise HandshakeRefused(
            "METHOD_NOT_ALLOWED", "A WebSocket is opened by GET", 405, {"Allow": "GET"}
        )
    if version == b"HTTP/1.0" or not isUpgrade(headers):
        raise _upgradeRequired("This is a WebSocket")
    if b"upgrade" not in _tokens(headers, b"connection"):
        raise _invalid("Connection does not say upgrade")
    if headers.get(b"sec-websocket-version") != VERSION:
        raise _upgradeRequired("This WebSocket has version 13")
    key = headers.get(b"sec-websocket-key", b"")
    try:
        keyLength = len(b64decode(key, validate=True))
    except BadBase64:
        keyLength = 0
    if keyLength != 16:
        raise _invalid("Sec-WebSocket-Key is not 16 bytes in base64")
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        raise _invalid("A handshake has no body")
    origin = headers.get(b"origin")
    text = None if origin is None else origin.decode("latin-1")
    if not origins.admits(text, host, secure):
        raise HandshakeRefused("PERMISSION_DENIED", "Pages of this origin may not connect", 403)
    offered = headers.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")
    subprotocol = next((each.strip() for each in offered if each.strip() in subprotocols), None)
    extensions = headers.get(b"sec-websocket-extensions", b"") if isCompressed else b""
    return Handshake(subprotocol, _written(key, subprotocol, _acceptableDeflate(extensions)))


def isUpgrade(headers: Mapping[bytes, bytes]) -> bool:
    """
    Return whether a request asks for an upgrade to WebSocket.

    @param headers: Names in lower case, repeated fields joined by commas.
    """
    return b"websocket" in _tokens(headers, b"upgrade")


def _tokens(headers: Mapping[bytes, bytes], name: bytes) -> list[bytes]:
    return [token.strip().lower() for token in headers.get(name, b"").split(b",")]


def _acceptableDeflate(extensions: bytes) -> bytes:
    """
    Return the first acceptable offer of permessage-deflate, normalised; empty if none is.

    RFC 7692 section 7: a server declines an offer with an unknown, invalid or repeated parameter,
    or one that it cannot meet. Autobahn would refuse the handshake.

    @param extensions: The field C{Sec-WebSocket-Extensions}.
    """
    for offer in extensions.lower().split(b","):
        name, *texts = [text.strip(_BLANKS) for text in offer.split(b";")]
        parameters = dict(map(_parseParameter, texts))
        if (
            name == b"permessage-deflate"
            and len(parameters) == len(texts)
            and all(value in _DEFLATE_VALUES.get(key, ()) for key, value in parameters.items())
        ):
            # The value only says how small the client's window is.
            if b"client_max_window_bits" in parameters:
                parameters[b"client_max_window_bits"] = None
            return b"; ".join([name, *starmap(_formatParameter, parameters.items())])
    return b""


def _parseParameter(text: bytes) -> tuple[bytes, bytes | None]:
    name, equals, value = text.partition(b"=")
    value = value.strip(_BLANKS)
    if value[:1] == value[-1:] == b'"':
        value = value[1:-1]
    return name.strip(_BLANKS), value if equals else None


def _formatParameter(name: bytes, value: bytes | None) -> bytes:
    return name if value is None else name + b"=" + value


def _written(key: bytes, subprotocol: str | None, extensions: bytes) -> bytes:
    """
    Rewrite the request for Autobahn with only the fields that it needs, as origin and host are
    already checked.
    """
    lines = [
        b"GET / HTTP/1.1",
        b"Host: localhost",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Version: " + VERSION,
        b"Sec-WebSocket-Key: " + key,
    ]
    if subprotocol is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + subprotocol.encode("ascii"))
    if extensions:
        lines.append(b"Sec-WebSocket-Extensions: " + extensions)
    return b"\r\n".join([*lines, b"\r\n"])


def _upgradeRequired(message: str) -> HandshakeRefused:
    return HandshakeRefused("UPGRADE_REQUIRED", message, 426, UPGRADE_FIELDS)


def _invalid(message: str) -> HandshakeRefused:
    return HandshakeRefused("INVALID_ARGUMENT", message, 400)
