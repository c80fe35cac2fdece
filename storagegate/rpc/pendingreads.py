"""
Estimates how many bytes of incomplete requests grpc core holds, for the process's budget.

grpc core reports only complete messages. But the kernel counts the bytes received on each
connection (C{TCP_INFO}). While few requests are incomplete, nothing is sampled. When many are, all
sockets are sampled ten times a second, and more often when data arrives faster.

A connection is assumed to hold the bytes received since it last had no incomplete request, minus
the messages completed since then, plus the bytes that will arrive by the next sample: as many as
since the previous one. A connection is refused as a whole.

A read that begins between two samples may bring a whole message. Only a limited number therefore
begins meanwhile, and the others wait for the next sample or for a complete message. Until then a
call has a window of 64 KiB.
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
"""C{1 / QUIET_SHARE} of the budget may arrive without sampling."""

SAMPLE_SECONDS = 0.1
"""The sampling interval while little data arrives."""

LEAST_SAMPLE_SECONDS = 0.01
"""The sampling interval while much data arrives: a fast network delivers 10 MB in this time."""

SAMPLED_SHARE = 32
"""C{1 / SAMPLED_SHARE} of the budget may arrive between two samples."""

READS_SHARE = 2
"""
Reads that begin between two samples may bring C{1 / READS_SHARE} of the budget.

Complete reads do not count. The limit applies while more than L{PendingReads.quiet} reads are
incomplete.
"""

_CALM_SECONDS = 1.0
"""
After a pause of this length, sampling restarts at the shortest interval, because the rate is
unknown.
"""

SAMPLE_SHARE = 20
"""Sampling may take C{1 / SAMPLE_SHARE} of the time; a descriptor takes 4 microseconds."""

URGENT_SHARE = 4
"""The same when half of the budget is used, or much arrives: a descriptor with input takes 100
microseconds."""

_OVERHEAD = 128
"""The bytes of the headers and frames of a small call."""

_DESCRIPTORS = "/proc/self/fd"

# The offset of tcpi_bytes_received in struct tcp_info, since Linux 4.1.
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_COUNT = struct.Struct("=128xQ")


def receivedBytes() -> dict[str, int] | None:
    """
    Return how many bytes each TCP connection of this process has received.

    @return: Bytes by peer, as grpc core writes it; C{None} if the system does not support it.
    """
    if _TCP_INFO is None or not os.path.isdir(_DESCRIPTORS):
        return None
    found: dict[str, int] = {}
    for name in os.listdir(_DESCRIPTORS):
        try:
            # Fails if the descriptor is not a socket. The object never owns the descriptor; an IPv4
            # address works as well.
            each = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, int(name))
        except OSError:
            continue
        try:
            host, port, *_ = each.getpeername()
            info = each.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _COUNT.size)
            [count] = _COUNT.unpack(info)
        except (OSError, ValueError, struct.error):
            # Not connected, or of another address family.
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
        """End the call, and remove it from the waiting calls."""


class _Connection:
    """
    The state of a connection.

    @ivar refuse: Refuses all incomplete requests of a connection.
    @ivar complete: Bytes received when it last had no incomplete request.
    @ivar last: Bytes received by the last sample.
    @ivar coming: How many of these came since the previous sample.
    """

    __slots__ = ("coming", "complete", "last", "reads", "refuse")

    def __init__(self, refuse: Callable[["_Connection", TooMuchHeld], None]) -> None:
        self.refuse = refuse
        self.complete = self.last = self.coming = 0
        self.reads: list[IPendingRead] = []

    def refuseHeld(self, error: TooMuchHeld) -> None:
        """Refuse all incomplete requests."""
        self.refuse(self, error)


class PendingReads:
    """
    The incomplete requests of a server.

    @ivar isSampling: Whether so many requests are incomplete that their connections are sampled.
    @ivar quiet: How many calls may wait before L{check} must be called.
    """

    def __init__(
        self,
        unread: Mapping[Any, float],
        budget: HeldBytes,
        received: Callable[[], dict[str, int] | None] = receivedBytes,
    ) -> None:
        """
        @param unread: The calls that wait for their request, each an L{IPendingRead}.
        @param budget: Counts the bytes that they hold.
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
        # The calls that waited at the last sample.
        self._old: set[IPendingRead] = set()
        # The reads that have not begun, and how many may begin before the next sample.
        self._queue: deque[IPendingRead] = deque()
        self._mayBegin = self._reads = 1
        self._connections: dict[str, _Connection] = {}

    def listens(self, clock: Any, maxLength: int) -> None:
        """
        Configure this object when a port is opened.

        @param clock: Provides C{IReactorTime}.
        @param maxLength: The maximum length of a request in bytes.
        """
        self._clock = clock
        self._maxLength = max(self._maxLength, maxLength)
        self._setQuiet()

    def close(self) -> None:
        """Stop sampling, because a port has closed. Calls of another port start it again."""
        self._setQuiet()
        self._forget(list(self._connections))
        self._old = set()
        self.isSampling = False
        self._openReads(len(self._queue))
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def begin(self, read: IPendingRead) -> None:
        """Open a read, now or when there is room; used while more than L{quiet} calls wait."""
        self.check()
        self._queue.append(read)
        self._openReads(self._mayBegin)

    def check(self) -> None:
        """Start sampling: more than L{quiet} calls wait."""
        if not self.isSampling:
            self.isSampling = True
            self._mayBegin = self._reads
            if self._clock.seconds() - self._sampled > _CALM_SECONDS:
                self._interval = LEAST_SAMPLE_SECONDS
            self._sample(isFirst=True)

    def received(self, peer: str, size: int) -> None:
        """
        Subtract a complete request. Called while sampling.

        @param peer: The client's address.
        @param size: The length of the message in bytes.
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
        """Sample all connections, until few requests are incomplete."""
        self._sampled = self._clock.seconds()
        if len(self._unread) <= self.quiet:
            self._setInterval(0)
            self.close()
            return
        self._setQuiet()
        # The time of this thread: on a busy machine, the rest belongs to others.
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
            # Assume the maximum; for a UNIX socket, whose clients are on this machine, nothing.
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
                    # Its earlier bytes are unknown, but few: sampling has just begun.
                    connection.complete = connection.last = total
            waiting = connection.reads = reads.get(peer, [])
            if not waiting:
                connection.complete = total
            elif self._old.isdisjoint(waiting):
                # All requests that were incomplete at the last sample are complete.
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
            # The same amount may arrive by the next sample.
            size = max(0, connection.last - connection.complete) + connection.coming
            self._budget.update(connection, min(size, len(connection.reads) * self._maxLength))
        self._openReads(self._mayBegin)

    def _setInterval(self, came: int) -> None:
        """Sample sooner if many bytes have come since the last sample, later if few."""
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
            # Some calls have ended since the last sample.
            if each in self._unread:
                each.refuse(error)
