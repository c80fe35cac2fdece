"""
Sessions: the object C{req.session}, its JSON content, the options, and the interfaces of stores.

The content is checked when it is saved: data that JSON would change (dates become text, NaN becomes
null) is refused, because the change would surface much later in unrelated code.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import msgspec
from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred, succeed
from zope.interface import Interface

from storagegate.core.options import (
    OptionError,
    makeOptions,
    optionField,
    readFlag,
    readFunction,
    readSecrets,
    readWord,
)
from storagegate.core.task import fromCoroutine
from storagegate.http.options import Runtime
from storagegate.net.http.cookies import serializeCookie

CONTENT_LIMIT = 1024 * 1024
"""Maximum number of bytes of a session, which is read, and often written, with every request of its
user."""

EMPTY = b"{}"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class SessionError(Exception):
    """A session cannot be saved, reloaded or created."""


def encodeContent(content: Mapping[str, Any]) -> bytes:
    """
    Encode the content of a session as JSON.

    Only L{checkContent} detects values that JSON changes.

    @param content: The session, without its cookie; an empty one becomes C{{}}.
    @raise SessionError: If a value has no JSON form, or the result is longer than L{CONTENT_LIMIT}.
    """
    if not content:
        return EMPTY
    try:
        encoded = _encoder.encode(content)
    except RecursionError:
        raise _tooDeep() from None
    except (TypeError, ValueError) as error:
        raise SessionError(_offence(content, "req.session") or f"req.session: {error}") from error
    if len(encoded) > CONTENT_LIMIT:
        raise SessionError(
            f"req.session has {len(encoded)} bytes as JSON; {CONTENT_LIMIT} are allowed"
        )
    return encoded


def checkContent(content: Mapping[str, Any], encoded: bytes) -> None:
    """
    Check that decoding the JSON restores the content; a tuple may become a list.

    @param content: The content that was encoded.
    @param encoded: The result of L{encodeContent}.
    @raise SessionError: If it does not. The message names the value and its key.
    """
    if "cookie" in content:
        raise SessionError('req.session["cookie"] is reserved for the cookie of the session')
    try:
        isSame = _decoder.decode(encoded) == content
    except RecursionError:
        raise _tooDeep() from None
    if not isSame:
        # Slow, and only for tuples and errors.
        offence = _offence(content, "req.session")
        if offence is not None:
            raise SessionError(offence)


def _tooDeep() -> SessionError:
    return SessionError("req.session contains itself, or is nested too deeply")


def encodeParts(data: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """
    Encode the content and cookie of a session as separate JSON texts, as a touch changes only the
    cookie.

    @param data: The argument of L{ISessionStore.set}.
    """
    content = {key: value for key, value in data.items() if key != "cookie"}
    return _encoder.encode(content), encodeCookie(data)


def encodeCookie(data: Mapping[str, Any]) -> bytes:
    """Encode only the cookie."""
    return _encoder.encode(data.get("cookie"))


def decodeParts(content: bytes, cookie: bytes) -> dict[str, Any]:
    """Decode the results of L{encodeParts}."""
    data: dict[str, Any] = _decoder.decode(content)
    data["cookie"] = _decoder.decode(cookie)
    return data


def _offence(value: object, path: str) -> str | None:
    """Describe the first part of a value that JSON cannot represent, or return C{None}."""
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, str):
        return None if _encodable(value) else f"{path} is text that UTF-8 cannot encode"
    if isinstance(value, float):
        return None if value - value == 0 else f"{path} is {value}, which JSON cannot represent"
    if isinstance(value, list | tuple):
        offences = (_offence(item, f"{path}[{index}]") for index, item in enumerate(value))
        return next((offence for offence in offences if offence), None)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{path} has the key {key!r}; keys have to be text"
            if not _encodable(key):
                return f"{path} has a key that UTF-8 cannot encode"
            if (offence := _offence(item, f'{path}["{key}"]')) is not None:
                return offence
        return None
    return f"{path} is a {type(value).__name__}, which JSON cannot represent"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# A hundred years: Expires has four digits for the year.
_LONGEST_MS = 100 * 366 * 24 * 60 * 60 * 1000

_SAME_SITE = ("strict", "lax", "none")


def readMs(value: Any) -> float | None:
    """
    Read an age.

    @param value: Milliseconds, up to a hundred years; C{None} or C{False} for no limit.
    """
    if value is None or value is False:
        return None
    # This form also refuses NaN.
    if value is True or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_MS:
        raise ValueError("is a number of milliseconds, up to a hundred years")
    return value


def readExpires(value: Any) -> float | None:
    """
    Read a point in time, as seconds since 1970.

    @param value: Seconds since 1970, or a C{datetime} with a time zone; C{None} or C{False} for no
        limit.
    """
    if value is None or value is False:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("is a datetime with a time zone")
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
        raise ValueError("is non-empty text")
    return value


@frozen(kw_only=True)
class CookieOptions:
    """
    The attributes of session cookies.

    @ivar maxAge: The lifetime in milliseconds after each response that sets it; C{None} until the
        browser is closed.
    @ivar expires: A fixed expiry, in seconds since the epoch.
    @ivar secure: C{"auto"} to set it only over TLS.
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
            raise OptionError("set cookie.maxAge or cookie.expires, not both")
        if self.sameSite == "none" and self.secure is not True:
            raise OptionError(
                'cookie.sameSite "none" needs cookie.secure=True: browsers require it'
            )


