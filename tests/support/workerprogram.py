"""
A worker that answers HTTP requests with its own state, for tests of the supervisor.

It is started like C{storagegate.daemon.worker}. Its answers contain the option C{greeting}; with
C{breaks} it fails to start. C{gate} is a path that it opens before it starts, so that a FIFO there
blocks it until a test writes to it. It writes C{noise} bytes to its output. C{/slow} writes a
letter to the file C{slow}, and waits until the file C{go} exists.
"""

import os
import socket
import sys
from typing import Any

from twisted.internet import reactor as installedReactor
from twisted.internet.task import deferLater

from storagegate.net.endpoints import listen
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import CoroutineResource, Site
from storagegate.net.ipc import (
    CONTROL,
    WorkerIPC,
    WorkerSetup,
    adopt,
    encode,
    readBlocking,
    readSetup,
)

reactor: Any = installedReactor


class Program:
    """One worker."""

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.link = link = WorkerIPC(setup)
        self.heard: list[Any] = []
        self.isStopping = False
        resource = CoroutineResource(self.answer, lambda request, error: (500, [], b""))
        self.site = Site(resource, HTTPLimits(), reactor)
        self.port: Any = None
        link.retired = self.drainAndExit
        link.stopped = self.stop
        link.subscribe("news", self.heard.append)
        link.answer("name", lambda payload: [link.index, os.getpid(), payload])
        listen(reactor, setup.places["http"], self.site).addCallback(self.opened)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Stop, unless it is stopping already."""
        if not self.isStopping:
            self.isStopping = True
            reactor.stop()

    def opened(self, port: Any) -> None:
        """Record the port."""
        self.port = port

    async def answer(self, request: ChannelRequest) -> None:
        """Answer a request."""
        if request.path == b"/slow":
            options = self.setup.options
            with open(options["slow"], "a") as told:
                told.write("s")
            while not os.path.exists(options["go"]):
                await deferLater(reactor, 0.02)
        if request.path == b"/tell":
            self.link.broadcast("news", "hello")
        text = f"{self.setup.options['greeting']} {os.getpid()} {self.link.index} "
        text += f"{len(self.heard)}"
        if request.path == b"/ask":
            text = repr(sorted(await self.link.ask("name", "x")))
        request.respond(200, [], text.encode())

    def drainAndExit(self, idleGraceSeconds: float) -> None:
        """Drain, because another process takes over."""
        closing = self.port.stopListening()
        closing.addCallback(lambda _: self.site.drain(60, idleGraceSeconds))
        closing.addCallback(lambda _: self.stop())


def main() -> None:
    """Serve until stopped."""
    control = socket.socket(fileno=CONTROL)
    message = readBlocking(control)
    assert message is not None
    setup = readSetup(message)
    if setup.options.get("breaks"):
        control.sendall(encode({"kind": "failed", "reason": "the fuse has blown"}))
        sys.exit(1)
    if "gate" in setup.options:
        open(setup.options["gate"]).close()
    os.write(1, bytes(setup.options.get("noise", 0)))
    program = Program(setup)
    control.setblocking(False)
    adopt(reactor, control, program.link.control)
    reactor.callWhenRunning(program.link.ready)
    reactor.run()


if __name__ == "__main__":
    main()
