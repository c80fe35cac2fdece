"""The service of C{examples/gateway_orders.py}, called over each wire as its head says."""

import json
import re
import socket
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import grpc
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from tests.examples.support import EXAMPLES, Example
from tests.support.daemon import START_SECONDS

HEAD = (EXAMPLES / "gateway_orders.py").read_text().partition('"""\n\n')[0]


def messages(pattern: str) -> list[bytes]:
    """Give the messages of the head after which a pattern stands."""
    found = re.findall(rf"'(\{{.*\}})'{pattern}", HEAD)
    assert found, pattern
    return [message.encode() for message in found]


class OrdersTests(SynchronousTestCase):
    """What each wire says."""

    def setUp(self) -> None:
        """Start the server."""
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        self.example = Example("gateway_orders", directory)
        self.addCleanup(self.example.kill)
        self.example.start()
        self.ports = {
            wire: int(self.example.waitForLog(rf"{wire} listening on 127\.0\.0\.1:(\d+)\n")[1])
            for wire in ("http", "websocket", "grpc", "tcp", "udp")
        }

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Ask for something over HTTP, as curl does."""
        url = f"http://127.0.0.1:{self.ports['http']}{path}"
        fields = {} if body is None else {"Content-Type": "application/x-www-form-urlencoded"}
        request = Request(url, body, fields, method=method)
        with urlopen(request, timeout=START_SECONDS) as response:
            answer: bytes = response.read()
        return answer

    def test_http(self) -> None:
        """The four commands for curl are answered."""
        [message] = messages(" http://")
        first = {"data": {"id": 1, "item": "tea"}}
        self.assertEqual(json.loads(self.ask("POST", "/api/Orders/create", message)), first)
        self.assertEqual(json.loads(self.ask("GET", "/orders/1")), first)
        self.ask("POST", "/api/Orders/create", message)
        listed = [json.loads(line) for line in self.ask("POST", "/api/Orders/list").splitlines()]
        self.assertEqual(listed, [first, {"data": {"id": 2, "item": "tea"}}])
        described = json.loads(self.ask("GET", "/api/openapi.json"))
        self.assertIn("/orders/{id}", described["paths"])
        self.example.waitForLog("http: tea\n")

    def test_webSocket(self) -> None:
        """So is the message over WebSocket."""
        [message] = messages(r"\)\n")
        place = f"ws://127.0.0.1:{self.ports['websocket']}/ws"
        with connect(place, open_timeout=START_SECONDS) as peer:
            peer.send(message.decode())
            answer = json.loads(peer.recv(START_SECONDS))
        self.assertEqual((answer["id"], answer["data"]), (1, {"id": 1, "item": "tea"}))

    def test_grpc(self) -> None:
        """A client of grpcio's is served, and errors have a status."""
        with grpc.insecure_channel(f"127.0.0.1:{self.ports['grpc']}") as channel:
            create = channel.unary_unary("/Orders/create")
            # Field 2 is the text, field 1 the number.
            answer: Any = create(b"\x12\x03tea", timeout=START_SECONDS)
            self.assertEqual(answer, b"\x08\x01\x12\x03tea")
            find = channel.unary_unary("/Orders/get")
            error = self.assertRaises(grpc.RpcError, find, b"\x08\x07", timeout=START_SECONDS)
            self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
            self.assertEqual(error.details(), "There is no order 7")

    def test_tcp(self) -> None:
        """The line over TCP gets a line for each order, and one for the end."""
        self.ask("POST", "/api/Orders/create", messages(" http://")[0])
        [message] = messages(r" \| nc")
        with socket.create_connection(("127.0.0.1", self.ports["tcp"]), START_SECONDS) as peer:
            peer.sendall(message + b"\n")
            peer.shutdown(socket.SHUT_WR)
            with peer.makefile("rb") as lines:
                answers = [json.loads(line) for line in lines]
        self.assertEqual([answer["type"] for answer in answers], ["stream", "stream_end"])
        self.assertEqual(answers[0]["data"], {"id": 1, "item": "tea"})

    def test_udp(self) -> None:
        """The frame over UDP gets a frame; its length is that of its message."""
        self.ask("POST", "/api/Orders/create", messages(" http://")[0])
        [message] = messages(r" \|\n")
        start = re.search(r"printf '((?:\\\d+)+)%s'", HEAD)
        assert start is not None
        header = bytes(int(each, 8) for each in start[1].split("\\")[1:])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.settimeout(START_SECONDS)
            peer.connect(("127.0.0.1", self.ports["udp"]))
            peer.send(header + message)
            answer = peer.recv(65_535)
        self.assertEqual(answer[:2], b"\x01\x02")
        self.assertEqual(json.loads(answer[6:]), {"id": 1, "data": {"id": 1, "item": "tea"}})

    def test_stop(self) -> None:
        """SIGTERM ends it in order."""
        # It says where it listens a moment before the signal means anything to it.
        self.ask("GET", "/api/openapi.json")
        self.assertEqual(self.example.stop(), 0)
