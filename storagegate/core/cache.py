"""A bounded cache whose entries expire."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# How many expired entries each new one removes: more than one, so that their number falls, and few,
# so that no caller pays for all.
_REMOVED = 2


class TTLCache(Generic[K, V]):
    """
    Values by key, each for a limited time. A full cache evicts its oldest entry for a new one.

    There is no timer: expired entries are removed when others are added. Not thread-safe.
    """

    def __init__(
        self, maxEntries: int, now: Callable[[], float], seconds: float = float("inf")
    ) -> None:
        """
        @param maxEntries: The maximum number of entries; a new entry evicts the oldest.
        @param now: Returns the time in seconds, by the clock of the entries' ends.
        @param seconds: The longest lifetime of an entry. An entry with more time left dates from
            before the clock was set back, and counts as expired.
        """
        self._maxEntries = maxEntries
        self._now = now
        self._seconds = seconds
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of entries, including expired ones."""
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return a value; C{None} if it is absent or expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        now = self._now()
        return entry[0] if now < entry[1] <= now + self._seconds else None

    def endOf(self, key: K) -> float | None:
        """Return when an entry expires; C{None} if it is absent or expired."""
        return None if self.get(key) is None else self._entries[key][1]

    def put(self, key: K, value: V, end: float) -> None:
        """
        Add a value, as the newest.

        @param key: Hashable; an entry of the same key is replaced.
        @param value: Anything but C{None}, which L{get} returns for absent entries.
        @param end: When it expires.
        """
        entries = self._entries
        entries.pop(key, None)
        now = self._now()
        for _ in range(_REMOVED):
            oldest = next(iter(entries), None)
            if oldest is None or now < entries[oldest][1] <= now + self._seconds:
                break
            del entries[oldest]
        if len(entries) >= self._maxEntries:
            entries.popitem(last=False)
        entries[key] = (value, end)

    def pop(self, key: K) -> None:
        """Remove an entry, if there is one."""
        self._entries.pop(key, None)
