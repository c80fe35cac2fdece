"""Files of a test, written from a table."""

from collections.abc import Mapping
from pathlib import Path


def writeFiles(root: Path, files: Mapping[str, str]) -> Path:
    """Write texts to their relative paths; return the absolute path of the folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root.absolute()
