"""
The floor of the HTTP framework: a head that is parsed in C, a route, an answer, and nothing else.

    python -m bench.http.floor PORT

It answers C{GET /hello}; all else is not found. Requests and answers are objects, with all fields
as text in a dictionary and fields that a handler adds, as a framework has them. There are no
limits, timeouts, middleware, patterns, tags, streams or errors.
"""

import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path

import httptools
from twisted.internet.protocol import Factory, Protocol

from bench.directwrites import serve

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class Clock:
    """Writes the time of now, once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = b""

    def now(self) -> bytes:
        """Give the time as HTTP has it."""
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True).encode()
        return self._text


CLOCK = Clock()


class Request:
    """A request."""

    __slots__ = ("body", "headers", "keepsOpen", "method", "path", "query")

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""


class Response:
    """An answer."""

    __slots__ = ("_lines", "_write", "code")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._lines: list[str] = []
        self.code = 200

    def header(self, name: str, value: str) -> None:
        """Add a field."""
        self._lines.append(f"{name}: {value}\r\n")

    def send(self, body: bytes) -> None:
        """Send it."""
        self._write(
            b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Length: %d\r\n%b\r\n%b"
            % (
                self.code,
                _PHRASES[self.code],
                CLOCK.now(),
                len(body),
                "".join(self._lines).encode("latin-1"),
                body,
            )
        )


def hello(request: Request, response: Response) -> None:
    """Answer a text."""
    response.header("Content-Type", "text/plain")
    response.send(b"Hello, World!")


def notFound(request: Request, response: Response) -> None:
    """Answer that it is not there."""
    response.code = 404
    response.send(b"")


ROUTES = {("GET", "/hello"): hello}


class Connection(Protocol):
    """A connection, to which the parser reports."""

    def connectionMade(self) -> None:
        """Send small answers at once."""
        self.transport.setTcpNoDelay(True)
        self._parser = httptools.HttpRequestParser(self)
        self.dataReceived = self._parser.feed_data

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._request = Request()

    def on_url(self, url: bytes) -> None:
        """Take the target."""
        self._target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        self._request.headers[name.lower().decode("latin-1")] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._request.body += body

    def on_message_complete(self) -> None:
        """Answer."""
        request, parser = self._request, self._parser
        request.method = parser.get_method().decode("latin-1")
        request.path, _, request.query = self._target.decode("latin-1").partition("?")
        request.keepsOpen = parser.should_keep_alive()
        handle = ROUTES.get((request.method, request.path), notFound)
        handle(request, Response(self.transport.write))
        if not request.keepsOpen:
            self.transport.loseConnection()


def main(port: int) -> None:
    """Serve until the end."""
    serve(port, Factory.forProtocol(Connection))


if __name__ == "__main__":
    main(int(sys.argv[1]))
