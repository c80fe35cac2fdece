"""
Hot reload in the process of the program: C{development.hmr}.

The first C{listen} turns the process into the L{supervisor
<storagegate.http.development.supervisor>}, which runs the program again as its child. There,
listening sockets are inherited or handed to the supervisor, and C{listen} waits until the
predecessor has stopped accepting. In a process that cannot be started again by its command line,
such as a test runner or twistd, only pages are reloaded.
"""

import json
import os
import re
import runpy
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple

from attrs import asdict
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure

from storagegate.http.development.console import ErrorReport, isInstalled
from storagegate.http.development.livereload import PAGE_SUFFIXES, LiveReloadHub, staticRoots
from storagegate.http.development.supervisor import GRACE_SECONDS, ChangeNotifier, becomeSupervisor
from storagegate.http.options import reactorRuntime
from storagegate.net.endpoints import bind, listen
from storagegate.net.http.site import Site

_BEAT_SECONDS = 15.0
"""The interval of comments in event streams: less than the time-out of common proxies."""

_CHECK_SECONDS = 0.25
"""The pause between two checks of the files of pages."""

_SETTLE_SECONDS = 1.0
"""How long a successor may take to listen where its predecessor did, before that is closed."""

_SIGNAL_SECONDS = 0.2
"""How long a signal to the process group may take to arrive here."""

_log = Logger()

Opened = tuple[IListeningPort, bool]
"""A port, and whether its address was not listened on before."""


@lru_cache(maxsize=1)
def processReloader() -> "Reloader":
    """Return the reloader of this process."""
    return Reloader()


