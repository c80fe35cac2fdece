"""
Keeps the code of a process and its open pages up to date: C{development.hmr}.

There is one in a process, as there is one C{sys.modules}; it lives from the first listener to the
last. It outlives the applications: each change of the code makes new ones.

Which modules are an application's, what they import, and which have to be executed again.

Executes modules again, all or none.

The modules get new objects: functions of the old code that are still running keep their globals.
If one of them raises, everything is as before: the old objects are back, and what the new code has
changed in modules that were not executed again is undone.

The listening ports, and which application answers there.

While code is loaded again, an application that wants to listen where another does claims that
port; it gets it if all the code loads. Later, in the same generation of the code, it gets it at
once. The port is not closed meanwhile, and what it is answering is not disturbed.

The state of files, to find what has changed.

Watches files.

What has changed is found by comparing snapshots, made in a thread. When to look is decided by
L{ChangeNotifier}: the kernel's word where there is one, and the clock.

Directories that the kernel tells of changes in. Only Linux has this module's C{INotify}.

Where an application has the files that pages are made of.

Errors, told to the people who wrote the code.
"""

import ast
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.util import cache_from_source
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from attrs import asdict, define, evolve, field, frozen
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.error import ReactorAlreadyRunning
from twisted.internet.inotify import INotify, INotifyError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.filepath import FilePath

from storagegate.http.application import Runtime, reactorRuntime
from storagegate.http.development.livereload import PAGE_SUFFIXES, LiveReloadHub
from storagegate.http.layers import LayerList
from storagegate.http.middleware.staticfiles import StaticOptions
from storagegate.net.endpoints import listen
from storagegate.net.http.site import Site

_PACKAGES = ("site-packages", "dist-packages")

FRAMEWORK = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""Where our own files are."""

_INSTALLED = tuple(
    os.path.realpath(path) + os.sep
    for path in (
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        sysconfig.get_path("scripts"),
        FRAMEWORK,
    )
)

SCRIPT = "__main__"
"""The name of the script as a module."""


@lru_cache(maxsize=10_000)
def isInstalled(path: str) -> bool:
    """Say whether a file came with Python, with a package or with us."""
    real = os.path.realpath(path)
    return real.startswith(_INSTALLED) or any(part in _PACKAGES for part in real.split(os.sep))


def fileOf(module: Any) -> str | None:
    """Give the file of a module, L{None} if it has none that can be read."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    # A script may have any name.
    isSource = file.endswith(".py") or getattr(module, "__name__", None) == SCRIPT
    return os.path.abspath(file) if isSource else None


def rootOf(name: str, module: ModuleType, file: str) -> str:
    """Give the directory that a module is found in, beside others of its application."""
    spec = getattr(module, "__spec__", None)
    name = name if spec is None else spec.name
    levels = name.count(".") + (1 if os.path.basename(file) == "__init__.py" else 0)
    for _ in range(levels + 1):
        file = os.path.dirname(file)
    return file


@frozen
class Scope:
    """
    The files that are an application's.

    @ivar roots: The directories that they are below.
    """

    roots: frozenset[str]

    def owns(self, path: str) -> bool:
        """Say whether a file is one of them."""
        below = any(path.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots)
        return below and not isInstalled(path)

    def modules(self) -> dict[str, str]:
        """Give the modules that are loaded, and their files, in the order of loading."""
        found = {}
        for name, module in list(sys.modules.items()):
            file = fileOf(module)
            if file is not None and self.owns(file):
                found[name] = file
        return found


