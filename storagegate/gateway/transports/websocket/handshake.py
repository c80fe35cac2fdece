"""
The opening handshake of WebSocket (RFC 6455 section 4.2), as the server has to read it.

The request is parsed already; here it is decided whether it becomes a WebSocket.
"""

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping

from attrs import frozen

from storagegate.core.errors import ServiceError
from storagegate.gateway.transports.websocket import MESSAGE_FORMATS, OriginRule, WebSocketOptions

VERSION = b"13"


class HandshakeRefused(ServiceError):
    """
    A request that does not become a WebSocket.

    @ivar fields: Header fields of the response.
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
    @ivar head: The request again, with the fields that Autobahn needs.
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
    if not origins.admits(text, headers.get(b"host", b"").decode("latin-1"), secure):
        raise HandshakeRefused("PERMISSION_DENIED", "Pages of this origin may not connect", 403)
    offered = headers.get(b"sec-websocket-protocol", b"").decode("latin-1").split(",")
    subprotocol = next((each.strip() for each in offered if each.strip() in MESSAGE_FORMATS), None)
    extensions = headers.get(b"sec-websocket-extensions", b"")
    if not options.enableCompression or not extensions.isascii():
        extensions = b""
    head = _written(key, subprotocol, extensions)
    return Handshake(subprotocol, subprotocol or options.messageFormat, head)


def _tokens(headers: Mapping[bytes, bytes], name: bytes) -> list[bytes]:
    return [token.strip().lower() for token in headers.get(name, b"").split(b",")]


def _written(key: bytes, subprotocol: str | None, extensions: bytes) -> bytes:
    """
    Write the request again for Autobahn, with the fields that it needs and no others: origin and
    host are checked already.
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