class Reloader:
    """
    Reload the applications of a process, and the pages that they serve.

    @ivar hub: The open pages.
    """

    def __init__(self) -> None:
        self.hub = LiveReloadHub()
        # The socket to the supervisor, if there is one, and the protocol that reads from it.
        self._control: socket.socket | None = None
        self._link: _SupervisorLink | None = None
        self._inherited: list[tuple[str, int]] = []
        self._ports: dict[IListeningPort, tuple[Any, str]] = {}
        self._isSuccessor = self._isServing = self._isRetired = False
        self._permission: Deferred[None] = Deferred()
        self._named: set[str] = set()
        self._pages = ChangeNotifier(PAGE_SUFFIXES)
        self._calls: list[LoopingCall] = []

    def supervise(
        self, control: socket.socket, inherited: Sequence[tuple[str, int]], isSuccessor: bool
    ) -> None:
        """
        Take part in a supervisor's protocol.

        @param control: The socket to the supervisor.
        @param inherited: Endpoint descriptions with the descriptors of their sockets.
        @param isSuccessor: Whether another process serves until this one is ready.
        """
        self._control = control
        self._inherited = list(inherited)
        self._isSuccessor = isSuccessor

    # For applications

    def listen(self, app: Any, reactor: Any, endpoint: str, site: Site) -> Deferred[Opened]:
        """
        Listen for an application, as soon as the predecessor has stopped accepting.

        In a process that has no supervisor yet, this does not return: the supervisor runs the
        program again.

        @param endpoint: The endpoint string, by which a socket is found again after a restart.
        @return: Fires with the port. Fails with C{CannotListenError} if the address is taken.
        """
        if self._control is None and not self._ports:
            command = programCommand(sys.orig_argv, sys.modules["__main__"])
            if command is not None:
                becomeSupervisor(*command)
            _log.warn("hmr: this process cannot be started again, so only pages are reloaded")

        def refused(reason: Failure) -> Failure:
            if reason.value is not None:
                self.fail(reason.value)
            return reason

        opening = Deferred.fromCoroutine(self._listen(app, reactor, endpoint, site))
        return opening.addErrback(refused)

    async def _listen(self, app: Any, reactor: Any, endpoint: str, site: Site) -> Opened:
        description, isNew = endpoint, True
        if self._control is not None:
            if self._link is None:
                self._link = link = _SupervisorLink(self, reactor)
                factory = Factory.forProtocol(lambda: link)
                reactor.adoptStreamConnection(self._control.fileno(), socket.AF_UNIX, factory)
            known = next((each for each in self._inherited if each[0] == endpoint), None)
            isNew = known is None
            if known is not None:
                self._inherited.remove(known)
                descriptor = known[1]
            else:
                bound = await bind(reactor, endpoint)
                # The port object would unlink the path of a UNIX socket when it closes.
                descriptor = bound.port.socket.detach()
                self._send("hold", [descriptor], endpoint=endpoint)
            tail = ":" + endpoint if endpoint.startswith(("ssl:", "tls:")) else ""
            description = f"inherited:{descriptor}{tail}"
            if not self._isServing:
                reactor.callWhenRunning(self._ready)
                permission: Deferred[None] = Deferred()
                self._permission.chainDeferred(permission)
                await permission
        port = await listen(reactor, description, site)
        if not self._ports:
            run = reactorRuntime(reactor).run
            for function, seconds in (
                (self.hub.beat, _BEAT_SECONDS),
                (lambda: self._checkFiles(run), _CHECK_SECONDS),
            ):
                call = LoopingCall(function)
                call.clock = reactor
                call.start(seconds, now=False)
                self._calls.append(call)
        self._ports[port] = (app, endpoint)
        self._watchPages()
        return port, isNew

    def fail(self, error: BaseException) -> bool:
        """
        Report an error to the supervisor, if it keeps this process from taking over.

        @param error: An error of the program, or of its C{listen}.
        @return: Whether it was reported; if not, it is for the process to show.
        """
        if not self._isSuccessor or self._isServing:
            return False
        report = ErrorReport.of(error)
        files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
        files += [report.file or ""]
        self._nameFiles(path for path in files if os.path.isabs(path) and not isInstalled(path))
        self._send("failed", report=asdict(report))
        return True

    def released(self, port: IListeningPort) -> None:
        """
        Note that an application has closed a port.

        @param port: A port that L{listen} has opened.
        """
        _, endpoint = self._ports.pop(port, (None, ""))
        if self._isRetired:
            if not self._ports:
                self._send("left")
        else:
            self._send("drop", endpoint=endpoint)
        # Events for one port's pages would keep its connections open.
        self.hub.endAll()
        if not self._ports:
            calls, self._calls = self._calls, []
            for call in calls:
                call.stop()

    # The supervisor

    def _send(self, kind: str, descriptors: Sequence[int] = (), **values: Any) -> None:
        """Send a message. It blocks for no time: the supervisor does nothing but read."""
        if self._control is not None:
            data = json.dumps({"kind": kind, **values}).encode() + b"\n"
            with suppress(OSError):
                sent = socket.send_fds(self._control, [data], descriptors)
                self._control.sendall(data[sent:])

    def _ready(self) -> None:
        """Offer to take over: the program is loaded and wants to listen."""
        if not self._isServing:
            self._nameModules()
            self._send("ready")

    def serve(self, reactor: Any, files: Sequence[str], milliseconds: float) -> None:
        """
        Accept from now on: there is no predecessor, or it has stopped accepting.

        @param reactor: Schedules the release of inherited sockets that are not used.
        @param files: The paths that have changed, for the log.
        @param milliseconds: The time from the start of this process.
        """
        self._isServing = True
        if self._isSuccessor:
            names = ", ".join(os.path.relpath(path) for path in files)
            _log.info("reloaded {names} in {time:.0f} ms", names=names, time=milliseconds)
        reactor.callLater(_SETTLE_SECONDS, self._dropInherited)
        self._permission.callback(None)

    def _dropInherited(self) -> None:
        """Close the sockets that the predecessor needed and this program does not."""
        inherited, self._inherited = self._inherited, []
        for endpoint, descriptor in inherited:
            _log.info("no longer listening on {endpoint}", endpoint=endpoint)
            os.close(descriptor)
            self._send("drop", endpoint=endpoint)

    def showError(self, report: Mapping[str, Any]) -> None:
        """
        Show why a successor has failed, on the console and in open pages.

        @param report: The attributes of an L{ErrorReport}.
        """
        where = f" {report['file']}:{report['line']}" if report["file"] else ""
        # Critical events are printed also where nothing has begun to log.
        _log.critical(
            "not reloaded, the old code goes on:{where}\n{text}",
            where=where,
            text=(report["text"] or report["title"]).rstrip(),
        )
        self.hub.fail(report)

    def retire(self, reactor: Any, files: list[str]) -> None:
        """
        Stop accepting, finish the requests in flight, then stop the reactor.

        @param reactor: Stopped when the last request has ended.
        @param files: The paths that have changed, for open pages.
        """
        self._isRetired = True
        self.hub.reload(files)
        apps = {id(app): app for app, _ in self._ports.values()}
        if not apps:
            self._send("left")
        closing = [app.close(int(GRACE_SECONDS * 1000)) for app in apps.values()]
        gatherResults(closing).addBoth(lambda _: self.stop(reactor))

    def stop(self, reactor: Any) -> None:
        """Stop the reactor, as the end of the supervisor does."""
        with suppress(ReactorNotRunning):
            reactor.stop()

    # The files

    def _watchPages(self) -> None:
        trees: set[str] = set()
        for app, _ in self._ports.values():
            trees |= staticRoots(app)
        # The state of a file before it was sent, not that of now.
        self._pages.files = self.hub.files | self._pages.files
        self._pages.watch(self.hub.files, trees)

    async def _checkFiles(self, run: Callable[..., Deferred[set[str]]]) -> None:
        try:
            self._nameModules()
            self._watchPages()
            changed = sorted(await run(self._pages.settled))
        except Exception:
            _log.failure("files cannot be checked")
            return
        if changed and not self._isRetired:
            _log.info("reloaded {names}", names=", ".join(map(os.path.relpath, changed)))
            self.hub.reload(changed)

    def _nameModules(self) -> None:
        """Have the supervisor watch the modules that were imported since the last call."""
        if self._control is None:
            return
        files = set()
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            # A script may have any name.
            if isinstance(file, str) and (file.endswith(".py") or name == "__main__"):
                files.add(os.path.abspath(file))
        self._nameFiles(path for path in files if not isInstalled(path))

    def _nameFiles(self, paths: Iterator[str]) -> None:
        new = sorted(set(paths) - self._named)
        if new:
            self._named.update(new)
            self._send("files", files=new)


