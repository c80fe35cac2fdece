"""The documentation, for tests that compare it with the code."""

import ast
import csv
import doctest
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.support.modules import CHECKOUT

DOCS = CHECKOUT / "docs"
README = CHECKOUT / "README.rst"

_BLOCK = re.compile(
    r"^(?P<indent> *)\.\. code-block:: (?P<language>\w+)\n\n(?P<code>(?:(?P=indent)    .*\n|\n)+)",
    re.MULTILINE,
)
_TABLE = r"^\.\. csv-table::{}\n    :header: (.*)\n(?:    :.*\n)*\n((?:    .*\n)+)"

# The output of a session may be abbreviated, and wrapped.
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@frozen
class Block:
    """
    A block of code.

    @ivar line: The first line of its code, counted from 1.
    """

    language: str
    code: str
    line: int


def codeBlocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in some languages, in order."""
    text = page.read_text()
    return [
        Block(
            match["language"],
            textwrap.dedent(match["code"]),
            text.count("\n", 0, match.start("code")) + 1,
        )
        for match in _BLOCK.finditer(text)
        if match["language"] in languages
    ]


def packageFile(block: Block) -> str | None:
    """Return the path that a block begins with, C{# notes/app.py}, if it is a file of a package."""
    named = re.match(r"# (\w+/\w+\.py)\n", block.code)
    return None if named is None else named[1]


def applyDiff(code: str, files: dict[str, str]) -> None:
    """
    Change a file as a block of the language C{diff} says.

    @param code: The path after C{---}, and parts between lines of C{@@}.
    @param files: The text by path.
    @raise AssertionError: If the old lines of a part are not in the file, or more than once.
    """
    head, _, body = code.partition("\n")
    path = head.removeprefix("--- ")
    for part in body.split("\n@@\n"):
        lines = part.strip("\n").split("\n")
        old, new = (
            "".join(f"{line[1:]}\n" for line in lines if line[:1] != skipped) for skipped in "+-"
        )
        assert files[path].count(old) == 1, f"{path} has {files[path].count(old)} times:\n{old}"
        files[path] = files[path].replace(old, new)


def table(page: Path, title: str = "") -> list[list[str]]:
    """
    Return the rows of a C{csv-table}.

    @param title: The title of the table; the default is the first table without a title.
    """
    pattern = _TABLE.format(re.escape(f" {title}" if title else ""))
    found = re.search(pattern, page.read_text(), re.MULTILINE)
    assert found is not None, f"{page.name} has no table {title!r}"
    columns = len(next(csv.reader([found[1]], skipinitialspace=True)))
    rows = list(csv.reader(line.strip() for line in found[2].splitlines()))
    for row in rows:
        assert len(row) == columns, f"{page.name}, {title}: {row}"
    return rows


def unusedLiterals(page: Path, title: str) -> list[str]:
    """
    Return the code in the second column of a table that no block of its page contains.

    A test that runs the blocks of the page thus also runs each line of the table.
    """
    blocks = codeBlocks(page, "python", "pycon", "sh")
    text = " ".join(" ".join(block.code for block in blocks).split())
    used = [each for row in table(page, title) for each in re.findall(r"``(.+?)``", row[1])]
    return [each for each in used if " ".join(each.split()) not in text]


def literal(cell: str) -> str:
    """Remove the quotes of a cell that is one literal; an empty cell stays empty."""
    if not cell:
        return cell
    found = re.fullmatch(r"``(.+)``", cell)
    assert found is not None, f"{cell!r} is no literal"
    return found[1]


def runBlocks(page: Path) -> dict[str, Any]:
    """
    Run the programs and sessions of a page as a reader would type them, and check the output.

    @return: The final namespace.
    @raise AssertionError: If the output of a session differs.
    """
    names: dict[str, Any] = {"__name__": "documentation"}
    for block in codeBlocks(page, "python", "pycon"):
        if block.language == "python":
            # Leading empty lines make the line numbers of a traceback match the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
            continue
        examples = doctest.DocTestParser().get_examples(block.code, page.name)
        session = doctest.DocTest(examples, {}, page.name, str(page), block.line - 1, None)
        # Not the default copy, because programs see the definitions of sessions.
        session.globs = names
        told: list[str] = []
        failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(
            session, out=told.append, clear_globs=False
        )
        assert not failed, "".join(told)
    return names


def pageModules(page: Path) -> dict[str, str]:
    """
    Return the programs and sessions of a page as modules for type checkers.

    @return: The source by name: the whole page, with its line numbers, as a function if it awaits;
        and each block that begins with the name of its file, such as C{# greeter.py}. The files of
        packages are no modules of their own.
    """
    lines: dict[int, str] = {}
    modules: dict[str, str] = {}
    for block in codeBlocks(page, "python", "pycon"):
        if packageFile(block) is not None:
            continue
        parts = [(0, block.code)]
        named = re.match(r"# (\w+)\.py\n", block.code)
        if named is not None:
            modules[named[1]] = block.code
        if block.language == "pycon":
            examples = doctest.DocTestParser().get_examples(block.code, page.name)
            parts = [(each.lineno, each.source) for each in examples]
        for first, code in parts:
            lines.update(enumerate(code.splitlines(), block.line + first))
    text = ["# pyright: reportRedeclaration=false", ""]
    text += [lines.get(number, "") for number in range(3, max(lines, default=0) + 1)]
    code = compile("\n".join(text), page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        text[1:] = [
            "async def page() -> None:",
            *(textwrap.indent(each, "    ") for each in text[2:]),
        ]
    modules[f"{page.stem.lower()}_page"] = "\n".join(text) + "\n"
    return modules


@frozen
class Command:
    """
    A shell command with its output.

    @ivar text: The command, which may have several lines.
    @ivar output: The lines of its output.
    """

    text: str
    output: str


def commands(block: str) -> list[Command]:
    """Parse a shell session: a command begins with C{$}, its continuation lines with C{>}."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> "):
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [Command("\n".join(text), "\n".join(output)) for text, output in found]
