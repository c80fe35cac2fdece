"""
One budget for the bytes that a process holds for requests that are not dispatched yet.

Such bytes take memory before anything is known about their sender, which may never send the rest.
All transports of a process count them here, so that their limits do not add up. A request that is
complete in one read is not entered.

All of it runs in the reactor thread.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from storagegate.core.errors import CODES, ServiceError

HELD_BYTES = 256 * 1024 * 1024
"""The default limit: 16 of the longest TCP messages, or 64 of the longest gRPC messages."""


class TooMuchHeld(ServiceError):
    """A request is refused because all requests together hold too much."""

    def __init__(self) -> None:
        status, grpcCode = CODES["RESOURCE_EXHAUSTED"]
        message = "Too much is on its way at a time"
        details = {"retryAfterMs": 1000}
        super().__init__("RESOURCE_EXHAUSTED", message, status, details, grpcCode)


class IByteHolder(Protocol):
    """A connection, body or call whose request is incomplete."""

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """
        Refuse the request, and drop its bytes; must call L{HeldBytes.update} with 0 before it
        returns.

        Does nothing if the request can no longer be refused.
        """


class _Share:
    """
    The bytes of one holder.

    @ivar since: When the holder was entered, in seconds of the budget's clock.
    @ivar size: How many bytes it holds.
    """

    __slots__ = ("since", "size")

    def __init__(self, since: float) -> None:
        self.since = since
        self.size = 0


class HeldBytes:
    """
    The budget: counts the bytes of each holder, and refuses requests over the limit.

    Over the limit, the largest and slowest requests are refused first, by bytes times age, until an
    eighth of the limit is free: the next search is then 32 MiB away, by default.

    @ivar limit: The maximum number of bytes; may change at any time.
    @ivar total: How many bytes are held.
    @ivar refused: How many requests were refused.
    """

    def __init__(
        self, limit: int = HELD_BYTES, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """
        @param seconds: Returns seconds of a monotonic clock.
        """
        self.limit = limit
        self.total = self.refused = 0
        self._seconds = seconds
        self._shares: dict[Any, _Share] = {}
        self._isRefusing = False

    def update(self, holder: IByteHolder, size: int) -> None:
        """
        Set how many bytes a holder has, and refuse requests if the total exceeds the limit.

        @param holder: The holder; may be refused before this returns.
        @param size: Its bytes; 0 removes the holder.
        """
        share = self._shares.get(holder)
        if share is None:
            if not size:
                return
            share = self._shares[holder] = _Share(self._seconds())
        self.total += size - share.size
        share.size = size
        if not size:
            del self._shares[holder]
        elif self.total > self.limit and not self._isRefusing:
            self._refuse()

    def _refuse(self) -> None:
        now, enough = self._seconds(), self.limit - self.limit // 8

        def cost(entry: tuple[Any, _Share]) -> float:
            # Add a second, so that among new requests the largest come first.
            return entry[1].size * (1 + now - entry[1].since)

        self._isRefusing = True
        try:
            for holder, _ in sorted(self._shares.items(), key=cost, reverse=True):
                if self.total <= enough:
                    break
                before = self.total
                holder.refuseHeld(TooMuchHeld())
                self.refused += self.total < before
        finally:
            self._isRefusing = False


PROCESS_BUDGET = HeldBytes()
"""
The budget of this process. Memory belongs to the process, so all its gateways, applications and
servers share this budget. The daemon sets the limit by C{heldBytes}.
"""
