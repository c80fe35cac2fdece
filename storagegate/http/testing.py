"""
A client for tests of applications: no sockets, no threads, and a clock that the test advances.

A call returns a complete response if the application responds synchronously::

    client = Client(app)
    response = client.post("/items", json={"name": "pen"})
    assert response.status == 201

Slow calls are started first, and checked later::

    call = client.start("GET", "/slow")
    client.advance(5)
    assert call.response.status == 200

Forms, files and redirects::

    client.post("/login", form={"name": "ada"}, follow=True)
    client.post("/pictures", files={"picture": ("a.png", b"...", "image/png")})

WebSockets send and receive messages::

    socket = client.webSocket("/chat/red")
    socket.send("hello")
    assert socket.receive() == "hello"
"""

import json as standardJSON
import mimetypes
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack
from urllib.parse import urlencode, urljoin

import httptools
from attrs import evolve, frozen
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from storagegate.http.fetch import (
    Headers,
    HeadersInit,
    TargetURL,
    decodeFields,
    decodeJSON,
    makeSource,
    parseURL,
)
from storagegate.http.fetch.handler import (
    LOCALHOST,
    EncodedRequest,
    MemoryClientConnection,
    MemoryResponseHead,
    makeSite,
)
from storagegate.http.options import Runtime
from storagegate.net.testing import MemoryConnection, runThreads, settle

if TYPE_CHECKING:
    from storagegate.net.websocket.testing import TestWebSocket

P = ParamSpec("P")
T = TypeVar("T")

_MAX_BODY = 64 * 1024 * 1024
"""Maximum response size, more than a test needs; an endless response would exhaust memory."""


FormValue = str | int | float | Sequence[str]
"""The value of a form's field; a list repeats the field."""

FileValue = bytes | str | tuple[str, bytes | str] | tuple[str, bytes | str, str]
"""The content of a file; or its name and content; or its name, content and media type."""


class RequestDict(TypedDict, total=False):
    """
    The keywords of a request.

    @ivar headers: The header fields.
    @ivar body: The body.
    @ivar json: A value to send as JSON in place of C{body}.
    @ivar form: The fields of a form, which is URL-encoded unless there are C{files}.
    @ivar files: The files of a multipart form, by field.
    @ivar cookies: Cookies to send in addition to those of the client.
    @ivar follow: Whether to follow redirects, up to 20.
    """

    headers: HeadersInit
    body: bytes | str | AsyncIterable[bytes] | None
    json: Any
    form: Mapping[str, FormValue] | None
    files: Mapping[str, FileValue | Sequence[FileValue]] | None
    cookies: Mapping[str, str] | None
    follow: bool


_MAX_REDIRECTS = 20
"""As in browsers."""


class StillWaiting(AssertionError):
    """
    The application has not responded yet.

    @ivar call: The call, or the WebSocket, that is waiting.
    """

    def __init__(self, name: str, call: Any) -> None:
        super().__init__(
            f"{name} has no response yet; use client.start(), then let its handler "
            "continue with client.flush() or client.advance(seconds)"
        )
        self.call = call


