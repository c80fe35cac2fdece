"""
A gateway as a process, one of the instances of C{Probe}::

    python upstreamgateway.py PORT

Port 0 takes a free one; the first line of output says which. C{calls} tells how often C{once} was
called, which is all that is remembered.
"""

import os
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure


class UpstreamGateway(ProcessProtocol):
    """
    The process.

    @ivar port: Where it listens.
    """

    def __init__(self, reactor: Any) -> None:
        self.port = 0
        self._reactor = reactor
        self._output = b""

    async def start(self) -> None:
        """Start it where it was before, or at a free port."""
        self._output = b""
        self._started: Deferred[None] | None = Deferred()
        self._ended: Deferred[None] = Deferred()
        command = [sys.executable, os.path.abspath(__file__), str(self.port)]
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        self._reactor.spawnProcess(self, command[0], command, env=environment)
        await self._started

    async def kill(self) -> None:
        """End it at once."""
        if self.transport is not None and self.transport.pid:
            self.transport.signalProcess("KILL")
        await self._ended

    def outReceived(self, data: bytes) -> None:
        """Find the port."""
        self._output += data
        if b"\n" in self._output and self._started is not None:
            self.port = int(self._output)
            started, self._started = self._started, None
            started.callback(None)

    def processEnded(self, reason: Failure) -> None:
        """Take note of the end."""
        if self._started is not None:
            self._started.errback(reason)
        self._ended.callback(None)


def serve(port: int) -> None:
    """Serve until the process ends."""
    from twisted.internet import reactor

    from storagegate.gateway.gateway import createProtocolGateway

    count = 0

    async def echo(request: Any, context: Any) -> Any:
        await deferLater(reactor, request.get("seconds", 0))  # type: ignore[arg-type]
        return {"pid": os.getpid(), **request}

    async def once(request: Any, context: Any) -> Any:
        nonlocal count
        count += 1
        await deferLater(reactor, 0.005)  # type: ignore[arg-type]
        if request.get("die"):
            os._exit(1)
        return {"pid": os.getpid()}

    async def calls(request: Any, context: Any) -> Any:
        return {"calls": count}

    async def health(request: Any, context: Any) -> Any:
        return {}

    gateway = createProtocolGateway(
        protocols=["http"], port=port, http={"routes": {"GET /health": "Probe.health"}}
    )
    methods = {"echo": echo, "once": once, "calls": calls, "health": health}
    gateway.addService("Probe", {"methods": methods})
    gateway.listen().addCallback(lambda ports: print(ports["http"].getHost().port, flush=True))
    reactor.run()  # type: ignore[attr-defined]


if __name__ == "__main__":
    serve(int(sys.argv[1]))
