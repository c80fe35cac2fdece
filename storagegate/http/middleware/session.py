"""C{session}: identifies the session of a request by a signed cookie, and keeps it in a store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from secrets import token_urlsafe
from types import SimpleNamespace
from typing import Any

from storagegate.core.options import OptionError, makeOptions, takesMapping
from storagegate.core.task import resolve
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.sessions import (
    EMPTY,
    Session,
    SessionCookie,
    SessionError,
    SessionOptions,
    checkContent,
    encodeContent,
)
from storagegate.http.sessions.stores import MemorySessionStore
from storagegate.net.http.cookies import (
    COOKIE_BYTES,
    parseCookies,
    serializeCookie,
    signValue,
    unsignValue,
)

_ID_BYTES = 24
"""192 bits, which cannot be guessed."""


def waiting(result: Any) -> Awaitable[Any] | None:
    """Return a store's result if it has to be awaited, otherwise C{None}."""
    return result if hasattr(result, "__await__") else None


class RequestSession:
    """
    The session of one request.

    Before the head of the response is sent, it sets the cookie; before the end, it stores the
    session.
    """

    # The session that the request's cookie names, and the request's current session.
    _came: Session | None = None
    _session: Session | None = None
    # The session at the beginning of the request, and its content at that time.
    _first: Session | None = None
    _firstContent = EMPTY
    # A new session that is not stored while it is empty.
    _idle: Session | None = None
    # The session that the store has or has had; the last saved session, and its content at that
    # time.
    _kept: Session | None = None
    _saved: Session | None = None
    _savedContent = EMPTY
    # The last content accepted by checkContent.
    _checked = EMPTY
    _touched = False
    # Whether an error was raised here; the error response leaves the session unchanged.
    _failed = False

    def __init__(self, options: SessionOptions, store: Any, req: Any, res: Any) -> None:
        self._options = options
        self._store = store
        self._req = req
        self._res = res

    # The beginning of the request

    def start(self) -> None:
        """Give the request a new session."""
        self._first = self._make()
        if not self._options.saveUninitialized:
            self._idle = self._first
        self._watch()

    def resume(self, id: str, data: object) -> None:
        """Give the request the session that its cookie names, if it is still valid."""
        if not isinstance(data, Mapping):
            return self.start()
        cookie = self.makeCookie()
        cookie.restore(data.get("cookie"))
        if cookie.ends(self._options.absoluteMaxAge) <= self._req.app.runtime.now():
            return self.start()
        session = Session(self, id, cookie)
        session.update(data)
        session.pop("cookie", None)
        self._req.session = self._session = session
        self._first = self._came = self._kept = session
        self._firstContent = self._checked = encodeContent(session)
        if not self._options.resave:
            self._saved, self._savedContent = session, self._firstContent
        self._watch()
        return None

    def _watch(self) -> None:
        self._res.beforeHead(self._sendCookie)
        self._res.holdEnd(self._keep)
        self._req.raw.onEnd(self._forgetRequest)

    def _forgetRequest(self) -> None:
        """Keep only the parts of the request that the session needs, to avoid a reference cycle."""
        req, self._res = self._req, None
        self._req = SimpleNamespace(session=req.session, app=req.app, secure=req.secure)

    def _make(self) -> Session:
        # The application's function may raise, which here fails the request.
        id = None if self._options.genid is None else self.makeId()
        session = self._req.session = self._session = Session(self, id)
        return session

    # For the session object

    def makeId(self) -> str:
        """Create an id."""
        genid = self._options.genid
        if genid is None:
            return token_urlsafe(_ID_BYTES)
        id = genid(self._req)
        if not isinstance(id, str) or not id:
            raise SessionError(f"genid returned {id!r}, which is not an id")
        return id

    def makeCookie(self) -> SessionCookie:
        """Create a cookie as the options define it."""
        req = self._req
        return SessionCookie(self._options.cookie, req.app.runtime.now, req.secure)

    async def regenerate(self) -> Session:
        """See L{Session.regenerate}."""
        old = self._session
        # Synchronous, so that a handler that does not wait cannot use the old ID.
        session = self._make()
        if old is not None:
            await resolve(self._store.destroy(old.id))
        return session

    async def destroy(self) -> None:
        """See L{Session.destroy}."""
        old, self._session, self._req.session = self._session, None, None
        if old is not None:
            await resolve(self._store.destroy(old.id))

    async def reload(self, session: Session) -> None:
        """See L{Session.reload}."""
        self._checkCurrent(session)
        data = await resolve(self._store.get(session.id))
        if not isinstance(data, Mapping):
            raise SessionError("this session is no longer stored")
        session.clear()
        session.update(data)
        session.pop("cookie", None)

    async def save(self, session: Session) -> None:
        """See L{Session.save}."""
        self._checkCurrent(session)
        await resolve(self._write(session, self._content(session)))

    def _checkCurrent(self, session: Session) -> None:
        if self._req.session is not session:
            raise SessionError("this session was destroyed or replaced")

    # The response

    def _sendCookie(self) -> None:
        """Set the cookie if it is needed. Called before the head of the response."""
        if self._res is None:
            # The client has left, so no head is sent; the session is still stored.
            return
        session = self._current()
        if session is not None and (session or session is not self._idle):
            self._failed = True
            self._setCookie(session)
            self._failed = False

    def _setCookie(self, session: Session) -> None:
        options = self._options
        if session is not self._came:
            isWanted = options.saveUninitialized or self._modified(session)
        else:
            isLasting = session.cookie.expiresAt is not None
            isWanted = options.rolling or (isLasting and self._modified(session))
        if not isWanted or (session.cookie.secure and not self._req.secure):
            return
        cookie = session.cookie
        self._touch(session)
        expires = cookie.expiresAt
        if expires is not None:
            expires = cookie.ends(options.absoluteMaxAge)
        value = serializeCookie(
            options.name,
            f"s:{signValue(session.id, options.secrets[0])}",
            path=cookie.path,
            domain=cookie.domain,
            expires=expires,
            httpOnly=cookie.httpOnly,
            secure=cookie.secure,
            sameSite=cookie.sameSite,
        )
        self._res.append("Set-Cookie", value)

    def _keep(self) -> Awaitable[Any] | None:
        """Store, touch or delete the session. Called before the response ends."""
        if self._failed:
            return None
        session = self._current()
        if session is None:
            if self._session is None or self._options.unset != "destroy":
                return None
            return waiting(self._store.destroy(self._session.id))
        if session is self._idle and not session:
            return None
        self._touch(session)
        content = self._content(session)
        if self._wantsSave(session, content):
            return waiting(self._write(session, content))
        if session is self._came:
            return waiting(self._store.touch(session.id, self._data(session), self._age(session)))
        return None

    def _wantsSave(self, session: Session, content: bytes) -> bool:
        known = session is self._came or self._saved is not None
        if known or self._options.saveUninitialized:
            return session is not self._saved or content != self._savedContent
        return session is not self._first or content != self._firstContent

    def _write(self, session: Session, content: bytes) -> Any:
        self._saved, self._savedContent = session, content
        self._idle = None
        data, age = self._data(session), self._age(session)
        if self._kept is not session:
            self._kept = session
            return self._store.set(session.id, data, age)
        # A session that another request has destroyed must not be recreated.
        replace = getattr(self._store, "replace", None)
        if replace is not None:
            return replace(session.id, data, age)
        return self._replace(session.id, data, age)

    async def _replace(self, id: str, data: Mapping[str, Any], age: float) -> None:
        if await resolve(self._store.get(id)) is not None:
            await resolve(self._store.set(id, data, age))

    def _current(self) -> Session | None:
        session = self._req.session
        if session is None or isinstance(session, Session):
            return session
        self._failed = True
        raise SessionError("req.session was replaced; change it, or call regenerate() or destroy()")

    def _content(self, session: Session) -> bytes:
        content = encodeContent(session)
        if content != self._checked:
            checkContent(session, content)
            self._checked = content
        return content

    def _modified(self, session: Session) -> bool:
        return session is not self._first or self._content(session) != self._firstContent

    def _touch(self, session: Session) -> None:
        if not self._touched:
            self._touched = True
            session.cookie.touch()

    def _data(self, session: Session) -> dict[str, Any]:
        return {"cookie": session.cookie.record(), **session}

    def _age(self, session: Session) -> float:
        ends = session.cookie.ends(self._options.absoluteMaxAge)
        now: float = self._req.app.runtime.now()
        return (ends - now) * 1000


