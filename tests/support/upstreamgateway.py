"""
A gateway as a process, an instance of C{Probe}::

    python -m tests.support.upstreamgateway PORT TALLY

The first line of output reports that it listens. Each call of C{once} writes its C{id} to the file
C{TALLY}, which survives the process.
"""

import os
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tests.support.modules import CHECKOUT
from tests.support.ports import heldPort


class UpstreamGateway(ProcessProtocol):
    """
    The process.

    @ivar port: The port that it listens on.
    """

    def __init__(self, case: Any, tally: str) -> None:
        """
        @param case: A test case with a reactor; the port stays reserved until its end.
        @param tally: The path of a file that several processes may share.
        """
        self.port = heldPort(case)
        self._tally = os.path.abspath(tally)
        self._reactor = case.reactor
        self._output = b""

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self._output = b""
        self._started: Deferred[None] | None = Deferred()
        self._ended: Deferred[None] = Deferred()
        command = [sys.executable, "-m", __name__, str(self.port), self._tally]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        self._reactor.spawnProcess(self, command[0], command, env=environment)
        await self._started

    @property
    def pid(self) -> int | None:
        """Return the process id; C{None} if it is not running."""
        return None if self.transport is None else self.transport.pid

    async def kill(self) -> None:
        """Kill the process."""
        if self.pid and self.transport is not None:
            self.transport.signalProcess("KILL")
        await self._ended

    def outReceived(self, data: bytes) -> None:
        """Detect that it listens."""
        self._output += data
        if b"\n" in self._output and self._started is not None:
            started, self._started = self._started, None
            started.callback(None)

    def processEnded(self, reason: Failure) -> None:
        """Record the end."""
        if self._started is not None:
            started, self._started = self._started, None
            started.errback(reason)
        self._ended.callback(None)


def serve(port: int, tally: str) -> None:
    """Serve until the process ends."""
    from twisted.internet import reactor

    from storagegate.gateway.gateway import createProtocolGateway

    file = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def echo(request: Any, context: Any) -> Any:
        await deferLater(reactor, request.get("seconds", 0))  # type: ignore[arg-type]
        return {"pid": os.getpid(), **request}

    async def once(request: Any, context: Any) -> Any:
        os.write(file, b"%d\n" % request["id"])
        await deferLater(reactor, 0.005)  # type: ignore[arg-type]
        return {"pid": os.getpid()}

    async def health(request: Any, context: Any) -> Any:
        return {}

    gateway = createProtocolGateway(
        protocols=["http"], port=port, http={"routes": {"GET /health": "Probe.health"}}
    )
    methods = {"echo": echo, "once": once, "health": health}
    gateway.addService("Probe", {"methods": methods})
    gateway.listen().addCallback(lambda ports: print(ports["http"].getHost().port, flush=True))
    reactor.run()  # type: ignore[attr-defined]


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
