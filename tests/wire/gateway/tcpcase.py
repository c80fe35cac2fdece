"""A TCP listener, and clients of plain sockets."""

import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.gateway.transports.tcp import TCPOptions
from storagegate.gateway.transports.tcp.listener import TCPTransport
from tests.support.gateway import makeHost

PATIENCE = 45.0


class PlainClient:
    """A client of plain blocking sockets; everything here runs in a thread."""

    def __init__(self, port: int, **options: Any) -> None:
        self.socket: Any = socket.create_connection(("127.0.0.1", port), PATIENCE, **options)

    def send(self, type: int, payload: Any) -> None:
        """Send a frame."""
        self.socket.sendall(written(type, payload))

    def call(self, method: str, **more: Any) -> None:
        """Send a request for a method of C{Probe}."""
        self.send(1, {"service": "Probe", "method": method, **more})

    def frame(self) -> tuple[int, Any]:
        """Read a frame."""
        version, type, length = struct.unpack(">BBI", self._exactly(6))
        if version != 1:
            raise AssertionError(f"version {version}")
        payload = self._exactly(length)
        return type, json.loads(payload) if payload else None

    def rest(self) -> bytes:
        """Read to the end."""
        found = b""
        while data := self.socket.recv(65536):
            found += data
        return found

    def close(self) -> None:
        """Close."""
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            data = self.socket.recv(size - len(found))
            if not data:
                raise AssertionError(f"closed after {found!r}")
            found += data
        return found


def written(type: int, payload: Any) -> bytes:
    """Write a frame, in words of this file."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">BBI", 1, type, len(body)) + body


class TCPCase(TestCase):
    """A listener with the services of the fixture."""

    timeout = 60

    async def setUp(self) -> None:
        """Listen."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.closed: list[str] = []
        self.given = 0
        self.mayAnswer: Deferred[None] = Deferred()
        methods = {"endless": self.endless, "held": self.held}
        self.host, self.probe = makeHost(self.reactor, [{"name": "Bulk", "methods": methods}])
        await self.listen()

    async def held(self, request: Any, context: Any) -> Any:
        """Answer when the test lets it."""
        await self.mayAnswer
        return request

    async def endless(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Give 64 KiB for ever."""
        try:
            while True:
                self.given += 1
                yield "x" * 65536
        finally:
            self.closed.append("endless")

    async def listen(self, **options: Any) -> None:
        """Make a listener with options."""
        self.adapter = TCPTransport(self.host, TCPOptions(**options))
        self.addCleanup(self.adapter.close, 0)
        self.port = await self.open("tcp:0:interface=127.0.0.1")

    async def open(self, place: str) -> int:
        """Listen at a place; give the port."""
        port: Any = await self.adapter.open(place)
        return getattr(port.getHost(), "port", 0)

    def run_(self, work: Callable[[PlainClient], Any]) -> Deferred[Any]:
        """Let a client work in a thread."""

        def connected() -> Any:
            client = PlainClient(self.port)
            try:
                return work(client)
            finally:
                client.close()

        return deferToThread(connected)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError("nothing came of it")
            await deferLater(self.reactor, 0.01)
