"""
The lease of this node, and the blob numbers reserved under it.

A lease is a row that its node renews by a commit. Writes of this node are committed only while that
row is alive (see L{storagegate.storage.cluster.writer}). The node itself measures the
lease by its own clock, from before it sent the renewal.

The row has C{low}, below which all numbers are settled, and C{high}, below which they are reserved.
After the lease ends, each blob with a number in between is either in the catalog or garbage.
"""

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.storage.blobids import blobId, readBlobId
from storagegate.storage.clock import bootSeconds
from storagegate.storage.cluster.connection import StatementRefused
from storagegate.storage.cluster.interfaces import INodeLeases
from storagegate.storage.cluster.primary import PersistentConnection
from storagegate.storage.cluster.values import float8, int8, integer
from storagegate.storage.errors import StoreBusy, StoreReadOnly

BLOCK = 4096
"""
Numbers per reservation; the next block is reserved when half of them are used. One CPU that does
nothing but create blobs uses them in two seconds.
"""


@define(eq=False)
class NodeLease:
    """
    A lease of this node.

    @ivar validUntil: The end of validity, by L{bootSeconds}.
    @ivar high: Lower numbers are reserved.
    """

    number: int
    validUntil: float
    high: int
    _next: int = field(default=0, init=False)
    # In ascending order, because numbers are added in that order.
    _unsettled: dict[int, None] = field(factory=dict, init=False)

    @property
    def low(self) -> int:
        """Lower numbers are settled."""
        return next(iter(self._unsettled), self._next)

    @property
    def left(self) -> int:
        """How many numbers can be taken without a reservation."""
        return self.high - self._next

    @property
    def next(self) -> int:
        """The next number to take."""
        return self._next

    def take(self) -> int:
        """Take a number, which is then unsettled."""
        number = self._next
        self._next += 1
        self._unsettled[number] = None
        return number

    def settle(self, number: int) -> None:
        """Record that the blob of a number is in the catalog or was removed."""
        self._unsettled.pop(number, None)


@implementer(INodeLeases)
class Leases:
    """
    Takes and renews the lease of this node. Methods: reactor thread.

    @ivar current: The current lease; L{None} before the first, and after a lease has ended or was
        given up.
    @ivar stamp: The stamp of reads that begin now: the oldest transaction in progress on the server
        at the last renewal. Reads do not find rows removed by earlier transactions.
    @ivar earlier: The stamp before the last renewal.
    @ivar onGivenUp: Called by L{giveUp}: the node needs a new lease.
    """

    _log = Logger()

    def __init__(
        self, connection: PersistentConnection, clock: Callable[[], float] = bootSeconds
    ) -> None:
        """
        @param connection: The connection for look-ups.
        """
        self.current: NodeLease | None = None
        self.stamp = self.earlier = 0
        self.onGivenUp: Callable[[], object] = lambda: None
        self._connection = connection
        self._clock = clock
        self._isReserving = False
        self._taking: object = None

    @property
    def number(self) -> int:
        """The number of the valid lease; 0 for none."""
        current = self.current
        return current.number if current is not None and self._clock() < current.validUntil else 0

    @property
    def isSettled(self) -> bool:
        """Whether all blobs of the current lease are in a row or removed."""
        return self.current is not None and self.current.low == self.current.next

    async def take(self, node: str, seconds: float) -> int:
        """
        Take a new lease in place of the current one.

        @param node: A name for operators.
        @param seconds: How long the lease is valid.
        @return: The stamp of reads that begin after this; see L{renew}.
        @raise StoreBusy: The catalog did not answer.
        """
        self.current = None
        taking = self._taking = object()
        began = self._clock()
        rows = await self._run(b"takelease", node.encode(), float8(seconds), int8(BLOCK))
        if self._taking is not taking:
            raise StoreBusy("the lease was given up while it was acquired")
        stamp = integer(rows.get_value(0, 1))
        self.adopt(integer(rows.get_value(0, 0)), began + seconds, stamp)
        return stamp

    def adopt(self, number: int, validUntil: float, stamp: int) -> None:
        """
        Use a lease that was taken with L{BLOCK} numbers.

        @param validUntil: The end of validity, by the clock of this object.
        @param stamp: The stamp of reads that begin after this.
        """
        self.current = NodeLease(number, validUntil, BLOCK)
        self.stamp = self.earlier = stamp

    async def renew(self, seconds: float, readsFrom: int) -> int:
        """
        Renew the lease.

        @param seconds: How long the lease is valid from now on.
        @param readsFrom: The stamp of the oldest read in progress, or else the stamp of the
            previous heartbeat. A blob that a read with this stamp may have found is not collected.
        @return: The stamp of reads that begin after this.
        @raise StoreReadOnly: The lease has ended; the node must take a new one.
        @raise StoreBusy: The catalog did not answer.
        """
        lease = self.current
        if lease is None:
            raise StoreReadOnly("this node holds no lease")
        began = self._clock()
        high = max(lease.high, lease.next + BLOCK)
        values = (int8(lease.number), float8(seconds), int8(lease.low), int8(high), int8(readsFrom))
        rows = await self._run(b"renewlease", *values)
        if not rows.ntuples:
            if self.current is lease:
                self.current = None
            raise StoreReadOnly("the lease of this node has expired")
        lease.high = max(lease.high, high)
        lease.validUntil = max(lease.validUntil, began + seconds)
        self.earlier, self.stamp = self.stamp, integer(rows.get_value(0, 0))
        return self.stamp

    def giveUp(self) -> None:
        """Give up the current lease, because the outcome of a commit is unknown."""
        # Also drop a lease that is being taken, perhaps from a server that is no longer the
        # primary.
        self._taking = None
        if self.current is not None:
            self.current = None
            self.onGivenUp()

    def newBlobId(self) -> str:
        """
        Generate a blob id under the lease.

        @raise StoreReadOnly: There is no valid lease.
        @raise StoreBusy: All reserved numbers are used.
        """
        lease = self.current
        if lease is None or self._clock() >= lease.validUntil:
            raise StoreReadOnly("this node holds no lease")
        if lease.left <= BLOCK // 2 and not self._isReserving:
            self._isReserving = True
            Deferred.fromCoroutine(self._reserve(lease)).addErrback(
                lambda failure: self._log.failure("no blob ids were reserved", failure)
            )
        if not lease.left:
            raise StoreBusy("no blob ids are reserved")
        return blobId(lease.number, lease.take())

    def settle(self, id: str) -> None:
        """Record that a blob of this node is in the catalog or was removed."""
        name = readBlobId(id)
        if name is not None and self.current is not None and name[0] == self.current.number:
            self.current.settle(name[1])

    async def _reserve(self, lease: NodeLease) -> None:
        high = lease.next + 2 * BLOCK
        try:
            rows = await self._run(b"reserve", int8(lease.number), int8(high))
            if rows.ntuples:
                lease.high = max(lease.high, high)
        except StoreBusy as error:
            self._log.warn("no blob ids were reserved: {error}", error=str(error))
        finally:
            self._isReserving = False

    async def _run(self, statement: bytes, *values: bytes) -> Any:
        connection = self._connection.connection or await self._connection.opened()
        try:
            (rows,) = await connection.run([(statement, values)])
        except StatementRefused as error:
            raise StoreBusy(str(error)) from error
        return rows
