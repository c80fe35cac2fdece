"""The responses of the Fetch standard."""

import re
from collections.abc import Callable
from typing import Any, overload

import msgspec

from storagegate.http.fetchbody import Body
from storagegate.http.fetchheaders import Headers, HeadersInit
from storagegate.http.fetchsource import BodyInit, ByteSource, makeSource
from storagegate.http.fetchurl import encodeTarget
from storagegate.net.httpreply import phraseOf

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


class Response(Body):
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
