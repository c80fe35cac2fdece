"""A browser of one tab and one cookie, and an application whose time the test turns."""

from typing import Any

import msgspec
from attrs import frozen
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from storagegate import server
from storagegate.http.application import Application
from storagegate.http.options import Runtime
from storagegate.http.resource import describeRejection
from storagegate.net.http.site import Site
from tests.net.support import Connection, head

START = 1_700_000_000.0
"""The time at which each test begins: 22:13:20 on 14 November 2023."""


@frozen
class Answer:
    """
    A response.

    @ivar cookies: The values of its C{Set-Cookie} fields.
    """

    status: int
    text: str
    cookies: list[str]

    @property
    def cookie(self) -> str | None:
        """Give name and value of the only cookie, ready to be sent back."""
        assert len(self.cookies) < 2, self.cookies
        return self.cookies[0].partition(";")[0] if self.cookies else None

    def json(self) -> Any:
        """Give what the body says."""
        return msgspec.json.decode(self.text)


class Browser:
    """
    Sends requests to an application, and the last cookie that it got along with them.

    @ivar app: The application.
    @ivar clock: Its time.
    @ivar cookie: The cookie, C{None} for none.
    """

    def __init__(self, app: Application | None = None) -> None:
        self.app = server.http() if app is None else app
        self.clock = Clock()
        self.clock.advance(START)
        self.app.runtime = Runtime(self.clock, maybeDeferred, self.clock.seconds)
        self.cookie: str | None = None

    def get(self, path: str = "/", **headers: str) -> Answer:
        """Ask for something; C{x_y} is the header C{x-y}."""
        return self.request("GET", path, **headers)

    def request(self, method: str, path: str, **headers: str) -> Answer:
        """Make a request that is answered at once."""
        answer = read(self.start(method, path, **headers).received())
        if answer.cookie is not None:
            self.cookie = answer.cookie
        return answer

    def start(self, method: str, path: str, **headers: str) -> Connection:
        """Make a request on a connection of its own."""
        if self.cookie is not None:
            headers.setdefault("cookie", self.cookie)
        fields = [f"{name.replace('_', '-')}: {value}".encode() for name, value in headers.items()]
        line = f"{method} {path} HTTP/1.1".encode()
        host = b"Host: example.com" if "host" not in headers else fields.pop()
        site = Site(self.app.resource, self.app.settings.limits(), self.clock, describeRejection)
        connection = Connection(site)
        connection.channel.dataReceived(head(*fields, line=line, host=host))
        return connection


def read(wire: bytes) -> Answer:
    """Read a response that came whole."""
    top, blank, body = wire.partition(b"\r\n\r\n")
    assert blank, wire
    first, *lines = top.decode("latin-1").split("\r\n")
    fields = [line.split(": ", 1) for line in lines]
    cookies = [value for name, value in fields if name.lower() == "set-cookie"]
    return Answer(int(first.split(" ")[1]), body.decode(), cookies)
