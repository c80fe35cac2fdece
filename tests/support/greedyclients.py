"""
Overloads a daemon: C{python -m tests.support.greedyclients KIND PORT}.

It runs in a separate process, so that it does not disturb the measured client. It prints C{begun}
when it begins, and continues until it is killed.
"""

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle

from hyperframe.frame import DataFrame, SettingsFrame

from tests.support.h2client import H2Client
from tests.support.wsclient import CONTINUATION, KEY, TEXT, frame

_PIECE = 64 * 1024
_FRAGMENTS = 4000
_SILENT = 20
_SILENT_FRAMES = 50
_ADDRESSES = 500
_KEYS = 600_000
_MESSAGE_KEYS = 80_000
_STREAMS = 50

_BURST = 50
"""Datagrams a millisecond: more than a daemon handles, but less than a core for this process."""

_pause = threading.Event()

_CALL = {"service": "Echo", "method": "echo", "data": {}}

ECHO = {"name": "Echo", "methods": {"echo": lambda request, context: {"size": len(request)}}}
"""The service, which never waits."""

_HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n\r\n"
)


def _call(number: int) -> bytes:
    return json.dumps({**_CALL, "id": number}).encode()


def _connected(port: int, opening: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(opening)
    return client


def _discard(client: socket.socket) -> None:
    with suppress(OSError):
        while client.recv(1 << 20):
            pass


def _flood(port: int, opening: bytes, input: bytes) -> None:
    """Send the same bytes repeatedly, and reconnect when the connection is closed."""
    while True:
        with suppress(OSError):
            client = _connected(port, opening)
            threading.Thread(target=_discard, args=(client,), daemon=True).start()
            while True:
                client.sendall(input)


def _message(fragments: Sequence[bytes]) -> bytes:
    pieces = [frame(TEXT, b"{", fin=False)]
    pieces += [frame(CONTINUATION, fragment, fin=False) for fragment in fragments]
    return b"".join(pieces) + frame(CONTINUATION, b"}")


def _unread(port: int, opening: bytes, input: bytes, count: int, pause: float) -> None:
    """Send the same bytes over many connections without reading."""
    clients = [_connected(port, opening) for _ in range(count)]
    for client in clients:
        client.setblocking(False)
    rest = dict.fromkeys(clients, input)
    while True:
        for client in clients:
            with suppress(BlockingIOError):
                rest[client] = rest[client][client.send(rest[client]) :] or input
        if pause:
            _pause.wait(pause)


def _silent(port: int) -> None:
    input = b"".join(frame(TEXT, _call(number)) for number in range(500))
    _unread(port, _HANDSHAKE, input, _SILENT, 0.001)


def _datagrams(port: int, burst: int = 0) -> None:
    """
    Send calls as datagrams.

    @param burst: How many are sent a millisecond; 0 for as many as possible.
    """
    clients = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(_ADDRESSES)]
    for client in clients:
        client.connect(("127.0.0.1", port))
    for number, client in enumerate(cycle(clients)):
        with suppress(OSError):
            client.send(_framed(_call(number)))
        if burst and not number % burst:
            _pause.wait(0.001)


def _announced(port: int) -> None:
    """Start calls that announce a message of 4 GiB."""
    while True:
        with suppress(OSError), H2Client(port) as client:
            client.waitFor(SettingsFrame)
            while True:
                for _ in range(_STREAMS):
                    stream = client.begin("/Echo/echo")
                    head = b"\0\xff\xff\xff\xff" + bytes(1000)
                    client.send(DataFrame(stream.number, data=head, flags=["END_STREAM"]))
                client.discard()


def _object(keys: int) -> bytes:
    return b"{" + b",".join(b'"k%d":1' % number for number in range(keys)) + b"}"


def _keysCall() -> bytes:
    """Make a call with an object of the maximum size of WebSocket messages."""
    return b'{"id":1,"service":"Echo","method":"echo","data":%b}' % _object(_MESSAGE_KEYS)


def _framed(payload: bytes) -> bytes:
    return struct.pack(">BBI", 1, 1, len(payload)) + payload


def _structs(port: int) -> None:
    """Make gRPC calls with such an object."""
    import grpc
    from google.protobuf.struct_pb2 import Struct

    message = Struct()
    for number in range(_MESSAGE_KEYS):
        message.fields[f"k{number}"].number_value = 1
    wire = message.SerializeToString()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Echo/echo")
    while True:
        call(wire)


def _keys() -> bytes:
    body = _object(_KEYS)
    head = b"POST /api/Echo/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
    return head + b"%d\r\nContent-Type: application/json\r\n\r\n" % len(body) + body


def _frames() -> bytes:
    return b"".join(_framed(_call(number)) for number in range(500))


def _sockets(input: bytes) -> Callable[[int], None]:
    repeated = input * max(1, _PIECE // len(input))
    return lambda port: _flood(port, _HANDSHAKE, repeated)


KINDS: dict[str, tuple[str, Callable[[int], None]]] = {
    "fragments": ("http", _sockets(_message([b"a"] * _FRAGMENTS))),
    "emptyFragments": ("http", _sockets(_message([b""] * _FRAGMENTS))),
    "junk": ("http", _sockets(frame(TEXT, b"{junk"))),
    "calls": ("http", _sockets(b"".join(frame(TEXT, _call(each)) for each in range(500)))),
    "silent": ("http", _silent),
    "frames": ("tcp", lambda port: _flood(port, b"", _frames())),
    "lines": (
        "tcp",
        lambda port: _flood(port, b"", b"".join(_call(each) + b"\n" for each in range(500))),
    ),
    "silentFrames": ("tcp", lambda port: _unread(port, b"", _frames(), _SILENT_FRAMES, 0)),
    "datagrams": ("udp", lambda port: _datagrams(port, _BURST)),
    "flood": ("udp", _datagrams),
    "keys": ("http", lambda port: _flood(port, b"", _keys())),
    "messageKeys": ("http", lambda port: _flood(port, _HANDSHAKE, frame(TEXT, _keysCall()))),
    "frameKeys": ("tcp", lambda port: _flood(port, b"", _framed(_keysCall()))),
    "lineKeys": ("tcp", lambda port: _flood(port, b"", _keysCall() + b"\n")),
    "structs": ("grpc", _structs),
    "announced": ("grpc", _announced),
}
"""The listener of each kind, and its function, which takes the port."""


if __name__ == "__main__":
    print("begun", flush=True)
    KINDS[sys.argv[1]][1](int(sys.argv[2]))
