"""
Stores for the counts of rate limits: in the memory of one process, or shared by all processes of a
machine.

A window begins with the first request of a key and ends C{windowMs} later; later requests do not
extend it. The shared store is exact: a limit of a hundred requests admits a hundred, whichever
process receives them. A process that finds a count locked does not wait: it counts locally on top
of the value that it reads, and adds its own count once the lock is free.

A store for several machines needs a server; it implements L{IRateLimitStore}.

A limit without a store of its own gets one from L{makeRateStore}. In a worker, that store is shared
by all workers of the program.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from math import floor
from typing import TYPE_CHECKING

from attrs import define
from zope.interface import Interface, implementer

from storagegate.core.cache import TTLCache

if TYPE_CHECKING:
    # A single process does not import it.
    from storagegate.core.sharedtable import Change, SharedTable

Count = tuple[int, float]
"""The requests of a window, and its end, in seconds since 1970."""

RateStoreMaker = Callable[[str, float], "IRateLimitStore"]
"""
C{rateStore(name, windowMs)} makes a store. C{name} is unique and stable, so that all processes find
the shared counts.
"""

MAX_KEYS = 100_000
"""
The maximum number of keys of a store in memory, about 25 MB: it bounds a flood of invented keys.
"""


class IRateLimitStore(Interface):
    """
    Counts by key.

    Every method may return its result or an awaitable of it; a synchronous one avoids the overhead
    of coroutines.

    A store on a server such as Valkey must give the same guarantees: C{increment} is one atomic
    step that adds one and, only if the result is one, sets the expiry (a script, or C{INCR} and
    C{PEXPIRE NX} in one transaction), so that two machines never begin the same window, and every
    window has an end. It returns within the time that a request may take, and handles the outage of
    its server: its exceptions fail the request.
    """

    def increment(key: str) -> Count | Awaitable[Count]:
        """
        Count a request; begin a window if the key has no open one.

        @return: The requests of this window, including this one, and the end of the window.
        """

    def decrement(key: str) -> Awaitable[None] | None:
        """Subtract one request. Does nothing if the key has no open window, or its count is 0."""

    def resetKey(key: str) -> Awaitable[None] | None:
        """Remove a key."""

    def get(key: str) -> Count | Awaitable[Count | None] | None:
        """Return the count of a key; C{None} if it has no open window."""


def checkWindow(windowMs: object) -> None:
    """
    Check the length of a window.

    @param windowMs: The length in milliseconds, of any type.
    @raise ValueError: If it is not a positive finite number.
    """
    isNumber = isinstance(windowMs, int | float) and not isinstance(windowMs, bool)
    if not isNumber or not 0 < windowMs < float("inf"):  # type: ignore[operator]
        raise ValueError(f"windowMs is a positive number of milliseconds, not {windowMs!r}")


@define
class _Window:
    end: float
    hits: int = 0


@implementer(IRateLimitStore)
class MemoryRateLimitStore:
    """
    Counts in the memory of this process.

    Each new window removes two expired ones, so that no request waits for a sweep. When C{maxKeys}
    windows are open, a new one replaces the oldest, whose key then starts again: a flood of
    invented keys locks no client out.

    @cvar isPerProcess: See L{storagegate.core.perprocess}.
    @cvar sharedBy: The store that processes share.
    """

    isPerProcess = True
    held = "counts of requests"
    sharedBy = "the default store, which workers share, or SharedRateLimitStore"

    def __init__(
        self,
        windowMs: float = 60_000,
        maxKeys: int = MAX_KEYS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Make an empty store.

        @param windowMs: The length of a window in milliseconds.
        @param maxKeys: The maximum number of keys.
        @param now: Returns seconds since 1970. By default, windows are measured by the monotonic
            clock; a replacement of C{time.time} also measures them.
        @raise ValueError: If a window has no length, or C{maxKeys} is less than one.
        """
        checkWindow(windowMs)
        if maxKeys < 1:
            raise ValueError(f"maxKeys is a positive number, not {maxKeys!r}")
        self._seconds = windowMs / 1000
        self._clock = time.monotonic if now is time.time else now
        self._windows: TTLCache[str, _Window] = TTLCache(maxKeys, self._clock, self._seconds)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._windows)

    def increment(self, key: str) -> Count:
        """Count a request, see L{IRateLimitStore.increment}."""
        window = self._windows.get(key)
        if window is None:
            window = _Window(self._clock() + self._seconds)
            self._windows.put(key, window, window.end)
        window.hits += 1
        return window.hits, _dateOf(window.end, self._clock)

    def decrement(self, key: str) -> None:
        """Subtract one request."""
        window = self._windows.get(key)
        if window is not None and window.hits:
            window.hits -= 1

    def resetKey(self, key: str) -> None:
        """Remove a key."""
        self._windows.pop(key)

    def get(self, key: str) -> Count | None:
        """Return the count of a key; C{None} if it has no open window."""
        window = self._windows.get(key)
        return None if window is None else (window.hits, _dateOf(window.end, self._clock))


def _dateOf(end: float, clock: Callable[[], float]) -> float:
    """
    Return the end of a window as seconds since 1970, in whole milliseconds.

    @param clock: The clock of C{end}; any clock except C{time.monotonic} already counts from 1970.
    """
    if clock is not time.monotonic:
        return end
    # In this order and rounded down, so that no window appears longer than it is.
    now = time.time()
    return floor((now + end - time.monotonic()) * 1000) / 1000


ROWS = 200_000
"""
Rows of the daemon's table, twice the number of keys of a store in memory: 10 MB, of which only used
pages take memory.
"""

