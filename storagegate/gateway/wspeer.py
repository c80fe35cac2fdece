"""The peer at the end of a WebSocket: its messages, its calls, and the hooks of the user."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed

from storagegate.core.context import Client
from storagegate.core.errors import codedError
from storagegate.gateway.codecs import CODECS
from storagegate.gateway.framemessages import FrameWriter, takeFrame
from storagegate.gateway.frames import ITEM, RESPONSE, FrameDecoder, FrameError
from storagegate.gateway.host import GatewayHost
from storagegate.gateway.options import WebSocketOptions
from storagegate.gateway.peers import Listener, StreamHooks
from storagegate.gateway.routedsession import RoutedSession
from storagegate.gateway.session import Session
from storagegate.gateway.shapes import MessageId
from storagegate.gateway.wsmessages import (
    CONTROLS,
    MAX_ANSWER,
    MessageWriter,
    takeEncoded,
    takeMessage,
)
from storagegate.gateway.wswire import Wire

PROTOCOL = "websocket"


class _Connected:
    """
    The half of a peer that is the wire.

    @ivar session: Its calls.
    """

    client: Client
    session: Session
    sendMessage: Callable[[Any], None]
    _wire: Wire

    def _connect(
        self,
        wire: Wire,
        listener: Listener,
        client: Client,
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
            self.session = Session(listener, peer, headers=headers, streamHooks=streams)
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
        host: GatewayHost,
        options: WebSocketOptions,
        format: str,
        wire: Wire,
        listener: Listener,
        client: Client,
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


def _takeRouted(session: Session, writer: MessageWriter, message: Any) -> None:
    """Take a message that the user's hook understands, unless it goes on with a call."""
    if isinstance(message, Mapping) and message.get("type") in CONTROLS:
        takeMessage(session, writer, message)
    else:
        session.request(message, None)


class FramePeer(_Connected, FrameWriter):
    """A peer that speaks the frames of TCP, each in a message of bytes."""

    def __init__(
        self,
        host: GatewayHost,
        options: WebSocketOptions,
        wire: Wire,
        listener: Listener,
        client: Client,
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
            takeFrame(self.session, self, frame)

    def _refuse(self, code: str, message: str) -> None:
        self.sendError(None, codedError(code, message))

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        if self._formatResponse is None:
            return super().respond(id, method, result)
        return self._formatted(partial(self._send, RESPONSE), id, method, result)
