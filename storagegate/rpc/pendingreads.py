"""
How much of incomplete requests grpc core holds, for the budget of the process.

grpc core reports a message when it is complete, and says nothing of one that is not. But the kernel
counts the bytes that have come on each connection (C{TCP_INFO}). While few requests are incomplete
nothing is looked at; when many are, all sockets are: ten times a second, and the more often the
faster it comes.

What a connection holds is what has come since the last moment when none of its requests was
incomplete, less the messages that were complete meanwhile, and what will have come by the next
look: as much as since the last. A connection is refused as a whole.

Between two looks each read may bring a whole message. So only some are begun meanwhile, and the
others wait for the next look or for one that is complete; a call has a window of 64 KiB until then.
"""

import os
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from storagegate.core.heldbytes import HeldBytes, TooMuchHeld

QUIET_SHARE = 4
"""One in so many parts of the budget may come without being looked at."""

SAMPLE_SECONDS = 0.1
"""The time between two looks while little comes."""

LEAST_SAMPLE_SECONDS = 0.01
"""The same while much does: a fast network brings 10 MB in it."""

SAMPLED_SHARE = 32
"""One in so many parts of the budget is what may come between two looks."""

READS_SHARE = 2
"""
Reads that begin between two looks may bring one in so many parts of the budget.

Complete ones do not count. While more than L{PendingReads.quiet} last from one look to the next,
only so many begin.
"""

_CALM_SECONDS = 1.0
"""So long after the last look the first ones are quick again: what comes then is not known."""

SAMPLE_SHARE = 20
"""Sampling takes one in so many parts of the time at most: 4 microseconds a descriptor."""

URGENT_SHARE = 4
"""
The same when half of the budget is used, or much comes: a descriptor on which bytes come takes 100.
"""

_OVERHEAD = 128
"""Bytes of the head and the frames of a small call."""

_DESCRIPTORS = "/proc/self/fd"

# Where struct tcp_info has tcpi_bytes_received, from Linux 4.1 on.
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_COUNT = struct.Struct("=128xQ")


