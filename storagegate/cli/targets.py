"""The objects of a user's program that commands name: C{MODULE:NAME}, or C{MODULE:NAME()}."""

import os
import re
import sys
from importlib import import_module
from inspect import isawaitable, signature
from types import ModuleType
from typing import Any

from storagegate.cli.invocation import MISUSED, CommandError
from storagegate.serving import importingProgram

_TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)(\(\))?")


def importTarget(target: str) -> Any:
    """
    Import the object that a target names.

    @param target: C{MODULE:NAME}, or C{MODULE:NAME()} for the result of a function.
    @raise CommandError: If the target is misspelt, or the module has no such name.
    """
    match = _TARGET.fullmatch(target)
    file = re.match(r"(.+)\.py(?::|$)", target)
    if match is None or file is not None:
        hint = "as in notes:app"
        if file is not None:
            module = file[1].strip("./").replace(os.sep, ".")
            hint = f"such as {module}:app, instead of a file"
        raise CommandError(f"{target} is not MODULE:APP, {hint}", MISUSED)
    name, path, call = match.groups()
    found: Any = importModule(name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise CommandError(f"{name} has no {path}", MISUSED)
        found = getattr(found, part)
    return _called(target, found) if call else found


def importModule(name: str) -> ModuleType:
    """
    Import a module of the working directory, or of the environment.

    Its own errors are raised as they are, with their traceback.

    @raise CommandError: There is no such module.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with importingProgram(name):
            return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # The module lacks something.
            raise
        raise CommandError(f"there is no module {error.name} in {os.getcwd()}", MISUSED) from None


def _called(target: str, function: Any) -> Any:
    """
    Return the result of a function that makes a server.

    @raise CommandError: If it is no function, has parameters, or is asynchronous.
    """
    if not callable(function):
        raise CommandError(f"{target}: {target[:-2]} is not a function: omit ()", MISUSED)
    try:
        signature(function).bind()
    except TypeError:
        raise CommandError(f"{target}: the function needs arguments", MISUSED) from None
    made = function()
    if isawaitable(made):
        close = getattr(made, "close", None)
        if close is not None:
            close()
        raise CommandError(
            f"{target}: the function is asynchronous; make the server in a plain function", MISUSED
        )
    return made