def importedNames(source: bytes, package: str) -> frozenset[str]:
    """
    Find what a module may import, in functions too.

    @param package: Where relative imports begin.
    @return: Names of modules, and some that are no modules but things in them.
    @raise SyntaxError: If it is no Python.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    # Whoever imports a.b imports a.
    for name in list(names):
        while "." in name:
            name = name.rpartition(".")[0]
            names.add(name)
    return frozenset(names)


def routerHolders(names: Iterable[str]) -> set[str]:
    """Give which modules have a router among their globals: others may register handlers there."""
    return {
        name
        for name in names
        if (module := sys.modules.get(name)) is not None
        and any(isinstance(value, LayerList) for value in list(vars(module).values()))
    }


def affectedModules(
    changed: Iterable[str],
    imports: Mapping[str, frozenset[str]],
    holders: Iterable[str],
    hasScript: bool,
) -> set[str]:
    """
    Find which modules have to be executed again.

    Those that changed; those that import one of them; those that hold a router which one of them
    imports, for handlers must not be registered twice; and what lies in a package that is one of
    them. The script always is, and everything if a changed module is imported in some other way.

    @param imports: What each module of the application may import.
    @param holders: Those that hold routers.
    @param hasScript: Whether the script is the application's.
    """
    affected = set(changed)
    if hasScript:
        for name in affected - {SCRIPT}:
            if not any(name in imported for other, imported in imports.items() if other != name):
                return set(imports)
        affected.add(SCRIPT)
    holders = set(holders)
    size = -1
    while size != len(affected):
        size = len(affected)
        affected |= {name for name, imported in imports.items() if imported & affected}
        wanted = frozenset().union(*(imports.get(name, frozenset()) for name in affected))
        affected |= holders & wanted
        affected |= {name for name in imports if _parents(name) & affected}
    return affected


def _parents(name: str) -> set[str]:
    parents = set()
    while "." in name:
        name = name.rpartition(".")[0]
        parents.add(name)
    return parents


class ScriptServes(BaseException):
    """The script has come to where it would run the reactor. Not for C{except Exception}."""


class ScriptEnded(Exception):
    """The script wanted to end the process."""


@frozen
class Plan:
    """
    What is to be done.

    @ivar modules: Those that are executed again, in the order in which they were loaded; the
        script is among them if it is the application's.
    @ivar files: The files of the application's modules.
    @ivar changed: The files that changed and are modules.
    """

    scope: Scope
    modules: tuple[str, ...]
    files: Mapping[str, str]
    changed: tuple[str, ...]


def makePlan(scope: Scope, changed: set[str], hasScript: bool) -> Plan:
    """
    Find out what a change means, and whether it can be compiled. May be called in a thread.

    @raise SyntaxError: If a file that changed is no Python.
    """
    files = scope.modules()
    files.pop(SCRIPT, None)
    script = fileOf(sys.modules[SCRIPT])
    if hasScript and script is not None:
        files[SCRIPT] = script
    names = [name for name, path in files.items() if path in changed]
    for path in sorted({files[name] for name in names}):
        if Path(path).exists():
            compileFile(path)
    affected: set[str] = set()
    if names:
        imports = {name: _importsOf(name, path) for name, path in files.items()}
        affected = affectedModules(names, imports, routerHolders(files), hasScript)
    ordered = tuple(name for name in files if name in affected)
    return Plan(scope, ordered, files, tuple(sorted({files[name] for name in names})))


def compileFile(path: str) -> Any:
    """
    Compile a file.

    @raise SyntaxError: If it is no Python, with its place; if it holds what no text does, too.
    """
    source = Path(path).read_bytes()
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        if getattr(error, "filename", None) is not None:
            raise
        # It has NUL bytes, say, and Python does not tell where.
        raise SyntaxError(str(error), (path, 1, None, None)) from None


def _importsOf(name: str, path: str) -> frozenset[str]:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    package = spec.parent if spec is not None else name.rpartition(".")[0]
    try:
        status = os.stat(path)
        return _read(path, package or "", (status.st_mtime_ns, status.st_size, status.st_ino))
    except (OSError, SyntaxError, ValueError):
        # It has gone, or is not what was loaded; it will be seen when it is imported.
        return frozenset()


# Of a file of a thousand lines this takes 10 ms.
@lru_cache(maxsize=10_000)
def _read(path: str, package: str, state: tuple[int, int, int]) -> frozenset[str]:
    return importedNames(Path(path).read_bytes(), package)


def execute(plan: Plan, finish: Callable[[], object], tried: set[str]) -> None:
    """
    Execute modules again.

    @param finish: Called when all is well; if it raises, it is not.
    @param tried: Filled with the files of modules that were loaded, if not all were.
    @raise ScriptEnded: If a module ends the process.
    @raise Exception: What a module raises, or C{finish}; everything is as before then.
    """
    before = _State(plan)
    importlib.invalidate_caches()
    for name in plan.modules:
        _forgetCompiled(plan.files[name])
        _forget(name)
    try:
        with _withoutBytecode():
            if SCRIPT in plan.modules:
                _executeScript(before.modules[SCRIPT], plan.files[SCRIPT])
            _importRest(plan)
        finish()
    except BaseException as error:
        tried.update(plan.scope.modules().values())
        before.restore()
        if isinstance(error, SystemExit):
            raise ScriptEnded(f"the script ended with {error.code!r}") from error
        raise


class _State:
    """
    The modules of an application as they were.

    @ivar modules: All of the process, by name.
    """

    def __init__(self, plan: Plan) -> None:
        self.modules = dict(sys.modules)
        self._scope = plan.scope
        self._again = frozenset(plan.modules)
        # Parents too, which may be namespaces without a file: they refer to their children, and
        # must not while these are loaded.
        kept = set(plan.files) | {name.rpartition(".")[0] for name in plan.modules}
        self._globals = {
            name: dict(vars(self.modules[name])) for name in kept if name in self.modules
        }

    def restore(self) -> None:
        """Make everything as it was."""
        for name in self._scope.modules():
            if name in self._again or name not in self.modules:
                del sys.modules[name]
        for name in self._again:
            sys.modules[name] = self.modules[name]
        for name, values in self._globals.items():
            current = vars(self.modules[name])
            for key in current.keys() - values.keys():
                del current[key]
            current.update(values)


def _forget(name: str) -> None:
    """Make an import find a module's file, also C{from package import module}."""
    module = sys.modules.pop(name)
    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    if parent is not None and vars(parent).get(last) is module:
        delattr(parent, last)


