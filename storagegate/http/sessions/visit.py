"""One request and its session: what is made, read, sent and kept, and when."""

from collections.abc import Awaitable, Mapping
from secrets import token_urlsafe
from typing import Any

from zope.interface import implementer

from storagegate.http.cookies import serializeCookie, signValue
from storagegate.http.sessions.content import EMPTY, SessionError, checkContent, encodeContent
from storagegate.http.sessions.interfaces import ISessionVisit
from storagegate.http.sessions.options import SessionOptions
from storagegate.http.sessions.record import Session, SessionCookie

_ID_BYTES = 24
"""What nobody can guess, with room to spare: 192 bits."""


def waiting(result: Any) -> Awaitable[Any] | None:
    """Give what a store wants to be waited for, if it does."""
    return result if hasattr(result, "__await__") else None


async def settled(result: Any) -> Any:
    """Give the result of a store, now or later."""
    return await result if hasattr(result, "__await__") else result


@implementer(ISessionVisit)
class Visit:
    """
    The dealings of one request with its session.

    Before the head of the response it decides about the cookie, before the end it keeps the
    session.
    """

    # The session that came with the request, and the one that the request has now.
    _came: Session | None = None
    _session: Session | None = None
    # The one that the request began with, and what was in it.
    _first: Session | None = None
    _firstContent = EMPTY
    # A new session that leaves no trace as long as it is empty.
    _idle: Session | None = None
    # The session that the store has or has had, and what was last saved, of which one.
    _kept: Session | None = None
    _saved: Session | None = None
    _savedContent = EMPTY
    # The content that has been found good.
    _checked = EMPTY
    _touched = False
    # Whether this cannot end well: the answer to the error leaves the session alone.
    _failed = False

    def __init__(self, options: SessionOptions, store: Any, req: Any, res: Any) -> None:
        self._options = options
        self._store = store
        self._req = req
        self._res = res

    # The request comes

    def start(self) -> None:
        """Give the request a new session."""
        self._first = self._make()
        if not self._options.saveUninitialized:
            self._idle = self._first
        self._watch()

    def resume(self, id: str, data: object) -> None:
        """
        Give the request the session that its cookie names, if that is still good.

        @param data: What the store has of it, C{None} for nothing.
        """
        session = self._open(id, data) if isinstance(data, Mapping) else None
        if session is None:
            self.start()
            return
        self._first = self._came = self._kept = session
        self._firstContent = self._checked = encodeContent(session)
        if not self._options.resave:
            self._saved, self._savedContent = session, self._firstContent
        self._watch()

    def _watch(self) -> None:
        self._res.beforeHead(self._sendCookie)
        self._res.holdEnd(self._keep)

    def _open(self, id: str, data: Mapping[str, Any]) -> Session | None:
        cookie = self.makeCookie()
        cookie.restore(data.get("cookie"))
        if cookie.ends(self._options.absoluteMaxAge) <= self._req.app.runtime.now():
            return None
        session = Session(self, id, cookie)
        session.update(data)
        session.pop("cookie", None)
        self._req.session = self._session = session
        return session

    def _make(self) -> Session:
        # What users write may fail, and does so best where it stops the request.
        id = None if self._options.genid is None else self.makeId()
        session = self._req.session = self._session = Session(self, id)
        return session

    # What a session asks for

    def makeId(self) -> str:
        """See L{ISessionVisit.makeId}."""
        genid = self._options.genid
        if genid is None:
            return token_urlsafe(_ID_BYTES)
        id = genid(self._req)
        if not isinstance(id, str) or not id:
            raise SessionError(f"genid gave {id!r}, which is no id")
        return id

    def makeCookie(self) -> SessionCookie:
        """See L{ISessionVisit.makeCookie}."""
        req = self._req
        return SessionCookie(self._options.cookie, req.app.runtime.now, req.secure)

    async def regenerate(self) -> Session:
        """See L{ISessionVisit.regenerate}."""
        old = self._session
        # At once, so that a handler that does not wait cannot go on with the old id.
        session = self._make()
        if old is not None:
            await settled(self._store.destroy(old.id))
        return session

    async def destroy(self) -> None:
        """See L{ISessionVisit.destroy}."""
        old, self._session, self._req.session = self._session, None, None
        if old is not None:
            await settled(self._store.destroy(old.id))

    async def reload(self, session: Session) -> None:
        """See L{ISessionVisit.reload}."""
        self._checkCurrent(session)
        data = await settled(self._store.get(session.id))
        if not isinstance(data, Mapping):
            raise SessionError("this session is not kept any more")
        session.clear()
        session.update(data)
        session.pop("cookie", None)

    async def save(self, session: Session) -> None:
        """See L{ISessionVisit.save}."""
        self._checkCurrent(session)
        await settled(self._write(session, self._content(session)))

    def _checkCurrent(self, session: Session) -> None:
        if self._req.session is not session:
            raise SessionError("this session was destroyed, or gave way to another")

    # The response goes

    def _sendCookie(self) -> None:
        """Set the cookie if there is one to set. Called before the head of the response."""
        session = self._current()
        if session is not None and (session or session is not self._idle):
            self._failed = True
            self._setCookie(session)
            self._failed = False

    def _setCookie(self, session: Session) -> None:
        if not self._wantsCookie(session):
            return
        cookie = session.cookie
        if cookie.secure and not self._req.secure:
            return
        self._touch(session)
        expires = cookie.expiresAt
        if expires is not None:
            expires = cookie.ends(self._options.absoluteMaxAge)
        value = serializeCookie(
            self._options.name,
            f"s:{signValue(session.id, self._options.secrets[0])}",
            path=cookie.path,
            domain=cookie.domain,
            expires=expires,
            httpOnly=cookie.httpOnly,
            secure=cookie.secure,
            sameSite=cookie.sameSite,
        )
        self._res.append("Set-Cookie", value)

    def _wantsCookie(self, session: Session) -> bool:
        options = self._options
        if session is not self._came:
            return options.saveUninitialized or self._modified(session)
        if options.rolling:
            return True
        return session.cookie.expiresAt is not None and self._modified(session)

    def _keep(self) -> Awaitable[Any] | None:
        """Keep the session, or what has to be done instead. Called before the response ends."""
        if self._failed:
            return None
        session = self._current()
        if session is None:
            left = self._session
            if left is None or self._options.unset != "destroy":
                return None
            return waiting(self._store.destroy(left.id))
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
        # What was there once must not come back if somebody has destroyed it since.
        replace = getattr(self._store, "replace", None)
        if replace is not None:
            return replace(session.id, data, age)
        return self._replace(session.id, data, age)

    async def _replace(self, id: str, data: Mapping[str, Any], age: float) -> None:
        if await settled(self._store.get(id)) is not None:
            await settled(self._store.set(id, data, age))

    # Small things

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
