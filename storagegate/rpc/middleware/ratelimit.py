"""A limit on how often one client may call."""

import time
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any

from storagegate.core.clientkeys import clientKey
from storagegate.core.errors import GrpcError
from storagegate.core.hooks import whenKnown
from storagegate.core.ratestores import Count, MemoryRateLimitStore, checkWindow
from storagegate.rpc.middleware.methodnames import methodMatcher

TOO_MANY = "Too many requests"


def rateLimit(
    windowMs: float = 60_000,
    max: int = 100,
    *,
    store: Any = None,
    keyGenerator: Callable[[Any], Any] | None = None,
    skip: Callable[[Any], Any] | Iterable[str] | None = None,
    now: Callable[[], float] = time.time,
) -> Callable[[Any, Callable[[], Any]], Any]:
    """
    Make the middleware that refuses whoever calls too often.

    Calls are counted, not the messages in them. A call that is refused is C{RESOURCE_EXHAUSTED}
    with C{google.rpc.RetryInfo}, which says when the window is over.

    @param windowMs: How long calls are counted together, from the first one on.
    @param max: How many of them are let through.
    @param store: An L{IRateLimitStore<storagegate.core.ratestores.IRateLimitStore>} for this limit
        alone; without one, the counts are in the memory of this process.
    @param keyGenerator: C{keyGenerator(call)} gives whom a call counts for, now or later, in place
        of the peer's address.
    @param skip: The methods that are not counted: a list of names, as
        L{authentication<storagegate.rpc.middleware.authentication.authentication>} takes them, or
        C{skip(call)}, plain or a coroutine.
    @param now: Gives the time in seconds since 1970.
    @raise ValueError: If an option has a value that cannot be.
    @raise TypeError: If one is of the wrong kind.
    """
    _checkOptions(windowMs, max, store, keyGenerator)
    if store is None:
        store = MemoryRateLimitStore(windowMs, now=now)
    skips = skip if skip is None or callable(skip) else methodMatcher(skip, "skip")
    keyOf = keyGenerator or _peerKey

    def limit(call: Any, next: Callable[[], Any]) -> Any:
        if skips is None:
            return count(call, next)
        return whenKnown(skips(call), lambda skipped: next() if skipped else count(call, next))

    def count(call: Any, next: Callable[[], Any]) -> Any:
        return whenKnown(
            keyOf(call),
            lambda key: whenKnown(store.increment(str(key)), lambda count: decide(count, next)),
        )

    def decide(count: Count, next: Callable[[], Any]) -> Any:
        calls, end = count
        if calls <= max:
            return next()
        remaining = ceil((end - now()) * 1000)
        details = {"retryAfterMs": remaining if remaining > 0 else 0}
        raise GrpcError("RESOURCE_EXHAUSTED", TOO_MANY, details)

    return limit


def _checkOptions(windowMs: float, max: int, store: Any, keyGenerator: Any) -> None:
    if isinstance(max, bool) or not isinstance(max, int) or max < 0:
        raise ValueError(f"max is a number of calls, not {max!r}")
    checkWindow(windowMs)
    if keyGenerator is not None and not callable(keyGenerator):
        raise TypeError(f"keyGenerator is a function of (call), not {keyGenerator!r}")
    if store is not None and not callable(getattr(store, "increment", None)):
        raise TypeError(f"store is an IRateLimitStore, not {store!r}")


def _peerKey(call: Any) -> str:
    return clientKey(hostOf(call.getPeer()))


def hostOf(peer: str) -> str:
    """Give the address of a peer without its port; that of a UNIX socket as it is."""
    if peer.startswith("["):
        return peer[1:].partition("]")[0]
    host, colon, port = peer.rpartition(":")
    return host if colon and ":" not in host and port.isdigit() else peer
