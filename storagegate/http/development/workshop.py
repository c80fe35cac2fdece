"""
Keeps the code of a process and its open pages up to date: C{development.hmr}.

There is one in a process, as there is one C{sys.modules}; it lives from the first listener to the
last. It outlives the applications: each change of the code makes new ones.
"""

import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.http.development.listeners import Listeners, Served
from storagegate.http.development.modules import SCRIPT, Scope, fileOf, isInstalled, rootOf
from storagegate.http.development.pagefiles import functionsOf, staticRoots
from storagegate.http.development.pagehub import PageHub
from storagegate.http.development.reloading import Plan, ScriptServes, execute, makePlan
from storagegate.http.development.reports import reportOf
from storagegate.http.development.snapshots import Watched
from storagegate.http.development.watching import Alarm, Watcher
from storagegate.http.runtime import reactorRuntime
from storagegate.net.site import Site

# Less than what proxies give an idle connection.
_BEAT_SECONDS = 15.0

_log = Logger()


@lru_cache(maxsize=1)
def processWorkshop() -> "Workshop":
    """Give the workshop of this process."""
    return Workshop()


class Workshop:
    """
    Watches the code of applications, loads it again, and tells pages.

    @ivar hub: The open pages.
    @ivar isWanted: Whether an application that listens, or will, wants its code to be watched.
    @ivar isLoading: Whether code is being executed again.
    """

    def __init__(self) -> None:
        self.hub = PageHub()
        self.isWanted = False
        self.isLoading = False
        self._listeners = Listeners()
        self._scope = Scope(frozenset())
        self._hasScript = False
        # What changed since the code that runs was loaded, and what of it does not load.
        self._stale: set[str] = set()
        self._tried: set[str] = set()
        self._reactor: Any = None
        self._run: Any = None
        self._watcher: Watcher | None = None
        self._beat = LoopingCall(self.hub.beat)

    # For applications

    def listen(self, app: Any, reactor: Any, description: str, site: Site) -> Deferred[Served]:
        """
        Listen for an application, or let it take over where the old code listens.

        @param site: What is served where nobody listens yet.
        @return: The port and what is served there.
        """
        makers = _callers()

        def started(served: Served) -> Served:
            if not self.isLoading:
                self._start(reactor, app)
            return served

        listening = self._listeners.listen(app, reactor, description, site, makers)
        return listening.addCallback(started)

    def scriptServes(self) -> None:
        """Take note that the script is a program that runs its own application."""
        self._hasScript = fileOf(sys.modules[SCRIPT]) is not None

    def scriptWaits(self) -> None:
        """
        Take note that the script has come to where it runs the reactor.

        @raise ScriptServes: If the script is being executed again, by the reactor.
        """
        if self.isLoading:
            raise ScriptServes()

    def released(self, port: IListeningPort) -> None:
        """Take note that an application closes a port."""
        self._listeners.forget(port)
        # Those of other ports come again; these would keep their connections open.
        self.hub.endAll()
        if not self._listeners.all and self._watcher is not None:
            self._watcher.stop()
            self._watcher = self.hub.fileNoted = None
            self._beat.stop()
            self.isWanted = False

    def close(self, graceMs: int) -> Deferred[None]:
        """Close all applications."""
        apps = {id(listener.app): listener.app for listener in self._listeners.all}
        closing = [app.close(graceMs) for app in apps.values()]
        return gatherResults(closing).addCallback(lambda results: None)

    # The watch

    def _start(self, reactor: Any, app: Any) -> None:
        self._hasScript = self._hasScript or _isProgram(sys.modules[SCRIPT])
        script = [SCRIPT] if self._hasScript else []
        self._widen([*script, *_modulesOf(app)])
        if self._watcher is None:
            self._reactor = reactor
            runtime = reactorRuntime(reactor)
            self._run = runtime.run
            self._watcher = Watcher(
                runtime, self._watched, self._changed, lambda wake: Alarm(reactor, wake)
            )
            self._watcher.start()
            self.hub.fileNoted = self._watcher.extend
            self._beat.clock = reactor
            self._beat.start(_BEAT_SECONDS, now=False)
        else:
            self._lookAround()

    def _widen(self, names: Iterable[str]) -> None:
        """Count what lies beside some modules among the application's files."""
        roots = set(self._scope.roots)
        for name in names:
            module = sys.modules.get(name)
            file = fileOf(module)
            if module is not None and file is not None and not isInstalled(file):
                roots.add(rootOf(name, module, file))
        self._scope = Scope(frozenset(roots))

    def _watched(self) -> Watched:
        files = set(self._scope.modules().values())
        sources = {os.path.dirname(path) for path in files}
        trees: set[str] = set()
        for listener in self._listeners.all:
            trees |= staticRoots(listener.app)
        files |= self._tried | self.hub.files.keys()
        return Watched(frozenset(files), frozenset(sources), frozenset(trees))

    def _lookAround(self) -> None:
        """Have the files watched of what was loaded just now."""
        if self._watcher is not None:
            self._watcher.extend()

    def _changed(self, changes: set[str]) -> Deferred[None]:
        return Deferred.fromCoroutine(self._act(changes))

    async def _act(self, changes: set[str]) -> None:
        """Do what changes ask for."""
        pages = sorted(path for path in changes if not path.endswith(".py"))
        started = self._reactor.seconds()
        changed: tuple[str, ...] = ()
        if len(pages) < len(changes):
            self._stale |= changes
            try:
                plan = await self._run(makePlan, self._scope, self._stale, self._hasScript)
                if self._watcher is None:
                    return
                if plan.modules:
                    self._load(plan)
            except Exception as error:
                self._refuse(error)
                return
            changed = plan.changed
            self._stale.clear()
            self._tried.clear()
            self._lookAround()
        if changed or pages:
            names = [*changed, *pages]
            _log.info(
                "reloaded {names} in {time:.0f} ms",
                names=", ".join(map(os.path.relpath, names)),
                time=(self._reactor.seconds() - started) * 1000,
            )
            self.hub.reload(names, isRepaired=not self._stale)

    def _load(self, plan: Plan) -> None:
        """
        Load code. Nothing else happens meanwhile, as when it was loaded for the first time.

        @raise Exception: What is wrong with it; the old code is in its place then.
        """
        old = {name: sys.modules[name] for name in plan.modules}
        remade = frozenset(plan.modules)

        def commit() -> None:
            self._listeners.commit(self._reactor, remade, lambda app: _successor(app, old))

        self._listeners.begin()
        self.isLoading = True
        try:
            execute(plan, commit, self._tried)
        except BaseException:
            self._listeners.rollBack()
            raise
        finally:
            self.isLoading = False

    def _refuse(self, error: Exception) -> None:
        """Say what is wrong with the new code."""
        report = reportOf(error, isOwn=self._scope.owns)
        # Files that were never loaded as a whole are watched for the repair.
        self._tried.update(
            frame.filename
            for frame in traceback.extract_tb(error.__traceback__)
            if self._scope.owns(frame.filename)
        )
        if report.file is not None:
            self._tried.add(report.file)
        self._lookAround()
        place = f" {report.file}:{report.line}" if report.file else ""
        _log.failure("not reloaded, the old code goes on:{place}", Failure(error), place=place)
        self.hub.fail(report.asMapping())


def _callers() -> frozenset[str]:
    """Name the modules that have called this."""
    names = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        names.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return frozenset(names)


def _isProgram(script: Any) -> bool:
    """Say whether the script is the application's: neither a tool's nor a prompt."""
    file = fileOf(script)
    return file is not None and file.endswith(".py") and not isInstalled(file)


def _modulesOf(app: Any) -> set[str]:
    """Name the modules that an application is a global of, and those of its handlers."""
    names = {
        name
        for name, module in list(sys.modules.items())
        if any(value is app for value in list(getattr(module, "__dict__", {}).values()))
    }
    return names | {getattr(function, "__module__", None) or "" for function in functionsOf(app)}


def _successor(app: Any, old: Mapping[str, ModuleType]) -> Any:
    """Give the application that has the same name now as an old one, L{None} if none has."""
    for name, module in old.items():
        for key, value in vars(module).items():
            if value is app:
                new = getattr(sys.modules.get(name), key, None)
                if new is not app and isinstance(new, type(app)):
                    return new
    return None
