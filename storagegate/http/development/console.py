"""
Output for the developer of an application: lines on the console, and the error page.

Lines about requests and listeners go to standard output, errors to standard error.
"""

import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from html import escape
from typing import Any, Self

from attrs import frozen
from twisted.internet.interfaces import IListeningPort
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from storagegate.telemetry.log import hasLogBegun

_FRAMEWORK = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep

_INSTALLED = (
    *(
        os.path.realpath(sysconfig.get_path(name)) + os.sep
        for name in ("stdlib", "platstdlib", "scripts")
    ),
    os.path.realpath(_FRAMEWORK) + os.sep,
)

_PACKAGES = frozenset(("site-packages", "dist-packages"))

# Files whose frames only call the application.
_FRAMES = re.compile(f"{re.escape(_FRAMEWORK)}|<frozen |.*site-packages.*{os.sep}twisted{os.sep}")

_COLOURS = re.compile("\x1b\\[[0-9;]*m")

# Loggers shown only at warn and above, except the loggers of development.
_QUIET = ("twisted.", "storagegate.", "log_legacy")
_DEVELOPMENT = "storagegate.http.development."

_RED, _GREEN, _YELLOW, _CYAN = 31, 32, 33, 36


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body>
<h1>{title}</h1>
<p>{detail}</p>
<pre>{trace}</pre>
</body>
</html>
"""


@lru_cache(maxsize=10_000)
def isInstalled(path: str) -> bool:
    """
    Return whether a file belongs to Python, an installed package or the framework.

    @param path: The path of a source file; links are resolved.
    """
    real = os.path.realpath(path)
    return real.startswith(_INSTALLED) or not _PACKAGES.isdisjoint(real.split(os.sep))


@frozen
class ErrorReport:
    """
    An error, described for the developer.

    @ivar title: Type and message, on one line.
    @ivar file: The application's last file in the traceback, or the file of a C{SyntaxError}.
    @ivar line: The line in that file.
    @ivar text: The traceback, without the frames that only called the application.
    """

    title: str
    file: str | None
    line: int | None
    text: str

    @classmethod
    def of(cls, error: BaseException, trace: Any = None) -> Self:
        """
        Describe an error.

        @param error: The exception; C{file} and C{line} ignore frames of installed packages.
        @param trace: The traceback, if C{error.__traceback__} is no longer set.
        """
        described = traceback.TracebackException(type(error), error, trace or error.__traceback__)
        own = [
            frame
            for frame in described.stack
            if not frame.filename.startswith("<") and not isInstalled(frame.filename)
        ]
        file, line = (own[-1].filename, own[-1].lineno) if own else (None, None)
        bare = list(described.format_exception_only())
        title = " ".join(bare[-1].split())
        if isinstance(error, SyntaxError) and error.filename is not None:
            file, line = error.filename, error.lineno
        if isinstance(error, SyntaxError) and not own:
            # The error has its own position; the frames belong to callers of the compiler.
            return cls(title, file, line, "".join(bare))
        # The chain has no cycles: Python cuts them when it describes an exception.
        each: traceback.TracebackException | None = described
        while each is not None:
            kept = [frame for frame in each.stack if not _FRAMES.match(frame.filename)]
            if kept:
                each.stack = traceback.StackSummary.from_list(kept)
            each = each.__cause__ or each.__context__
        return cls(title, file, line, "".join(described.format()))


def errorPage(status: int, shape: Mapping[str, Any]) -> str:
    """Return the page that a browser gets instead of an error's JSON."""
    request = f"{shape['method']} {shape['path']}" if "path" in shape else ""
    return _PAGE.format(
        title=escape(f"{status} {shape['error']}"),
        detail=escape(request),
        trace=escape("".join(shape.get("traceback", ()))),
    )


def paint(text: str, colour: int) -> str:
    """Return coloured text; a L{ConsoleStream} without colours removes the escape sequences."""
    return f"\x1b[1;{colour}m{text}\x1b[0m"


def hasColours(stream: Any) -> bool:
    """
    Return whether a stream shows colours, as terminals do. C{NO_COLOR} and C{FORCE_COLOR}, in this
    order, override the detection.

    @param stream: A text stream such as C{sys.stdout}.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    isTerminal = getattr(stream, "isatty", None)
    return bool(isTerminal and isTerminal()) and os.environ.get("TERM") != "dumb"


class ConsoleStream:
    """C{sys.stdout} or C{sys.stderr}, looked up at each write."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, text: str) -> None:
        """Write text, in colours if the stream shows them."""
        stream = getattr(sys, self.name)
        if stream is None:
            return
        stream.write(text if hasColours(stream) else _COLOURS.sub("", text))
        stream.flush()


@implementer(ILogObserver)
class ConsoleObserver:
    """
    Shows log events: warnings and errors of all loggers, and information of the application's own.

    @ivar replaying: Whether events from before the start of logging are being replayed. Critical
        ones have already been shown.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.replaying = False

    def __call__(self, event: Any) -> None:
        """Show an event."""
        level = event.get("log_level", LogLevel.info)
        namespace = event.get("log_namespace") or ""
        if self.replaying and level == LogLevel.critical:
            return
        if level < LogLevel.warn and (
            level < LogLevel.info
            or (namespace.startswith(_QUIET) and not namespace.startswith(_DEVELOPMENT))
        ):
            return
        colour = {LogLevel.info: _CYAN, LogLevel.warn: _YELLOW}.get(level, _RED)
        text = paint(formatEvent(event), colour)
        failure = event.get("log_failure")
        if failure is not None:
            report = ErrorReport.of(failure.value, failure.getTracebackObject())
            text += "\n" + report.text.rstrip().replace(report.title, paint(report.title, _RED))
        # The output may be closed, with no alternative.
        with suppress(OSError, ValueError):
            self._stream.write(text + "\n")


def beginConsole() -> None:
    """
    Show the log on the console, unless the process already has a log.

    Call it when the reactor runs, as a script may begin to log before that.
    """
    if hasLogBegun():
        return
    observer = ConsoleObserver(ConsoleStream("stderr"))
    observer.replaying = True
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    observer.replaying = False


def announce(port: IListeningPort, isSecure: bool) -> None:
    """Print the address that an application listens on, as a URL or a socket's path."""
    address: Any = port.getHost()
    host = getattr(address, "host", None)
    if host is None:
        where = f"unix:{os.fsdecode(address.name)}"
    else:
        if host in ("0.0.0.0", "::"):
            host = "localhost"
        elif ":" in host:
            host = f"[{host}]"
        where = f"{'https' if isSecure else 'http'}://{host}:{address.port}"
    ConsoleStream("stdout").write(f"listening on {paint(where, _GREEN)}\n")
