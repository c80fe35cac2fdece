"""
C{Headers}, C{Request} and C{Response} of the Fetch standard.

They differ from the standard where Python does: bodies are C{bytes}, streams are asynchronous
iterators of C{bytes}, malformed input raises C{ValueError}. What only a browser needs (modes,
caches, origins) is left out. A body is a L{ByteSource} that is read once; L{tee} splits one for a
clone.
"""

import re
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, overload
from urllib.parse import quote

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred

from storagegate.http.errors import HTTPError
from storagegate.net.http.message import phraseOf

# RFC 9110 section 5.6.2, and section 5.5 for what a value may hold.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

# What may be given for header fields: a mapping, whose values may be lists, or (name, value) pairs.
HeadersInit: TypeAlias = "Headers | Mapping[str, Any] | Iterable[tuple[str, Any]] | None"


class Headers:
    """
    Header fields, whose names know no case.

    Iterating gives C{(name, value)} with names in lower case, sorted, and the values of one name
    joined by commas; Set-Cookie fields cannot be joined and come one by one.
    """

    __slots__ = ("_fields",)

    def __init__(self, init: HeadersInit = None) -> None:
        """
        @raise ValueError: If a name is no token, or a value has a control character or one that
            is not in Latin-1.
        """
        self._fields: list[tuple[str, str]] = []
        if isinstance(init, Headers):
            self._fields = list(init._fields)
        elif init is not None:
            for name, value in init.items() if isinstance(init, Mapping) else init:
                for each in value if isinstance(value, list | tuple) else (value,):
                    self.append(name, each)

    def get(self, name: str) -> str | None:
        """Give the values of a field, joined by commas."""
        values = self._valuesOf(name)
        return ", ".join(values) if values else None

    def getSetCookie(self) -> list[str]:
        """Give the values of Set-Cookie one by one."""
        return self._valuesOf("set-cookie")

    def has(self, name: str) -> bool:
        """Say whether there is such a field."""
        return bool(self._valuesOf(name))

    def set(self, name: str, value: str | int) -> None:
        """Put one value in place of all that a field has."""
        field = _check(name, value)
        places = [place for place, each in enumerate(self._fields) if each[0] == field[0]]
        if not places:
            self._fields.append(field)
            return
        self._fields[places[0]] = field
        for place in reversed(places[1:]):
            del self._fields[place]

    def append(self, name: str, value: str | int) -> None:
        """Add a value to those that a field has."""
        self._fields.append(_check(name, value))

    def delete(self, name: str) -> None:
        """Remove a field, if it is there."""
        lowered = _lower(name)
        self._fields = [field for field in self._fields if field[0] != lowered]

    def items(self) -> list[tuple[str, str]]:
        """Give what iterating gives."""
        return list(self)

    def encode(self) -> list[tuple[bytes, bytes]]:
        """Give the fields in the order they were added, as the wire has them."""
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in self._fields]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for name in sorted({name for name, _ in self._fields}):
            values = self._valuesOf(name)
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
        return f"Headers({self._fields!r})"

    def _valuesOf(self, name: str) -> list[str]:
        lowered = _lower(name)
        return [value for each, value in self._fields if each == lowered]


