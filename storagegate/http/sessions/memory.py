"""Sessions in the memory of one process: fast, bounded, gone with it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from storagegate.http.runtime import Runtime
from storagegate.http.sessions.session import (
    DAY_MS,
    IBoundStore,
    IReplacingStore,
    decodeParts,
    encodeCookie,
    encodeParts,
)

_BYTES = 64 * 1024 * 1024
"""10,000 sessions of 6 KiB: most are far smaller, and a few may be larger."""

_STEP = 60
"""Expired sessions leave once a minute; until then they only take room."""


@frozen
class _Entry:
    """One session. C{cookie} is apart, for it alone changes when a session is touched."""

    content: bytes
    cookie: bytes
    expires: float

    @property
    def size(self) -> int:
        """Give about how many bytes it takes."""
        return len(self.content) + len(self.cookie)


@implementer(IReplacingStore, IBoundStore)
class MemorySessionStore:
    """
    Keeps up to so many sessions, and bytes of them; past that the least recently used one goes.

    It answers at once.
    """

    def __init__(
        self,
        maxSessions: int = 10_000,
        clock: IReactorTime | None = None,
        maxBytes: int = _BYTES,
    ) -> None:
        """
        @param clock: By default the time is that of the application.
        """
        if maxSessions < 1 or maxBytes < 1:
            raise ValueError("a store of sessions has room for at least one")
        self._maxSessions = maxSessions
        self._maxBytes = maxBytes
        self._now: Callable[[], float] | None = None if clock is None else clock.seconds
        # In the order of their last use, and by the minute after which they have expired.
        self._entries: dict[str, _Entry] = {}
        self._minutes: dict[int, dict[str, None]] = {}
        self._bytes = 0
        self._sweptTo = 0

    def __len__(self) -> int:
        """Say how many sessions take room."""
        return len(self._entries)

    def bind(self, runtime: Runtime) -> None:
        """See L{IBoundStore.bind}."""
        if self._now is None:
            self._now = runtime.now

    def get(self, id: str) -> dict[str, Any] | None:
        """See L{ISessionStore.get<storagegate.http.sessions.session.ISessionStore.get>}."""
        entry = self._live(id)
        if entry is None:
            return None
        # To the end: the most recently used.
        self._entries[id] = self._entries.pop(id)
        return decodeParts(entry.content, entry.cookie)

    def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{ISessionStore.set<storagegate.http.sessions.session.ISessionStore.set>}."""
        self._put(id, *encodeParts(data), maxAgeMs)

    def replace(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{IReplacingStore.replace}."""
        if self._live(id) is not None:
            self._put(id, *encodeParts(data), maxAgeMs)

    def destroy(self, id: str) -> None:
        """
        See L{ISessionStore.destroy<storagegate.http.sessions.session.ISessionStore.destroy>}.
        """
        entry = self._entries.pop(id, None)
        if entry is not None:
            self._bytes -= entry.size
            minute = self._minutes[_minute(entry.expires)]
            del minute[id]
            if not minute:
                del self._minutes[_minute(entry.expires)]

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> None:
        """See L{ISessionStore.touch<storagegate.http.sessions.session.ISessionStore.touch>}."""
        entry = self._live(id)
        if entry is not None:
            self._put(id, entry.content, encodeCookie(data), maxAgeMs)

    def _time(self) -> float:
        return time.time() if self._now is None else self._now()

    def _live(self, id: str) -> _Entry | None:
        entry = self._entries.get(id)
        if entry is not None and entry.expires <= self._time():
            self.destroy(id)
            return None
        return entry

    def _put(self, id: str, content: bytes, cookie: bytes, maxAgeMs: float) -> None:
        now = self._time()
        self.destroy(id)
        self._sweep(now)
        if maxAgeMs <= 0:
            return
        entry = _Entry(content, cookie, now + maxAgeMs / 1000)
        self._entries[id] = entry
        self._minutes.setdefault(_minute(entry.expires), {})[id] = None
        self._bytes += entry.size
        while len(self._entries) > self._maxSessions or self._bytes > self._maxBytes:
            self.destroy(next(iter(self._entries)))

    def _sweep(self, now: float) -> None:
        """Let those go that have expired. Each costs once what its coming did."""
        minute = int(now // _STEP)
        if minute != self._sweptTo:
            self._sweptTo = minute
            for past in [key for key in self._minutes if key <= minute]:
                for id in list(self._minutes[past]):
                    self.destroy(id)


def _minute(expires: float) -> int:
    """Give the first minute in which a session has expired all through."""
    return int(expires // _STEP) + 1
