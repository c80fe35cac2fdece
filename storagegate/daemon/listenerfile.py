"""
The file with the listeners of a running daemon, C{DATA/listeners.json}, mode 0600.

Commands on a data directory read it to find the daemon's console and its S3 listener, because they
do not know the flags and variables that the daemon was started with. The daemon writes it when it
serves, and removes it when it stops. A killed daemon leaves it behind, so a reader compares the
process id with the process that holds the lock of the directory.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from storagegate.core.files import readSmallFile
from storagegate.net.endpoints import certificateFiles
from storagegate.storage.files import replaceFile

NAME = "listeners.json"

# Seven listeners and the names of their certificates.
_FILE_LIMIT = 1 << 18


class ListenerRecord(msgspec.Struct, frozen=True):
    """
    An open listener.

    @ivar address: Its address, as in the log.
    @ivar url: Its URL for clients on this machine; C{None} for a UNIX socket, and for listeners
        that do not speak HTTP.
    @ivar certificates: The files of its own certificates, PEM; empty without TLS.
    """

    address: str
    url: str | None = None
    certificates: tuple[str, ...] = ()


class RunningDaemon(msgspec.Struct, frozen=True):
    """
    The content of the file.

    @ivar pid: The process that holds the lock of the data directory.
    @ivar region: The region of signatures.
    @ivar s3Url: The configured URL of S3; empty for none.
    @ivar hasConsole: Whether the admin listener serves the console.
    @ivar listeners: The listeners by name; disabled listeners are absent.
    """

    pid: int
    region: str
    s3Url: str
    hasConsole: bool
    listeners: Mapping[str, ListenerRecord]


def writeListeners(directory: str, daemon: RunningDaemon) -> None:
    """
    Write the file atomically. Blocks.

    @raise OSError: If it cannot be written.
    """
    content = msgspec.json.format(msgspec.json.encode(daemon), indent=1)
    replaceFile(os.path.join(directory, NAME), content + b"\n")


def removeListeners(directory: str) -> None:
    """Remove the file, if it exists. The caller must hold the lock of the directory."""
    # A file that remains does no harm: its process id is another.
    with suppress(OSError):
        os.unlink(os.path.join(directory, NAME))


def readListeners(directory: str, pid: int) -> RunningDaemon | None:
    """
    Read the file.

    @param pid: The process that holds the lock of the directory.
    @return: C{None} if the file is absent, unreadable, or another process's.
    """
    try:
        content = readSmallFile(os.path.join(directory, NAME), _FILE_LIMIT)
        found = msgspec.json.decode(content, type=RunningDaemon)
    except (OSError, ValueError):
        return None
    return found if found.pid == pid else None


def ownCertificates(description: str) -> tuple[str, ...]:
    """
    Return the absolute paths of the certificates of an C{ssl:} or C{tls:} endpoint.

    @param description: The endpoint; other types have no certificates.
    @raise OSError: If the directory of a C{tls:} endpoint cannot be read.
    """
    files = certificateFiles(description)
    if "path" in files:
        found = sorted(name for name in os.listdir(files["path"]) if name.endswith(".pem"))
        names = [os.path.join(files["path"], name) for name in found]
    else:
        names = [files["certKey"]] if files else []
    return tuple(os.path.abspath(each) for each in names)
