"""The options of sessions, read once."""

from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import OptionError, makeOptions, readFlag
from storagegate.http.cookies import serializeCookie

# A hundred years: Expires has four digits for the year.
_LONGEST_MS = 100 * 366 * 24 * 60 * 60 * 1000

_SAME_SITE = ("strict", "lax", "none")


def readMs(value: Any) -> float | None:
    """
    Read an age.

    @return: Milliseconds; C{None} for no end.
    @raise ValueError: It is none.
    """
    if value is None or value is False:
        return None
    if value is True or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("is a number of milliseconds")
    if not 0 <= value <= _LONGEST_MS:
        raise ValueError("is a number of milliseconds, up to a hundred years")
    return value


def readExpires(value: Any) -> float | None:
    """
    Read a point in time.

    @return: Seconds since the epoch; C{None} for no end.
    @raise ValueError: It is none.
    """
    if value is None or value is False:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("is a datetime that knows its time zone")
        return value.timestamp()
    if value is True or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("is a datetime, or seconds since 1970")
    return value


def _secure(value: Any) -> bool | str:
    if not isinstance(value, bool) and value != "auto":
        raise ValueError('is True, False or "auto"')
    return value  # type: ignore[no-any-return]


def _sameSite(value: Any) -> bool | str:
    if value is None or isinstance(value, bool):
        return bool(value)
    if not isinstance(value, str) or value.lower() not in _SAME_SITE:
        raise ValueError('is "strict", "lax", "none", True (strict) or False (not sent)')
    return value.lower()


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is text, and not empty")
    return value


def _secrets(value: Any) -> tuple[str | bytes, ...]:
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not several or not all(isinstance(one, str | bytes) and one for one in several):
        raise ValueError("is text, or a list of texts, and none of them is empty")
    return several


def _unset(value: Any) -> str:
    if value not in ("keep", "destroy"):
        raise ValueError('is "keep" or "destroy"')
    return str(value)


def _genid(value: Any) -> Callable[[Any], str] | None:
    if value is not None and not callable(value):
        raise ValueError("is a function of the request that gives an id")
    return value  # type: ignore[no-any-return]


@frozen(kw_only=True)
class CookieOptions:
    """
    How the cookie of a session is sent.

    @ivar maxAge: How long it is good for after it was sent, in milliseconds; C{None} until the
        browser is closed.
    @ivar expires: When it ends, whenever it was sent.
    @ivar secure: C{"auto"} for on TLS only.
    """

    maxAge: float | None = field(default=None, converter=readMs)
    expires: float | None = field(default=None, converter=readExpires)
    httpOnly: bool = field(default=True, converter=readFlag)
    secure: bool | str = field(default=False, converter=_secure)
    sameSite: bool | str = field(default=False, converter=_sameSite)
    path: str = field(default="/", converter=_text)
    domain: str | None = field(default=None, converter=optional(_text))

    def __attrs_post_init__(self) -> None:
        if self.maxAge is not None and self.expires is not None:
            raise OptionError("there is either cookie.maxAge or cookie.expires")
        if self.sameSite == "none" and self.secure is not True:
            raise OptionError('cookie.sameSite "none" needs cookie.secure=True: browsers insist')


def _cookie(value: Any) -> CookieOptions:
    if value is None or isinstance(value, CookieOptions):
        return value or CookieOptions()
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options")
    return makeOptions(CookieOptions, value, "cookie.")


@frozen(kw_only=True)
class SessionOptions:
    """
    Every option of C{session}, see L{session<storagegate.http.middleware.session.session>}.

    @ivar secrets: The first signs, all verify.
    @ivar absoluteMaxAge: In milliseconds.
    """

    secrets: tuple[str | bytes, ...] = field(alias="secret", converter=_secrets)
    name: str = field(default="connect.sid", converter=_text)
    cookie: CookieOptions = field(default=None, converter=_cookie)
    resave: bool = field(default=True, converter=readFlag)
    saveUninitialized: bool = field(default=True, converter=readFlag)
    rolling: bool = field(default=False, converter=readFlag)
    genid: Callable[[Any], str] | None = field(default=None, converter=_genid)
    unset: str = field(default="keep", converter=_unset)
    absoluteMaxAge: float | None = field(default=None, converter=readMs)

    def __attrs_post_init__(self) -> None:
        try:
            serializeCookie(self.name, "", path=self.cookie.path, domain=self.cookie.domain)
        except ValueError as error:
            raise OptionError(str(error)) from None


def readSessionOptions(options: Mapping[str, Any]) -> SessionOptions:
    """
    Read the options of C{session}.

    @raise OptionError: If there is no such option, or its value is none.
    """
    return makeOptions(SessionOptions, options)
