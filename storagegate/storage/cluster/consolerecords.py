"""
The records of the console in the catalog, for all nodes, and the migration that adds them.

A lost connection or the promotion of a standby loses no record. Backups and migrations of a store
do not copy records: a session that was ended must not come back.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from storagegate.storage.cluster.connection import Rows, Step
from storagegate.storage.cluster.primary import PersistentConnection
from storagegate.storage.cluster.values import TRUE, boolean, int8, integer
from storagegate.storage.cluster.writer import PendingMutation
from storagegate.storage.consolerecords import ConsoleRecord, IConsoleRecords, RecordLimits

CONSOLE_RECORDS = (
    """
    CREATE TABLE consolerecords (
        kind text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        owner text COLLATE "C" NOT NULL,
        expiresms bigint NOT NULL,
        document bytea NOT NULL,
        PRIMARY KEY (kind, id)
    )
    """,
    "CREATE INDEX consolerecordsbyowner ON consolerecords (owner, kind, expiresms)",
    "CREATE INDEX consolerecordsbyexpiry ON consolerecords (kind, expiresms)",
    "CREATE INDEX consolerecordsbyend ON consolerecords (expiresms)",
    # A node whose clock is ahead removes no record that has not expired by the server's clock, too.
    # Skips the rows that another node removes at the same time, so that nodes never wait for each
    # other in different orders.
    """
    CREATE FUNCTION addconsolerecord(pkind text, pid text, powner text, pexpires bigint,
        pdocument bytea, pnow bigint, pmost bigint, pmostofowner bigint, pmostbytes bigint,
        pevicts boolean, OUT rstored boolean)
    LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM consolerecords WHERE (kind, id) IN (
            SELECT c.kind, c.id FROM consolerecords AS c
            WHERE c.expiresms <= least(pnow, (extract(epoch FROM now()) * 1000)::bigint)
            LIMIT 1000 FOR UPDATE SKIP LOCKED);
        IF pevicts THEN
            WITH over AS (
                (SELECT c.id FROM consolerecords AS c WHERE c.kind = pkind
                    ORDER BY c.expiresms DESC, c.id OFFSET pmost - 1)
                UNION
                (SELECT c.id FROM consolerecords AS c WHERE c.kind = pkind AND c.owner = powner
                    ORDER BY c.expiresms DESC, c.id OFFSET pmostofowner - 1)
                UNION
                SELECT s.id FROM (
                    SELECT c.id, sum(octet_length(c.document))
                        OVER (ORDER BY c.expiresms DESC, c.id) AS bytes
                    FROM consolerecords AS c WHERE c.kind = pkind AND c.owner = powner
                ) AS s WHERE s.bytes > pmostbytes - octet_length(pdocument)
            ), gone AS (
                DELETE FROM consolerecords WHERE kind = pkind AND id IN (
                    SELECT c.id FROM consolerecords AS c
                    WHERE c.kind = pkind AND c.id IN (SELECT o.id FROM over AS o)
                    FOR UPDATE SKIP LOCKED)
                RETURNING id
            )
            DELETE FROM consolerecords AS c USING gone AS g
                WHERE c.owner = g.id AND c.kind <> pkind;
        ELSIF (SELECT count(*) FROM consolerecords WHERE kind = pkind) >= pmost THEN
            rstored := false;
            RETURN;
        END IF;
        INSERT INTO consolerecords VALUES (pkind, pid, powner, pexpires, pdocument)
            ON CONFLICT DO NOTHING;
        rstored := FOUND;
    END $$
    """,
    """
    CREATE FUNCTION removeconsolerecord(pkind text, pid text) RETURNS void LANGUAGE sql AS $$
        DELETE FROM consolerecords WHERE kind = pkind AND id = pid;
        DELETE FROM consolerecords WHERE owner = pid AND kind <> pkind;
    $$
    """,
)
"""Creates the table and its functions."""


@implementer(IConsoleRecords)
class ClusterConsoleRecords:
    """Stores records in the catalog. Methods: reactor thread."""

    isOfNodes = True

    def __init__(
        self,
        connection: PersistentConnection,
        submit: Callable[[PendingMutation], Deferred[Any]],
    ) -> None:
        """
        @param connection: The connection for look-ups.
        @param submit: Queues a mutation under the lease of this node.
        """
        self._connection = connection
        self._submit = submit

    async def add(self, record: ConsoleRecord, limits: RecordLimits, nowMs: int) -> bool:
        """See L{IConsoleRecords.add}."""
        values = (
            record.kind.encode(),
            record.id.encode(),
            record.owner.encode(),
            int8(record.expiresMs),
            record.document,
            int8(nowMs),
            int8(limits.most),
            int8(limits.mostOfOwner),
            int8(limits.mostBytesOfOwner),
            boolean(limits.evicts),
        )
        isStored: bool = await self._change(record.id, (b"addconsolerecord", values), _isTrue)
        return isStored

    async def find(self, kind: str, id: str) -> ConsoleRecord | None:
        """See L{IConsoleRecords.find}."""
        rows = await self._connection.lookUp((b"consolerecord", (kind.encode(), id.encode())))
        return _record(rows, 0) if rows.ntuples else None

    async def records(self, kind: str, owner: str | None) -> list[ConsoleRecord]:
        """See L{IConsoleRecords.records}."""
        values = (kind.encode(), None if owner is None else owner.encode())
        (rows,) = await self._connection.query((b"consolerecords", values))
        return [_record(rows, number) for number in range(rows.ntuples)]

    async def replace(self, record: ConsoleRecord) -> bool:
        """See L{IConsoleRecords.replace}."""
        values = (
            record.kind.encode(),
            record.id.encode(),
            int8(record.expiresMs),
            record.document,
        )
        isFound: bool = await self._change(
            record.id, (b"replaceconsolerecord", values), lambda results: bool(results[0].ntuples)
        )
        return isFound

    async def remove(self, kind: str, id: str) -> None:
        """See L{IConsoleRecords.remove}."""
        await self._change(id, (b"removeconsolerecord", (kind.encode(), id.encode())))

    async def close(self) -> None:
        """See L{IConsoleRecords.close}. Does nothing: the catalog is closed with the store."""

    def _change(
        self,
        id: str,
        step: Step,
        read: Callable[[Sequence[Rows]], Any] = lambda results: None,
    ) -> Deferred[Any]:
        weight = sum(len(value) for value in step[1] if value is not None)
        # The changes of one record keep their order.
        key = b"console/" + id.encode()
        return self._submit(PendingMutation("", ((key, step),), read, weight=weight))


def _isTrue(results: Sequence[Rows]) -> bool:
    found: bool = results[0].get_value(0, 0) == TRUE
    return found


def _record(rows: Rows, number: int) -> ConsoleRecord:
    kind, id, owner, expiresMs, document = (rows.get_value(number, column) for column in range(5))
    return ConsoleRecord(kind.decode(), id.decode(), owner.decode(), integer(expiresMs), document)
