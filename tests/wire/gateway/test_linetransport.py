"""A sixth transport in the daemon, of one row that a plugin names: flag, key, variable, workers."""

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.daemon import CHECKOUT, Daemon, DaemonFailed
from tests.support.http import REQUEST_SECONDS, getJSON, request
from tests.support.selection import long
from tests.wire.telemetry.test_metrics import wholePage

PLUGIN = "from tests.support.linetransport import LINE\n"

SERVICE = """
import os

async def who(request, context):
    return {"protocol": context.protocol, "pid": os.getpid(), "user": context.authentication}

async def count(request, context):
    for number in range(request["to"]):
        yield number

async def collect(requests, context):
    return [each async for each in requests]

async def chat(requests, context):
    async for each in requests:
        yield each.upper()

def known(key, context):
    return {"name": "ann"} if key == "good" else None

Probe = {
    "name": "Probe",
    "methods": {
        "who": who,
        "private": {"handler": who, "authentication": True},
        "count": count,
        "collect": {"handler": collect, "streaming": "client"},
        "chat": {"handler": chat, "streaming": "bidirectional"},
    },
}
"""

CONFIGURATION = """
[gateway.line]
maxLineBytes = 4096

[gateway.authentication.providers.apikey]
validate = "lined:known"

[gateway.authentication.rules]
line = ["apikey"]

[gateway.monitoring.metrics.protocolMetrics]
line = ["line_count"]
"""


