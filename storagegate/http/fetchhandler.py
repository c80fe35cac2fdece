"""An application as a function from a standard request to a standard response."""

from collections.abc import Callable, Coroutine
from typing import Any

from storagegate.http.fetch import Request
from storagegate.http.fetchconnection import FetchConnection, ResponseLost
from storagegate.http.fetchresponse import Response, receivedResponse
from storagegate.http.fetchsource import ByteSource, WholeSource
from storagegate.http.fetchwire import encodeRequest
from storagegate.http.resource import describeRejection
from storagegate.net.site import Site

__all__ = ["FetchHandler", "ResponseLost", "makeFetchHandler"]

FetchHandler = Callable[[Request | str], Coroutine[Any, Any, Response]]
"""Answers a request; a URL or path alone is a GET."""


def makeFetchHandler(app: Any) -> FetchHandler:
    """
    Make a function that answers requests without a listener.

    What it gives for a request is what a listener would have sent: a request that a listener
    refuses is refused with the same answer, the same limits and timeouts hold, and bodies follow
    the pace of their readers in both directions. The head of the response is waited for, the body
    is not. Cancelling the call, C{response.cancel()} and dropping the response are to the
    application a client that goes away.

    The function raises L{ResponseLost} if the application drops the connection before its head,
    and what the request's own body raises; reading the body of the response raises
    L{ResponseLost} if it was cut short.
    """
    site: Site | None = None

    async def fetch(request: Request | str) -> Response:
        nonlocal site
        if isinstance(request, str):
            request = Request(request)
        if site is None:
            # Not before: the application may still be given options.
            site = makeSite(app)
        connection = FetchConnection(site, encodeRequest(request))
        connection.start()
        head = await connection.waitForHead()
        source: ByteSource
        if connection.ended:
            source = WholeSource(connection.takeReady())
        else:
            source = FetchedBody(connection)
        return receivedResponse(head.status, head.phrase, head.headers, source)

    return fetch


def makeSite(app: Any) -> Site:
    """Make what connections in memory belong to."""
    return Site(app.resource, app.settings.limits(), app.runtime.clock, describeRejection)


class FetchedBody:
    """
    The body of a response that is still coming.

    The connection ends with it: nobody else refers to this object, so that a response that is
    dropped takes its connection along.
    """

    def __init__(self, connection: FetchConnection) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        """Give all that comes."""
        return b"".join([chunk async for chunk in self])

    def __aiter__(self) -> "FetchedBody":
        return self

    async def __anext__(self) -> bytes:
        piece = await self._connection.readPiece()
        if not piece:
            raise StopAsyncIteration
        return piece

    def cancel(self) -> None:
        """Go away."""
        self._connection.disconnect()

    def __del__(self) -> None:
        if not self._connection.ended and self._connection.error is None:
            self._connection.disconnectSoon()
