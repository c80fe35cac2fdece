"""An in-memory S3 server whose answers a test can replace with other servers' or invalid ones."""

import hashlib
import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from attrs import define, evolve, field, frozen

from storagegate.core.files import crc32c
from storagegate.storage.cluster.blobs.s3 import BucketAddress


@frozen
class Reply:
    """
    An answer.

    @ivar length: The value of C{Content-Length}, if it differs from the length of the body.
    """

    status: int
    headers: dict[str, str] = field(factory=dict)
    body: bytes = b""
    length: int | None = None

    def without(self, *names: str) -> "Reply":
        """Return the answer without some headers."""
        return evolve(self, headers={k: v for k, v in self.headers.items() if k not in names})

    def having(self, **headers: str) -> "Reply":
        """Return the answer with changed headers; C{_} stands for C{-}."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return evolve(self, headers={**self.headers, **named})


@frozen
class Sent:
    """A request: method, key, headers with lower-case names, and body."""

    method: str
    key: str
    headers: dict[str, str]
    body: bytes


Change = Callable[[Sent, Reply], Reply]
"""Returns the answer that replaces the correct one."""


def html(sent: Sent, reply: Reply) -> Reply:
    """Answer like a captive portal: 200 with a page."""
    return Reply(200, {"content-type": "text/html"}, b"<html>Please sign in</html>")


def notFound(sent: Sent, reply: Reply) -> Reply:
    """Answer like a web server without this path."""
    return Reply(404, {"content-type": "text/html"}, b"<html><h1>404 Not Found</h1></html>")


def md5Of(body: bytes) -> str:
    """Return the ETag that most servers compute."""
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def crcOf(body: bytes) -> str:
    """Return the CRC-32C in base64."""
    return b64encode(crc32c(body).to_bytes(4, "big")).decode()


@define(eq=False)
class LyingUpstream:
    """
    Listens, and answers like Amazon S3 unless a test changes the answers.

    @ivar change: Changes answers.
    @ivar objects: The bytes and metadata by key.
    @ivar requests: The number of requests, by method.
    """

    change: Change = lambda sent, reply: reply
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(factory=dict, init=False)
    requests: dict[str, int] = field(factory=dict, init=False)
    _server: ThreadingHTTPServer = field(init=False)

    def start(self) -> "LyingUpstream":
        """Listen on loopback."""
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                sent = Sent(self.command, self.path, headers, body)
                reply = upstream.reply(sent)
                self.send_response_only(reply.status)
                self.send_header("Date", formatdate(usegmt=True))
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                length = len(reply.body) if reply.length is None else reply.length
                if reply.status != 204:
                    self.send_header("Content-Length", str(length))
                # The client may have disconnected.
                with suppress(OSError):
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(reply.body)

            do_GET = do_PUT = do_HEAD = do_DELETE = answer

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening. Blocks."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._server.server_address[1]
        return port

    def address(self, prefix: str = "blobs/") -> BucketAddress:
        """Return the address of a bucket."""
        return BucketAddress(f"127.0.0.1:{self.port}", False, "bucket", prefix)

    def reply(self, sent: Sent) -> Reply:
        """Answer a request."""
        url = urlsplit(sent.key)
        sent = evolve(sent, key=unquote(url.path.removeprefix("/bucket/")))
        self.requests[sent.method] = self.requests.get(sent.method, 0) + 1
        identified = {"x-amz-request-id": "4442587FB7D0A2F9", "x-amz-id-2": "vlR7PnpV2Ce81l0P"}
        query = parse_qs(url.query, keep_blank_values=True)
        right = self._list(query) if "list-type" in query else self._object(sent)
        return self.change(sent, evolve(right, headers={**identified, **right.headers}))

    def _object(self, sent: Sent) -> Reply:
        found = self.objects.get(sent.key)
        if sent.method == "PUT":
            if sent.headers.get("if-none-match") == "*" and found is not None:
                return _error(412, "PreconditionFailed")
            meta = {k: v for k, v in sent.headers.items() if k.startswith("x-amz-meta-")}
            self.objects[sent.key] = (sent.body, meta)
            checksum = {"x-amz-checksum-crc32c": crcOf(sent.body)}
            return Reply(200, {"etag": md5Of(sent.body), **checksum})
        if sent.method == "DELETE":
            self.objects.pop(sent.key, None)
            return Reply(204)
        if found is None:
            return _error(404, "NoSuchKey")
        body, meta = found
        headers = {"etag": md5Of(body), **meta}
        if sent.headers.get("x-amz-checksum-mode"):
            headers["x-amz-checksum-crc32c"] = crcOf(body)
        if sent.method == "HEAD":
            return Reply(200, headers, length=len(body))
        return _ranged(sent, body, headers)

    def _list(self, query: dict[str, list[str]]) -> Reply:
        prefix, after = query["prefix"][0], query["start-after"][0]
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        page = keys[:2]
        entries = "".join(f"<Contents><Key>{escape(key)}</Key></Contents>" for key in page)
        isTruncated = str(len(page) < len(keys)).lower()
        text = f"<ListBucketResult>{entries}<IsTruncated>{isTruncated}</IsTruncated>"
        return Reply(
            200, {"content-type": "application/xml"}, f"{text}</ListBucketResult>".encode()
        )


def _error(status: int, code: str) -> Reply:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>x</Message></Error>"
    return Reply(status, {"content-type": "application/xml"}, body.encode())


def _ranged(sent: Sent, body: bytes, headers: dict[str, str]) -> Reply:
    wanted = sent.headers.get("range", "")
    if not wanted:
        return Reply(200, headers, body)
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    begin, end = int(first), min(int(last) + 1, len(body))
    if begin >= len(body):
        return evolve(
            _error(416, "InvalidRange"), headers={"content-range": f"bytes */{len(body)}"}
        )
    where = {"content-range": f"bytes {begin}-{end - 1}/{len(body)}"}
    return Reply(206, {**headers, **where}, body[begin:end])


def flipped(body: bytes, at: int) -> bytes:
    """Return the bytes with one bit flipped."""
    with suppress(IndexError):
        return body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]
    return body
