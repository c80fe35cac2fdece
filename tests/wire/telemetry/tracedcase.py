"""A real daemon whose calls are traced, and the calls."""

import json
import re
import socket
from http.client import HTTPConnection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import grpc
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from storagegate.gateway.messages.frames import HEADER_LENGTH, REQUEST, encodeFrame
from tests.support.clients import Account
from tests.support.collector import Collector
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon
from tests.support.s3signer import Outgoing, Signer, exchange

SECONDS = 60

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

SERVICE = """
from storagegate.core.errors import ServiceError


async def echo(request, context):
    return request


async def fail(request, context):
    raise ServiceError("BROKEN", "secret", 503)


async def refuse(request, context):
    raise ServiceError("NOT_FOUND", "secret", 404)


async def whoami(request, context):
    tracing = context.tracing
    return {"trace": tracing.traceId, "own": tracing.ownId, "sampled": tracing.sampled}


def attributes(context):
    if context.method == "fail":
        raise RuntimeError("no attributes here")
    return {"tenant": "blue", "parts": [1, 2], "odd": object(), "rpc.method": "mine"}


Probe = {
    "name": "Probe",
    "methods": {"echo": echo, "fail": fail, "refuse": refuse, "whoami": whoami},
}
"""


def parent(span: str = "00f067aa0ba902b7", flags: str = "01") -> str:
    """Give a C{traceparent}."""
    return f"00-{TRACE}-{span}-{flags}"


class TracedCase(SynchronousTestCase):
    """Daemons and collectors that do not outlive the test."""

    timeout = 60

    def setUp(self) -> None:
        """Write the service into the working directory, and start a collector."""
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        (self.directory / "traced.py").write_text(SERVICE)
        self.collector = Collector()
        self.addCleanup(self.collector.stop)

    def daemon(
        self, lines: str, listeners: tuple[str, ...] = ("http",), **environment: str
    ) -> Daemon:
        """
        Make a daemon.

        @param lines: Of C{[gateway.monitoring.tracing]}.
        """
        path = self.directory / "storagegate.toml"
        path.write_text(f"[gateway.monitoring.tracing]\n{lines}\n")
        places = {"http": "tcp:0:interface=127.0.0.1", "tcp": "tcp:0:interface=127.0.0.1"}
        flags = [
            word
            for name in listeners
            if name != "s3"
            for word in (f"--{name}", places.get(name, "127.0.0.1:0"))
        ]
        daemon = Daemon(
            Path(mkdtemp(dir=self.directory)) / "data",
            "--config",
            str(path),
            "--service",
            "traced:Probe",
            *flags,
            environment=environment,
            expect=listeners,
            directory=self.directory,
        )
        self.addCleanup(daemon.kill)
        return daemon

    def started(self, lines: str, *listeners: str, more: str = "") -> Daemon:
        """
        Start a daemon that traces to the collector, as fast as it can.

        @param more: Further tables of its configuration.
        """
        lines = f"enabled = true\nintervalMs = 20\n{lines}"
        if "endpoint" not in lines:
            lines += f'\nendpoint = "{self.collector.url()}"'
        return self.daemon(f"{lines}\n{more}", listeners or ("http",)).start()

    def callHTTP(
        self, daemon: Daemon, method: str = "echo", **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """Call over HTTP."""
        connection = HTTPConnection(*daemon.address("http"), timeout=SECONDS)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(
                "POST", f"/api/Probe/{method}", "{}", {"Content-Type": "application/json", **fields}
            )
            response = connection.getresponse()
            body = json.loads(response.read())
            answered = {name.lower(): value for name, value in response.getheaders()}
            return response.status, answered, body
        finally:
            connection.close()

    def callWebSocket(self, daemon: Daemon, **more: str) -> Any:
        """Call over WebSocket."""
        host, port = daemon.address("http")
        with connect(f"ws://{host}:{port}/ws", open_timeout=SECONDS) as client:
            client.send(json.dumps({"id": 1, "service": "Probe", "method": "echo", **more}))
            return json.loads(client.recv(SECONDS))

    def callGRPC(self, daemon: Daemon, **metadata: str) -> dict[str, str]:
        """Call over gRPC; give the initial metadata."""
        host, port = daemon.address("grpc")
        with grpc.insecure_channel(f"{host}:{port}") as channel:
            method = channel.unary_unary("/Probe/echo")
            _answer, call = method.with_call(b"", timeout=SECONDS, metadata=tuple(metadata.items()))
            return dict(call.initial_metadata())

    def callTCP(self, daemon: Daemon, **more: str) -> Any:
        """Call over TCP."""
        with socket.create_connection(daemon.address("tcp"), SECONDS) as client:
            client.sendall(self._frame(more))
            with client.makefile("rb") as answers:
                head = answers.read(HEADER_LENGTH)
                return json.loads(answers.read(int.from_bytes(head[2:], "big")))

    def callUDP(self, daemon: Daemon, **more: str) -> Any:
        """Call over UDP."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(SECONDS)
            client.sendto(self._frame(more), daemon.address("udp"))
            return json.loads(client.recv(65536)[HEADER_LENGTH:])

    def callS3(self, daemon: Daemon, verb: str, target: str, **headers: str) -> Any:
        """Ask over S3, signed."""
        address = daemon.address("s3")
        account = Account(ACCESS_KEY, SECRET_KEY)
        signed = Signer(f"{address[0]}:{address[1]}", account).sign(Outgoing(verb, target))
        return exchange(address, signed.adding(**headers))

    def _frame(self, more: dict[str, str]) -> bytes:
        call = {"id": 1, "service": "Probe", "method": "echo", "data": {}, **more}
        return encodeFrame(REQUEST, json.dumps(call).encode())

    def assertId(self, text: str, digits: int) -> None:
        """Check the id of a trace or a span."""
        self.assertTrue(re.fullmatch(rf"[0-9a-f]{{{digits}}}", text) and int(text, 16), text)
