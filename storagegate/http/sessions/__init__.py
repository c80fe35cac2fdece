"""
Sessions: the object that handlers see as C{req.session}, its JSON content, the options, and the
interfaces of stores.

The content is checked when it is saved: data that JSON would change (dates become text, NaN becomes
null) is refused, because the change would be found much later and far away.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import msgspec
from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred
from zope.interface import Interface

from storagegate.core.options import OptionError, makeOptions, readFlag
from storagegate.http.runtime import Runtime
from storagegate.net.http.cookies import serializeCookie

CONTENT_LIMIT = 1024 * 1024
"""A session is read, and often written, with every request of its user."""

EMPTY = b"{}"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class SessionError(Exception):
    """A session cannot do what the application asks of it."""


def encodeContent(content: Mapping[str, Any]) -> bytes:
    """
    Write a content.

    Only L{checkContent} finds what JSON writes in another form.

    @raise SessionError: It is nothing for JSON, or too long.
    """
    if not content:
        return EMPTY
    try:
        encoded = _encoder.encode(content)
    except RecursionError:
        raise SessionError("req.session holds itself, or is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise SessionError(_offence(content, "req.session") or f"req.session: {error}") from error
    if len(encoded) > CONTENT_LIMIT:
        raise SessionError(
            f"req.session has {len(encoded)} bytes as JSON; {CONTENT_LIMIT} are allowed"
        )
    return encoded


def checkContent(content: Mapping[str, Any], encoded: bytes) -> None:
    """
    See to it that a content comes back from its JSON as it is; a tuple may become a list.

    @raise SessionError: It does not. The message says what is wrong and where.
    """
    if "cookie" in content:
        raise SessionError('req.session["cookie"] is taken by the cookie of the session')
    if _decoder.decode(encoded) != content:
        # Slow, and only for tuples and errors.
        offence = _offence(content, "req.session")
        if offence is not None:
            raise SessionError(offence)


def encodeParts(data: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Write what a store is given as content and cookie, which alone changes with a touch."""
    content = {key: value for key, value in data.items() if key != "cookie"}
    return _encoder.encode(content), encodeCookie(data)


def encodeCookie(data: Mapping[str, Any]) -> bytes:
    """Write the cookie alone."""
    return _encoder.encode(data.get("cookie"))


def decodeParts(content: bytes, cookie: bytes) -> dict[str, Any]:
    """Read what L{encodeParts} wrote."""
    data: dict[str, Any] = _decoder.decode(content)
    data["cookie"] = _decoder.decode(cookie)
    return data


def _offence(value: object, place: str) -> str | None:
    """Say what in a value JSON does not have; C{None} if there is nothing."""
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, str):
        return None if _encodable(value) else f"{place} is text that UTF-8 cannot hold"
    if isinstance(value, float):
        return None if value - value == 0 else f"{place} is {value}, which JSON does not have"
    if isinstance(value, list | tuple):
        offences = (_offence(item, f"{place}[{index}]") for index, item in enumerate(value))
        return next((offence for offence in offences if offence), None)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{place} has the key {key!r}; keys have to be text"
            if not _encodable(key):
                return f"{place} has a key that UTF-8 cannot hold"
            if (offence := _offence(item, f'{place}["{key}"]')) is not None:
                return offence
        return None
    return f"{place} is a {type(value).__name__}, which JSON does not have"


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


DAY_MS = 24 * 60 * 60 * 1000
"""How long a session whose cookie has no end is kept after its last use."""


