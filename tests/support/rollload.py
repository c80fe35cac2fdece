"""
Clients of message transports that keep calling while the server processes are replaced.

Each call has a unique key, and the server's method must record each key when it starts, so that a
test can see which calls ran, and how often. Calls are not retried, unless the transport requires
it: over UDP, and over gRPC if the library allows it.
"""

import itertools
import json
import socket
import struct
from contextlib import suppress
from typing import Any

from hyperframe.frame import GoAwayFrame
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.gatewaygrpcclient import GRPCClient
from tests.support.h2client import H2Client, H2Stream
from tests.support.load import SECONDS, Clients

_REPEAT_SECONDS = 0.5
"""Time after which a UDP client resends a datagram."""

_HEAD = struct.Struct(">BBI")
_REQUEST, _RESPONSE, _GOING_AWAY = 1, 2, 12


class RollLoad(Clients[str]):
    """
    Clients of one transport; their answers are the keys of calls that returned their result.

    @ivar crossed: The keys of sent calls without an answer before the server closed the connection
        gracefully.
    @ivar refused: The keys of calls that failed with C{UNAVAILABLE}.
    """

    wire = ""

    def __init__(self, port: int, clients: int = 3, depth: int = 1) -> None:
        """
        Start the clients.

        @param depth: The number of calls in flight per client.
        """
        self.crossed: list[str] = []
        self.refused: list[str] = []
        self.depth = depth
        self._ids = itertools.count(1)
        super().__init__(port, clients)

    def call(self) -> tuple[int, dict[str, Any]]:
        """Make a call, every third of which is slow; return its id and its message."""
        id = next(self._ids)
        method = "later" if id % 3 == 0 else "now"
        data = {"key": f"{self.wire}{self.depth}-{id}"}
        return id, {"id": id, "service": "Marks", "method": method, "data": data}


class WebSocketLoad(RollLoad):
    """Clients over WebSocket; close code 1001 is a graceful end."""

    wire = "websocket"

    def converse(self) -> None:
        """Make calls as long as the WebSocket is open."""
        sent: dict[int, str] = {}
        isRefused = False
        with connect(
            f"ws://127.0.0.1:{self.port}/ws", open_timeout=SECONDS, ping_interval=None
        ) as messages:
            try:
                while sent or not (self.isOver or isRefused):
                    with suppress(ConnectionClosed):
                        # Once the server is known to close, this raises without sending; messages
                        # that arrived earlier are still read.
                        while len(sent) < self.depth and not (self.isOver or isRefused):
                            id, call = self.call()
                            messages.send(json.dumps(call))
                            sent[id] = call["data"]["key"]
                    answer = json.loads(messages.recv(timeout=SECONDS))
                    isRefused |= self._take(answer, sent.pop(answer["id"]))
            except ConnectionClosed as closed:
                if closed.rcvd is None or closed.rcvd.code != 1001 or closed.rcvd.reason:
                    self.fail(f"{closed!r} with {sorted(sent.values())}")
                self.crossed.extend(sent.values())

    def _take(self, answer: Any, key: str) -> bool:
        """Process an answer; return whether it is a refusal."""
        isRefusal = answer.get("error", {}).get("code") == "UNAVAILABLE"
        if isRefusal:
            self.refused.append(key)
        elif answer.get("data") == {"key": key}:
            self.answer(key)
        else:
            self.fail(f"{key}: {answer}")
        return isRefusal


class TCPLoad(RollLoad):
    """Clients over TCP, in frames; a client that reads type 12 stops sending on the connection."""

    wire = "tcp"

    def converse(self) -> None:
        """Make calls until the server announces its shutdown, and read the remaining answers."""
        sent: dict[int, str] = {}
        isTold = False
        with (
            socket.create_connection(("127.0.0.1", self.port), SECONDS) as stream,
            stream.makefile("rb") as frames,
        ):
            while True:
                while len(sent) < self.depth and not isTold and not self.isOver:
                    id, call = self.call()
                    sent[id] = call["data"]["key"]
                    stream.sendall(frameOf(_REQUEST, call))
                if not sent:
                    return
                head = frames.read(_HEAD.size)
                if len(head) < _HEAD.size:
                    self.fail(f"the end, with {sorted(sent.values())}")
                    return
                _version, type, length = _HEAD.unpack(head)
                payload = json.loads(frames.read(length))
                isTold = isTold or type == _GOING_AWAY
                if type != _GOING_AWAY:
                    self._take(type, payload, sent.pop(payload["id"]))

    def _take(self, type: int, payload: Any, key: str) -> None:
        if type == _RESPONSE and payload["data"]["key"] == key:
            self.answer(key)
        else:
            self.fail(f"{key}: {type} {payload}")


