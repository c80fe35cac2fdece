"""
The line that a log has for each call, whichever wire it came by.

It costs a microsecond a call, so it does not go through Twisted's log where there is a sink. What
a call tells is put by as it ends; the lines of many calls are put together a little later.

Formats of request logs: text with tokens, compiled once.

C{format = *( literal / ":" name [ "[" argument "]" ] )}. A token without a value is C{-}.
"""

import os
import re
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from time import gmtime
from typing import Any

from attrs import define
from twisted.logger import Logger, LogLevel

from storagegate.telemetry.log import FORMATS, LEVELS, LogSink, TimeStamps, asJSON, escapeField

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


class AccessLog:
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
        sink: LogSink | None = None,
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


REQUEST_FORMATS = {
    "combined": (
        ':remote-addr - :remote-user [:date[clf]] ":method :url HTTP/:http-version" '
        ':status :res[content-length] ":referrer" ":user-agent"'
    ),
    "common": (
        ':remote-addr - :remote-user [:date[clf]] ":method :url HTTP/:http-version" '
        ":status :res[content-length]"
    ),
    "short": (
        ":remote-addr :remote-user :method :url HTTP/:http-version "
        ":status :res[content-length] - :response-time ms"
    ),
    "tiny": ":method :url :status :res[content-length] - :response-time ms",
}
"""The formats that have names; C{dev}, whose colours follow the status, is the fifth."""

_TOKEN = re.compile(r":([-\w]{2,})(?:\[([^\]]+)\])?", re.ASCII)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# RFC 7617; a user's name cannot hold a colon.
_BASIC = re.compile(r" *basic +([A-Za-z0-9+/_.~-]+=*) *", re.ASCII | re.IGNORECASE)

_DIGITS = re.compile(r"[0-9]")


@define
class RequestRecord:
    """
    A request and what has become of it, as a log sees them.

    @ivar req: The request.
    @ivar res: Its response.
    @ivar now: Gives the time in seconds since 1970.
    @ivar started: When the request came.
    @ivar answered: When the head of the response was ready.
    @ivar isLost: Whether the client went away before the end of the response.
    """

    req: Any
    res: Any
    now: Callable[[], float]
    started: float
    answered: float | None = None
    isLost: bool = False


Token = Callable[[RequestRecord], str | None]
LineFormat = Callable[[RequestRecord], str | None]


def compileFormat(text: str) -> LineFormat:
    """
    Compile a format, given by its name or as text with tokens.

    @raise ValueError: If there is no such format, token or argument.
    """
    if text == "dev":
        return _compileDev()
    tokens: list[Token] = []
    pieces: list[str] = []
    end = 0
    text = REQUEST_FORMATS.get(text, text)
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        tokens.append(_readToken(match[1], match[2]))
        end = match.end()
    if not tokens:
        names = ", ".join([*REQUEST_FORMATS, "dev"])
        raise ValueError(f"{text!r} is no log format: neither one of {names}, nor has it a :token")
    template = "%s".join(piece.replace("%", "%%") for piece in [*pieces, text[end:]])
    return lambda exchange: template % tuple([token(exchange) or "-" for token in tokens])


def _compileDev() -> LineFormat:
    plain = REQUEST_FORMATS["tiny"]
    # Green, cyan, yellow and red, by the first digit of the status.
    coloured = {
        digit: compileFormat(plain.replace(":status", f"\x1b[{colour}m:status\x1b[0m"))
        for digit, colour in ((2, 32), (3, 36), (4, 33), (5, 31))
    }
    uncoloured = compileFormat(plain)

    def writeLine(exchange: RequestRecord) -> str | None:
        status = _status(exchange)
        digit = int(status) // 100 if status else 0
        return coloured.get(digit, uncoloured)(exchange)

    return writeLine


# Tokens


def _readToken(name: str, argument: str | None) -> Token:
    if name in _PLAIN:
        if argument is not None:
            raise ValueError(f"the log token :{name} takes no argument")
        return _PLAIN[name]
    if name not in _WITH_ARGUMENT:
        known = ", ".join(":" + name for name in sorted([*_PLAIN, *_WITH_ARGUMENT]))
        raise ValueError(f"there is no log token :{name}; there are {known}")
    return _WITH_ARGUMENT[name](argument)


