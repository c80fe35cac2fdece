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

    __slots__ = (
        "_before",
        "_checked",
        "_cookieId",
        "_failed",
        "_kept",
        "_options",
        "_req",
        "_res",
        "_saved",
        "_store",
        "_touched",
    )

    def __init__(
        self, options: SessionOptions, store: Any, req: Any, res: Any, cookieId: str | None
    ) -> None:
        """
        @param cookieId: The id that the request came with, if its signature was good.
        """
        self._options = options
        self._store = store
        self._req = req
        self._res = res
        self._cookieId = cookieId
        # Id and content, as they came and as they were last saved.
        self._before: tuple[str, bytes] = ("", EMPTY)
        self._saved: tuple[str, bytes] | None = None
        # The id that the store has had, and the content that has been found good.
        self._kept: str | None = None
        self._checked = EMPTY
        self._touched = False
        # Whether the cookie could not be made: the answer to that error has no session.
        self._failed = False

    # The request comes

    def start(self) -> None:
        """Give the request a new session."""
        self._before = (self._make().id, EMPTY)
        self._watch()

    def resume(self, data: object) -> None:
        """Give the request the session that its cookie names, if that is still good."""
        session = self._open(data) if isinstance(data, Mapping) else None
        if session is None:
            self.start()
            return
        self._checked = encodeContent(session)
        self._before = (session.id, self._checked)
        if not self._options.resave:
            self._saved = self._before
        self._watch()

    def _watch(self) -> None:
        self._res.beforeHead(self._sendCookie)
        self._res.holdEnd(self._keep)

    def _open(self, data: Mapping[str, Any]) -> Session | None:
        assert self._cookieId is not None
        now = self._req.app.runtime.now
        cookie = SessionCookie(self._options.cookie, now, self._req.secure)
        cookie.restore(data.get("cookie"))
        if cookie.ends(self._options.absoluteMaxAge) <= now():
            return None
        session = Session(self, self._cookieId, cookie)
        session.update(data)
        session.pop("cookie", None)
        self._kept = session.id
        self._give(session)
        return session

    def _make(self) -> Session:
        req = self._req
        options = self._options
        id = token_urlsafe(_ID_BYTES) if options.genid is None else options.genid(req)
        if not isinstance(id, str) or not id:
            raise SessionError(f"genid gave {id!r}, which is no id")
        cookie = SessionCookie(options.cookie, req.app.runtime.now, req.secure)
        session = Session(self, id, cookie)
        self._give(session)
        return session

    def _give(self, session: Session) -> None:
        self._req.session = session
        self._req.sessionID = session.id

    # What a handler may ask for, see Session

    async def regenerate(self) -> Session:
        """See L{ISessionVisit.regenerate}."""
        old = self._req.sessionID
        # At once, so that a handler that does not wait cannot go on with the old id.
        session = self._make()
        self._touched = False
        if old is not None:
            await settled(self._store.destroy(old))
        return session

    async def destroy(self) -> None:
        """See L{ISessionVisit.destroy}."""
        id, self._req.session, self._req.sessionID = self._req.sessionID, None, None
        if id is not None:
            await settled(self._store.destroy(id))

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
        self._failed = True
        self._setCookie()
        self._failed = False

    def _setCookie(self) -> None:
        session = self._current()
        if session is None or not self._wantsCookie(session):
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
        if session.id != self._cookieId:
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
            id = self._req.sessionID
            gone = self._options.unset == "destroy" and id is not None
            return waiting(self._store.destroy(id)) if gone else None
        self._touch(session)
        content = self._content(session)
        if self._wantsSave(session, content):
            return waiting(self._write(session, content))
        if session.id == self._cookieId:
            return waiting(self._store.touch(session.id, self._data(session), self._age(session)))
        return None

    def _wantsSave(self, session: Session, content: bytes) -> bool:
        known = session.id == self._cookieId or self._saved is not None
        now = (session.id, content)
        return now != (self._saved if known or self._options.saveUninitialized else self._before)

    def _write(self, session: Session, content: bytes) -> Any:
        self._saved = (session.id, content)
        data, age = self._data(session), self._age(session)
        if self._kept != session.id:
            self._kept = session.id
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
        session = getattr(self._req, "session", None)
        if session is None or isinstance(session, Session):
            return session
        raise SessionError("req.session was replaced; change it, or call regenerate() or destroy()")

    def _content(self, session: Session) -> bytes:
        content = encodeContent(session)
        if content != self._checked:
            checkContent(session, content)
            self._checked = content
        return content

    def _modified(self, session: Session) -> bool:
        return (session.id, self._content(session)) != self._before

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