@frozen
class TestResponse:
    """
    A complete response.

    @ivar headers: The fields, with case-insensitive names: C{headers["etag"]},
        C{headers.get("vary")}.
    @ivar url: The URL of the request.
    @ivar history: The redirects before it, if the client follows them.
    """

    __test__ = False

    status: int
    headers: Headers
    body: bytes
    statusText: str = ""
    url: str = ""
    history: "tuple[TestResponse, ...]" = ()

    @property
    def text(self) -> str:
        """Return the body, decoded as UTF-8."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """
        Return the body, decoded as JSON.

        @raise ValueError: If it is malformed.
        """
        return decodeJSON(self.body)


def encodeForm(
    fields: Mapping[str, FormValue], files: Mapping[str, FileValue | Sequence[FileValue]] | None
) -> tuple[bytes, str]:
    """
    Encode a form.

    @param fields: The text fields.
    @param files: The files by field; C{None} for a URL-encoded form.
    @return: The body, and its content type.
    """
    pairs = [(name, str(each)) for name, value in fields.items() for each in _valuesOf(value)]
    if files is None:
        return urlencode(pairs).encode(), "application/x-www-form-urlencoded"
    parts = [(_disposition(name), value.encode()) for name, value in pairs]
    for name, given in files.items():
        many: Any = given if isinstance(given, list) else [given]
        for each in many:
            fileName, content, kind = _readFile(name, each)
            head = f'{_disposition(name)}; filename="{_quoted(fileName)}"\r\nContent-Type: {kind}'
            parts.append((head, content))
    boundary = token_hex(16)
    wire = [
        b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head.encode(), content)
        for head, content in parts
    ]
    body = b"".join([*wire, b"--%b--\r\n" % boundary.encode()])
    return body, f"multipart/form-data; boundary={boundary}"


def _valuesOf(value: FormValue) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else [value]


def _disposition(name: str) -> str:
    return f'Content-Disposition: form-data; name="{_quoted(name)}"'


def _quoted(name: str) -> str:
    """Escape a name as browsers do."""
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")


def _readFile(field: str, value: FileValue) -> tuple[str, bytes, str]:
    name, content, kind = field, value, ""
    if isinstance(value, tuple):
        name, content, *rest = value
        kind = rest[0] if rest else mimetypes.guess_type(name)[0] or ""
    assert isinstance(content, bytes | str)
    data = content.encode() if isinstance(content, str) else content
    return name, data, kind or "application/octet-stream"


class WebSocketRefused(AssertionError):
    """
    A handshake was answered with an ordinary response.

    @ivar response: The response.
    """

    def __init__(self, response: TestResponse) -> None:
        super().__init__(f"the WebSocket was refused: {response.status} {response.text}")
        self.response = response


class _ResponseReader:
    """Parses one response, which may be followed by another protocol."""

    def __init__(self, wire: bytes) -> None:
        self._fields: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._phrase = b""
        self.parser = httptools.HttpResponseParser(self)
        with suppress(httptools.HttpParserUpgrade):
            self.parser.feed_data(wire)

    @property
    def response(self) -> TestResponse:
        """Return the parsed response."""
        status, phrase = self.parser.get_status_code(), self._phrase.decode("latin-1")
        return TestResponse(status, decodeFields(self._fields), self._body, phrase)

    def on_status(self, phrase: bytes) -> None:
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body += body


class TestCall:
    """
    A request that may still be waiting for its response.

    @ivar name: Method and path.
    @ivar url: The URL.
    @ivar reading: Whether the client reads the response. If not, the application has to wait after
        64 KiB of it.
    """

    def __init__(
        self, name: str, url: str, connection: MemoryClientConnection, reading: bool
    ) -> None:
        self.name = name
        self.url = url
        self.reading = reading
        self._connection = connection
        self._body = bytearray()

    @property
    def head(self) -> MemoryResponseHead | None:
        """Return status, phrase and headers, or C{None} before they are received."""
        return self._connection.head

    @property
    def received(self) -> bytes:
        """Return the received part of the body."""
        self.collect()
        return bytes(self._body)

    @property
    def done(self) -> bool:
        """Return whether the response is complete, or was truncated."""
        self.collect()
        connection = self._connection
        return connection.error is not None or (connection.ended and not connection.held)

    @property
    def response(self) -> TestResponse:
        """
        Return the response.

        @raise StillWaiting: If it is not complete.
        @raise ResponseLost: If it was truncated.
        """
        if not self.done:
            raise StillWaiting(self.name, self)
        head = self._connection.head
        if self._connection.error is not None:
            raise self._connection.error
        assert head is not None
        return TestResponse(head.status, head.headers, bytes(self._body), head.phrase, self.url)

    def disconnect(self) -> None:
        """Disconnect the client."""
        self._connection.disconnect()

    def collect(self) -> bool:
        """Collect received bytes, if the client reads; return whether there were any."""
        before = len(self._body)
        while self.reading and self._connection.held:
            self._body += self._connection.readAvailable()
            if len(self._body) > _MAX_BODY:
                self.disconnect()
                raise AssertionError(f"the response to {self.name} does not end")
        return len(self._body) > before


@frozen
class _Cookie:
    name: str
    value: str
    path: str
    secure: bool
    expires: float | None


class CookieJar:
    """
    Keeps cookies by name and path.

    C{Domain} and C{SameSite} are ignored, because all requests go to one host. Iteration yields the
    names; C{jar["name"]} is the value as sent.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        """@param now: Returns the time in seconds since 1970, for the expiry of cookies."""
        self._now = now
        self._cookies: dict[tuple[str, str], _Cookie] = {}

    def __getitem__(self, name: str) -> str:
        for cookie in self._alive():
            if cookie.name == name:
                return cookie.value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([cookie.name for cookie in self._alive()])

    def __len__(self) -> int:
        return len(self._alive())

    def set(self, name: str, value: str) -> None:
        """Add a cookie for every path, replacing a cookie of this name with path C{/}."""
        self._cookies[name, "/"] = _Cookie(name, value, "/", False, None)

    def clear(self) -> None:
        """Remove all cookies."""
        self._cookies.clear()

    def store(self, url: TargetURL, headers: Headers) -> None:
        """
        Store the cookies that a response sets.

        @param url: The URL of the request; its path is the default for cookies.
        """
        for line in headers.getSetCookie():
            cookie = self._read(line, url)
            self._cookies.pop((cookie.name, cookie.path), None)
            if cookie.expires is None or cookie.expires > self._now():
                self._cookies[cookie.name, cookie.path] = cookie

    def header(self, url: TargetURL) -> str:
        """
        Return the value of the Cookie field for a request, longer paths first.

        @param url: The URL of the request; its path and scheme select the cookies.
        """
        path = url.target.partition("?")[0]
        sent = [
            cookie
            for cookie in self._alive()
            if path == cookie.path or path.startswith(cookie.path.rstrip("/") + "/")
            if url.secure or not cookie.secure
        ]
        sent.sort(key=lambda cookie: -len(cookie.path))
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in sent)

    def _alive(self) -> list[_Cookie]:
        now = self._now()
        return [
            cookie
            for cookie in self._cookies.values()
            if cookie.expires is None or cookie.expires > now
        ]

    def _read(self, line: str, url: TargetURL) -> _Cookie:
        pair, *attributes = line.split(";")
        name, _, value = pair.partition("=")
        given = {}
        for attribute in attributes:
            key, _, each = attribute.partition("=")
            given[key.strip().lower()] = each.strip()
        path = given.get("path", "")
        if not path.startswith("/"):
            path = url.target.partition("?")[0].rpartition("/")[0] or "/"
        return _Cookie(name.strip(), value.strip(), path, "secure" in given, self._expiry(given))

    def _expiry(self, given: dict[str, str]) -> float | None:
        # As in browsers, a malformed date is ignored.
        with suppress(ValueError):
            if "max-age" in given:
                return self._now() + int(given["max-age"])
            if "expires" in given:
                return parsedate_to_datetime(given["expires"]).timestamp()
        return None


