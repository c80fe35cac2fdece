"""
The counts of rate limits in memory that the processes of one machine share.

Exact over all of them: a window that allows a hundred requests lets a hundred through, whichever
process they come to. A process that finds a count held by another one does not wait: it goes by
what it reads there and has counted itself, and adds that when the count is free again.
"""

from collections.abc import Callable
from functools import partial

from zope.interface import implementer

from storagegate.core.ratestores import Count, IRateLimitStore, MemoryRateLimitStore, checkWindow
from storagegate.core.sharedtable import Change, SharedTable, TableBusy

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
    Give what makes the stores of an L{Invoker<storagegate.core.invocation.Invoker>} by name and
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
