"""The request, as handlers see it."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from storagegate.http.errors import HTTPError, bodyTooLarge
from storagegate.http.requestheaders import RequestHeaders
from storagegate.net.httperrors import BodyTooLarge, IncompleteBody
from storagegate.net.httphead import METHODS
from storagegate.net.request import Request as LeanRequest

_METHODS = {method: method.decode("ascii") for method in METHODS}


class HTTPRequest(RequestHeaders):
    """
    A request. Any attribute may be assigned.

    @ivar method: In capitals.
    @ivar path: The raw path, below the path that the router or the middleware is mounted at.
    @ivar baseUrl: That path.
    @ivar params: What the parameters of the route matched.
    @ivar body: What a body parser made of the body.
    @ivar user: Whoever an authenticating middleware found.
    @ivar session: The session, where that middleware is used.
    @ivar file: The file that was uploaded, where that middleware is used.
    @ivar files: All of them.
    """

    body: Any = None
    user: Any = None
    session: Any = None
    file: Any = None
    files: Any = None
    baseUrl = ""

    def __init__(self, lean: LeanRequest, app: Any) -> None:
        self.lean = lean
        self.app = app
        self.method = _METHODS[lean.method]
        self.path = lean.path.decode("ascii")
        self.params: dict[Any, Any] = {}

    @property
    def sessionID(self) -> str | None:
        """Give the id of the session, C{None} without one."""
        session = self.session
        return None if session is None else session.id

    @property
    def httpVersion(self) -> str:
        """Give C{1.0} or C{1.1}."""
        return self.lean.version[5:].decode("ascii")

    def on(self, event: str, listener: Callable[[], Any]) -> Self:
        """
        Call a function on C{close}: the client went away before the response was complete.

        @raise ValueError: If there is no such event.
        """
        if event != "close":
            raise ValueError(f"a request has no event {event!r}, only close")
        self.lean.onDisconnect(listener)
        return self

    # The body

    @property
    def contentLength(self) -> int | None:
        """Give the length of the body, C{None} if it is not declared."""
        return self.lean.contentLength

    @property
    def hasBody(self) -> bool:
        """Say whether there is a body, though it may be an empty one."""
        return self.lean.contentLength != 0 or b"content-length" in self.lean.headers

    def takeBody(self) -> bytes | None:
        """
        Give the raw body if it is all here, C{None} if some of it is still to come.

        @raise HTTPError: 413 if it is longer than the application lets a body be.
        """
        self._checkDeclared(self.app.settings.wholeBodySize)
        return self.lean.body.takeReady()

    async def read(self, limit: int | None = None) -> bytes:
        """
        Give the raw body.

        @param limit: How long it may be; never more than the application lets a body be.
        @raise HTTPError: 413 if it is longer; if that is declared, before a byte is read. 400 if
            it was cut short.
        """
        bound = self.app.settings.wholeBodySize
        bound = bound if limit is None else min(limit, bound)
        self._checkDeclared(bound)
        try:
            return await self.lean.body.read(bound)
        except BodyTooLarge:
            raise bodyTooLarge(bound, None) from None
        except IncompleteBody:
            raise HTTPError(
                400, "The body was cut short", "request.size.invalid", expected=self.contentLength
            ) from None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the raw body piece by piece; the client waits while nobody asks."""
        limit = self.app.settings.maxRequestBodySize
        return self.lean.body if limit is None else self._bounded(limit)

    async def _bounded(self, limit: int) -> AsyncIterator[bytes]:
        self._checkDeclared(limit)
        size = 0
        async for chunk in self.lean.body:
            size += len(chunk)
            if size > limit:
                raise bodyTooLarge(limit, None)
            yield chunk

    def _checkDeclared(self, limit: int) -> None:
        length = self.lean.contentLength
        if length is not None and length > limit:
            raise bodyTooLarge(limit, length)
