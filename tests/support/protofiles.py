"""Files of a test's own, written from a table."""

from collections.abc import Mapping
from pathlib import Path


def writeFiles(root: Path, files: Mapping[str, str]) -> Path:
    """Write texts under their relative names, and give the folder, absolute."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root.absolute()
