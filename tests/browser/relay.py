"""A relay in front of the console that counts, delays and refuses the bodies that a page sends."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any

SECONDS = 60

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class Relay:
    """
    Passes requests on.

    @ivar passed: The paths of the bodies that were passed on, in their order.
    @ivar most: As many bodies were in flight at once.
    @ivar refusals: What the next bodies get instead: a status and a field of the head.
    @ivar allowed: So many bodies more are passed on; others wait. L{None}: any number.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.passed: list[str] = []
        self.most = 0
        self.refusals: list[tuple[int, str, str]] = []
        self.allowed: int | None = None
        self._target = target
        self._flying = 0
        self._lost = 0
        self._changed = Condition()

    @property
    def flying(self) -> int:
        """Bodies in flight."""
        return self._flying

    def allow(self, count: int | None) -> None:
        """Let waiting bodies pass."""
        with self._changed:
            self.allowed = count
            self._changed.notify_all()

    def lose(self) -> None:
        """Close the connections of all bodies that wait."""
        with self._changed:
            self._lost += 1
            self._changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[str]:
        """Run; give the origin."""
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    # The page has aborted the request.
                    self.close_connection = True

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = lambda self: relay._serve(self)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.lose()
            server.shutdown()
            thread.join()
            server.server_close()

    def _serve(self, handler: Any) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if handler.command != "PUT":
            self._forward(handler, body)
            return
        with self._changed:
            self._flying += 1
            self.most = max(self.most, self._flying)
        try:
            if not self._admitted():
                handler.close_connection = True
            elif self.refusals:
                status, name, value = self.refusals.pop(0)
                handler.send_response(status)
                handler.send_header(name, value)
                handler.send_header("Content-Length", "0")
                handler.end_headers()
            else:
                self.passed.append(handler.path)
                self._forward(handler, body)
        finally:
            with self._changed:
                self._flying -= 1

    def _admitted(self) -> bool:
        with self._changed:
            lost = self._lost
            while self.allowed == 0 and self._lost == lost:
                if not self._changed.wait(SECONDS):
                    return False
            if self._lost != lost:
                return False
            if self.allowed is not None:
                self.allowed -= 1
            return True

    def _forward(self, handler: Any, body: bytes) -> None:
        connection = HTTPConnection(*self._target, timeout=SECONDS)
        try:
            connection.request(handler.command, handler.path, body or None, dict(handler.headers))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in (*_HOP, "date", "server"):
                handler.send_header(name, value)
        if response.status not in (204, 304):
            handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
