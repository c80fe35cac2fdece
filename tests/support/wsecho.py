"""WebSocket echo peers, for tests of the framing."""

from typing import Any

from storagegate.gateway.transports.websocket.listener import WebSocketTransport


class Echo:
    """
    A peer that echoes every message.

    @ivar isLost: Whether it was notified of the end.
    """

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.isLost = False

    def received(self, payload: bytes, isBinary: bool) -> None:
        """Echo a message."""
        assert not self.isLost, "told after the end"
        (self.wire.sendBinary if isBinary else self.wire.sendText)(payload)

    def lost(self) -> None:
        """Record the end."""
        assert not self.isLost, "told twice"
        self.isLost = True

    def forget(self) -> None:
        """Drop the reference to the connection."""
        del self.wire


class EchoAdapter(WebSocketTransport):
    """
    The adapter with only framing behind it.

    @ivar latest: The peer of the last connection.
    """

    latest: Any = None

    def _makePeer(self, wire: Any, client: Any, headers: Any) -> Any:
        self.latest = Echo(wire)
        return self.latest
