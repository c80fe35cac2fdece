"""
The line that a log has for each call, whichever wire it came by.

It costs a microsecond a call, so it does not go through Twisted's log where there is a sink. What
a call tells is put by as it ends; the lines of all calls of a turn are put together at its end.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
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

Told = tuple[float, str, str, str, str, float, str, str, Mapping[str, Any] | None]
"""
When a call ended in seconds since 1970, protocol, service, method, client, how many seconds it
took, status, trace, and what stands behind the fields.
"""


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
        self.known: dict[tuple[str, ...], tuple[str, str]] = {}
        self._sink = sink
        self._now = now
        self._stamps = TimeStamps()
        self._waiting: deque[Told] = deque()
        self._make = self._makeKnown if self._isWhole and format == "json" else self._makeAny

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
    ) -> None:
        """Write the line of a call that has ended."""
        if not self.wants(isGood):
            return
        told = (self._now(), protocol, service, method, client, seconds, status, trace, None)
        sink, waiting = self._sink, self._waiting
        if sink is None:
            self._emit(told, isGood)
            return
        waiting.append(told)
        if len(waiting) == 1:
            sink.promise(partial(self._makeAll, _drain(waiting)))

    def writeAll(self, calls: Sequence[Told], isGood: bool = True) -> None:
        """Write the lines of calls that have ended, all of them well or none; they are wanted."""
        if self._sink is not None:
            self._sink.promise(partial(self._makeAll, calls))
            return
        for told in calls:
            self._emit(told, isGood)

    def wants(self, isGood: bool) -> bool:
        """Tell whether lines of calls that went well, or of others, are written."""
        level = self._level if isGood else max(self._level, _WARN)
        return self._sink is None or level >= self._sink.lowest

    def _makeAll(self, calls: Iterable[Told]) -> list[bytes]:
        """Make the lines of calls."""
        lines = []
        make = self._make
        for told in calls:
            try:
                lines.append(make(told))
            except Exception:
                self._log.failure("the line of a call could not be made")
        return lines

    def _emit(self, told: Told, isGood: bool) -> None:
        """Write a line to Twisted's log."""
        level = LEVELS[self._level if isGood else max(self._level, _WARN)]
        call = self._make(told).decode()
        self._log.emit(LogLevel.lookupByName(level), "{call}", call=call)

    def _makeKnown(self, told: Told) -> bytes:
        """Make a line of which most was in one before: in half of the time of another."""
        when, protocol, service, method, client, seconds, status, trace, more = told
        if not (trace.isalnum() and trace.isascii()) or len(client) > MAX_TEXT:
            return self._makeAny(told)
        key = (protocol, service, method, client, status)
        head, tail = self.known.get(key) or self._learn(key)
        stamp = self._stamps.format(when)
        text = f'{{"timestamp":"{stamp}",{head}{seconds * 1000:.3f}{tail}{trace}"'
        return text.encode() + (b"," + asJSON(more)[1:] if more else b"}")

    def _makeAny(self, told: Told) -> bytes:
        """Make a line of whichever fields and form."""
        when, protocol, service, method, client, seconds, status, trace, more = told
        values: dict[str, Any] = {
            "timestamp": self._stamps.format(when),
            **_firstFields(protocol, service, method, client),
            "duration": round(seconds * 1000, 3),
            "status": status,
            "trace_id": trace,
        }
        if not self._isWhole:
            values = {name: values[name] for name in self._fields}
        return self._format({**values, **(more or {})})

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
        "client_id": client[:MAX_TEXT],
    }


def _drain(waiting: deque[Told]) -> Iterator[Told]:
    """Take what waits, and what comes while it is taken: of several threads nothing is lost."""
    while waiting:
        yield waiting.popleft()
