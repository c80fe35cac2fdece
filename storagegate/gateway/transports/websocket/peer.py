"""
The peer of a WebSocket, which runs its calls.

L{MessagePeer} and L{BinaryPeer} decode messages, apply the user's hooks and feed the session.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed

from storagegate.core.codecs import CODECS
from storagegate.core.context import ClientInfo
from storagegate.core.errors import codedError
from storagegate.core.task import resolveThen
from storagegate.gateway.messages.frames import (
    ITEM,
    RESPONSE,
    FrameError,
    FrameWriter,
    decodeFrame,
    handleFrame,
)
from storagegate.gateway.messages.interfaces import MessageId, StreamHooks
from storagegate.gateway.messages.json import (
    CONTROLS,
    MAX_ANSWER,
    MessageWriter,
    handleMessage,
)
from storagegate.gateway.messages.session import PeerSession, RoutedSession
from storagegate.gateway.transports.websocket import PROTOCOL, WebSocketOptions
from storagegate.net.websocket.connection import WebSocketConnection

Headers = Mapping[str, str]


class WebSocketPeer:
    """
    The connection side of a peer.

    @ivar session: Its calls.
    """

    session: PeerSession
    sendMessage: Callable[[Any], None]

    def _connect(
        self, owner: Any, connection: WebSocketConnection, client: ClientInfo, headers: Headers
    ) -> None:
        self.client = client
        self.drained, self.setReading = connection.drained, connection.setReading
        options: WebSocketOptions = owner.options
        self._formatResponse = options.formatResponse
        hooks = options.handleStreaming
        streams = StreamHooks(self._relay, hooks.get("server"), hooks.get("client"))
        listener, route, peer = owner.listener, options.routeMessage, cast(Peer, self)
        if route is None:
            self.session = PeerSession(listener, peer, headers=headers, streamHooks=streams)
        else:
            self.session = RoutedSession(route, listener, peer, headers, streams)

    @property
    def isIdle(self) -> bool:
        """Return whether no call is in flight."""
        return self.session.isIdle

    def whenIdle(self) -> Deferred[None]:
        """Wait until no call is in flight."""
        return self.session.whenIdle()

    def lost(self) -> None:
        """Cancel all calls: the connection is lost."""
        self.session.close()

    def forget(self) -> None:
        """Drop the session, to break the cycle between the two: its calls may continue."""
        del self.session

    def _relay(self, message: Any) -> Deferred[None]:
        """Send a message that a hook produced for a stream."""
        self.sendMessage(message)
        return self.drained() or succeed(None)

    def _formatted(
        self, send: Callable[[Any], None], id: MessageId, method: str, result: Any
    ) -> Awaitable[None] | None:
        """Send a result as formatted by the hook."""
        assert self._formatResponse is not None
        sent = resolveThen(self._formatResponse(result, id, method), send)
        return sent if hasattr(sent, "__await__") else None


class MessagePeer(WebSocketPeer, MessageWriter):
    """A peer that exchanges messages: JSON as text, MessagePack as bytes."""

    def __init__(
        self,
        owner: Any,
        connection: WebSocketConnection,
        client: ClientInfo,
        headers: Headers,
        format: str,
    ) -> None:
        """
        @param owner: The transport,
            L{WebSocketTransport<storagegate.gateway.transports.websocket.listener.WebSocketTransport>}.
        @param headers: The fields of the handshake, names in lower case.
        @param format: The name of its codec.
        """
        codec = CODECS[format]
        send = connection.sendBinary if codec.isBinary else connection.sendText
        super().__init__(owner.host, PROTOCOL, codec, send)
        if owner.options.routeMessage is not None:
            self.take = _handleRouted
        self._connect(owner, connection, client, headers)


class FormattedMessagePeer(MessagePeer):
    """A L{MessagePeer} whose results the user's C{formatResponse} formats."""

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        return self._formatted(self.sendMessage, id, method, result)


def _handleRouted(session: PeerSession, writer: MessageWriter, message: Any) -> None:
    """Pass a message to the user's C{routeMessage}, unless it belongs to a call."""
    if isinstance(message, Mapping) and message.get("type") in CONTROLS:
        handleMessage(session, writer, message)
    else:
        session.request(message, None)


class BinaryPeer(WebSocketPeer, FrameWriter):
    """A peer that exchanges TCP frames, each in one binary message."""

    def __init__(
        self, owner: Any, connection: WebSocketConnection, client: ClientInfo, headers: Headers
    ) -> None:
        """Make the peer of a connection, see L{MessagePeer}."""
        super().__init__(owner.host, PROTOCOL, MAX_ANSWER, connection.sendBinary)
        self._connect(owner, connection, client, headers)
        self._maxMessageSize = owner.options.maxMessageSize

    def sendMessage(self, message: Any) -> None:
        """Send an item that a hook has formatted."""
        self._send(ITEM, message, message)

    def received(self, payload: bytes, isBinary: bool) -> None:
        """
        Receive a frame.

        @param payload: The whole message, inflated.
        @param isBinary: Whether it is a binary message.
        """
        try:
            if not isBinary:
                raise FrameError("INVALID_ARGUMENT", "Messages of this WebSocket are bytes")
            frame = decodeFrame(payload, self._maxMessageSize)
        except FrameError as error:
            self.sendError(None, codedError(error.code, str(error)))
        else:
            handleFrame(self.session, self, frame)

    def respond(self, id: MessageId, method: str, result: Any) -> Awaitable[None] | None:
        """Send a result."""
        if self._formatResponse is None:
            return super().respond(id, method, result)
        return self._formatted(self._sendResult, id, method, result)

    def _sendResult(self, message: Any) -> None:
        self._send(RESPONSE, message, message)


Peer = MessagePeer | BinaryPeer


def makePeer(
    owner: Any, connection: WebSocketConnection, client: ClientInfo, headers: Headers
) -> Peer:
    """
    Make the peer of a connection, in the format chosen by the handshake.

    @param owner: See L{MessagePeer}, also for C{headers}.
    """
    options: WebSocketOptions = owner.options
    format = connection.handshake.subprotocol or options.messageFormat
    if format == "binary":
        return BinaryPeer(owner, connection, client, headers)
    make = MessagePeer if options.formatResponse is None else FormattedMessagePeer
    return make(owner, connection, client, headers, format)
