"""Bodies that still arrive when their request ends."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.task import fromCoroutine
from storagegate.net.http.interfaces import BodyLost
from storagegate.net.http.message import ChannelRequest
from tests.net.support import Connection, TestSite, head


class LostBodyTests(SynchronousTestCase):
    """A reader of a body gets all of it, or an error; it never waits for ever."""

    def begin(self, length: int = 10) -> tuple[Connection, ChannelRequest, Deferred[Any]]:
        """Send half of a body, and begin to read all of it beside the handler."""

        async def handle(request: ChannelRequest) -> None:
            await Deferred()

        site = TestSite(handle)
        connection = site.connect()
        connection.send(head(b"Content-Length: %d" % length, line=b"POST / HTTP/1.1"), b"half-")
        request = site.requests[0]
        reading = fromCoroutine(request.body.read(2_000_000_000))
        self.assertNoResult(reading)
        return connection, request, reading

    def test_answered(self) -> None:
        """After the response the reader gets an error, and the next request is served."""
        connection, request, reading = self.begin()
        request.respond(503, [], b"late")
        self.failureResultOf(reading, BodyLost)
        connection.send(b"rest.", head())
        self.assertFalse(connection.closed)
        self.failureResultOf(fromCoroutine(request.body.read(10)), BodyLost)

    def test_answeredInParts(self) -> None:
        """The end of a response in parts counts, not its head."""
        _, request, reading = self.begin()
        request.begin(200, [], None)
        self.assertNoResult(reading)
        request.finish()
        self.failureResultOf(reading, BodyLost)

    def test_answeredAndClosed(self) -> None:
        """So does a response after which the connection closes: too much is to come."""
        connection, request, reading = self.begin(length=1_000_000_000)
        request.respond(503, [], b"late")
        self.assertTrue(connection.closed)
        self.failureResultOf(reading, BodyLost)

    def test_aborted(self) -> None:
        """A response to a connection that is aborted already wakes the reader, too."""
        connection, request, reading = self.begin()
        request.abort()
        connection.lose()
        self.failureResultOf(reading, BodyLost)

    def test_taken(self) -> None:
        """A connection that another protocol takes over brings no body any more."""
        _, request, reading = self.begin()
        request.takeTransport()
        self.failureResultOf(reading, BodyLost)

    def test_handler(self) -> None:
        """A handler that reads on after its response fails without a traceback in the log."""
        ended: list[str] = []

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [], b"early")
            try:
                async for _ in request.body:
                    pass
            finally:
                ended.append("reader")

        TestSite(handle).connect().send(head(b"Content-Length: 10"), b"half-")
        self.assertEqual(ended, ["reader"])

    def test_held(self) -> None:
        """What a reader has kept leaves the budget at the response, and does not come back."""
        connection, request, reading = self.begin()
        budget = connection.channel.owner.budget
        before = budget.total
        connection.send(b"mor")
        self.assertEqual(budget.total, before + 3)
        request.respond(200, [], b"")
        self.failureResultOf(reading, BodyLost)
        request.body.hold(8)
        self.assertEqual(budget.total, before - 5)

    def test_endAfterwards(self) -> None:
        """A callback for the end of a request that has ended is called at once."""
        _, request, reading = self.begin()
        request.respond(200, [], b"")
        self.failureResultOf(reading, BodyLost)
        called: list[bool] = []
        request.onEnd(lambda: called.append(True))
        self.assertEqual(called, [True])
