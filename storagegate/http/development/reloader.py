"""
Hot reload in the process of the program: C{development.hmr}.

The first C{listen} turns the process into the L{supervisor
<storagegate.http.development.supervisor>}, which runs the program again as its child. There,
listening sockets are inherited or handed to the supervisor, and C{listen} waits until the
predecessor has stopped accepting. A thread watches the files of the program, because a handler may
block the reactor. In a process that cannot be restarted from its command line, such as a test
runner or twistd, only pages are reloaded.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from threading import Lock, Thread
from traceback import walk_tb
from types import ModuleType
from typing import Any

from attrs import asdict
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from storagegate.core.streams import SharedFuture
from storagegate.http.development.console import ErrorReport, isInstalled
from storagegate.http.development.livereload import LiveReloadHub, staticRoots
from storagegate.http.development.sources import SourceWatcher
from storagegate.http.development.supervisor import GRACE_SECONDS, becomeSupervisor
from storagegate.net.endpoints import bind, listen
from storagegate.net.http.site import Site
from storagegate.serving.program import Program, execute, findProgram, showError

_CHECK_SECONDS = 0.25
"""Seconds between checks of files; a hundred files take half a millisecond."""

_BEAT_ROUNDS = 60
"""Checks between comments in event streams: 15 s, less than the timeout of common proxies."""

_LEAVE_SECONDS = 5.0
"""Time for a predecessor to stop accepting; one in an endless loop never does."""

_SETTLE_SECONDS = 1.0
"""Time for a successor to listen on its predecessor's sockets, before they are closed."""

_SIGNAL_SECONDS = 0.2
"""Time for a signal to the process group to arrive here."""

_log = Logger()

Opened = tuple[IListeningPort, bool]
"""A port, and whether its address is new."""


@lru_cache(maxsize=1)
def processReloader() -> "Reloader":
    """Return the reloader of this process."""
    return Reloader()


