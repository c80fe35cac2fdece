"""
The access log, one line for each call or request of any transport; and the formats of request logs.

A line of the L{AccessLog} costs 1 microsecond, so it bypasses Twisted's log if there is a sink: the
values of a call are kept when it ends, and the lines of many calls are formatted together, a little
later, from templates.

The format of a request log (the middleware C{requestLog}) is text with tokens, compiled once:
C{format = *( literal / ":" name [ "[" argument "]" ] )}. A token without a value is C{-}.
"""

import os
import re
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from typing import Any

from attrs import define
from msgspec import json
from twisted.logger import Logger, LogLevel

from storagegate.telemetry.log import (
    FORMATS,
    LEVELS,
    BufferedLogWriter,
    escapeField,
    formatJSON,
    formatTimestamp,
)
from storagegate.telemetry.redaction import Redactor

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
"""Fields of a line; C{duration} is in milliseconds, C{status} C{ok} or an error's code."""

MAX_TEXT = 256
"""Maximum number of characters of text chosen by a client."""

MAX_TEMPLATES = 1000
"""Maximum number of cached templates, by caller and method: more would rarely be reused."""

_WARN = LEVELS.index("warn")

Entry = tuple[float, str, str, str, str, float, str, bytes, tuple[Any, ...], tuple[str, ...]]
"""The end of a call in seconds since 1970, protocol, service, method, client, duration in seconds,
status, trace ID (letters and digits only), and the values after the fields: numbers, texts."""


class AccessLog:
    """
    Writes a line for each completed call or request.

    @ivar templates: Format strings by the values that their lines share.
    @ivar redact: Removes secrets from text sent by a client; see L{BufferedLogWriter}. This class
        redacts the texts of an entry; the caller redacts its members.
    """

    _log = Logger()

    def __init__(
        self,
        level: str = "info",
        fields: Sequence[str] = FIELDS,
        format: str = "json",
        sink: BufferedLogWriter | None = None,
        numbers: Sequence[str] = (),
        texts: Sequence[str] = (),
        hasMembers: bool = False,
    ) -> None:
        """
        @param level: The level of successful calls; failed ones are logged at C{warn} or above.
        @param fields: A selection of L{FIELDS}.
        @param format: C{json} for an object, C{text} for C{name=value}.
        @param sink: The destination of lines; C{None} for Twisted's log.
        @param numbers: Names of the numbers after the fields.
        @param texts: Names of the texts after the numbers, which have few distinct values.
        @param hasMembers: Whether the last of an entry's numbers is instead bytes: members of a
            JSON object, without braces, for values that differ in each line.
        """
        self._format = FORMATS[format]
        self._level = LEVELS.index(level)
        self._fields = tuple(fields)
        self._numbers = tuple(numbers)
        self._texts = tuple(texts)
        self._sink = sink
        self.redact = Redactor().redact if sink is None else sink.redact
        self._hasMembers = hasMembers
        self._hasTemplates = self._fields == FIELDS and format == "json"
        self.templates: dict[tuple[Any, ...], bytes] = {}

    def write(
        self, entries: Sequence[Entry], isGood: bool = True, more: Mapping[str, str] | None = None
    ) -> None:
        """
        Write the lines of completed calls, either all successful or all failed.

        @param more: Extra fields at the end of these lines.
        """
        level = self._level if isGood else max(self._level, _WARN)
        sink = self._sink
        if sink is None:
            for line in self._makeLines(entries, more):
                name = LogLevel.lookupByName(LEVELS[level])
                self._log.emit(name, "{call}", call=line.decode())
        elif entries and level >= sink.lowest:
            sink.writeLater(partial(self._makeLines, entries, more), len(entries))

    def _makeLines(
        self, entries: Iterable[Entry], more: Mapping[str, str] | None = None
    ) -> list[bytes]:
        """Format lines, mostly from templates, which take a third of the time."""
        lines: list[bytes] = []
        templates, hasTemplates = self.templates, self._hasTemplates
        last, timestamp = -1, b""
        for entry in entries:
            try:
                when, protocol, service, method, client, seconds, status, trace, values, texts = (
                    entry
                )
                if more or not hasTemplates or len(client) > MAX_TEXT:
                    lines.append(self._makeLine(entry, more))
                    continue
                milliseconds = int(when * 1000)
                if milliseconds != last:
                    last, timestamp = milliseconds, formatTimestamp(when).encode()
                key = (protocol, service, method, client, status, texts)
                template = templates.get(key) or self._makeTemplate(key)
                lines.append(template % (timestamp, seconds * 1000, trace, *values))
            except Exception:
                self._log.failure("the log line of a call could not be formatted")
        return lines

    def _makeLine(self, entry: Entry, more: Mapping[str, str] | None) -> bytes:
        """Format a line with any fields and format."""
        when, protocol, service, method, client, seconds, status, trace, numbers, texts = entry
        values: dict[str, Any] = {
            "timestamp": formatTimestamp(when),
            "protocol": protocol,
            "service": service,
            "method": method,
            "client_id": client[:MAX_TEXT],
            "duration": round(seconds * 1000, 3),
            "status": status,
            "trace_id": trace.decode(),
        }
        values = {name: values[name] for name in self._fields}
        *counts, members = numbers if self._hasMembers else (*numbers, b"")
        values.update(zip(self._numbers, counts, strict=True))
        values.update(json.decode(b"{%b}" % members))
        values.update(zip(self._texts, map(self.redact, texts), strict=True))
        shown = {name: self.redact(text) for name, text in (more or {}).items()}
        return self._format({**values, **shown})

    def _makeTemplate(self, key: tuple[Any, ...]) -> bytes:
        """
        Make a format string; its placeholders take only numbers and values that need no escaping.
        """
        if len(self.templates) >= MAX_TEMPLATES:
            self.templates.clear()
        *names, status, texts = key
        fields = _members(dict(zip(FIELDS[1:5], names, strict=True)))
        numbers = "".join([f',"{name}":%d' for name in self._numbers])
        numbers += ",%b" if self._hasMembers else ""
        line = f',{fields},"duration":%.3f,{_members({"status": status})},"trace_id":"%s"{numbers}'
        if texts:
            shown = map(self.redact, texts)
            line += f",{_members(dict(zip(self._texts, shown, strict=True)))}"
        template = self.templates[key] = f'{{"timestamp":"%s"{line}}}'.encode()
        return template


