"""Habits that a machine can check."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.modules import CHECKOUT, PACKAGE, moduleFiles, parse
from tests.support.selection import long

# A function that is longer is more than one thought.
FUNCTION_LINES = 80

# A block of PEM with its contents; the delimiters alone, as in a pattern, are no key.
KEY_MATERIAL = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*(?:PRIVATE KEY|CERTIFICATE)-----\s+"
    rb"(?:[\w-]+:.*\s+)*[A-Za-z0-9+/=]{16}"
)

# Hooks whose names others have given: trial's, Resource's, usage's, ast's and httptools'.
FOREIGN_NAME = re.compile(r"(test|render|opt|visit|on)_\w+")

# Hooks of libraries that keep their own names: botocore's, grpcio's, http.server's and asyncio's.
FOREIGN_METHODS = frozenset(
    {
        "call_later",
        "format_help",
        "headers_to_sign",
        "start_server_batch",
        "do_POST",
        "log_message",
        "handle_one_request",
        "connection_made",
        "data_received",
        "get_coro",
        "get_name",
        "get_value",
    }
)

_SNAKE = re.compile(r"[a-z0-9]+(_[A-Za-z0-9]+)+")


def ourFiles() -> list[Path]:
    """Give every Python file of the repository's own folders."""
    folders = (PACKAGE, "tests", "bench", "examples", "twisted")
    return [path for folder in folders for path in sorted((CHECKOUT / folder).rglob("*.py"))]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Give every function of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def trackedFiles() -> list[Path]:
    """Return the files that git tracks; in a source distribution, all files that it holds."""
    if (CHECKOUT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True
        ).stdout
        paths = [CHECKOUT / name.decode() for name in listed.split(b"\0") if name]
    else:
        # What was installed or built beside them is not of the distribution.
        paths = [
            path
            for path in CHECKOUT.rglob("*")
            if not path.relative_to(CHECKOUT)
            .parts[0]
            .startswith((".", "_", "build", "node_modules"))
        ]
    return [path for path in paths if path.is_file()]


@long("a check of CI")
class StyleTests(SynchronousTestCase):
    """The sources, read."""

    def test_functionLength(self) -> None:
        """Every function of the package is one thought."""
        long = [
            f"{module}.{node.name}"
            for module, path in moduleFiles().items()
            for node in functions(parse(path))
            if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
        ]
        self.assertEqual(long, [])

    def test_keyMaterial(self) -> None:
        """No key and no certificate is in the tree; those of tests stay below C{tests/}."""
        found = [
            str(path)
            for path in trackedFiles()
            if not path.is_relative_to(CHECKOUT / "tests")
            and KEY_MATERIAL.search(path.read_bytes())
        ]
        self.assertEqual(found, [])

    def test_keyMaterialPattern(self) -> None:
        """Keys and certificates of every kind are found; the delimiters alone are not."""
        body = b"MIGHAgEAMBMGByqGSM49AgEG"
        for kind in (b"PRIVATE KEY", b"EC PRIVATE KEY", b"ENCRYPTED PRIVATE KEY", b"CERTIFICATE"):
            self.assertTrue(KEY_MATERIAL.search(b"-----BEGIN %s-----\r\n%s" % (kind, body)), kind)
        encrypted = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + body
        self.assertTrue(KEY_MATERIAL.search(encrypted))
        self.assertIsNone(KEY_MATERIAL.search(b'"-----BEGIN CERTIFICATE-----.+?-----END"'))

    def test_names(self) -> None:
        """Functions and their arguments are camelCase, unless a base class has named them."""
        wrong = []
        for path in ourFiles():
            for node in functions(parse(path)):
                arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                own = () if node.name in FOREIGN_METHODS else (node.name,)
                for name in (*own, *(argument.arg for argument in arguments)):
                    if _SNAKE.fullmatch(name) and not FOREIGN_NAME.fullmatch(name):
                        wrong.append(f"{path}: {name}")
        self.assertEqual(wrong, [])

    def test_documented(self) -> None:
        """Every module, and every public class and function in it, says what it is for."""
        wrong = []
        for module, path in moduleFiles().items():
            tree = parse(path)
            public = [
                node
                for node in tree.body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and not node.name.startswith("_")
            ]
            for node in (tree, *public):
                if ast.get_docstring(node) is None:
                    wrong.append(f"{module}: {getattr(node, 'name', 'the module itself')}")
        self.assertEqual(wrong, [])

    def test_noSleep(self) -> None:
        """No test sleeps: it waits for what it wants to see."""
        sleeping = re.compile(r"\btime\.sleep\b|\bfrom time import\b.*\bsleep\b")
        wrong = [
            str(path)
            for path in sorted((CHECKOUT / "tests").rglob("*.py"))
            if path.name != Path(__file__).name and sleeping.search(path.read_text())
        ]
        self.assertEqual(wrong, [])

    def test_noStarOfLiteral(self) -> None:
        """No star unpacks a tuple or list that stands behind it: its elements are written out."""
        found = [
            f"{path.relative_to(CHECKOUT)}:{node.lineno}"
            for path in ourFiles()
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List)
        ]
        self.assertEqual(found, [])

    def test_everyPackageHasTests(self) -> None:
        """Each room has its folder of tests."""
        rooms = [path.parent.name for path in (CHECKOUT / PACKAGE).glob("*/__init__.py")]
        self.assertTrue(rooms)
        for room in rooms:
            self.assertTrue(list((CHECKOUT / "tests" / room).glob("test_*.py")), room)

    def test_namespaces(self) -> None:
        """Twisted's plugin folders stay open: a package file in them would hide Twisted's own."""
        self.assertEqual(list((CHECKOUT / "twisted").rglob("__init__.py")), [])