class ISessionStore(Interface):
    """
    Keeps sessions by their id.

    Every method may give its result at once, as a Deferred or as a coroutine. A session is a
    mapping that JSON can hold; its key C{cookie} holds what belongs to its cookie.

    A store for several machines, in a server like Valkey, promises as much: each method is one
    atomic step with its expiry in it, C{touch} changes nothing but cookie and expiry of a session
    that is there, and an error is that of the request.
    """

    def get(id: str) -> Any:
        """Give a session, or C{None} if there is none of this id, or not any more."""

    def set(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Keep a session, in place of what there is of this id, for so many milliseconds."""

    def destroy(id: str) -> Any:
        """Forget a session, if there is one."""

    def touch(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Keep a session for longer and take over its C{cookie}; leave the rest as it is kept."""


class IReplacingStore(ISessionStore):
    """
    A store that can tell a change from something new, in one step.

    Without it a request that ends after its session was destroyed by another could bring the
    session back in the moment between looking and writing.
    """

    def replace(id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """Do as C{set}, but nothing if there is no session of this id."""


class IBoundStore(ISessionStore):
    """A store that needs the time or threads of the application."""

    def bind(runtime: Runtime) -> None:
        """Use this runtime, unless there is one. Called with every first use by a middleware."""


class IRequestSession(Interface):
    """What a session asks of the request that it belongs to."""

    def makeId() -> str:
        """Make an id."""

    def makeCookie() -> Any:
        """Make a cookie as the options say."""

    def regenerate() -> Any:
        """Give the request another session, with a new id and no content. A coroutine."""

    def destroy() -> Any:
        """Leave the request without a session, and forget what is kept. A coroutine."""

    def reload(session: Any) -> Any:
        """
        Read what is kept again. A coroutine.

        @raise SessionError: There is nothing, or the request has another session by now.
        """

    def save(session: Any) -> Any:
        """
        Keep the session now. A coroutine.

        @raise SessionError: It cannot be kept, or the request has another session by now.
        """


# What a handler may change for its own session, and what is kept where it did.
_FLAGS = ("httpOnly", "secure", "sameSite", "path", "domain")


class SessionCookie:
    """
    The cookie of one session.

    What is changed here holds for this session only, and is kept with it.

    @ivar originalMaxAge: How long it is good for after each time it is sent, in milliseconds.
    @ivar createdAt: When the session began, in seconds since the epoch.
    """

    __slots__ = (
        "_defaults",
        "_expiresAt",
        "_now",
        "createdAt",
        "domain",
        "httpOnly",
        "originalMaxAge",
        "path",
        "sameSite",
        "secure",
    )

    def __init__(self, options: CookieOptions, now: Callable[[], float], onTLS: bool) -> None:
        self._now = now
        self.createdAt = now()
        self.httpOnly = options.httpOnly
        self.secure: bool = onTLS if options.secure == "auto" else bool(options.secure)
        self.sameSite = options.sameSite
        self.path = options.path
        self.domain = options.domain
        self.originalMaxAge = options.maxAge
        self._expiresAt = options.expires
        if options.maxAge is not None:
            self._expiresAt = self.createdAt + options.maxAge / 1000
        self._defaults = options

    @property
    def maxAge(self) -> float | None:
        """Give how many milliseconds are left; C{None} until the browser is closed."""
        return None if self._expiresAt is None else (self._expiresAt - self._now()) * 1000

    @maxAge.setter
    def maxAge(self, value: float | None) -> None:
        self.originalMaxAge = readMs(value)
        self._expiresAt = None
        self.touch()

    @property
    def expires(self) -> datetime | None:
        """Give when it ends; C{None} when the browser is closed."""
        return None if self._expiresAt is None else datetime.fromtimestamp(self._expiresAt, UTC)

    @expires.setter
    def expires(self, value: datetime | float | None) -> None:
        self.originalMaxAge = None
        self._expiresAt = readExpires(value)

    @property
    def expiresAt(self) -> float | None:
        """Give when it ends, in seconds since the epoch."""
        return self._expiresAt

    def touch(self) -> None:
        """Let the time begin anew, unless it ends at a time that was fixed."""
        if self.originalMaxAge is not None:
            self._expiresAt = self._now() + self.originalMaxAge / 1000

    def ends(self, absoluteMaxAge: float | None) -> float:
        """Give when the session ends if it is not used again, in seconds since the epoch."""
        idle = self._now() + DAY_MS / 1000 if self._expiresAt is None else self._expiresAt
        return idle if absoluteMaxAge is None else min(idle, self.createdAt + absoluteMaxAge / 1000)

    def record(self) -> dict[str, Any]:
        """Give what is kept: the times, and what differs from the options."""
        kept: dict[str, Any] = {
            "createdAt": self.createdAt,
            "originalMaxAge": self.originalMaxAge,
            "expires": self._expiresAt,
        }
        for name in _FLAGS:
            value = getattr(self, name)
            default = getattr(self._defaults, name)
            # "auto" is found out anew with each request.
            if value != default and default != "auto":
                kept[name] = value
        return kept

    def restore(self, kept: object) -> None:
        """Take over what was kept. What another program wrote there may have any form."""
        if not isinstance(kept, Mapping):
            return
        for name, read in (("originalMaxAge", readMs), ("expires", readExpires)):
            try:
                value = read(kept.get(name))
            except ValueError:
                continue
            if name in kept:
                setattr(self, "_expiresAt" if name == "expires" else name, value)
        createdAt = kept.get("createdAt")
        if isinstance(createdAt, int | float):
            self.createdAt = createdAt
        for name in _FLAGS:
            if name in kept:
                setattr(self, name, kept[name])


class Session(dict[str, Any]):
    """
    A session: a mapping whose keys are attributes, too.

    Id and cookie are made when somebody asks for them: of most new sessions nobody does, and they
    would be half of its cost.
    """

    __slots__ = ("_cookie", "_id", "_visit")

    _visit: IRequestSession
    _id: str | None
    _cookie: SessionCookie | None

    def __init__(
        self, visit: IRequestSession, id: str | None = None, cookie: SessionCookie | None = None
    ) -> None:
        object.__setattr__(self, "_visit", visit)
        object.__setattr__(self, "_id", id)
        object.__setattr__(self, "_cookie", cookie)

    @property
    def id(self) -> str:
        """Give what the cookie carries, signed."""
        id = self._id
        if id is None:
            id = self._visit.makeId()
            object.__setattr__(self, "_id", id)
        return id

    @property
    def cookie(self) -> SessionCookie:
        """Give the cookie, whose time and flags may be changed for this session."""
        cookie = self._cookie
        if cookie is None:
            cookie = self._visit.makeCookie()
            object.__setattr__(self, "_cookie", cookie)
        return cookie

    def __getattr__(self, name: str) -> Any:
        # Python asks for names with two underscores; what a client stored must not answer.
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
        Give the request another session, with a new id and no content; forget this one.

        To be done where somebody logs in: whoever knew the id before knows nothing then.
        """
        return Deferred.fromCoroutine(self._visit.regenerate())

    def destroy(self) -> Deferred[None]:
        """Forget this session; C{req.session} is C{None} from now on."""
        return Deferred.fromCoroutine(self._visit.destroy())

    def reload(self) -> Deferred[None]:
        """
        Take the content that is kept, in place of this one.

        @raise SessionError: It is not kept any more. As a failure.
        """
        return Deferred.fromCoroutine(self._visit.reload(self))

    def save(self) -> Deferred[None]:
        """
        Keep the session now. It is kept without this, too, before the response ends.

        @raise SessionError: It holds what JSON does not have. As a failure.
        """
        return Deferred.fromCoroutine(self._visit.save(self))

    def touch(self) -> Deferred[None]:
        """Let the time of the cookie begin anew. That is done for every request, too."""
        self.cookie.touch()
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done