def _requestHeader(argument: str | None) -> Token:
    if argument is None:
        raise ValueError("the log token :req names a header, as in :req[accept]")
    name = argument.lower()
    return lambda exchange: _field(exchange, name)


def _responseHeader(argument: str | None) -> Token:
    if argument is None:
        raise ValueError("the log token :res names a header, as in :res[content-length]")

    isLength = argument.lower() == "content-length"

    def write(exchange: RequestRecord) -> str | None:
        res = exchange.res
        if not res.headersSent:
            return None
        value = res.get(argument)
        if value is None and isLength and res.statusCode not in (204, 304):
            # Mostly nobody sets it, and the connection adds it.
            value = res.sentLength
        if isinstance(value, list | tuple):
            value = ", ".join(value)
        return None if value is None else escapeField(str(value))

    return write


def _date(argument: str | None) -> Token:
    argument = argument or "web"
    writers: dict[str, Callable[[float], str]] = {
        "clf": _clfDate,
        "iso": _isoDate,
        "web": lambda now: formatdate(now, usegmt=True),
    }
    if argument not in writers:
        raise ValueError(f"the log token :date is written as clf, iso or web, not {argument!r}")
    writer = writers[argument]
    return lambda exchange: writer(exchange.now())


def _clfDate(now: float) -> str:
    """Write C{10/Oct/2000:13:55:36 +0000}; strftime would write the month in a language."""
    t = gmtime(now)
    return (
        f"{t.tm_mday:02}/{_MONTHS[t.tm_mon - 1]}/{t.tm_year:04}"
        f":{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} +0000"
    )


def _isoDate(now: float) -> str:
    t = gmtime(now)
    return (
        f"{t.tm_year:04}-{t.tm_mon:02}-{t.tm_mday:02}"
        f"T{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}.{int(now * 1000) % 1000:03}Z"
    )


def _responseTime(argument: str | None) -> Token:
    digits = _digits("response-time", argument)

    def write(exchange: RequestRecord) -> str | None:
        if exchange.answered is None:
            return None
        return _milliseconds(exchange.answered - exchange.started, digits)

    return write


def _totalTime(argument: str | None) -> Token:
    digits = _digits("total-time", argument)

    def write(exchange: RequestRecord) -> str | None:
        if exchange.answered is None:
            return None
        return _milliseconds(exchange.now() - exchange.started, digits)

    return write


def _digits(name: str, argument: str | None) -> int:
    if argument is None:
        return 3
    if not _DIGITS.fullmatch(argument):
        raise ValueError(f"the log token :{name} has 0 to 9 digits, not {argument!r}")
    return int(argument)


def _milliseconds(seconds: float, digits: int) -> str:
    # The clock may have been set back meanwhile.
    return f"{max(seconds, 0.0) * 1000:.{digits}f}"


def _status(exchange: RequestRecord) -> str | None:
    if exchange.isLost or not exchange.res.headersSent:
        return None
    return str(exchange.res.statusCode)


def _field(exchange: RequestRecord, name: str) -> str | None:
    value = exchange.req.get(name)
    return value and escapeField(value)


def _remoteUser(exchange: RequestRecord) -> str | None:
    match = _BASIC.fullmatch(exchange.req.get("authorization") or "")
    if match is None:
        return None
    encoded = match[1].rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    try:
        decoded = b64decode(encoded + "=" * (-len(encoded) % 4))
    except Base64Error:
        return None
    user, colon, _ = decoded.partition(b":")
    return escapeField(user.decode("utf-8", "replace")) if colon else None


_PLAIN: dict[str, Token] = {
    "http-version": lambda exchange: str(exchange.req.httpVersion),
    "method": lambda exchange: str(exchange.req.method),
    "pid": lambda exchange: str(os.getpid()),
    "referrer": lambda exchange: _field(exchange, "referrer"),
    "remote-addr": lambda exchange: escapeField(exchange.req.ip or ""),
    "remote-user": _remoteUser,
    "status": _status,
    "url": lambda exchange: escapeField(exchange.req.originalUrl),
    "user-agent": lambda exchange: _field(exchange, "user-agent"),
}

_WITH_ARGUMENT: dict[str, Callable[[str | None], Token]] = {
    "date": _date,
    "req": _requestHeader,
    "res": _responseHeader,
    "response-time": _responseTime,
    "total-time": _totalTime,
}
