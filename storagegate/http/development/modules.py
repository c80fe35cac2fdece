"""Which modules are an application's, what they import, and which have to be executed again."""

import ast
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from attrs import frozen

from storagegate.http.layers import LayerList

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
