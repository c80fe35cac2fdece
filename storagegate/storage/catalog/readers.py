"""What the catalog does in the pool's threads, and the connections that it has there."""

from collections import deque
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed

from storagegate.storage.errors import StoreBusy

T = TypeVar("T")

READERS = 3
"""
Reads at a time: two lists, and one who checks or sweeps. A list is bound by the interpreter's lock:
sixteen at once were no faster than two, and each has some 3 MB in memory.
"""

WAITING = 2048
"""Reads that may wait: as many as the pool lets wait."""


@define(eq=False)
class _Read:
    """A read that waits or is under way."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    answer: Deferred[Any] = field(factory=Deferred)


@define(eq=False)
class _Seat:
    """A place for one reader; the connection stays for the next."""

    connection: Connection | None = None


class PoolReaders:
    """
    Reads in the pool, a few at a time. Methods: reactor thread, unless they say otherwise.

    @param run: C{run(function, *args)} calls in a thread and fires in the reactor thread.
    @param connect: Opens a connection.
    """

    def __init__(
        self, run: Callable[..., Deferred[Any]], connect: Callable[[], Connection]
    ) -> None:
        self._run = run
        self._connect = connect
        self._seats = [_Seat() for _ in range(READERS)]
        # The last one to be free is the next to be taken: its page cache is the warmest.
        self._free = list(self._seats)
        self._waiting: deque[_Read] = deque()
        self._seating = False
        self._busy = 0
        self._closed: Deferred[None] | None = None

    def read(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """
        Call C{function(connection, *arguments)} in a thread.

        To cancel it is to hear no more of it; a read that is under way goes on to its end.
        """
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        if len(self._waiting) >= WAITING:
            return fail(StoreBusy("too many lists wait"))
        read = _Read(function, arguments)
        self._waiting.append(read)
        self._seat()
        return read.answer

    def run(self, function: Callable[..., T], *arguments: object) -> Deferred[T]:
        """Call a function in a thread; L{close} waits for it."""
        if self._closed is not None:
            return fail(StoreBusy("the catalog is closed"))
        self._busy += 1
        return self._run(function, *arguments).addBoth(self._ended)

    def close(self) -> Deferred[None]:
        """Wait for what is under way, then close the connections. Once."""
        self._closed = Deferred() if self._busy else succeed(None)
        while self._waiting:
            self._waiting.popleft().answer.errback(StoreBusy("the catalog is closed"))
        return self._closed.addCallback(self._closeAll)

    def _seat(self) -> None:
        """Let those who wait take the seats that are free."""
        if self._seating:
            # A busy pool refuses at once: the seat is free again, and the loop below goes on.
            return
        self._seating = True
        while self._waiting and self._free:
            read = self._waiting.popleft()
            # Else nobody wants it any more.
            if not read.answer.called:
                seat = self._free.pop()
                self.run(self._readHere, seat, read).addBoth(self._leave, seat, read)
        self._seating = False

    def _readHere(self, seat: _Seat, read: _Read) -> Any:
        """Read with the seat's connection. Pool thread."""
        if seat.connection is None:
            seat.connection = self._connect()
        return read.function(seat.connection, *read.arguments)

    def _leave(self, result: Any, seat: _Seat, read: _Read) -> None:
        self._free.append(seat)
        self._seat()
        read.answer.callback(result)

    def _ended(self, result: T) -> T:
        self._busy -= 1
        if not self._busy and self._closed is not None:
            self._closed.callback(None)
        return result

    def _closeAll(self, _: None) -> None:
        for seat in self._seats:
            if seat.connection is not None:
                seat.connection.close()
                seat.connection = None
