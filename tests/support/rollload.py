"""
Clients of message wires that keep calling while those who answer are replaced.

Each call has a key that no other has, and the server's method is to tell of each key that it began
with; so a test can see which calls ran, and how often. Nothing here is asked twice, unless the wire
says that this is what its clients do: UDP, and gRPC where the library says that it may be repeated.
"""

import itertools
import json
import socket
import struct
from contextlib import suppress
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.gatewaygrpcclient import GRPCClient
from tests.support.load import SECONDS, Clients

_REPEAT_SECONDS = 0.5
"""How long a client of UDP waits until it says the same again."""

_HEAD = struct.Struct(">BBI")
_REQUEST, _RESPONSE, _GOING_AWAY = 1, 2, 12


class RollLoad(Clients[str]):
    """
    Clients of one wire; what they got are the keys of calls that were answered with their result.

    @ivar crossed: The keys of calls that were sent, and the server closed in order without an
        answer.
    @ivar refused: The keys of calls that were answered with C{UNAVAILABLE}.
    """

    wire = ""

    def __init__(self, port: int, clients: int = 3, depth: int = 1) -> None:
        """
        Begin.

        @param depth: How many calls a client has in flight.
        """
        self.crossed: list[str] = []
        self.refused: list[str] = []
        self.depth = depth
        self._ids = itertools.count(1)
        super().__init__(port, clients)

    def call(self) -> tuple[int, dict[str, Any]]:
        """Make a call of which every third takes its time; give its id, and it as a message."""
        id = next(self._ids)
        method = "later" if id % 3 == 0 else "now"
        data = {"key": f"{self.wire}{self.depth}-{id}"}
        return id, {"id": id, "service": "Marks", "method": method, "data": data}


class WebSocketLoad(RollLoad):
    """Over WebSocket; close 1001 is an end in order."""

    wire = "websocket"

    def converse(self) -> None:
        """Call as long as the WebSocket is open."""
        sent: dict[int, str] = {}
        isRefused = False
        with connect(f"ws://127.0.0.1:{self.port}/ws", open_timeout=SECONDS) as messages:
            try:
                while sent or not (self.isOver or isRefused):
                    with suppress(ConnectionClosed):
                        # Where it is known that the server closes, this raises and sends nothing;
                        # what has come before that is read all the same.
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
        """Take an answer; tell whether it is a refusal."""
        isRefusal = answer.get("error", {}).get("code") == "UNAVAILABLE"
        if isRefusal:
            self.refused.append(key)
        elif answer.get("data") == {"key": key}:
            self.answer(key)
        else:
            self.fail(f"{key}: {answer}")
        return isRefusal


class TCPLoad(RollLoad):
    """Over TCP, in frames; a client that reads type 12 sends no more on this connection."""

    wire = "tcp"

    def converse(self) -> None:
        """Call until the server says that it goes, and read what it still owes."""
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


class UDPLoad(RollLoad):
    """Over UDP; what is not answered is sent again, with its id."""

    wire = "udp"

    def converse(self) -> None:
        """Call until all is over, from one address."""
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
                        # Of a call before, which was answered twice as it was asked twice.
                        continue
                    if type == _RESPONSE and payload["data"]["key"] == key:
                        self.answer(key)
                    else:
                        self.fail(f"{key}: {type} {payload}")
                    return
        self.fail(f"{key}: no answer")


class GRPCLoad(RollLoad):
    """Over gRPC, by grpcio; what ended as its library says it may at a GOAWAY is called again."""

    wire = "grpc"

    def converse(self) -> None:
        """Call until all is over, through one channel, which connects as it likes."""
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
        if answer.problem is None and answer.values == [{"key": key}]:
            self.answer(key)
        else:
            self.fail(f"{key}: {answer}")


def frameOf(type: int, payload: Any) -> bytes:
    """Write a frame."""
    text = json.dumps(payload).encode()
    return _HEAD.pack(1, type, len(text)) + text