def _forgetCompiled(path: str) -> None:
    """
    Remove the compiled file.

    Python trusts one that names the file's length and the second of its change. Those who save
    twice a second would get the code of the first time.
    """
    try:
        Path(cache_from_source(path)).unlink(missing_ok=True)
    except (OSError, NotImplementedError):
        pass


@contextmanager
def _withoutBytecode() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _executeScript(old: ModuleType, path: str) -> None:
    script = ModuleType(SCRIPT)
    for name in ("__file__", "__spec__", "__package__", "__loader__", "__builtins__", "__cached__"):
        if name in vars(old):
            vars(script)[name] = vars(old)[name]
    code = compileFile(path)
    sys.modules[SCRIPT] = script
    try:
        exec(code, vars(script))
    except (ScriptServes, ReactorAlreadyRunning):
        # That is how far it would have come the first time.
        pass


def _importRest(plan: Plan) -> None:
    """Import what the script has not, but the code that is loaded now does somewhere."""
    loaded = plan.scope.modules()
    wanted: frozenset[str] = frozenset()
    if SCRIPT in plan.modules:
        wanted = wanted.union(*(_importsOf(name, path) for name, path in loaded.items()))
    for name in plan.modules:
        isWanted = name in wanted if SCRIPT in plan.modules else Path(plan.files[name]).exists()
        if isWanted and name not in sys.modules:
            try:
                importlib.import_module(name)
            except (ScriptServes, ReactorAlreadyRunning):
                pass


_SETTLE_SECONDS = 1.0
"""How long new code may take to listen where the old did, before that is closed."""

_GRACE_SECONDS = 30.0
"""What is being answered on a port that the new code does not want is given to end in."""

_log = Logger()

Served = tuple[IListeningPort, Site]


@define(eq=False)
class Listener:
    """
    A port.

    @ivar app: Who answers.
    @ivar description: The endpoint string.
    @ivar generation: Of the code that wanted it last.
    @ivar makers: The modules that wanted it.
    """

    app: Any
    description: str
    port: IListeningPort
    site: Site
    generation: int
    makers: frozenset[str]


@define
class _Change:
    """What the code wants that is being loaded."""

    claims: list[tuple[Listener, Any, frozenset[str]]] = field(factory=list)
    opened: list[Listener] = field(factory=list)
    failures: list[Failure] = field(factory=list)


