"""
Where a rate limit keeps its counts.

A window begins with the first request of a key and ends C{windowMs} later, whatever comes between.

There is a store for one process here and one for the processes of a machine in
L{storagegate.core.ratelimit}; one for several machines takes a server, and is what
L{IRateLimitStore} says.

The counts of rate limits in memory that the processes of one machine share.

Exact over all of them: a window that allows a hundred requests lets a hundred through, whichever
process they come to. A process that finds a count held by another one does not wait: it goes by
what it reads there and has counted itself, and adds that when the count is free again.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial

from attrs import define, field
from zope.interface import Interface, implementer

from storagegate.core.cache import TTLCache
from storagegate.core.sharedtable import Change, SharedTable, TableBusy

Count = tuple[int, float]
"""How many requests a window has seen, and when it ends, in seconds since 1970."""

RateStoreMaker = Callable[[str, float], "IRateLimitStore"]
"""
C{rateStore(name, windowMs)} makes a store: C{name} tells it from all others, today and after a
restart, so that processes which share their counts find each other's.
"""

MAX_KEYS = 100_000
"""Keys that a store in memory remembers: about 25 MB of them, whoever makes them up."""


class IRateLimitStore(Interface):
    """
    Counts by key.

    Every method may give its answer or something to wait for, a Deferred or a coroutine; one that
    answers at once keeps requests out of the coroutine machinery.

    What counts for several machines, in a server like Valkey, promises as much: C{increment} is one
    atomic step that adds one and, only if that makes one, sets the expiry (a script, or C{INCR} and
    C{PEXPIRE NX} in one transaction), so that two machines never begin the same window, and no
    window is left without an end. It answers within the time that a request may take, and knows by
    itself what to do while its server is away: an error that it gives is that of the request.
    """

    def increment(key: str) -> Count | Awaitable[Count]:
        """
        Count a request; begin a window if the key has none that is open.

        @return: The requests of this window, this one included, and when it ends.
        """

    def decrement(key: str) -> Awaitable[None] | None:
        """Take one request back. Does nothing if the key has no open window, or nothing in it."""

    def resetKey(key: str) -> Awaitable[None] | None:
        """Forget a key."""

    def get(key: str) -> Count | Awaitable[Count | None] | None:
        """Give the state of a key, C{None} if it has no open window."""


def checkWindow(windowMs: object) -> None:
    """
    Refuse a window that cannot be.

    @raise ValueError: If it has no length.
    """
    isNumber = isinstance(windowMs, int | float) and not isinstance(windowMs, bool)
    if not isNumber or not 0 < windowMs < float("inf"):  # type: ignore[operator]
        raise ValueError(f"windowMs is a positive number of milliseconds, not {windowMs!r}")


@define
class _Window:
    end: float
    hits: int = field(default=0)


@implementer(IRateLimitStore)
class MemoryRateLimitStore:
    """
    Counts in the memory of this process.

    Each new window clears two that have ended away, so there is never a sweep that requests
    wait for. When C{maxKeys} windows are open, the oldest one, which would have ended first, leaves
    for a new one: its key starts afresh, and nobody is locked out by a flood of made-up keys.
    """

    def __init__(
        self,
        windowMs: float = 60_000,
        maxKeys: int = MAX_KEYS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Make an empty store.

        @param now: Gives the time in seconds since 1970.
        @raise ValueError: If a window has no length, or there is no room for a single key.
        """
        checkWindow(windowMs)
        if maxKeys < 1:
            raise ValueError(f"maxKeys is a positive number, not {maxKeys!r}")
        self._seconds = windowMs / 1000
        self._now = now
        self._windows: TTLCache[str, _Window] = TTLCache(maxKeys, now, self._seconds)

    def __len__(self) -> int:
        """Count the keys that are remembered."""
        return len(self._windows)

    def increment(self, key: str) -> Count:
        """
        Count a request.

        @return: The requests of this window, this one included, and when it ends.
        """
        window = self._windows.get(key)
        if window is None:
            window = _Window(self._now() + self._seconds)
            self._windows.put(key, window, window.end)
        window.hits += 1
        return window.hits, window.end

    def decrement(self, key: str) -> None:
        """Take one request back."""
        window = self._windows.get(key)
        if window is not None and window.hits:
            window.hits -= 1

    def resetKey(self, key: str) -> None:
        """Forget a key."""
        self._windows.pop(key)

    def get(self, key: str) -> Count | None:
        """Give the state of a key, C{None} if it has no open window."""
        window = self._windows.get(key)
        return None if window is None else (window.hits, window.end)


