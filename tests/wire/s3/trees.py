"""Directories of files to send through a client, and to compare after that."""

import hashlib
import os
from pathlib import Path

ODD_NAMES = (
    "plain.txt",
    "with space.txt",
    "plus+and%2B.txt",
    "\u00fcml\u00e4ut-\u65e5\u672c.txt",
    "deep/er/than/it/looks.txt",
    "deep/er/sibling",
    "quote'and\"double",
    "amp&lt;.xml",
    "semi;colon,comma",
    "#hash",
    "~tilde",
)


LONG_AGO = 1_600_000_000
"""The files' time: one that is now could be within the second of a sync, and count as newer."""


def makeTree(root: Path, largest: int = 0) -> None:
    """
    Write files of odd names and several sizes.

    @param largest: The size of one more file, C{large.bin}; 0 is none.
    """
    for number, name in enumerate(ODD_NAMES):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * (number * 1_000))
    if largest:
        block = hashlib.sha256(b"large").digest() * 32_768
        (root / "large.bin").write_bytes((block * (largest // len(block) + 1))[:largest])
    for path in root.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def readTree(root: Path) -> dict[str, str]:
    """Give the SHA-256 of every file by its name below C{root}."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }
