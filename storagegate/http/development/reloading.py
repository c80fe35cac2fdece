"""
Executes modules again, all or none.

The modules get new objects: functions of the old code that are still running keep their globals.
If one of them raises, everything is as before: the old objects are back, and what the new code has
changed in modules that were not executed again is undone.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen
from twisted.internet.error import ReactorAlreadyRunning

from storagegate.http.development.modules import (
    SCRIPT,
    Scope,
    affectedModules,
    fileOf,
    importedNames,
    routerHolders,
)


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
