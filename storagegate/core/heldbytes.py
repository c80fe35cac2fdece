"""
One budget for the bytes that a process holds for requests that are not dispatched yet.

Such bytes take memory before anything is known about their sender, which may never send the rest.
All transports of a process count them here, so that their limits do not add up. A request that is
complete in one read is not entered.

All of it runs in the reactor thread.
"""

import mmap
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from storagegate.core.errors import CODES, ServiceError

HELD_BYTES = 64 * 1024 * 1024
"""
The default limit: four of the longest TCP messages, or sixteen of the longest gRPC messages.

With it a process grows by less than 256 MiB while clients of all kinds fill it. The limit does not
count connections, freed memory, and gRPC messages that arrive between two samples.
"""


_CHUNK_BYTES = 32 * 1024
"""The bytes of a message that stay in the chunks in which they arrived."""

_MAX_CHUNKS = 1024
"""Maximum number of chunks kept separately, each in an object of at least 34 bytes."""

_BLOCK = 256 * 1024

_SPARE_BLOCKS = 16
"""Blocks kept for the next message: the first use of a page costs as much as ten copies of one."""

_spare: list[mmap.mmap] = []


def _newBlock() -> mmap.mmap:
    if _spare:
        return _spare.pop()
    return mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class HeldBuffer:
    """
    The bytes of one incomplete message.

    A short message stays in its chunks. The bytes of a long one are copied into memory maps of one
    size, which return to the system when the message is refused. The allocator would keep as much
    again in holes: it cuts each read down to the bytes that arrived, and the remainder between two
    reads is too short for the next.

    @ivar size: Bytes.
    """

    __slots__ = ("_blocks", "_chunks", "_room", "size")

    def __init__(self) -> None:
        self.size = 0
        self._chunks: list[bytes] = []
        self._blocks: list[mmap.mmap] = []
        # The free bytes of the last block.
        self._room = 0

    def append(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        chunks = self._chunks
        if self.size <= _CHUNK_BYTES:
            chunks.append(data)
            if len(chunks) >= _MAX_CHUNKS:
                self._chunks = [b"".join(chunks)]
            return
        if chunks:
            self._chunks = []
            for chunk in chunks:
                self._store(chunk)
        self._store(data)

    def _store(self, data: bytes) -> None:
        begin, end = 0, len(data)
        with memoryview(data) as view:
            while begin < end:
                if not self._room:
                    self._blocks.append(_newBlock())
                    self._room = _BLOCK
                at, count = _BLOCK - self._room, min(self._room, end - begin)
                self._blocks[-1][at : at + count] = view[begin : begin + count]
                self._room -= count
                begin += count

    def take(self) -> bytes:
        """Return all bytes, and forget them."""
        blocks, chunks = self._blocks, self._chunks
        if blocks:
            with memoryview(blocks[-1]) as last:
                content = b"".join([*blocks[:-1], last[: _BLOCK - self._room]])
        else:
            content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.clear()
        return content

    def clear(self) -> None:
        """Forget all bytes."""
        self.size = self._room = 0
        self._chunks = []
        blocks, self._blocks = self._blocks, []
        _spare.extend(blocks[: _SPARE_BLOCKS - len(_spare)])


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
    @ivar group: See L{HeldBytes.update}.
    @ivar size: How many bytes it holds.
    """

    __slots__ = ("group", "since", "size")

    def __init__(self, since: float, group: object) -> None:
        self.since = since
        self.group = group
        self.size = 0


class HeldBytes:
    """
    The budget: counts the bytes of each holder, and refuses requests over the limit.

    Over the limit, the largest and slowest requests are refused first, by bytes times age, until an
    eighth of the limit is free: the next search is then 8 MiB away, by default. Holders of a group
    count together.

    @ivar limit: The maximum number of bytes; may change at any time.
    @ivar total: How many bytes are held.
    @ivar refused: How many requests were refused.
    @ivar onRefused: Called after requests were refused: their memory may return to the system.
    """

    def __init__(
        self, limit: int = HELD_BYTES, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """
        @param seconds: Returns seconds of a monotonic clock.
        """
        self.limit = limit
        self.total = self.refused = 0
        self.onRefused: Callable[[], object] | None = None
        self._seconds = seconds
        self._shares: dict[Any, _Share] = {}
        self._isRefusing = False

    def update(self, holder: IByteHolder, size: int, group: object = None) -> None:
        """
        Set how many bytes a holder has, and refuse requests if the total exceeds the limit.

        @param holder: The holder; may be refused before this returns.
        @param size: Its bytes; 0 removes the holder.
        @param group: The group of a new holder, such as a client's address: many small holders of
            one group are refused before a large one of another. C{None} for no group.
        """
        share = self._shares.get(holder)
        if share is None:
            if not size:
                return
            share = self._shares[holder] = _Share(self._seconds(), group)
        self.total += size - share.size
        share.size = size
        if not size:
            del self._shares[holder]
        elif self.total > self.limit and not self._isRefusing:
            self._refuse()

    def _refuse(self) -> None:
        now, enough = self._seconds(), self.limit - self.limit // 8

        groups: dict[Any, list[tuple[float, int, Any]]] = {}
        for number, (holder, share) in enumerate(self._shares.items()):
            # Add a second, so that among new requests the largest come first.
            cost = share.size * (1 + now - share.since)
            group = holder if share.group is None else share.group
            groups.setdefault(group, []).append((-cost, number, holder))
        heap = []
        for entries in groups.values():
            entries.sort(reverse=True)
            heap.append((sum(cost for cost, _, _ in entries), entries[0][1], entries))
        heapify(heap)
        self._isRefusing = True
        try:
            while heap and self.total > enough:
                total, first, entries = heappop(heap)
                cost, _, holder = entries.pop()
                if entries:
                    heappush(heap, (total - cost, first, entries))
                before = self.total
                holder.refuseHeld(TooMuchHeld())
                self.refused += self.total < before
        finally:
            self._isRefusing = False
        if self.onRefused is not None:
            self.onRefused()


PROCESS_BUDGET = HeldBytes()
"""
The budget of this process. Memory belongs to the process, so all its gateways, applications and
servers share this budget. The daemon sets the limit by C{heldBytes}.
"""
