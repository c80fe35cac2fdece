"""A roll of the workers under load: what the clients of each wire may rely on."""

import signal
import time
from collections import Counter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import Daemon
from tests.support.gatewayclients import UDPClient
from tests.support.http import request
from tests.support.load import SECONDS
from tests.support.rollload import GRPCLoad, HTTP2Load, RollLoad, TCPLoad, UDPLoad, WebSocketLoad
from tests.support.selection import long

SERVICE = """
import os

from twisted.internet import reactor
from twisted.internet.task import deferLater

marks = os.open("marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

async def now(request, context):
    os.write(marks, request["key"].encode() + b"\\n")
    return {"key": request["key"]}

async def later(request, context):
    os.write(marks, request["key"].encode() + b"\\n")
    await deferLater(reactor, 0.05)
    return {"key": request["key"]}

async def gather(requests, context):
    async for request in requests:
        os.write(marks, request["key"].encode() + b"\\n")
    return {"key": ""}

KEY = {"type": "object", "properties": {"key": {"type": "string"}}}
Marks = {
    "name": "Marks",
    "methods": {
        "now": {"handler": now, "input": KEY, "output": KEY},
        "later": {"handler": later, "input": KEY, "output": KEY},
        "gather": {"handler": gather, "streaming": "client", "input": KEY, "output": KEY},
    },
}
"""


def children(pid: int) -> set[int]:
    """Give the processes that a process has started and that live."""
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


