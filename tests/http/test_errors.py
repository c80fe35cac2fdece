"""Errors without words, and errors that are none."""

from typing import Any

from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import HTTPError
from storagegate.http.testing import Client


class ErrorTests(SynchronousTestCase):
    """What is answered and logged."""

    def setUp(self) -> None:
        """Make an application."""
        self.app = server.http()
        self.client = Client(self.app)

    def test_noMessage(self) -> None:
        """An error without words has those of its status."""
        self.app.get("/a", lambda req, res, next: next(HTTPError(404)))
        self.app.get("/b", lambda req, res, next: next(HTTPError(499)))
        self.assertEqual(self.client.get("/a").json(), {"error": "Not Found"})
        self.assertEqual(self.client.get("/b").json(), {"error": "Error 499"})
        self.assertRaises(ValueError, HTTPError, 200)

    def test_noException(self) -> None:
        """What is no exception is a 500 too, and logged as one would be."""
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.app.get("/", lambda req, res, next: next("oops"))
        self.assertEqual(self.client.get("/").json(), {"error": "Internal Server Error"})
        logged = [event for event in events if event["log_level"] is LogLevel.critical]
        self.assertIn("oops", formatEvent(logged[0]))

    def test_named(self) -> None:
        """The log names the request, without its query, which may have secrets."""
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.app.get("/broken/:what", lambda req, res: 1 / 0)
        self.client.get("/broken/%7Bx%7D?token=secret")
        [logged] = [event for event in events if event["log_level"] is LogLevel.critical]
        self.assertEqual(formatEvent(logged), "GET /broken/%7Bx%7D: a handler failed")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
