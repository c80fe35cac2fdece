"""
The shared stores of nodes, for rate limits, sessions and UDP replies, each backed by an
L{ICountsServer}.

While the server is down, each process counts the requests of a rate limit on its own, so that no
request is refused that the limit allows. Sessions cannot be read or changed, and their requests
fail with 503. Datagrams that this process has not seen are dropped, because their methods must not
run twice.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from secrets import token_bytes
from typing import Any

from zope.interface import implementer

from storagegate.cluster.counts.interfaces import CountsUnavailable, ICountsServer
from storagegate.core.cache import TTLCache
from storagegate.core.ratelimit import Count, IRateLimitStore, MemoryRateLimitStore, checkWindow
from storagegate.gateway.transports.udp.replycache import (
    MAX_ANSWERS,
    SECONDS,
    CachedReply,
    IReplyCache,
    ReplyCache,
    ReplyCacheUnavailable,
)
from storagegate.http.options import Runtime
from storagegate.http.sessions import (
    DAY_MS,
    IBoundStore,
    IReplacingStore,
    decodeParts,
    encodeCookie,
    encodeParts,
)

OpenServer = Callable[[], ICountsServer]
"""Returns the server; the first call connects to it."""

FailureCounter = Callable[[str], object]
"""Called with C{rates}, C{sessions} or C{calls} for each operation that the server failed."""

_KEY_BYTES = 16
_SESSION_BYTES = 32
_OWNER_BYTES = 16


def ignoreFailure(kind: str) -> None:
    """Do nothing."""


@implementer(IRateLimitStore)
class ClusterRateLimitStore:
    """Counts requests in all processes that use the same name and window."""

    def __init__(
        self,
        server: OpenServer,
        name: str,
        windowMs: float = 60_000,
        now: Callable[[], float] = time.time,
        onFailure: FailureCounter = ignoreFailure,
    ) -> None:
        """
        @param name: The name of the limit.
        @param windowMs: The length of a window in milliseconds.
        @param now: Returns the time in seconds since 1970.
        @raise ValueError: If a window has no length.
        """
        checkWindow(windowMs)
        self._server = server
        self._windowMs = windowMs
        self._now = now
        self._onFailure = onFailure
        self._prefix = f"{name}\0{float(windowMs)!r}\0".encode()
        # Used during an outage.
        self._own: MemoryRateLimitStore | None = None

    async def increment(self, key: str) -> Count:
        """Count a request, see L{IRateLimitStore.increment}."""
        try:
            hits, left = await self._server().count(self._digest(key), self._windowMs)
        except CountsUnavailable:
            self._onFailure("rates")
            if self._own is None:
                self._own = MemoryRateLimitStore(self._windowMs, now=self._now)
            return self._own.increment(key)
        return hits, self._now() + left / 1000

    async def decrement(self, key: str) -> None:
        """Decrement the count of a key."""
        try:
            await self._server().takeBack(self._digest(key))
        except CountsUnavailable:
            self._onFailure("rates")
            if self._own is not None:
                self._own.decrement(key)

    async def resetKey(self, key: str) -> None:
        """Remove a key."""
        if self._own is not None:
            self._own.resetKey(key)
        try:
            await self._server().removeCount(self._digest(key))
        except CountsUnavailable:
            # The count expires with its window.
            self._onFailure("rates")

    async def get(self, key: str) -> Count | None:
        """Return the count of a key; C{None} if it has no open window."""
        try:
            found = await self._server().findCount(self._digest(key))
        except CountsUnavailable:
            self._onFailure("rates")
            return None if self._own is None else self._own.get(key)
        return None if found is None else (found[0], self._now() + found[1] / 1000)

    def _digest(self, key: str) -> bytes:
        # The key from a user's function may contain a lone surrogate.
        text = self._prefix + key.encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=_KEY_BYTES).digest()


@implementer(IReplacingStore, IBoundStore)
class ClusterSessionStore:
    """
    Keeps the sessions of an application for all its processes.

    The server only sees the digest of an id, which is not sufficient to forge a cookie.
    """

    def __init__(
        self, server: OpenServer, name: str, onFailure: FailureCounter = ignoreFailure
    ) -> None:
        """@param name: The name of the application."""
        self._server = server
        self._prefix = f"{name}\0".encode()
        self._onFailure = onFailure

    def bind(self, runtime: Runtime) -> None:
        """See L{IBoundStore.bind}. Does nothing: sessions expire by the server's clock."""

    async def get(self, id: str) -> dict[str, Any] | None:
        """See L{ISessionStore.get<storagegate.http.sessions.ISessionStore.get>}."""
        found = await self._do("findSession", id)
        return None if found is None else decodeParts(*found)

    def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """See L{ISessionStore.set<storagegate.http.sessions.ISessionStore.set>}."""
        # Encoded immediately, because the caller may change the data afterwards.
        return self._put(id, encodeParts(data), maxAgeMs, False)

    def replace(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """See L{IReplacingStore.replace}."""
        return self._put(id, encodeParts(data), maxAgeMs, True)

    async def destroy(self, id: str) -> None:
        """See L{ISessionStore.destroy<storagegate.http.sessions.ISessionStore.destroy>}."""
        await self._do("removeSession", id)

    def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = DAY_MS) -> Any:
        """See L{ISessionStore.touch<storagegate.http.sessions.ISessionStore.touch>}."""
        if maxAgeMs <= 0:
            return self.destroy(id)
        return self._do("touchSession", id, encodeCookie(data), maxAgeMs)

    async def _put(
        self, id: str, parts: tuple[bytes, bytes], maxAgeMs: float, mustExist: bool
    ) -> None:
        if maxAgeMs <= 0:
            await self.destroy(id)
        else:
            await self._do("putSession", id, *parts, maxAgeMs, mustExist)

    async def _do(self, method: str, id: str, *values: object) -> Any:
        text = self._prefix + id.encode("utf-8", "surrogatepass")
        try:
            key = blake2b(text, digest_size=_SESSION_BYTES).digest()
            return await getattr(self._server(), method)(key, *values)
        except CountsUnavailable as error:
            self._onFailure("sessions")
            # Clients see this text; the original one contains the server's address.
            raise CountsUnavailable("sessions are unavailable", error.isUnknown) from None


