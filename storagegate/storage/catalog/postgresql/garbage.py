"""
Leases that are over, blobs without references, and work of one node: what nodes do for all of them.

B{The order of a removal.} A mutation gives references back: rows in C{freed}. L{Cleanup.fold} takes
those that no reader can have found any more off the counts. What has no references and no holds is
garbage: its bytes are removed, then its row. A crash repeats the rest.
"""

from collections.abc import Sequence
from struct import unpack

from zope.interface import implementer

from storagegate.storage.catalog.postgresql.connection import Rows, StatementRefused, Step
from storagegate.storage.catalog.postgresql.events import MAX_EVENTS
from storagegate.storage.catalog.postgresql.locks import Locks
from storagegate.storage.catalog.postgresql.primary import PersistentConnection
from storagegate.storage.catalog.postgresql.values import (
    TRUE,
    boolean,
    float8,
    int4,
    int8,
    integer,
    textArray,
)
from storagegate.storage.clustercatalog import Backlog, EndedLease, ICleanup, NodeRow
from storagegate.storage.errors import StoreBusy

FOLDED = 10_000
"""References in one transaction: it locks the rows of their blobs for some tens of milliseconds."""


@implementer(ICleanup)
class Cleanup:
    """
    The work for all nodes. Methods: reactor thread; each may raise C{StoreBusy}.

    @param connection: That of the lists: nothing here is urgent.
    @param locks: Those with which writers begin.
    """

    def __init__(self, connection: PersistentConnection, locks: Locks) -> None:
        self._connection = connection
        self._locks = locks

    async def endLapsed(self) -> list[EndedLease]:
        """
        End the leases whose time is over; return all that are ended and not forgotten.

        Each waits for commits under it. From then on nothing is committed under it.
        """
        (rows,) = await self._run((b"lapsed", ()))
        for n in range(rows.ntuples):
            await self.endLease(integer(rows.get_value(n, 0)))
        (rows,) = await self._run((b"ended", ()))
        return [
            EndedLease(*(integer(rows.get_value(n, column)) for column in range(3)))
            for n in range(rows.ntuples)
        ]

    async def endLease(self, number: int, evenValid: bool = False) -> None:
        """
        End a lease, after the commits under it.

        @param evenValid: Also if it is not over: this node's own, when it stops.
        """
        await self._run(
            self._locks.leaseAlone(number),
            (b"endlease", (int8(number), boolean(evenValid))),
        )

    async def settleLease(self, number: int, low: int) -> None:
        """Note how far an ended lease is swept."""
        await self._run((b"settled", (int8(number), int8(low))))

    async def forgetLease(self, number: int) -> None:
        """Remove an ended lease that is swept, what it holds, and what it watches."""
        steps = (b"forgetholds", b"dropwatches", b"forgetlease")
        await self._run(*((step, (int8(number),)) for step in steps))

    async def fold(self, most: int = FOLDED) -> tuple[int, int]:
        """
        Take references that were given back off the counts of their blobs, if no reader can have
        found them any more, add up what the buckets hold, and remove events that all nodes have
        read.

        @return: How many were folded, and how many blobs have none now.
        """
        rows, _, _ = await self._run(
            (b"fold", (int4(most),)), (b"foldusage", ()), (b"trimevents", (int8(MAX_EVENTS),))
        )
        return integer(rows.get_value(0, 0)), integer(rows.get_value(0, 1))

    async def hold(self, lease: int, ids: Sequence[str]) -> None:
        """Keep blobs for a long read, until L{release} or the end of the lease."""
        await self._run((b"hold", (int8(lease), textArray(ids))))

    async def release(self, lease: int, ids: Sequence[str]) -> None:
        """Undo L{hold}."""
        await self._run((b"release", (int8(lease), textArray(ids))))

    async def claimJob(self, name: str, lease: int, seconds: float) -> bool:
        """
        Become, or stay, the only node that does some work.

        @param name: That of the work.
        @param lease: Of this node.
        @param seconds: Until another node may claim it, if this one does not do so again.
        """
        (rows,) = await self._run((b"claimjob", (name.encode(), int8(lease), float8(seconds))))
        return bool(rows.ntuples)

    async def releaseJob(self, name: str, lease: int) -> None:
        """Let another node do the work."""
        await self._run((b"releasejob", (name.encode(), int8(lease))))

    async def nodes(self) -> list[NodeRow]:
        """List all leases."""
        (rows,) = await self._run((b"nodes", ()))
        get = rows.get_value
        return [
            NodeRow(
                integer(get(n, 0)),
                get(n, 1).decode(),
                get(n, 2) == TRUE,
                unpack("!d", get(n, 3))[0],
                integer(get(n, 4)),
                integer(get(n, 5)),
            )
            for n in range(rows.ntuples)
        ]

    async def replication(self) -> tuple[str, int]:
        """Read C{synchronous_standby_names}, and how many standbys commits wait for."""
        (rows,) = await self._run((b"replication", ()))
        return rows.get_value(0, 0).decode(), integer(rows.get_value(0, 1))

    async def backlog(self) -> Backlog:
        """Count what waits to be collected."""
        (rows,) = await self._run((b"backlog", ()))
        return Backlog(*(integer(rows.get_value(0, column)) for column in range(3)))

    async def _run(self, *steps: Step) -> list[Rows]:
        connection = self._connection.connection or await self._connection.opened()
        try:
            return await connection.run(steps)
        except StatementRefused as error:
            raise StoreBusy(str(error)) from error
