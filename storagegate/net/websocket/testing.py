"""The client side of an in-memory WebSocket, for tests."""

import json as standardJSON
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.interfaces import IProtocol
from twisted.internet.task import Clock

from storagegate.net.testing import MemoryConnection
from storagegate.net.websocket.connection import AUTOBAHN_LOG


class NoMessage(AssertionError):
    """A test reads a message, but none has arrived."""


class _ClientProtocol(WebSocketClientProtocol):
    """Autobahn's client, which keeps the response to the handshake and the messages."""

    log = AUTOBAHN_LOG

    def __init__(self, reading: bool) -> None:
        super().__init__()
        self._reading = reading
        self.response = b""
        self.messages: deque[str | bytes] = deque()
        self.isOpened = False

    def dataReceived(self, data: bytes) -> None:
        if not self.isOpened:
            self.response += data
            if not self.response.startswith(b"HTTP/1.1 101 "):
                # Autobahn would stop reading at the status.
                return
        super().dataReceived(data)

    def onOpen(self) -> None:
        self.isOpened = True
        if not self._reading:
            transport: Any = self.transport
            transport.pauseProducing()

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.messages.append(payload if isBinary else payload.decode())


class TestWebSocket:
    """
    A WebSocket of a test client.

    The server handles messages before the call returns, as far as it does not wait; use C{advance}
    of the client for the rest.

    @ivar response: The raw response to the handshake.
    """

    __test__ = False

    def __init__(
        self,
        protocol: IProtocol,
        settle: Callable[[], None],
        clock: Clock,
        url: str,
        *,
        address: str,
        headers: Mapping[str, str],
        subprotocols: Sequence[str],
        reading: bool,
        watch: Callable[[MemoryConnection], None],
    ) -> None:
        """
        @param protocol: The server's side.
        @param settle: Delivers bytes in transit, and runs due calls.
        @param address: The IP address of the client.
        @param headers: Further fields of the handshake.
        @param reading: Whether the client reads after the handshake.
        @param watch: Called with the connection before use.
        """
        secure = url.startswith("wss:")
        fields = dict(headers)
        factory = WebSocketClientFactory(url, headers=fields, reactor=clock, useragent="")
        if subprotocols:
            factory.setSessionParameters(url, headers=fields, protocols=list(subprotocols))
        factory.log = AUTOBAHN_LOG
        factory._batched_timer = SimpleNamespace(call_later=clock.callLater)
        factory.setProtocolOptions(
            openHandshakeTimeout=0, closeHandshakeTimeout=0, serverConnectionDropTimeout=0
        )
        self._client = client = _ClientProtocol(reading)
        client.factory = factory
        self._settle = settle
        self._connection = MemoryConnection(protocol, client, address, secure)
        watch(self._connection)
        settle()

    @property
    def response(self) -> bytes:
        """Return the response to the handshake."""
        return self._client.response

    @property
    def isOpen(self) -> bool:
        """Return whether messages can be sent."""
        return bool(self._client.state == self._client.STATE_OPEN) and not self._connection.isOver

    @property
    def isAccepted(self) -> bool:
        """Return whether the request has become a WebSocket."""
        return self._client.isOpened

    @property
    def subprotocol(self) -> str | None:
        """Return the negotiated subprotocol."""
        subprotocol: str | None = self._client.websocket_protocol_in_use
        return subprotocol

    @property
    def closeCode(self) -> int | None:
        """Return the code of the server's close; C{None} before the close, or if it has no code."""
        code: int | None = self._client.remoteCloseCode
        return code

    @property
    def closeReason(self) -> str:
        """Return the text of the server's close."""
        return self._client.remoteCloseReason or ""

    @property
    def isGone(self) -> bool:
        """Return whether the connection has ended."""
        return self._connection.isOver

    def take(self) -> list[str | bytes]:
        """Return unread messages, without delivering more, and mark them as read."""
        found = list(self._client.messages)
        self._client.messages.clear()
        return found

    @property
    def messages(self) -> list[str | bytes]:
        """Return unread messages."""
        self._settle()
        return list(self._client.messages)

    def send(self, message: str | bytes) -> None:
        """
        Send a message.

        @param message: Text or bytes.
        """
        isBinary = not isinstance(message, str)
        payload = message if isinstance(message, bytes) else message.encode()
        self._client.sendMessage(payload, isBinary)
        self._settle()

    def sendJSON(self, value: Any) -> None:
        """Send a value as JSON, in a text message."""
        self.send(standardJSON.dumps(value))

    def receive(self) -> str | bytes:
        """
        Return the next message.

        @raise NoMessage: If none has arrived.
        """
        self._settle()
        if not self._client.messages:
            raise NoMessage(
                f"the WebSocket was closed with {self.closeCode} {self.closeReason}".rstrip()
                if self.isGone or self.closeCode is not None
                else "no message has come; client.advance(seconds) lets time pass"
            )
        return self._client.messages.popleft()

    def receiveJSON(self) -> Any:
        """Return the next message, decoded as JSON."""
        return standardJSON.loads(self.receive())

    def setReading(self, wanted: bool) -> None:
        """
        Resume or pause reading; when paused, the server has to wait after 64 KiB.

        @param wanted: Whether it reads.
        """
        self._connection.setReading(wanted)
        self._settle()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the WebSocket."""
        self._client.sendClose(code, reason or None)
        self._settle()

    def drop(self) -> None:
        """End the connection without a close."""
        self._connection.drop()
        self._settle()
