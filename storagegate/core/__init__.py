"""
The base of all packages, free of transports, protocols and storage.

The packages import their public names on first use (PEP 562). A package lists its names as
C{"package.module:Name"}, or C{"package.module"} for a module, and imports the same names under
C{TYPE_CHECKING} for type checkers; a test compares the two lists::

    if TYPE_CHECKING:
        from storagegate.http.router import Router as Router
    else:
        __getattr__, __dir__ = lazyExports(__name__, EXPORTS)
"""

from collections.abc import Callable, Iterable
from importlib import import_module


def lazyExports(
    package: str, exports: Iterable[str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """
    Make the functions C{__getattr__} and C{__dir__} of a package.

    @param package: The package's name, for errors.
    @param exports: The modules of the names, see the head of this module.
    """
    homes = {exportedName(export): export for export in exports}

    def getAttribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found

    def listNames() -> list[str]:
        return sorted(vars(import_module(package))["__all__"])

    return getAttribute, listNames


def exportedName(export: str) -> str:
    """Return the public name of an export: its last part."""
    return export.rpartition(":")[2].rpartition(".")[2]
