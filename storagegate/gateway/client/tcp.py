"""Calls over TCP, in frames or lines of JSON."""

from contextlib import suppress
from functools import partial
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.errors import codedError
from storagegate.core.streams import SharedFuture
from storagegate.gateway.client.connections import CallMultiplexer, ReconnectingTransport
from storagegate.gateway.client.formats import TCP_FORMATS
from storagegate.gateway.client.transports import CONNECT_SECONDS, ClientTarget, tooLarge
from storagegate.gateway.messages.frames import FrameError
from storagegate.net.http.clientconnection import openConnection


@implementer(IHandshakeListener)
class TCPClientConnection(Protocol):
    """
    A connection to a gateway over TCP or TLS.

    @ivar calls: The calls of the connection.
    """

    def __init__(self, target: ClientTarget) -> None:
        self._format = TCP_FORMATS[target.format or "frames"]
        self._limit = target.maxMessageBytes
        self._decoder: Any = self._format.makeDecoder(target.maxMessageBytes)
        self._handshake: SharedFuture[None] = SharedFuture()
        self.calls = CallMultiplexer(self, self._format)

    def connectionMade(self) -> None:
        """Register for back pressure."""
        transport: Any = self.transport
        # A UNIX socket has neither.
        with suppress(OSError):
            transport.setTcpNoDelay(True)
            # Nothing else detects a machine that vanishes during a silent stream.
            transport.setTcpKeepAlive(True)
        transport.registerProducer(self.calls, True)

    def whenSecure(self) -> Any:
        """Wait for the end of the handshake."""
        return self._handshake.wait(self.abort)

    def handshakeCompleted(self) -> None:
        """Record the end of the handshake."""
        self._handshake.set(None)

    def dataReceived(self, data: bytes) -> None:
        """Handle the complete messages."""
        self._decoder.feed(data)
        try:
            while (found := self._decoder.next()) is not None:
                if found:
                    self.calls.receive(self._format.read(found))
        except FrameError as error:
            isLarge = error.code == "PAYLOAD_TOO_LARGE"
            self.calls.fail(
                tooLarge(self._limit) if isLarge else codedError("UNAVAILABLE", str(error))
            )
        except ValueError as error:
            self.calls.fail(codedError("UNAVAILABLE", f"The reply is malformed: {error!s:.200}"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the calls."""
        self._handshake.fail(reason.value or ConnectionDone())
        self.calls.lost(reason.value)

    # For the calls

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.transport.write(data)  # type: ignore[union-attr]

    def setReading(self, wanted: bool) -> None:
        """Resume or pause reading."""
        transport: Any = self.transport
        transport.resumeProducing() if wanted else transport.pauseProducing()

    def leave(self) -> None:
        """Close the connection after all data is sent."""
        transport: Any = self.transport
        transport.unregisterProducer()
        transport.loseConnection()

    def abort(self) -> None:
        """Close the connection immediately."""
        self.transport.abortConnection()  # type: ignore[union-attr]


def makeTransport(target: ClientTarget) -> ReconnectingTransport:
    """
    Make the transport.

    @raise ValueError: If there is no such format.
    """
    if target.format not in ("", *TCP_FORMATS):
        raise ValueError(f"TCP speaks {' or '.join(TCP_FORMATS)}, not {target.format!r}")
    factory = Factory.forProtocol(partial(TCPClientConnection, target))
    factory.noisy = False

    async def connect() -> CallMultiplexer:
        connection: TCPClientConnection = await openConnection(
            target.endpoint, target.reactor, CONNECT_SECONDS, target.context, factory=factory
        )
        return connection.calls

    return ReconnectingTransport(connect)
