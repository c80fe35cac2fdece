"""
The line that a log has for each call, whichever wire it came by.

It costs 2 microseconds a call, so it does not go through Twisted's log where there is a sink.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger, LogLevel

from storagegate.core.loglines import LEVELS, LineSink
from storagegate.core.logvalues import FORMATS, TimeStamps

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

_WARN = LEVELS.index("warn")


class CallLines:
    """Writes lines of calls."""

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
        values: dict[str, Any] = {
            "timestamp": self._stamps.format(self._now()),
            "protocol": protocol,
            "service": service,
            "method": method,
            "client_id": client[:MAX_TEXT],
            "duration": round(seconds * 1000, 3),
            "status": status,
            "trace_id": trace,
        }
        if not self._isWhole:
            values = {name: values[name] for name in self._fields}
        if more:
            values.update(more)
        line = self._format(values)
        if sink is not None:
            sink.write(line)
        else:
            self._log.emit(LogLevel.lookupByName(LEVELS[level]), "{call}", call=line.decode())
