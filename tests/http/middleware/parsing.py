"""Bodies sent to an application without a socket, and what a parser made of them."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.application import Application
from storagegate.http.errors import HTTPError
from storagegate.http.options import Runtime
from storagegate.http.resource import describeRejection
from storagegate.net.http.site import Site
from tests.net.support import Connection, head, statuses

POST = b"POST / HTTP/1.1"


class Exchange:
    """
    An application with one parser or several, and one connection to it.

    @ivar bodies: C{req.body} of every request that came through.
    @ivar errors: The errors that parsers raised.
    @ivar jobs: The names of the functions that ran in a thread.
    """

    def __init__(self, *parsers: Callable[..., Any], **options: Any) -> None:
        self.bodies: list[Any] = []
        self.errors: list[Any] = []
        self.jobs: list[Callable[..., Any]] = []
        clock = Clock()
        self.app = Application().withOptions(**options)
        self.app.runtime = Runtime(clock, self._run)
        for parser in parsers:
            self.app.use(parser)
        self.app.use(self._answer)
        self.app.use(self._refuse)
        site = Site(self.app.resource, self.app.settings.limits(), clock, describeRejection)
        self.connection = Connection(site)

    def send(self, body: bytes, *fields: bytes) -> int:
        """Send a whole request and give the status of the answer."""
        length = b"Content-Length: %d" % len(body)
        return self.sendWire(head(length, *fields, line=POST) + body)

    def sendWire(self, *pieces: bytes) -> int:
        """Send bytes and give the status of the one answer; 0 if there is none."""
        found = statuses(self.connection.send(*pieces))
        return found[-1] if found else 0

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        self.jobs.append(getattr(function, "func", function))
        return execute(function, *arguments)

    def _answer(self, req: Any, res: Any) -> None:
        self.bodies.append(req.body)
        res.end()

    def _refuse(self, error: Any, req: Any, res: Any, next: Callable[..., Any]) -> None:
        self.errors.append(error)
        res.status(getattr(error, "statusCode", 500)).end()


class ParserCase(SynchronousTestCase):
    """A test case that says what parsers should make of bodies."""

    def parsed(self, parser: Callable[..., Any], body: bytes, *fields: bytes) -> Any:
        """Give what becomes of one body that is taken."""
        exchange = Exchange(parser)
        self.assertEqual((exchange.send(body, *fields), exchange.errors), (200, []))
        return exchange.bodies[0]

    def refused(
        self, parser: Callable[..., Any], status: int, code: str, body: bytes, *fields: bytes
    ) -> Any:
        """Check that one body is refused, and give the error."""
        exchange = Exchange(parser)
        self.assertEqual((exchange.send(body, *fields), exchange.bodies), (status, []))
        error = exchange.errors[0]
        assert isinstance(error, HTTPError)
        self.assertEqual((error.statusCode, error.code), (status, code))
        return error
