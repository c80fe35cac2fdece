"""The routes of the API: paths, methods, documents and the lines of changes."""

import socket
import time
from threading import Event

from storagegate.console.operations import OPERATIONS
from tests.console.fixture import API, ConsoleCase
from tests.support.clients import ROOT


class RouteTests(ConsoleCase):
    """Requests that reach no operation, or with no valid input."""

    def refusal(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Return the status and the code of a refusal."""
        reply = self.call(method, path, body)
        self.assertLessEqual(reply.json.keys(), {"error", "message", "details"})
        self.assertRegex(reply.headers["X-Trace-Id"], "^[0-9a-f]{32}$")
        return reply.status, reply.json["error"]

    def test_unknown(self) -> None:
        """A path is exact: its case and each slash count, and the pages are not below it."""
        for path in ("", "nothing", "Keys", "keys/a/b/c", "session/x", "index.html", "x/../keys"):
            self.assertEqual(self.refusal("GET", path), (404, "NOT_FOUND"), path)

    def test_methods(self) -> None:
        """A path with another method names those that it supports, without a session, too."""
        reply = self.send("PUT", "session")
        self.assertEqual((reply.status, reply.json["error"]), (405, "METHOD_NOT_ALLOWED"))
        self.assertEqual(reply.headers["Allow"], "POST, GET, DELETE, HEAD")
        self.assertEqual(reply.json["message"], "This path supports POST, GET, DELETE, HEAD")
        for operation in OPERATIONS:
            path = operation.path.replace("{", "").replace("}", "")
            reply = self.send("OPTIONS", path)
            self.assertEqual(reply.status, 405, path)
            self.assertIn(operation.method, reply.headers["Allow"].split(", "), path)
        self.assertEqual(self.call("HEAD", "session").status, 200)
        self.assertEqual(self.call("HEAD", "doctor").status, 405)

    def test_segments(self) -> None:
        """A parameter is neither empty nor malformed; a tilde escapes one dot or two."""
        bucket = self.makeBucket()
        for segment in ("", "%", "%zz", "%ff"):
            for path in (f"buckets/{bucket}/objects/{segment}", f"keys/{segment}/judge"):
                method = "POST" if path.endswith("judge") else "GET"
                self.assertEqual(self.refusal(method, path), (400, "INVALID_ARGUMENT"), path)
        objects = f"buckets/{bucket}/objects/"
        for escaped, key in (
            ("~.", "."),
            ("~..", ".."),
            ("~~.", "~."),
            ("~", "~"),
            ("a%2Fb", "a/b"),
        ):
            self.assertEqual(self.call("PUT", objects + escaped, b"x").json["key"], key)
        self.assertEqual(self.call("GET", "buckets//objects").status, 400)

    def test_unknownNames(self) -> None:
        """A parameter or a field that an operation does not have is refused before it acts."""
        bucket = self.makeBucket()
        path = f"buckets/{bucket}/objects/k"
        self.call("PUT", path, b"before")
        wrong = (400, "INVALID_ARGUMENT")
        for method, place in (
            ("GET", "jobs?other=1"),
            ("GET", f"buckets/{bucket}/objects?other=1"),
            ("PUT", f"{path}?versionId=x"),
            ("DELETE", f"{path}?version=x"),
        ):
            self.assertEqual(self.refusal(method, place), wrong, place)
        self.assertEqual(self.call("GET", f"{path}?bytes").body, b"before")
        for operation in OPERATIONS:
            for kind in {"query", "body"} & operation.types.keys():
                config = getattr(operation.types[kind], "__struct_config__", None)
                isStrict = config is None or config.forbid_unknown_fields
                self.assertTrue(isStrict, f"{operation.name}: {kind}")

    def test_documents(self) -> None:
        """A document has any media type; none, null and another type are refused by their field."""
        for body in (b"", b"null", b"[]", b"{", b"7"):
            self.assertEqual(self.refusal("POST", "buckets", body), (400, "INVALID_ARGUMENT"), body)
        reply = self.call("POST", "buckets", b'{"name": 7}', Content_Type="text/plain")
        self.assertEqual(
            reply.json["details"], [{"path": "name", "message": "expected str, got int"}]
        )
        reply = self.call("GET", "buckets?limit=x")
        self.assertEqual(
            reply.json,
            {
                "error": "INVALID_ARGUMENT",
                "message": "limit must be an integer",
                "details": [{"path": "limit", "message": "must be an integer"}],
            },
        )
        self.assertEqual(self.refusal("GET", "buckets?more=1"), (400, "INVALID_ARGUMENT"))
        large = b'{"name": "' + b"x" * (1 << 20) + b'"}'
        self.assertEqual(self.refusal("POST", "buckets", large), (413, "PAYLOAD_TOO_LARGE"))

    def test_disconnect(self) -> None:
        """A change whose client disconnects has a line, and is no error of the daemon."""
        target = f"{API}buckets/{self.makeBucket()}/objects/cut"
        fields = {"Host": "127.0.0.1", "Content-Length": "1000", **ROOT.plainHeaders()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        start = len(self.daemon.log)
        with socket.create_connection(self.admin, 60) as connection:
            connection.sendall(f"PUT {target} HTTP/1.1\r\n{head}\r\nabc".encode())
            Event().wait(0.1)
        end = time.monotonic() + 10
        while "console: putObject" not in self.daemon.log[start:]:
            self.assertLess(time.monotonic(), end)
            Event().wait(0.02)
        written = self.daemon.log[start:]
        self.assertIn(": CANCELLED\n", written)
        self.assertNotIn("putObject failed", written)