class Listeners:
    """
    All ports of the applications that are developed.

    @ivar all: The ports.
    """

    def __init__(self, open: Callable[[Any, str, Site], Deferred[IListeningPort]] = listen) -> None:
        """
        @param open: Opens a port on a reactor where an endpoint string says.
        """
        self._open = open
        self.all: list[Listener] = []
        self._generation = 0
        self._remade: frozenset[str] = frozenset()
        self._change: _Change | None = None

    def listen(
        self, app: Any, reactor: Any, description: str, site: Site, makers: frozenset[str]
    ) -> Deferred[Served]:
        """
        Listen, or take a port over.

        @param site: What is served where nobody listens yet.
        @param makers: The modules that want it.
        @return: The port and what is served there.
        """
        free = self._free(description)
        if free is not None:
            if self._change is None:
                self._take(free, app, makers)
                self._settle(reactor)
            else:
                self._change.claims.append((free, app, makers))
            return succeed((free.port, free.site))
        change = self._change
        listening = self._open(reactor, description, site)

        def opened(port: IListeningPort) -> Served:
            made = Listener(app, description, port, site, self._generation, makers)
            self.all.append(made)
            if change is not None:
                change.opened.append(made)
            self._settle(reactor)
            return port, site

        def failed(reason: Failure) -> Any:
            if change is None:
                return reason
            # It fails the whole change, and nobody who waits in the new code goes on.
            change.failures.append(reason)
            return Deferred()

        return listening.addCallbacks(opened, failed)

    def begin(self) -> None:
        """Begin to load code."""
        self._generation += 1
        self._change = _Change()

    def commit(
        self, reactor: Any, remade: frozenset[str], replacement: Callable[[Any], Any]
    ) -> None:
        """
        Let the new code have what it wants.

        @param remade: The modules that were executed.
        @param replacement: Gives the application that has come in the place of one, if one has.
        @raise Exception: If it wants a port that it cannot have; L{rollBack} has to follow.
        """
        assert self._change is not None
        change = self._change
        for failure in change.failures:
            failure.raiseException()
        self._change = None
        self._remade = remade
        for listener, app, makers in change.claims:
            self._take(listener, app, makers)
        for listener in self.all:
            if listener.generation < self._generation:
                app = replacement(listener.app)
                if app is not None:
                    app.adopt(listener.port, listener.site)
                    self._hand(listener, app)
        self._settle(reactor)

    def rollBack(self) -> None:
        """Let the old code keep what it has."""
        change, self._change = self._change, None
        self._generation -= 1
        for listener in change.opened if change is not None else ():
            self._close(listener)

    def forget(self, port: IListeningPort) -> None:
        """Forget a port that its application closes."""
        self.all = [listener for listener in self.all if listener.port is not port]

    def _free(self, description: str) -> Listener | None:
        """Give a port that was the old code's, and that the new does not have yet."""
        claimed = [claim[0] for claim in self._change.claims] if self._change is not None else []
        for listener in self.all:
            if (
                listener.description == description
                and listener.generation < self._generation
                and listener not in claimed
            ):
                return listener
        return None

    def _take(self, listener: Listener, app: Any, makers: frozenset[str]) -> None:
        """Let an application answer on a port, which it has among its own already."""
        listener.makers = makers
        listener.generation = self._generation
        self._hand(listener, app)

    def _hand(self, listener: Listener, app: Any) -> None:
        listener.app.forget(listener.port)
        listener.app = app
        listener.site.resource = app.resource
        listener.site.limits = app.settings.limits()

    def _settle(self, reactor: Any) -> None:
        """Close, after a while, what the new code wants no more, if it wants anything."""
        isNew = any(each.generation == self._generation for each in self.all)
        if self._generation and self._change is None and isNew:
            reactor.callLater(_SETTLE_SECONDS, self._closeUnwanted, self._generation)

    def _closeUnwanted(self, generation: int) -> None:
        if generation != self._generation or self._change is not None:
            return
        for listener in list(self.all):
            if listener.generation < generation and listener.makers & self._remade:
                _log.info("no longer listening on {endpoint}", endpoint=listener.description)
                self._close(listener)

    def _close(self, listener: Listener) -> None:
        self.forget(listener.port)
        listener.app.forget(listener.port)
        listener.port.stopListening()
        listener.site.drain(_GRACE_SECONDS)


# Directories of tools, and what they install.
_PASSED_OVER = ("node_modules", "__pycache__")

_MAX_FILES = 10_000
"""Of trees: looking at so many takes a thread 30 ms."""

