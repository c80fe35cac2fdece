"""
A client for each transport of a gateway, which shares no code with the gateway or with
L{storagegate.gateway.client}: two sides with the same code would agree on the same mistake.

All clients have the same interface, and block, so they must run in threads. A call is started with
its requests, and then cancelled or finished::

    client.begin("Probe", "askNone", "none", [{"text": "a"}], token=TOKEN).finish()
"""

import itertools
import json
import socket
import struct
from collections.abc import Sequence
from http.client import HTTPConnection
from typing import Any

from websockets.sync.client import connect

from tests.support.gatewayanswers import SECONDS, Answer, Problem, readProblem, streams
from tests.support.gatewaygrpcclient import GRPCClient


class HTTPClient:
    """Calls over HTTP, each on its own connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    def begin(
        self,
        service: str,
        method: str,
        kind: str,
        requests: Sequence[Any],
        *,
        token: str | None = None,
        deadlineMs: int | None = None,
        isOpen: bool = False,
    ) -> "HTTPBegun":
        """
        Start a call.

        @param isOpen: Whether a stream of requests stays open after these.
        """
        connection = HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        connection.putrequest("POST", f"/api/{service}/{method}")
        if token is not None:
            connection.putheader("X-API-Key", token)
        if deadlineMs is not None:
            connection.putheader("X-Deadline-Ms", str(deadlineMs))
        if streams(kind)[0]:
            connection.putheader("Content-Type", "application/x-ndjson")
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
            for request in requests:
                line = json.dumps(request).encode() + b"\n"
                connection.send(b"%x\r\n%b\r\n" % (len(line), line))
            if not isOpen:
                connection.send(b"0\r\n\r\n")
        else:
            body = json.dumps(requests[0]).encode()
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
        return HTTPBegun(connection)

    def close(self) -> None:
        """Do nothing: each call closes its connection."""


class HTTPBegun:
    """A call over HTTP."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection

    def cancel(self) -> None:
        """Cancel the call by closing its connection."""
        self._connection.close()

    def finish(self) -> Answer:
        """Read the whole answer."""
        response = self._connection.getresponse()
        body = response.read()
        self._connection.close()
        if not response.getheader("Content-Type", "").startswith("application/x-ndjson"):
            answer = json.loads(body)
            if response.status == 200:
                return Answer([answer["data"]])
            problem = self._error(answer)
            if problem.retryAfterMs is not None:
                assert int(response.headers["Retry-After"]) >= problem.retryAfterMs / 1000
            return Answer([], problem)
        values = []
        for line in body.splitlines():
            answer = json.loads(line)
            if "error" in answer:
                return Answer(values, self._error(answer))
            values.append(answer["data"])
        return Answer(values)

    def _error(self, answer: Any) -> Problem:
        return readProblem(answer["error"], answer["message"], answer.get("details"))


class MessageBegun:
    """A call on a transport with concurrent calls on one connection."""

    def __init__(self, client: Any, id: int) -> None:
        self._client = client
        self._id = id

    def cancel(self) -> None:
        """Cancel the call; messages for it are skipped."""
        self._client.givenUp.add(self._id)
        self._client.cancel(self._id)

    def finish(self) -> Answer:
        """Read until the call has ended."""
        values: list[Any] = []
        while True:
            kind, value = self._client.read(self._id)
            if kind == "error":
                return Answer(values, value)
            if kind == "end":
                return Answer(values)
            values.append(value)
            if kind == "result":
                return Answer(values)


