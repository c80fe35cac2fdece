"""
The line that a log has for each call, whichever wire it came by.

It costs a microsecond a call, so it does not go through Twisted's log where there is a sink. What
a call tells is put by as it ends; the lines of many calls are put together a little later.
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

Told = tuple[float, str, str, str, str, float, str, bytes, tuple[int, ...], tuple[str, ...]]
"""
When a call ended in seconds since 1970, protocol, service, method, client, how many seconds it
took, status, trace (letters and digits alone), and the values of what stands behind the fields:
numbers and texts.
"""


class CallLines:
    """
    Writes lines of calls.

    @ivar known: Lines that were written with a gap for what differs, by what they tell of.
    """

    _log = Logger()

    def __init__(
        self,
        level: str = "info",
        fields: Sequence[str] = FIELDS,
        format: str = "json",
        sink: LineSink | None = None,
        now: Callable[[], float] = time.time,
        numbers: Sequence[str] = (),
        texts: Sequence[str] = (),
    ) -> None:
        """
        @param level: Calls that went well are logged at this level, others one above C{info}.
        @param fields: Some of L{FIELDS}.
        @param format: C{json} for an object, C{text} for C{name=value}.
        @param sink: Where lines go; C{None} for Twisted's log.
        @param numbers: What stands behind the fields.
        @param texts: What stands behind the numbers, and is one of a few for most calls.
        """
        self._format = FORMATS[format]
        self._level = LEVELS.index(level)
        self._badLevel = max(self._level, _WARN)
        self._fields = tuple(fields)
        self._isWhole = self._fields == FIELDS
        self._numbers = tuple(numbers)
        self._texts = tuple(texts)
        self.known: dict[tuple[Any, ...], bytes] = {}
        self._sink = sink
        self._now = now
        self._stamps = TimeStamps()
        self._waiting: deque[Told] = deque()
        self._isUsual = self._isWhole and format == "json"

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
        more: Mapping[str, str] | None = None,
    ) -> None:
        """
        Write the line of a call that has ended.

        @param more: What stands behind the fields, of a call that is not like most.
        """
        sink, waiting = self._sink, self._waiting
        if sink is not None and (self._level if isGood else self._badLevel) < sink.lowest:
            return
        id = traceOf(trace)
        told = (self._now(), protocol, service, method, client, seconds, status, id, (), ())
        if sink is None:
            for line in [self._makeAny(told, more)] if more else self._makeAll([told]):
                self._emit(line, isGood)
            return
        if more:
            sink.write(self._makeAny(told, more))
            return
        waiting.append(told)
        if len(waiting) == 1:
            sink.promise(partial(self._makeAll, _drain(waiting)))

    def writeAll(self, calls: Sequence[Told], isGood: bool = True) -> None:
        """Write the lines of calls that have ended, all of them well or none."""
        if not calls or not self._wants(isGood):
            return
        if self._sink is not None:
            self._sink.promise(partial(self._makeAll, calls))
            return
        for line in self._makeAll(calls):
            self._emit(line, isGood)

    def _wants(self, isGood: bool) -> bool:
        """Tell whether lines of calls that went well, or of others, are written."""
        level = self._level if isGood else self._badLevel
        return self._sink is None or level >= self._sink.lowest

    def _makeAll(self, calls: Iterable[Told]) -> list[bytes]:
        """Make the lines of calls: mostly from templates, in a third of the time of others."""
        lines: list[bytes] = []
        known, isUsual = self.known, self._isUsual
        last, stamp = -1.0, b""
        for told in calls:
            try:
                when, protocol, service, method, client, seconds, status, trace, values, texts = (
                    told
                )
                if not isUsual or len(client) > MAX_TEXT:
                    lines.append(self._makeAny(told))
                    continue
                if when != last:
                    last, stamp = when, self._stamps.format(when).encode()
                key = (protocol, service, method, client, status, texts)
                template = known.get(key) or self._learn(key)
                lines.append(template % (stamp, seconds * 1000, trace, *values))
            except Exception:
                self._log.failure("the line of a call could not be made")
        return lines

    def _emit(self, line: bytes, isGood: bool) -> None:
        """Write a line to Twisted's log."""
        level = LEVELS[self._level if isGood else self._badLevel]
        self._log.emit(LogLevel.lookupByName(level), "{call}", call=line.decode())

    def _makeAny(self, told: Told, more: Mapping[str, str] = {}) -> bytes:
        """Make a line of whichever fields and form."""
        when, protocol, service, method, client, seconds, status, trace, numbers, texts = told
        values: dict[str, Any] = {
            "timestamp": self._stamps.format(when),
            **_firstFields(protocol, service, method, client),
            "duration": round(seconds * 1000, 3),
            "status": status,
            "trace_id": trace.decode(),
        }
        if not self._isWhole:
            values = {name: values[name] for name in self._fields}
        values.update(zip(self._numbers, numbers, strict=True))
        values.update(zip(self._texts, texts, strict=True))
        return self._format({**values, **more})

    def _learn(self, key: tuple[Any, ...]) -> bytes:
        """Write the line of a caller, a method and a status, with a gap for what differs."""
        if len(self.known) >= MAX_KNOWN:
            self.known.clear()
        *first, status, texts = key
        # What comes into the gaps is a number, or needs nothing escaped.
        gaps = "".join([f',"{name}":%d' for name in self._numbers])
        fields = _inner(_firstFields(*first))
        line = f',{fields},"duration":%.3f,{_inner({"status": status})},"trace_id":"%s"{gaps}'
        if texts:
            line += f",{_inner(dict(zip(self._texts, texts, strict=True)))}"
        template = self.known[key] = f'{{"timestamp":"%s"{line}}}'.encode()
        return template


def traceOf(trace: str) -> bytes:
    """Give the id of a trace as L{Told} has it; nothing if it is none, which could forge a line."""
    return trace.encode() if trace.isalnum() else b""


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


def _inner(values: Mapping[str, str]) -> str:
    """Write texts as a part of an object that is a part of a template."""
    return asJSON(values).decode()[1:-1].replace("%", "%%")
