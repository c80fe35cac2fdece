"""
The console: requests, errors and where the application listens.

Lines about requests and listeners go to the standard output, errors to the standard error output.

What a browser is shown in development in place of an answer.
"""

import os
import re
import sys
from collections.abc import Mapping
from html import escape
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.logger import (
    ILogObserver,
    LogLevel,
    formatEvent,
    globalLogBeginner,
)
from zope.interface import implementer

from storagegate.http.development.reloader import reportOf

_COLOURS = re.compile("\x1b\\[[0-9;]*m")

# Whose progress is nobody's news.
_QUIET = ("twisted.", "storagegate.", "log_legacy")
_NEWS = "storagegate.http.development."

RED, GREEN, YELLOW, CYAN = 31, 32, 33, 36


def paint(text: str, colour: int) -> str:
    """Give text in a colour; a L{ConsoleStream} takes it off where there is none."""
    return f"\x1b[1;{colour}m{text}\x1b[0m"


def hasColours(stream: Any) -> bool:
    """
    Say whether a stream shows colours: if it is a terminal, unless C{NO_COLOR} or C{FORCE_COLOR}
    says something else, the first of the two being stronger.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    isTerminal = getattr(stream, "isatty", None)
    return bool(isTerminal and isTerminal()) and os.environ.get("TERM") != "dumb"


class ConsoleStream:
    """
    An output of the process, whatever that is when something is written.

    @ivar name: C{stdout} or C{stderr}.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, text: str) -> None:
        """Write text, in colours if it shows them."""
        stream = getattr(sys, self.name)
        if stream is None:
            return
        stream.write(text if hasColours(stream) else _COLOURS.sub("", text))
        stream.flush()


@implementer(ILogObserver)
class ConsoleObserver:
    """
    Shows events: warnings and errors of everybody, the news of the application's own loggers.

    @ivar replaying: While events are repeated that came before; the worst have been shown.
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
            or (namespace.startswith(_QUIET) and not namespace.startswith(_NEWS))
        ):
            return
        colour = {LogLevel.info: CYAN, LogLevel.warn: YELLOW}.get(level, RED)
        text = paint(formatEvent(event), colour)
        failure = event.get("log_failure")
        if failure is not None:
            report = reportOf(failure.value, failure.getTracebackObject())
            text += "\n" + report.text.rstrip().replace(report.title, paint(report.title, RED))
        try:
            self._stream.write(text + "\n")
        except (OSError, ValueError):
            # Nobody is left to be told.
            pass


def beginConsole() -> None:
    """
    Show the log on the console, unless the process logs somewhere already.

    To be called when the reactor runs: until then a script may still begin to log.
    """
    # There is no other way to ask; until logging begins, this prints what is critical.
    if getattr(globalLogBeginner, "_temporaryObserver", None) is None:
        return
    observer = ConsoleObserver(ConsoleStream("stderr"))
    observer.replaying = True
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    observer.replaying = False


def announce(port: IListeningPort, isSecure: bool) -> None:
    """Say where an application listens."""
    line = f"listening on {paint(addressOf(port.getHost(), isSecure), GREEN)}\n"
    ConsoleStream("stdout").write(line)


def addressOf(address: Any, isSecure: bool) -> str:
    """Give the URL of a listener, or the name of its socket."""
    host = getattr(address, "host", None)
    if host is None:
        name = address.name
        return "unix:" + (name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name))
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    elif ":" in host:
        host = f"[{host}]"
    return f"{'https' if isSecure else 'http'}://{host}:{address.port}"


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


def errorPage(status: int, shape: Mapping[str, Any]) -> str:
    """
    Write a page about an error.

    @param shape: The answer that others would get as JSON.
    """
    request = f"{shape['method']} {shape['path']}" if "path" in shape else ""
    return _PAGE.format(
        title=escape(f"{status} {shape['error']}"),
        detail=escape(request),
        trace=escape("".join(shape.get("traceback", ()))),
    )