State = tuple[int, int, int]
"""When a file was changed, its length, and which it is: editors write another and rename it."""


@frozen
class Watched:
    """
    What is looked at.

    @ivar files: Files.
    @ivar sources: Directories whose Python files are looked at.
    @ivar trees: Directories below which that is looked at what pages are made of.
    """

    files: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()


@frozen
class Snapshot:
    """
    What was there at a time.

    @ivar states: By file.
    @ivar directories: Where files may come and go.
    """

    watched: Watched
    states: Mapping[str, State] = field(repr=False)
    directories: frozenset[str] = field(repr=False)


def takeSnapshot(watched: Watched) -> Snapshot:
    """Look at files. May be called in a thread."""
    states: dict[str, State] = {}
    directories = {os.path.dirname(path) for path in watched.files} | watched.sources
    for path in watched.files:
        _look(path, states)
    for directory in watched.sources:
        for path in _listed(directory):
            if path.endswith(".py"):
                _look(path, states)
    for tree in watched.trees:
        for directory, paths in _walked(tree):
            directories.add(directory)
            for path in paths:
                _look(path, states)
            if len(states) > _MAX_FILES:
                break
    return Snapshot(watched, states, frozenset(directories))


def changesBetween(before: Snapshot, after: Snapshot) -> set[str]:
    """Give the files that are different, gone, or new where one would have been seen before."""
    changed = {path for path, state in before.states.items() if after.states.get(path) != state}
    # What is not looked at any more has not gone.
    changed = {path for path in changed if path in after.states or not os.path.exists(path)}
    return changed | {
        path for path in after.states if path not in before.states and _saw(before, path)
    }


def widened(known: Snapshot, more: Snapshot) -> Snapshot:
    """Add to a snapshot what another one has looked at, and it has not."""
    added = {path: state for path, state in more.states.items() if not _saw(known, path)}
    one, other = known.watched, more.watched
    watched = Watched(one.files | other.files, one.sources | other.sources, one.trees | other.trees)
    return Snapshot(watched, {**added, **known.states}, known.directories | more.directories)


def _saw(before: Snapshot, path: str) -> bool:
    """Say whether a file would be in a snapshot if it had been there."""
    watched = before.watched
    if path in watched.files:
        return True
    if path.endswith(".py"):
        return os.path.dirname(path) in watched.sources
    return any(path.startswith(tree.rstrip(os.sep) + os.sep) for tree in watched.trees)


def _look(path: str, states: dict[str, State]) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return
    states[path] = (status.st_mtime_ns, status.st_size, status.st_ino)


