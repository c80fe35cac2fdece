"""The daemon's end, with something in flight on every listener."""

import http.client
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.daemon import Daemon
from tests.support.gatewayanswers import SECONDS
from tests.support.gatewayclients import CLIENTS
from tests.support.http import ROOT_HEADERS, getJSON, request
from tests.support.selection import long
from tests.wire.daemon.test_workers import children

SERVICE = """
import pathlib

from twisted.internet import reactor
from twisted.internet.task import deferLater

async def wait(request, context):
    with open(request["began"], "a") as file:
        file.write(context.protocol + chr(10))
    while not pathlib.Path(request["go"]).exists():
        await deferLater(reactor, 0.05)
    return {"text": "done"}

async def tick(request, context):
    with open(request["began"], "a") as file:
        file.write(context.protocol + chr(10))
    while True:
        yield {"text": "tick"}
        await deferLater(reactor, 0.1)

FIELDS = {"type": "object", "properties": {"began": {"type": "string"}, "go": {"type": "string"}}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
Slow = {
    "name": "Slow",
    "methods": {
        "wait": {"handler": wait, "input": FIELDS, "output": TEXT},
        "tick": {"handler": tick, "input": FIELDS, "output": TEXT},
    },
}
"""

PORTS = {"http": "http", "websocket": "http", "grpc": "grpc", "tcp": "tcp", "udp": "udp"}


class ShutdownTests(SynchronousTestCase):
    """SIGTERM."""

    workers = 1

    def start(self, graceSeconds: int) -> None:
        """Start a daemon with slow methods."""
        self.modules = Path(self.mktemp()).absolute()
        self.modules.mkdir()
        (self.modules / "slow.py").write_text(SERVICE)
        self.began = self.modules / "began"
        self.go = self.modules / "go"
        self.daemon = Daemon(
            Path(self.mktemp()).absolute(),
            "--http",
            "tcp:0:interface=127.0.0.1",
            "--tcp",
            "tcp:0:interface=127.0.0.1",
            "--grpc",
            "127.0.0.1:0",
            "--udp",
            "127.0.0.1:0",
            "--service",
            "slow:Slow",
            "--workers",
            str(self.workers),
            directory=self.modules,
            environment={"STORAGEGATE_SHUTDOWN_GRACE_SECONDS": str(graceSeconds)},
            expect=("s3", "admin", "http", "grpc", "tcp", "udp"),
        )
        self.addCleanup(self.daemon.kill)
        self.daemon.start()

    def client(self, wire: str) -> Any:
        """Connect to a wire."""
        client = CLIENTS[wire](self.daemon.address(PORTS[wire])[1])
        self.addCleanup(client.close)
        return client

    def halfPut(self) -> http.client.HTTPConnection:
        """Begin to store an object."""
        self.assertEqual(request(self.daemon.address(), "PUT", "/bucket")[0], 200)
        connection = http.client.HTTPConnection(*self.daemon.address(), timeout=SECONDS)
        self.addCleanup(connection.close)
        connection.putrequest("PUT", "/bucket/key")
        for name, value in {**ROOT_HEADERS, "Content-Length": "10"}.items():
            connection.putheader(name, value)
        connection.endheaders(b"12345")
        return connection

    def until(self, holds: Any) -> None:
        """Wait until something holds."""
        ending = time.monotonic() + SECONDS
        while not holds():
            self.assertLess(time.monotonic(), ending)
            threading.Event().wait(0.02)

    def isOpen(self, name: str) -> bool:
        """Tell whether a listener accepts."""
        try:
            socket.create_connection(self.daemon.address(name), SECONDS).close()
        except ConnectionRefusedError:
            return False
        return True

    @long("takes a second or more")
    def test_inFlight(self) -> None:
        """
        Every listener closes at once, the last one but C{admin}, which says why; what is in flight
        on each is answered; idle connections are notified; the exit code is 0.
        """
        # So long that a client without notification waits too long.
        self.start(3600)
        where = {"began": str(self.began), "go": str(self.go)}
        begun = {wire: self.client(wire).begin("Slow", "wait", "none", [where]) for wire in PORTS}
        put = self.halfPut()
        frames = socket.create_connection(self.daemon.address("tcp"), SECONDS)
        self.addCleanup(frames.close)
        # A silent client may as well speak lines.
        frames.sendall(struct.pack(">BBI", 1, 6, 2) + b"{}")
        self.assertEqual(frames.recv(8)[1], 7)
        host, port = self.daemon.address("http")
        messages = connect(f"ws://{host}:{port}/ws", open_timeout=SECONDS, ping_interval=None)
        self.addCleanup(messages.close)
        self.until(lambda: self.began.exists() and len(self.began.read_text().split()) == 5)
        self.daemon.signal(signal.SIGTERM)
        self.until(lambda: not any(map(self.isOpen, ("s3", "http", "grpc", "tcp"))))
        status, document = getJSON(self.daemon.address("admin"), "/readyz")
        self.assertEqual((status, document["status"]), (503, "draining"))
        self.assertIn("error", document)
        self.assertEqual(struct.unpack(">BBI", frames.recv(6))[:2], (1, 12))
        with self.assertRaises(ConnectionClosed) as closed:
            messages.recv(timeout=SECONDS)
        self.assertEqual(closed.exception.rcvd and closed.exception.rcvd.code, 1001)
        self.go.touch()
        for wire, call in begun.items():
            answer = call.finish()
            self.assertEqual((answer.values, answer.problem), ([{"text": "done"}], None), wire)
        put.send(b"67890")
        self.assertEqual(put.getresponse().status, 200)
        self.assertEqual(self.daemon.wait(), 0)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled")

    @long("takes a second or more")
    def test_endless(self) -> None:
        """Streams without an end are cut when the grace is over, and the exit code is 0."""
        self.start(1)
        where = {"began": str(self.began)}
        halves: list[str] = []

        def read(wire: str) -> None:
            begun = self.client(wire).begin("Slow", "tick", "server", [where])
            try:
                begun.finish()
            except (OSError, EOFError, ConnectionClosed, http.client.HTTPException, struct.error):
                pass
            except json.JSONDecodeError:
                halves.append(wire)

        # UDP has no connection that could end.
        threads = [
            threading.Thread(target=read, args=[wire])
            for wire in ("http", "websocket", "grpc", "tcp")
        ]
        for thread in threads:
            thread.start()
        self.until(lambda: self.began.exists() and len(self.began.read_text().split()) == 4)
        began = time.monotonic()
        self.daemon.signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(), 0)
        for thread in threads:
            thread.join(SECONDS)
            self.assertFalse(thread.is_alive())
        self.assertEqual(halves, [])
        self.assertGreaterEqual(time.monotonic() - began, 0.9)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled")

    @long("takes a second or more")
    def test_twice(self) -> None:
        """A second signal ends all processes at once, and none of them keeps the data."""
        self.start(3600)
        self.halfPut()
        self.daemon.signal(signal.SIGTERM)
        self.daemon.waitForLog("stopping")
        ends = [os.pidfd_open(pid) for pid in (self.daemon.pid, *children(self.daemon.pid))]
        for end in ends:
            self.addCleanup(os.close, end)
        self.daemon.signal(signal.SIGTERM)
        for end in ends:
            self.assertEqual(select.select([end], [], [], SECONDS)[0], [end])
        self.assertEqual(self.daemon.wait(), -signal.SIGTERM)
        self.daemon.start()


@long("takes seconds")
class WorkersShutdownTests(ShutdownTests):
    """The same with two workers."""

    workers = 2
