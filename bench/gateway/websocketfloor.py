"""
The floor of the gateway's WebSocket: frames of RFC 6455 whose JSON is read and written again.

    python -m bench.gateway.websocketfloor PORT

Text that comes in one frame is parsed and sent back. There are no pings, fragments, compression,
limits, ids, services or metrics.
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

from twisted.internet.protocol import Factory, Protocol

from bench.directwrites import serve

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT = 0x81
_CLOSE = 8
_KEY = b"sec-websocket-key:"


def unmask(payload: bytes, key: bytes) -> bytes:
    """Take the mask off: one exclusive or of two long numbers."""
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return number.to_bytes(size, "big")


def frame(payload: bytes) -> bytes:
    """Write a text as a server's frame."""
    size = len(payload)
    if size < 126:
        return bytes((_TEXT, size)) + payload
    if size < 1 << 16:
        return bytes((_TEXT, 126)) + size.to_bytes(2, "big") + payload
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + payload


class Connection(Protocol):
    """A connection, first of HTTP and then of messages."""

    _received = b""
    _isOpen = False

    def connectionMade(self) -> None:
        """Send small answers at once."""
        self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        """Answer each message that is complete."""
        if self._received:
            data = self._received + data
        if not self._isOpen:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._received = data
                return
            self._shakeHands(data[:end])
            data = data[end + 4 :]
        position, size, answers = 0, len(data), []
        while size - position >= 6:
            length, start = data[position + 1] & 127, position + 2
            if length == 126:
                length, start = int.from_bytes(data[start : start + 2], "big"), start + 2
            elif length == 127:
                length, start = int.from_bytes(data[start : start + 8], "big"), start + 8
            end = start + 4 + length
            if size < end:
                break
            if data[position] & 15 == _CLOSE:
                self.transport.loseConnection()
                return
            text = unmask(data[start + 4 : end], data[start : start + 4])
            answers.append(frame(json.dumps(json.loads(text.decode())).encode()))
            position = end
        self._received = data[position:]
        if answers:
            self.transport.write(b"".join(answers))

    def _shakeHands(self, head: bytes) -> None:
        """Accept a handshake."""
        start = head.lower().find(_KEY) + len(_KEY)
        key = head[start:].partition(b"\r\n")[0].strip()
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept
        )
        self._isOpen = True


def main(port: int) -> None:
    """Serve until the end."""
    serve(port, Factory.forProtocol(Connection))


if __name__ == "__main__":
    main(int(sys.argv[1]))
