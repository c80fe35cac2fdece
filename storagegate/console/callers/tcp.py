"""Calls over TCP, in frames."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from storagegate.console.callers.interfaces import (
    MAX_BYTES,
    Answer,
    CallTarget,
    MethodCall,
    cut,
    tooLarge,
)
from storagegate.console.callers.messages import (
    Message,
    checkMetadata,
    converse,
    makeReceived,
    newId,
    readFrame,
)
from storagegate.core.codecs import JSON
from storagegate.core.errors import codedError
from storagegate.core.streams import BoundedStream
from storagegate.gateway.messages.frames import (
    END,
    ERROR,
    ITEM,
    RESPONSE,
    FrameDecoder,
    FrameError,
    encodeFrame,
)


class FrameClient(Protocol):
    """
    A connection over TCP.

    @ivar received: The received messages.
    """

    def __init__(self, id: str) -> None:
        """@param id: The id of the call."""
        self.received: BoundedStream[Message] = makeReceived()
        self._id = id
        self._decoder = FrameDecoder(MAX_BYTES)
        self._full: Deferred[None] | None = None

    def connectionMade(self) -> None:
        """Register for back pressure."""
        self.transport.registerProducer(self, True)  # type: ignore[union-attr]

    async def write(self, type: int, message: dict[str, Any]) -> None:
        """Send a frame, and wait while the connection is full."""
        if self._full is not None:
            await self._full
        self.transport.write(encodeFrame(type, JSON.encode(message)))  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        """Decode the complete frames."""
        self._decoder.feed(data)
        try:
            while (frame := self._decoder.next()) is not None:
                if frame.type in (RESPONSE, ERROR, ITEM, END):
                    self.received.put(readFrame(frame, self._id))
        except FrameError as error:
            isLarge = error.code == "PAYLOAD_TOO_LARGE"
            self.received.end(tooLarge() if isLarge else codedError("UNAVAILABLE", str(error)))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End the call."""
        self.resumeProducing()
        self.received.end(cut(reason.value))

    def pauseProducing(self) -> None:
        """Stop sending."""
        self._full = Deferred()

    def resumeProducing(self) -> None:
        """Resume sending."""
        full, self._full = self._full, None
        if full is not None:
            full.callback(None)

    stopProducing = resumeProducing

    def close(self) -> None:
        """Close the connection after all data is sent."""
        self.transport.unregisterProducer()  # type: ignore[union-attr]
        self.transport.loseConnection()  # type: ignore[union-attr]


async def makeCall(target: CallTarget, call: MethodCall) -> AsyncGenerator[Answer]:
    """
    Call a method.

    @raise ServiceError: See L{storagegate.console.callers.interfaces}.
    """
    checkMetadata(call.metadata)
    id = newId()
    factory = Factory.forProtocol(partial(FrameClient, id))
    factory.noisy = False
    peer: FrameClient = await target.secured.connect(factory)
    async with aclosing(converse(peer, call, id)) as answers:
        async for answer in answers:
            yield answer