def _cookie(value: Any) -> CookieOptions:
    if value is None or isinstance(value, CookieOptions):
        return value or CookieOptions()
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options")
    return makeOptions(CookieOptions, value, "cookie.")


@frozen(kw_only=True)
class SessionOptions:
    """
    The options of L{session<storagegate.http.middleware.session.session>}, validated.

    @ivar secrets: The first one signs, all verify.
    @ivar absoluteMaxAge: The maximum lifetime of a session in milliseconds.
    """

    secrets: tuple[str | bytes, ...] = field(alias="secret", converter=readSecrets)
    name: str = field(default="connect.sid", converter=_text)
    cookie: CookieOptions = field(default=None, converter=_cookie)
    resave: bool = field(default=True, converter=readFlag)
    saveUninitialized: bool = field(default=True, converter=readFlag)
    rolling: bool = field(default=False, converter=readFlag)
    genid: Callable[[Any], str] | None = field(default=None, converter=optional(readFunction))
    unset: str = optionField("keep", readWord, ("keep", "destroy"))
    absoluteMaxAge: float | None = field(default=None, converter=readMs)

    def __attrs_post_init__(self) -> None:
        try:
            serializeCookie(self.name, "", path=self.cookie.path, domain=self.cookie.domain)
        except ValueError as error:
            raise OptionError(str(error)) from None


DAY_MS = 24 * 60 * 60 * 1000
"""The lifetime after its last use of a session whose cookie does not expire."""


