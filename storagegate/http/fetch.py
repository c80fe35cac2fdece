"""
The messages of the Fetch standard, and its requests.

They differ from the standard where Python does: bodies are C{bytes}, streams are asynchronous
iterators of C{bytes}, what is malformed is a C{ValueError}. What only a browser needs (modes,
caches, origins) is not there.
"""

import re
from collections.abc import Mapping
from typing import Any

from storagegate.http.errors import HTTPError
from storagegate.http.fetchbody import Body
from storagegate.http.fetchheaders import Headers, HeadersInit
from storagegate.http.fetchresponse import Response
from storagegate.http.fetchsource import BodyInit, ByteSource, makeSource
from storagegate.http.fetchurl import TargetURL, parseURL

__all__ = ["Headers", "Request", "Response", "receivedRequest"]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

# The standard turns these into upper case, but leaves PATCH alone, which has puzzled many.
_NORMALIZED = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


class Request(Body):
    """
    A request.

    @ivar method: In upper case.
    @ivar url: The full URL, without a fragment.
    @ivar headers: L{Headers}.
    @ivar params: What the C{:name} parts of a route's path stood for; empty elsewhere.
    """

    def __init__(
        self,
        url: str,
        method: str = "GET",
        headers: HeadersInit = None,
        body: BodyInit = None,
    ) -> None:
        """
        @param url: Absolute, or a path on C{http://localhost}.
        @param body: Text goes out as UTF-8; an asynchronous iterator of bytes is read as the
            server reads the body.
        @raise ValueError: If URL, method or headers are malformed.
        @raise TypeError: If the body is nothing that bodies are made of, or the method has none.
        """
        if not isinstance(method, str) or not _TOKEN.fullmatch(method):
            raise ValueError(f"{method!r} is not a method")
        self.method = method.upper() if method.upper() in _NORMALIZED else method
        if body is not None and self.method in ("GET", "HEAD"):
            raise TypeError(f"a {self.method} request has no body")
        self.url = str(parseURL(url))
        source, contentType = makeSource(body)
        super().__init__(source)
        self.hasBody = body is not None
        self.headers = Headers(headers)
        if contentType is not None and not self.headers.has("content-type"):
            self.headers.set("content-type", contentType)
        self.params: Mapping[str, Any] = {}

    async def json(self) -> Any:
        """
        Give what the body says in JSON.

        @raise HTTPError: 400 if it is no JSON, which answers a route's request if nobody minds.
        @raise TypeError: If the body was read before.
        """
        try:
            return await self.readJSON()
        except ValueError as error:
            raise HTTPError(400, str(error), "entity.parse.failed") from None

    @property
    def target(self) -> TargetURL:
        """Give the URL, taken apart."""
        return parseURL(self.url)

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.url}>"


def receivedRequest(
    method: str, url: str, headers: Headers, source: ByteSource, params: Mapping[str, Any]
) -> Request:
    """Make a request of what a client sent."""
    request = Request.__new__(Request)
    Body.__init__(request, source)
    # Not taken apart and put together again: this is on the way of every request of a route table.
    request.method, request.url, request.headers = method, url, headers
    request.params = params
    request.hasBody = True
    return request