def _listed(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except OSError:
        return []


def _walked(tree: str) -> Iterator[tuple[str, list[str]]]:
    for directory, children, names in os.walk(tree):
        children[:] = [
            each for each in children if each not in _PASSED_OVER and not each.startswith(".")
        ]
        yield (
            directory,
            [os.path.join(directory, name) for name in names if name.endswith(PAGE_SUFFIXES)],
        )


# How long files have to stay as they are: programs write them in several steps.
_WATCH_SETTLE_SECONDS = 0.04

# A file that is written to all the time is not waited for.
_MAX_ROUNDS = 10

_POLL_SECONDS = 0.25

# Beside inotify: some file systems do not report what others do to them.
_SLOW_POLL_SECONDS = 1.0

# Of the kernel, a user has some thousands; each costs it a kilobyte.
_MAX_DIRECTORIES = 1000


class ChangeNotifier:
    """Says when it is time to look."""

    def __init__(self, reactor: Any, wake: Callable[[], object]) -> None:
        self._reactor = reactor
        self._wake = wake
        self._poll = LoopingCall(wake)
        self._poll.clock = reactor
        self._kernel: Any = None
        self._known: set[str] = set()

    def start(self) -> None:
        """Begin."""
        self._kernel = _watchByKernel(self._reactor, self._changed)
        self._poll.start(_POLL_SECONDS if self._kernel is None else _SLOW_POLL_SECONDS, now=False)

    def watch(self, directories: Iterable[str]) -> None:
        """Look when something changes in one of these directories."""
        if self._kernel is None:
            return
        for directory in sorted(set(directories) - self._known):
            if len(self._known) < _MAX_DIRECTORIES:
                self._known.add(directory)
                self._kernel.add(directory)

    def stop(self) -> None:
        """End."""
        if self._poll.running:
            self._poll.stop()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        self._known.clear()

    def _changed(self, path: bytes) -> None:
        if path.endswith(_SUFFIXES):
            self._wake()
        # A directory that has gone may come again, as another one.
        self._known.discard(os.fsdecode(path))


_SUFFIXES = tuple(suffix.encode("ascii") for suffix in (".py", *PAGE_SUFFIXES))


def _watchByKernel(reactor: Any, changed: Callable[[bytes], object]) -> Any:
    try:
        pass
    except ImportError:
        return None
    return watchByKernel(reactor, changed)


class Watcher:
    """
    Watches files and tells of those that have changed.

    One that is told of is told of once; while it is acted upon, nothing is looked at.
    """

    def __init__(
        self,
        runtime: Runtime,
        watched: Callable[[], Watched],
        changed: Callable[[set[str]], Deferred[Any]],
        makeAlarm: Callable[[Callable[[], object]], Any],
    ) -> None:
        """
        @param watched: Says what to look at now.
        @param changed: Acts upon changes; is not called again before it is done.
        @param makeAlarm: Makes an L{ChangeNotifier} that calls a function.
        """
        self._runtime = runtime
        self._watched = watched
        self._changed = changed
        self._alarm = makeAlarm(self.wake)
        self._known: Snapshot | None = None
        self._isLooking = False
        self._isWanted = False

    def start(self) -> None:
        """Begin. Looks at once, while the code that is running is that of the files."""
        self._known = takeSnapshot(self._watched())
        self._alarm.start()
        self._alarm.watch(self._known.directories)

    def stop(self) -> None:
        """End."""
        self._alarm.stop()
        self._known = None

    def extend(self) -> None:
        """
        Look at once at files that are new among those to be looked at.

        What they are now is what their readers have got, and all that comes later is a change.
        """
        if self._known is not None:
            watched = self._watched()
            # Trees may be large, and are not looked through twice.
            watched = evolve(watched, trees=watched.trees - self._known.watched.trees)
            self._known = widened(self._known, takeSnapshot(watched))
            self._alarm.watch(self._known.directories)

    def wake(self) -> None:
        """Look soon."""
        self._isWanted = True
        if not self._isLooking and self._known is not None:
            self._isLooking = True
            Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    def _failed(self, reason: Any) -> None:
        self._isLooking = False
        _log.failure("files cannot be watched", reason)

    async def _look(self) -> None:
        while self._isWanted and self._known is not None:
            self._isWanted = False
            before = self._known
            after, changes = await self._compare(before)
            if self._known is not None:
                # It was extended meanwhile, perhaps.
                self._known = after if self._known is before else widened(after, self._known)
                self._alarm.watch(after.directories)
                if changes:
                    await self._changed(changes)
        self._isLooking = False

    async def _compare(self, before: Snapshot) -> tuple[Snapshot, set[str]]:
        """Look until what has changed changes no more."""
        run, watched = self._runtime.run, self._watched()
        after, changes = await run(_compare, before, watched)
        for _ in range(_MAX_ROUNDS):
            if not changes:
                break
            clock: Any = self._runtime.clock
            await deferLater(clock, _WATCH_SETTLE_SECONDS)
            again, changes = await run(_compare, before, watched)
            if again.states == after.states:
                break
            after = again
        return after, changes


def _compare(before: Snapshot, watched: Watched) -> tuple[Snapshot, set[str]]:
    """Look, and find what has changed. May be called in a thread."""
    after = takeSnapshot(watched)
    return after, changesBetween(before, after)


class InotifyWatcher(INotify):
    """Watches directories."""

    def __init__(self, reactor: Any, changed: Callable[[bytes], object]) -> None:
        """
        @param changed: Called with the path of what has changed in some way.
        """
        super().__init__(reactor)
        self._changed = changed

    def add(self, directory: str) -> None:
        """Watch a directory, if it is there and the kernel has room for one more."""
        try:
            self.watch(FilePath(directory), callbacks=[self._tell])
        except INotifyError:
            pass

    def close(self) -> None:
        """End."""
        super().loseConnection()

    def loseConnection(self) -> None:
        """Do nothing: Twisted gives up when one of the directories has gone."""

    def _tell(self, watch: Any, path: Any, mask: int) -> None:
        self._changed(path.asBytesMode().path)


def watchByKernel(reactor: Any, changed: Callable[[bytes], object]) -> InotifyWatcher | None:
    """Begin to watch, see L{InotifyWatcher}; C{None} where the kernel or the reactor cannot."""
    try:
        watch = InotifyWatcher(reactor, changed)
        watch.startReading()
    except (INotifyError, NotImplementedError, AttributeError):
        return None
    return watch


def staticRoots(app: LayerList) -> frozenset[str]:
    """Give the directories that an application and its routers serve with C{staticFiles}."""
    return frozenset(
        os.fsdecode(function.args[0].root)
        for function in functionsOf(app)
        if isinstance(function, partial)
        and function.args
        and isinstance(function.args[0], StaticOptions)
    )


def functionsOf(app: LayerList) -> Iterator[Any]:
    """Give the handlers and the middleware of an application and its routers."""
    return _functions(app, set())


def _functions(router: LayerList, seen: set[int]) -> Iterator[Any]:
    if id(router) in seen:
        return
    seen.add(id(router))
    for layer in router.layers:
        handlers = list(layer.handlers)
        if layer.route is not None:
            for _, registered in layer.route.registrations:
                handlers.extend(registered)
        for function, _ in handlers:
            yield function
        if layer.router is not None:
            yield from _functions(layer.router, seen)


@frozen
class ErrorReport:
    """
    An error.

    @ivar title: Its type and message, in one line.
    @ivar file: Where it happened: the last place in the application's own code.
    @ivar text: The traceback, without the frames of those who only called the application.
    """

    title: str
    file: str | None
    line: int | None
    text: str

    def asMapping(self) -> dict[str, Any]:
        """Give the parts by their names."""
        return asdict(self)


def isFramework(path: str) -> bool:
    """Say whether a file is one of those that call applications."""
    return path.startswith((FRAMEWORK + os.sep, "<frozen importlib")) or (
        f"{os.sep}twisted{os.sep}" in path and "site-packages" in path
    )


def reportOf(
    error: BaseException, trace: Any = None, isOwn: Callable[[str], bool] = lambda path: True
) -> ErrorReport:
    """
    Describe an error.

    @param trace: Its traceback, if it has lost its own.
    @param isOwn: Says of a file whether it is the application's.
    """
    described = traceback.TracebackException(type(error), error, trace or error.__traceback__)
    frames = list(described.stack)
    own = [frame for frame in frames if isOwn(frame.filename) and not isFramework(frame.filename)]
    file, line = (own[-1].filename, own[-1].lineno) if own else (None, None)
    if isinstance(error, SyntaxError) and error.filename is not None:
        file, line = error.filename, error.lineno
    bare = list(described.format_exception_only())
    title = " ".join(bare[-1].split())
    if isinstance(error, SyntaxError) and not own:
        # It says where it is itself; who compiled the file does not matter.
        return ErrorReport(title, file, line, "".join(bare))
    _shorten(described)
    return ErrorReport(title, file, line, "".join(described.format()))


def _shorten(described: traceback.TracebackException | None) -> None:
    """Take the framework's frames away, and those of what led to the error."""
    # Chains have no circles: Python cuts them when it describes an exception.
    while described is not None:
        kept = [frame for frame in described.stack if not isFramework(frame.filename)]
        if kept:
            described.stack = traceback.StackSummary.from_list(kept)
        described = described.__cause__ or described.__context__


# Less than what proxies give an idle connection.
_BEAT_SECONDS = 15.0


@lru_cache(maxsize=1)
def processWorkshop() -> "Reloader":
    """Give the workshop of this process."""
    return Reloader()


class Reloader:
    """
    Watches the code of applications, loads it again, and tells pages.

    @ivar hub: The open pages.
    @ivar isWanted: Whether an application that listens, or will, wants its code to be watched.
    @ivar isLoading: Whether code is being executed again.
    """

    def __init__(self) -> None:
        self.hub = LiveReloadHub()
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
                runtime, self._watched, self._changed, lambda wake: ChangeNotifier(reactor, wake)
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