def _members(values: Mapping[str, str]) -> str:
    """Format texts as members of a JSON object in a template."""
    return formatJSON(values).decode()[1:-1].replace("%", "%%")


# ---- Formats of request logs


REQUEST_FORMATS: Mapping[str, str] = {
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
"""The named formats of request logs; C{dev} is C{tiny} with the status in colour."""

_TOKEN = re.compile(r":([-\w]{2,})(?:\[([^\]]+)\])?", re.ASCII)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# RFC 7617; a user's name cannot hold a colon.
_BASIC = re.compile(r" *basic +([A-Za-z0-9+/_.~-]+=*) *", re.ASCII | re.IGNORECASE)


@define
class RequestRecord:
    """
    A request and its response, for a request log.

    @ivar req: The request.
    @ivar res: Its response.
    @ivar now: Returns the time in seconds since 1970.
    @ivar started: The time of the request.
    @ivar answered: The time when the head of the response was ready.
    @ivar isLost: Whether the client disconnected before the end of the response.
    """

    req: Any
    res: Any
    now: Callable[[], float]
    started: float
    answered: float | None = None
    isLost: bool = False


LineFormat = Callable[[RequestRecord], str | None]


def compileFormat(text: str) -> LineFormat:
    """
    Compile a format, given by name or as text with tokens.

    @raise ValueError: If the format, a token or an argument is unknown.
    """
    if text == "dev":
        tiny = REQUEST_FORMATS["tiny"]
        # Green, cyan, yellow and red, by the first digit of the status.
        coloured = {
            digit: compileFormat(tiny.replace(":status", f"\x1b[{colour}m:status\x1b[0m"))
            for digit, colour in (("2", 32), ("3", 36), ("4", 33), ("5", 31))
        }
        plain = compileFormat(tiny)
        return lambda record: coloured.get((_status(record) or "-")[0], plain)(record)
    tokens: list[LineFormat] = []
    pieces: list[str] = []
    end = 0
    text = REQUEST_FORMATS.get(text, text)
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        tokens.append(_compileToken(match[1], match[2] or ""))
        end = match.end()
    if not tokens:
        names = ", ".join([*REQUEST_FORMATS, "dev"])
        raise ValueError(f"{text!r} is not a log format: use {names}, or a format with a :token")
    template = "%s".join(piece.replace("%", "%%") for piece in [*pieces, text[end:]])
    return lambda record: template % tuple([token(record) or "-" for token in tokens])


def _compileToken(name: str, argument: str) -> LineFormat:
    if name not in _TOKENS:
        known = ", ".join(":" + name for name in sorted(_TOKENS))
        raise ValueError(f"there is no log token :{name}; there are {known}")
    kind, write = _TOKENS[name]
    expected, pattern = _ARGUMENTS[kind]
    if not re.fullmatch(pattern, argument):
        raise ValueError(f"the log token :{name} takes {expected}, not {argument!r}")
    return lambda record: write(record, argument)


def _field(record: RequestRecord, name: str) -> str | None:
    value = record.req.get(name.lower())
    return value and escapeField(value)


def _responseField(record: RequestRecord, name: str) -> str | None:
    res = record.res
    if not res.headersSent:
        return None
    value = res.get(name)
    if value is None and name.lower() == "content-length" and res.statusCode not in (204, 304):
        # Most handlers do not set it; the connection adds it.
        value = res.sentLength
    if isinstance(value, list | tuple):
        value = ", ".join(value)
    return None if value is None else escapeField(str(value))


def _date(record: RequestRecord, form: str) -> str:
    now = record.now()
    if form == "iso":
        return formatTimestamp(now)
    if form == "clf":
        t = time.gmtime(now)
        # 10/Oct/2000:13:55:36 +0000; strftime would localise the month.
        return time.strftime(f"%d/{_MONTHS[t.tm_mon - 1]}/%Y:%H:%M:%S +0000", t)
    return formatdate(now, usegmt=True)


def _milliseconds(record: RequestRecord, end: float | None, digits: str) -> str | None:
    if record.answered is None or end is None:
        return None
    # The clock may have been set back in the meantime.
    return f"{max(end - record.started, 0.0) * 1000:.{digits or 3}f}"


def _status(record: RequestRecord, argument: str = "") -> str | None:
    return None if record.isLost or not record.res.headersSent else str(record.res.statusCode)


def _remoteUser(record: RequestRecord, argument: str) -> str | None:
    match = _BASIC.fullmatch(record.req.get("authorization") or "")
    if match is None:
        return None
    encoded = match[1].rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    try:
        decoded = b64decode(encoded + "=" * (-len(encoded) % 4))
    except Base64Error:
        return None
    user, colon, _ = decoded.partition(b":")
    return escapeField(user.decode("utf-8", "replace")) if colon else None


_ARGUMENTS: Mapping[str, tuple[str, str]] = {
    "none": ("no argument", ""),
    "header": ("the name of a header, as in :req[accept]", ".+"),
    "digits": ("0 to 9 digits", "[0-9]?"),
    "date": ("clf, iso or web", "(clf|iso|web)?"),
}
"""The argument that a token accepts in brackets: in words, and as a pattern."""

_TOKENS: Mapping[str, tuple[str, Callable[[RequestRecord, str], str | None]]] = {
    "date": ("date", _date),
    "http-version": ("none", lambda record, _: str(record.req.httpVersion)),
    "method": ("none", lambda record, _: str(record.req.method)),
    "pid": ("none", lambda record, _: str(os.getpid())),
    "referrer": ("none", lambda record, _: _field(record, "referrer")),
    "remote-addr": ("none", lambda record, _: escapeField(record.req.ip or "")),
    "remote-user": ("none", _remoteUser),
    "req": ("header", _field),
    "res": ("header", _responseField),
    "response-time": (
        "digits",
        lambda record, digits: _milliseconds(record, record.answered, digits),
    ),
    "status": ("none", _status),
    "total-time": ("digits", lambda record, digits: _milliseconds(record, record.now(), digits)),
    "url": ("none", lambda record, _: escapeField(record.req.originalUrl)),
    "user-agent": ("none", lambda record, _: _field(record, "user-agent")),
}
"""The kind of argument of each token, and the function that formats it."""
