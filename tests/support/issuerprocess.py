"""A token issuer as a separate process: a directory, served by Python's own server."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tests.support.tokens import jwks

_ADDRESS = re.compile(rb"port (\d+)")


class IssuerProcess(ProcessProtocol):
    """
    Serves a directory.

    @ivar issuer: The URL of the issuer.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.issuer = ""
        self._output = b""
        self._log = b""
        self._started: Deferred[None] | None = Deferred()
        self._ended: Deferred[None] = Deferred()

    async def start(self, reactor: Any) -> None:
        """Start it."""
        (self.directory / ".well-known").mkdir(parents=True)
        command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
        reactor.spawnProcess(self, command[0], command, path=str(self.directory), env=None)
        assert self._started is not None
        await self._started
        self.publish(f"{self.issuer}/keys")

    async def stop(self) -> None:
        """Kill the process."""
        if self.transport is not None and self.transport.pid:
            self.transport.signalProcess("KILL")
        await self._ended

    def publish(self, place: str, *keys: Any) -> None:
        """Publish the URL of the keys, and the keys at C{/keys}."""
        metadata = {"issuer": self.issuer, "jwks_uri": place}
        path = self.directory / ".well-known" / "openid-configuration"
        path.write_text(json.dumps(metadata))
        (self.directory / "keys").write_bytes(jwks(*keys))

    async def requests(self) -> list[str]:
        """Kill it, so that its log is complete; return the requested paths."""
        await self.stop()
        return re.findall(r'"GET (\S+) HTTP', self._log.decode())

    def outReceived(self, data: bytes) -> None:
        """Find the port."""
        self._output += data
        match = _ADDRESS.search(self._output)
        if match is not None and self._started is not None:
            self.issuer = f"http://127.0.0.1:{match[1].decode()}"
            started, self._started = self._started, None
            started.callback(None)

    def errReceived(self, data: bytes) -> None:
        """Keep the log."""
        self._log += data

    def processEnded(self, reason: Failure) -> None:
        """Fire the waiting Deferreds."""
        if self._started is not None:
            self._started.errback(RuntimeError(self._log.decode()))
        self._ended.callback(None)
