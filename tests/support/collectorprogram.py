"""
A span collector as a program: it prints its port, stores received spans, and returns them.

C{POST /MODE/...} receives spans: C{ok} stores them, C{away} responds with 503, C{nonsense} with
invalid HTTP, C{silent} not at all, C{huge} with an endless response, C{trickle} byte by byte,
C{elsewhere} with a redirect. C{GET /N} returns the spans once N have arrived, and C{GET
/requests/N} the heads of requests in all modes.

Protocol Buffers are parsed by hand, with the field numbers of C{opentelemetry/proto/trace/v1}, so
that a defect of the packages that encoded them is not repeated here.
"""

import json
import struct
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# The exporter starts first, and yields to the other processes.
SECONDS = 120

_news = threading.Condition()
_pause = threading.Event()
_spans: list[dict[str, Any]] = []
_requests: list[dict[str, Any]] = []


def fieldsOf(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the field numbers and values of a message: integers or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        match tag & 7:
            case 0:
                yield tag >> 3, varint()
            case 1:
                at += 8
                yield tag >> 3, data[at - 8 : at]
            case 2:
                length = varint()
                at += length
                assert at <= len(data)
                yield tag >> 3, data[at - length : at]
            case 5:
                at += 4
                yield tag >> 3, data[at - 4 : at]
            case other:
                raise ValueError(f"wire type {other}")


def valueOf(data: bytes) -> Any:
    """Parse an C{AnyValue}."""
    for number, value in fieldsOf(data):
        match number:
            case 1:
                return value.decode()
            case 2:
                return bool(value)
            case 3:
                return value - (1 << 64) if value >> 63 else value
            case 4:
                return struct.unpack("<d", value)[0]
            case 5:
                return [valueOf(each) for number, each in fieldsOf(value) if number == 1]
    return None


def attributesOf(pairs: list[bytes]) -> dict[str, Any]:
    """Parse a list of C{KeyValue}."""
    found = {}
    for pair in pairs:
        fields = dict(fieldsOf(pair))
        found[fields[1].decode()] = valueOf(fields[2])
    return found


def otlpSpans(body: bytes) -> Iterator[dict[str, Any]]:
    """Parse an C{ExportTraceServiceRequest}."""
    for _number, resourceSpans in fieldsOf(body):
        parts = list(fieldsOf(resourceSpans))
        resource = next(value for number, value in parts if number == 1)
        about = attributesOf([pair for number, pair in fieldsOf(resource) if number == 1])
        for scopeSpans in (value for number, value in parts if number == 2):
            for number, span in fieldsOf(scopeSpans):
                if number == 2:
                    yield {**otlpSpan(span), "resource": about}


def otlpSpan(body: bytes) -> dict[str, Any]:
    """Parse a C{Span}."""
    parts = list(fieldsOf(body))
    fields: dict[int, Any] = dict(parts)
    return {
        "traceId": fields[1].hex(),
        "spanId": fields[2].hex(),
        "state": fields.get(3, b"").decode(),
        "parentId": fields.get(4, b"").hex(),
        "name": fields[5].decode(),
        "kind": {2: "SERVER", 3: "CLIENT"}[fields[6]],
        "start": struct.unpack("<Q", fields[7])[0],
        "end": struct.unpack("<Q", fields[8])[0],
        "attributes": attributesOf([pair for number, pair in parts if number == 9]),
        "status": dict(fieldsOf(fields.get(15, b""))).get(3, 0),
    }


def zipkinSpans(body: bytes) -> Iterator[dict[str, Any]]:
    """Parse a list of Zipkin v2 spans."""
    for span in json.loads(body):
        yield {
            "traceId": span["traceId"],
            "spanId": span["id"],
            "parentId": span.get("parentId", ""),
            "name": span["name"],
            "kind": span["kind"],
            "start": span["timestamp"] * 1000,
            "end": (span["timestamp"] + span["duration"]) * 1000,
            "attributes": span["tags"],
            "resource": {"service.name": span["localEndpoint"]["serviceName"]},
        }


class Handler(BaseHTTPRequestHandler):
    """Receives and returns spans."""

    protocol_version = "HTTP/1.1"

    def take(self) -> None:
        """Receive spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with _news:
            _requests.append({"path": self.path, "headers": dict(self.headers)})
            _news.notify_all()
        match self.path.split("/")[1]:
            case "ok":
                isZipkin = self.headers["Content-Type"] == "application/json"
                spans = list((zipkinSpans if isZipkin else otlpSpans)(body))
                with _news:
                    _spans.extend(spans)
                    _news.notify_all()
                self._answer(202 if isZipkin else 200, b"")
            case "away":
                self._answer(500, b"no")
            case "elsewhere":
                self.send_response(302)
                self.send_header("Location", "/ok/v1/traces")
                self.send_header("Content-Length", "0")
                self.end_headers()
            case "nonsense":
                self.wfile.write(b"\x00\xff this is no HTTP\r\n\r\n")
                self.close_connection = True
            case "silent":
                self.rfile.read(1)
            case "trickle":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(b"x")
                        _pause.wait(0.05)
                except OSError:
                    self.close_connection = True
            case "huge":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(b"10000\r\n" + bytes(65536) + b"\r\n")
                except OSError:
                    self.close_connection = True

    def tell(self) -> None:
        """Return the stored spans or requests."""
        parts = self.path.strip("/").split("/")
        kept = _requests if parts[0] == "requests" else _spans
        with _news:
            isThere = _news.wait_for(lambda: len(kept) >= int(parts[-1]), SECONDS)
            body = json.dumps(kept).encode()
        self._answer(200 if isThere else 504, body)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def beSilent(self, format: str, *arguments: Any) -> None:
        """Log nothing."""

    # The method names that Python's server calls.
    do_POST, do_GET, log_message = take, tell, beSilent


def main() -> None:
    """Serve until standard input ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
