"""What the catalog does in the pool's threads, and the connections that it has there."""

from collections.abc import Callable
from sqlite3 import Connection
from threading import local
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed

from storagegate.storage.errors import StoreBusy

T = TypeVar("T")


class PoolReaders:
    """
    One connection for each thread that reads. Methods: reactor thread, unless they say otherwise.

    @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
    @param connect: Opens a connection.
    """

    def __init__(
        self, run: Callable[..., Deferred[Any]], connect: Callable[[], Connection]
    ) -> None:
        self._run = run
        self._connect = connect
        self._mine = local()
        self._all: list[Connection] = []
        self._busy = 0
        self._closed: Deferred[None] | None = None

    def read(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Call C{function(connection, *arguments)} in a thread."""
        return self.run(self._readHere, function, arguments)

    def run(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Call a function in a thread; L{close} waits for it."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        self._busy += 1
        return self._run(function, *arguments).addBoth(self._ended)

    def close(self) -> Deferred[None]:
        """Wait for what is under way, then close the connections. Once."""
        self._closed = Deferred() if self._busy else succeed(None)
        return self._closed.addCallback(self._closeAll)

    def _readHere(self, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        """Read with this thread's connection. Pool thread."""
        connection: Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._connect()
            self._all.append(connection)
        return function(connection, *arguments)

    def _ended(self, result: T) -> T:
        self._busy -= 1
        if not self._busy and self._closed is not None:
            self._closed.callback(None)
        return result

    def _closeAll(self, _: None) -> None:
        for connection in self._all:
            connection.close()
        self._all.clear()