class _SupervisorLink(LineOnlyReceiver):
    """The messages of the supervisor."""

    delimiter = b"\n"
    # A traceback of a recursion.
    MAX_LENGTH = 1024 * 1024

    def __init__(self, reloader: Reloader, reactor: Any) -> None:
        self._reloader = reloader
        self._reactor = reactor

    def lineReceived(self, line: bytes) -> None:
        """Handle a message."""
        message = json.loads(line)
        kind = message["kind"]
        if kind == "serve":
            self._reloader.serve(self._reactor, message["files"], message["ms"])
        elif kind == "retire":
            self._reloader.retire(self._reactor, message["files"])
        elif kind == "error":
            self._reloader.showError(message["report"])

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Stop: the supervisor stops or is gone."""
        # A terminal sends SIGINT to both processes; Twisted's own handler has to be the first.
        self._reactor.callLater(_SIGNAL_SECONDS, self._reloader.stop, self._reactor)


class Program(NamedTuple):
    """
    What an interpreter runs.

    @ivar kind: C{script}, C{module} or C{code}.
    @ivar target: The file, the name of the module or the source text.
    @ivar argv: Its C{sys.argv}.
    """

    kind: str
    target: str
    argv: list[str]


def programCommand(command: Sequence[str], script: ModuleType) -> tuple[list[str], Program] | None:
    """
    Find how the program of this process can be started again.

    @param command: The command line of the process, as C{sys.orig_argv}.
    @param script: The module C{__main__}.
    @return: Options of the interpreter, and the program. C{None} for programs that are installed,
        such as twistd and test runners, for those that run in another program, and for prompts.
    """
    options: list[str] = []
    rest = list(command[1:])
    kind = "script"
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        named = re.fullmatch("-([A-Za-z]*)([mc])", option)
        if named is not None:
            options += ["-" + named[1]] if named[1] else []
            kind = {"m": "module", "c": "code"}[named[2]]
            break
        options.append(option)
        if option in ("-X", "-W", "--check-hash-based-pycs"):
            options += rest[:1]
            del rest[:1]
    if not rest or "--multiprocessing-fork" in rest:
        return None
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return None
    shown = target = rest[0]
    file = getattr(script, "__file__", None)
    if kind == "code":
        shown = "-c"
        isKnown = file is None
    elif file is None or isInstalled(os.path.abspath(file)):
        isKnown = False
    else:
        isKnown = kind == "module" or os.path.basename(file) == os.path.basename(target)
        if kind == "script":
            # The program may have changed its directory.
            target = os.path.abspath(file)
    return (options, Program(kind, target, [shown, *rest[1:]])) if isKnown else None


def runProgram(applications: Any) -> None:
    """
    Run a program as the child of a supervisor, which has started this process.

    @param applications: The class of applications, which gets the C{reloader}.
    """
    setup = json.loads(sys.argv[1])
    control = socket.socket(fileno=setup["control"])
    control.set_inheritable(False)
    # It never has to wait so long; without a time-out a write would be allowed to fail.
    control.settimeout(10.0)
    for _, descriptor in setup["sockets"]:
        os.set_inheritable(descriptor, False)
    reloader = applications.reloader = processReloader()
    reloader.supervise(control, setup["sockets"], setup["isSuccessor"])
    try:
        _execute(Program(*setup["program"]))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not reloader.fail(error):
            # Without the frames of this function and its caller.
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
                trace = trace.tb_next
            sys.excepthook(type(error), error, trace)
        sys.exit(1)


def _execute(program: Program) -> None:
    """Run a program as if the interpreter had been started with it."""
    sys.argv = program.argv
    kind, target = program.kind, program.target
    # First comes what found this module, then what the interpreter adds for itself.
    del sys.path[0]
    if not sys.flags.safe_path:
        script = os.path.dirname(os.path.realpath(target))
        sys.path[0] = {"script": script, "module": os.getcwd(), "code": ""}[kind]
    if kind == "module":
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    source: bytes | str = target
    if kind == "script":
        main.__file__ = target
        with open(target, "rb") as file:
            source = file.read()
    name = target if kind == "script" else "<string>"
    exec(compile(source, name, "exec", dont_inherit=True), vars(main))
