"""What the process of the tests has open."""

import os


def openFiles(directory: str) -> list[str]:
    """
    Give which files and directories are open of a directory, itself and all below it.

    All descriptors together would tell less: of those that earlier tests have left some may be
    closed at any time.
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
