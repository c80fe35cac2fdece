"""C{requestLog}: one line for each request."""

import sys
from collections.abc import Callable
from typing import Any

from attrs import define
from twisted.logger import Logger

from storagegate.core.invoker import adaptHandler
from storagegate.core.options import takesTrailingMapping
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.telemetry.accesslog import LineFormat, RequestRecord, compileFormat
from storagegate.telemetry.log import escapeLine

_log = Logger()


@takesTrailingMapping
def requestLog(
    format: str | Callable[..., Any] = "combined",
    *,
    stream: Any = None,
    immediate: bool = False,
    skip: Callable[..., Any] | None = None,
) -> MiddlewareHandler:
    """
    Make middleware that logs requests at their end.

    @param format: C{combined}, C{common}, C{short}, C{tiny}, C{dev}, a text with tokens such as
        C{":method :url :status"}, or a function of C{(req, res)} that returns the line or C{None}.
        Control characters are escaped, except colour sequences.
    @param stream: The output, an object with C{write(text)}; by default standard output, flushed
        after each line. Writes happen in the reactor thread: a line to a file or pipe takes
        microseconds, but a full pipe whose reader has stopped blocks the server.
    @param immediate: Whether to log requests at their beginning, including requests that never end.
    @param skip: A function of C{(req, res)} that returns whether to skip a request.
    @raise ValueError: If the format is unknown.
    @raise TypeError: If an option has the wrong type.
    """
    if stream is not None and not callable(getattr(stream, "write", None)):
        raise TypeError("stream is an object with write(text)")
    logger = _RequestLog(
        writeLine=_readFormat(format),
        stream=stream,
        skip=None if skip is None else adaptHandler(skip, "skip"),
    )
    return logger.logStart if immediate else logger.logEnd


def _readFormat(format: Any) -> LineFormat:
    if isinstance(format, str):
        return compileFormat(format)
    write = adaptHandler(format, "format")

    def writeLine(record: RequestRecord) -> str | None:
        line = write(record.req, record.res)
        return None if line is None else escapeLine(str(line))

    return writeLine


@define(eq=False)
class _RequestLog:
    """
    A format and its output, whose failure does not affect requests.

    @ivar stream: C{None} for the standard output.
    """

    writeLine: LineFormat
    stream: Any
    skip: Callable[[Any, Any], Any] | None
    isBroken: bool = False

    def logStart(self, req: Any, res: Any, next: Any) -> Any:
        """Log a request, then call C{next}."""
        now = req.app.runtime.now
        self._log(RequestRecord(req, res, now, now()))
        return next()

    def logEnd(self, req: Any, res: Any, next: Any) -> Any:
        """Call C{next}, and log the request at its end."""
        now = req.app.runtime.now
        record = RequestRecord(req, res, now, now())
        isLogged = False

        def headSent() -> None:
            record.answered = now()

        def end(isLost: bool) -> None:
            nonlocal isLogged
            if not isLogged:
                isLogged = True
                record.isLost = isLost
                self._log(record)

        res.beforeHead(headSent)
        res.on("finish", lambda: end(False))
        res.on("close", lambda: end(True))
        return next()

    def _log(self, record: RequestRecord) -> None:
        try:
            if self.skip is not None and self.skip(record.req, record.res):
                return
            line = self.writeLine(record)
        except Exception:
            # Other listeners of the same event have to run.
            _log.failure("requestLog: the line of a request could not be written")
            return
        if line is None:
            return
        try:
            if self.stream is not None:
                self.stream.write(line + "\n")
            else:
                # Looked up each time, as it may be redirected.
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
            self.isBroken = False
        except (OSError, ValueError):
            # ValueError: the stream is closed, or its encoding lacks a character.
            if not self.isBroken:
                self.isBroken = True
                _log.failure("requestLog: lines cannot be written; further failures are not logged")