class Reloader:
    """Reload the applications of a process, and the pages that they serve."""

    def __init__(self) -> None:
        self.hub = LiveReloadHub()
        # The supervisor's parameters, and the connection to it, if any.
        self._setup: Mapping[str, Any] = {"isSuccessor": False}
        self._control: Connection | None = None
        self._lock = Lock()
        self._inherited: list[tuple[str, int]] = []
        self._ports: dict[IListeningPort, tuple[Any, str]] = {}
        # Set when this process may accept.
        self._turn: SharedFuture[None] = SharedFuture()
        self._isRetired = False
        # Called when no port accepts connections.
        self._onLeft: Callable[[], object] = lambda: None
        self._modules = SourceWatcher()
        self._thread: Thread | None = None

    def supervise(self, setup: Mapping[str, Any]) -> None:
        """
        Take part in a supervisor's protocol.

        @param setup: C{control}, the descriptor of the connection to the supervisor; C{sockets},
            endpoint descriptions with descriptors; C{isSuccessor}, whether another process serves
            until this one is ready; C{files}, the changed files; C{started}, the start time of this
            process by the monotonic clock.
        """
        self._setup = setup
        self._control = Connection(setup["control"])
        self._inherited = setup["sockets"]
        for descriptor in (setup["control"], *(each for _, each in self._inherited)):
            os.set_inheritable(descriptor, False)

    # For applications

    def listen(self, app: Any, reactor: Any, endpoint: str, site: Site) -> Deferred[Opened]:
        """
        Listen for an application once the predecessor has stopped accepting.

        In a process without a supervisor this does not return: the supervisor runs the program
        again.

        @param endpoint: The endpoint string, which identifies the socket after a restart.
        @return: Fires with the port. Fails with C{CannotListenError} if the address is taken.
        """
        if self._control is None and not self._ports:
            command = programCommand(sys.orig_argv, sys.modules["__main__"])
            if command is not None:
                becomeSupervisor(*command)
            _log.warn("hmr: this process cannot be started again, so only pages are reloaded")
        return Deferred.fromCoroutine(self._listen(app, reactor, endpoint, site))

    async def _listen(self, app: Any, reactor: Any, endpoint: str, site: Site) -> Opened:
        description, isNew = endpoint, True
        try:
            if self._control is not None:
                description, isNew = await self._inherit(reactor, endpoint)
                if self._thread is None:
                    reactor.callWhenRunning(self._ready, reactor)
                await self._turn.wait()
            port = await listen(reactor, description, site)
        except Exception as error:
            self.fail(error)
            raise
        self._ports[port] = (app, endpoint)
        self._watch(reactor)
        return port, isNew

    async def _inherit(self, reactor: Any, endpoint: str) -> tuple[str, bool]:
        """
        Take over a socket of the predecessor, or bind one and share it with the supervisor.

        @return: The endpoint string of the inherited socket, and whether it is new.
        """
        known = next((each for each in self._inherited if each[0] == endpoint), None)
        if known is not None:
            self._inherited.remove(known)
            descriptor = known[1]
        else:
            bound = await bind(reactor, endpoint)
            # The port object would unlink the path of a UNIX socket when it closes.
            descriptor = bound.port.socket.detach()
            self._send("hold", endpoint, descriptor)
        tail = ":" + endpoint if endpoint.startswith(("ssl:", "tls:")) else ""
        return f"inherited:{descriptor}{tail}", known is None

    def fail(self, error: BaseException) -> bool:
        """
        Report an error to the supervisor if it prevents this process from taking over.

        @param error: An error of the program, or of its C{listen}.
        @return: Whether it was reported; if not, the process has to show it.
        """
        if not self._setup["isSuccessor"] or self._turn.isKnown:
            return False
        report = ErrorReport.of(error)
        files = {frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)}
        files.add(report.file or "")
        own = [path for path in files if os.path.isabs(path) and not isInstalled(path)]
        self._send("failed", (asdict(report), own))
        return True

    def released(self, port: IListeningPort) -> None:
        """Note that an application has closed a port."""
        _, endpoint = self._ports.pop(port, (None, ""))
        if not self._isRetired:
            self._send("drop", endpoint)
        elif not self._ports:
            self._onLeft()
        if not self._isRetired:
            # Events for one port's pages would keep its connections open.
            self.hub.endAll()

    # The supervisor

    def _send(self, kind: str, value: object = None, descriptor: int | None = None) -> None:
        """
        Send a message. May be called in any thread; does not block noticeably, as the supervisor
        only reads.
        """
        if self._control is not None:
            with self._lock, suppress(OSError):
                self._control.send((kind, value))
                if descriptor is not None:
                    send_handle(self._control, descriptor, os.getppid())

    def _ready(self, reactor: Any) -> None:
        """Offer to take over, as the program is loaded and ready to listen."""
        if self._thread is None:
            self._watch(reactor)
            self._send("ready")
            if self._setup["isSuccessor"]:
                reactor.callLater(_LEAVE_SECONDS, self._serve, reactor)

    def _receive(self, reactor: Any, kind: str, value: Any) -> None:
        """Handle a message of the supervisor."""
        if kind == "serve":
            self._serve(reactor)
        elif kind == "retire":
            self._retire(reactor, value)
        else:
            report, files = value
            for path in files:
                self._modules.add(path)
                # The failed program may lack a file that this program does not import yet.
                self._modules.add(os.path.dirname(path))
            where = f" {report['file']}:{report['line']}" if report["file"] else ""
            # Critical events are printed even before logging has begun.
            _log.critical(
                "not reloaded, the old code goes on:{where}\n{text}",
                where=where,
                text=(report["text"] or report["title"]).rstrip(),
            )
            self.hub.fail(report)

    def _serve(self, reactor: Any) -> None:
        """Start to accept: the predecessor, if any, has stopped accepting."""
        if self._turn.isKnown or self._isRetired:
            return
        if self._setup["isSuccessor"]:
            names = ", ".join(map(os.path.relpath, self._setup["files"]))
            milliseconds = (time.monotonic() - self._setup["started"]) * 1000
            _log.info("reloaded {names} in {time:.0f} ms", names=names, time=milliseconds)
        reactor.callLater(_SETTLE_SECONDS, self._dropInherited)
        self._turn.set(None)

    def _dropInherited(self) -> None:
        """Close the predecessor's sockets that this program does not use."""
        inherited, self._inherited = self._inherited, []
        for endpoint, descriptor in inherited:
            os.close(descriptor)
            self._send("drop", endpoint)
            _log.info("no longer listening on {endpoint}", endpoint=endpoint)

    def _retire(self, reactor: Any, files: list[str]) -> None:
        """Stop accepting, finish the requests in flight, then stop the reactor."""
        self._isRetired = True

        def reloadPages() -> None:
            self.hub.reload(files)
            self.hub.endAll()

        def left() -> None:
            self._send("left")
            # Pages would reconnect on their idle connections, which Site.drain closes in the second
            # iteration from here.
            reactor.callLater(0, reactor.callLater, 0, reactor.callLater, 0, reloadPages)

        self._onLeft = left
        apps = {id(app): app for app, _ in self._ports.values()}
        if not apps:
            left()
        closing = [app.close(int(GRACE_SECONDS * 1000)) for app in apps.values()]
        gatherResults(closing).addBoth(lambda _: _stop(reactor))

    # The files

    def _watch(self, reactor: Any) -> None:
        """Watch the files known so far, and start a thread that watches files known later."""
        self._findFiles()
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._run, args=(reactor,), daemon=True)
            self._thread.start()

    def _run(self, reactor: Any) -> None:
        """Receive messages and look for changes. Runs in a thread."""
        controls = [] if self._control is None else [self._control]
        for number in count(1):
            if not controls and not self._ports:
                break
            # One more check follows the order to retire.
            isRetired = self._isRetired
            try:
                if wait(controls, _CHECK_SECONDS):
                    reactor.callFromThread(self._receive, reactor, *controls[0].recv())
            except (EOFError, OSError):
                # The supervisor stops or has ended. A terminal sends SIGINT to both processes;
                # Twisted's handler has to run first.
                reactor.callFromThread(reactor.callLater, _SIGNAL_SECONDS, _stop, reactor)
                break
            if number % _BEAT_ROUNDS == 0:
                reactor.callFromThread(self.hub.beat)
            if not isRetired:
                try:
                    self._check(reactor)
                except Exception:
                    _log.failure("files cannot be checked")

    def _check(self, reactor: Any) -> None:
        """Report changes of files. Runs in a thread."""
        self._findFiles()
        code = self._modules.changes()
        if code:
            self._send("changed", code)
        pages = sorted(self.hub.files.settled())
        if pages:
            _log.info("reloaded {names}", names=", ".join(map(os.path.relpath, pages)))
            reactor.callFromThread(self.hub.reload, pages)

    def _findFiles(self) -> None:
        """Watch the files imported and served since the last call."""
        for app, _ in list(self._ports.values()):
            for root in staticRoots(app):
                self.hub.files.add(root)
        if self._control is not None:
            self._modules.addImported()


def _stop(reactor: Any) -> None:
    with suppress(ReactorNotRunning):
        reactor.stop()


def programCommand(command: Sequence[str], script: ModuleType) -> tuple[list[str], Program] | None:
    """
    Determine the command that restarts the program of this process.

    @param command: The command line of the process, as C{sys.orig_argv}.
    @param script: The module C{__main__}.
    @return: See L{findProgram}. Also C{None} for installed programs, such as twistd and test
        runners.
    """
    found = findProgram(command, script)
    file = getattr(script, "__file__", None)
    return None if file is not None and isInstalled(os.path.abspath(file)) else found


def runProgram(applications: Any) -> None:
    """
    Run a program as the child of the supervisor that started this process.

    @param applications: The application class, on which C{reloader} is set.
    """
    setup = json.loads(sys.argv[1])
    reloader = applications.reloader = processReloader()
    reloader.supervise(setup)
    try:
        execute(*setup["program"])
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not reloader.fail(error):
            showError(error)
        sys.exit(1)
