"""
Batched look-ups of current objects: the look-ups of one reactor iteration, and those that arrive
while queries are in flight, share one query. In a batch of 30, a look-up takes a third of the time,
both here and in the server.
"""

from typing import Any, TypeAlias

from twisted.internet.defer import Deferred, fail

from storagegate.storage.cluster.connection import Rows
from storagegate.storage.cluster.primary import MAX_WAITING, PersistentConnection
from storagegate.storage.cluster.values import (
    byteaArray,
    integer,
    textArray,
)
from storagegate.storage.errors import StoreBusy

_MOST_GATHERED = 32
"""The most look-ups per query, because the first waits for the last."""

_MOST_SENT = 2
"""Queries in flight: the server processes one while the results of the other are read."""

FoundRow: TypeAlias = "tuple[Rows, int]"
"""The result of a query and the row number of one look-up."""

_Waiting: TypeAlias = "tuple[str, bytes, float, Deferred[FoundRow]]"


class ObjectGatherer:
    """Finds current objects. Methods: reactor thread."""

    def __init__(self, reactor: Any, connection: PersistentConnection) -> None:
        self._reactor = reactor
        self._connection = connection
        self._waiting: list[_Waiting] = []
        self._sent = 0
        self._isScheduled = False

    def find(self, bucket: str, key: bytes) -> Deferred[FoundRow]:
        """
        Find an object.

        @param bucket: The bucket's name, without NUL.
        @return: The row of C{objects}; its first column is C{NULL} if the bucket does not exist.
        @raise StoreBusy: The catalog did not answer, or too many look-ups wait.
        """
        if len(self._waiting) >= MAX_WAITING:
            return fail(StoreBusy("too many queries are waiting for the catalog"))
        found: Deferred[FoundRow] = Deferred()
        self._waiting.append((bucket, key, self._reactor.seconds(), found))
        self._schedule()
        return found

    def _schedule(self) -> None:
        if self._waiting and self._sent < _MOST_SENT and not self._isScheduled:
            self._isScheduled = True
            self._reactor.callLater(0, self._send)

    def _send(self) -> None:
        self._isScheduled = False
        while self._waiting and self._sent < _MOST_SENT:
            taken = self._waiting[:_MOST_GATHERED]
            del self._waiting[:_MOST_GATHERED]
            self._sent += 1
            Deferred.fromCoroutine(self._query(taken))

    async def _query(self, taken: list[_Waiting]) -> None:
        """Run the query and fire each look-up with its row."""
        values = (textArray([each[0] for each in taken]), byteaArray([each[1] for each in taken]))
        try:
            (rows,) = await self._connection.query((b"objects", values), began=taken[0][2])
        except Exception as error:
            for *_, found in taken:
                found.errback(StoreBusy(str(error)) if isinstance(error, StoreBusy) else error)
            return
        finally:
            self._sent -= 1
            self._schedule()
        last = rows.nfields - 1
        for n in range(rows.ntuples):
            taken[integer(rows.get_value(n, last)) - 1][3].callback((rows, n))
