"""What tests of standard requests have in common."""

from collections.abc import AsyncIterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate import server
from storagegate.http import Response
from storagegate.http.options import Runtime


async def pieces(*chunks: Any) -> AsyncIterator[Any]:
    """Give chunks."""
    for chunk in chunks:
        yield chunk


class AsyncCase(SynchronousTestCase):
    """A test that may await what does not wait."""

    def got(self, awaitable: Any) -> Any:
        """Give the result of something that has it already."""
        return self.successResultOf(Deferred.fromCoroutine(awaitable))

    def raised(self, kind: type[Exception], awaitable: Any) -> Any:
        """Give the error of something that has failed already."""
        return self.failureResultOf(Deferred.fromCoroutine(awaitable), kind).value


class FetchCase(AsyncCase):
    """A test with an application whose time stands still."""

    def setUp(self) -> None:
        """Make an application."""
        self.clock = Clock()
        self.app = server.http()
        self.app.runtime = Runtime(self.clock, self.notThreads)
        self.fetch = self.app.createFetchHandler()

    def notThreads(self, function: Any, *arguments: Any) -> Any:
        """Refuse: none of these applications needs a thread."""
        raise AssertionError("a thread was wanted")

    def started(self, request: Any) -> Deferred[Response]:
        """Begin to ask for something."""
        return Deferred.fromCoroutine(self.fetch(request))

    def turn(self) -> None:
        """Let a turn of the reactor pass."""
        self.clock.advance(0)
