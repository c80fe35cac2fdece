"""
Two nodes of a cluster behind HAProxy, in place of one daemon; requests or connections alternate
between them.
"""

import atexit
import os
import signal
import socket
import subprocess
from functools import cache
from typing import Any

from storagegate.storage.cluster.blobs.pieces import MARKER
from tests.support.cluster import Cluster
from tests.support.ports import waitForPort
from tests.support.programs import needProgram

_CONFIGURATION = """\
global
    maxconn 4000
defaults
    mode {mode}
    retries 0
    timeout connect 5s
    timeout client 150s
    timeout server 150s
frontend s3
    bind 127.0.0.1:{port}
    default_backend nodes
{rules}
backend nodes
    balance roundrobin
{servers}
"""


_RULES = """\
    http-request set-var(txn.waits) bool(true) if { req.hdr(Expect) -m found }
    http-after-response set-header Connection close if { var(txn.waits) -m bool } { status ge 400 }
"""
"""
A client that waits for C{100 Continue} may send no body after a refusal: HAProxy would mistake the
next request for the body.
"""


class BalancedNodes:
    """
    The nodes, with the part of L{Daemon}'s interface that tests use.

    @ivar cluster: The cluster of the nodes.
    @ivar data: The directory of all files.
    """

    def __init__(self, mode: str = "http") -> None:
        """
        Start the nodes and HAProxy.

        @param mode: Whether requests (C{http}) or connections (C{tcp}) alternate: in the mode
            C{http} HAProxy parses requests, and rejects or changes some of them.
        @raise SkipTest: If HAProxy is not installed.
        """
        program = needProgram("haproxy")
        self.cluster = Cluster()
        self.data = self.cluster.directory
        self._nodes = self.cluster.start(2)
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self._port = int(self._held.getsockname()[1])
        servers = "\n".join(
            f"    server node{number} 127.0.0.1:{node.address()[1]}"
            for number, node in enumerate(self._nodes)
        )
        path = self.data / "haproxy.cfg"
        rules = _RULES if mode == "http" else ""
        text = _CONFIGURATION.format(mode=mode, port=self._port, rules=rules, servers=servers)
        path.write_text(text)
        self._balancer = subprocess.Popen(
            [program, "-db", "-f", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        waitForPort(self._port, self._balancer)

    @property
    def storeArguments(self) -> tuple[str, ...]:
        """Arguments with which a command finds the store."""
        return ("--config", str(self.cluster.configuration()))

    @property
    def log(self) -> str:
        """The complete log of the nodes."""
        return "".join(node.log for node in self._nodes)

    def address(self, name: str = "s3") -> tuple[str, int]:
        """Return host and port of the balancer, or of a listener of the first node."""
        return ("127.0.0.1", self._port) if name == "s3" else self._nodes[0].address(name)

    def url(self, name: str = "s3", scheme: str = "http") -> str:
        """Return the URL of a listener, without a trailing slash."""
        host, port = self.address(name)
        return f"{scheme}://{host}:{port}"

    def leftovers(self) -> list[str]:
        """List the blobs that are missing in the catalog."""
        stored = {
            name
            for _, _, names in os.walk(self.data / "blobs" / "blobs")
            for name in names
            if name != MARKER
        }
        return sorted(stored - {id for (id,) in self.cluster.rows("SELECT id FROM blobs")})

    def kill(self) -> None:
        """Kill all processes."""
        self._balancer.send_signal(signal.SIGKILL)
        self._balancer.wait()
        self._held.close()
        self.cluster.close()


@cache
def balancedNodes(mode: str) -> Any:
    """Return the nodes, which run until the test run ends."""
    nodes = BalancedNodes(mode)
    atexit.register(nodes.kill)
    return nodes
