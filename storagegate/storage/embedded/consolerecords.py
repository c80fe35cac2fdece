"""The records of the console in C{sessions.sqlite} of the data directory, for all workers."""

import os
from collections.abc import Callable
from typing import TypeVar

from zope.interface import implementer

from storagegate.storage.consolerecords import ConsoleRecord, IConsoleRecords, RecordLimits
from storagegate.storage.errors import StoreError
from storagegate.storage.layout import SESSIONS
from storagegate.storage.sqlite import FileKind, SQLiteFile
from storagegate.storage.threadpool import IWorkPool, SequentialPool

T = TypeVar("T")

_BUSY_MS = 2000


class ConsoleRecordsUnusable(StoreError):
    """The file of the records is unusable."""


_KIND = FileKind(
    keeps="console records",
    migrations=(
        (
            """
            CREATE TABLE consoleSessions (
                id TEXT PRIMARY KEY NOT NULL,
                token TEXT NOT NULL,
                accessKey TEXT NOT NULL,
                proof TEXT NOT NULL,
                createdMs INTEGER NOT NULL,
                usedMs INTEGER NOT NULL,
                address TEXT NOT NULL,
                agent TEXT NOT NULL
            )
            """,
        ),
        (
            """
            CREATE TABLE consoleTickets (
                id TEXT PRIMARY KEY NOT NULL,
                session TEXT NOT NULL,
                expiresMs INTEGER NOT NULL,
                document BLOB NOT NULL
            )
            """,
        ),
        (
            "ALTER TABLE consoleSessions ADD COLUMN document TEXT NOT NULL DEFAULT ''",
            """
            CREATE TABLE consoleSignIns (
                state TEXT PRIMARY KEY NOT NULL,
                expiresMs INTEGER NOT NULL
            )
            """,
        ),
        (
            """
            CREATE TABLE consoleRecords (
                kind TEXT NOT NULL,
                id TEXT NOT NULL,
                owner TEXT NOT NULL,
                expiresMs INTEGER NOT NULL,
                document BLOB NOT NULL,
                PRIMARY KEY (kind, id)
            )
            """,
            "CREATE INDEX consoleRecordsByOwner ON consoleRecords (owner, kind, expiresMs)",
            "CREATE INDEX consoleRecordsByExpiry ON consoleRecords (kind, expiresMs)",
            """
            INSERT INTO consoleRecords SELECT 'session', id, accessKey,
                min(usedMs + 1800000, createdMs + 43200000),
                CAST(json_object('id', id, 'accessKey', accessKey, 'token', token, 'proof', proof,
                    'createdMs', createdMs, 'usedMs', usedMs, 'address', address,
                    'agent', agent, 'grant',
                    CASE document WHEN '' THEN NULL ELSE json(document) END) AS BLOB)
            FROM consoleSessions
            """,
            """
            INSERT INTO consoleRecords SELECT 'ticket', id, session, expiresMs, document
            FROM consoleTickets
            """,
            """
            INSERT INTO consoleRecords SELECT 'signIn', state, '', expiresMs, x''
            FROM consoleSignIns
            """,
            "DROP TABLE consoleSessions",
            "DROP TABLE consoleTickets",
            "DROP TABLE consoleSignIns",
            # The mark of the file.
            "CREATE INDEX consoleSessions ON consoleRecords (expiresMs)",
        ),
    ),
    mark="consoleSessions",
    # Signing out must be durable, too.
    synchronous="FULL",
    error=ConsoleRecordsUnusable,
)

_COLUMNS = "kind, id, owner, expiresMs, document"