@takesMapping
def session(
    *,
    secret: str | bytes | Sequence[str | bytes],
    name: str = "connect.sid",
    cookie: Mapping[str, Any] | None = None,
    resave: bool = True,
    saveUninitialized: bool = True,
    rolling: bool = False,
    store: Any = None,
    genid: Callable[[Any], str] | None = None,
    unset: str = "keep",
    absoluteMaxAge: float | None = None,
) -> MiddlewareHandler:
    """
    Make middleware that sets C{req.session} of each request.

    In production, use a C{secret} of 32 random bytes, C{cookie={"secure": True, "sameSite":
    "lax"}}, C{saveUninitialized=False}, C{resave=False}, and C{await req.session.regenerate()} at
    each login.

    If two requests of one session overlap, the last save replaces the whole session; with
    C{resave=False}, a request that changed nothing saves nothing. A session destroyed while a
    request is in flight stays destroyed.

    @param secret: Signs the cookie. The first of a list signs, and all verify.
    @param name: The name of the cookie.
    @param cookie: C{maxAge} (milliseconds) or C{expires}, C{httpOnly secure sameSite path domain}.
    @param resave: Whether to save an unchanged session; otherwise it is touched.
    @param saveUninitialized: Whether to save a new, empty session and send its cookie.
    @param rolling: Whether to send the cookie with every response, so that it lasts longer.
    @param store: An L{ISessionStore<storagegate.http.sessions.ISessionStore>}; by default in
        memory.
    @param genid: Returns the ID of a new session, which must be unguessable.
    @param unset: Whether the store should C{"keep"} or C{"destroy"} the session on C{req.session =
        None}.
    @param absoluteMaxAge: The maximum lifetime of a session in milliseconds, regardless of use.
    @raise OptionError: If an option is invalid.
    """
    given = dict(locals())
    given.pop("store")
    options = makeOptions(SessionOptions, given)
    return _Sessions(options, MemorySessionStore() if store is None else store).handle


