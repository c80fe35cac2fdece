"""
One budget of the bytes that a process holds for requests which are not called yet.

Such bytes cost memory before anything is known of their sender, who may never send the rest. All
transports of a process count them here, so that the limit of one does not add to that of another.
Nothing is entered for a request that is complete in one read.

All of it runs in the reactor thread.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from storagegate.core.errors import CODES, ServiceError

HELD_BYTES = 256 * 1024 * 1024
"""The default of the limit: sixteen of the longest messages of TCP, 64 of the longest of gRPC."""


class TooMuchHeld(ServiceError):
    """A request is refused because all together hold too much."""

    def __init__(self) -> None:
        status, grpcCode = CODES["RESOURCE_EXHAUSTED"]
        message = "Too much is on its way at a time"
        details = {"retryAfterMs": 1000}
        super().__init__("RESOURCE_EXHAUSTED", message, status, details, grpcCode)


class IByteHolder(Protocol):
    """A connection, body or call whose request is incomplete."""

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """
        Refuse the request, and drop its bytes: L{HeldBytes.update} is called with 0 meanwhile.

        Does nothing if the request can not be refused any more.
        """


class _Share:
    """
    What one holder has.

    @ivar since: When it was entered, in seconds of the budget's clock.
    @ivar size: Bytes.
    """

    __slots__ = ("since", "size")

    def __init__(self, since: float) -> None:
        self.since = since
        self.size = 0


class HeldBytes:
    """
    The budget: who holds how much, and who is refused when it is too much.

    Over the limit the largest and slowest are refused first, by their bytes times their age, until
    an eighth of the limit is free: so the next search for them is 32 MiB away, by default.

    @ivar limit: Bytes at most; may be changed at any time.
    @ivar total: The bytes that are held.
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
        Set how much a holder has, and refuse requests if all have too much.

        @param holder: Perhaps refused before this returns.
        @param size: Bytes; 0 forgets the holder.
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
            # A second more: of requests that have just begun, the largest come first.
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
The budget of this process. Memory belongs to the process, so that all gateways, applications and
servers in it share this one; the daemon sets its limit by C{heldBytes}.
"""
