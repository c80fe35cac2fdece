"""
The records of the console, such as sessions and jobs: the interface and the values of their stores.

All processes of the console share a store, so a browser can send each request to another one. On
one machine it is a file (L{storagegate.storage.embedded.consolerecords}), in a cluster the catalog
(L{storagegate.storage.cluster.consolerecords}).
"""

from attrs import frozen
from zope.interface import Attribute, Interface


@frozen
class ConsoleRecord:
    """
    A record.

    @ivar kind: The kind of the record.
    @ivar id: The name of the record among those of its kind.
    @ivar owner: The owner: the access key of a session or a job, the session of a ticket.
    @ivar expiresMs: The time of expiry, in milliseconds since the epoch.
    """

    kind: str
    id: str
    owner: str
    expiresMs: int
    document: bytes


@frozen
class RecordLimits:
    """
    The limits of the records of a kind.

    @ivar most: Records in total.
    @ivar mostOfOwner: Records of one owner.
    @ivar mostBytesOfOwner: Bytes of the documents of one owner.
    @ivar evicts: Whether a new record evicts the records that expire first; if not, a record above
        the total is refused.
    """

    most: int
    mostOfOwner: int
    mostBytesOfOwner: int
    evicts: bool = True


class IConsoleRecords(Interface):
    """
    Stores records. Methods: reactor thread; each may raise
    L{StoreError<storagegate.storage.errors.StoreError>}.

    A change is durable before its Deferred fires, and all later look-ups of all processes see it.
    """

    isOfNodes: bool = Attribute("Whether processes of several machines share the records.")

    async def add(record: ConsoleRecord, limits: RecordLimits, nowMs: int) -> bool:
        """
        Store a record, and remove expired records.

        @param nowMs: The time now, in milliseconds since the epoch.
        @return: Whether the record was stored; false if its id exists or the limits refuse it.
        """

    async def find(kind: str, id: str) -> ConsoleRecord | None:
        """Look up a record, which may have expired."""

    async def records(kind: str, owner: str | None) -> list[ConsoleRecord]:
        """
        List the records of a kind, some of which may have expired.

        @param owner: List only the records of this owner.
        """

    async def replace(record: ConsoleRecord) -> bool:
        """
        Replace the document of a record, and move its expiry forward.

        @return: Whether the record exists.
        """

    async def remove(kind: str, id: str) -> None:
        """Remove a record and the records that it owns, if the record exists."""

    async def close() -> None:
        """Close the store of this process."""