def decodeFields(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Take fields from the wire, where they have been checked."""
    headers = Headers()
    headers._fields = [
        (name.decode("ascii").lower(), value.decode("latin-1")) for name, value in fields
    ]
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
        raise ValueError(f"the value of the header field {lowered} holds a forbidden character")
    return lowered, value


# What a body may be made of.
BodyInit: TypeAlias = "bytes | bytearray | memoryview | str | AsyncIterable[bytes] | None"


class ByteSource(Protocol):
    """Where a body's bytes come from."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def read(self) -> bytes:
        """Give all of them."""
        ...


class WholeSource:
    """
    Bytes that are all here.

    @ivar content: They.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self) -> bytes:
        """Give them."""
        return self.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.content:
            yield self.content


class StreamSource:
    """The bytes of an asynchronous iterator."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks

    async def read(self) -> bytes:
        """Give them all."""
        return b"".join([chunk async for chunk in self])

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


def makeSource(init: Any) -> tuple[ByteSource, str | None]:
    """
    Find out what a body is made of.

    @return: Where its bytes come from, and the content type that goes without saying.
    @raise TypeError: If it is nothing that a body can be made of.
    """
    if init is None:
        return WholeSource(b""), None
    if isinstance(init, str):
        return WholeSource(init.encode("utf-8")), "text/plain;charset=UTF-8"
    if isinstance(init, bytes | bytearray | memoryview):
        return WholeSource(bytes(init)), None
    if hasattr(init, "__aiter__"):
        return StreamSource(init), None
    raise TypeError(
        "a body is bytes, str, an asynchronous iterator of bytes or None, not "
        f"{type(init).__name__}; for JSON use json.dumps or Response.json"
    )


_BACKLOG = 10 * 1024 * 1024
"""How far one of two clones may fall behind the other; as much as a body may have in memory."""


def tee(source: ByteSource) -> tuple[ByteSource, ByteSource]:
    """
    Make two sources of one.

    Whoever reads ahead makes the bytes wait in memory for the other. Reading fails where too many
    would wait; a source that is cancelled wants none.
    """
    shared = _Tee(source)
    return _Branch(shared, 0), _Branch(shared, 1)


class _Tee:
    """Reads a source for two branches: whoever is ahead reads, the other finds it in its queue."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._pieces = aiter(source)
        self._queues: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self._dropped = [False, False]
        self._held = [0, 0]
        self._error: Exception | None = None
        self._ended = False
        # Those who wait while the other branch's reader is reading.
        self._waiting: list[Deferred[None]] | None = None

    async def next(self, branch: int) -> bytes:
        """
        Give a branch its next piece.

        @raise ValueError: If the other branch would fall too far behind.
        """
        queue = self._queues[branch]
        while not queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if self._waiting is None:
                await self._pull(1 - branch)
            else:
                turn: Deferred[None] = Deferred()
                self._waiting.append(turn)
                await turn
        piece = queue.popleft()
        self._held[branch] -= len(piece)
        return piece

    def drop(self, branch: int) -> None:
        """Keep nothing for a branch any more; without branches, want nothing of the source."""
        self._dropped[branch] = True
        self._queues[branch].clear()
        self._held[branch] = 0
        cancel = getattr(self._source, "cancel", None)
        if all(self._dropped) and cancel is not None:
            cancel()

    async def _pull(self, other: int) -> None:
        if self._held[other] > _BACKLOG:
            raise ValueError("the other clone of this body is not being read")
        self._waiting = []
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            self._ended = True
        except Exception as error:
            self._error = error
        else:
            for branch in (0, 1):
                if not self._dropped[branch]:
                    self._queues[branch].append(piece)
                    self._held[branch] += len(piece)
        finally:
            waiting, self._waiting = self._waiting, None
            for turn in waiting:
                turn.callback(None)


class _Branch:
    """One of two readers of a source."""

    def __init__(self, tee: _Tee, branch: int) -> None:
        self._tee = tee
        self._branch = branch

    async def read(self) -> bytes:
        """Give all bytes."""
        return b"".join([chunk async for chunk in self])

    def __aiter__(self) -> "_Branch":
        return self

    async def __anext__(self) -> bytes:
        return await self._tee.next(self._branch)

    def cancel(self) -> None:
        """Want no more."""
        self._tee.drop(self._branch)


class FetchBody:
    """
    What a request and a response have in common.

    @ivar bodyUsed: Whether somebody has begun to read.
    """

    bodyUsed = False

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    @property
    def body(self) -> "BodyStream":
        """Give the body in pieces: C{async for chunk in message.body}."""
        return BodyStream(self)

    async def bytes(self) -> bytes:
        """
        Give the whole body.

        @raise TypeError: If it was read before.
        """
        return await self._use().read()

    # What the standard calls it that most programs know; Python has no other buffer to give.
    arrayBuffer = bytes

    async def text(self) -> str:
        """
        Give the whole body, read as UTF-8; what is none becomes U+FFFD.

        @raise TypeError: If it was read before.
        """
        return (await self.bytes()).decode("utf-8-sig", "replace")

    async def readJSON(self) -> Any:
        """
        Give what the body says in JSON.

        @raise TypeError: If it was read before.
        @raise ValueError: If it is no JSON.
        """
        return decodeJSON(await self.bytes())

    def cancel(self) -> None:
        """Want no more of the body: whoever sends it is told, as if this client had gone."""
        self.bodyUsed = True
        cancel = getattr(self._source, "cancel", None)
        if cancel is not None:
            cancel()

    def _use(self) -> ByteSource:
        """Begin to read."""
        if self.bodyUsed:
            raise TypeError("the body has been read already")
        self.bodyUsed = True
        return self._source

    def _fork(self) -> ByteSource:
        """Let this body and another one have the same bytes."""
        if self.bodyUsed:
            raise TypeError("the body has been read already")
        if isinstance(self._source, WholeSource):
            return self._source
        self._source, second = tee(self._source)
        return second


class BodyStream:
    """A body, as an asynchronous iterator of its pieces."""

    def __init__(self, message: FetchBody) -> None:
        self._message = message
        self._pieces: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> "BodyStream":
        if self._pieces is None:
            self._pieces = aiter(self._message._use())
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            self._pieces = aiter(self._message._use())
        return await anext(self._pieces)


def decodeJSON(content: bytes) -> Any:
    """
    Read JSON.

    @raise ValueError: If it is none, or nested deeper than anybody means.
    """
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


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
