"""
Formats of request logs: text with tokens, compiled once.

C{format = *( literal / ":" name [ "[" argument "]" ] )}. A token without a value is C{-}.
"""

import os
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from email.utils import formatdate
from time import gmtime
from typing import Any

from attrs import define

from storagegate.core.logtext import escapeField

FORMATS = {
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
class Exchange:
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


Token = Callable[[Exchange], str | None]
LineFormat = Callable[[Exchange], str | None]


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
    text = FORMATS.get(text, text)
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        tokens.append(_readToken(match[1], match[2]))
        end = match.end()
    if not tokens:
        names = ", ".join([*FORMATS, "dev"])
        raise ValueError(f"{text!r} is no log format: neither one of {names}, nor has it a :token")
    template = "%s".join(piece.replace("%", "%%") for piece in [*pieces, text[end:]])
    return lambda exchange: template % tuple([token(exchange) or "-" for token in tokens])


def _compileDev() -> LineFormat:
    plain = FORMATS["tiny"]
    # Green, cyan, yellow and red, by the first digit of the status.
    coloured = {
        digit: compileFormat(plain.replace(":status", f"\x1b[{colour}m:status\x1b[0m"))
        for digit, colour in ((2, 32), (3, 36), (4, 33), (5, 31))
    }
    uncoloured = compileFormat(plain)

    def writeLine(exchange: Exchange) -> str | None:
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

    def write(exchange: Exchange) -> str | None:
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

    def write(exchange: Exchange) -> str | None:
        if exchange.answered is None:
            return None
        return _milliseconds(exchange.answered - exchange.started, digits)

    return write


def _totalTime(argument: str | None) -> Token:
    digits = _digits("total-time", argument)

    def write(exchange: Exchange) -> str | None:
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


def _status(exchange: Exchange) -> str | None:
    if exchange.isLost or not exchange.res.headersSent:
        return None
    return str(exchange.res.statusCode)


def _field(exchange: Exchange, name: str) -> str | None:
    value = exchange.req.get(name)
    return value and escapeField(value)


def _remoteUser(exchange: Exchange) -> str | None:
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
