"""Children of a process that has grpcio's threads."""

from collections.abc import Sequence
from pathlib import Path


def within(directory: str | Path, command: Sequence[str]) -> list[str]:
    """
    Give the command that runs another one in a directory.

    Twisted forks if it has to change a child's directory itself. What grpcio does in the child of a
    fork may abort it before it is the program that it should be.
    """
    return ["/usr/bin/env", "-C", str(directory), *command]
