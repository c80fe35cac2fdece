"""A UserService on a real file, called as the wires call it."""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import TestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.services.users import makeUserService
from storagegate.services.usertable import SQLiteUserStore

NOW = 1_700_000_000.0
FIRST = "2023-11-14T22:13:20.000000Z"
"""The time that users see first."""

UNKNOWN = "0" * 32

ADA: dict[str, Any] = {
    "name": "Ada Lovelace",
    "email": "ada@example.org",
    "phone": "+44 20 7946 0000",
    "address": {"street": "12 St James's Square", "city": "London", "country": "UK"},
    "roles": ["admin", "author"],
}


class Requests:
    """A client's stream: what is put in, then an end or an error."""

    def __init__(self, items: Iterable[Any] = (), ended: bool = False) -> None:
        self._items = list(items)
        self._ended = ended
        self._error: Exception | None = None
        self._waiting: Deferred[None] | None = None
        self.read = 0

    def put(self, *items: Any) -> None:
        """Send more."""
        self._items += items
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Send no more."""
        self._ended, self._error = True, error
        self._wake()

    @property
    def isAwaited(self) -> bool:
        """Return whether a reader waits for the next one."""
        return self._waiting is not None and not self._waiting.called

    def __aiter__(self) -> "Requests":
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiting = Deferred()
            await self._waiting
        # Some streams give even what they have by way of a Deferred.
        await succeed(None)
        self.read += 1
        return self._items.pop(0)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.called:
            self._waiting.callback(None)


def ended(*items: Any) -> Requests:
    """Give a client's stream that has all that comes."""
    return Requests(items, ended=True)


def contextOf(method: str) -> RequestContext:
    """Make the context of a call."""
    return RequestContext("grpc", "UserService", method, ClientInfo("a", "a", 1), Tracing("0" * 32))


class UserCase(TestCase):
    """A test with a store in a file and a service on it."""

    timeout = 60

    def setUp(self) -> None:
        """Make both."""
        self.directory = os.path.abspath(self.mktemp())
        self.path = os.path.join(self.directory, "users.sqlite")
        self.now = NOW
        self.store = self.makeStore()
        self.definition = makeUserService(self.store, now=lambda: self.now)

    def makeStore(self, **options: Any) -> SQLiteUserStore:
        """Make a store on the file; it is closed in the end."""
        from twisted.internet import reactor

        store = SQLiteUserStore(self.path, reactor, **options)
        self.addCleanup(store.close)
        return store

    def query(self, statement: str) -> Any:
        """Do something to the file as another program would; give the first row."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(statement).fetchone()
        finally:
            connection.close()

    def call(self, method: str, request: Any) -> Any:
        """Call a method as a wire does."""
        return self.definition.methods[method].handler(request, contextOf(method))

    async def stream(self, method: str, request: Any) -> list[Any]:
        """Call a method and read all of its responses."""
        items: AsyncIterator[Any] = self.call(method, request)
        return [item async for item in items]

    async def create(self, **changes: Any) -> dict[str, Any]:
        """Create a user."""
        created: dict[str, Any] = await self.call("CreateUser", {**ADA, **changes})
        return created

    async def refused(self, method: str, request: Any) -> ServiceError:
        """Give the error of a call, unary or of a stream of responses."""
        called = self.call(method, request)
        try:
            await (anext(called) if hasattr(called, "__anext__") else called)
        except ServiceError as error:
            return error
        raise self.failureException(f"{method} took {request!r:.100}")

    async def mistakes(self, method: str, request: Any) -> list[str]:
        """Give the paths of what is wrong with a request."""
        error = await self.refused(method, request)
        self.assertEqual((error.code, error.statusCode), ("INVALID_ARGUMENT", 400))
        self.assertEqual(error.grpcStatus, 3)
        for violation in error.details:
            self.assertEqual(sorted(violation), ["message", "path"])
            self.assertIn(violation["message"], error.message)
        return [violation["path"] for violation in error.details]
