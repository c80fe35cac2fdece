"""
The program of a process, in a form that another process can run.

A supervisor cannot fork a program that has begun: libraries with threads do not survive it, and a
reload needs the program's new code. Its workers run the program again from the beginning.
"""

import os
import re
import runpy
import sys
from collections.abc import Sequence
from multiprocessing import parent_process
from pkgutil import resolve_name
from types import ModuleType

Program = tuple[str, str, list[str]]
"""
The kind of program (C{script}, C{module}, C{code} or C{function}); its file, name, source, or
C{module:name}; its C{sys.argv}, or the arguments of the function.
"""


_PACKAGE = __name__.partition(".")[0] + "."


def findProgram(command: Sequence[str], script: ModuleType) -> tuple[list[str], Program] | None:
    """
    Determine the program of this process.

    @param command: The command line of the process, as C{sys.orig_argv}.
    @param script: The module C{__main__}.
    @return: Options of the interpreter, and the program. C{None} for programs that run inside
        another one, and for interactive interpreters.
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
    if not rest or "--multiprocessing-fork" in rest or parent_process() is not None:
        return None
    target, *arguments = rest
    file = getattr(script, "__file__", None)
    if kind == "code":
        return None if file is not None else (options, (kind, target, ["-c", *arguments]))
    if file is None:
        return None
    if kind == "script":
        if os.path.basename(file) != os.path.basename(target):
            return None
        # The program may have changed its directory.
        target = os.path.abspath(file)
    return options, (kind, target, rest)


def showError(error: BaseException) -> None:
    """Print the traceback of a program's error, as the interpreter does."""
    # Without the frames of this package that only ran the program.
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE):
        trace = trace.tb_next
    sys.excepthook(type(error), error, trace or error.__traceback__)


def execute(kind: str, target: str, arguments: list[str]) -> None:
    """
    Run a program as if the interpreter had been started with it.

    The first entry of C{sys.path}, which served to find this module, is removed.
    """
    root = sys.path.pop(0)
    if kind == "function":
        if root not in sys.path:
            sys.path.append(root)
        resolve_name(target)(*arguments)
        return
    sys.argv = arguments
    # The next entry is added by the interpreter.
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