class ISessionStore(Interface):
    """
    Stores sessions by ID.

    Each method may return its result, a Deferred or a coroutine. A session is a mapping that JSON
    can represent; its key C{cookie} holds the state of its cookie.

    A store for several machines, in a server like Valkey, must give the same guarantees: each
    method is atomic and includes the expiry, C{touch} changes only the cookie and expiry of an
    existing session, and an error fails the request.
    """

    def get(id: str) -> Any:
        """
        Return a session.

        @param id: The ID in the cookie.
        @return: The data of L{set}, or C{None} if the session does not exist or has expired.
        """

    def set(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """
        Store a session, replacing any session with this ID.

        @param id: The ID of the session, without the signature of its cookie.
        @param data: The content, with the state of the cookie under C{cookie}.
        @param maxAgeMs: Milliseconds until the session expires.
        """

    def destroy(id: str) -> Any:
        """Delete a session, if it exists."""

    def touch(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """
        Replace only the C{cookie} and the expiry of an existing session.

        @param data: As in L{set}; only C{cookie} is used.
        @param maxAgeMs: Milliseconds until the session expires.
        """


class IReplacingStore(ISessionStore):
    """
    A store that atomically changes only existing sessions.

    Without it, a write would recreate a session that another request destroyed after the check.
    """

    def replace(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Do as C{set} if a session with this ID exists."""


class IBoundStore(ISessionStore):
    """A store that needs the clock or threads of the application."""

    def bind(runtime: Runtime) -> None:
        """Use this runtime unless one is set. Called on the first request of each middleware."""


# The attributes that a handler may change for one session; changed ones are stored with it.
_FLAGS = ("httpOnly", "secure", "sameSite", "path", "domain")


class SessionCookie:
    """
    The cookie of one session. Changes apply only to this session, and are stored with it.

    @ivar originalMaxAge: The lifetime after each response that sets it, in milliseconds.
    @ivar createdAt: The creation time of the session, in seconds since the epoch.
    @ivar expiresAt: The expiry, in seconds since the epoch; C{None} until the browser is closed.
    """

    def __init__(self, options: CookieOptions, now: Callable[[], float], onTLS: bool) -> None:
        """
        @param options: The initial values: the C{cookie} options of the session middleware.
        @param now: Returns the time, in seconds since the epoch.
        @param onTLS: Whether the request came over TLS, for C{secure="auto"}.
        """
        self._now = now
        self.createdAt = now()
        self.httpOnly = options.httpOnly
        self.secure: bool = onTLS if options.secure == "auto" else bool(options.secure)
        self.sameSite = options.sameSite
        self.path = options.path
        self.domain = options.domain
        self.originalMaxAge = options.maxAge
        self.expiresAt = options.expires
        if options.maxAge is not None:
            self.expiresAt = self.createdAt + options.maxAge / 1000
        self._defaults = options

    @property
    def maxAge(self) -> float | None:
        """Return the remaining milliseconds; C{None} until the browser is closed."""
        return None if self.expiresAt is None else (self.expiresAt - self._now()) * 1000

    @maxAge.setter
    def maxAge(self, value: float | None) -> None:
        self.originalMaxAge = readMs(value)
        self.expiresAt = None
        self.touch()

    @property
    def expires(self) -> datetime | None:
        """Return the expiry; C{None} until the browser is closed."""
        return None if self.expiresAt is None else datetime.fromtimestamp(self.expiresAt, UTC)

    @expires.setter
    def expires(self, value: datetime | float | None) -> None:
        self.originalMaxAge = None
        self.expiresAt = readExpires(value)

    def touch(self) -> None:
        """Restart the lifetime, unless the expiry is fixed."""
        if self.originalMaxAge is not None:
            self.expiresAt = self._now() + self.originalMaxAge / 1000

    def ends(self, absoluteMaxAge: float | None) -> float:
        """
        Return the expiry of the session without further use, in seconds since the epoch.

        @param absoluteMaxAge: The limit of the whole lifetime in milliseconds, or C{None}.
        """
        idle = self._now() + DAY_MS / 1000 if self.expiresAt is None else self.expiresAt
        return idle if absoluteMaxAge is None else min(idle, self.createdAt + absoluteMaxAge / 1000)

    def record(self) -> dict[str, Any]:
        """Return the state to store: the times, and the attributes that differ from the options."""
        kept: dict[str, Any] = {
            "createdAt": self.createdAt,
            "originalMaxAge": self.originalMaxAge,
            "expires": self.expiresAt,
        }
        for name in _FLAGS:
            # "auto" is resolved for each request.
            if getattr(self._defaults, name) not in (getattr(self, name), "auto"):
                kept[name] = getattr(self, name)
        return kept

    def restore(self, kept: object) -> None:
        """
        Restore a stored state.

        @param kept: The result of L{record}; another program may have written it in any form.
        """
        if not isinstance(kept, Mapping):
            return
        with suppress(KeyError, ValueError):
            self.originalMaxAge = readMs(kept["originalMaxAge"])
        with suppress(KeyError, ValueError):
            self.expiresAt = readExpires(kept["expires"])
        createdAt = kept.get("createdAt")
        if isinstance(createdAt, int | float):
            self.createdAt = createdAt
        for name in _FLAGS:
            if name in kept:
                setattr(self, name, kept[name])


class Session(dict[str, Any]):
    """
    A session: a mapping whose keys are also attributes.

    The ID and cookie are created on first use: most new sessions need neither, and they would
    double the cost.
    """

    __slots__ = ("_cookie", "_id", "_request")

    _request: Any
    _id: str | None
    _cookie: SessionCookie | None

    def __init__(
        self, request: Any, id: str | None = None, cookie: SessionCookie | None = None
    ) -> None:
        object.__setattr__(self, "_request", request)
        object.__setattr__(self, "_id", id)
        object.__setattr__(self, "_cookie", cookie)

    @property
    def id(self) -> str:
        """Return the ID, which the cookie contains with a signature."""
        id = self._id
        if id is None:
            id = self._request.makeId()
            object.__setattr__(self, "_id", id)
        return id

    @property
    def cookie(self) -> SessionCookie:
        """Return the cookie; its times and attributes may be changed for this session."""
        cookie = self._cookie
        if cookie is None:
            cookie = self._request.makeCookie()
            object.__setattr__(self, "_cookie", cookie)
        return cookie

    def __getattr__(self, name: str) -> Any:
        # Python looks up names with leading double underscores; stored data must not define them.
        if not name.startswith("__") and name in self:
            return self[name]
        raise AttributeError(f"this session has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or hasattr(Session, name):
            raise AttributeError(
                f"{name!r} belongs to every session; a key of that name is session[{name!r}]"
            )
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if hasattr(Session, name) or name not in self:
            raise AttributeError(f"this session has no {name!r} of its own")
        del self[name]

    def regenerate(self) -> "Deferred[Session]":
        """
        Replace this session with an empty one that has a new ID, and delete this one.

        Call it at each login, to invalidate an ID known before.
        """
        return fromCoroutine(self._request.regenerate())

    def destroy(self) -> Deferred[None]:
        """Delete this session; C{req.session} is C{None} from now on."""
        return fromCoroutine(self._request.destroy())

    def reload(self) -> Deferred[None]:
        """
        Replace the content by the stored one.

        @raise SessionError: If the session no longer exists, as a failure.
        """
        return fromCoroutine(self._request.reload(self))

    def save(self) -> Deferred[None]:
        """
        Store the session now. Otherwise it is stored before the response ends.

        @raise SessionError: If the content has no JSON form, as a failure.
        """
        return fromCoroutine(self._request.save(self))

    def touch(self) -> Deferred[None]:
        """Restart the lifetime of the cookie, as each request does."""
        self.cookie.touch()
        return succeed(None)
