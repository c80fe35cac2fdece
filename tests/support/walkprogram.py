"""
The daemon, with a record of the package's functions that are entered, for L{tests.support.walks}.

L{run} stands in the place of C{twistd}'s own. An HTTP and a gRPC application are served beside the
daemon, in the same process. The program is controlled by lines over the socket whose descriptor is
in C{WALKS_CONTROL}: it first sends the ports of both applications, a JSON object, and then answers
each line with the files that were entered since the line before, a JSON list for each thread.
"""

import json
import os
import socket
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.modules import CHECKOUT, PACKAGE

CONTROL = "WALKS_CONTROL"

TEXT = {"type": "object", "properties": {"text": {"type": "string", "required": True}}}

QUIET_SECONDS = 0.03
"""After that long without a new entry a request is over: what follows its response is done, too."""

MOST_PAUSES = 100
"""So often a take waits for quiet; a program that is never quiet is not waited for."""


NO_STEPS = {("net/transport.py", "_poll"), ("net/transport.py", "_runCalls")}
"""Functions of an iteration of the reactor, which is no step of a request."""


class Recorder:
    """
    A record of the functions of a package that are entered, in all threads.

    A coroutine is entered each time that it is resumed.
    """

    def __init__(self, root: Path) -> None:
        """
        @param root: The folder of the package.
        """
        self._prefix = f"{root}/"
        self._files: dict[CodeType, str | None] = {}
        self._entries: dict[int, list[str]] = {}

    def install(self) -> None:
        """Record this thread, and all that are started from now on."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Record an event; the signature is that of L{sys.setprofile}."""
        if event != "call":
            return
        code = frame.f_code
        try:
            file = self._files[code]
        except KeyError:
            path = code.co_filename
            file = path.removeprefix(self._prefix) if path.startswith(self._prefix) else None
            if (file, code.co_name) in NO_STEPS:
                file = None
            self._files[code] = file
        if file is not None:
            self._entries.setdefault(threading.get_ident(), []).append(file)

    def take(self) -> list[list[str]]:
        """
        Wait until no function is entered any more, and forget what was recorded.

        @return: The files in the order of their entries, for each thread.
        """
        pause = threading.Event()
        count = -1
        for _ in range(MOST_PAUSES):
            before, count = count, sum(len(each) for each in [*self._entries.values()])
            if count == before:
                break
            pause.wait(QUIET_SECONDS)
        taken, self._entries = self._entries, {}
        return [*taken.values()]


async def _echo(request: Any, context: Any) -> Any:
    return request


service = {"name": "Echo", "methods": {"echo": {"handler": _echo, "input": TEXT, "output": TEXT}}}
"""What the daemon serves."""


async def openApplications() -> dict[str, int]:
    """Serve an HTTP and a gRPC application, and return their ports."""
    from storagegate import server

    http = server.http()
    http.get("/users/:id", lambda req, res: res.json({"id": req.params["id"]}))

    async def echo(request: Any) -> Any:
        return request

    methods = {"Echo": {"handler": echo, "input": TEXT, "output": TEXT}}
    grpc = server.grpc().addService(name="Echo", methods=methods)
    ports: dict[str, Any] = {
        "express": await http.listen(0, "127.0.0.1"),
        "application": await grpc.listen(0, "127.0.0.1"),
    }
    return {name: port.getHost().port for name, port in ports.items()}


def _control(recorder: Recorder, control: socket.socket, ports: dict[str, int]) -> None:
    """Answer the lines of the control socket; in a thread of its own, which is not recorded."""
    sys.setprofile(None)
    with control, control.makefile("rw") as lines:
        print(json.dumps(ports), file=lines, flush=True)
        for _line in lines:
            print(json.dumps(recorder.take()), file=lines, flush=True)


def run() -> None:
    """Run C{twistd} with the arguments of the process, recorded."""
    control = socket.socket(fileno=int(os.environ.pop(CONTROL)))
    recorder = Recorder(CHECKOUT / PACKAGE)
    recorder.install()
    from twisted.internet import reactor as installed
    from twisted.internet.defer import Deferred

    reactor: Any = installed

    def begin(ports: dict[str, int]) -> None:
        thread = threading.Thread(target=_control, args=(recorder, control, ports), daemon=True)
        thread.start()

    def fail(failure: Any) -> None:
        control.close()
        failure.printTraceback()

    def serve() -> None:
        Deferred.fromCoroutine(openApplications()).addCallback(begin).addErrback(fail)

    reactor.callWhenRunning(serve)
    from twisted.scripts.twistd import run as runDaemon

    runDaemon()
