"""
The line that a log has for each call, whichever wire it came by.

It costs a microsecond a call, so it does not go through Twisted's log where there is a sink.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger, LogLevel

from storagegate.core.loglines import LEVELS, LineSink
from storagegate.core.logvalues import FORMATS, TimeStamps, asJSON

FIELDS = (
    "timestamp",
    "protocol",
    "service",
    "method",
    "client_id",
    "duration",
    "status",
    "trace_id",
)
"""What a line may tell; C{duration} is in milliseconds, C{status} C{ok} or an error's code."""

MAX_TEXT = 256
"""What a client chose is cut here, so that a line stays one."""

MAX_KNOWN = 1000
"""Callers with what they call whose parts of a line are kept: more come too seldom to be met."""

_WARN = LEVELS.index("warn")


class CallLines:
    """
    Writes lines of calls.

    @ivar known: Parts of lines that were written, by what they tell of.
    """

    _log = Logger()

    def __init__(
        self,
        level: str = "info",
        fields: Sequence[str] = FIELDS,
        format: str = "json",
        sink: LineSink | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        @param level: Calls that went well are logged at this level, others one above C{info}.
        @param fields: Some of L{FIELDS}.
        @param format: C{json} for an object, C{text} for C{name=value}.
        @param sink: Where lines go; C{None} for Twisted's log.
        """
        self._format = FORMATS[format]
        self._level = LEVELS.index(level)
        self._fields = tuple(fields)
        self._isWhole = self._fields == FIELDS
        self._isJSON = format == "json"
        self.known: dict[tuple[str, ...], tuple[str, str]] = {}
        self._sink = sink
        self._now = now
        self._stamps = TimeStamps()

    def write(
        self,
        protocol: str,
        service: str,
        method: str,
        client: str,
        seconds: float,
        status: str,
        trace: str,
        isGood: bool,
        **more: Any,
    ) -> None:
        """
        Write the line of a call that has ended.

        @param more: What stands behind the fields.
        """
        level = self._level if isGood else max(self._level, _WARN)
        sink = self._sink
        if sink is not None and level < sink.lowest:
            return
        stamp = self._stamps.format(self._now())
        client = client[:MAX_TEXT]
        if self._isWhole and self._isJSON and trace.isalnum() and trace.isascii():
            # Most of it was in a line before: to put it together takes half of what it takes to
            # write an object.
            key = (protocol, service, method, client, status)
            head, tail = self.known.get(key) or self._learn(key)
            text = f'{{"timestamp":"{stamp}",{head}{seconds * 1000:.3f}{tail}{trace}"'
            line = text.encode() + (b"," + asJSON(more)[1:] if more else b"}")
        else:
            values: dict[str, Any] = {
                "timestamp": stamp,
                **_firstFields(protocol, service, method, client),
                "duration": round(seconds * 1000, 3),
                "status": status,
                "trace_id": trace,
            }
            if not self._isWhole:
                values = {name: values[name] for name in self._fields}
            line = self._format({**values, **more})
        if sink is not None:
            sink.write(line)
        else:
            self._log.emit(LogLevel.lookupByName(LEVELS[level]), "{call}", call=line.decode())

    def _learn(self, key: tuple[str, ...]) -> tuple[str, str]:
        """Give the parts of a line that are the same for a caller, a method and a status."""
        if len(self.known) >= MAX_KNOWN:
            self.known.clear()
        *first, status = key
        # What comes between is a number, and what comes last needs nothing escaped.
        head = asJSON(_firstFields(*first)).decode()[1:-1] + ',"duration":'
        tail = "," + asJSON({"status": status}).decode()[1:-1] + ',"trace_id":"'
        self.known[key] = (head, tail)
        return head, tail


def _firstFields(protocol: str, service: str, method: str, client: str) -> dict[str, Any]:
    return {
        "protocol": protocol,
        "service": service,
        "method": method,
        "client_id": client,
    }
