"""
Figures about the clarity of the package, and their limits.

    python -m tests.support.prose [--list]

Only the sources are read; the package is not imported. Generated modules (C{*_pb2.py}) do not
count. C{--list} prints the items behind each figure; the exit code is 1 if a limit is exceeded.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from tests.support.modules import CHECKOUT, PACKAGE

TRANSPORTS = frozenset({"http", "websocket", "grpc", "tcp", "udp"})

REGISTRY = "gateway/transports/registry.py"
"""The one module that names all transports."""

SPECIFICATION_NAMES: Mapping[str, str] = {
    "core/addresses.py": "http is a URI scheme there, RFC 9110 section 4.2",
    "rpc/call.py": "a call tells a handler of several transports which one it is",
    "rpc/application.py": "its run() says that gRPC listens, in the daemon's words",
}
"""
Files that contain the name of a transport because the specification does, with the reason for each.
Entries that are no longer needed must be removed.
"""

_WORDS = re.compile(
    r"\b(?:whoever|whomever|whom|nobody|no\s+one|somebody|someone)\b", re.IGNORECASE
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen
class Limit:
    """
    The limit of a figure.

    @ivar bound: The maximum.
    @ivar reason: The reason for the limit and its value.
    """

    figure: str
    bound: float
    reason: str

    def allows(self, value: float) -> bool:
        """Return whether a value keeps the limit."""
        return value <= self.bound


LIMITS = (
    Limit("vague words per 10,000 lines", 3, "Twisted has 2: a part of a program is no person."),
    Limit("class names in two modules", 0, "A name that means two things has to be looked up."),
    Limit("classes cut over files", 0, "A base with one subclass elsewhere is half a class."),
    Limit("transport names elsewhere", 0, "A new transport is one folder and one registry row."),
)


@frozen
class Figure:
    """
    A figure of a package.

    @ivar items: The items behind it, for a listing; empty if it is only a size.
    """

    value: float
    items: Sequence[str] = ()


@frozen
class Source:
    """
    A module's source.

    @ivar name: The path below the package, with slashes.
    """

    name: str
    text: str
    tree: ast.Module = field(repr=False)


def readSources(root: Path) -> list[Source]:
    """
    Read the modules of a package.

    @param root: The folder of the package.
    """
    sources = []
    for path in sorted(root.rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text, str(path))
            sources.append(Source(path.relative_to(root).as_posix(), text, tree))
    return sources


def countLines(sources: Sequence[Source]) -> int:
    """Count the lines of all modules, including blank ones."""
    return sum(source.text.count("\n") for source in sources)


def findWords(sources: Sequence[Source]) -> list[str]:
    """Find vague words in comments and docstrings, including attribute docstrings."""
    found = []
    for source in sources:
        for first, text in _prose(source):
            for match in _WORDS.finditer(text):
                line = first + text.count("\n", 0, match.start())
                found.append(f"{source.name}:{line}: {match[0]}")
    return found


def _prose(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings with the numbers of their first lines."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(source.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def _classes(source: Source) -> Iterator[ast.ClassDef]:
    return (node for node in source.tree.body if isinstance(node, ast.ClassDef))


def findRepeatedClasses(sources: Sequence[Source]) -> list[str]:
    """Find the names of top-level classes that several modules define, including private ones."""
    homes: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for name in {node.name for node in _classes(source)}:
            homes[name].append(source.name)
    return [f"{name}: {', '.join(files)}" for name, files in sorted(homes.items()) if files[1:]]


def findSplitClasses(sources: Sequence[Source]) -> list[str]:
    """
    Find classes with a single direct subclass, in another module, and no other reference.

    Classes are distinguished only by name, which L{findRepeatedClasses} makes reliable. A name in a
    string is not a reference.
    """
    homes = {node.name: source.name for source in sources for node in _classes(source)}
    subclasses: dict[str, list[tuple[str, str]]] = defaultdict(list)
    references: Counter[str] = Counter()
    for source in sources:
        isBase = set()
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    named = base.value if isinstance(base, ast.Subscript) else base
                    subclasses[_lastName(named)].append((node.name, source.name))
                    isBase.add(id(named))
            elif isinstance(node, ast.Name | ast.Attribute) and id(node) not in isBase:
                references[_lastName(node)] += 1
    found = []
    for name, home in sorted(homes.items()):
        match subclasses[name]:
            case [(subclass, file)] if file != home and not references[name]:
                found.append(f"{name} ({home}), {subclass} ({file})")
    return found


def _lastName(node: ast.expr) -> str:
    """Return the last part of a dotted name, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def findTransportNames(
    sources: Sequence[Source], allowed: Mapping[str, str] = SPECIFICATION_NAMES
) -> list[str]:
    """
    Find string literals that are the name of a transport, once per module and name.

    A module may contain a name that is part of its own path; the registry may contain all names.

    @param allowed: Files that may contain any name, with reasons.
    """
    found = set()
    for source in sources:
        path = source.name.removesuffix(".py").split("/")
        if source.name == REGISTRY or source.name in allowed:
            continue
        for node in ast.walk(source.tree):
            match node:
                case ast.Constant(value=str(text)) if text in TRANSPORTS and text not in path:
                    found.add(f"{source.name}: {text}")
    return sorted(found)


def findStaleAllowances(
    sources: Sequence[Source], allowed: Mapping[str, str] = SPECIFICATION_NAMES
) -> list[str]:
    """Find allowed files that contain no name of a transport, or do not exist."""
    needed = {place.partition(":")[0] for place in findTransportNames(sources, {})}
    return sorted(set(allowed) - needed)


def measure(root: Path) -> dict[str, Figure]:
    """
    Measure a package.

    @param root: The folder of the package.
    @return: A figure for each of L{LIMITS}, by its name.
    """
    sources = readSources(root)
    lines = countLines(sources)
    words = findWords(sources)
    repeated, split = findRepeatedClasses(sources), findSplitClasses(sources)
    transports = findTransportNames(sources)
    return {
        "vague words per 10,000 lines": Figure(
            round(10_000 * len(words) / max(lines, 1), 1), words
        ),
        "class names in two modules": Figure(len(repeated), repeated),
        "classes cut over files": Figure(len(split), split),
        "transport names elsewhere": Figure(len(transports), transports),
    }


def main(arguments: Sequence[str]) -> int:
    """
    Print all figures beside their limits.

    @param arguments: The arguments of the command line, without the program.
    @return: The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.support.prose")
    parser.add_argument("--list", action="store_true", help="print what is behind each figure")
    options = parser.parse_args(arguments)
    figures = measure(CHECKOUT / PACKAGE)
    exceeded = False
    for limit in LIMITS:
        value = figures[limit.figure].value
        isKept = limit.allows(value)
        exceeded = exceeded or not isKept
        mark = "" if isKept else "  exceeded"
        print(f"{limit.figure:<34}{value:>9g}  <= {limit.bound:g}{mark}")
    if options.list:
        for name, figure in figures.items():
            if figure.items:
                print(f"\n{name}:", *figure.items, sep="\n  ")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
