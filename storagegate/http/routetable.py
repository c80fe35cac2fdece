"""Route tables, C{withRoutes}: handlers of the Fetch standard, HTML pages and resources by path."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Union

import msgspec
from twisted.web.iweb import IRenderable
from twisted.web.resource import IResource, Resource

from storagegate.core.task import fromCoroutine
from storagegate.http.fetch import (
    ByteSource,
    Request,
    Response,
    WholeSource,
    decodeFields,
    receivedRequest,
)
from storagegate.http.fields import copyFields

if TYPE_CHECKING:
    # Takes 20 ms to import.
    from twisted.web.template import Element

StandardHandler = Callable[[Request], Response | Awaitable[Response]]

HTMLPage = Union[str, os.PathLike[str], IRenderable, IResource, Resource, "Element"]

RouteTable = Mapping[str, StandardHandler | Mapping[str, StandardHandler] | HTMLPage]
"""Paths, each with a handler, handlers by method, or an HTML page."""

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

# Fields of a response from another server that describe its own connection.
_HOP_FIELDS = frozenset(["connection", "keep-alive", "transfer-encoding"])


def installRoutes(router: Any, routes: RouteTable) -> None:
    """
    Register every entry of a route table.

    @param router: An application or a router.
    @raise TypeError: If a value has an unsupported type.
    @raise ValueError: If a path or a method is invalid.
    """
    for path, value in routes.items():
        if isinstance(value, Mapping):
            chain = router.route(path)
            for method, handler in value.items():
                if str(method).upper() not in _METHODS:
                    raise ValueError(f"{path}: there cannot be routes for the method {method!r}")
                getattr(chain, str(method).lower())(_adapt(path, handler))
        elif IResource.providedBy(value):
            router.use(path, value)
        elif isinstance(value, str | os.PathLike) or IRenderable.providedBy(value):
            router.get(path, _adapt(path, value))
        else:
            router.all(path, _adapt(path, value))


def _adapt(path: str, value: Any) -> Callable[[Any, Any], Any]:
    """Convert an entry of the table to a handler of the framework."""
    if isinstance(value, str | os.PathLike):
        name = os.path.abspath(os.fspath(value))
        if not name.endswith((".html", ".htm")):
            raise TypeError(f"{path}: {value!r} is not the name of an .html file")
        return lambda req, res: res.sendFile(name, dotfiles="allow")
    if IRenderable.providedBy(value):
        return _pageElement(value)
    if not callable(value):
        raise TypeError(
            f"{path}: {value!r} is neither a handler, a mapping of methods to handlers, nor an "
            "HTML page (the path of an .html file, an Element or a resource)"
        )
    return _standardHandler(value)


def _pageElement(element: Any) -> Callable[[Any, Any], Any]:
    async def render(req: Any, res: Any) -> None:
        # Twisted's templates take 20 ms to import; few tables use them.
        from twisted.web.template import flattenString

        page = await flattenString(req, element)
        res.html("<!DOCTYPE html>\n" + page.decode("utf-8"))

    return render


def _standardHandler(handler: StandardHandler) -> Callable[[Any, Any], Any]:
    def respond(req: Any, res: Any) -> Any:
        headers = decodeFields(req.raw.headerList)
        body = IncomingBody(req)
        result = handler(receivedRequest(req.method, req.url, headers, body, req.params))
        if isawaitable(result):
            return respondLater(result, req, res)
        return sendResponse(req, res, checked(result))

    async def respondLater(result: Any, req: Any, res: Any) -> None:
        sending = sendResponse(req, res, checked(await result))
        if sending is not None:
            await sending

    def checked(result: Any) -> Response:
        if not isinstance(result, Response):
            name = getattr(handler, "__qualname__", repr(handler))
            raise TypeError(
                f"{name} returned {result!r}; a handler of a route table returns a Response"
            )
        return result

    return respond


def sendResponse(req: Any, res: Any, response: Response) -> Awaitable[None] | None:
    """
    Send a standard response.

    It is sent unchanged, without a default content type or ETag. Its reason phrase is not sent.
    Fields set by middleware stay unless the response has a field of that name.

    @param response: The standard response; its body is consumed.
    @return: An awaitable for the end of the response if the body is a stream.
    @raise TypeError: If its body was already read.
    """
    source = response._use()
    res.statusCode = response.status
    copyFields(res, [field for field in response.headers if field[0] not in _HOP_FIELDS])
    if isinstance(source, WholeSource):
        res.end(source.content)
        return None
    return _sendStream(req, res, source)


async def _sendStream(req: Any, res: Any, source: Any) -> None:
    """Send a body at the pace of the client; the source is cancelled if the client disconnects."""
    pieces = aiter(source)

    async def pump() -> None:
        declared = res.get("content-length")
        res.startBody(None if declared is None else int(declared))
        if not req.raw.isSilent:
            async for piece in pieces:
                await res.write(piece)
        res.end()

    try:
        pumping = fromCoroutine(pump())
        req.raw.onDisconnect(pumping.cancel)
        await pumping
    finally:
        # Not cancelled with the rest, as closing may wait.
        if hasattr(source, "cancel"):
            source.cancel()
        if hasattr(pieces, "aclose"):
            await pieces.aclose()


class IncomingBody(ByteSource):
    """
    The body of a framework request as the source of a standard request.

    The application's limit applies to a body read as a whole; a stream is limited only by
    C{maxRequestBodySize}. A body already read by middleware is encoded again, possibly to other
    bytes: text as UTF-8, parsed values as JSON.
    """

    def __init__(self, req: Any) -> None:
        self._req = req

    async def read(self) -> bytes:
        """
        Read the whole body.

        @raise HTTPError: 413 if it is too long, 400 if it was truncated.
        """
        content = self._parsed()
        return await self._req.read() if content is None else content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._parsed()
        if content is not None:
            yield content
            return
        async for piece in self._req:
            yield piece

    def _parsed(self) -> bytes | None:
        body = self._req.body
        if body is None or isinstance(body, bytes):
            return body
        return body.encode("utf-8") if isinstance(body, str) else msgspec.json.encode(body)
