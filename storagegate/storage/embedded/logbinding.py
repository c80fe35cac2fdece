"""
Checks that a catalog and the WAL beside it belong together.

SQLite replays any WAL with valid checksums. The WAL of a crashed daemon is replayed even into a
copy that has replaced the catalog, and damages it. Neither the WAL's header (file format, section
4.1) nor its frames identify the database. The database therefore has an I{incarnation}: a random
number in its header (C{application_id}, section 1.3), which changes with each start of a daemon and
in each backup. A file beside it names the incarnations to which the WAL applies::

    catalog.sqlite               application_id 1a2b3c4d, as long as the WAL is ignored
    catalog.sqlite-wal
    wal-of-1a2b3c4d-5e6f7a8b     applies to 1a2b3c4d, and makes it 5e6f7a8b

The file is empty and has the numbers in its name, so that copying a directory over another leaves
both names. The next incarnation is added by a rename before it is committed, so the name is right
after a power cut at any moment. A WAL without frames applies to every catalog, and a WAL without
such a file was left by an earlier version.
"""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from secrets import randbelow
from sqlite3 import Connection
from time import sleep

from storagegate.storage.files import createPrivate, syncDirectory
from storagegate.storage.sqlite import CatalogUnusable, Fault, classify

BINDING = "wal-of-"
"""The prefix of the file name; the numbers are hexadecimal."""

_FRAMES_AT = 32
"""Size of a WAL header in bytes."""

_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

_MOST = 16
"""The most incarnations in one name: more would need as many crashes without a checkpoint."""

_PAUSE_SECONDS = 0.05
"""A daemon that is just starting has changed both the name and the number after this time."""


def checkLog(path: str) -> None:
    """
    Refuse a catalog whose WAL belongs to another. Blocks; call before the catalog is opened.

    @param path: The catalog's file, which may be absent.
    @raise CatalogUnusable: The WAL must not be replayed. The message is one line that says what to
        do.
    """
    if _isBound(path):
        return
    sleep(_PAUSE_SECONDS)
    if not _isBound(path):
        raise CatalogUnusable(
            f"{path}-wal is the log of another catalog.sqlite: a copy was put over the files of a"
            " store that had not been closed. Nothing was changed: restore the copy into an empty"
            f" directory with storagegate restore, or remove {path}-wal to use catalog.sqlite as"
            " it is"
        )


def renewIncarnation(connection: Connection, path: str, isDurable: bool) -> None:
    """
    Give a catalog its next incarnation. Blocks. The caller holds the directory lock.

    A full disk, or another process that writes for long, leaves the incarnation unchanged.

    @param connection: A write connection without an open transaction.
    @param path: The catalog's file.
    @param isDurable: Whether to sync the name of the file.
    """
    directory = os.path.dirname(os.path.abspath(path))
    names = _bindings(directory)
    # The name also contains a number that is committed but not yet in the file.
    before = _numbers(names[0]) if len(names) == 1 else []
    current, ofFile = _read(connection), _readIgnoringLog(path)
    if current == ofFile:
        before = [current]
    elif not before:
        before = [number for number in (ofFile, current) if number is not None]
    if len(before) >= _MOST:
        return
    number = 1 + randbelow(2**31 - 1)
    try:
        _rename(directory, names, nameBinding(*before, number))
        if isDurable:
            syncDirectory(directory)
        _write(connection, number)
        # Until the number is in the file, the log applies to the previous state of the file, which
        # may have been copied. If a reader blocks the checkpoint, the name keeps the previous
        # numbers.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if _readIgnoringLog(path) == number:
            _rename(directory, _bindings(directory), nameBinding(number))
    except (OSError, sqlite3.Error) as error:
        isFull = isinstance(error, OSError) or classify(error) in (Fault.FULL, Fault.BUSY)
        if not isFull:
            raise CatalogUnusable(f"{path} cannot be opened: {error}") from error


def makeIncarnation(connection: Connection) -> str:
    """
    Give a copy of a catalog its own incarnation; return the name of the file beside it.

    @param connection: A connection to the copy, without an open transaction.
    """
    number = 1 + randbelow(2**31 - 1)
    _write(connection, number)
    return nameBinding(number)


def nameBinding(*numbers: int) -> str:
    """Return the file name for a WAL that applies to these incarnations."""
    return BINDING + "-".join(f"{number:08x}" for number in numbers)


def _isBound(path: str) -> bool:
    """Return whether the WAL applies, or may apply, to the catalog."""
    names = _bindings(os.path.dirname(os.path.abspath(path)))
    if not names or not hasFrames(f"{path}-wal"):
        return True
    number = _readIgnoringLog(path)
    # An empty file is a new catalog, whose log SQLite removes. A file that is not a database is
    # refused when it is opened.
    return number is None or (len(names) == 1 and number in _numbers(names[0]))


def hasFrames(path: str) -> bool:
    """Return whether a WAL may have frames to replay. Preallocated zeros do not count."""
    try:
        with open(path, "rb") as file:
            head = file.read(_FRAMES_AT + 1)
    except OSError:
        return False
    return len(head) > _FRAMES_AT and head.startswith(_MAGIC)


def _bindings(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [name for name in names if name.startswith(BINDING)]


def _numbers(name: str) -> list[int]:
    try:
        return [int(each, 16) for each in name.removeprefix(BINDING).split("-")]
    except ValueError:
        return []


def _rename(directory: str, names: list[str], name: str) -> None:
    """Leave a single file with this name."""
    path = os.path.join(directory, name)
    if len(names) == 1:
        os.rename(os.path.join(directory, names[0]), path)
        return
    # There is no file at first, and there are several after a copy whose WAL had no frames.
    os.close(createPrivate(path))
    for each in names:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, each))


def _read(connection: Connection) -> int:
    [(number,)] = connection.execute("PRAGMA application_id").fetchall()
    return int(number)


def _write(connection: Connection, number: int) -> None:
    connection.execute(f"PRAGMA application_id = {number}")


def _readIgnoringLog(path: str) -> int | None:
    """
    Read the number in the file itself; L{None} if the file is empty or not a database.

    Reads through SQLite: opening and closing the file directly would drop this process's locks.
    """
    if not os.path.exists(path) or not os.path.getsize(path):
        return None
    uri = f"{Path(os.path.abspath(path)).as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return _read(connection)
    except sqlite3.Error:
        return None
