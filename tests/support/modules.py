"""The sources of the package, for tests of its rules."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "storagegate"
CHECKOUT = Path(__file__).resolve().parent.parent.parent


def moduleFiles() -> dict[str, Path]:
    """Return the name and the file of every module."""
    files = {}
    for path in sorted((CHECKOUT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(CHECKOUT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def parse(path: Path) -> ast.Module:
    """Parse a source file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def importedNames(module: str, path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, at any place."""
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
