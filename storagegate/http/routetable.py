"""
Route tables of standard handlers: C{withRoutes}.

A value of the table is a handler C{(Request) -> Response}, a mapping of methods to such handlers,
or an HTML page: the path of a file, a C{twisted.web.template.Element}, or any C{IResource}, which
answers everything below its path.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRenderable
from twisted.web.resource import IResource

from storagegate.http.fetch import Request, Response, receivedRequest
from storagegate.http.fetchheaders import decodeFields
from storagegate.http.fetchsource import WholeSource
from storagegate.http.incoming import IncomingBody

RouteHandler = Callable[[Request], Response | Awaitable[Response]]

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

# A response that came from another server says how it came; ours goes its own way.
_HOP_FIELDS = frozenset(["connection", "keep-alive", "transfer-encoding"])

_PAGE_SUFFIXES = (".html", ".htm")


def installRoutes(router: Any, routes: Mapping[str, Any]) -> None:
    """
    Register every entry of a route table.

    @param router: An application or a router.
    @raise TypeError: If a value is nothing that a route table takes.
    @raise ValueError: If a path or a method is none.
    """
    for path, value in routes.items():
        if isinstance(value, Mapping):
            chain = router.route(path)
            for method, handler in value.items():
                if str(method).upper() not in _METHODS:
                    raise ValueError(f"{path}: there are no routes for the method {method!r}")
                getattr(chain, str(method).lower())(_adapt(path, handler))
        elif IResource.providedBy(value):
            router.use(path, value)
        elif _isPage(value):
            router.get(path, _adapt(path, value))
        else:
            router.all(path, _adapt(path, value))


def _isPage(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) or IRenderable.providedBy(value)


def _adapt(path: str, value: Any) -> Callable[[Any, Any], Any]:
    """Make a handler of the framework out of one of the table."""
    if isinstance(value, str | os.PathLike):
        return _pageFile(path, value)
    if IRenderable.providedBy(value):
        return _pageElement(value)
    if not callable(value):
        raise TypeError(
            f"{path}: {value!r} is no handler, no mapping of methods to handlers, and no HTML "
            "page (the path of an .html file, an Element or a resource)"
        )
    return _standardHandler(value)


def _pageFile(path: str, page: str | os.PathLike[str]) -> Callable[[Any, Any], Any]:
    name = os.path.abspath(os.fspath(page))
    if not name.endswith(_PAGE_SUFFIXES):
        raise TypeError(f"{path}: {page!r} is not the name of an .html file")
    return lambda req, res: res.sendFile(name, dotfiles="allow")


def _pageElement(element: Any) -> Callable[[Any, Any], Any]:
    async def render(req: Any, res: Any) -> None:
        # The templates of Twisted take 20 ms to import; few tables have any.
        from twisted.web.template import flattenString

        page = await flattenString(req, element)
        res.html("<!DOCTYPE html>\n" + page.decode("utf-8"))

    return render


def _standardHandler(handler: RouteHandler) -> Callable[[Any, Any], Any]:
    def answer(req: Any, res: Any) -> Any:
        headers = decodeFields(req.lean.headerList)
        body = IncomingBody(req)
        result = handler(receivedRequest(req.method, req.url, headers, body, req.params))
        if isinstance(result, Response):
            return sendResponse(req, res, result)
        if isawaitable(result) or isinstance(result, Deferred):
            return _answerLater(handler, result, req, res)
        raise _notAResponse(handler, result)

    return answer


async def _answerLater(handler: RouteHandler, result: Any, req: Any, res: Any) -> None:
    response = await result
    if not isinstance(response, Response):
        raise _notAResponse(handler, response)
    sending = sendResponse(req, res, response)
    if sending is not None:
        await sending


def _notAResponse(handler: Any, result: Any) -> TypeError:
    name = getattr(handler, "__qualname__", repr(handler))
    return TypeError(f"{name} gave {result!r}; a handler of a route table gives a Response")


def sendResponse(req: Any, res: Any, response: Response) -> Awaitable[None] | None:
    """
    Send a standard response.

    It goes out as it is: no content type and no ETag are added. Its own phrase is not sent, and
    fields that middleware has set stay, where the response has none of that name.

    @return: Something to wait for if the body is a stream.
    @raise TypeError: If its body was read before.
    """
    source = response._use()
    res.statusCode = response.status
    fields: dict[str, list[str]] = {}
    for name, value in response.headers:
        fields.setdefault(name, []).append(value)
    for name, values in fields.items():
        if name == "vary":
            res.vary(*(each.strip() for each in values[0].split(",")))
        elif name == "set-cookie":
            res.append(name, values)
        elif name not in _HOP_FIELDS:
            res.header(name, values[0])
    if isinstance(source, WholeSource):
        res.end(source.content)
        return None
    return _sendStream(req, res, source)


async def _sendStream(req: Any, res: Any, source: Any) -> None:
    """Send a body at the pace of the client; a client that goes away ends the source's work."""
    pieces = aiter(source)
    try:
        pumping = Deferred.fromCoroutine(_pump(res, pieces))
        req.lean.onDisconnect(pumping.cancel)
        await pumping
    finally:
        # Not a part of what is cancelled: closing may take its time.
        cancel = getattr(source, "cancel", None)
        if cancel is not None:
            cancel()
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


async def _pump(res: Any, pieces: AsyncIterator[bytes]) -> None:
    declared = res.get("content-length")
    res.startBody(None if declared is None else int(declared))
    async for piece in pieces:
        await res.write(piece)
    res.end()