class LineClient:
    """A client of the transport, which shares no code with it."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(REQUEST_SECONDS)
        # The kernel takes no more than 107 bytes of a path.
        self._socket.connect(os.path.relpath(path))
        self._answers = self._socket.makefile("rb")

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> Any:
        """Read a message; C{None} at the end."""
        line = self._answers.readline()
        return json.loads(line) if line else None

    def call(self, method: str, data: Any = None, **more: Any) -> Any:
        """Call a method, and read the first message of its answer."""
        self.send(id=1, service="Probe", method=method, data=data or {}, **more)
        return self.read()

    def close(self) -> None:
        """Close."""
        self._answers.close()
        self._socket.close()


class LineCase(SynchronousTestCase):
    """A daemon that finds the plugin."""

    def setUp(self) -> None:
        """Write the plugin, a module of services, and the file of the configuration."""
        self.directory = Path(self.mktemp()).absolute()
        plugins = self.directory / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "storagegate_line.py").write_text(PLUGIN)
        (self.directory / "lined.py").write_text(SERVICE)
        (self.directory / "config.toml").write_text(CONFIGURATION)
        self.path = self.directory / "line.sock"

    def daemon(
        self, *arguments: str, expect: tuple[str, ...] = ("line",), **variables: str
    ) -> Daemon:
        """Make a daemon that does not outlive the test."""
        path = os.pathsep.join((str(CHECKOUT), str(self.directory)))
        daemon = Daemon(
            self.directory / "data",
            "--config",
            str(self.directory / "config.toml"),
            "--service",
            "lined:Probe",
            *arguments,
            expect=("s3", "admin", *expect),
            directory=self.directory,
            environment={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        )
        self.addCleanup(daemon.kill)
        return daemon

    def client(self) -> LineClient:
        """Connect."""
        client = LineClient(self.path)
        self.addCleanup(client.close)
        return client


class LineTests(LineCase):
    """One process."""

    def test_served(self) -> None:
        """All four ways to stream, who calls, what is counted and what is described."""
        listeners = ("--line", "unix:line.sock", "--http", "tcp:0:interface=127.0.0.1")
        with self.daemon(*listeners, expect=("line", "http")) as daemon:
            client = self.client()
            self.streams(client)
            self.credentials(client)
            self.counts(daemon)
            status, document = getJSON(daemon.address("http"), "/api/asyncapi.json")
            self.assertEqual(status, 200)
            self.assertEqual(document["servers"]["line"]["protocol"], "line")
            self.assertIn("line.Probe.chat", document["operations"])
            client.send(id=2, service="Probe", method="who", data={"pad": "x" * 5000})
            self.assertEqual(client.read()["error"]["code"], "PAYLOAD_TOO_LARGE")
            self.assertIsNone(client.read())
            self.assertEqual(daemon.stop(), 0)
        self.assertNotRegex(daemon.log, "Traceback|Unhandled")

    def streams(self, client: LineClient) -> None:
        """Call methods of each kind."""
        self.assertEqual(client.call("who")["data"]["protocol"], "line")
        self.assertEqual(client.call("count", {"to": 2})["data"], 0)
        self.assertEqual(client.read()["data"], 1)
        self.assertEqual(client.read(), {"id": 1, "type": "stream_end"})
        client.send(id=1, service="Probe", method="collect")
        for text in ("a", "b"):
            client.send(id=1, type="stream", data=text)
        client.send(id=1, type="stream_end")
        self.assertEqual(client.read()["data"], ["a", "b"])
        client.send(id=1, service="Probe", method="chat")
        client.send(id=1, type="stream", data="hello")
        self.assertEqual(client.read()["data"], "HELLO")
        client.send(id=1, type="stream_end")
        self.assertEqual(client.read(), {"id": 1, "type": "stream_end"})

    def credentials(self, client: LineClient) -> None:
        """A key stands where messages have tokens."""
        self.assertEqual(client.call("private")["error"]["code"], "UNAUTHENTICATED")
        bad = client.call("private", auth={"token": "bad"})
        self.assertEqual(bad["error"]["code"], "UNAUTHENTICATED")
        good = client.call("private", auth={"token": "good"})
        self.assertEqual(good["data"]["user"], {"name": "ann"})

    def counts(self, daemon: Daemon) -> None:
        """Metrics have it among the protocols, and those of its own."""
        status, page = request(daemon.address("admin"), "GET", "/metrics")
        text = page.decode()
        self.assertEqual(status, 200)
        labels = 'method="chat",protocol="line",service="Probe",status="ok"'
        self.assertIn(f"storagegate_requests_total{{{labels}}} 1.0\n", text)
        self.assertIn('storagegate_active_connections{protocol="line"} 1.0\n', text)
        self.assertIn('storagegate_line_lines_total{direction="in"} 12.0\n', text)

    @long("takes seconds")
    def test_configured(self) -> None:
        """A variable has its address, too, and what is wrong in its table stops the start."""
        with self.daemon(STORAGEGATE_LINE="unix:line.sock") as daemon:
            self.assertEqual(self.client().call("who")["data"]["protocol"], "line")
            self.assertEqual(daemon.stop(), 0)
        for table, words in (
            ("[gateway.line]\nsize = 5\n", "there is no option line.size"),
            ('[gateway.line]\naddress = "unix:x"\n', "gateway.line.address: set the key line of"),
            ("line = 5\n", "expected an endpoint"),
        ):
            (self.directory / "config.toml").write_text(table)
            daemon = self.daemon("--http", "tcp:0:interface=127.0.0.1")
            self.assertRaises(DaemonFailed, daemon.start)
            self.assertIn(words, daemon.log)

    def test_off(self) -> None:
        """Without a default address it is off."""
        with self.daemon("--tcp", "tcp:0:interface=127.0.0.1", expect=("tcp",)) as daemon:
            self.assertFalse(self.path.exists())
            self.assertEqual(daemon.stop(), 0)
        self.assertNotIn("name=line", daemon.log)


class LineWorkersTests(LineCase):
    """Several processes."""

    @long("takes seconds")
    def test_workers(self) -> None:
        """Workers inherit its listener, each serves on it, and their metrics are one page."""
        with self.daemon("--line", "unix:line.sock", "--workers", "2") as daemon:
            pids: set[int] = set()
            calls = 0
            while len(pids) < 2:
                client = LineClient(self.path)
                pids.add(client.call("who")["data"]["pid"])
                client.close()
                calls += 1
            self.assertNotIn(daemon.pid, pids)
            found = re.findall(
                r'requests_total\{method="who",protocol="line",.*worker="\d"\} (\d+)',
                wholePage(daemon).decode(),
            )
            self.assertEqual((len(found), sum(map(int, found))), (2, calls))
            self.assertEqual(daemon.stop(), 0)
        self.assertNotRegex(daemon.log, "Traceback|Unhandled")
