"""
Answers that were given, in memory that the processes of one machine share.

A datagram that is repeated may come to another process than the first one did. A record of the
table is the state of a request, its length, who does it, and the answer once there is one. While a
request is under way, only its process can answer it; when that one is gone, it is new again.
"""

from collections.abc import Hashable
from struct import Struct

from zope.interface import implementer

from storagegate.core.presence import Presence
from storagegate.core.sharedtable import Change, SharedTable, TableBusy
from storagegate.gateway.dedup import MAX_ANSWERS, SECONDS, AnswerCache, Exchange, IAnswerCache

ANSWER_BYTES = 1200
"""The largest answer that is shared: C{maxPacketSize}, unless somebody has set it higher."""

ROWS = 2 * MAX_ANSWERS
"""In the table of the daemon, 25 MB, of which those are taken up that were used."""

_UNDER_WAY, _ANSWERED, _ANSWERED_KNOWN = range(3)
_RECORD = Struct("<BIQ")


def makeAnswerMemory(rows: int = ROWS, answerBytes: int = ANSWER_BYTES) -> int:
    """
    Make the memory of a table for answers.

    @return: Its descriptor, see L{SharedTable.make}.
    """
    return SharedTable.make("storagegate-answers", rows, _RECORD.size + answerBytes)


@implementer(IAnswerCache)
class SharedAnswerCache:
    """
    Requests in a shared table.

    An answer that is too large for it is known to the process that gave it; so is what came while
    another process held its place in the table: nobody waits for that.
    """

    def __init__(self, table: SharedTable, seconds: float = SECONDS) -> None:
        """
        @param table: What L{makeAnswerMemory} has made, attached.
        @raise ValueError: If the table is one for something smaller.
        """
        self._room = table.size - _RECORD.size
        if self._room < 1:
            raise ValueError(f"the table has records of {table.size} bytes, too small for answers")
        self._table = table
        self._seconds = seconds
        self._presence = Presence(table.fd)
        self._own = AnswerCache(table.now, seconds)

    def close(self) -> None:
        """Leave: what this process has under way is new to the others."""
        self._presence.close()

    def begin(self, key: Hashable, size: int = 0) -> Exchange | None:
        """
        Take note of a request of so many bytes.

        @return: C{None} if it is a new one, else what is known of it.
        """
        own = self._own.find(key)
        if own is not None:
            return own
        known: list[Exchange] = []

        def act(record: bytes | None, until: float, now: float) -> Change | None:
            if record is not None:
                state, length, process = _RECORD.unpack_from(record)
                if state != _UNDER_WAY or self._presence.isThere(process):
                    answer = None if state == _UNDER_WAY else record[_RECORD.size :]
                    known.append(Exchange(until, length, answer, state == _ANSWERED_KNOWN))
                    return None
            return _RECORD.pack(_UNDER_WAY, size, self._presence.number), now + self._seconds

        try:
            self._table.change(_written(key), act)
        except TableBusy:
            return self._own.begin(key, size)
        return known[0] if known else None

    def end(self, key: Hashable, answer: bytes, isKnown: bool = False) -> None:
        """Keep the answer of a request, and whether it was known who calls."""
        self._own.end(key, answer, isKnown)

        def act(record: bytes | None, until: float, now: float) -> Change | None:
            if len(answer) > self._room:
                self._keep(record, key, answer, isKnown)
                return None
            length = self._underWay(record)
            if length is None:
                return None
            state = _ANSWERED_KNOWN if isKnown else _ANSWERED
            return _RECORD.pack(state, length, self._presence.number) + answer, until

        name = _written(key)
        try:
            self._table.change(name, act)
        except TableBusy:
            # What is under way here nobody else writes: it can be read without its place.
            found = self._table.peek(name)
            self._keep(None if found is None else found[0], key, answer, isKnown)

    def _keep(self, record: bytes | None, key: Hashable, answer: bytes, isKnown: bool) -> None:
        """Keep an answer that does not get into the table."""
        length = self._underWay(record)
        if length is not None:
            self._own.begin(key, length)
            self._own.end(key, answer, isKnown)

    def _underWay(self, record: bytes | None) -> int | None:
        """Give the length of a request that is under way here, C{None} if it is not."""
        if record is None:
            return None
        state, length, process = _RECORD.unpack_from(record)
        # It may have left the table, and been begun anew elsewhere.
        isOurs = state == _UNDER_WAY and process == self._presence.number
        return length if isOurs else None


def _written(key: Hashable) -> bytes:
    """Give the bytes of a key: of texts and numbers in tuples, no two are written alike."""
    return ascii(key).encode("ascii")
