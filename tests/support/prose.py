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
    "core/httpurls.py": "http is a URI scheme there, RFC 9110 section 4.2",
    "rpc/application.py": "its run() says that gRPC listens, in the daemon's words",
}
"""
Files that contain the name of a transport because the specification does, with the reason for each.
Entries that are no longer needed must be removed.
"""

_WORDS = re.compile(
    r"\b(?:whoever|whomever|whom|nobody|no\s+one|somebody|someone)\b", re.IGNORECASE
)
_FIELD = re.compile(r"@(?:param|ivar|keyword)\s+\*{0,2}(\w+)\s*:")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen
class Limit:
    """
    The limit of a figure.

    @ivar bound: The maximum; with L{isLeast} the minimum.
    @ivar reason: The reason for the limit and its value.
    """

    figure: str
    bound: float
    reason: str
    isLeast: bool = False

    def allows(self, value: float) -> bool:
        """Return whether a value keeps the limit."""
        return value >= self.bound if self.isLeast else value <= self.bound


LIMITS = (
    Limit(
        "modules",
        445,
        "A tree of one module a concept: 311 for one machine; 18 of the catalog in PostgreSQL; 8 of"
        " blobs on the network; 33 of the nodes of a cluster, their counts, and moves to and fro;"
        " 66 of the console and the command line.",
    ),
    Limit(
        "lines",
        120_000,
        "79,000 when it was put in order; 9,000 of settings of buckets, locks and lists of objects;"
        " 19,000 of the store over several machines; 10,000 of the console and the command line.",
    ),
    Limit("vague words per 10,000 lines", 3, "Twisted has 2: a part of a program is no person."),
    Limit("class names in two modules", 0, "A name that means two things has to be looked up."),
    Limit("classes cut over files", 0, "A base with one subclass elsewhere is half a class."),
    Limit(
        "described parameters in percent",
        45,
        "The other half says all by name and type.",
        isLeast=True,
    ),
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


def findParameters(sources: Sequence[Source]) -> tuple[list[str], list[str]]:
    """
    Find the parameters of public functions and of the methods of public classes.

    Parameters of a constructor may be described in the docstring of its class.

    @return: The parameters with a field in a docstring, and the parameters without.
    """
    described: list[str] = []
    plain: list[str] = []
    for source in sources:
        for function, docstring in _publicFunctions(source.tree):
            fields = set(_FIELD.findall(docstring))
            for name in _parameters(function):
                place = f"{source.name}:{function.lineno}: {function.name}({name})"
                (described if name in fields else plain).append(place)
    return described, plain


def _publicFunctions(tree: ast.Module) -> Iterator[tuple[Function, str]]:
    """Yield each public function with the text that may describe its parameters."""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if isinstance(method, Function):
                    own = ast.get_docstring(method) or ""
                    if method.name == "__init__":
                        yield method, f"{own}\n{ast.get_docstring(node) or ''}"
                    elif not method.name.startswith("_"):
                        yield method, own


def _parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters, except the instance or class."""
    given = function.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [each.arg for each in every if each is not None and each.arg not in ("self", "cls")]


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
    described, plain = findParameters(sources)
    share = 100 * len(described) / max(len(described) + len(plain), 1)
    repeated, split = findRepeatedClasses(sources), findSplitClasses(sources)
    transports = findTransportNames(sources)
    return {
        "modules": Figure(len(sources)),
        "lines": Figure(lines),
        "vague words per 10,000 lines": Figure(
            round(10_000 * len(words) / max(lines, 1), 1), words
        ),
        "class names in two modules": Figure(len(repeated), repeated),
        "classes cut over files": Figure(len(split), split),
        "described parameters in percent": Figure(round(share, 1), plain),
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
        sign = ">=" if limit.isLeast else "<="
        mark = "" if isKept else "  exceeded"
        print(f"{limit.figure:<34}{value:>9g}  {sign} {limit.bound:g}{mark}")
    if options.list:
        for name, figure in figures.items():
            if figure.items:
                print(f"\n{name}:", *figure.items, sep="\n  ")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
