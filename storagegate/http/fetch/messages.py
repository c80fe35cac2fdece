"""
The messages of the Fetch standard, and its requests.

They differ from the standard where Python does: bodies are C{bytes}, streams are asynchronous
iterators of C{bytes}, what is malformed is a C{ValueError}. What only a browser needs (modes,
caches, origins) is not there.

The URL of a standard request, taken apart.

The responses of the Fetch standard.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, overload
from urllib.parse import quote

import msgspec
from attrs import frozen

from storagegate.http.errors import HTTPError
from storagegate.http.fetch.body import BodyInit, ByteSource, FetchBody, makeSource
from storagegate.http.fetch.headers import Headers, HeadersInit
from storagegate.net.http.message import phraseOf

_ABSOLUTE = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w\-.~%!$&'()*+,;=]+)(?::[0-9]{0,5})?", re.ASCII)

# What may stand in a path or query as it is; the percent sign, for what is encoded already.
_SAFE = "/?%:@!$&'()*+,;=-._~[]|^\\`{}"

_DEFAULT_HOST = "localhost"


@frozen
class TargetURL:
    """
    Where a request goes.

    @ivar secure: Whether by C{https}.
    @ivar authority: Host and perhaps port.
    @ivar target: Path and query, encoded, and otherwise as they were given: dot segments stay, so
        that a server can be tried with them.
    """

    secure: bool
    authority: str
    target: str

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.target}"


def parseURL(url: str) -> TargetURL:
    """
    Take a URL apart; a path alone is one on C{http://localhost}. A fragment is dropped.

    @raise ValueError: If it is none that a request can be made to.
    """
    if not isinstance(url, str):
        raise ValueError(f"a URL is text, not {type(url).__name__}")
    if _CONTROL.search(url):
        raise ValueError("a URL holds no control characters")
    if url.startswith("/"):
        return TargetURL(False, _DEFAULT_HOST, encodeTarget(url.partition("#")[0]))
    match = _ABSOLUTE.match(url)
    if match is None:
        raise ValueError(f"{url!r} is neither an http or https URL nor a path")
    scheme, authority, target = match.groups()
    if not authority.isascii():
        authority = authority.encode("idna").decode("ascii")
    if not _AUTHORITY.fullmatch(authority):
        raise ValueError(f"the host of {url!r} is malformed, or holds a user name")
    if not target.startswith("/"):
        target = "/" + target
    return TargetURL(scheme.lower() == "https", authority.lower(), encodeTarget(target))


def encodeTarget(target: str) -> str:
    """Percent-encode what may not go over the wire as it is; escapes that are there stay."""
    return quote(target, safe=_SAFE)


_BODILESS = frozenset([204, 205, 304])
_REDIRECTS = frozenset([301, 302, 303, 307, 308])

# A reason phrase goes out in Latin-1, without control characters.
_PHRASE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class _JSON:
    """C{json} of a response: from the class it makes one, from an instance it reads one."""

    @overload
    def __get__(self, instance: None, owner: type["Response"]) -> "Callable[..., Response]": ...

    @overload
    def __get__(self, instance: "Response", owner: type["Response"]) -> Callable[[], Any]: ...

    def __get__(self, instance: "Response | None", owner: type["Response"]) -> Callable[..., Any]:
        if instance is not None:
            return instance.readJSON

        def makeJSON(
            value: Any,
            status: int = 200,
            headers: HeadersInit = None,
            statusText: str | None = None,
        ) -> Response:
            """
            Make a response of a value in JSON.

            @raise TypeError: If the value has no form in JSON.
            """
            given = Headers(headers)
            if not given.has("content-type"):
                given.set("content-type", "application/json")
            return owner(msgspec.json.encode(value), status, given, statusText)

        return makeJSON


class Response(FetchBody):
    """
    A response.

    C{Response.json(value, status=200, headers=None)} makes one; C{await response.json()} reads
    one.

    @ivar status: 200 to 599.
    @ivar statusText: The reason phrase; the usual one if it is not given.
    @ivar headers: L{Headers}.
    @ivar hasBody: Whether there is a body, if only an empty one.
    """

    json = _JSON()

    def __init__(
        self,
        body: BodyInit = None,
        status: int = 200,
        headers: HeadersInit = None,
        statusText: str | None = None,
    ) -> None:
        """
        @raise ValueError: If status, headers or phrase are malformed.
        @raise TypeError: If the body is nothing that bodies are made of, or the status has none.
        """
        if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
            raise ValueError(f"{status!r} is not the status of a response: 200 to 599")
        if body is not None and status in _BODILESS:
            raise TypeError(f"a response with status {status} has no body")
        if statusText is not None and not _PHRASE.fullmatch(statusText):
            raise ValueError("a reason phrase holds a forbidden character")
        source, contentType = makeSource(body)
        super().__init__(source)
        self.hasBody = body is not None
        self.status = status
        self.statusText = phraseOf(status) if statusText is None else statusText
        self.headers = Headers(headers)
        if contentType is not None and not self.headers.has("content-type"):
            self.headers.set("content-type", contentType)

    @classmethod
    def redirect(cls, url: str, status: int = 302) -> "Response":
        """
        Send the client elsewhere.

        @raise ValueError: If the status is none that redirects, or the URL has control characters.
        """
        if status not in _REDIRECTS:
            raise ValueError(f"{status!r} does not redirect: 301, 302, 303, 307 or 308")
        return cls(None, status, {"location": encodeTarget(url)})

    @property
    def ok(self) -> bool:
        """Say whether the status is 200 to 299."""
        return 200 <= self.status <= 299

    def clone(self) -> "Response":
        """
        Make a second response with the same body, which can be read beside this one.

        Whoever reads ahead makes the bytes wait in memory for the other, up to 10 MiB.

        @raise TypeError: If the body was read before.
        """
        return receivedResponse(self.status, self.statusText, Headers(self.headers), self._fork())

    def __repr__(self) -> str:
        return f"<Response {self.status}>"


def receivedResponse(
    status: int, statusText: str, headers: Headers, source: ByteSource
) -> Response:
    """Make a response of what a server sent."""
    response = Response(None, 200, headers, statusText)
    # A server may send other statuses than those that may be made up here.
    response.status = status
    response._source = source
    response.hasBody = True
    return response


_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

# The standard turns these into upper case, but leaves PATCH alone, which has puzzled many.
_NORMALIZED = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


class Request(FetchBody):
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
    FetchBody.__init__(request, source)
    # Not taken apart and put together again: this is on the way of every request of a route table.
    request.method, request.url, request.headers = method, url, headers
    request.params = params
    request.hasBody = True
    return request
