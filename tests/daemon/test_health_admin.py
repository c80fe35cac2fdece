"""What the admin listener answers."""

import json

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.health import (
    ALL,
    NO_DETAILS,
    NO_PATHS,
    MetricsGate,
    Readiness,
    describeError,
    respond,
)


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
        code, document = self.ask(b"/readyz", Readiness("draining", "the daemon is stopping"))
        self.assertEqual(code, 503)
        self.assertEqual(
            document, {"status": "draining", "error": "the daemon is stopping", "parts": {}}
        )

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


class DetailTests(SynchronousTestCase):
    """What of the readiness a request may see."""

    wrong = Readiness(
        "unavailable",
        "blobs: [Errno 13] Permission denied: '/srv/my data/blobs/x'",
        {
            "blobs": "[Errno 13] Permission denied: '/srv/my data/blobs/x'",
            "catalog": "/var/lib/storagegate/catalog.sqlite is gone; see https://example.com/a/b",
        },
        {"certificate of s3": "/etc/ssl/key.pem ends on 2030-01-01"},
    )

    def body(self, details: int) -> str:
        """Return the document that shows so much."""
        code, _, body = respond(b"GET", b"/readyz", lambda: self.wrong, details)
        self.assertEqual(code, 503)
        return body.decode()

    def test_paths(self) -> None:
        """Without a token no text names a path; the rest of it stays."""
        body = self.body(NO_PATHS)
        for each in ("srv", "my data", "/var", "/etc", "key.pem", "sqlite"):
            self.assertNotIn(each, body)
        document = json.loads(body)
        self.assertEqual(document["parts"]["blobs"], "[Errno 13] Permission denied: '...'")
        self.assertEqual(document["parts"]["catalog"], "... is gone; see https://example.com/a/b")
        self.assertEqual(document["warnings"], {"certificate of s3": "... ends on 2030-01-01"})
        self.assertIn("/srv/my data/blobs/x", self.body(ALL))

    def test_closed(self) -> None:
        """Where a token is needed, a request without it sees the status alone."""
        self.assertEqual(json.loads(self.body(NO_DETAILS)), {"status": "unavailable"})

    def test_gate(self) -> None:
        """The token opens; others do not, and are slowed down after some."""
        clock = Clock()
        gate = MetricsGate("t0ken-of-the-scraper", clock)
        check = self.successResultOf(Deferred.fromCoroutine(gate.check(None, "10.0.0.1")))
        self.assertIs(check, False)
        for field, expected in (
            (b"Bearer t0ken-of-the-scraper", True),
            (b"bearer  t0ken-of-the-scraper ", True),
            (b"Bearer t0ken-of-the-scrape", False),
            (b"Bearer", False),
            (b"Basic t0ken-of-the-scraper", False),
            (b"", False),
        ):
            found = self.successResultOf(Deferred.fromCoroutine(gate.check(field, "10.0.0.1")))
            self.assertIs(found, expected, field)
        self.assertEqual([gate.details(each) for each in (True, False)], [ALL, NO_DETAILS])
        for _ in range(200):
            Deferred.fromCoroutine(gate.check(b"Bearer x", "10.0.0.1"))
        waiting = Deferred.fromCoroutine(gate.check(b"Bearer x", "10.0.0.1"))
        self.assertNoResult(waiting)
        clock.pump([1.0] * 120)
        self.assertIs(self.successResultOf(waiting), False)

    def test_none(self) -> None:
        """Without a configured token none is taken, and nothing needs one."""
        gate = MetricsGate("", Clock())
        for field in (None, b"Bearer ", b"Bearer x"):
            found = self.successResultOf(Deferred.fromCoroutine(gate.check(field, "10.0.0.1")))
            self.assertIs(found, False)
        self.assertEqual((gate.isClosed, gate.details(False)), (False, NO_PATHS))
