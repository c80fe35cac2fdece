"""Calls over WebSocket, in JSON."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet.defer import Deferred

from storagegate.console.callers.http import checkedFields
from storagegate.console.callers.interfaces import (
    CONNECT_SECONDS,
    MAX_BYTES,
    Answer,
    CallTarget,
    MethodCall,
    cut,
    tooLarge,
)
from storagegate.console.callers.messages import (
    TRACE_FIELDS,
    Message,
    converse,
    makeReceived,
    newId,
)
from storagegate.core.codecs import JSON
from storagegate.core.errors import codedError
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    ITEM,
    RESPONSE,
)
from storagegate.net.websocket.connection import AUTOBAHN_LOG

_OUT = {CLIENT_ITEM: "stream", CLIENT_END: "stream_end", CANCEL: "cancel"}

_IN = {"response": RESPONSE, "stream": ITEM, "stream_end": END, "error": ERROR}

_TOO_BIG = 1009
"""The close code for a message that is too large (RFC 6455, section 7.4.1)."""


class CallingWebSocket(WebSocketClientProtocol):
    """
    A WebSocket connection.

    @ivar received: The received messages.
    @ivar opened: Fires when messages may be sent; fails with the reason of a refusal.
    """

    log = AUTOBAHN_LOG

    def __init__(self) -> None:
        super().__init__()
        self.received = makeReceived()
        self.opened: Deferred[None] = Deferred()
        self._isOpened = False

    def onOpen(self) -> None:
        """Allow messages to be sent."""
        self._open(None)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        """Process a message."""
        try:
            shape = JSON.decode(payload)
        except ValueError:
            shape = payload.decode("utf-8", "replace")
        type = _IN.get(shape.get("type", "")) if isinstance(shape, Mapping) else None
        if type is None:
            # The application's formatResponse wrote it.
            self.received.put(Message(RESPONSE, shape, len(payload)))
        elif type == ERROR:
            error = dict(shape.get("error") or {})
            error["error"] = error.pop("code", "UNKNOWN")
            self.received.put(Message(ERROR, error, len(payload)))
        else:
            self.received.put(Message(type, shape.get("data"), len(payload)))

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:
        """End the call."""
        text = f"The handshake was refused: {reason or code}"
        self._open(codedError("UNAVAILABLE", f"{text:.300}"))
        self.received.end(tooLarge() if self.localCloseCode == _TOO_BIG else cut())

    def _open(self, error: Exception | None) -> None:
        if not self._isOpened:
            self._isOpened = True
            self.opened.callback(None) if error is None else self.opened.errback(error)

    async def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a message."""
        if type in _OUT:
            message = {**message, "type": _OUT[type]}
        self.sendMessage(JSON.encode(message))

    def close(self) -> None:
        """Close the connection."""
        self.sendClose(1000)


async def makeCall(target: CallTarget, call: MethodCall) -> AsyncGenerator[Answer]:
    """
    Call a method.

    @raise ServiceError: See L{storagegate.console.callers.interfaces}.
    """
    named = {
        name: value for name, value in call.metadata.items() if name.lower() not in TRACE_FIELDS
    }
    scheme = "wss" if target.isSecure else "ws"
    # Autobahn writes an IPv6 address without brackets.
    port = getattr(target.address, "port", 80)
    url = f"{scheme}://localhost:{port}{target.path}"
    factory = WebSocketClientFactory(
        url,
        headers=checkedFields(named),
        protocols=["json"],
        useragent="storagegate-console",
        reactor=target.reactor,
    )
    factory.log = AUTOBAHN_LOG
    # Autobahn's own timer would keep the reactor awake.
    factory._batched_timer = SimpleNamespace(call_later=target.reactor.callLater)
    factory.setProtocolOptions(
        maxMessagePayloadSize=MAX_BYTES,
        maxFramePayloadSize=MAX_BYTES,
        # Close with a code on a message that is too large.
        failByDrop=False,
        openHandshakeTimeout=CONNECT_SECONDS,
        closeHandshakeTimeout=1,
    )
    factory.protocol = CallingWebSocket
    factory.noisy = False
    peer: CallingWebSocket = await target.secured.connect(factory)
    try:
        await peer.opened
    except BaseException:
        peer.dropConnection(abort=True)
        raise
    async with aclosing(converse(peer, call, newId())) as answers:
        async for answer in answers:
            yield answer
