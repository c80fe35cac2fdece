"""Directories that survive a power cut."""

import os


def syncDirectory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def makeDirectory(path: str, mode: int = 0o777) -> None:
    """
    Make a directory where there is none, and those above it, durably.

    @param path: An absolute path.
    @param mode: For the last one; those above have the usual mode.
    @raise OSError: If it cannot be made, or something else is there.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    makeDirectory(parent)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    syncDirectory(parent)
