"""The common base of the stand-ins: Python's own HTTP server, with a thread per request."""

import json
import sys
import threading
from argparse import ArgumentParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


class State:
    """
    The state of a stand-in. It is kept in a file, so that it survives a kill.

    @ivar changed: Guards the state, and is notified of changes.
    @ivar asked: The targets of all requests.
    """

    def __init__(self, path: Path, empty: dict[str, Any]) -> None:
        self.changed = threading.Condition()
        self.asked: list[str] = []
        self._path = path
        self.known = json.loads(path.read_text()) if path.exists() else empty

    def save(self) -> None:
        """Save the state, and wake waiting threads. Must be called with C{changed} held."""
        self._path.write_text(json.dumps(self.known))
        self.changed.notify_all()


class Answering(BaseHTTPRequestHandler):
    """Parses requests; subclasses implement C{answer}."""

    protocol_version = "HTTP/1.1"
    state: State

    def handleOne(self) -> None:
        """Answer a request."""
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        parts = urlsplit(self.path)
        with self.state.changed:
            self.arrived()
            self.state.asked.append(self.path)
        if parts.path == "/standin/asked":
            self.give(200, self.state.asked)
            return
        query = parse_qs(parts.query, keep_blank_values=True)
        self.answer(parts.path, query, json.loads(content) if content else None)

    do_GET = do_PUT = do_POST = do_DELETE = handleOne

    def arrived(self) -> None:
        """Record state before other threads can see that a request has arrived."""

    def answer(self, path: str, query: dict[str, list[str]], message: Any) -> None:
        """Answer a request."""
        raise NotImplementedError

    def give(self, status: int, message: Any, **headers: str) -> None:
        """Send an answer."""
        body = json.dumps(message).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def silence(self, *arguments: Any) -> None:
        """Log nothing."""

    log_message = silence


def serve(handler: type[Answering], empty: dict[str, Any]) -> None:
    """Serve until killed, with the options in C{sys.argv}."""
    parser = ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    options = parser.parse_args()
    handler.state = State(options.state, empty)
    ThreadingHTTPServer.daemon_threads = True
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler)
    if options.certificate:
        # Imported here, because most processes start often and without TLS.
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.certificate, options.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"port {server.server_address[1]}", flush=True)
    # The pipe closes when the parent process has ended.
    threading.Thread(target=_untilOrphaned, args=(server,), daemon=True).start()
    server.serve_forever()


def _untilOrphaned(server: ThreadingHTTPServer) -> None:
    sys.stdin.read()
    server.shutdown()
