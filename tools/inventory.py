"""
Write the inventory of Python's own names, so that pydoctor links them without the network.

Usage: C{python tools/inventory.py FILE}.
"""

import builtins
import sys
import zlib
from pathlib import Path

HEADER = (
    b"# Sphinx inventory version 2\n# Project: Python\n# Version: 3\n"
    b"# The remainder of this file is compressed using zlib.\n"
)


def inventory() -> bytes:
    """Make an inventory of the built-in names."""
    lines = []
    for name in dir(builtins):
        if isinstance(getattr(builtins, name), type):
            page = (
                "exceptions" if issubclass(getattr(builtins, name), BaseException) else "stdtypes"
            )
            lines.append(f"{name} py:class 1 library/{page}.html#{name} -\n")
        elif name in ("None", "True", "False"):
            lines.append(f"{name} py:data 1 library/constants.html#{name} -\n")
    return HEADER + zlib.compress("".join(lines).encode("ascii"))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(inventory())
