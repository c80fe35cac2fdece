"""
Replies kept for retransmitted datagrams.

A UDP client retransmits a request that is not answered, and the network may duplicate datagrams. A
repeated id from the same address gets the same reply; the method does not run twice.

L{ReplyCache} is for one process. Processes that share a port share a L{SharedReplyCache} in memory,
because a repeated datagram may reach a different process. A record of its table holds the state of
a request, its length, the process that serves it, and the reply once it exists. Only that process
can reply while the request is in flight; if it dies, the request counts as new.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from struct import Struct
from typing import TYPE_CHECKING

from msgspec import Struct as Record
from zope.interface import Interface, implementer

if TYPE_CHECKING:
    # A single process does not import it.
    from storagegate.core.sharedtable import Change, SharedTable

SECONDS = 247.0
"""How long a reply is kept, as in CoAP (RFC 7252 section 4.8.2, EXCHANGE_LIFETIME)."""

MAX_ANSWERS = 10_000
"""The maximum number of kept replies and calls in flight: 12 MB with the largest datagrams."""


class CachedReply(Record, gc=False):
    """
    A known request.

    @ivar until: When the record expires.
    @ivar size: The size of its datagram in bytes.
    @ivar reply: The last datagram of the reply; C{None} while the request is in flight.
    @ivar isKnown: Whether the caller was authenticated.
    """

    until: float
    size: int
    reply: bytes | None = None
    isKnown: bool = False


class ReplyCacheUnavailable(Exception):
    """The server of a reply cache is unavailable: it is unknown whether a request is new."""


class IReplyCache(Interface):
    """
    Known requests, each with its reply once it exists.

    Every method may return its result or an awaitable of it. With an awaitable, datagrams that
    arrive for the call in the meantime, such as items of its stream, are lost.

    C{begin} is one atomic step that records a request only if it is new. On one machine, a call in
    flight is bound to its process, and counts as new when that process has ended. Other machines
    cannot see this, so there the call stays in flight until it expires. A cache is bounded, and may
    drop the oldest record. A request whose C{begin} fails is dropped, and its client retransmits
    it.
    """

    def begin(key: Hashable, size: int = 0) -> CachedReply | Awaitable[CachedReply | None] | None:
        """
        Record a request.

        @param key: Its source and its id: a tuple of strings, numbers and such tuples.
        @param size: The size of the request's datagram in bytes.
        @return: C{None} if the request is new; otherwise its first record.
        @raise ReplyCacheUnavailable: If it is unknown whether the request is new; as a failure of
            the awaitable.
        """

    def end(key: Hashable, reply: bytes, isKnown: bool = False) -> Awaitable[None] | None:
        """
        Keep the reply to a request.

        @param key: As passed to L{begin}.
        @param reply: The datagram that is sent.
        @param isKnown: Whether the caller was authenticated.
        """


@implementer(IReplyCache)
class ReplyCache:
    """A cache in the memory of this process."""

    def __init__(
        self, now: Callable[[], float], seconds: float = SECONDS, maxAnswers: int = MAX_ANSWERS
    ) -> None:
        """
        @param now: Returns the seconds of a monotonic clock.
        """
        self._now = now
        self._seconds = seconds
        self._maxAnswers = maxAnswers
        # In the order of arrival, which is also the order of expiry.
        self._exchanges: OrderedDict[Hashable, CachedReply] = OrderedDict()
        # No record expires before this. Checking the oldest record for each request takes 0.3
        # microseconds, because it is no longer in the processor's cache.
        self._nextEnd = 0.0

    def __len__(self) -> int:
        """Return the number of known requests."""
        return len(self._exchanges)

    def begin(self, key: Hashable, size: int = 0) -> CachedReply | None:
        """Record a request."""
        now = self._now()
        exchanges = self._exchanges
        if now >= self._nextEnd:
            self._forgetEnded(now)
        known = exchanges.get(key)
        if known is None:
            if len(exchanges) >= self._maxAnswers:
                exchanges.popitem(last=False)
            exchanges[key] = CachedReply(now + self._seconds, size)
        return known

    def _forgetEnded(self, now: float) -> None:
        exchanges = self._exchanges
        # New records do not expire before this.
        self._nextEnd = now + self._seconds
        while exchanges:
            oldest = next(iter(exchanges))
            if exchanges[oldest].until > now:
                self._nextEnd = exchanges[oldest].until
                break
            del exchanges[oldest]

    def find(self, key: Hashable) -> CachedReply | None:
        """Return the record of a request; C{None} without one."""
        exchange = self._exchanges.get(key)
        return None if exchange is None or exchange.until <= self._now() else exchange

    def forget(self, key: Hashable) -> None:
        """Remove a request, if it exists."""
        self._exchanges.pop(key, None)

    def end(self, key: Hashable, reply: bytes, isKnown: bool = False) -> None:
        """Keep the reply to a request."""
        exchange = self._exchanges.get(key)
        if exchange is not None:
            exchange.reply, exchange.isKnown = reply, isKnown


ANSWER_BYTES = 1200
"""The largest shared reply in bytes: the default of C{maxPacketSize}."""

ROWS = 2 * MAX_ANSWERS
"""Rows of the daemon's table: 25 MB, of which only used rows take memory."""

