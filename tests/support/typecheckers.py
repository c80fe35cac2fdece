"""Mypy and pyright, run as by users of the package: without the project's own settings."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from attrs import frozen

from tests.support.modules import CHECKOUT
from tests.support.nodepackages import nodeModules

PYRIGHT = "pyright@1.1.414"
"""Pinned, so that a new release cannot change the result of a test."""

CHECK_SECONDS = 300
"""Timeout of one run, in seconds; it takes 10 on an idle machine."""

_MYPY_LINE = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): error: (?P<message>.*)")


@frozen(order=True)
class TypeProblem:
    """
    A problem that a type checker reports.

    @ivar path: The file, relative to the checkout.
    @ivar line: The line, from 1.
    """

    path: str
    line: int
    message: str


def mypyProblems(files: Sequence[str], cache: str, *more: str) -> list[TypeProblem]:
    """
    Check files with C{mypy --strict}, without the plugins of the project's own run. Blocks.

    @param files: The paths of the files, relative to the checkout.
    @param cache: The cache directory of mypy.
    @param more: Further options.
    @raise ImportError: If mypy is not installed.
    """
    import mypy

    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"]
    # The project's own run checks the package itself.
    options += ["--follow-imports=silent", "--namespace-packages", "--explicit-package-bases"]
    command = [sys.executable, "-m", mypy.__name__, *options, *more, *files]
    found = [_MYPY_LINE.fullmatch(line) for line in _run(command).splitlines()]
    return sorted(
        TypeProblem(each["path"], int(each["line"]), each["message"]) for each in found if each
    )


def pyrightProblems(files: Sequence[str]) -> list[TypeProblem]:
    """
    Check files with pyright. Blocks.

    @param files: The paths of the files, relative to the checkout or absolute. They may import each
        other if they are in the folder of the first one.
    @raise SkipTest: If pyright is not available.
    """
    program = nodeModules(PYRIGHT) / "pyright" / "index.js"
    command = ["node", str(program), "--outputjson", "--pythonpath", sys.executable, *files]
    folder = os.path.dirname(os.path.abspath(files[0]))
    found = json.loads(_run(command, folder))["generalDiagnostics"]
    return sorted(
        TypeProblem(
            os.path.relpath(each["file"], CHECKOUT),
            each["range"]["start"]["line"] + 1,
            each["message"],
        )
        for each in found
        if each["severity"] == "error"
    )


def _run(command: Sequence[str], folder: str = str(CHECKOUT)) -> str:
    """
    Run a checker in the checkout and return its output.

    @param folder: An additional folder for modules.
    @raise RuntimeError: If the checker fails.
    """
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
        check=False,
    )
    # 1 means that problems were found.
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command[:3]} failed: {(done.stderr or done.stdout)[-500:]}")
    return done.stdout
