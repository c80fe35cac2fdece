"""Whole bodies that are too large to be tagged in the reactor."""

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http.conditional import bodyTag
from storagegate.http.testing import Client

_SMALL = b"x" * 4 * 1024 * 1024
_LARGE = _SMALL + b"x"


class LargeBodyTests(SynchronousTestCase):
    """An application whose threads work when they are told to."""

    def setUp(self) -> None:
        """Make it."""
        self.app = server.http()
        self.client = Client(self.app)
        self.jobs: list[Deferred[Any]] = []
        self.app.runtime = evolve(self.app.runtime, run=self.run_)
        self.app.get("/small", lambda req, res: res.send(_SMALL))
        self.app.get("/large", lambda req, res: res.send(_LARGE))

    def run_(self, function: Any, *arguments: Any) -> Deferred[Any]:
        """Be the threads."""
        job: Deferred[Any] = Deferred()
        job.addCallback(lambda _: function(*arguments))
        self.jobs.append(job)
        return job

    def test_small(self) -> None:
        """A body of 4 MiB is tagged at once."""
        self.assertEqual(self.client.get("/small").headers.get("etag"), bodyTag(_SMALL))
        self.assertEqual(self.jobs, [])

    def test_large(self) -> None:
        """A larger one is tagged in a thread, then sent."""
        call = self.client.start("GET", "/large")
        self.assertIsNone(call.head)
        self.jobs[0].callback(None)
        self.assertEqual(call.response.headers.get("etag"), bodyTag(_LARGE))
        self.assertEqual(call.response.body, _LARGE)

    def test_fresh(self) -> None:
        """A client that has it gets a 304."""
        call = self.client.start("GET", "/large", headers={"If-None-Match": bodyTag(_LARGE)})
        self.jobs[0].callback(None)
        self.assertEqual((call.response.status, call.response.body), (304, b""))

    def test_second(self) -> None:
        """Meanwhile a response has already been sent."""
        errors: list[Exception] = []

        def twice(req: Any, res: Any) -> None:
            res.send(_LARGE)
            self.assertTrue(res.finished)
            try:
                res.send("again")
            except RuntimeError as error:
                errors.append(error)

        self.app.get("/twice", twice)
        call = self.client.start("GET", "/twice")
        self.jobs[0].callback(None)
        self.assertEqual(len(errors), 1)
        self.assertEqual(call.response.body, _LARGE)

    def test_lost(self) -> None:
        """A client that goes away meanwhile is nobody's error."""
        call = self.client.start("GET", "/large")
        call.disconnect()
        self.jobs[0].callback(None)

    def test_tagged(self) -> None:
        """A body that its handler has tagged needs no thread."""
        self.app.get("/tagged", lambda req, res: res.header("ETag", '"1"').send(_LARGE))
        self.assertEqual(self.client.get("/tagged").body, _LARGE)
        self.assertEqual(self.jobs, [])
