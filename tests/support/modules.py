"""The sources of the package, for the tests that hold its rules."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "storagegate"
CHECKOUT = Path(__file__).resolve().parent.parent.parent


def moduleFiles() -> dict[str, Path]:
    """Give every module's name and file."""
    files = {}
    for path in sorted((CHECKOUT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(CHECKOUT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def parse(path: Path) -> ast.Module:
    """Read a source file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def importedNames(module: str, path: Path) -> Iterator[str]:
    """Give the full name of everything that a file imports, wherever in it."""
    parts = module.split(".")
    if path.name != "__init__.py":
        parts = parts[:-1]
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)