_BYTES = 8


def makeRateMemory(rows: int = ROWS) -> int:
    """
    Create the shared memory of rate limits.

    @param rows: The minimum number of rows.
    @return: Its descriptor, see L{SharedTable.make}.
    """
    from storagegate.core.sharedtable import SharedTable

    return SharedTable.make("storagegate-rates", rows, _BYTES)


def sharedRateStores(fd: int) -> Callable[[str, float], "SharedRateLimitStore"]:
    """
    Return the factory of stores for an L{Invoker<storagegate.core.invoker.Invoker>}, which share
    one table.

    @param fd: The descriptor of L{makeRateMemory}.
    @raise ValueError: If the descriptor holds no table.
    """
    from storagegate.core.sharedtable import SharedTable

    table = SharedTable(fd)
    return lambda name, windowMs: SharedRateLimitStore(table, windowMs, name)


_workers: RateStoreMaker | None = None

_numbers = count(1)


def shareRates(fd: int) -> None:
    """
    Make L{makeRateStore} return stores that all workers of the program share.

    @param fd: The descriptor of L{makeRateMemory}.
    """
    global _workers
    _workers = sharedRateStores(fd)


def nextRateName(kind: str) -> str:
    """
    Return the name of the next limit of this process that has no other name. All workers run the
    same program, so the names are the same in each.

    @param kind: The kind of the limit, such as C{HTTP}.
    """
    return f"{kind} {next(_numbers)}"


def makeRateStore(
    name: str, windowMs: float, now: Callable[[], float] = time.time
) -> IRateLimitStore:
    """
    Make the store of a limit that has no store of its own.

    @param name: The name of the limit in all workers.
    @param now: Returns seconds since 1970, for a store in memory.
    """
    if _workers is not None:
        return _workers(name, windowMs)
    return MemoryRateLimitStore(windowMs, now=now)


@implementer(IRateLimitStore)
class SharedRateLimitStore:
    """
    Counts in a shared table, synchronously.

    A key is stored as a digest, whatever its length. In a full bucket of the table, a new window
    replaces the one that ends first.
    """

    def __init__(self, table: "SharedTable", windowMs: float = 60_000, prefix: str = "") -> None:
        """
        Share the counts of all processes that use the same prefix and window.

        @param windowMs: The length of a window in milliseconds.
        @param prefix: The name of this store in the table.
        @raise ValueError: If a window has no length, or the records of the table are too small.
        """
        from storagegate.core.sharedtable import TableBusy

        checkWindow(windowMs)
        if table.size < _BYTES:
            raise ValueError(f"counts take {_BYTES} bytes; the table has records of {table.size}")
        self._table = table
        self._busy = TableBusy
        self._seconds = windowMs / 1000
        self._prefix = f"{prefix}\0{float(windowMs)!r}\0".encode()
        # On the clock of the table, which may be monotonic: only its counts are used, and its end
        # while the table is busy.
        self._own = MemoryRateLimitStore(windowMs, now=table.now)

    def increment(self, key: str) -> Count:
        """Count a request, see L{IRateLimitStore.increment}."""
        name, apart = self._digested(key), self._apart(key)
        try:
            change = self._table.change(name, partial(self._add, 1 + apart))
        except self._busy:
            return self._together(self._own.increment(key), self._table.peek(name))
        if apart:
            self._own.resetKey(key)
        assert change is not None
        return self._count(change)

    def decrement(self, key: str) -> None:
        """Subtract one request."""
        if self._apart(key):
            self._own.decrement(key)
            return
        try:
            self._table.change(self._digested(key), _takeBack)
        except self._busy:
            # The count stays one too high until the window ends, which is better than one too low.
            return

    def resetKey(self, key: str) -> None:
        """Remove a key."""
        self._own.resetKey(key)
        try:
            self._table.change(self._digested(key), _takeOut)
        except self._busy:
            # The count ends with its window.
            return

    def get(self, key: str) -> Count | None:
        """Return the count of a key; C{None} if it has no open window."""
        name, own = self._digested(key), self._own.get(key)
        try:
            found = self._table.read(name)
        except self._busy:
            found = self._table.peek(name)
        if own is not None:
            return self._together(own, found)
        return None if found is None else self._count(found)

    def _apart(self, key: str) -> int:
        """Return how many requests of an open window are not yet in the table."""
        own = self._own.get(key) if self._own else None
        return 0 if own is None else own[0]

    def _digested(self, key: str) -> bytes:
        # A key from a user's function may contain a lone surrogate.
        return self._prefix + key.encode("utf-8", "surrogatepass")

    def _add(self, hits: int, record: bytes | None, until: float, now: float) -> "Change":
        if record is None:
            return hits.to_bytes(_BYTES, "little"), now + self._seconds
        return (int.from_bytes(record, "little") + hits).to_bytes(_BYTES, "little"), until

    def _count(self, record: "Change") -> Count:
        return int.from_bytes(record[0], "little"), _dateOf(record[1], self._table.now)

    def _together(self, own: Count, shared: "Change | None") -> Count:
        """Add the count of this process to the table's count, whose window applies."""
        if shared is None:
            return own
        hits, until = self._count(shared)
        return own[0] + hits, until


def _takeBack(record: bytes | None, until: float, now: float) -> "Change | None":
    if record is None or not any(record):
        return None
    return (int.from_bytes(record, "little") - 1).to_bytes(_BYTES, "little"), until


def _takeOut(record: bytes | None, until: float, now: float) -> "Change | None":
    return None if record is None else (b"", 0.0)
