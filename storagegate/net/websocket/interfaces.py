"""The limits of WebSockets, and the interfaces that a connection requires of its users."""

from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred

from storagegate.core.options import optionField, readFlag, readNumber, readSize, readTexts
from storagegate.net.websocket.handshake import OriginRule


def _origins(value: Any) -> tuple[str, ...]:
    origins = readTexts(value)
    OriginRule(origins)
    return origins


@frozen(kw_only=True)
class WebSocketLimits:
    """
    The limits of the WebSockets of a server.

    @ivar enableCompression: Whether permessage-deflate is offered.
    @ivar allowedOrigins: The origins whose pages may connect, C{*} for all; empty for only the same
        host.
    @ivar maxMessageSize: Maximum number of bytes of an inflated message.
    @ivar maxConnections: Maximum number of concurrent connections.
    @ivar maxConnectionsPerAddress: Maximum number of connections of one address; C{None} for three
        quarters.
    @ivar pingSeconds: Seconds without input after which a ping is sent.
    """

    enableCompression: bool = optionField(False, readFlag)
    allowedOrigins: tuple[str, ...] = optionField((), _origins)
    maxMessageSize: int = optionField(1024 * 1024, readSize)
    maxConnections: int = optionField(10_000, readNumber, 1, 1_000_000, "connections")
    maxConnectionsPerAddress: int | None = optionField(
        None, readNumber, 1, 1_000_000, "connections"
    )
    pingSeconds: int = optionField(30, readNumber, 1, 1_000_000, "seconds")


class WebSocketMeter(Protocol):
    """Counts the traffic of a server's WebSockets."""

    bytesIn: int
    bytesOut: int
    messagesIn: int
    messagesOut: int
    accepted: int

    def ended(self, seconds: float) -> None:
        """
        Count the end of a connection.

        @param seconds: The duration of the connection.
        """


class Receiver(Protocol):
    """
    Receives the messages of a connection.

    @ivar isIdle: Whether no reply is outstanding.
    """

    @property
    def isIdle(self) -> bool: ...

    def received(self, payload: bytes, isBinary: bool) -> None:
        """
        Receive a message.

        @param payload: The whole message, inflated; text is valid UTF-8.
        @param isBinary: Whether it is a binary message.
        """

    def whenIdle(self) -> Deferred[None]:
        """Wait until no reply is outstanding."""

    def lost(self) -> None:
        """Stop receiving messages, as the connection ends. Called once."""

    def forget(self) -> None:
        """Drop references to the closed connection, so that no cycle is left."""
