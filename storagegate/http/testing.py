"""
A client for tests of applications: no sockets, no threads, and time that passes when it is told to.

A call is answered before it returns, as far as the application answers at once::

    client = Client(app)
    response = client.post("/items", json={"name": "pen"})
    assert response.status == 201

What takes time is started, and looked at as it goes on::

    call = client.start("GET", "/slow")
    client.advance(5)
    assert call.response.status == 200
"""

import json as standardJSON
from collections.abc import AsyncIterable
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from storagegate.http.fetchchannel import LOCALHOST
from storagegate.http.fetchconnection import FetchConnection
from storagegate.http.fetchhandler import makeSite
from storagegate.http.fetchheaders import Headers, HeadersInit
from storagegate.http.fetchsource import makeSource
from storagegate.http.fetchurl import parseURL
from storagegate.http.fetchwire import RequestWire
from storagegate.http.runtime import Runtime
from storagegate.http.testcalls import Call, StillWaiting, TestResponse
from storagegate.http.testcookies import CookieJar

__all__ = ["Call", "Client", "StillWaiting", "TestResponse"]

START_TIME = 1_700_000_000.0
"""What the wall clock shows when the client's clock shows 0: a day in 2023."""


class Client:
    """
    A client of one application, in its process, and the application's time.

    While there is one, the application's thread functions run at once, and its clock is the
    client's: it stands still but for L{advance}.

    @ivar clock: The clock.
    @ivar cookies: What the application has set, sent again as a browser would.
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
        @param clock: A clock to share with others.
        @param url: Where the application seems to be; C{https} makes requests secure.
        @param address: Where the client seems to be.
        """
        self.clock = Clock() if clock is None else clock
        self.cookies = CookieJar(self.now)
        self._base = parseURL(url)
        self._address = address
        self._calls: list[Call] = []
        self.app = app
        app.runtime = Runtime(self.clock, _runAtOnce, self.now)
        self._site = makeSite(app)

    def now(self) -> float:
        """Give the time of day, in seconds since 1970."""
        return START_TIME + self.clock.seconds()

    # Calls that are answered at once

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: HeadersInit = None,
        body: bytes | str | AsyncIterable[bytes] | None = None,
        json: Any = None,
    ) -> TestResponse:
        """
        Ask for something and give the response.

        @param path: Perhaps with a query; or a whole URL.
        @param json: A value to send as JSON in place of C{body}.
        @raise StillWaiting: If the application has not answered. The call goes on, see
            C{error.call}.
        @raise ResponseLost: If the application dropped the connection.
        """
        call = self.start(method, path, headers=headers, body=body, json=json)
        if not call.done:
            self.flush()
        return call.response

    def get(self, path: str, **options: Any) -> TestResponse:
        """Ask by GET, see L{request}."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> TestResponse:
        """Ask by POST, see L{request}."""
        return self.request("POST", path, **options)

    def put(self, path: str, **options: Any) -> TestResponse:
        """Ask by PUT, see L{request}."""
        return self.request("PUT", path, **options)

    def patch(self, path: str, **options: Any) -> TestResponse:
        """Ask by PATCH, see L{request}."""
        return self.request("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> TestResponse:
        """Ask by DELETE, see L{request}."""
        return self.request("DELETE", path, **options)

    def head(self, path: str, **options: Any) -> TestResponse:
        """Ask by HEAD, see L{request}."""
        return self.request("HEAD", path, **options)

    def options(self, path: str, **options: Any) -> TestResponse:
        """Ask by OPTIONS, see L{request}."""
        return self.request("OPTIONS", path, **options)

    # Calls that take time

    def start(
        self,
        method: str,
        path: str,
        *,
        headers: HeadersInit = None,
        body: bytes | str | AsyncIterable[bytes] | None = None,
        json: Any = None,
        reading: bool = True,
    ) -> Call:
        """
        Begin to ask for something, as L{request}.

        @param reading: Whether the client reads what comes.
        """
        if json is not None and body is not None:
            raise TypeError("a request has a body or json, not both")
        url = parseURL(f"{self._base}"[:-1] + path) if path.startswith("/") else parseURL(path)
        given = Headers(headers)
        if json is not None:
            body = standardJSON.dumps(json).encode("utf-8")
            contentType: str | None = "application/json"
        else:
            _, contentType = makeSource(body)
        if contentType is not None and not given.has("content-type"):
            given.set("content-type", contentType)
        cookies = self.cookies.header(url)
        if cookies and not given.has("cookie"):
            given.set("cookie", cookies)
        wire = RequestWire(method, url, given, makeSource(body)[0], body is not None)
        connection = FetchConnection(self._site, wire, self._address)
        connection.onHead = lambda head: self.cookies.take(url, head.headers)
        call = Call(f"{method} {path}", connection, reading)
        self._calls.append(call)
        connection.start()
        self._collect()
        return call

    def flush(self) -> None:
        """Let everything happen that is due."""
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Let time pass, second by second, and everything happen that is due meanwhile."""
        while seconds > 1:
            self._step(1)
            seconds -= 1
        self._step(seconds)

    def _step(self, seconds: float) -> None:
        self.clock.advance(seconds)
        while self._collect():
            self.clock.advance(0)

    def _collect(self) -> bool:
        """Read what has come, and forget the calls that are over."""
        came = [call.collect() for call in self._calls]
        self._calls = [call for call in self._calls if not call.done]
        return any(came)


def _runAtOnce(function: Any, *arguments: Any) -> Deferred[Any]:
    """Call a function as if a thread had done it already."""
    return execute(function, *arguments)
