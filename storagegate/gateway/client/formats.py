"""
The formats of messages, as a client reads and writes them.

A message has the type of a frame (L{storagegate.gateway.messages.frames}) in every format. JSON and
MessagePack name the types (L{storagegate.gateway.messages.json}).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from storagegate.core.codecs import INLINE_SIZE, JSON, MSGPACK, Codec
from storagegate.core.errors import CODES, ServiceError
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    GOING_AWAY,
    ITEM,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    Decoder,
    Frame,
    FrameDecoder,
    LineDecoder,
    decodeFrame,
    encodeFrame,
)
from storagegate.gateway.messages.interfaces import MessageId

UNKNOWN = 0
"""The type of a message in another shape, such as the shape of an application's hook."""


class Reply(Struct, frozen=True):
    """
    A message of the server.

    @ivar type: The type of its frame, or L{UNKNOWN}.
    @ivar id: The id of its call; C{None} without one.
    @ivar value: The result, the item, the L{ServiceError}, or the content of another message.
    @ivar size: The size of the message in bytes.
    @ivar seq: The number of an item over UDP; at the end, the number of items.
    """

    type: int
    id: MessageId
    value: Any
    size: int = 0
    seq: int | None = None


def readError(shape: Any, codeKey: str, status: int | None = None) -> ServiceError:
    """
    Read the error of a reply.

    @param shape: An object, perhaps from the application's C{transformError}.
    @param codeKey: The key of the code.
    @param status: The HTTP status; C{None} for the status of the code.
    """
    code, message, details = "UNKNOWN", "", shape
    if isinstance(shape, Mapping):
        message = str(shape.get("message", ""))
        if isinstance(shape.get(codeKey, ""), str):
            code, details = shape.get(codeKey, "UNKNOWN"), shape.get("details")
    known, grpcCode = CODES.get(code, (500, None))
    return ServiceError(code, message, known if status is None else status, details, grpcCode)


def readId(shape: Any) -> MessageId:
    """Return the id in a reply; C{None} if it has no usable one."""
    id = shape.get("id") if isinstance(shape, Mapping) else None
    return id if isinstance(id, str | int) else None


class MessageFormat(Protocol):
    """
    Encodes messages and decodes replies.

    @ivar isBinary: Whether messages are not text.
    """

    isBinary: bool

    def encode(self, type: int, content: Mapping[str, Any]) -> bytes:
        """
        Encode a message.

        @raise ValueError: If the content has a part that messages cannot carry.
        """

    def encodePong(self, ping: Reply) -> bytes:
        """Encode the reply to a ping."""

    def decode(self, data: bytes, maxLength: int) -> Reply:
        """
        Decode one whole message.

        @raise ValueError: If it is malformed or too long.
        """

    def makeDecoder(self, maxLength: int) -> Decoder:
        """Return a decoder that finds messages in a stream of bytes; see L{read}."""

    def read(self, found: Any) -> Reply:
        """
        Decode what the decoder found.

        @raise ValueError: If it is malformed.
        """


def _decodeJSON(data: bytes) -> Any:
    return JSON.decode(data) if len(data) <= INLINE_SIZE else JSON.decodeLarge(data)


class FrameFormat:
    """Frames with payloads in JSON."""

    isBinary = True

    def encode(self, type: int, content: Mapping[str, Any]) -> bytes:
        """Encode a frame."""
        return encodeFrame(type, JSON.encode(content))

    def encodePong(self, ping: Reply) -> bytes:
        """Encode a pong with the payload of the ping."""
        return encodeFrame(PONG, ping.value)

    def decode(self, data: bytes, maxLength: int) -> Reply:
        """Decode one frame."""
        return self.read(decodeFrame(data, maxLength))

    def makeDecoder(self, maxLength: int) -> FrameDecoder:
        """Return a decoder of frames."""
        return FrameDecoder(maxLength)

    def read(self, found: Frame) -> Reply:
        """Decode the payload of a frame."""
        type, data = found.type, found.payload
        if type in (PING, PONG):
            return Reply(type, None, data, len(data))
        payload = _decodeJSON(data or b"{}")
        id, seq = readId(payload), None
        value: Any = payload
        if type == ERROR:
            value = readError(payload, "error")
        elif id is not None:
            value, seq = payload.get("data"), payload.get("seq")
        return Reply(type, id, value, len(data), seq if isinstance(seq, int) else None)


_TYPES = {
    "response": RESPONSE,
    "stream": ITEM,
    "stream_end": END,
    "error": ERROR,
    "ping": PING,
    "pong": PONG,
    "going_away": GOING_AWAY,
}

_NAMES = {CLIENT_ITEM: "stream", CLIENT_END: "stream_end", CANCEL: "cancel"}


class ObjectFormat:
    """
    Messages as objects: JSON or MessagePack.

    @ivar isBinary: Whether messages are not text.
    """

    def __init__(self, codec: Codec, ending: bytes = b"") -> None:
        """@param ending: Ends each message in a stream of bytes."""
        self.isBinary = codec.isBinary
        self._codec = codec
        self._ending = ending

    def encode(self, type: int, content: Mapping[str, Any]) -> bytes:
        """Encode a message."""
        named = content if type == REQUEST else {"type": _NAMES[type], **content}
        return self._codec.encode(named) + self._ending

    def encodePong(self, ping: Reply) -> bytes:
        """Encode a pong with the data of the ping."""
        pong = {"id": ping.id, "type": "pong", "data": ping.value}
        return self._codec.encode(pong) + self._ending

    def decode(self, data: bytes, maxLength: int) -> Reply:
        """Decode one message."""
        if len(data) > maxLength:
            raise ValueError(f"A message has {maxLength} bytes at most")
        return self.read(data)

    def makeDecoder(self, maxLength: int) -> LineDecoder:
        """Return a decoder of lines."""
        return LineDecoder(maxLength)

    def read(self, found: bytes) -> Reply:
        """Decode a message."""
        shape = self._codec.decode(found) if self.isBinary else _decodeJSON(found)
        isObject = isinstance(shape, Mapping)
        name = shape.get("type") if isObject else None
        type = _TYPES.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
        value = shape
        if type == ERROR:
            value = readError(shape.get("error"), "code")
        elif type != UNKNOWN:
            value = shape.get("data")
        return Reply(type, readId(shape), value, len(found))


FRAMES = FrameFormat()

WEBSOCKET_FORMATS: Mapping[str, MessageFormat] = {
    "json": ObjectFormat(JSON),
    "binary": FRAMES,
    "msgpack": ObjectFormat(MSGPACK),
}
"""The formats of WebSocket by subprotocol."""

TCP_FORMATS: Mapping[str, MessageFormat] = {"frames": FRAMES, "lines": ObjectFormat(JSON, b"\n")}
"""The formats of TCP."""
