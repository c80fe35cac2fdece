"""What the admin listener answers."""

import json

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.health import Readiness, describeError, respond


class AnswerTests(SynchronousTestCase):
    """The answers, without a socket."""

    def ask(
        self, path: bytes, readiness: Readiness | None = None, method: bytes = b"GET"
    ) -> tuple[int, object]:
        """Give status and document of an answer."""
        code, headers, body = respond(method, path, lambda: readiness or Readiness())
        self.assertIn((b"content-type", b"application/json"), headers)
        return code, json.loads(body)

    def test_alive(self) -> None:
        """A process that answers lives, whatever its parts say."""
        wrong = Readiness("unavailable", "catalog: gone", {"catalog": "gone"})
        self.assertEqual(self.ask(b"/healthz", wrong), (200, {"status": "ok"}))

    def test_ready(self) -> None:
        """A daemon whose parts are well is ready, and names them."""
        readiness = Readiness(parts={"catalog": None, "blobs": None})
        self.assertEqual(
            self.ask(b"/readyz", readiness),
            (200, {"status": "ok", "parts": {"catalog": "ok", "blobs": "ok"}}),
        )

    def test_notReady(self) -> None:
        """A part that is not well makes it 503, with the reason."""
        readiness = Readiness(
            "unavailable", "catalog: fsync failed", {"catalog": "fsync failed", "blobs": None}
        )
        self.assertEqual(
            self.ask(b"/readyz", readiness),
            (
                503,
                {
                    "status": "unavailable",
                    "error": "catalog: fsync failed",
                    "parts": {"catalog": "fsync failed", "blobs": "ok"},
                },
            ),
        )

    def test_warnings(self) -> None:
        """What an operator should look at is told without making the daemon unready."""
        both = Readiness("unavailable", "x", {"disk": "full"}, {"disk": "full"})
        self.assertNotIn(b"warnings", respond(b"GET", b"/readyz", lambda: both)[2])
        readiness = Readiness(warnings={"disk": "12 MiB are free", "damage": None})
        code, document = self.ask(b"/readyz", readiness)
        self.assertEqual(code, 200)
        self.assertEqual(
            document, {"status": "ok", "parts": {}, "warnings": {"disk": "12 MiB are free"}}
        )

    def test_draining(self) -> None:
        """A daemon that stops takes no new work."""
        code, document = self.ask(b"/readyz", Readiness("draining", "the daemon stops"))
        self.assertEqual(code, 503)
        self.assertEqual(document, {"status": "draining", "error": "the daemon stops", "parts": {}})

    def test_head(self) -> None:
        """A probe may ask by HEAD."""
        self.assertEqual(self.ask(b"/healthz", method=b"HEAD")[0], 200)

    def test_anythingElse(self) -> None:
        """Anything else is not there, and says so as JSON."""
        for method, path in (
            (b"GET", b"/"),
            (b"GET", b"/healthz/"),
            (b"GET", b"//readyz"),
            (b"POST", b"/healthz"),
            (b"DELETE", b"/readyz"),
        ):
            self.assertEqual(self.ask(path, method=method), (404, {"error": "not found"}))

    def test_notCached(self) -> None:
        """No proxy may keep an answer."""
        _code, headers, _body = respond(b"GET", b"/healthz", Readiness)
        self.assertIn((b"cache-control", b"no-store"), headers)

    def test_failure(self) -> None:
        """An error of our own tells nothing of itself."""
        code, _headers, body = describeError(None, ValueError("inside"))
        self.assertEqual((code, json.loads(body)), (500, {"error": "internal error"}))
