"""
The results of the last C{fsck} and C{backup} commands, stored in the data directory as
C{last-fsck.json} and C{last-backup.json}.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from storagegate.core.files import readSmallFile
from storagegate.storage.errors import StoreError
from storagegate.storage.files import StoreLocked, replaceFile

_LIMIT = 64 * 1024


class CommandResult(Struct, kw_only=True):
    """
    The result of one run of a command.

    @ivar problems: The number of problems left in the data or the copy.
    @ivar verify: Whether the run read every byte.
    @ivar to: The directory of the copy.
    @ivar error: Why the run was aborted; empty if it completed.
    """

    startedMs: int
    endedMs: int
    problems: int = 0
    verify: bool = False
    repair: bool = False
    to: str = ""
    error: str = ""


def noting(
    directory: str,
    command: str,
    act: Callable[[], int],
    *,
    verify: bool,
    repair: bool = False,
    to: str = "",
) -> int:
    """
    Run a command and store its result. Blocks.

    @param directory: The data directory.
    @param command: C{fsck} or C{backup}.
    @param act: Runs the command and returns the number of problems, which this function returns.
    """
    result = CommandResult(startedMs=_nowMs(), endedMs=0, verify=verify, repair=repair, to=to)
    try:
        result.problems = act()
    except StoreLocked:
        # Nothing was checked.
        raise
    except StoreError as error:
        result.error = str(error)
        _write(directory, command, result)
        raise
    _write(directory, command, result)
    return result.problems


def readResult(directory: str, command: str) -> CommandResult | None:
    """Return the result of the last run, from one small file; L{None} if there is none."""
    try:
        return msgspec.json.decode(
            readSmallFile(_path(directory, command), _LIMIT), type=CommandResult
        )
    except (OSError, ValueError):
        return None


def _write(directory: str, command: str, result: CommandResult) -> None:
    result.endedMs = _nowMs()
    path = _path(directory, command)
    # A full disk must not fail the command.
    with suppress(OSError):
        replaceFile(path, msgspec.json.encode(result))


def _path(directory: str, command: str) -> str:
    return os.path.join(directory, f"last-{command}.json")


def _nowMs() -> int:
    return int(time.time() * 1000)
