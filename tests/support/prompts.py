"""The sessions of a page with a prompt that supports await."""

import ast
import doctest
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from traceback import format_exception_only
from types import CodeType
from typing import Any

from tests.support.documents import FLAGS, codeBlocks


async def runAwaitingBlocks(page: Path) -> dict[str, Any]:
    """
    Run the programs and sessions of a page in the reactor of the tests; see
    L{runBlocks<tests.support.documents.runBlocks>}.

    @return: The final namespace.
    @raise AssertionError: If the output of a session differs.
    """
    names: dict[str, Any] = {"__name__": "documentation"}
    for block in codeBlocks(page, "python", "pycon"):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
            continue
        for example in doctest.DocTestParser().get_examples(block.code, page.name):
            said = await _ask(example.source, names)
            checker = doctest.OutputChecker()
            if not checker.check_output(example.want, said, FLAGS):
                line = block.line + example.lineno
                raise AssertionError(
                    f"{page.name}:{line}: {example.source}"
                    + checker.output_difference(example, said, FLAGS)
                )
    return names


async def _ask(source: str, names: dict[str, Any]) -> str:
    """Return the output of a statement at a prompt; of a traceback, the first and the last line."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, "<session>", "single", flags)
    with _printed() as said:
        try:
            waiting = eval(code, names)
            if waiting is not None:
                await waiting
        except Exception as error:
            last = "".join(format_exception_only(error))
            return f"{said.getvalue()}Traceback (most recent call last):\n{last}"
    return said.getvalue()


@contextmanager
def _printed() -> Iterator[StringIO]:
    """Capture printed output, including the values of expressions."""
    said = StringIO()

    def show(value: Any) -> None:
        if value is not None:
            said.write(f"{value!r}\n")

    before, sys.displayhook = sys.displayhook, show
    try:
        with redirect_stdout(said):
            yield said
    finally:
        sys.displayhook = before
