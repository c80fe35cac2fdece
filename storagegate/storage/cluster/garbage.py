"""
Work on behalf of all nodes: ended leases, blobs without references, and jobs that run on one node.

B{The order of a removal.} A mutation frees references by adding rows to C{freed}. L{Cleanup.fold}
subtracts references that no reader can still have found from the counts. A blob without references
and holds is garbage: its bytes are removed, then its row. After a crash the remaining steps are
repeated.
"""

from collections.abc import Sequence
from struct import unpack

from zope.interface import implementer

from storagegate.storage.cluster.connection import Rows, StatementRefused, Step
from storagegate.storage.cluster.databaselocks import Locks
from storagegate.storage.cluster.events import MAX_EVENTS
from storagegate.storage.cluster.interfaces import Backlog, EndedLease, ICleanup, NodeRow
from storagegate.storage.cluster.primary import PersistentConnection
from storagegate.storage.cluster.values import (
    TRUE,
    boolean,
    float8,
    int4,
    int8,
    integer,
    textArray,
)
from storagegate.storage.errors import StoreBusy

FOLDED = 10_000
"""
The most references per transaction, which locks the rows of their blobs for some tens of
milliseconds.
"""


@implementer(ICleanup)
class Cleanup:
    """
    The work for all nodes. Methods: reactor thread; each may raise C{StoreBusy}.

    @param connection: The connection for listings, because nothing here is urgent.
    @param locks: The locks that writers take.
    """

    def __init__(self, connection: PersistentConnection, locks: Locks) -> None:
        self._connection = connection
        self._locks = locks

    async def endLapsed(self) -> list[EndedLease]:
        """
        End the expired leases; return all leases that are ended but not forgotten.

        Ending a lease waits for its commits. Nothing is committed under it afterwards.
        """
        (rows,) = await self._run((b"lapsed", ()))
        for n in range(rows.ntuples):
            number = integer(rows.get_value(n, 0))
            try:
                await self.endLease(number)
            except StoreBusy as error:
                stalled = self._locks.endStalled(number)
                if stalled and isinstance(error.__cause__, StatementRefused):
                    # Its node may be frozen in the middle of a batch, which still has its locks of
                    # the lease and of keys. The next call ends the lease.
                    await self._run(*stalled)
                raise
        (rows,) = await self._run((b"ended", ()))
        return [
            EndedLease(*(integer(rows.get_value(n, column)) for column in range(3)))
            for n in range(rows.ntuples)
        ]

    async def endLease(self, number: int, evenValid: bool = False) -> None:
        """
        End a lease after its commits.

        @param evenValid: Whether to end a lease that has not expired: this node's own, when it
            stops.
        """
        await self._run(
            self._locks.leaseAlone(number),
            (b"endlease", (int8(number), boolean(evenValid))),
        )

    async def settleLease(self, number: int, low: int) -> None:
        """Record how far an ended lease is swept."""
        await self._run((b"settled", (int8(number), int8(low))))

    async def forgetLease(self, number: int) -> None:
        """Remove a swept lease with its holds and watches."""
        steps = (b"forgetholds", b"dropwatches", b"forgetlease")
        await self._run(*((step, (int8(number),)) for step in steps))

    async def fold(self, most: int = FOLDED) -> tuple[int, int]:
        """
        Fold freed references that no reader can still have found into the counts of their blobs,
        fold the usage of the buckets, and remove events that all nodes have read.

        @return: The number of folded references, and the number of blobs left without references.
        """
        rows, _, _ = await self._run(
            (b"fold", (int4(most),)), (b"foldusage", ()), (b"trimevents", (int8(MAX_EVENTS),))
        )
        return integer(rows.get_value(0, 0)), integer(rows.get_value(0, 1))

    async def hold(self, lease: int, ids: Sequence[str]) -> None:
        """Hold blobs for a long read, until L{release} or the end of the lease."""
        await self._run((b"hold", (int8(lease), textArray(ids))))

    async def release(self, lease: int, ids: Sequence[str]) -> None:
        """Undo L{hold}."""
        await self._run((b"release", (int8(lease), textArray(ids))))

    async def claimJob(self, name: str, lease: int, seconds: float) -> bool:
        """
        Claim a job for this node, or keep it.

        @param name: The name of the job.
        @param lease: The lease of this node.
        @param seconds: How long the claim lasts unless it is renewed.
        """
        (rows,) = await self._run((b"claimjob", (name.encode(), int8(lease), float8(seconds))))
        return bool(rows.ntuples)

    async def releaseJob(self, name: str, lease: int) -> None:
        """Release a job to other nodes."""
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
        """Read C{synchronous_standby_names} and the number of standbys that commits wait for."""
        (rows,) = await self._run((b"replication", ()))
        return rows.get_value(0, 0).decode(), integer(rows.get_value(0, 1))

    async def backlog(self) -> Backlog:
        """Count the backlog of garbage collection."""
        (rows,) = await self._run((b"backlog", ()))
        return Backlog(*(integer(rows.get_value(0, column)) for column in range(3)))

    async def _run(self, *steps: Step) -> list[Rows]:
        connection = self._connection.connection or await self._connection.opened()
        try:
            return await connection.run(steps)
        except StatementRefused as error:
            raise StoreBusy(str(error)) from error