_OVER = """
    SELECT id FROM (SELECT id FROM consoleRecords WHERE kind = ?1
        ORDER BY expiresMs DESC, id LIMIT -1 OFFSET ?3 - 1)
    UNION SELECT id FROM (SELECT id FROM consoleRecords WHERE kind = ?1 AND owner = ?2
        ORDER BY expiresMs DESC, id LIMIT -1 OFFSET ?4 - 1)
    UNION SELECT id FROM (SELECT id,
            SUM(LENGTH(document)) OVER (ORDER BY expiresMs DESC, id) AS bytes
        FROM consoleRecords WHERE kind = ?1 AND owner = ?2)
        WHERE bytes > ?5
"""
"""The ids of the records that a new one evicts."""


@implementer(IConsoleRecords)
class EmbeddedConsoleRecords:
    """Stores records in a file. Must run in the reactor thread; the file is used in threads."""

    isOfNodes = False

    def __init__(self, directory: str, pool: IWorkPool) -> None:
        """
        @param directory: The data directory.
        @param pool: Runs blocking calls.
        """
        self._file = SQLiteFile(os.path.join(directory, SESSIONS), _KIND, _BUSY_MS)
        self._pool = SequentialPool(pool)

    async def add(self, record: ConsoleRecord, limits: RecordLimits, nowMs: int) -> bool:
        """See L{IConsoleRecords.add}."""
        over = (
            record.kind,
            record.owner,
            limits.most,
            limits.mostOfOwner,
            limits.mostBytesOfOwner - len(record.document),
        )

        def act() -> bool:
            execute = self._file.execute
            execute("DELETE FROM consoleRecords WHERE expiresMs <= ?", nowMs)
            if limits.evicts:
                for (id,) in execute(_OVER, *over).fetchall():
                    self._remove(record.kind, id)
            else:
                select = "SELECT COUNT(*) FROM consoleRecords WHERE kind = ?"
                if execute(select, record.kind).fetchone()[0] >= limits.most:
                    return False
            insert = f"INSERT OR IGNORE INTO consoleRecords ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)"
            columns = (record.kind, record.id, record.owner, record.expiresMs, record.document)
            return bool(execute(insert, *columns).rowcount)

        return await self._perform(act, True)

    async def find(self, kind: str, id: str) -> ConsoleRecord | None:
        """See L{IConsoleRecords.find}."""
        found = await self._select("kind = ? AND id = ?", kind, id)
        return found[0] if found else None

    async def records(self, kind: str, owner: str | None) -> list[ConsoleRecord]:
        """See L{IConsoleRecords.records}."""
        if owner is None:
            return await self._select("kind = ?", kind)
        return await self._select("kind = ? AND owner = ?", kind, owner)

    async def replace(self, record: ConsoleRecord) -> bool:
        """See L{IConsoleRecords.replace}."""
        update = (
            "UPDATE consoleRecords SET document = ?, expiresMs = max(expiresMs, ?)"
            " WHERE kind = ? AND id = ?"
        )
        values = (record.document, record.expiresMs, record.kind, record.id)
        return await self._perform(lambda: bool(self._file.execute(update, *values).rowcount), True)

    async def remove(self, kind: str, id: str) -> None:
        """See L{IConsoleRecords.remove}."""
        await self._perform(lambda: self._remove(kind, id), True)

    async def close(self) -> None:
        """See L{IConsoleRecords.close}."""
        await self._pool.run(self._file.close)

    def _remove(self, kind: str, id: str) -> None:
        self._file.execute("DELETE FROM consoleRecords WHERE kind = ? AND id = ?", kind, id)
        self._file.execute("DELETE FROM consoleRecords WHERE owner = ? AND kind != ?", id, kind)

    async def _select(self, where: str, *values: str) -> list[ConsoleRecord]:
        select = f"SELECT {_COLUMNS} FROM consoleRecords WHERE {where}"
        rows = await self._perform(lambda: self._file.execute(select, *values).fetchall(), False)
        return [
            ConsoleRecord(kind, id, owner, expiresMs, bytes(document))
            for kind, id, owner, expiresMs, document in rows
        ]

    async def _perform(self, act: Callable[[], T], writes: bool) -> T:
        found: T = await self._pool.run(self._file.perform, act, writes)
        return found