def receivedBytes() -> dict[str, int] | None:
    """
    Return how many bytes have come on each TCP connection of this process.

    @return: By the peer, as grpc core writes it; C{None} where the system does not tell.
    """
    if _TCP_INFO is None or not os.path.isdir(_DESCRIPTORS):
        return None
    found: dict[str, int] = {}
    for name in os.listdir(_DESCRIPTORS):
        try:
            # Fails for what is no socket. It never owns the descriptor; an address of IPv4 fits as
            # well.
            each = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, int(name))
        except OSError:
            continue
        try:
            host, port, *_ = each.getpeername()
            info = each.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _COUNT.size)
            [count] = _COUNT.unpack(info)
        except (OSError, ValueError, struct.error):
            # Not connected, or of another family.
            continue
        finally:
            each.detach()
        host = host.removeprefix("::ffff:") if "." in host else host
        found[f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"] = count
    return found


class IPendingRead(Protocol):
    """
    A call that waits for a message.

    @ivar peer: The client's address.
    """

    peer: str

    def open(self) -> None:
        """Begin to read the message."""

    def refuse(self, error: TooMuchHeld) -> None:
        """End the call, and remove it from those that wait."""


class _Connection:
    """
    What is known of a connection.

    @ivar refuse: Refuses all requests of a connection that are incomplete.
    @ivar complete: Bytes that had come when none of its requests was incomplete.
    @ivar last: Bytes that had come at the last sample.
    @ivar coming: How many of them came since the sample before.
    """

    __slots__ = ("coming", "complete", "last", "reads", "refuse")

    def __init__(self, refuse: Callable[["_Connection", TooMuchHeld], None]) -> None:
        self.refuse = refuse
        self.complete = self.last = self.coming = 0
        self.reads: list[IPendingRead] = []

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """Refuse all requests that are incomplete."""
        self.refuse(self, error)


class PendingReads:
    """
    The incomplete requests of a server.

    @ivar isSampling: Whether there are so many that their connections are looked at.
    @ivar quiet: How many may wait without L{check} being called.
    """

    def __init__(
        self,
        unread: Mapping[Any, float],
        budget: HeldBytes,
        received: Callable[[], dict[str, int] | None] = receivedBytes,
    ) -> None:
        """
        @param unread: The calls that wait for their request, each an L{IPendingRead}.
        @param budget: Counts what they hold.
        @param received: See L{receivedBytes}.
        """
        self.isSampling = False
        self.quiet = sys.maxsize
        self._unread = unread
        self._budget = budget
        self._received = received
        self._clock: Any = None
        self._timer: Any = None
        self._maxLength = 0
        self._interval = LEAST_SAMPLE_SECONDS
        self._sampled = 0.0
        # Those that waited at the last sample.
        self._old: set[IPendingRead] = set()
        # Those that are not begun, and how many may begin before the next sample.
        self._queue: deque[IPendingRead] = deque()
        self._mayBegin = self._reads = 1
        self._connections: dict[str, _Connection] = {}

    def listens(self, clock: Any, maxLength: int) -> None:
        """
        Set what is known when a port is opened.

        @param clock: Provides C{IReactorTime}.
        @param maxLength: Bytes of a request at most.
        """
        self._clock = clock
        self._maxLength = max(self._maxLength, maxLength)
        self._setQuiet()

    def close(self) -> None:
        """Look at nothing any more: a port is closed. Calls of another one begin anew."""
        self._setQuiet()
        self._forget(list(self._connections))
        self._old = set()
        self.isSampling = False
        self._openReads(len(self._queue))
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def begin(self, read: IPendingRead) -> None:
        """Open a read, now or when there is room: more than L{quiet} calls wait."""
        self.check()
        self._queue.append(read)
        self._openReads(self._mayBegin)

    def check(self) -> None:
        """Begin to look at connections: more than L{quiet} calls wait."""
        if not self.isSampling:
            self.isSampling = True
            self._mayBegin = self._reads
            if self._clock.seconds() - self._sampled > _CALM_SECONDS:
                self._interval = LEAST_SAMPLE_SECONDS
            self._sample(isFirst=True)

    def received(self, peer: str, size: int) -> None:
        """
        Subtract a request that is complete. Called while connections are looked at.

        @param peer: The client's address.
        @param size: Bytes of the message.
        """
        connection = self._connections.get(peer)
        if connection is not None:
            connection.complete += size + _OVERHEAD
        self._mayBegin += 1
        if self._queue:
            self._openReads(1)

    def _openReads(self, count: int) -> None:
        while count > 0 and self._queue:
            read = self._queue.popleft()
            # Some have ended meanwhile.
            if read in self._unread:
                count -= 1
                self._mayBegin -= 1
                read.open()

    def _setQuiet(self) -> None:
        messages = self._budget.limit // max(1, self._maxLength)
        self.quiet = messages // QUIET_SHARE
        self._reads = max(1, messages // READS_SHARE)

    def _sample(self, isFirst: bool = False) -> None:
        """Look at all connections, until there can not be much any more."""
        self._sampled = self._clock.seconds()
        if len(self._unread) <= self.quiet:
            self._setInterval(0)
            self.close()
            return
        self._setQuiet()
        # Of this thread: on a busy machine the rest of the time is that of others.
        begin = time.thread_time()
        self._count(self._received(), isFirst)
        taken = time.thread_time() - begin
        isFast = self._interval == LEAST_SAMPLE_SECONDS
        isUrgent = isFast or 2 * self._budget.total > self._budget.limit
        wait = (URGENT_SHARE if isUrgent else SAMPLE_SHARE) * taken
        self._timer = self._clock.callLater(max(self._interval, wait), self._sample)

    def _count(self, received: dict[str, int] | None, isFirst: bool) -> None:
        reads: dict[str, list[IPendingRead]] = {}
        for each in self._unread:
            reads.setdefault(each.peer, []).append(each)
        if received is None:
            # As much as may come; of a UNIX socket, whose clients are on this machine, nothing.
            isFirst = False
            received = {
                peer: len(waiting) * self._maxLength
                for peer, waiting in reads.items()
                if not peer.startswith("unix:")
            }
        for peer, total in received.items():
            connection = self._connections.get(peer)
            if connection is None:
                connection = self._connections[peer] = _Connection(self._refuse)
                if isFirst:
                    # What it had before is not known: little, for sampling has just begun.
                    connection.complete = connection.last = total
            waiting = connection.reads = reads.get(peer, [])
            if not waiting:
                connection.complete = total
            elif self._old.isdisjoint(waiting):
                # All that were incomplete at the last sample are complete.
                connection.complete = max(connection.complete, connection.last)
            connection.coming = max(0, total - connection.last)
            connection.last = total
        self._forget(self._connections.keys() - received.keys())
        isCrowded = len(self._old.intersection(self._unread)) > self.quiet
        self._old = set(self._unread)
        self._mayBegin = max(1, self.quiet) if isCrowded else self._reads
        if not isFirst:
            came = sum(each.coming for each in self._connections.values() if each.reads)
            self._setInterval(came)
        for connection in list(self._connections.values()):
            # Until the next sample as much may come again.
            size = max(0, connection.last - connection.complete) + connection.coming
            self._budget.update(connection, min(size, len(connection.reads) * self._maxLength))
        self._openReads(self._mayBegin)

    def _setInterval(self, came: int) -> None:
        """Look sooner if many bytes have come since the last look, later if few."""
        isMuch = came * SAMPLED_SHARE > self._budget.limit
        seconds = self._interval / 2 if isMuch else self._interval * 2
        self._interval = min(max(seconds, LEAST_SAMPLE_SECONDS), SAMPLE_SECONDS)

    def _forget(self, peers: Iterable[str]) -> None:
        for peer in peers:
            self._budget.update(self._connections.pop(peer), 0)

    def _refuse(self, connection: _Connection, error: TooMuchHeld) -> None:
        reads, connection.reads = connection.reads, []
        connection.complete = connection.last
        self._budget.update(connection, 0)
        for each in reads:
            # Some have ended since the last sample.
            if each in self._unread:
                each.refuse(error)
