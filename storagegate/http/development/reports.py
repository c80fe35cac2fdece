"""Errors, told to the people who wrote the code."""

import os
import traceback
from collections.abc import Callable
from typing import Any

from attrs import asdict, frozen

from storagegate.http.development.modules import FRAMEWORK


@frozen
class Report:
    """
    An error.

    @ivar title: Its type and message, in one line.
    @ivar file: Where it happened: the last place in the application's own code.
    @ivar text: The traceback, without the frames of those who only called the application.
    """

    title: str
    file: str | None
    line: int | None
    text: str

    def asMapping(self) -> dict[str, Any]:
        """Give the parts by their names."""
        return asdict(self)


def isFramework(path: str) -> bool:
    """Say whether a file is one of those that call applications."""
    return path.startswith((FRAMEWORK + os.sep, "<frozen importlib")) or (
        f"{os.sep}twisted{os.sep}" in path and "site-packages" in path
    )


def reportOf(
    error: BaseException, trace: Any = None, isOwn: Callable[[str], bool] = lambda path: True
) -> Report:
    """
    Describe an error.

    @param trace: Its traceback, if it has lost its own.
    @param isOwn: Says of a file whether it is the application's.
    """
    described = traceback.TracebackException(type(error), error, trace or error.__traceback__)
    frames = list(described.stack)
    own = [frame for frame in frames if isOwn(frame.filename) and not isFramework(frame.filename)]
    file, line = (own[-1].filename, own[-1].lineno) if own else (None, None)
    if isinstance(error, SyntaxError) and error.filename is not None:
        file, line = error.filename, error.lineno
    bare = list(described.format_exception_only())
    title = " ".join(bare[-1].split())
    if isinstance(error, SyntaxError) and not own:
        # It says where it is itself; who compiled the file does not matter.
        return Report(title, file, line, "".join(bare))
    _shorten(described)
    return Report(title, file, line, "".join(described.format()))


def _shorten(described: traceback.TracebackException | None) -> None:
    """Take the framework's frames away, and those of what led to the error."""
    # Chains have no circles: Python cuts them when it describes an exception.
    while described is not None:
        kept = [frame for frame in described.stack if not isFramework(frame.filename)]
        if kept:
            described.stack = traceback.StackSummary.from_list(kept)
        described = described.__cause__ or described.__context__