class WebSocketClient:
    """Calls over one WebSocket, in JSON."""

    def __init__(self, port: int) -> None:
        self._ids = itertools.count(1)
        self.givenUp: set[int] = set()
        self._socket = connect(
            f"ws://127.0.0.1:{port}/ws", open_timeout=SECONDS, ping_interval=None
        )

    def begin(
        self,
        service: str,
        method: str,
        kind: str,
        requests: Sequence[Any],
        *,
        token: str | None = None,
        deadlineMs: int | None = None,
        isOpen: bool = False,
    ) -> MessageBegun:
        """Start a call."""
        id = next(self._ids)
        message: dict[str, Any] = {"id": id, "service": service, "method": method}
        if token is not None:
            message["auth"] = {"token": token}
        if deadlineMs is not None:
            message["deadlineMs"] = deadlineMs
        if streams(kind)[0]:
            self._send(message)
            for request in requests:
                self._send({"id": id, "type": "stream", "data": request})
            if not isOpen:
                self._send({"id": id, "type": "stream_end"})
        else:
            self._send({**message, "data": requests[0]})
        return MessageBegun(self, id)

    def cancel(self, id: int) -> None:
        """Cancel a call."""
        self._send({"id": id, "type": "cancel"})

    def read(self, id: int) -> tuple[str, Any]:
        """Read the next message, which must belong to this call."""
        message = json.loads(self._socket.recv(timeout=SECONDS))
        while message["id"] in self.givenUp:
            message = json.loads(self._socket.recv(timeout=SECONDS))
        assert message["id"] == id, message
        if message["type"] == "error":
            error = message["error"]
            return "error", readProblem(error["code"], error["message"], error.get("details"))
        if message["type"] == "stream_end":
            return "end", None
        return "item" if message["type"] == "stream" else "result", message["data"]

    def _send(self, message: Any) -> None:
        self._socket.send(json.dumps(message))

    def close(self) -> None:
        """Close the WebSocket."""
        self._socket.close()


_HEAD = struct.Struct(">BBI")


class _FrameClient:
    """The common base of clients that use frames."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.givenUp: set[int] = set()

    def begin(
        self,
        service: str,
        method: str,
        kind: str,
        requests: Sequence[Any],
        *,
        token: str | None = None,
        deadlineMs: int | None = None,
        isOpen: bool = False,
    ) -> MessageBegun:
        """Start a call."""
        id = next(self._ids)
        payload: dict[str, Any] = {"id": id, "service": service, "method": method}
        if token is not None:
            payload["auth"] = {"token": token}
        if deadlineMs is not None:
            payload["deadlineMs"] = deadlineMs
        if streams(kind)[0]:
            self._send(1, payload)
            for seq, request in enumerate(requests):
                self._send(10, {"id": id, "seq": seq, "data": request})
            if not isOpen:
                self._send(11, {"id": id, "seq": len(requests)})
        else:
            self._send(1, {**payload, "data": requests[0]})
        return MessageBegun(self, id)

    def cancel(self, id: int) -> None:
        """Cancel a call."""
        self._send(8, {"id": id})

    def read(self, id: int) -> tuple[str, Any]:
        """Read the next frame, which must belong to this call."""
        type, payload = self._receive()
        while type == 12 or payload["id"] in self.givenUp:
            # The server is shutting down; calls in flight are completed.
            type, payload = self._receive()
        assert payload["id"] == id, payload
        if type == 3:
            return "error", readProblem(
                payload["error"], payload["message"], payload.get("details")
            )
        return {2: "result", 4: "item", 5: "end"}[type], payload.get("data")

    def _send(self, type: int, payload: Any) -> None:
        text = json.dumps(payload).encode()
        self._write(_HEAD.pack(1, type, len(text)) + text)

    def _write(self, frame: bytes) -> None:
        raise NotImplementedError

    def _receive(self) -> tuple[int, Any]:
        raise NotImplementedError


class TCPClient(_FrameClient):
    """Calls over one TCP connection, in frames."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._answers = self._socket.makefile("rb")

    def _write(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def _receive(self) -> tuple[int, Any]:
        version, type, length = _HEAD.unpack(self._answers.read(_HEAD.size))
        assert version == 1
        return type, json.loads(self._answers.read(length))

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()


class UDPClient(_FrameClient):
    """Calls over UDP; checks the order of stream items."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(SECONDS)
        self._socket.connect(("127.0.0.1", port))
        self._seqs: dict[int, int] = {}

    def _write(self, frame: bytes) -> None:
        self._socket.send(frame)

    def _receive(self) -> tuple[int, Any]:
        while True:
            datagram = self._socket.recv(65536)
            version, type, length = _HEAD.unpack_from(datagram)
            assert (version, length) == (1, len(datagram) - _HEAD.size)
            payload = json.loads(datagram[_HEAD.size :])
            if type in (4, 5):
                # On one machine they arrive in order; check their numbers.
                expected = self._seqs.get(payload["id"], 0)
                assert payload["seq"] == expected, payload
                self._seqs[payload["id"]] = expected + 1
            if type != 9:
                return type, payload

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


CLIENTS: dict[str, Any] = {
    "http": HTTPClient,
    "websocket": WebSocketClient,
    "grpc": GRPCClient,
    "tcp": TCPClient,
    "udp": UDPClient,
}
"""The clients by transport; the argument of each is the port."""
