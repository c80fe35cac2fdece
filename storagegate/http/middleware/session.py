"""Sessions: C{req.session}, kept in a store, found again by a signed cookie."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from storagegate.core.optionvalues import OptionError
from storagegate.http.cookies import COOKIE_BYTES, parseCookies, unsignValue
from storagegate.http.sessions.memory import MemorySessionStore
from storagegate.http.sessions.options import SessionOptions, readSessionOptions
from storagegate.http.sessions.visit import Visit, waiting


def session(
    *,
    secret: str | bytes | Sequence[str | bytes],
    name: str = "connect.sid",
    cookie: Mapping[str, Any] | None = None,
    resave: bool = True,
    saveUninitialized: bool = True,
    rolling: bool = False,
    store: Any = None,
    genid: Any = None,
    unset: str = "keep",
    absoluteMaxAge: float | None = None,
) -> Any:
    """
    Make the middleware that gives each request its C{req.session}.

    In service: a C{secret} of 32 random bytes, C{cookie={"secure": True, "sameSite": "lax"}},
    C{saveUninitialized=False}, C{resave=False}, and C{await req.session.regenerate()} where
    somebody logs in.

    Where two requests of one session overlap, the one that is saved last wins as a whole; with
    C{resave=False} one that changed nothing saves nothing. A session that was destroyed while a
    request was under way stays destroyed.

    @param secret: Signs the cookie. Of a list, the first signs and all verify.
    @param name: The name of the cookie.
    @param cookie: C{maxAge} (milliseconds) or C{expires}, C{httpOnly secure sameSite path domain}.
    @param resave: Whether to save a session that was not changed; else it is touched.
    @param saveUninitialized: Whether to save a new session into which nothing was put, and to send
        its cookie.
    @param rolling: Whether to send the cookie with every response, so that it lasts longer.
    @param store: An L{ISessionStore<storagegate.http.sessions.interfaces.ISessionStore>}; by
        default one in memory.
    @param genid: Gives the id of a new session, which nobody may guess.
    @param unset: Whether C{req.session = None} lets the store C{"keep"} the session as it was, or
        has it C{"destroy"} it.
    @param absoluteMaxAge: How long a session lasts, however often it is used, in milliseconds.
    @raise OptionError: If an option cannot be used.
    """
    options = readSessionOptions(
        {
            "secret": secret,
            "name": name,
            "cookie": cookie,
            "resave": resave,
            "saveUninitialized": saveUninitialized,
            "rolling": rolling,
            "genid": genid,
            "unset": unset,
            "absoluteMaxAge": absoluteMaxAge,
        }
    )
    return _Sessions(options, MemorySessionStore() if store is None else store).handle


class _Sessions:
    """The middleware."""

    def __init__(self, options: SessionOptions, store: Any) -> None:
        for method in ("get", "set", "destroy", "touch"):
            if not callable(getattr(store, method, None)):
                raise OptionError(f"the option store has no method {method}")
        self._options = options
        self._store = store
        self._bind = getattr(store, "bind", None)
        self._name = options.name.encode("ascii")
        path = options.cookie.path
        self._everywhere = path == "/"
        self._exactly = path.rstrip("/")
        self._below = self._exactly + "/"

    def handle(self, req: Any, res: Any, next: Any) -> Any:
        """Give the request its session, then go on."""
        if req.session is not None or not (self._everywhere or self._covers(req)):
            return next()
        if self._bind is not None:
            self._bind(req.app.runtime)
            self._bind = None
        id = self._idOf(req)
        visit = Visit(self._options, self._store, req, res)
        if id is None:
            visit.start()
            return next()
        found = self._store.get(id)
        pending = waiting(found)
        if pending is not None:
            return _later(visit, id, pending, next)
        visit.resume(id, found)
        return next()

    def _covers(self, req: Any) -> bool:
        """Say whether a browser would send the cookie there, RFC 6265 section 5.1.4."""
        path: str = req.originalUrl.partition("?")[0]
        return path == self._exactly or path.startswith(self._below)

    def _idOf(self, req: Any) -> str | None:
        """Give the id that the request came with, if one of the secrets has signed it."""
        header = req.lean.headers.get(b"cookie")
        if header is None or self._name not in header:
            return None
        value = parseCookies(header.decode("latin-1")).get(self._options.name)
        if value is None or not value.startswith("s:") or len(value) > COOKIE_BYTES:
            return None
        return unsignValue(value[2:], self._options.secrets) or None


async def _later(visit: Visit, id: str, found: Awaitable[Any], next: Any) -> None:
    visit.resume(id, await found)
    await next()
