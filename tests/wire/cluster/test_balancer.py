"""C{deploy/cluster/haproxy.cfg} in a real HAProxy, before nodes whose health a test sets."""

import re
import socket
import subprocess
import sys
import threading
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.support.documents import DOCS
from tests.support.patroni import CLUSTER, until
from tests.support.ports import waitForPort
from tests.support.programs import needProgram
from tests.support.selection import long

NAMES = ("one", "two", "three")

MOST_SECONDS = 10.0
"""The time that a client waits at most for a node that hangs."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "StandInNode"

    def answer(self) -> None:
        """Answer health checks at once, and C{/slow} when the test says so."""
        node = self.server
        if self.path in ("/readyz", "/healthz"):
            node.thawed.wait()
        status = {"/readyz": node.ready, "/healthz": 200}.get(self.path, 200)
        if self.path == "/slow":
            node.begun.set()
            node.finishing.wait()
        self.send_response(status)
        self.send_header("Content-Length", str(len(node.name)))
        self.end_headers()
        self.wfile.write(node.name.encode())

    def beSilent(self, *given: Any) -> None:
        """Print nothing."""

    do_GET, log_message = answer, beSilent


class StandInNode(ThreadingHTTPServer):
    """
    A node for both of its listeners.

    @ivar ready: The status of C{/readyz}.
    @ivar thawed: Cleared while it answers nothing.
    @ivar begun: Set when a slow request has arrived.
    @ivar finishing: Set when slow requests may be answered.
    """

    daemon_threads = True

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = name
        self.ready = 200
        self.thawed, self.begun, self.finishing = (threading.Event() for _ in range(3))
        self.thawed.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def ignoreError(self, *given: Any) -> None:
        """Do nothing: HAProxy resets the connections of its checks."""

    handle_error = ignoreError

    def end(self) -> None:
        """Answer everything, and stop."""
        self.thawed.set()
        self.finishing.set()
        self.shutdown()
        self.server_close()


@long("starts a cluster")
class BalancerTests(SynchronousTestCase):
    """Three nodes."""

    def setUp(self) -> None:
        """Start the nodes, then HAProxy with the delivered file, its addresses and ports set."""
        program = needProgram("haproxy")
        directory = Path(self.mktemp()).absolute()
        machines = [f"{name}=127.0.0.{number}" for number, name in enumerate(NAMES, 1)]
        command = [sys.executable, str(CLUSTER / "configure.py"), "--blobs", "files:/srv"]
        subprocess.run([*command, str(directory), *machines], check=True, capture_output=True)
        text = (directory / "one" / "haproxy.cfg").read_text()
        text = text.replace("    user haproxy\n    group haproxy\n", "")
        self.nodes = []
        for number, name in enumerate(NAMES, 1):
            node = StandInNode(name)
            self.addCleanup(node.end)
            self.nodes.append(node)
            place = f"127.0.0.1:{node.server_port}"
            # Its listener for S3 answers health checks as well.
            text = text.replace(f"127.0.0.{number}:9000", f"{place} port {node.server_port}")
        self.ports = {}
        for port in (8000, 8404):
            with closing(socket.socket()) as probe:
                probe.bind(("127.0.0.1", 0))
                self.ports[port] = probe.getsockname()[1]
            text = text.replace(f"bind 127.0.0.1:{port}", f"bind 127.0.0.1:{self.ports[port]}")
        path = directory / "haproxy.cfg"
        path.write_text(text)
        self.balancer = subprocess.Popen(
            [program, "-db", "-f", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(self.balancer.wait)
        self.addCleanup(self.balancer.kill)
        waitForPort(self.ports[8000], self.balancer)

    def get(self, path: str, port: int = 8000) -> str:
        """Send a request to the balancer; return the body of the answer."""
        with closing(HTTPConnection("127.0.0.1", self.ports[port], timeout=30)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
            return body if response.status == 200 else f"{response.status}"

    def states(self, backend: str = "nodes") -> list[str]:
        """Return what the balancer says of each node."""
        rows = [line.split(",") for line in self.get("/;csv", 8404).splitlines()]
        place = rows[0].index("status")
        return [row[place].partition(" ")[0] for row in rows if row[0] == backend][: len(NAMES)]

    def slow(self) -> "tuple[StandInNode, threading.Thread, list[str]]":
        """Begin a slow request; return its node, and where its answer will be."""
        found: list[str] = []

        def request() -> None:
            try:
                found.append(self.get("/slow"))
            except (OSError, HTTPException):
                found.append("cut")

        thread = threading.Thread(target=request)
        thread.start()
        until(lambda: any(each.begun.is_set() for each in self.nodes))
        [node] = [each for each in self.nodes if each.begun.is_set()]
        return node, thread, found

    def test_draining(self) -> None:
        """A node that is not ready gets no further requests, and finishes those it has begun."""
        node, thread, found = self.slow()
        node.ready = 503
        until(lambda: self.states().count("NOLB") == 1)
        self.assertNotIn(node.name, [self.get("/") for _ in range(6)])
        node.finishing.set()
        thread.join()
        self.assertEqual(found, [node.name])
        node.ready = 200
        until(lambda: self.states() == ["UP"] * 3)

    def test_noneReady(self) -> None:
        """While no node is ready, those that live get the requests."""
        for each in self.nodes:
            each.ready = 503
        until(lambda: self.states() == ["NOLB"] * 3)
        self.assertEqual({self.get("/") for _ in range(9)}, set(NAMES))
        self.nodes[1].ready = 200
        until(lambda: self.states().count("UP") == 1)
        self.assertEqual({self.get("/") for _ in range(9)}, {"two"})

    def test_hanging(self) -> None:
        """The requests of a node that hangs end within ten seconds; the others go on."""
        node, thread, found = self.slow()
        begun = monotonic()
        node.thawed.clear()
        thread.join(MOST_SECONDS)
        waited = monotonic() - begun
        self.assertFalse(thread.is_alive(), f"it still waits after {waited:.1f} s")
        self.assertNotEqual(found, [node.name])
        self.assertEqual(self.states().count("DOWN"), 1)
        self.assertEqual(len([self.get("/") for _ in range(6)]), 6)
        # A short stall of one check is no failure.
        self.assertGreater(waited, 2.5)
        page = (DOCS / "cluster.rst").read_text()
        self.assertTrue(re.search(r"within ten\s+seconds", page))
