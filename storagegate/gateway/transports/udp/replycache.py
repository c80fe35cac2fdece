"""
Replies kept for retransmitted datagrams.

A client on UDP repeats a request that is not answered, and the network duplicates some by itself.
An id that comes again from the same address gets the same reply; the method does not run twice.

L{ReplyCache} is for one process. Processes that share a port share a L{SharedReplyCache} in
memory, because a repeated datagram may reach another process than the first one did. A record of
its table is the state of a request, its length, the process that serves it, and the reply once
there is one. Only that process ca reply while the request is in flight; if it dies, the request
is new again.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from struct import Struct
from typing import TYPE_CHECKING

from msgspec import Struct as Record
from zope.interface import Interface, implementer

if TYPE_CHECKING:
    # A process that is alone does not import it.
    from storagegate.core.sharedtable import Change, SharedTable

SECONDS = 247.0
"""How long a reply is kept: as in CoAP (RFC 7252 section 4.8.2, EXCHANGE_LIFETIME)."""

MAX_ANSWERS = 10_000
"""Replies that are kept, and calls in flight: 12 MB of the largest datagrams."""


class CachedReply(Record, gc=False):
    """
    A request that was seen.

    @ivar until: When it expires.
    @ivar size: Bytes of its datagram.
    @ivar reply: The last datagram of the reply; C{None} while it is in flight.
    @ivar isKnown: Whether the caller was authenticated.
    """

    until: float
    size: int
    reply: bytes | None = None
    isKnown: bool = False


class ReplyCacheUnavailable(Exception):
    """The server of a reply cache is away: it is unknown whether a request is new."""


class IReplyCache(Interface):
    """
    Requests that were seen, each with its reply once there is one.

    Every method may return its result, or an awaitable of it; datagrams that come for the call in
    the meantime, like the items of its stream, are lost then.

    C{begin} is one atomic step that records a request only if it is new. On one machine a call in
    flight is bound to its process, and is new again when that one has ended; from another machine
    that cannot be seen, and the call stays in flight until it expires. A cache is bounded, and may
    drop the oldest. A request whose C{begin} fails is dropped, and its client will repeat it.
    """

    def begin(key: Hashable, size: int = 0) -> CachedReply | Awaitable[CachedReply | None] | None:
        """
        Record a request.

        @param key: Its source and its id: a tuple of texts, numbers and such tuples.
        @param size: Bytes of the request's datagram.
        @return: C{None} if it is a new one, else the record of the first.
        @raise ReplyCacheUnavailable: It cannot be known. As a failure.
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
    """Requests in the memory of this process."""

    def __init__(
        self, now: Callable[[], float], seconds: float = SECONDS, maxAnswers: int = MAX_ANSWERS
    ) -> None:
        """
        @param now: Gives seconds of a clock that only goes forward.
        """
        self._now = now
        self._seconds = seconds
        self._maxAnswers = maxAnswers
        # In the order of their arrival, in which they expire.
        self._exchanges: OrderedDict[Hashable, CachedReply] = OrderedDict()
        # Before this none expires. A look at the oldest for each request takes 0.3 microseconds,
        # for it is in no cache of the processor any more.
        self._nextEnd = 0.0

    def __len__(self) -> int:
        """Count the requests that are remembered."""
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
        # Nothing that comes from now on ends before this.
        self._nextEnd = now + self._seconds
        while exchanges:
            oldest = next(iter(exchanges))
            if exchanges[oldest].until > now:
                self._nextEnd = exchanges[oldest].until
                break
            del exchanges[oldest]

    def find(self, key: Hashable) -> CachedReply | None:
        """Return the record of a request; C{None} if there is none."""
        exchange = self._exchanges.get(key)
        return None if exchange is None or exchange.until <= self._now() else exchange

    def forget(self, key: Hashable) -> None:
        """Remove a request, if it is there."""
        self._exchanges.pop(key, None)

    def end(self, key: Hashable, reply: bytes, isKnown: bool = False) -> None:
        """Keep the reply to a request."""
        exchange = self._exchanges.get(key)
        if exchange is not None:
            exchange.reply, exchange.isKnown = reply, isKnown


ANSWER_BYTES = 1200
"""The largest reply that is shared: the default of C{maxPacketSize}."""

ROWS = 2 * MAX_ANSWERS
"""Of the daemon's table: 25 MB, of which used rows alone take up memory."""

_IN_FLIGHT, _REPLIED, _REPLIED_KNOWN = range(3)
_RECORD = Struct("<BIQ")


def makeAnswerMemory(rows: int = ROWS, answerBytes: int = ANSWER_BYTES) -> int:
    """
    Make the memory of a table for replies.

    @param rows: Requests that it holds.
    @param answerBytes: Bytes of a reply at most.
    @return: Its descriptor, see L{SharedTable.make}.
    """
    from storagegate.core.sharedtable import SharedTable

    return SharedTable.make("storagegate-answers", rows, _RECORD.size + answerBytes)


@implementer(IReplyCache)
class SharedReplyCache:
    """
    Requests in a shared table.

    A reply that is too large for it is known to the process that sent it alone; so is a request
    that came while another process held its row of the table, for which no process waits.
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
        """Leave: the requests in flight here are new to the other processes."""
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
            # Only this process writes its calls in flight: they can be read without the lock.
            found = self._table.peek(name)
            self._keep(None if found is None else found[0], key, reply, isKnown)

    def _keep(self, record: bytes | None, key: Hashable, reply: bytes, isKnown: bool) -> None:
        """Keep a reply that does not get into the table."""
        length = self._inFlight(record)
        if length is not None:
            self._own.begin(key, length)
            self._own.end(key, reply, isKnown)

    def _inFlight(self, record: bytes | None) -> int | None:
        """Return the length of a request that is in flight here, C{None} if it is not."""
        if record is None:
            return None
        state, length, process = _RECORD.unpack_from(record)
        # It may have left the table, and been begun anew elsewhere.
        isOurs = state == _IN_FLIGHT and process == self._presence.number
        return length if isOurs else None


def _written(key: Hashable) -> bytes:
    """Return the bytes of a key: of texts and numbers in tuples, no two are written alike."""
    return ascii(key).encode("ascii")