class RollCase(SynchronousTestCase):
    """
    A daemon with two workers.

    @ivar settings: Its configuration.
    """

    settings = ""

    def setUp(self) -> None:
        """Start a daemon with two workers."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        (self.directory / "marking.py").write_text(SERVICE)
        (self.directory / "settings.toml").write_text(self.settings)
        self.daemon = Daemon(
            Path(self.mktemp()).absolute(),
            "--config",
            str(self.directory / "settings.toml"),
            "--workers",
            "2",
            "--service",
            "marking:Marks",
            "--http",
            "tcp:0:interface=127.0.0.1",
            "--tcp",
            "tcp:0:interface=127.0.0.1",
            "--grpc",
            "127.0.0.1:0",
            "--udp",
            "127.0.0.1:0",
            directory=self.directory,
            expect=("s3", "admin", "http", "grpc", "tcp", "udp"),
            environment={"PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.addCleanup(self.daemon.kill)
        self.daemon.start()

    def port(self, name: str) -> int:
        """Give the port of a listener."""
        return self.daemon.address(name)[1]

    def ran(self) -> Counter[str]:
        """Count how often the call of each key ran."""
        return Counter((self.directory / "marks").read_text().split())

    def roll(self, *loads: RollLoad, item: str = "item") -> None:
        """
        Replace both workers while clients call, until the old ones have gone.

        @param item: A key whose call is to run before; empty for none.
        """
        before = children(self.daemon.pid)
        try:
            for load in loads:
                load.waitFor(10)
            ending = time.monotonic() + SECONDS
            while item and not self.ran()[item]:
                self.assertLess(time.monotonic(), ending)
                loads[0].waitFor(1)
            self.daemon.signal(signal.SIGHUP)
            self.daemon.waitForLog("2 workers replaced")
            while before & children(self.daemon.pid):
                loads[0].waitFor(10)
            for load in loads:
                load.waitFor(10)
        finally:
            for load in loads:
                load.end()


class RollTests(RollCase):
    """SIGHUP, while clients of every wire of messages call."""

    @long("takes seconds")
    def test_http2(self) -> None:
        """
        While workers are replaced, a request over HTTP/2 runs once, and is answered.

        A client that opens no streams after GOAWAY loses none, however many it has in flight. On a
        machine that is too busy for its PING, a stream may be named as not served; it has not run.
        """
        (self.directory / "marks").write_text("item\n")
        loads = HTTP2Load(self.port("http"), 2), HTTP2Load(self.port("http"), 2, depth=16)
        self.roll(*loads)
        ran = self.ran()
        for load in loads:
            self.assertEqual(load.failures, [])
            self.assertEqual({ran[key] for key in load.crossed} - {0}, set())
            self.assertEqual({ran[key] for key in load.answered}, {1})
        self.assertEqual(self.daemon.stop(), 0)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled")

    @long("takes seconds")
    def test_load(self) -> None:
        """
        While workers are replaced, a call over WebSocket, TCP or UDP runs once, and is answered.

        Who has one call in flight on a WebSocket meets nothing else, nor does a client of TCP that
        heeds type 12, or one of UDP that repeats what is not answered. With several in flight on a
        WebSocket some may be refused, or not answered before close 1001: those have not run. Over
        gRPC what ended as C{UNAVAILABLE} or C{CANCELLED} is answered when it is called again. A
        stream that a client sends by UDP and does not end breaks off, and the client is told.
        """
        streaming = UDPClient(self.port("udp"))
        self.addCleanup(streaming.close)
        stream = streaming.begin("Marks", "gather", "client", [{"key": "item"}], isOpen=True)
        loads = (
            WebSocketLoad(self.port("http")),
            TCPLoad(self.port("tcp")),
            TCPLoad(self.port("tcp"), 2, depth=8),
            UDPLoad(self.port("udp"), 6),
        )
        several = WebSocketLoad(self.port("http"), 2, depth=8)
        again = GRPCLoad(self.port("grpc"), 2)
        self.roll(*loads, several, again)
        ran = self.ran()
        for load in (*loads, several, again):
            self.assertEqual(load.failures, [], load.wire)
        for load in loads:
            self.assertEqual((load.refused, load.crossed), ([], []), load.wire)
        for load in (*loads, several):
            self.assertEqual({ran[key] for key in load.answered}, {1}, load.wire)
        self.assertEqual({ran[key] for key in (*several.refused, *several.crossed)} - {0}, set())
        problem = stream.finish().problem
        self.assertEqual(problem and problem.message, "The stream of requests broke off")
        self.assertEqual(self.daemon.stop(), 0)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled")


class NativeRollTests(RollCase):
    """SIGHUP, while clients of gRPC call the native engine, on its port and on the one of HTTP."""

    settings = """
        [gateway.grpc]
        engine = "native"
        onHTTP = true
    """

    @long("takes seconds")
    def test_calls(self) -> None:
        """Each call runs once and is answered: one that a worker does not run is repeated."""
        loads = [GRPCLoad(self.port(name), 3) for name in ("grpc", "http")]
        self.roll(*loads, item="")
        ran = self.ran()
        for load in loads:
            self.assertEqual(load.failures, [])
        # Both have the same keys.
        answered = Counter(key for load in loads for key in load.answered)
        self.assertEqual({key: ran[key] for key in answered}, dict(answered))
        self.assertEqual(self.daemon.stop(), 0)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled")


class OnePortRollTests(RollCase):
    """SIGHUP, while clients call the gateway on the S3 listener."""

    settings = """
        gatewayOnS3 = true
        [gateway.http]
        basePath = "/_api"
        [gateway.grpc]
        onHTTP = true
    """

    @long("takes seconds")
    def test_calls(self) -> None:
        """Each call of gRPC runs once and is answered, and the new workers serve S3 as well."""
        load = GRPCLoad(self.port("s3"), 3)
        self.roll(load, item="")
        ran = self.ran()
        self.assertEqual(load.failures, [])
        self.assertEqual({key: ran[key] for key in load.answered}, dict.fromkeys(load.answered, 1))
        self.assertEqual(request(self.daemon.address(), "PUT", "/bucket")[0], 200)
        status, body = request(
            self.daemon.address(),
            "POST",
            "/_api/Marks/now",
            b'{"key":"last"}',
            {"Content-Type": "application/json"},
        )
        self.assertEqual((status, body), (200, b'{"data":{"key":"last"}}\n'))
        self.assertEqual(self.daemon.stop(), 0)
        self.assertNotRegex(self.daemon.log, "Traceback|Unhandled")
