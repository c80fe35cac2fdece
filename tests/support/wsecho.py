"""WebSockets that say everything again: what the framing is tested with."""

from typing import Any

from storagegate.gateway.transports.websocket.listener import WebSocketTransport


class Echo:
    """
    Whoever uses a wire, and says everything again.

    @ivar isLost: Whether it was told of the end.
    """

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.isLost = False

    def received(self, payload: bytes, isBinary: bool) -> None:
        """Say it again."""
        assert not self.isLost, "told after the end"
        (self.wire.sendBinary if isBinary else self.wire.sendText)(payload)

    def lost(self) -> None:
        """Take note."""
        assert not self.isLost, "told twice"
        self.isLost = True

    def forget(self) -> None:
        """Forget the wire."""
        del self.wire


class EchoAdapter(WebSocketTransport):
    """
    The adapter, with nothing but framing behind it.

    @ivar latest: The peer of the last connection.
    """

    latest: Any = None

    def _makePeer(self, wire: Any, client: Any, headers: Any) -> Any:
        self.latest = Echo(wire)
        return self.latest
