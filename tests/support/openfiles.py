"""The open files of the test process."""

import os


def openFiles(directory: str) -> list[str]:
    """
    Return the open files and directories in a directory, including the directory itself.

    The number of all descriptors would be less reliable, because descriptors of earlier tests may
    be closed at any time.
    """
    found = []
    directory = os.path.realpath(directory)
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        if target.startswith(directory):
            found.append(target)
    return found
