"""The peer at the end of a WebSocket: its messages, its calls, and the hooks of the user."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed

from storagegate.core.codecs import CODECS
from storagegate.core.context import ClientInfo
from storagegate.core.errors import codedError
from storagegate.gateway.host import TransportContext
from storagegate.gateway.messages.frames import (
    ITEM,
    RESPONSE,
    FrameDecoder,
    FrameError,
    FrameWriter,
    handleFrame,
)
from storagegate.gateway.messages.interfaces import ListenerState, MessageId, StreamHooks
from storagegate.gateway.messages.json import (
    CONTROLS,
    MAX_ANSWER,
    MessageWriter,
    handleMessage,
    takeEncoded,
)
from storagegate.gateway.messages.session import PeerSession, RoutedSession
from storagegate.gateway.transports.websocket import WebSocketOptions
from storagegate.gateway.transports.websocket.connection import WebSocketConnection

PROTOCOL = "websocket"


class _Connected:
    """
    The half of a peer that is the wire.

    @ivar session: Its calls.
    """

    client: ClientInfo
    session: PeerSession
    sendMessage: Callable[[Any], None]
    _wire: WebSocketConnection

    def _connect(
        self,
        wire: WebSocketConnection,
        listener: ListenerState,
        client: ClientInfo,
        headers: Mapping[str, str],
        options: WebSocketOptions,
    ) -> None:
        self.client = client
        self._wire = wire
        self._formatResponse = options.formatResponse
        hooks = options.handleStreaming
        streams = StreamHooks(self._relay, hooks.get("server"), hooks.get("client"))
        peer: Any = self
        if options.routeMessage is None:
            self.session = PeerSession(listener, peer, headers=headers, streamHooks=streams)
        else:
            self.session = RoutedSession(options.routeMessage, listener, peer, headers, streams)

    @property
    def isIdle(self) -> bool:
        """Tell whether no call is in flight."""
        return self.session.isIdle

    def drained(self) -> Deferred[None] | None:
        """Wait until the peer has read enough; C{None} if it has."""
        return self._wire.drained()

    def setReading(self, wanted: bool) -> None:
        """Read on, or let the peer wait."""
        self._wire.setReading(wanted)

    def lost(self) -> None:
        """Cancel everything."""
        self.session.close()

    def _relay(self, message: Any) -> Deferred[None]:
        """Send a message that a hook made of a stream."""
        self.sendMessage(message)
        return self.drained() or succeed(None)

    def _formatted(
        self, send: Callable[[Any], None], id: MessageId, method: str, result: Any
    ) -> Awaitable[None] | None:
        """Send what the hook makes of a result."""
        assert self._formatResponse is not None
        message = self._formatResponse(result, id, method)
        if hasattr(message, "__await__"):
            return _sendLater(send, message)
        send(message)
        return None


async def _sendLater(send: Callable[[Any], None], message: Awaitable[Any]) -> None:
    send(await message)


class MessagePeer(_Connected, MessageWriter):
    """A peer that speaks messages: JSON as text, MessagePack as bytes."""

    def __init__(
        self,
        host: TransportContext,
        options: WebSocketOptions,
        format: str,
        wire: WebSocketConnection,
        listener: ListenerState,
        client: ClientInfo,
        headers: Mapping[str, str],
    ) -> None:
        codec = CODECS[format]
        super().__init__(
            host, PROTOCOL, codec, wire.sendBinary if codec.isBinary else wire.sendText
        )
        self._connect(wire, listener, client, headers, options)
        self._isRouted = options.routeMessage is not None

    def received(self, payload: bytes, isBinary: bool) -> None:
        """Take a message."""
        codec = self._codec
        if isBinary != codec.isBinary:
            kind = "bytes" if codec.isBinary else "text"
            error = codedError("INVALID_ARGUMENT", f"Messages of this WebSocket are {kind}")
            self.sendError(None, error)
        elif self._isRouted:
            takeEncoded(self.session, self, codec, payload, _takeRouted)
        else:
            takeEncoded(self.session, self, codec, payload)

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        if self._formatResponse is None:
            return super().respond(id, method, result)
        return self._formatted(self.sendMessage, id, method, result)


def _takeRouted(session: PeerSession, writer: MessageWriter, message: Any) -> None:
    """Take a message that the user's hook understands, unless it goes on with a call."""
    if isinstance(message, Mapping) and message.get("type") in CONTROLS:
        handleMessage(session, writer, message)
    else:
        session.request(message, None)


class BinaryPeer(_Connected, FrameWriter):
    """A peer that speaks the frames of TCP, each in a message of bytes."""

    def __init__(
        self,
        host: TransportContext,
        options: WebSocketOptions,
        wire: WebSocketConnection,
        listener: ListenerState,
        client: ClientInfo,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(host, PROTOCOL, MAX_ANSWER, wire.sendBinary)
        self._connect(wire, listener, client, headers, options)
        self._maxMessageSize = options.maxMessageSize

    def sendMessage(self, message: Any) -> None:
        """Send what a hook made of an item."""
        self._send(ITEM, message)

    def received(self, payload: bytes, isBinary: bool) -> None:
        """Take a frame."""
        if not isBinary:
            self._refuse("INVALID_ARGUMENT", "Messages of this WebSocket are bytes")
            return
        decoder = FrameDecoder(self._maxMessageSize)
        decoder.feed(payload)
        try:
            frame = decoder.next()
        except FrameError as error:
            self._refuse(error.code, str(error))
            return
        if frame is None or decoder.held:
            self._refuse("INVALID_ARGUMENT", "A message is one frame")
        else:
            handleFrame(self.session, self, frame)

    def _refuse(self, code: str, message: str) -> None:
        self.sendError(None, codedError(code, message))

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        if self._formatResponse is None:
            return super().respond(id, method, result)
        return self._formatted(partial(self._send, RESPONSE), id, method, result)