def _runNow(function: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs) -> Deferred[T]:
    """Call a function for a thread synchronously."""
    return execute(partial(function, *arguments, **keywords))


def _encodeBody(
    given: RequestDict,
) -> tuple[bytes | str | AsyncIterable[bytes] | None, str | None]:
    """
    Return the body of a request, and its content type.

    @raise TypeError: If there is more than one body.
    """
    body, json = given.get("body"), given.get("json")
    form, files = given.get("form"), given.get("files")
    isForm = form is not None or files is not None
    if (body is not None) + (json is not None) + isForm > 1:
        raise TypeError("a request has a body, json, or a form with files: one of them")
    if isForm:
        return encodeForm(form or {}, files)
    if json is not None:
        return standardJSON.dumps(json).encode("utf-8"), "application/json"
    return body, makeSource(body)[1]


START_TIME = 1_700_000_000.0
"""The time of day at which the client's clock shows 0: in 2023."""


class Client:
    """
    An in-process client of one application, which also controls its time.

    It replaces the application's runtime: functions for threads run synchronously, and only
    L{advance} moves the clock. Threads of the reactor, such as those of C{deferToThread}, are
    waited for, unless the reactor runs.

    @ivar cookies: The cookies set by the application; the client sends them as a browser would.
    """

    def __init__(
        self,
        app: Any,
        *,
        clock: Clock | None = None,
        url: str = "http://localhost",
        address: str = LOCALHOST,
    ) -> None:
        """
        @param clock: A clock to share with other clients.
        @param url: The URL of the application; C{https} makes requests secure.
        @param address: The IP address of the client.
        """
        self.clock = Clock() if clock is None else clock
        self.cookies = CookieJar(self.now)
        self._base = parseURL(url)
        self._address = address
        self._calls: list[TestCall] = []
        self._connections: list[MemoryConnection] = []
        self.app = app
        app.runtime = Runtime(self.clock, _runNow, self.now)
        self._site = makeSite(app)

    def now(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return START_TIME + self.clock.seconds()

    # Calls with a synchronous response

    def request(self, method: str, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """
        Send a request and return the response. L{RequestDict} describes the keywords.

        @param path: A path with an optional query, or a whole URL.
        @raise StillWaiting: If the application has not responded. The call continues as
            C{error.call}.
        @raise ResponseLost: If the application dropped the connection.
        """
        follow = keywords.pop("follow", False)
        response = self.finish(self.start(method, path, **keywords))
        history: list[TestResponse] = []
        while follow and 300 <= response.status < 400 and "location" in response.headers:
            if len(history) >= _MAX_REDIRECTS:
                raise AssertionError(f"{method} {path} redirects without an end")
            history.append(response)
            isGet = response.status == 303 or (response.status < 303 and method == "POST")
            if isGet and method != "HEAD":
                method = "GET"
                for name in ("body", "json", "form", "files"):
                    keywords.pop(name, None)  # type: ignore[misc]
            target = urljoin(response.url, response.headers["location"])
            response = self.finish(self.start(method, target, **keywords))
        return evolve(response, history=tuple(history)) if history else response

    def finish(self, call: TestCall) -> TestResponse:
        """
        Run all that is due, wait for threads of the reactor, and return the response to a call.

        @raise StillWaiting: If the application has not responded.
        @raise ResponseLost: If the application dropped the connection.
        """
        self.settle(lambda: call.done)
        return call.response

    def settle(self, isDone: Callable[[], bool]) -> None:
        """
        Run all that is due, and wait for threads of the reactor unless it runs.

        @param isDone: Returns whether nothing is to be waited for.
        """
        if not isDone():
            self.flush()

        def isOver() -> bool:
            self.flush()
            return isDone()

        if not isDone():
            runThreads(isOver)

    def get(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send a GET request; see L{request}."""
        return self.request("GET", path, **keywords)

    def post(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send a POST request; see L{request}."""
        return self.request("POST", path, **keywords)

    def put(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send a PUT request; see L{request}."""
        return self.request("PUT", path, **keywords)

    def patch(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send a PATCH request; see L{request}."""
        return self.request("PATCH", path, **keywords)

    def delete(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send a DELETE request; see L{request}."""
        return self.request("DELETE", path, **keywords)

    def head(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send a HEAD request; see L{request}."""
        return self.request("HEAD", path, **keywords)

    def options(self, path: str, **keywords: Unpack[RequestDict]) -> TestResponse:
        """Send an OPTIONS request; see L{request}."""
        return self.request("OPTIONS", path, **keywords)

    # Asynchronous calls

    def start(
        self, method: str, path: str, *, reading: bool = True, **keywords: Unpack[RequestDict]
    ) -> TestCall:
        """
        Send a request, as L{request}, and return without waiting for the response.

        @param reading: Whether the client reads the response.
        @raise TypeError: If there is more than one body, or redirects are to be followed.
        """
        if keywords.get("follow"):
            raise TypeError("only a call that waits for its response follows redirects")
        url = self._parse(path)
        given = Headers(keywords.get("headers"))
        body, contentType = _encodeBody(keywords)
        if contentType is not None and not given.has("content-type"):
            given.set("content-type", contentType)
        self._addCookies(given, url, keywords.get("cookies"))
        encoded = EncodedRequest(method, url, given, makeSource(body)[0], body is not None)
        connection = MemoryClientConnection(self._site, encoded, self._address)
        connection.onHead = lambda head: self.cookies.store(url, head.headers)
        call = TestCall(f"{method} {path}", f"{url}", connection, reading)
        self._calls.append(call)
        connection.start()
        self.deliver()
        return call

    def _parse(self, path: str) -> TargetURL:
        return parseURL(f"{self._base}"[:-1] + path) if path.startswith("/") else parseURL(path)

    def _addCookies(self, headers: Headers, url: TargetURL, more: Mapping[str, str] | None) -> None:
        """Add the cookies of the client, and of the request, which take precedence."""
        own = [] if more is None else [f"{name}={value}" for name, value in more.items()]
        kept = [
            each
            for each in filter(None, self.cookies.header(url).split("; "))
            if each.partition("=")[0] not in (more or {})
        ]
        if (kept or own) and not headers.has("cookie"):
            headers.set("cookie", "; ".join([*kept, *own]))

    def webSocket(
        self,
        path: str,
        *,
        headers: HeadersInit = None,
        cookies: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] = (),
        reading: bool = True,
    ) -> "TestWebSocket":
        """
        Open a WebSocket.

        @param path: A path with an optional query, or a whole URL, of C{http} or C{https}.
        @param headers: Further fields of the handshake, such as C{Origin}.
        @param cookies: Cookies to send in addition to those of the client.
        @param subprotocols: The subprotocols that the client offers.
        @param reading: Whether the client reads after the handshake.
        @raise WebSocketRefused: If the application sends an ordinary response.
        @raise StillWaiting: If it sends none yet; the handler may complete later.
        """
        # Autobahn's client is imported with the first WebSocket.
        from storagegate.net.websocket.testing import TestWebSocket

        url = self._parse(path)
        given = Headers(headers)
        self._addCookies(given, url, cookies)
        socket = TestWebSocket(
            self._site.buildProtocol(None),
            self.flush,
            self.clock,
            "ws" + f"{url}"[4:],
            address=self._address,
            headers=dict(given),
            subprotocols=subprotocols,
            reading=reading,
            watch=self._connections.append,
        )
        self.settle(lambda: bool(socket.response))
        if not socket.response:
            raise StillWaiting(f"the WebSocket {path}", socket)
        response = _ResponseReader(socket.response).response
        self.cookies.store(url, response.headers)
        if not socket.isAccepted:
            socket.drop()
            raise WebSocketRefused(response)
        return socket

    websocket = webSocket
    """The same."""

    def flush(self) -> None:
        """Run everything that is due."""
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """
        Advance the clock, second by second, and run due calls.

        @param seconds: The time to advance by, at least 0.
        """
        while seconds > 1:
            self._step(1)
            seconds -= 1
        self._step(seconds)

    def _step(self, seconds: float) -> None:
        self.clock.advance(seconds)
        while self.deliver():
            self.clock.advance(0)
        if self._connections:
            settle(self.clock, *[each.deliver for each in self._connections])
            self._connections = [each for each in self._connections if not each.isOver]

    def deliver(self) -> bool:
        """Deliver bytes in transit without advancing the clock; return whether there were any."""
        received = [call.collect() for call in self._calls]
        received += [connection.deliver() for connection in self._connections]
        self._calls = [call for call in self._calls if not call.done]
        return any(received)
