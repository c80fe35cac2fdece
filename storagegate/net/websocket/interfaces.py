"""The limits of WebSockets, and what a connection needs of those that use it."""

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
    @ivar allowedOrigins: Whose pages may connect, C{*} for all; empty for those of the same host.
    @ivar maxMessageSize: Bytes of a message, inflated.
    @ivar maxConnections: Connections at a time.
    @ivar maxConnectionsPerAddress: How many of them one address may have; C{None} for three
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
    """Counts what passes the WebSockets of a server."""

    bytesIn: int
    bytesOut: int
    messagesIn: int
    messagesOut: int
    accepted: int

    def ended(self, seconds: float) -> None:
        """
        Count the end of a connection.

        @param seconds: How long it was open.
        """


class Receiver(Protocol):
    """
    What takes the messages of a connection.

    @ivar isIdle: Whether nothing is left to be answered.
    """

    @property
    def isIdle(self) -> bool: ...

    def received(self, payload: bytes, isBinary: bool) -> None:
        """
        Take a message.

        @param payload: The whole message, inflated; text is valid UTF-8.
        @param isBinary: Whether its opcode is that of bytes.
        """

    def whenIdle(self) -> Deferred[None]:
        """Wait until nothing is left to be answered."""

    def lost(self) -> None:
        """Take no more messages: the connection ends. Called once."""

    def forget(self) -> None:
        """Drop what refers to the connection, so that no cycle is left: it is gone."""
