"""Who may read and write the data directory, and what in it or beside it is secret."""

import os
import pwd
import stat
from collections.abc import Iterator

from storagegate.doctor.findings import Check, Finding

_check = Check("permissions")

# Keys are in the catalog with their secrets.
_SECRETS = (".sqlite", ".sqlite-wal", ".sqlite-shm", "root-credentials")


def nearest(directory: str) -> str:
    """Give the directory itself, or where it is not there the first above it that is."""
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    return directory


def checkData(directory: str) -> Iterator[Finding]:
    """Look at the data directory and at the files right in it."""
    if not os.path.exists(directory):
        above = nearest(directory)
        if os.access(above, os.W_OK | os.X_OK) and os.path.isdir(above):
            yield _check.ok(f"{directory} is made by the first start")
        else:
            yield _check.problem(f"{directory} cannot be made: {above} is not writable")
        return
    if not os.path.isdir(directory):
        yield _check.problem(f"{directory} is no directory")
        return
    found = [*_ofDirectory(directory), *_ofFiles(directory)]
    yield from found or [_check.ok(f"{directory} belongs to {_user(os.stat(directory).st_uid)}")]


def checkSecretFile(path: str, what: str) -> Iterator[Finding]:
    """Look at a file outside of the data directory that must be read by us, and not by all."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        yield _check.problem(f"{what} {path}: {error.strerror}")
        return
    if not os.access(path, os.R_OK):
        yield _check.problem(f"{what} {path} cannot be read by {_user(os.geteuid())}")
    elif mode & stat.S_IROTH:
        yield _check.problem(f"{what} {path} can be read by everybody: chmod o-r {path}")
    else:
        yield _check.ok(f"{what} {path} is not for everybody")


def _ofDirectory(directory: str) -> Iterator[Finding]:
    status = os.stat(directory)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        owner, us = _user(status.st_uid), _user(os.geteuid())
        yield _check.problem(f"{directory} belongs to {owner} and is not writable by {us}")
    if status.st_mode & 0o077:
        yield _check.warning(
            f"{directory} has mode {stat.S_IMODE(status.st_mode):04o}, others may look into it:"
            f" chmod 700 {directory}"
        )


def _ofFiles(directory: str) -> Iterator[Finding]:
    owner = os.stat(directory).st_uid
    try:
        names = sorted(os.listdir(directory))
    except PermissionError:
        return
    for name in names:
        path = os.path.join(directory, name)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            # A running daemon opens and closes files.
            continue
        if status.st_uid != owner:
            yield _check.problem(
                f"{path} belongs to {_user(status.st_uid)}, the directory to {_user(owner)}:"
                f" chown {_user(owner)} {path}"
            )
        if name.endswith(_SECRETS) and status.st_mode & 0o077:
            yield _check.problem(
                f"{path} holds secrets and has mode {stat.S_IMODE(status.st_mode):04o}:"
                f" chmod 600 {path}"
            )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
