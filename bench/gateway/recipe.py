"""
The call of the gateway cases over each transport: an echo of a text, 128 bytes of JSON.

The peers of TCP, UDP and WebSocket return the message as it came; the others return the text.
"""

import json
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import evolve, frozen
from websockets.sync.client import connect

from bench.cases import OURS, Load, MeasureError, Server
from bench.grpc.recipe import Call
from bench.loads import echoload, wrk
from bench.peers import ourApp
from bench.processes import Running

APPS = Path(__file__).with_name("apps")
PROTO = APPS.parents[1] / "grpc" / "apps" / "echo.proto"
LIBRARIES = ("twisted", "autobahn", "msgspec", "grpcio")
SIZE = 128
"""Bytes of a call's JSON."""

MASK = b"\x37\xfa\x21\x3d"
"""A client's key of RFC 6455 section 5.3; any will do."""

ASK_SECONDS = 10
JSON = {"Content-Type": "application/json"}
ECHO_PATH = "/api/Echo/echo"


def _write(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


POSTED = _write({"text": "x" * (SIZE - len(_write({"text": ""})))})
"""The body of a request over HTTP."""

TEXT = str(json.loads(POSTED)["text"])
CALL_ID = "0000000000"
"""Ten digits: the client of UDP counts in them, because a repetition is no new call."""


def _call() -> bytes:
    """Write a call with its envelope, of the same size."""
    envelope = {"id": CALL_ID, "service": "Echo", "method": "echo", "data": {"text": ""}}
    return _write({**envelope, "data": {"text": "x" * (SIZE - len(_write(envelope)))}})


CALL = _call()
FRAME = struct.pack(">BBI", 1, 1, len(CALL)) + CALL
"""A call over TCP and UDP."""

MESSAGE = (
    b"\x81\xfe"
    + struct.pack(">H", len(CALL))
    + MASK
    + bytes(byte ^ MASK[index & 3] for index, byte in enumerate(CALL))
)
"""A call as the client of a WebSocket sends it; above 125 bytes the length takes two more."""

NOTE = b"\x0a" + bytes([len(TEXT)]) + TEXT.encode()
"""The C{Note} of gRPC with the same text."""

GRPC_CALL = Call("Once", NOTE)


def _exchange(running: Running, kind: int) -> object:
    """Send the frame on a socket, and read the call that comes back."""
    with socket.socket(socket.AF_INET, kind) as client:
        client.settimeout(ASK_SECONDS)
        client.connect(("127.0.0.1", running.port))
        client.sendall(FRAME)
        answer = client.recv(65536)
    try:
        _, _, length = struct.unpack_from(">BBI", answer)
    except struct.error as error:
        raise ConnectionError(str(error)) from error
    return json.loads(answer[6 : 6 + length])["data"]


def askTCP(running: Running) -> object:
    """Make the call over TCP."""
    return _exchange(running, socket.SOCK_STREAM)


def askUDP(running: Running) -> object:
    """Make the call over UDP."""
    return _exchange(running, socket.SOCK_DGRAM)


def askHTTP(running: Running) -> object:
    """Make the call over HTTP."""
    answer = running.exchange("POST", ECHO_PATH, POSTED, JSON)
    if answer.status != 200:
        raise ConnectionError(f"answered {answer.status}")
    found = json.loads(answer.body)
    return found.get("data", found)


def _path(running: Running) -> str:
    return "/ws" if running.server.isOurs else "/"


def askWebSocket(running: Running) -> object:
    """Make the call over a WebSocket."""
    place = f"ws://{running.host}{_path(running)}"
    with connect(place, open_timeout=ASK_SECONDS, proxy=None) as client:
        client.send(CALL.decode())
        return json.loads(client.recv(timeout=ASK_SECONDS))["data"]


@frozen
class Transport:
    """
    The load of a transport.

    @ivar ask: Makes the call once.
    @ivar mode: The mode of echoload; empty for wrk.
    """

    ask: Callable[[Running], object]
    mode: str = ""
    path: str = ECHO_PATH

    def __call__(self, running: Running, connections: int, seconds: float) -> Load:
        """Check the answer, and return the load."""
        data = self.ask(running)
        # A bare echo returns the call itself, with the text in the same place.
        if data not in ({"text": TEXT}, json.loads(CALL)["data"]):
            raise MeasureError(f"answered {data!r:.200}")
        if not self.mode:
            return Load(wrk(running, self.path, connections, POSTED))
        message = MESSAGE if self.mode == "ws" else FRAME
        return Load(echoload(running, self.mode, connections, message, _path(running)))


HTTP = Transport(askHTTP)
WEBSOCKET = Transport(askWebSocket, "ws")
TCP = Transport(askTCP, "tcp")
UDP = Transport(askUDP, "udp")
ASKS: Mapping[str, Callable[[Running], object]] = {
    "http": askHTTP,
    "websocket": askWebSocket,
    "tcp": askTCP,
    "udp": askUDP,
}


def storagegate(transport: str, *arguments: object, name: str = OURS) -> Server:
    """Return our gateway with one transport, whose requests and results have schemas."""
    app = APPS / "storagegate_app.py"
    server = ourApp(app, transport, PROTO, *arguments, packages=LIBRARIES)
    return evolve(server, name=name, ask=ASKS.get(transport, server.ask))