class _Sessions:
    """
    The middleware.

    @ivar isPerProcess: See L{storagegate.core.perprocess}.
    """

    held = "sessions"

    def __init__(self, options: SessionOptions, store: Any) -> None:
        for method in ("get", "set", "destroy", "touch"):
            if not callable(getattr(store, method, None)):
                raise OptionError(f"the option store has no method {method}")
        self._options = options
        self._store = store
        self.isPerProcess = getattr(store, "isPerProcess", False)
        self.sharedBy = getattr(store, "sharedBy", "")
        self._bind = getattr(store, "bind", None)
        self._name = options.name.encode("ascii")
        path = options.cookie.path
        self._everywhere = path == "/"
        self._exactly = path.rstrip("/")
        self._below = self._exactly + "/"

    def handle(self, req: Any, res: Any, next: Any) -> Any:
        """Give the request its session, then call C{next}."""
        if req.session is not None:
            return next()
        if not self._everywhere:
            # The paths for which a browser sends the cookie: RFC 6265 section 5.1.4.
            path: str = req.originalUrl.partition("?")[0]
            if path != self._exactly and not path.startswith(self._below):
                return next()
        if self._bind is not None:
            self._bind(req.app.runtime)
            self._bind = None
        id = self._idOf(req)
        current = RequestSession(self._options, self._store, req, res)
        if id is None:
            current.start()
            return next()
        found = self._store.get(id)
        pending = waiting(found)
        if pending is not None:

            async def resumeLater() -> None:
                current.resume(id, await pending)
                await next()

            return resumeLater()
        current.resume(id, found)
        return next()

    def _idOf(self, req: Any) -> str | None:
        """Return the ID in the request's cookie, if it was signed with one of the secrets."""
        header = req.raw.headers.get(b"cookie")
        if header is None or self._name not in header:
            return None
        value = parseCookies(header.decode("latin-1")).get(self._options.name)
        if value is None or not value.startswith("s:") or len(value) > COOKIE_BYTES:
            return None
        return unsignValue(value[2:], self._options.secrets) or None
