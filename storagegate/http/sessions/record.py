"""What a handler sees as C{req.session}."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http.sessions.interfaces import DAY_MS, ISessionVisit
from storagegate.http.sessions.options import CookieOptions, readExpires, readMs

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

    _visit: ISessionVisit
    _id: str | None
    _cookie: SessionCookie | None

    def __init__(
        self, visit: ISessionVisit, id: str | None = None, cookie: SessionCookie | None = None
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
