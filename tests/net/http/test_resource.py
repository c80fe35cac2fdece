"""From render to coroutine and back."""

from contextvars import ContextVar
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web import server
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from zope.interface.verify import verifyObject

from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import CoroutineResource
from tests.net.support import Boom, TestSite, describeError, head, hello, statuses

GET = head()


class CoroutineTests(SynchronousTestCase):
    """Handlers."""

    def test_interfaces(self) -> None:
        """The bridge is a resource, and what it renders provides the stock interface."""
        resource = CoroutineResource(hello, describeError)
        verifyObject(IResource, resource)
        self.assertIs(resource.getChildWithDefault(b"x", None), resource)
        self.assertRaises(TypeError, resource.putChild, b"x", resource)
        site = TestSite(hello)
        site.connect().send(GET)
        self.assertTrue(IRequest.providedBy(site.requests[0]))

    def test_notDoneYet(self) -> None:
        """C{render} says what Twisted says for an answer that comes later."""
        site = TestSite(hello)
        site.connect().send(GET)
        self.assertIs(
            CoroutineResource(lambda r: hello(r), describeError).render(_Answerable()),  # type: ignore[arg-type]
            server.NOT_DONE_YET,
        )

    def test_waits(self) -> None:
        """A handler may wait, for Deferreds that have fired and for those that will."""
        later: Deferred[int] = Deferred()
        seen: list[int] = []

        async def handle(request: ChannelRequest) -> None:
            fired: Deferred[int] = Deferred()
            fired.callback(1)
            seen.append(await fired)
            seen.append(await later)
            request.respond(200, [])

        connection = TestSite(handle).connect()
        self.assertEqual(connection.send(GET), b"")
        later.callback(2)
        self.assertEqual(statuses(connection.received()), [200])
        self.assertEqual(seen, [1, 2])
        self.assertEqual(self.successResultOf(later), 2)

    def test_notADeferred(self) -> None:
        """A handler that waits for something else gets an error, and the client an answer."""

        class Odd:
            def __await__(self) -> Any:
                yield 1

        async def handle(request: ChannelRequest) -> None:
            await Odd()

        self.assertEqual(statuses(TestSite(handle).connect().send(GET)), [500])
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_contexts(self) -> None:
        """What a handler keeps in a context variable stays its own, across its waits."""
        variable: ContextVar[bytes] = ContextVar("variable", default=b"-")
        turns: list[Deferred[None]] = []

        async def handle(request: ChannelRequest) -> None:
            variable.set(request.path)
            turn: Deferred[None] = Deferred()
            turns.append(turn)
            await turn
            request.respond(200, [], variable.get())

        site = TestSite(handle)
        first, second = site.connect(), site.connect()
        first.send(head(line=b"GET /1 HTTP/1.1"))
        second.send(head(line=b"GET /2 HTTP/1.1"))
        self.assertEqual(variable.get(), b"-")
        for turn in turns:
            turn.callback(None)
        self.assertTrue(first.received().endswith(b"/1"))
        self.assertTrue(second.received().endswith(b"/2"))


class ErrorTests(SynchronousTestCase):
    """Handlers that fail."""

    def test_atOnce(self) -> None:
        """An exception becomes the response it is described as, and a 500 is logged."""

        async def handle(request: ChannelRequest) -> None:
            raise Boom()

        connection = TestSite(handle).connect()
        answered = connection.send(GET)
        self.assertEqual(statuses(answered), [500])
        self.assertIn(b"X-Error: Boom", answered)
        self.assertFalse(connection.closed)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_later(self) -> None:
        """So does one that comes out of a wait."""

        async def handle(request: ChannelRequest) -> None:
            await later

        later: Deferred[None] = Deferred()
        connection = TestSite(handle).connect()
        connection.send(GET)
        later.errback(Boom())
        self.assertEqual(statuses(connection.received()), [500])
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_expected(self) -> None:
        """What is described as anything but a 500 is an answer, not news."""

        async def handle(request: ChannelRequest) -> None:
            raise Boom()

        site = TestSite(handle)
        site.site.resource = CoroutineResource(handle, lambda request, error: (404, [], b"gone"))
        self.assertEqual(statuses(site.connect().send(GET)), [404])

    def test_afterStart(self) -> None:
        """After bytes were sent there is no second answer: the connection is dropped."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)
            raise Boom()

        connection = TestSite(handle).connect()
        self.assertEqual(statuses(connection.send(GET)), [200])
        self.assertTrue(connection.aborted)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_afterEnd(self) -> None:
        """After the response an exception is only logged."""

        async def handle(request: ChannelRequest) -> None:
            request.respond(200, [])
            raise Boom()

        connection = TestSite(handle).connect()
        self.assertEqual(statuses(connection.send(GET)), [200])
        self.assertFalse(connection.closed)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    def test_noResponse(self) -> None:
        """A handler that returns without a response is a bug: 500, logged."""

        async def handle(request: ChannelRequest) -> None:
            pass

        self.assertEqual(statuses(TestSite(handle).connect().send(GET)), [500])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_halfResponse(self) -> None:
        """One that returns in the middle of its response gets its connection dropped."""

        async def handle(request: ChannelRequest) -> None:
            request.begin(200, [], None)

        connection = TestSite(handle).connect()
        connection.send(GET)
        self.assertTrue(connection.aborted)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_descriptionFails(self) -> None:
        """If not even the error can be described, both are logged and nothing is answered."""

        async def handle(request: ChannelRequest) -> None:
            raise Boom()

        def describe(request: ChannelRequest, error: Exception) -> Any:
            raise ZeroDivisionError()

        site = TestSite(handle)
        site.site.resource = CoroutineResource(handle, describe)
        connection = site.connect()
        self.assertEqual(connection.send(GET), b"")
        self.assertTrue(connection.aborted)
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class DisconnectTests(SynchronousTestCase):
    """Clients that go away while a handler works."""

    def test_cancelled(self) -> None:
        """What the handler waits for is cancelled, it may clean up, and nothing is logged."""
        cancelled: list[Any] = []
        cleaned: list[bool] = []
        later: Deferred[None] = Deferred(cancelled.append)

        async def handle(request: ChannelRequest) -> None:
            try:
                await later
            finally:
                cleaned.append(True)

        connection = TestSite(handle).connect()
        connection.send(GET)
        connection.lose()
        self.assertEqual(cancelled, [later])
        self.assertEqual(cleaned, [True])

    def test_stubborn(self) -> None:
        """A handler that goes on after that can wait and end, but reaches nobody."""
        first: Deferred[None] = Deferred()
        second: Deferred[None] = Deferred()

        async def handle(request: ChannelRequest) -> None:
            try:
                await first
            except CancelledError:
                await second
            request.respond(200, [])

        connection = TestSite(handle).connect()
        connection.send(GET)
        connection.lose()
        second.callback(None)
        self.assertEqual(connection.received(), b"")

    def test_ownFailure(self) -> None:
        """A bug in the cleaning up is logged."""

        async def handle(request: ChannelRequest) -> None:
            try:
                await Deferred()
            finally:
                raise Boom()

        connection = TestSite(handle).connect()
        connection.send(GET)
        connection.lose()
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)


class _Answerable(ChannelRequest):
    """A request that swallows its answer."""

    def __init__(self) -> None:
        self.finished = True

    def respond(self, *arguments: Any) -> None:
        """Do nothing."""
