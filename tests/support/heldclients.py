"""
Sends messages that never end: C{python -m tests.support.heldclients KIND PORT}.

Opens many connections, each of which holds back the last byte of its message. When no more bytes
move, it prints the number of each refusal as one line of JSON; C{"open"} counts connections without
a refusal. It then keeps them open until it is killed.
"""

import json
import re
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.support.h2client import FRAME_LENGTH, HEAD_LENGTH, PREFACE, WINDOW
from tests.support.wsclient import KEY

MIB = 1024 * 1024

_ZEROS = memoryview(bytes(256 * 1024))

_SETTLED = 2.0
"""Seconds without any progress."""

_CLOSE = 0x88
"""The first byte of a WebSocket close frame."""


GUARDED = {
    "name": "Guarded",
    "authentication": {"required": True},
    "methods": {"echo": lambda request, context: request},
}
"""A service that requires a token."""


class Sender:
    """
    A connection whose message is all zeros after its start.

    @ivar refusal: The server's refusal; empty before it.
    """

    def __init__(self, port: int, opening: bytes, size: int) -> None:
        """@param size: Size of the message after the opening, without its last byte."""
        self.refusal = ""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._unsent = opening
        self._left = size
        self.received = b""

    def next(self) -> bytes | memoryview:
        """Return bytes that may be sent now."""
        return self._unsent or _ZEROS[: self._left]

    def sent(self, size: int) -> None:
        """Drop the bytes that were sent."""
        if self._unsent:
            self._unsent = self._unsent[size:]
        else:
            self._left -= size

    def read(self, data: bytes) -> None:
        """Process bytes from the server."""
        self.received += data
        self.refusal = self.readRefusal() or self.refusal

    def readRefusal(self) -> str:
        """Return the name of the refusal; empty without one."""
        raise NotImplementedError


class Body(Sender):
    """An HTTP body."""

    size = 10 * MIB
    path = b"/api/Echo/echo"

    def __init__(self, port: int) -> None:
        head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % self.path
        head += b"Content-Length: %d\r\n\r\n" % self.size
        super().__init__(port, head, self.size - 1)

    def readRefusal(self) -> str:
        """Return the status code."""
        match = re.match(rb"HTTP/1.1 (\d+) ", self.received)
        return match[1].decode() if match else ""


class Message(Sender):
    """A WebSocket message."""

    size = MIB

    def __init__(self, port: int) -> None:
        opening = (
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n\r\n"
        )
        opening += struct.pack(">BBQ4x", 0x82, 0x80 | 127, self.size)
        super().__init__(port, opening, self.size - 1)

    def readRefusal(self) -> str:
        """Return the close code."""
        _, _, frames = self.received.partition(b"\r\n\r\n")
        isClosed = len(frames) >= 4 and frames[0] == _CLOSE
        return str(struct.unpack_from(">H", frames, 2)[0]) if isClosed else ""


class TCPFrame(Sender):
    """A TCP frame."""

    size = 15 * MIB

    def __init__(self, port: int) -> None:
        super().__init__(port, struct.pack(">BBI", 1, 1, self.size), self.size - 1)

    def readRefusal(self) -> str:
        """Return the error code."""
        match = re.search(rb'"error":"(\w+)"', self.received)
        return match[1].decode() if match else ""


class Call(Sender):
    """A connection with gRPC calls, which respects the flow control windows."""

    size = 4 * MIB
    calls = 1
    path = "/Echo/echo"

    def __init__(self, port: int) -> None:
        opening = PREFACE + SettingsFrame(0).serialize()
        encoder, self._decoder = Encoder(), Decoder()
        fields = [(":method", "POST"), (":scheme", "http"), (":path", self.path)]
        fields += [(":authority", "localhost")]
        fields += [("content-type", "application/grpc"), ("te", "trailers")]
        self._lefts: dict[int, int] = {}
        self._windows: dict[int, int] = {}
        for number in range(1, 2 * self.calls, 2):
            data = encoder.encode(fields)
            opening += HeadersFrame(number, data=data, flags=["END_HEADERS"]).serialize()
            head = struct.pack(">BI", 0, self.size)
            opening += DataFrame(number, data=head).serialize()
            self._lefts[number] = self.size - 1
            self._windows[number] = WINDOW - len(head)
        self._window = WINDOW - 5 * self.calls
        self._streamWindow = WINDOW
        super().__init__(port, opening, 0)

    def next(self) -> bytes | memoryview:
        """Return the next frame that fits the windows."""
        if not self._unsent:
            for number, left in self._lefts.items():
                size = min(left, self._window, self._windows[number], FRAME_LENGTH)
                if size > 0:
                    self._lefts[number] -= size
                    self._windows[number] -= size
                    self._window -= size
                    self._unsent = DataFrame(number, data=bytes(size)).serialize()
                    break
        return self._unsent

    def readRefusal(self) -> str:
        """Process complete frames; return the status."""
        found = ""
        while len(self.received) >= HEAD_LENGTH:
            frame, length = Frame.parse_frame_header(memoryview(self.received[:HEAD_LENGTH]))
            end = HEAD_LENGTH + length
            if len(self.received) < end:
                break
            frame.parse_body(memoryview(self.received[HEAD_LENGTH:end]))
            self.received = self.received[end:]
            if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
                window = frame.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, self._streamWindow)
                for number in self._windows:
                    self._windows[number] += window - self._streamWindow
                self._streamWindow = window
                self._unsent += SettingsFrame(0, flags=["ACK"]).serialize()
            elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
                pong = PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"])
                self._unsent += pong.serialize()
            elif isinstance(frame, WindowUpdateFrame) and frame.stream_id == 0:
                self._window += frame.window_increment
            elif isinstance(frame, WindowUpdateFrame):
                self._windows[frame.stream_id] += frame.window_increment
            elif isinstance(frame, HeadersFrame):
                found = str(dict(self._decoder.decode(frame.data)).get("grpc-status", found))
                self._lefts.pop(frame.stream_id, None)
            elif isinstance(frame, RstStreamFrame):
                self._lefts.pop(frame.stream_id, None)
        return found


KINDS: dict[str, tuple[int, Callable[[int], Sender]]] = {
    "bodies": (300, Body),
    "messages": (600, Message),
    "frames": (60, TCPFrame),
    "calls": (200, Call),
}
"""The number of connections of each kind, and the class that makes one."""


def main(kind: str, port: int) -> None:
    """Send until no more bytes move, and report."""
    count, make = KINDS[kind]
    selector = selectors.DefaultSelector()
    senders = [make(port) for _ in range(count)]
    for each in senders:
        selector.register(each.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
    print("begun", flush=True)
    moved = time.monotonic()
    isReported = False
    while True:
        for key, events in selector.select(0.1):
            sender = key.data
            try:
                if events & selectors.EVENT_READ:
                    data = sender.socket.recv(1 << 16)
                    if not data:
                        raise ConnectionResetError
                    sender.read(data)
                    moved = time.monotonic()
                waiting = sender.next()
                if waiting and events & selectors.EVENT_WRITE:
                    sender.sent(sender.socket.send(waiting))
                    moved = time.monotonic()
                wanted = selectors.EVENT_READ
                if waiting:
                    wanted |= selectors.EVENT_WRITE
                selector.modify(sender.socket, wanted, sender)
            except BlockingIOError:
                pass
            except OSError:
                sender.refusal = sender.refusal or "lost"
                selector.unregister(sender.socket)
        if not isReported and time.monotonic() - moved > _SETTLED:
            isReported = True
            print(json.dumps(Counter(each.refusal or "open" for each in senders)), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1], int(sys.argv[2]))