class HTTP2Load(RollLoad):
    """
    Clients of the HTTP listener over HTTP/2, with several streams on a connection.

    A client that reads GOAWAY opens no further streams on the connection. Those after the last
    stream that it names have not run; they are C{crossed}.
    """

    wire = "http2"

    def converse(self) -> None:
        """Make calls until the server announces its shutdown, and read the remaining answers."""
        sent: dict[int, str] = {}
        with H2Client(self.port, timeout=SECONDS) as client:
            last: int | None = None
            while True:
                while len(sent) < self.depth and last is None and not self.isOver:
                    self._begin(client, sent)
                if not sent:
                    return
                frame = client.read()
                if frame is None:
                    self.fail(f"the end, with {sorted(sent.values())}")
                    return
                if isinstance(frame, GoAwayFrame):
                    last = frame.last_stream_id
                    self.crossed.extend(sent.pop(each) for each in list(sent) if each > last)
                for number in [each for each in sent if client.streams[each].isEnded]:
                    self._take(client.streams[number], sent.pop(number))

    def _begin(self, client: H2Client, sent: dict[int, str]) -> None:
        _id, call = self.call()
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", f"/api/Marks/{call['method']}"),
            (":authority", "localhost"),
            ("content-type", "application/json"),
        ]
        stream = client.begin("", headers=fields)
        sent[stream.number] = call["data"]["key"]
        client.sendData(stream, json.dumps(call["data"]).encode(), isLast=True)

    def _take(self, stream: H2Stream, key: str) -> None:
        if stream.headers.get(":status") == "200" and json.loads(stream.body)["data"] == {
            "key": key
        }:
            self.answer(key)
        else:
            self.fail(f"{key}: {stream.resetCode} {stream.headers} {stream.body!r}")


class UDPLoad(RollLoad):
    """Clients over UDP; unanswered datagrams are resent, with the same id."""

    wire = "udp"

    def converse(self) -> None:
        """Make calls from one address until the clients stop."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.connect(("127.0.0.1", self.port))
            datagrams.settimeout(_REPEAT_SECONDS)
            while not self.isOver:
                id, call = self.call()
                self._ask(datagrams, id, frameOf(_REQUEST, call), call["data"]["key"])

    def _ask(self, datagrams: socket.socket, id: int, request: bytes, key: str) -> None:
        for _ in range(int(SECONDS / _REPEAT_SECONDS)):
            datagrams.send(request)
            with suppress(TimeoutError):
                while True:
                    datagram = datagrams.recv(65536)
                    _version, type, _length = _HEAD.unpack_from(datagram)
                    payload = json.loads(datagram[_HEAD.size :])
                    if payload["id"] != id:
                        # A second answer to an earlier call that was sent twice.
                        continue
                    if type == _RESPONSE and payload["data"]["key"] == key:
                        self.answer(key)
                    else:
                        self.fail(f"{key}: {type} {payload}")
                    return
        self.fail(f"{key}: no answer")


class GRPCLoad(RollLoad):
    """
    Clients over gRPC, with grpcio; a call that the library may repeat after a GOAWAY is repeated.
    """

    wire = "grpc"

    def converse(self) -> None:
        """Make calls through one channel, which reconnects itself, until the clients stop."""
        client = GRPCClient(self.port)
        try:
            while not self.isOver:
                _id, call = self.call()
                self._ask(client, call)
        finally:
            client.close()

    def _ask(self, client: GRPCClient, call: dict[str, Any]) -> None:
        key = call["data"]["key"]
        answer: Any = None
        for _ in range(5):
            answer = client.begin("Marks", call["method"], "none", [call["data"]]).finish()
            if answer.problem is None or answer.problem.code not in ("UNAVAILABLE", "CANCELLED"):
                break
            client.waitForConnection()
        if answer.problem is None and answer.values == [{"key": key}]:
            self.answer(key)
        else:
            self.fail(f"{key}: {answer}")


def frameOf(type: int, payload: Any) -> bytes:
    """Encode a frame."""
    text = json.dumps(payload).encode()
    return _HEAD.pack(1, type, len(text)) + text
