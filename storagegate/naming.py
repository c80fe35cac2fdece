"""Things of the user's that are named as C{module:name}."""

from importlib import import_module
from typing import Any


class NamingError(ValueError):
    """There is no such thing; the text is one line that names it."""


def findNamed(name: str) -> Any:
    """
    Find what a name of the configuration stands for.

    @param name: C{module:name}; the name may have dots.
    @raise NamingError: If the module cannot be imported, or has no such name.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise NamingError(f"{name}: cannot import {module}: {kind}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NamingError(f"{name}: {module} has no {path}") from None
    return found