ROWS = 200_000
"""
Windows in the table of the daemon, for the 100,000 that a store in memory remembers: 10 MB, of
which those are taken up that were used.
"""

_BYTES = 8


def makeRateMemory(rows: int = ROWS) -> int:
    """
    Make the memory of a table for rate limits.

    @return: Its descriptor, see L{SharedTable.make}.
    """
    return SharedTable.make("storagegate-rates", rows, _BYTES)


def sharedRateStores(fd: int) -> Callable[[str, float], "SharedRateLimitStore"]:
    """
    Give what makes the stores of an L{Invoker<storagegate.core.invoker.Invoker>} by name and
    window, all of them on one table.

    @param fd: What L{makeRateMemory} gave.
    @raise ValueError: If there is no table.
    """
    table = SharedTable.attach(fd)
    return lambda name, windowMs: SharedRateLimitStore(table, windowMs, name)


@implementer(IRateLimitStore)
class SharedRateLimitStore:
    """
    Counts in a shared table. It answers at once.

    A key is known by its digest, so its length takes up nothing. When a bucket of the table is
    full, the window that ends first leaves for a new one.
    """

    def __init__(self, table: SharedTable, windowMs: float = 60_000, prefix: str = "") -> None:
        """
        Share the counts of all processes that give the same prefix and window.

        @param prefix: What tells the counts of this store from those of others in the table.
        @raise ValueError: If a window has no length, or the table is one for something smaller.
        """
        checkWindow(windowMs)
        if table.size < _BYTES:
            raise ValueError(f"counts take {_BYTES} bytes; the table has records of {table.size}")
        self._table = table
        self._seconds = windowMs / 1000
        self._prefix = f"{prefix}\0{float(windowMs)!r}\0".encode()
        self._own = MemoryRateLimitStore(windowMs, now=table.now)

    def increment(self, key: str) -> Count:
        """
        Count a request.

        @return: The requests of this window, this one included, and when it ends.
        """
        name, apart = self._digested(key), self._apart(key)
        try:
            change = self._table.change(name, partial(self._add, 1 + apart))
        except TableBusy:
            return _together(self._own.increment(key), self._table.peek(name))
        if apart:
            self._own.resetKey(key)
        assert change is not None
        return _count(change)

    def decrement(self, key: str) -> None:
        """Take one request back."""
        if self._apart(key):
            self._own.decrement(key)
            return
        try:
            self._table.change(self._digested(key), _takeBack)
        except TableBusy:
            # One is too many until the window ends: better than one too few.
            return

    def resetKey(self, key: str) -> None:
        """Forget a key."""
        self._own.resetKey(key)
        try:
            self._table.change(self._digested(key), _takeOut)
        except TableBusy:
            # It ends with its window.
            return

    def get(self, key: str) -> Count | None:
        """Give the state of a key, C{None} if it has no open window."""
        name, own = self._digested(key), self._own.get(key)
        try:
            found = self._table.read(name)
        except TableBusy:
            found = self._table.peek(name)
        if own is not None:
            return _together(own, found)
        return None if found is None else _count(found)

    def _apart(self, key: str) -> int:
        """Tell how many requests of an open window have not found their way into the table."""
        own = self._own.get(key) if self._own else None
        return 0 if own is None else own[0]

    def _digested(self, key: str) -> bytes:
        # A key is whatever somebody's function made of a request, perhaps of half a character.
        return self._prefix + key.encode("utf-8", "surrogatepass")

    def _add(self, hits: int, record: bytes | None, until: float, now: float) -> Change:
        if record is None:
            return hits.to_bytes(_BYTES, "little"), now + self._seconds
        return (int.from_bytes(record, "little") + hits).to_bytes(_BYTES, "little"), until


def _count(record: Change) -> Count:
    return int.from_bytes(record[0], "little"), record[1]


def _together(own: Count, shared: Change | None) -> Count:
    """Add what is counted here to what is in the table, whose window it is then."""
    if shared is None:
        return own
    hits, until = _count(shared)
    return own[0] + hits, until


def _takeBack(record: bytes | None, until: float, now: float) -> Change | None:
    if record is None or not any(record):
        return None
    return (int.from_bytes(record, "little") - 1).to_bytes(_BYTES, "little"), until


def _takeOut(record: bytes | None, until: float, now: float) -> Change | None:
    return None if record is None else (b"", 0.0)
