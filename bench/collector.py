"""
A stand-in for a collector of spans: takes whatever is posted, and keeps nothing.

    python collector.py

Prints its port, and serves until it is told to stop.
"""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Taking(BaseHTTPRequestHandler):
    """Answers every request with success."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read what is posted, and take it."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until the end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
