"""
The change journal, which watchers on all nodes read; see
L{storagegate.storage.cluster.eventfunctions}.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.storage.cluster.connection import Connection, Rows
from storagegate.storage.cluster.interfaces import ChangePage, IChangeJournal
from storagegate.storage.cluster.mutations import (
    exposed,
    moveWatches,
    startWatch,
    stopWatch,
)
from storagegate.storage.cluster.primary import PersistentConnection
from storagegate.storage.cluster.values import TRUE, int4, int8, integer, textArray
from storagegate.storage.cluster.writer import PendingMutation
from storagegate.storage.records import ObjectChange
from storagegate.storage.versionids import VersionIds

MAX_EVENTS = 100_000
"""
The most events kept for a node that does not read them (30 MB): ten seconds of 10,000 writes per
second.
"""


@implementer(IChangeJournal)
class ChangeJournal:
    """The change journal. Methods: reactor thread."""

    def __init__(
        self,
        connection: PersistentConnection,
        ids: VersionIds,
        submit: Callable[[PendingMutation], Deferred[Any]],
    ) -> None:
        """
        @param connection: The connection for listings, which receives notifications.
        @param ids: The store's version ids.
        @param submit: Queues a mutation.
        """
        self.onEvents: Callable[[], object] = lambda: None
        self._connection = connection
        self._ids = ids
        self._submit = submit
        self._isListening = False

    async def watch(self, bucket: str, lease: int) -> str:
        """See L{IChangeJournal.watch}."""
        position: str = await self._submit(startWatch(bucket, lease))
        return position

    async def unwatch(self, bucket: str, lease: int) -> None:
        """See L{IChangeJournal.unwatch}."""
        await self._submit(stopWatch(bucket, lease))

    async def move(self, before: int, lease: int) -> bool:
        """See L{IChangeJournal.move}."""
        isMoved: bool = await self._submit(moveWatches(before, lease))
        return isMoved

    async def read(
        self, position: str, upTo: str | None, after: int, buckets: Sequence[str], limit: int
    ) -> ChangePage:
        """See L{IChangeJournal.read}."""
        values = (
            position.encode(),
            None if upTo is None else upTo.encode(),
            int8(after),
            textArray(buckets),
            int4(limit),
        )
        (rows,) = await self._connection.query((b"events", values))
        get = rows.get_value
        horizon = integer(get(0, 1))
        changes = (
            []
            if get(0, 4) is None
            else [(integer(get(row, 4)), self._change(rows, row)) for row in range(rows.ntuples)]
        )
        return ChangePage(
            get(0, 0).decode(),
            changes,
            len(changes) == limit,
            int(position.partition(":")[0]) < horizon,
            get(0, 2) == TRUE,
            integer(get(0, 3)),
        )

    async def save(self, lease: int, position: str) -> None:
        """See L{IChangeJournal.save}."""
        await self._connection.query((b"saveposition", (int8(lease), position.encode())))

    def listen(self, isListening: bool) -> None:
        """See L{IChangeJournal.listen}."""
        if isListening != self._isListening:
            self._isListening = isListening
            if self._connection.connection is not None:
                self._setListening(self._connection.connection)

    def opened(self, connection: Connection) -> None:
        """Listen again on a new connection."""
        if self._isListening:
            self._setListening(connection)

    def _setListening(self, connection: Connection) -> None:
        name = b"listenevents" if self._isListening else b"unlistenevents"
        connection.run([(name, ())]).addCallbacks(
            lambda _: self.onEvents(),
            # The loss is logged, and the next connection listens.
            lambda failure: None,
        )

    def _change(self, rows: Rows, row: int) -> ObjectChange:
        bucket, key, *columns = [rows.get_value(row, column) for column in range(5, 14)]
        name = bucket.decode()
        record = None if columns[-1] is None else exposed(self._ids, name, key, *columns)
        return ObjectChange(name, key, record)
