"""
C{Headers}, C{Request} and C{Response} of the Fetch standard.

They differ from the standard where Python does: bodies are C{bytes}, streams are asynchronous
iterators of C{bytes}, malformed input raises C{ValueError}. Browser-only features (modes, caches,
origins) are omitted. A body is a L{ByteSource} that is read once; L{tee} splits it for a clone.
"""

import re
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, overload
from urllib.parse import quote

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred

from storagegate.core.streams import SharedFuture
from storagegate.core.task import fromCoroutine
from storagegate.http.errors import HTTPError
from storagegate.net.http.message import phraseOf

# Names, and methods too: RFC 9110 section 5.6.2. Values: section 5.5.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

# Header fields as arguments: a mapping, whose values may be lists, or (name, value) pairs.
HeadersInit: TypeAlias = "Headers | Mapping[str, Any] | Iterable[tuple[str, Any]] | None"


class Headers:
    """
    Header fields. Names are case-insensitive.

    Iteration yields pairs C{(name, value)} sorted by name, with names in lower case and the values
    of one name joined by commas. Set-Cookie fields cannot be joined and are yielded one by one.
    """

    __slots__ = ("_fields",)

    def __init__(self, init: HeadersInit = None) -> None:
        """
        @param init: Other headers, a mapping, whose values may be lists, or pairs.
        @raise ValueError: If a name is not a token, or a value has a control character or a
            character outside Latin-1.
        """
        self._fields: dict[str, list[str]] = {}
        if isinstance(init, Headers):
            self._fields = {name: list(values) for name, values in init._fields.items()}
        elif init is not None:
            for name, value in init.items() if isinstance(init, Mapping) else init:
                for each in value if isinstance(value, list | tuple) else (value,):
                    self.append(name, each)

    def get(self, name: str) -> str | None:
        """
        Return the values of a field joined by commas, or C{None} if it is absent.

        @param name: The name of the field, in any case.
        """
        values = self._fields.get(_lower(name))
        return None if values is None else ", ".join(values)

    def getSetCookie(self) -> list[str]:
        """Return the values of Set-Cookie as a list."""
        return list(self._fields.get("set-cookie", ()))

    def has(self, name: str) -> bool:
        """Return whether a field is set."""
        return _lower(name) in self._fields

    def set(self, name: str, value: str | int) -> None:
        """
        Replace all values of a field by one.

        @param value: Text without control characters, or a number.
        @raise ValueError: If the name or value is malformed.
        """
        lowered, text = _check(name, value)
        self._fields[lowered] = [text]

    def append(self, name: str, value: str | int) -> None:
        """
        Add a value to a field.

        @param value: Text without control characters, or a number.
        @raise ValueError: If the name or value is malformed.
        """
        lowered, text = _check(name, value)
        self._fields.setdefault(lowered, []).append(text)

    def delete(self, name: str) -> None:
        """Remove a field, if it is set."""
        self._fields.pop(_lower(name), None)

    def items(self) -> list[tuple[str, str]]:
        """Return the pairs of an iteration as a list."""
        return list(self)

    def encode(self) -> list[tuple[bytes, bytes]]:
        """Return the fields as bytes, in the order they were first added."""
        return [
            (name.encode("ascii"), value.encode("latin-1"))
            for name, values in self._fields.items()
            for value in values
        ]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for name, values in sorted(self._fields.items()):
            if name == "set-cookie":
                yield from ((name, value) for value in values)
            else:
                yield name, ", ".join(values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has(name)

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __repr__(self) -> str:
        return f"Headers({self.items()!r})"


def decodeFields(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Make L{Headers} from received fields, which the parser has checked."""
    headers = Headers()
    decoded = headers._fields
    for name, value in fields:
        lowered = name.decode("ascii").lower()
        if lowered in decoded:
            decoded[lowered].append(value.decode("latin-1"))
        else:
            decoded[lowered] = [value.decode("latin-1")]
    return headers


def _lower(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a header field")
    return name.lower()


def _check(name: str, value: str | int) -> tuple[str, str]:
    lowered = _lower(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"the value of the header field {lowered} is not text: {value!r}")
    value = value.strip(" \t\r\n")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"the value of the header field {lowered} contains a forbidden character")
    return lowered, value


# A body as an argument.
BodyInit: TypeAlias = "bytes | bytearray | memoryview | str | AsyncIterable[bytes] | None"


class ByteSource:
    """The bytes of a body: an asynchronous iterable of pieces, closed at its end."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._chunks)
        try:
            async for chunk in chunks:
                if not isinstance(chunk, bytes | bytearray | memoryview):
                    raise TypeError(f"a body is made of bytes, not of {type(chunk).__name__}")
                yield bytes(chunk)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    async def read(self) -> bytes:
        """Return all bytes."""
        return b"".join([chunk async for chunk in self])

    def cancel(self) -> None:
        """Signal that no more bytes are needed."""


class WholeSource(ByteSource):
    """Bytes in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self) -> bytes:
        """See L{ByteSource.read}."""
        return self.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.content:
            yield self.content


def makeSource(init: Any) -> tuple[ByteSource, str | None]:
    """
    Make the source of a body.

    @param init: The argument C{body} of a request or a response.
    @return: The source, and the default content type.
    @raise TypeError: If C{init} has an unsupported type.
    """
    if init is None:
        return WholeSource(b""), None
    if isinstance(init, str):
        return WholeSource(init.encode("utf-8")), "text/plain;charset=UTF-8"
    if isinstance(init, bytes | bytearray | memoryview):
        return WholeSource(bytes(init)), None
    if hasattr(init, "__aiter__"):
        return ByteSource(init), None
    raise TypeError(
        "a body is bytes, str, an asynchronous iterator of bytes or None, not "
        f"{type(init).__name__}; for JSON use json.dumps or Response.json"
    )


_BACKLOG = 10 * 1024 * 1024
"""Maximum number of bytes by which one of two clones may lag: the limit of a body in memory."""


def tee(source: ByteSource) -> tuple[ByteSource, ByteSource]:
    """
    Split a source in two.

    Bytes read from one branch wait in memory for the other. Reading fails if too many would wait,
    unless the other branch is cancelled.

    @param source: The source; it must no longer be read directly.
    """
    return _Tee(source).branches


class _Tee:
    """Reads a source for two branches."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._pieces = aiter(source)
        # Set while a piece is read, and the number of branches that wait for it.
        self._pulled: SharedFuture[None] | None = None
        self._readers = 0
        self._reading: Deferred[None]
        # The exception that ended the source.
        self.end: Exception | None = None
        self.branches = (_TeeBranch(self), _TeeBranch(self))

    async def pull(self) -> None:
        """
        Wait for a piece, which is read for both branches.

        Cancelling the only branch that waits also cancels the read.

        @raise ValueError: If the other branch would fall too far behind.
        """
        pulled = self._pulled
        if pulled is None:
            if any(branch.held > _BACKLOG for branch in self.branches):
                raise ValueError("the other clone of this body is not being read")
            pulled = self._pulled = SharedFuture()
            self._reading = fromCoroutine(self._read(pulled))
        self._readers += 1
        try:
            await pulled.wait()
        finally:
            self._readers -= 1
            if not (self._readers or pulled.isKnown):
                self._reading.cancel()

    async def _read(self, pulled: SharedFuture[None]) -> None:
        try:
            piece = await anext(self._pieces)
        except Exception as error:
            self.end = error
        else:
            for branch in self.branches:
                branch.put(piece)
        finally:
            self._pulled = None
            pulled.set(None)

    def dropped(self) -> None:
        """Cancel the source if no branch reads it."""
        if all(branch.isDropped for branch in self.branches):
            self._source.cancel()


class _TeeBranch(ByteSource):
    """One of two readers of a source; C{held} bytes wait for it."""

    def __init__(self, tee: _Tee) -> None:
        self._tee = tee
        self._pieces: deque[bytes] = deque()
        self.held = 0
        self.isDropped = False

    def __aiter__(self) -> "_TeeBranch":
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._tee.end is not None:
                raise self._tee.end
            await self._tee.pull()
        piece = self._pieces.popleft()
        self.held -= len(piece)
        return piece

    def put(self, piece: bytes) -> None:
        if not self.isDropped:
            self._pieces.append(piece)
            self.held += len(piece)

    def cancel(self) -> None:
        """See L{ByteSource.cancel}."""
        self.isDropped = True
        self._pieces.clear()
        self.held = 0
        self._tee.dropped()


class FetchBody:
    """
    The body of a request or a response.

    @ivar headers: L{Headers}.
    @ivar hasBody: Whether there is a body, which may be empty.
    @ivar bodyUsed: Whether reading has begun.
    """

    bodyUsed = False

    def __init__(self, body: BodyInit, headers: HeadersInit) -> None:
        self._source, contentType = makeSource(body)
        self.hasBody = body is not None
        self.headers = Headers(headers)
        if contentType is not None and not self.headers.has("content-type"):
            self.headers.set("content-type", contentType)

    @property
    async def body(self) -> AsyncIterator[bytes]:
        """Return the body in pieces: C{async for chunk in message.body}."""
        async for piece in self._use():
            yield piece

    async def bytes(self) -> bytes:
        """
        Return the whole body.

        @raise TypeError: If the body was already read.
        """
        return await self._use().read()

    # The standard's older and better known name.
    arrayBuffer = bytes

    async def text(self) -> str:
        """
        Return the whole body, decoded as UTF-8; malformed bytes become U+FFFD.

        @raise TypeError: If the body was already read.
        """
        return (await self.bytes()).decode("utf-8-sig", "replace")

    async def readJSON(self) -> Any:
        """
        Return the body, decoded as JSON.

        @raise TypeError: If the body was already read.
        @raise ValueError: If it is not JSON.
        """
        return decodeJSON(await self.bytes())

    def cancel(self) -> None:
        """Stop reading. The sender gets the same error as for a disconnected client."""
        self.bodyUsed = True
        self._source.cancel()

    def _use(self) -> ByteSource:
        """Begin to read."""
        if self.bodyUsed:
            raise TypeError("the body has already been read")
        self.bodyUsed = True
        return self._source

    def _fork(self) -> ByteSource:
        """Return a second source of the same bytes."""
        if self.bodyUsed:
            raise TypeError("the body has already been read")
        if isinstance(self._source, WholeSource):
            return self._source
        self._source, second = tee(self._source)
        return second


def decodeJSON(content: bytes) -> Any:
    """
    Decode JSON.

    @param content: UTF-8, with an optional byte order mark.
    @raise ValueError: If it is malformed, or nested too deeply.
    """
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


_ABSOLUTE = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w\-.~%!$&'()*+,;=]+)(?::[0-9]{0,5})?", re.ASCII)

# Characters that stay unescaped in a path or query; the percent sign, because existing escapes are
# kept.
_SAFE = "/?%:@!$&'()*+,;=-._~[]|^\\`{}"

_DEFAULT_HOST = "localhost"


@frozen
class TargetURL:
    """
    The URL of a request.

    @ivar secure: Whether the scheme is C{https}.
    @ivar authority: The host and optional port.
    @ivar target: The encoded path and query, otherwise unchanged: dot segments stay, so that tests
        can send them.
    """

    secure: bool
    authority: str
    target: str

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.target}"


def parseURL(url: str) -> TargetURL:
    """
    Parse a URL; a path alone is relative to C{http://localhost}. A fragment is dropped.

    @param url: An C{http} or C{https} URL, or a path that begins with a slash.
    @raise ValueError: If it is malformed, or its scheme is neither C{http} nor C{https}.
    """
    if not isinstance(url, str):
        raise ValueError(f"a URL is text, not {type(url).__name__}")
    if _CONTROL.search(url):
        raise ValueError("a URL has no control characters")
    if url.startswith("/"):
        return TargetURL(False, _DEFAULT_HOST, encodeTarget(url.partition("#")[0]))
    match = _ABSOLUTE.match(url)
    if match is None:
        raise ValueError(f"{url!r} is neither an http or https URL nor a path")
    scheme, authority, target = match.groups()
    if not authority.isascii():
        authority = authority.encode("idna").decode("ascii")
    if not _AUTHORITY.fullmatch(authority):
        raise ValueError(f"the host of {url!r} is malformed, or contains a user name")
    if not target.startswith("/"):
        target = "/" + target
    return TargetURL(scheme.lower() == "https", authority.lower(), encodeTarget(target))


def encodeTarget(target: str) -> str:
    """Percent-encode a path and query; existing escapes stay."""
    return quote(target, safe=_SAFE)


_BODILESS = frozenset([204, 205, 304])
_REDIRECTS = frozenset([301, 302, 303, 307, 308])

# A reason phrase is sent in Latin-1, without control characters.
_PHRASE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class _JSON:
    """
    The C{json} attribute of L{Response}: makes a response on the class, decodes the body on an
    instance.
    """

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
            Make a response with a value as JSON.

            @param headers: As L{Headers}; C{Content-Type} defaults to C{application/json}.
            @raise TypeError: If the value cannot be encoded.
            """
            given = Headers(headers)
            if not given.has("content-type"):
                given.set("content-type", "application/json")
            return owner(msgspec.json.encode(value), status, given, statusText)

        return makeJSON


class Response(FetchBody):
    """
    A response.

    C{Response.json(value, status=200, headers=None)} makes a JSON response; C{await
    response.json()} decodes the body.

    @ivar status: 200 to 599.
    @ivar statusText: The reason phrase, by default the registered one.
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
        @param body: Bytes, text, which is encoded as UTF-8, or an asynchronous iterator of bytes.
        @param statusText: The reason phrase; by default the registered one.
        @param headers: As L{Headers}; C{Content-Type} defaults to C{text/plain;charset=UTF-8} for
            C{str}.
        @raise ValueError: If status, headers or phrase are malformed.
        @raise TypeError: If C{body} has an unsupported type, or the status allows no body.
        """
        if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
            raise ValueError(f"{status!r} is not the status of a response: 200 to 599")
        if body is not None and status in _BODILESS:
            raise TypeError(f"a response with status {status} has no body")
        if statusText is not None and not _PHRASE.fullmatch(statusText):
            raise ValueError("a reason phrase contains a forbidden character")
        super().__init__(body, headers)
        self.status = status
        self.statusText = phraseOf(status) if statusText is None else statusText

    @classmethod
    def redirect(cls, url: str, status: int = 302) -> "Response":
        """
        Make a redirect.

        @param url: The C{Location}, which is percent-encoded as needed.
        @param status: One of 301, 302, 303, 307 and 308.
        @raise ValueError: If the status is not a redirect.
        """
        if status not in _REDIRECTS:
            raise ValueError(f"{status!r} does not redirect: 301, 302, 303, 307 or 308")
        return cls(None, status, {"location": encodeTarget(url)})

    @property
    def ok(self) -> bool:
        """Return whether the status is 200 to 299."""
        return 200 <= self.status <= 299

    def clone(self) -> "Response":
        """
        Make a second response with the same body, which can be read independently.

        Bytes read from one wait in memory for the other, up to 10 MiB.

        @raise TypeError: If the body was read before.
        """
        return receivedResponse(self.status, self.statusText, Headers(self.headers), self._fork())

    def __repr__(self) -> str:
        return f"<Response {self.status}>"


def receivedResponse(
    status: int, statusText: str, headers: Headers, source: ByteSource
) -> Response:
    """
    Make the object for a response received from a server.

    @param status: Any status, including ones that the constructor refuses.
    @param statusText: The phrase of the status line; may be empty.
    @param headers: The fields of the response.
    @param source: The body, which is read on demand.
    """
    response = Response(None, 200, headers, statusText)
    response.status = status
    response._source = source
    response.hasBody = True
    return response


# The standard converts these to upper case except PATCH, which is a common source of errors.
_NORMALIZED = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


class Request(FetchBody):
    """
    A request.

    @ivar method: In upper case.
    @ivar url: The full URL, without a fragment.
    @ivar params: The values of the C{:name} parts of a route's path; otherwise empty.
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
        @param method: A token; known methods are converted to upper case.
        @param headers: As L{Headers}; C{Content-Type} defaults to C{text/plain;charset=UTF-8} for
            C{str}.
        @param body: Text is encoded as UTF-8; an asynchronous iterator of bytes is read at the
            pace of the server.
        @raise ValueError: If the URL, method or headers are malformed.
        @raise TypeError: If C{body} has an unsupported type, or the method allows no body.
        """
        if not isinstance(method, str) or not _NAME.fullmatch(method):
            raise ValueError(f"{method!r} is not a method")
        self.method = method.upper() if method.upper() in _NORMALIZED else method
        if body is not None and self.method in ("GET", "HEAD"):
            raise TypeError(f"a {self.method} request has no body")
        self.url = str(parseURL(url))
        super().__init__(body, headers)
        self.params: Mapping[str, Any] = {}

    async def json(self) -> Any:
        """
        Return the body decoded as JSON.

        @raise HTTPError: 400 if it is not JSON; unless caught, it becomes the response of a route.
        @raise TypeError: If the body was read before.
        """
        try:
            return await self.readJSON()
        except ValueError as error:
            raise HTTPError(400, str(error), "entity.parse.failed") from None

    @property
    def target(self) -> TargetURL:
        """Return the URL, parsed."""
        return parseURL(self.url)

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.url}>"


def receivedRequest(
    method: str, url: str, headers: Headers, source: ByteSource, params: Mapping[str, Any]
) -> Request:
    """
    Make the object for a request received from a client.

    @param method: The method in upper case.
    @param url: The URL as text, which is not validated.
    @param headers: The fields of the request, used without a copy.
    @param source: The body, which is read on demand.
    @param params: The parameters of the path, decoded.
    """
    request = Request.__new__(Request)
    request._source = source
    # The URL is not parsed and formatted again, as every request of a route table takes this path.
    request.method, request.url, request.headers = method, url, headers
    request.params = params
    request.hasBody = True
    return request
