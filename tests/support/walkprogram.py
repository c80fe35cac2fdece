"""
The daemon with a recorder of entered functions of the package, for L{tests.support.walks}.

L{run} replaces C{twistd}'s own. An HTTP and a gRPC application are served in the same process as
the daemon. The program is controlled by lines on the socket whose descriptor is in
C{WALKS_CONTROL}: it first sends the ports of both applications as a JSON object, and then answers
each line with the files that were entered since the previous line, a JSON list per thread.
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
"""
Time without a new entry after which a request is complete, including the work after its response.
"""

MOST_PAUSES = 100
"""Limit of the waits for a quiet period, in case the program is never quiet."""


NO_STEPS = {("net/transport.py", "_poll"), ("net/transport.py", "_runCalls")}
"""Functions of a reactor iteration, which is not a step of a request."""


class Recorder:
    """
    Records the entered functions of a package in all threads.

    A coroutine is entered each time it is resumed.
    """

    def __init__(self, root: Path) -> None:
        """
        @param root: The folder of the package.
        """
        self._prefix = f"{root}/"
        self._files: dict[CodeType, str | None] = {}
        self._entries: dict[int, list[str]] = {}

    def install(self) -> None:
        """Record this thread, and all threads that are started from now on."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Record an event, with the signature of L{sys.setprofile}."""
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
        Wait for a quiet period, then return and clear the record.

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
"""The service of the daemon."""


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
    """Answer the lines of the control socket, in a separate thread that is not recorded."""
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