@implementer(IReplyCache)
class ClusterReplyCache:
    """
    The UDP requests of all processes that use the same name.

    Requests that this process has received are also kept in memory, which is searched first: a
    client resends a datagram to the same process, unless a load balancer moves it.

    A call of a process that has ended stays in flight until it expires: other machines cannot
    detect the end of the process, and the method must not run twice.
    """

    def __init__(
        self,
        server: OpenServer,
        name: str,
        now: Callable[[], float],
        seconds: float = SECONDS,
        onFailure: FailureCounter = ignoreFailure,
    ) -> None:
        """
        @param name: The name of the listener.
        @param now: Returns the time of a monotonic clock in seconds.
        """
        self._server = server
        self._prefix = f"{name}\0"
        self._now = now
        self._seconds = seconds
        self._onFailure = onFailure
        self._owner = token_bytes(_OWNER_BYTES)
        self._own = ReplyCache(now, seconds)
        # Requests that the server may have recorded for this process, but that have not started.
        self._doubtful: TTLCache[Hashable, bool] = TTLCache(MAX_ANSWERS, now, seconds)

    def begin(self, key: Hashable, size: int = 0) -> Any:
        """Record a request, see L{IReplyCache.begin}."""
        own = self._own.begin(key, size)
        return self._beginShared(key, size) if own is None else own

    async def _beginShared(self, key: Hashable, size: int) -> CachedReply | None:
        isDoubtful = self._doubtful.get(key) is not None
        try:
            known = await self._server().beginCall(
                self._digest(key), self._owner, size, self._seconds * 1000, isDoubtful
            )
        except CountsUnavailable as error:
            self._onFailure("calls")
            self._own.forget(key)
            if error.isUnknown:
                self._doubtful.put(key, True, self._now() + self._seconds)
            raise ReplyCacheUnavailable(str(error)) from error
        if known is None:
            self._doubtful.pop(key)
            return None
        # The reply belongs to another process, which may not have it yet.
        self._own.forget(key)
        until = self._now() + known.leftMs / 1000
        return CachedReply(until, known.size, known.reply, known.isKnown)

    def end(self, key: Hashable, reply: bytes, isKnown: bool = False) -> Any:
        """Keep the reply to a request, see L{IReplyCache.end}."""
        self._own.end(key, reply, isKnown)
        return self._endShared(key, reply, isKnown)

    async def _endShared(self, key: Hashable, reply: bytes, isKnown: bool) -> None:
        try:
            await self._server().endCall(self._digest(key), self._owner, reply, isKnown)
        except CountsUnavailable:
            # This process has the reply; for the others the call stays in flight.
            self._onFailure("calls")

    def _digest(self, key: Hashable) -> bytes:
        # Different tuples of strings and numbers have different representations.
        text = (self._prefix + ascii(key)).encode()
        return blake2b(text, digest_size=_KEY_BYTES).digest()
