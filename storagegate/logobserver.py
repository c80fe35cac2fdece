"""
Twisted's log as lines of the daemon's: text for people, JSON for collectors.

An object of JSON has C{timestamp}, C{level}, C{logger} (the namespace) and C{message}, and where
they are known C{trace_id}, C{traceback} and C{worker}. A line of text is that of C{twistd}, with
the lines of a traceback behind it, each after a tab: nothing that others wrote begins a line.
"""

import re
from collections.abc import Mapping
from typing import Any

from twisted.logger import (
    ILogObserver,
    LogEvent,
    LogLevel,
    eventAsText,
    formatEvent,
    formatTime,
)
from zope.interface import implementer

from storagegate.core.loglines import LineSink
from storagegate.core.logtext import escapeMessage
from storagegate.core.logvalues import TimeStamps, asJSON
from storagegate.core.redaction import Redactor

MESSAGE_CHARACTERS = 1 << 14
"""A message is cut here: what is longer is a document that somebody has put into an error."""

TRACEBACK_CHARACTERS = 1 << 15
"""A traceback is cut here in its middle; three hundred frames have room."""

_SEVERITIES: Mapping[Any, int] = {
    LogLevel.debug: 0,
    LogLevel.info: 1,
    LogLevel.warn: 2,
    LogLevel.error: 3,
    LogLevel.critical: 3,
}

_LINE_BREAK = re.compile(r"\r\n|[\n\r]")


@implementer(ILogObserver)
class LineObserver:
    """
    Writes events to a sink.

    @ivar format: C{text} or C{json}; it may change at any time.
    """

    def __init__(
        self, sink: LineSink, redactor: Redactor, format: str = "text", worker: int | None = None
    ) -> None:
        """
        @param worker: The index of this process among those of the daemon.
        """
        self.format = format
        self._sink = sink
        self._redact = redactor.redact
        self._worker = worker
        self._stamps = TimeStamps()

    def __call__(self, event: LogEvent) -> None:
        """Write an event; in any thread."""
        severity = _SEVERITIES.get(event.get("log_level"), 1)
        if severity < self._sink.lowest:
            return
        message = self._message(event)
        traceback = self._traceback(event)
        if not message and not traceback:
            return
        write = self._asJSON if self.format == "json" else self._asText
        self._sink.write(write(event, message, traceback), isUrgent=True)

    def _message(self, event: LogEvent) -> str:
        return self._shown(formatEvent(event), MESSAGE_CHARACTERS)

    def _traceback(self, event: LogEvent) -> str:
        if "log_failure" not in event:
            return ""
        # Alone, for it never fails, whatever is wrong with the exception's own text.
        alone = {"log_failure": event["log_failure"]}
        text = eventAsText(alone, includeTimestamp=False, includeSystem=False)
        return self._shown(text.strip("\n"), TRACEBACK_CHARACTERS)

    def _shown(self, text: str, limit: int) -> str:
        # A secret that a cut has gone through is not known again: first there is room around it.
        return _cut(self._redact(_cut(text, 4 * limit)), limit)

    def _asJSON(self, event: LogEvent, message: str, traceback: str) -> bytes:
        level = event.get("log_level")
        values = {
            "timestamp": self._stamps.format(event.get("log_time", 0)),
            "level": "info" if level is None else level.name,
            "logger": str(event.get("log_namespace") or event.get("log_system") or "-"),
            "message": message,
        }
        if event.get("trace_id"):
            values["trace_id"] = str(event["trace_id"])
        if traceback:
            values["traceback"] = traceback
        if self._worker is not None:
            values["worker"] = self._worker
        return asJSON(values)

    def _asText(self, event: LogEvent, message: str, traceback: str) -> bytes:
        level = event.get("log_level")
        system = event.get("log_system")
        if system is None:
            system = f"{event.get('log_namespace', '-')}#{'-' if level is None else level.name}"
        time = formatTime(event.get("log_time"))
        worker = "" if self._worker is None else f" worker={self._worker}"
        trace = f" trace_id={event['trace_id']}" if event.get("trace_id") else ""
        lines = [escapeMessage(f"{time} [{system}]{worker} {message}{trace}")]
        if traceback:
            lines += [escapeMessage(line) for line in _LINE_BREAK.split(traceback)]
        return "\n\t".join(lines).encode()


def _cut(text: str, limit: int) -> str:
    """Leave the middle out of a text that is too long: its end says as much as its beginning."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {len(text) - 2 * half} characters left out ... {text[-half:]}"
