"""
The opening handshake of WebSocket (RFC 6455 section 4.2), as the server has to read it.

The request has been parsed and is HTTP; here it is decided whether it becomes a WebSocket.
"""

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping

from attrs import frozen

from storagegate.core.errors import ServiceError
from storagegate.gateway.transports.websocket import MESSAGE_FORMATS, OriginRule, WebSocketOptions

VERSION = b"13"

_KEY_LENGTH = 16


class HandshakeRefused(ServiceError):
    """
    A request that does not become a WebSocket.

    @ivar fields: Header fields of the answer.
    """

    def __init__(
        self, code: str, message: str, statusCode: int, fields: Mapping[str, str] | None = None
    ) -> None:
        """
        @param statusCode: The status of the HTTP response.
        """
        super().__init__(code, message, statusCode)
        self.fields = fields or {}


@frozen
class Handshake:
    """
    A request that becomes a WebSocket.

    @ivar subprotocol: The requested one that was accepted; C{None} if none is.
    @ivar format: How messages are written.
    @ivar head: The request again, with all that matters and nothing else.
    """

    subprotocol: str | None
    format: str
    head: bytes


def readHandshake(
    method: bytes,
    version: bytes,
    headers: Mapping[bytes, bytes],
    secure: bool,
    origins: OriginRule,
    options: WebSocketOptions,
) -> Handshake:
    """
    Read a request for a WebSocket.

    @param headers: Names in lower case, repeated fields joined by commas.
    @param method: The verb of the request.
    @param secure: Whether the connection is encrypted.
    @param origins: The rule for the field C{Origin}.
    @raise HandshakeRefused: If it is none, or may not be one.
    """
    if method != b"GET":
        raise HandshakeRefused(
            "METHOD_NOT_ALLOWED", "A WebSocket is opened by GET", 405, {"Allow": "GET"}
        )
    wanted = _tokens(headers, b"upgrade")
    if version != b"HTTP/1.1" or b"websocket" not in wanted:
        raise _upgradeRequired("This is a WebSocket")
    if b"upgrade" not in _tokens(headers, b"connection"):
        raise _invalid("Connection does not say upgrade")
    if headers.get(b"sec-websocket-version") != VERSION:
        raise _upgradeRequired("This WebSocket has version 13")
    key = headers.get(b"sec-websocket-key", b"")
    if not _isKey(key):
        raise _invalid("Sec-WebSocket-Key is not 16 bytes in base64")
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        raise _invalid("A handshake has no body")
    origin = headers.get(b"origin")
    text = None if origin is None else origin.decode("latin-1")
    if not origins.admits(text, headers.get(b"host", b"").decode("latin-1"), secure):
        raise HandshakeRefused("PERMISSION_DENIED", "Pages of this origin may not connect", 403)
    subprotocol = _chosen(headers.get(b"sec-websocket-protocol", b""))
    extensions = headers.get(b"sec-websocket-extensions", b"")
    if not options.enableCompression or not extensions.isascii():
        extensions = b""
    return Handshake(
        subprotocol,
        subprotocol or options.messageFormat,
        _written(key, subprotocol, extensions),
    )


def _tokens(headers: Mapping[bytes, bytes], name: bytes) -> list[bytes]:
    return [token.strip().lower() for token in headers.get(name, b"").split(b",")]


def _isKey(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == _KEY_LENGTH
    except BadBase64:
        return False


def _chosen(offered: bytes) -> str | None:
    """Choose the first subprotocol of a client's that is known."""
    for token in offered.split(b","):
        name = token.strip().decode("latin-1")
        if name in MESSAGE_FORMATS:
            return name
    return None


def _written(key: bytes, subprotocol: str | None, extensions: bytes) -> bytes:
    """
    Write the request again for the protocol that does the framing.

    Origin and host have been judged, and what it does not need to know cannot mislead it.
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
    # RFC 9110 section 15.5.22 and RFC 6455 section 4.4.
    fields = {"Upgrade": "websocket", "Sec-WebSocket-Version": VERSION.decode("ascii")}
    return HandshakeRefused("UPGRADE_REQUIRED", message, 426, fields)


def _invalid(message: str) -> HandshakeRefused:
    return HandshakeRefused("INVALID_ARGUMENT", message, 400)