_IN_FLIGHT, _REPLIED, _REPLIED_KNOWN = range(3)
_RECORD = Struct("<BIQ")


def makeAnswerMemory(rows: int = ROWS, answerBytes: int = ANSWER_BYTES) -> int:
    """
    Create the shared memory of a reply cache.

    @param rows: The minimum number of rows.
    @param answerBytes: The maximum size of a reply in bytes.
    @return: Its descriptor, see L{SharedTable.make}.
    """
    from storagegate.core.sharedtable import SharedTable

    return SharedTable.make("storagegate-answers", rows, _RECORD.size + answerBytes)


@implementer(IReplyCache)
class SharedReplyCache:
    """
    A cache in a shared table.

    Only the process that sent it knows a reply that is too large for the table. The same applies to
    a request that arrives while another process holds its row, because no process waits for a lock.
    """

    def __init__(self, table: "SharedTable", seconds: float = SECONDS) -> None:
        """
        @param table: A table of L{makeAnswerMemory}, attached.
        @raise ValueError: If its records are too small.
        """
        from storagegate.core.sharedtable import ProcessLiveness, TableBusy

        self._capacity = table.size - _RECORD.size
        if self._capacity < 1:
            raise ValueError(f"the table has records of {table.size} bytes, too small for replies")
        self._table = table
        self._busy = TableBusy
        self._seconds = seconds
        self._presence = ProcessLiveness(table.fd)
        self._own = ReplyCache(table.now, seconds)

    def close(self) -> None:
        """Leave the cache; requests in flight here count as new in other processes."""
        self._presence.close()

    def begin(self, key: Hashable, size: int = 0) -> CachedReply | None:
        """Record a request."""
        own = self._own.find(key)
        if own is not None:
            return own
        known: list[CachedReply] = []

        def act(record: bytes | None, until: float, now: float) -> "Change | None":
            if record is not None:
                state, length, process = _RECORD.unpack_from(record)
                if state != _IN_FLIGHT or self._presence.isAlive(process):
                    reply = None if state == _IN_FLIGHT else record[_RECORD.size :]
                    known.append(CachedReply(until, length, reply, state == _REPLIED_KNOWN))
                    return None
            return _RECORD.pack(_IN_FLIGHT, size, self._presence.number), now + self._seconds

        try:
            self._table.change(_written(key), act)
        except self._busy:
            return self._own.begin(key, size)
        return known[0] if known else None

    def end(self, key: Hashable, reply: bytes, isKnown: bool = False) -> None:
        """Keep the reply to a request."""
        self._own.end(key, reply, isKnown)

        def act(record: bytes | None, until: float, now: float) -> "Change | None":
            if len(reply) > self._capacity:
                self._keep(record, key, reply, isKnown)
                return None
            length = self._inFlight(record)
            if length is None:
                return None
            state = _REPLIED_KNOWN if isKnown else _REPLIED
            return _RECORD.pack(state, length, self._presence.number) + reply, until

        name = _written(key)
        try:
            self._table.change(name, act)
        except self._busy:
            # Only this process writes its calls in flight, so they can be read without the lock.
            found = self._table.peek(name)
            self._keep(None if found is None else found[0], key, reply, isKnown)

    def _keep(self, record: bytes | None, key: Hashable, reply: bytes, isKnown: bool) -> None:
        """Keep a reply that cannot be stored in the table."""
        length = self._inFlight(record)
        if length is not None:
            self._own.begin(key, length)
            self._own.end(key, reply, isKnown)

    def _inFlight(self, record: bytes | None) -> int | None:
        """Return the length of a request in flight in this process; otherwise C{None}."""
        if record is None:
            return None
        state, length, process = _RECORD.unpack_from(record)
        # The record may have been evicted, and the request restarted elsewhere.
        isOurs = state == _IN_FLIGHT and process == self._presence.number
        return length if isOurs else None


def _written(key: Hashable) -> bytes:
    """Encode a key; different tuples of strings and numbers have different encodings."""
    return ascii(key).encode("ascii")
